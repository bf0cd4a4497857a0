//! Rows by id with an index of keys in the same store, behind the benchmark's trait: what MongoDB does.
//!
//! A put looks its key up in the index, a second table, and writes the row of that id, or appends a row and an entry of the
//! index, in one transaction. So values are appended, and the index gets the random inserts. Partitions are prefixes of keys.
//! Each library's part is an [`IndexedStore`]. All memory is the store's cache.
//!
//! Settings by name: those of the plain engine of the library, but for those of its partitions.

mod lmdb;
mod redb;
#[cfg(wiredtiger)]
mod wiredtiger;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use pleach_bench::{Capabilities, Engine, EngineFactory, EngineStats, Removal, Result, Scan, Session, Write};

use crate::group::Group;
use crate::prefix::{bounds, prefixed, remove_all};

pub(crate) use lmdb::LMDB;
pub(crate) use redb::REDB;
#[cfg(wiredtiger)]
pub(crate) use wiredtiger::factory as wiredtiger;

const CAPABILITIES: Capabilities = Capabilities {
    direct_reads: false,
    compression: false,
    atomic_batches: true,
    native_get_many: false,
    async_get: false,
    compaction: false,
    partition_removal: Removal::KeyByKey,
};

/// Keys above or below a bound, from one end.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// What a put or delete does in a transaction.
trait Tables {
    /// The id of a key's row.
    fn id(&mut self, key: &[u8]) -> Result<Option<u64>>;
    /// Adds an entry to the index, and its row, whose id is above all others.
    fn add(&mut self, key: &[u8], id: u64, value: &[u8]) -> Result<bool>;
    /// Writes over a row.
    fn replace(&mut self, id: u64, value: &[u8]) -> Result<bool>;
    /// Removes an entry of the index and its row.
    fn remove(&mut self, key: &[u8], id: u64) -> Result<bool>;
}

/// A library's store with two tables. Functions that return false have met a conflict with another transaction.
trait IndexedStore: Send + Sync {
    /// Runs `change` in a transaction, again after a conflict.
    fn transact(&self, change: &mut dyn FnMut(&mut dyn Tables) -> Result<bool>) -> Result<()>;
    /// Reads the row of a key.
    fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// Shows entries within bounds, from the lower or from the upper one.
    fn scan(
        &self,
        bounds: &Bounds,
        is_reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;
    /// Writes everything in memory to files.
    fn flush(&self) -> Result<()>;
    /// Figures by name.
    fn details(&self) -> Result<BTreeMap<String, u64>> {
        Ok(BTreeMap::new())
    }
}

struct Indexed<S> {
    store: S,
    partitions: usize,
    next: AtomicU64,
    /// For stores with one writer at a time, or whose writers wait for each other in the log.
    group: Option<Group>,
}

impl<S: IndexedStore> Indexed<S> {
    fn write(&self, writes: &[Write<'_>]) -> Result<()> {
        match &self.group {
            Some(group) => group.write(writes, |writes| self.commit(writes)),
            None => self.commit(writes),
        }
    }

    fn commit(&self, writes: &[Write<'_>]) -> Result<()> {
        self.store.transact(&mut |tables| {
            for write in writes {
                let key = prefixed(self.partitions, write.partition, write.key);
                let done = match (tables.id(&key)?, write.value) {
                    (Some(id), Some(value)) => tables.replace(id, value)?,
                    (Some(id), None) => tables.remove(&key, id)?,
                    (None, Some(value)) => {
                        tables.add(&key, self.next.fetch_add(1, Ordering::Relaxed), value)?
                    }
                    (None, None) => true,
                };
                if !done {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }
}

impl<S: IndexedStore> Engine for Indexed<S> {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(IndexedSession { engine: self }))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        remove_all(&mut IndexedSession { engine: self }, partition)
    }

    fn flush(&self) -> Result<()> {
        self.store.flush()
    }

    fn settle(&self) -> Result<()> {
        self.store.flush()
    }

    fn stats(&self) -> Result<EngineStats> {
        Ok(EngineStats { details: self.store.details()?, ..EngineStats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.flush()
    }
}

struct IndexedSession<'a, S> {
    engine: &'a Indexed<S>,
}

impl<S: IndexedStore> Session for IndexedSession<'_, S> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.engine.write(&[Write { partition, key, value: Some(value) }])
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        self.engine.write(&[Write { partition, key, value: None }])
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.engine.store.get(&prefixed(self.engine.partitions, partition, key), read)
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        if scan.limit == 0 {
            return Ok(());
        }
        let skipped = usize::from(self.engine.partitions > 1);
        let is_reverse = scan.direction == pleach_bench::Direction::Reverse;
        let mut left = scan.limit;
        self.engine.store.scan(&bounds(self.engine.partitions, scan), is_reverse, &mut |key, value| {
            left -= 1;
            visit(&key[skipped..], value) && left > 0
        })
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        self.engine.write(writes)
    }
}

/// The factory of a library's engine.
const fn factory(
    name: &'static str,
    about: &'static str,
    open: fn(&pleach_bench::EngineConfig) -> Result<Box<dyn Engine>>,
) -> EngineFactory {
    EngineFactory { name, about, capabilities: CAPABILITIES, open }
}

/// Bounds that borrow.
fn as_slices(bounds: &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice))
}
