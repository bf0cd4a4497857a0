//! The order of a comparator that is not the order of bytes: the live keys in memory, sorted by the caller's function.
//!
//! Pleach keeps the entries in the order of bytes, in a partition of the comparator's name. The view holds their keys. It is
//! built when the store is opened, and changed by each write. A snapshot of it is a clone, which shares the tree.
//!
//! # Invariants
//! 1. *View and store agree*: a pair of both ([`Ordered::snapshot`]) is of one moment.
//! 2. *One order*: the view takes writes in the order in which the store takes them.
//!
//! # Concurrency
//! Writes are made one at a time, so that the next one starts with the view that the last one leaves. Reads do not wait for
//! them: a write holds the lock of the views only before and after its commit. In between, the store may show the write already
//! or not yet. So the write leaves its view there as the next one, and a reader takes that view if its snapshot of the store has
//! the write. The sync is part of the commit: a commit without it, and a sync behind it, would let writers share syncs, but it
//! would also show readers what is not durable, which neither LevelDB nor Pleach does.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;
use parking_lot::Mutex;
use pleach::env::failpoint;
use pleach::limits::KEY_LEN_MAX;
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
    /// Held by a write from its first look at the view to the last. Taken before `views`.
    writing: Mutex<()>,
    /// Held for a moment. No function of the caller runs meanwhile.
    views: Mutex<Views>,
    /// Memory that the view may take. A put that would exceed it is refused; an open may exceed it.
    budget: usize,
}

struct Views {
    view: View,
    /// The store's last sequence number when it has what the view has.
    last_seq: u64,
    /// The view behind the write that is being committed.
    next: Option<View>,
}

impl Views {
    /// The view that agrees with a store whose last sequence number is `seq`.
    fn at(&self, seq: u64) -> &View {
        // Nothing but a write of `Ordered` changes the number, and a batch changes it once.
        self.next.as_ref().filter(|_| seq > self.last_seq).unwrap_or(&self.view)
    }
}

impl Ordered {
    /// Reads all keys of `partition`.
    pub(crate) fn build(
        (db, partition): (&Db, &Partition),
        comparator: &Arc<Comparator>,
        budget: usize,
    ) -> Result<Self> {
        let mut view = View { keys: OrdSet::new(), comparator: Arc::clone(comparator), bytes: 0 };
        let mut range = partition.iter();
        while let Some((key, _)) = range.next_key()? {
            let key = view.ordered(key);
            view.insert(key);
        }
        let views = Views { view, last_seq: db.last_sequence_number(), next: None };
        Ok(Self { writing: Mutex::new(()), views: Mutex::new(views), budget })
    }

    /// View and store at the same moment.
    pub(crate) fn snapshot(&self, db: &Db) -> (View, Snapshot) {
        let views = self.views.lock();
        let snapshot = db.snapshot();
        (views.at(snapshot.last_sequence_number()).clone(), snapshot)
    }

    /// Memory of the view.
    pub(crate) fn bytes(&self) -> usize {
        self.views.lock().view.bytes
    }

    /// Commits `records`. A key replaces the one that compares equal.
    pub(crate) fn write(
        &self,
        (db, partition): (&Db, &Partition),
        records: &[Record<'_>],
        durability: Durability,
    ) -> Result<()> {
        let _one_at_a_time = self.writing.lock();
        // An earlier write that panicked has left its view.
        self.publish(db);
        let before = self.views.lock().view.clone();
        let mut view = before.clone();
        let mut batch = db.batch();
        for &(key, value) in records {
            if value.is_some() && key.len() > KEY_LEN_MAX {
                return Err(too_long(key.len()));
            }
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
        if view.bytes > self.budget && view.bytes > before.bytes {
            return Err(self.over_budget());
        }
        self.views.lock().next = Some(view);
        let committed = batch.commit(durability);
        failpoint::reached("ordered.committed");
        self.publish(db);
        Ok(committed?)
    }

    /// Ends a write: its view is the current one if the store shows the write. Requires: `writing` is held.
    fn publish(&self, db: &Db) {
        let mut views = self.views.lock();
        let last_seq = db.last_sequence_number();
        if let Some(next) = views.next.take()
            && last_seq > views.last_seq
        {
            (views.view, views.last_seq) = (next, last_seq);
        }
    }

    #[cold]
    fn over_budget(&self) -> Status {
        let message = format!(
            "keys of a custom comparator are kept in memory, and would take more than {} bytes; it is a quarter of cache and \
             two write buffers, so allow more of these",
            self.budget
        );
        Status::new(Kind::NotSupported, message)
    }
}

/// Checked before any other limit: the error of the budget would blame the memory.
#[cold]
fn too_long(len: usize) -> Status {
    let message = format!("the key has {len} bytes; a key has at most {KEY_LEN_MAX}");
    Status::new(Kind::InvalidArgument, message)
}
