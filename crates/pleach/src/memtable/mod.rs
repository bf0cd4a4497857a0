//! The memtable: every recent write of all partitions, in memory, ordered by (partition, user key, sequence).
//!
//! Keys here are *partition keys* (see [`crate::keys`]): the partition's number in front of the user key, so that one
//! ordered structure serves all partitions and a flush finds them one after the other. A record per key lies in an
//! arena with its versions; a tree keeps the order and a hash index answers point reads.
//!
//! # Invariants
//! 1. Sequence numbers of inserts never go down; a key's versions are chained newest first.
//! 2. A reader that passes `visible` sees exactly the versions up to it that were inserted before `visible` was
//!    published.
//! 3. *Nothing fails after the log*: what a batch needs of the arena and of the tree is reserved before it is logged; the
//!    hash index stops taking keys when it is full.
//!
//! # Concurrency
//! One writer at a time (the commit leader); readers take no lock. A sealed memtable is immutable.
//!
//! # Cost
//! A point read: one probe of the index, one of the record. An insert of a new key: that plus a four-level descent; an
//! overwrite does not touch the tree.
//!
//! # Origin
//! One memtable for all partitions is `TridentKV`, section 3.3. The rest is ours.

mod arena;
mod cursor;
mod entry;
mod index;
mod node;
mod tree;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pleach_env::memory::{RegionBytes, RegionPool};
use pleach_env::{Error, ErrorKind, Result, failpoint};
use pleach_log::SeqNo;
use pleach_table::ValueKind;

use arena::Arena;
pub(crate) use arena::{ArenaRef, FOOTPRINT_MAX, Footprint, LARGE_PER_BATCH};
pub(crate) use cursor::MemtableCursor;
pub(crate) use entry::{LARGE_FRONT, VersionView};
use index::HashIndex;
use tree::Tree;

/// Into how many chunks a memtable's budget is cut, so that little is left over at its end.
const CHUNKS_PER_BUDGET: usize = 16;

/// The memtable. See the module's text.
pub(crate) struct Memtable {
    arena: Arena,
    tree: Tree,
    index: HashIndex,
    entries: AtomicU64,
    /// Largest sequence number inserted; 0 while empty.
    last_seq: AtomicU64,
}

impl Memtable {
    /// An empty memtable meant to be sealed at about `budget` bytes, with memory from `pool`; an error when the system
    /// does not give the memory for its tree, its index and its table of chunks.
    pub(crate) fn new(budget: usize, pool: &Arc<RegionPool>) -> Result<Self> {
        let tree = if failpoint::skipped("tune.no_memory") { None } else { Tree::new() };
        let (Some(tree), Some(index), Some(arena)) =
            (tree, HashIndex::new(budget), Arena::new(Arc::clone(pool)))
        else {
            let message = "the system gives no memory for another memtable; let the process have more";
            return Err(Error::new(ErrorKind::Io, message));
        };
        Ok(Self { arena, tree, index, entries: AtomicU64::new(0), last_seq: AtomicU64::new(0) })
    }

    /// The memory of memtables with this budget, `kept` of which may wait to be used again.
    pub(crate) fn pool(budget: usize, kept: usize) -> Arc<RegionPool> {
        let region_len = (budget / CHUNKS_PER_BUDGET).clamp(32 << 10, 4 << 20);
        Arc::new(RegionPool::new(region_len, kept * CHUNKS_PER_BUDGET))
    }

    /// Writer: takes from the system what inserts of `footprint` will need of arena and tree. Returns whether it was given.
    ///
    /// A batch is logged only after that, so that no insert fails afterwards.
    #[inline]
    pub(crate) fn reserve(&self, footprint: Footprint) -> bool {
        self.arena.reserve(footprint) && self.tree.reserve(footprint.records)
    }

    /// Writer: adds a version. `hash` is that of the user key under its partition.
    ///
    /// Requires: a reservation that covers it.
    pub(crate) fn insert(&self, hash: u64, key: &[u8], seq: SeqNo, kind: ValueKind, value: &[u8]) {
        debug_assert!(seq >= self.last_seq.load(Ordering::Relaxed), "sequence numbers never go down");
        if let Some(record) = self.find_record(hash, key) {
            entry::add_version(&self.arena, record, seq, kind, value);
        } else {
            let record = entry::add_key(&self.arena, key, seq, kind, value);
            self.add_record(hash, record, key);
        }
        self.count_entry(seq);
    }

    /// Writer: adds a version whose value lies in a region made for it ([`LARGE_FRONT`]), which becomes part of the memtable.
    ///
    /// Requires: a reservation that covers it.
    #[cold]
    pub(crate) fn insert_large(&self, hash: u64, key: &[u8], seq: SeqNo, value: RegionBytes) {
        if let Some(record) = self.find_record(hash, key) {
            entry::add_large_version(&self.arena, record, seq, value);
        } else {
            let record = entry::add_large_key(&self.arena, key, seq, value);
            self.add_record(hash, record, key);
        }
        self.count_entry(seq);
    }

    #[inline]
    fn add_record(&self, hash: u64, record: ArenaRef, key: &[u8]) {
        self.tree.insert(&self.arena, record, key);
        self.index.insert(hash, record);
    }

    #[inline]
    fn count_entry(&self, seq: SeqNo) {
        self.entries.store(self.entries.load(Ordering::Relaxed) + 1, Ordering::Release);
        self.last_seq.store(seq, Ordering::Release);
    }

    /// Starts fetching what [`Memtable::get`] will look at first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if !self.is_empty() {
            self.index.prefetch(hash);
        }
    }

    /// The newest version of `key` not newer than `visible`.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8], visible: SeqNo) -> Option<VersionView<'_>> {
        entry::visible_version(&self.arena, self.find_record(hash, key)?, visible)
    }

    #[inline]
    fn find_record(&self, hash: u64, key: &[u8]) -> Option<ArenaRef> {
        if self.is_empty() {
            return None; // After a flush the index of the new memtable is cold; do not warm it for nothing.
        }
        match self.index.find(&self.arena, hash, key) {
            Some(record) => Some(record),
            None if self.index.is_complete() => None,
            None => self.tree.find(&self.arena, key),
        }
    }

    /// The bytes of a value that a [`VersionView`] told the place of.
    pub(crate) fn value(&self, at: ArenaRef, len: usize) -> &[u8] {
        self.arena.bytes(at, len)
    }

    /// A cursor over the newest versions not newer than `visible`.
    pub(crate) fn cursor(self: &Arc<Self>, visible: SeqNo) -> MemtableCursor {
        MemtableCursor::new(Arc::clone(self), visible)
    }

    /// Memory taken.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.reserved() + self.tree.bytes() + self.index.bytes()
    }

    /// Memory filled: what decides when the memtable is full.
    pub(crate) fn used_bytes(&self) -> usize {
        self.arena.used() + self.tree.bytes() + self.index.bytes()
    }

    /// The most arena bytes that an entry of this size takes.
    pub(crate) fn footprint(key_len: usize, value_len: usize) -> Footprint {
        let bytes = entry::footprint(key_len, value_len);
        Footprint { bytes, record_max: bytes, records: 1, ..Footprint::default() }
    }

    /// The same of an entry whose value has a region of its own.
    pub(crate) fn footprint_of_large(key_len: usize, value_len: usize) -> Footprint {
        let bytes = entry::footprint_of_key(key_len);
        Footprint { bytes, record_max: bytes, records: 1, large_bytes: LARGE_FRONT + value_len }
    }

    /// About how many bytes would be filled after inserts of `footprint`: what a writer asks before it lets a batch in.
    pub(crate) fn used_bytes_with(&self, footprint: Footprint) -> usize {
        self.used_bytes() + footprint.bytes_in_memtable()
    }

    /// Whether inserts of `footprint` would fill more than `budget`.
    pub(crate) fn is_full_for(&self, footprint: Footprint, budget: usize) -> bool {
        self.used_bytes_with(footprint) > budget || self.arena.is_full_of_large()
    }

    /// Versions held.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Acquire)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Largest sequence number inserted; 0 while empty.
    pub(crate) fn last_seq(&self) -> SeqNo {
        self.last_seq.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
