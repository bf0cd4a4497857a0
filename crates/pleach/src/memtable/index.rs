//! The memtable's hash index: from a key's hash to its record in about one cache miss.
//!
//! It answers point reads, tells an absent key at once, and finds the record that an overwrite extends. Linear probing
//! over words of 16 tag bits and a 48-bit reference; entries are only added. Its size is fixed by the memtable's
//! budget: should many tiny entries fill it, it stops taking keys and says so, and misses then ask the tree.
//!
//! # Concurrency
//! One writer, lock-free readers: a slot goes from empty to its final word by one release store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pleach_env::memory::{AtomicWords, prefetch};

use super::arena::{Arena, ArenaRef};
use super::entry;

/// Bytes of memtable budget per slot: an entry of 16 + 100 bytes takes about 190 with its share of the tree, which
/// leaves the index two thirds full (arbitrary otherwise).
const BUDGET_PER_SLOT: usize = 128;

/// The index is full when this many of 8 slots are taken; probe sequences stay short.
const FULL_EIGHTHS: usize = 6;

/// Slots of the smallest index.
const SLOTS_MIN: usize = 64;

const REF_BITS: u32 = 48;

pub(super) struct HashIndex {
    slots: AtomicWords,
    mask: usize,
    /// Writer only.
    taken: AtomicU64,
    /// Whether every key of the memtable is in the index.
    complete: AtomicBool,
}

impl HashIndex {
    /// An empty index; `None` when there is no memory for the smallest one.
    pub(super) fn new(budget: usize) -> Option<Self> {
        let mut slots = (budget / BUDGET_PER_SLOT).next_power_of_two().max(SLOTS_MIN);
        // Where memory is short the index is smaller, and takes fewer keys.
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
            taken: AtomicU64::new(0),
            complete: AtomicBool::new(true),
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<AtomicU64>()
    }

    /// Whether a key that [`HashIndex::find`] does not find is in the memtable's tree neither.
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

    /// Writer: adds the record of a key that the index does not have.
    pub(super) fn insert(&self, hash: u64, at: ArenaRef) {
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
