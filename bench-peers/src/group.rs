//! Group commit for stores in which writers would wait for each other: writes that wait share a transaction.
//!
//! `pleach-reshape` shares transactions in the same way, so plain stores get it too.

use std::ops::Range;
use std::time::Instant;

use pleach::env::sync::{Combiner, Pace};
use pleach_bench::{Result, Write};

/// Writes that wait, and how a transaction ended.
#[derive(Default)]
pub(crate) struct Group(Combiner<Request, Result<(), String>>);

/// A copy of a thread's writes.
struct Request {
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    writes: Vec<(usize, Range<usize>, Option<Range<usize>>)>,
}

impl Group {
    /// Makes writes durable by `commit`, which may get those of other threads besides.
    pub(crate) fn write(
        &self,
        writes: &[Write<'_>],
        commit: impl FnOnce(&[Write<'_>]) -> Result<()>,
    ) -> Result<()> {
        let (_, result) = self.0.submit(Request::new(writes), |group| {
            let writes: Vec<_> = group.iter().copied().flat_map(Request::writes).collect();
            let started = Instant::now();
            let result = commit(&writes).map_err(|e| e.to_string());
            (result, Pace::of(started.elapsed()))
        });
        result.ok_or("a thread that was committing panicked")?.map_err(Into::into)
    }
}

impl Request {
    fn new(writes: &[Write<'_>]) -> Self {
        let len = writes.iter().map(|write| write.key.len() + write.value.map_or(0, <[u8]>::len)).sum();
        let mut bytes = Vec::with_capacity(len);
        let mut add = |part: &[u8]| {
            bytes.extend_from_slice(part);
            bytes.len() - part.len()..bytes.len()
        };
        let writes =
            writes.iter().map(|write| (write.partition, add(write.key), write.value.map(&mut add))).collect();
        Self { bytes, writes }
    }

    fn writes(&self) -> impl Iterator<Item = Write<'_>> {
        let part = |range: &Range<usize>| &self.bytes[range.clone()];
        self.writes.iter().map(move |(partition, key, value)| Write {
            partition: *partition,
            key: part(key),
            value: value.as_ref().map(part),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_write_is_committed_once_and_some_together() {
        const THREADS: usize = 8;
        const EACH: usize = 200;
        let (group, commits, keys) = (Group::default(), AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (group, commits, keys) = (&group, &commits, &keys);
                scope.spawn(move || {
                    for number in 0..EACH {
                        let key = format!("{thread}-{number}");
                        let write = Write { partition: 0, key: key.as_bytes(), value: None };
                        let commit = |writes: &[Write<'_>]| {
                            commits.fetch_add(1, Ordering::Relaxed);
                            std::thread::sleep(std::time::Duration::from_micros(100));
                            keys.lock().unwrap().extend(writes.iter().map(|write| write.key.to_vec()));
                            Ok(())
                        };
                        group.write(&[write], commit).unwrap();
                        assert!(keys.lock().unwrap().iter().any(|there| *there == key.as_bytes()));
                    }
                });
            }
        });
        let mut keys = keys.into_inner().unwrap();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), THREADS * EACH);
        assert!(commits.into_inner() < THREADS * EACH / 2);
    }
}
