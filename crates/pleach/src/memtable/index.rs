//! The memtable's hash index: from a key's hash to its record in about one cache miss.
//!
//! It answers point reads, finds that a key is absent, and finds the record that an overwrite extends. It uses linear probing
//! over words of 16 tag bits and a 48-bit reference. Entries are only added. The memtable's budget fixes its size. When many
//! tiny entries fill it, it takes no more keys, and a reader that misses asks the tree.
//!
//! # Concurrency
//! One writer, lock-free readers: one release store changes a slot from empty to its final word.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pleach_env::memory::{AtomicWords, prefetch};
use pleach_env::sync::OwnLine;

use super::arena::{Arena, ArenaRef, ArenaWriter};
use super::entry;

/// Bytes of memtable budget per slot. An entry of 16 + 100 bytes takes about 190 bytes with its share of the tree, so such
/// entries fill two thirds of the slots (arbitrary otherwise).
const BUDGET_PER_SLOT: usize = 128;

/// The index is full when this many of 8 slots are taken, so that probe sequences stay short.
const FULL_EIGHTHS: usize = 6;

/// Slots of the smallest index.
const SLOTS_MIN: usize = 64;

const REF_BITS: u32 = 48;

pub(super) struct HashIndex {
    slots: AtomicWords,
    mask: usize,
    /// Slots in use. The writer alone reads and changes it.
    taken: OwnLine<AtomicU64>,
    /// Whether every key of the memtable is in the index.
    complete: AtomicBool,
}

impl HashIndex {
    /// An empty index; `None` when there is no memory for the smallest one.
    pub(super) fn new(budget: usize) -> Option<Self> {
        let mut slots = (budget / BUDGET_PER_SLOT).next_power_of_two().max(SLOTS_MIN);
        // When memory is short, a smaller index takes fewer keys.
        let words = loop {
            match AtomicWords::try_new(slots) {
                Some(words) => break words,
                None => slots /= 2,
            }
            if slots < SLOTS_MIN {
                return None;
            }
        };
        Some(Self {
            slots: words,
            mask: slots - 1,
            taken: OwnLine(AtomicU64::new(0)),
            complete: AtomicBool::new(true),
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<AtomicU64>()
    }

    /// Whether every key of the memtable is in the index, so that a miss needs no look at the tree.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    #[inline]
    fn start(&self, hash: u64) -> usize {
        (hash >> 16) as usize & self.mask
    }

    #[inline]
    fn tag(hash: u64) -> u64 {
        hash << REF_BITS
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(self.slots[self.start(hash)].as_ptr().cast_const().cast());
    }

    /// The record of `key`, if the index has it.
    #[inline]
    pub(super) fn find(&self, arena: &Arena, hash: u64, key: &[u8]) -> Option<ArenaRef> {
        let tag = Self::tag(hash);
        let mut slot = self.start(hash);
        loop {
            let word = self.slots[slot].load(Ordering::Acquire);
            if word == 0 {
                return None;
            }
            if word >> REF_BITS == tag >> REF_BITS
                && let Some(at) = ArenaRef::from_word(word & ((1 << REF_BITS) - 1))
                && entry::key(arena, at) == key
            {
                return Some(at);
            }
            slot = (slot + 1) & self.mask;
        }
    }

    /// Adds the record of a key that the index does not have.
    pub(super) fn insert(&self, _one_at_a_time: &mut ArenaWriter<'_>, hash: u64, at: ArenaRef) {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken * 8 >= (self.slots.len() * FULL_EIGHTHS) as u64 {
            self.complete.store(false, Ordering::Release);
            return;
        }
        let mut slot = self.start(hash);
        while self.slots[slot].load(Ordering::Relaxed) != 0 {
            slot = (slot + 1) & self.mask;
        }
        self.slots[slot].store(Self::tag(hash) | at.to_word(), Ordering::Release);
        self.taken.store(taken + 1, Ordering::Relaxed);
    }
}
