//! The memtable: all recent writes of all partitions, in memory, ordered by partition, user key and sequence number.
//!
//! Keys here are *partition keys* (see [`crate::keys`]): the number of the partition, then the user key. So one ordered
//! structure serves all partitions, and a flush finds them one after the other. An arena holds a record for each key and its
//! versions, a tree keeps the order, and a hash index answers point reads.
//!
//! Why a B+tree: docs/design/0002-memtable.md.
//!
//! # Invariants
//! 1. Sequence numbers of inserts never go down. The versions of a key are chained, newest first.
//! 2. `visible` rises only after the inserts of a group. A reader that loads it finds every version up to it, and ignores
//!    newer ones.
//! 3. *Nothing fails after the log*: the memory that a batch needs in arena and tree is reserved before the batch is logged. A
//!    full hash index takes no more keys.
//! 4. *Safe functions*: references into the arena do not leave this module, so no use of its functions can misread memory.
//!
//! # Concurrency
//! One [`MemtableWriter`], which the holder of the write path's lock has. Inserts run one at a time, in the order of their
//! sequence numbers: through the writer, or with what it has claimed for them (`side`). Readers take no lock.
//!
//! # Cost
//! A point read: one probe of the index and one read of the record. An insert of a new key: that, and a descent of four
//! levels; in ascending order only the store to the index. An overwrite does not use the tree.
//!
//! # Origin
//! One memtable for all partitions: `TridentKV`, section 3.3. The rest is ours.

mod arena;
mod cursor;
mod entry;
mod in_order;
mod index;
mod memory;
mod node;
mod side;
mod tree;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use pleach_env::sync::OwnLine;
use pleach_env::{Error, ErrorKind, Result};
use pleach_log::SeqNo;
use pleach_table::ValueKind;

use arena::{Arena, ArenaRef};
pub(crate) use arena::{FOOTPRINT_MAX, Footprint, LARGE_PER_BATCH};
pub(crate) use cursor::MemtableCursor;
use entry::VersionView;
pub(crate) use entry::{LARGE_FRONT, PLACE_LEN, Place};
use in_order::LastPlace;
use index::HashIndex;
use memory::Holding;
pub(crate) use memory::MemtableMemory;
pub(crate) use side::{Insert, SideInserts};
use tree::Tree;
pub(crate) use writer::MemtableWriter;

/// Deletes that are worth a flush of their own: some syncs and a small SST (arbitrary).
pub(crate) const DELETES_WORTH_FLUSH: u64 = 1000;

/// The memtable. See the module's text.
pub(crate) struct Memtable {
    arena: Arena,
    tree: Tree,
    index: HashIndex,
    counts: OwnLine<Counts>,
    /// Consecutive ascending inserts, up to a few (`in_order`). Apart from the counts, because it rarely changes.
    ascending: OwnLine<AtomicU32>,
    /// Whether there is no entry. Apart from the counts, which each insert changes.
    is_empty: AtomicBool,
    /// Whether a value is to be separated.
    is_separated: AtomicBool,
    /// Its bytes, as of the last reservation. After the arena, so that regions that are given back are never missing from the
    /// sum.
    holding: Holding,
}

/// What each insert changes. One insert at a time does.
#[derive(Default)]
struct Counts {
    /// Versions that are tombstones.
    deletes: AtomicU64,
    /// Largest sequence number inserted; 0 while empty.
    last_seq: AtomicU64,
    last: LastPlace,
}

impl Memtable {
    fn new(budget: usize, memory: &Arc<MemtableMemory>) -> Result<Self> {
        let (Some(tree), Some(index), Some(arena)) =
            (Tree::new(), HashIndex::new(budget), Arena::new(Arc::clone(memory.regions())))
        else {
            let message = "the system gives no memory for another memtable; let the process have more";
            return Err(Error::new(ErrorKind::Io, message));
        };
        let (is_empty, is_separated) = (AtomicBool::new(true), AtomicBool::new(false));
        let (counts, holding) = (OwnLine::default(), Holding::new(memory));
        let ascending = OwnLine::default();
        let memtable = Self { arena, tree, index, counts, ascending, is_empty, is_separated, holding };
        memtable.holding.grow_to(memtable.bytes());
        Ok(memtable)
    }

    /// Prefetches the line of the index that a lookup reads first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if !self.is_empty() {
            self.index.prefetch(hash);
        }
    }

    /// The newest version of `key` not newer than `visible`.
    #[inline]
    pub(crate) fn get(self: &Arc<Self>, hash: u64, key: &[u8], visible: SeqNo) -> Option<Found> {
        let found = self.version(hash, key, visible)?;
        Some(match found.kind {
            ValueKind::Tombstone => Found::Tombstone,
            _ => Found::Put(MemtableValue::new(self, found.value_at, found.value.len())),
        })
    }

    #[inline]
    fn version(&self, hash: u64, key: &[u8], visible: SeqNo) -> Option<VersionView<'_>> {
        entry::visible_version(&self.arena, self.find_record(hash, key)?, visible)
    }

    #[inline]
    fn find_record(&self, hash: u64, key: &[u8]) -> Option<ArenaRef> {
        if self.is_empty() {
            return None; // Saves the cache miss in the cold index of a new memtable.
        }
        match self.index.find(&self.arena, hash, key) {
            Some(record) => Some(record),
            None if self.index.is_complete() => None,
            None => self.tree.find(&self.arena, key),
        }
    }

    /// A cursor over the newest versions not newer than `visible`.
    pub(crate) fn cursor(self: &Arc<Self>, visible: SeqNo) -> MemtableCursor {
        MemtableCursor::new(Arc::clone(self), visible)
    }

    /// Memory taken from the system.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.reserved() + self.tree.bytes() + self.index.bytes()
    }

    /// Memory filled. The memtable is full when this reaches its budget.
    pub(crate) fn used_bytes(&self) -> usize {
        self.arena.used() + self.tree.bytes() + self.index.bytes()
    }

    /// The most arena bytes that an entry of this size takes.
    pub(crate) fn footprint(key_len: usize, value_len: usize) -> Footprint {
        let bytes = entry::footprint(key_len, value_len);
        Footprint { bytes, record_max: bytes, records: 1, ..Footprint::default() }
    }

    /// The same for an entry whose value has a region of its own.
    pub(crate) fn footprint_of_large(key_len: usize, value_len: usize) -> Footprint {
        let bytes = entry::footprint_of_key(key_len);
        Footprint { bytes, record_max: bytes, records: 1, large_bytes: LARGE_FRONT + value_len }
    }

    /// About the bytes filled after inserts of `footprint`. Writers ask before they admit a batch.
    pub(crate) fn used_bytes_with(&self, footprint: Footprint) -> usize {
        self.used_bytes() + footprint.bytes_in_memtable()
    }

    /// Whether inserts of `footprint` would fill more than `budget`.
    pub(crate) fn is_full_for(&self, footprint: Footprint, budget: usize) -> bool {
        self.used_bytes_with(footprint) > budget || self.arena.is_full_of_large()
    }

    /// Number of versions that are tombstones.
    pub(crate) fn deletes(&self) -> u64 {
        self.counts.deletes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// Whether it has values that are to be separated.
    pub(crate) fn has_separated(&self) -> bool {
        self.is_separated.load(Ordering::Acquire)
    }

    /// Largest sequence number inserted; 0 while empty.
    pub(crate) fn last_seq(&self) -> SeqNo {
        self.counts.last_seq.load(Ordering::Acquire)
    }
}

/// What a memtable has for a key.
pub(crate) enum Found {
    Put(MemtableValue),
    Tombstone,
}

/// A value in a memtable, which it keeps in memory.
#[derive(Clone)]
pub(crate) struct MemtableValue {
    memtable: Arc<Memtable>,
    at: ArenaRef,
    len: u32,
}

impl MemtableValue {
    #[inline]
    fn new(memtable: &Arc<Memtable>, at: ArenaRef, len: usize) -> Self {
        let len = u32::try_from(len).expect("values are at most VALUE_LEN_MAX");
        Self { memtable: Arc::clone(memtable), at, len }
    }

    /// Its bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        entry::value(&self.memtable.arena, self.at, self.len as usize)
    }
}

#[cfg(test)]
mod tests;
