//! The order of a comparator that is not the order of bytes: the live keys in memory, sorted by the caller's function.
//!
//! Pleach keeps the entries in the order of bytes, in a partition of the comparator's name. The view holds their keys. It is
//! built when the store is opened, and changed by each write. A snapshot of it is a clone, which shares the tree.
//!
//! # Concurrency
//! A lock guards the view during a write and while a snapshot is taken, so view and store always agree. Each get takes a
//! snapshot. So gets and new iterators wait for a write in progress, also for its sync.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;
use parking_lot::Mutex;
use pleach::{Db, Durability, Partition, Snapshot};

use crate::batch::Record;
use crate::comparator::Comparator;
use crate::status::{Kind, Result, Status};

/// Memory that a key takes in the tree in addition to its bytes (an estimate, rather too large).
const KEY_OVERHEAD: usize = 96;

/// A key, ordered by the caller's function.
#[derive(Clone)]
pub(crate) struct OrderedKey {
    pub(crate) bytes: Arc<[u8]>,
    comparator: Arc<Comparator>,
}

impl Ord for OrderedKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.comparator.compare(&self.bytes, &other.bytes)
    }
}

impl PartialOrd for OrderedKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OrderedKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OrderedKey {}

/// The live keys at one moment. A clone takes constant time.
#[derive(Clone)]
pub(crate) struct View {
    keys: OrdSet<OrderedKey>,
    comparator: Arc<Comparator>,
    bytes: usize,
}

impl View {
    fn ordered(&self, key: &[u8]) -> OrderedKey {
        OrderedKey { bytes: key.into(), comparator: Arc::clone(&self.comparator) }
    }

    /// The live key that compares equal.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&OrderedKey> {
        self.keys.get(&self.ordered(key))
    }

    pub(crate) fn first(&self) -> Option<&OrderedKey> {
        self.keys.get_min()
    }

    pub(crate) fn last(&self) -> Option<&OrderedKey> {
        self.keys.get_max()
    }

    /// The first key at or above `key`.
    pub(crate) fn at_or_above(&self, key: &[u8]) -> Option<&OrderedKey> {
        self.keys.get_next(&self.ordered(key))
    }

    pub(crate) fn above(&self, key: &OrderedKey) -> Option<&OrderedKey> {
        self.keys.range::<_, OrderedKey>((Bound::Excluded(key), Bound::Unbounded)).next()
    }

    pub(crate) fn below(&self, key: &OrderedKey) -> Option<&OrderedKey> {
        self.keys.range::<_, OrderedKey>((Bound::Unbounded, Bound::Excluded(key))).next_back()
    }

    /// Keys from `start` to below `limit`, and all keys. Takes time for each that is counted.
    pub(crate) fn count(&self, start: &[u8], limit: &[u8]) -> (usize, usize) {
        let (start, limit) = (self.ordered(start), self.ordered(limit));
        let counted =
            if start < limit { self.keys.range::<_, OrderedKey>(&start..&limit).count() } else { 0 };
        (counted, self.keys.len())
    }

    fn insert(&mut self, key: OrderedKey) {
        self.bytes += key.bytes.len() + KEY_OVERHEAD;
        if let Some(replaced) = self.keys.insert(key) {
            self.bytes -= replaced.bytes.len() + KEY_OVERHEAD;
        }
    }

    fn remove(&mut self, key: &OrderedKey) {
        if let Some(removed) = self.keys.remove(key) {
            self.bytes -= removed.bytes.len() + KEY_OVERHEAD;
        }
    }
}

/// The view of an open store.
pub(crate) struct Ordered {
    view: Mutex<View>,
    /// Memory that the view may take. A put that would exceed it is refused; an open may exceed it.
    budget: usize,
}

impl Ordered {
    /// Reads all keys of `partition`.
    pub(crate) fn build(partition: &Partition, comparator: &Arc<Comparator>, budget: usize) -> Result<Self> {
        let mut view = View { keys: OrdSet::new(), comparator: Arc::clone(comparator), bytes: 0 };
        let mut range = partition.iter();
        while let Some((key, _)) = range.next_key()? {
            let key = view.ordered(key);
            view.insert(key);
        }
        Ok(Self { view: Mutex::new(view), budget })
    }

    /// View and store at the same moment.
    pub(crate) fn snapshot(&self, db: &Db) -> (View, Snapshot) {
        let view = self.view.lock();
        (view.clone(), db.snapshot())
    }

    /// Memory of the view.
    pub(crate) fn bytes(&self) -> usize {
        self.view.lock().bytes
    }

    /// Commits `records`. A key replaces the one that compares equal.
    pub(crate) fn write(
        &self,
        (db, partition): (&Db, &Partition),
        records: &[Record<'_>],
        durability: Durability,
    ) -> Result<()> {
        let mut held = self.view.lock();
        let mut view = held.clone();
        let mut batch = db.batch();
        for &(key, value) in records {
            let key = view.ordered(key);
            if let Some(replaced) = view.keys.get(&key)
                && (value.is_none() || replaced.bytes != key.bytes)
            {
                batch.delete(partition, &replaced.bytes);
            }
            match value {
                Some(value) => {
                    batch.put(partition, &key.bytes, value);
                    view.remove(&key);
                    view.insert(key);
                }
                None => view.remove(&key),
            }
        }
        if view.bytes > self.budget && view.bytes > held.bytes {
            return Err(Status::new(
                Kind::NotSupported,
                format!(
                    "keys of a custom comparator are kept in memory, and would take more than {} bytes; it is a quarter of \
                     cache and two write buffers, so allow more of these",
                    self.budget
                ),
            ));
        }
        batch.commit(durability)?;
        *held = view;
        Ok(())
    }
}
