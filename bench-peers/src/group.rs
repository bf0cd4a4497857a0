//! Group commit for stores in which writers would wait for each other: writes that wait share a transaction.
//!
//! One thread commits at a time, for all that wait when it begins. `pleach-reshape` does the same, so plain stores get it too.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pleach_bench::{Result, Write};

/// The queue of writes.
#[derive(Default)]
pub(crate) struct Group {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_committing: bool,
    waiting: Vec<Arc<Request>>,
}

/// A copy of a thread's writes, and how they ended.
struct Request {
    writes: Vec<Owned>,
    result: Mutex<Option<Result<(), String>>>,
}

struct Owned {
    partition: usize,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Group {
    /// Makes writes durable by `commit`, which may get those of other threads besides.
    pub(crate) fn write(
        &self,
        writes: &[Write<'_>],
        commit: impl FnOnce(&[Write<'_>]) -> Result<()>,
    ) -> Result<()> {
        let mut state = locked(&self.state);
        let own = state.is_committing.then(|| Arc::new(Request::new(writes)));
        if let Some(own) = &own {
            state.waiting.push(Arc::clone(own));
            while state.is_committing {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                if let Some(result) = locked(&own.result).take() {
                    return result.map_err(Into::into);
                }
            }
        }
        state.is_committing = true;
        let requests = std::mem::take(&mut state.waiting);
        drop(state);
        let mut all: Vec<Write<'_>> = if own.is_some() { Vec::new() } else { writes.to_vec() };
        all.extend(requests.iter().flat_map(|request| request.writes.iter().map(Owned::as_write)));
        let result = commit(&all);
        let shared = result.as_ref().map(|()| ()).map_err(ToString::to_string);
        for request in &requests {
            *locked(&request.result) = Some(shared.clone());
        }
        locked(&self.state).is_committing = false;
        self.changed.notify_all();
        result
    }
}

impl Request {
    fn new(writes: &[Write<'_>]) -> Self {
        let owned = |write: &Write<'_>| Owned {
            partition: write.partition,
            key: write.key.to_vec(),
            value: write.value.map(<[u8]>::to_vec),
        };
        Self { writes: writes.iter().map(owned).collect(), result: Mutex::new(None) }
    }
}

impl Owned {
    fn as_write(&self) -> Write<'_> {
        Write { partition: self.partition, key: &self.key, value: self.value.as_deref() }
    }
}

/// Locks, also after another thread's panic, which ends the benchmark anyway.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
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
