//! Nodes of the memtable's tree: sorted references to key records, and an eight-byte head of each key.
//!
//! All keys below a node share the common prefix of its two fences. A head is the eight bytes of a key after the first `skip`
//! bytes of that prefix, so a search in a node rarely reads a key record. It does so only to compare keys with equal heads.
//!
//! # Invariants
//! 1. Entries `0..count` ascend by key. Heads ascend with them.
//! 2. `skip` is at most the length of the common prefix of the fences `low` and `high`, and 0 where one is missing.
//!
//! # Concurrency
//! One writer. Readers are optimistic: they load `version`, which is odd while the writer changes the node, read the node, and
//! start again if `version` has changed. Every field is an atomic. So a reader that loses the race sees old or new words,
//! never torn ones, and every reference that it sees was published.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use pleach_coding::common_prefix_len;
use pleach_env::memory::prefetch;

use super::arena::{Arena, ArenaRef};
use super::entry;

/// Most entries of a node. With 64 the tree of a full memtable has four levels, and moving half of the entries costs about as
/// much as one cache miss.
pub(super) const FANOUT: usize = 64;

/// The sorted part of a node, shared by leaves and inner nodes.
pub(super) struct Node {
    version: AtomicU64,
    count: AtomicU32,
    skip: AtomicU32,
    /// First key that may lie in the node; 0 = no bound.
    low: AtomicU64,
    /// First key beyond the node; 0 = no bound.
    high: AtomicU64,
    /// Leaves: the leaf to the right; 0 = none.
    next: AtomicU32,
    heads: [AtomicU64; FANOUT],
    keys: [AtomicU64; FANOUT],
}

impl Default for Node {
    fn default() -> Self {
        Self {
            version: AtomicU64::new(0),
            count: AtomicU32::new(0),
            skip: AtomicU32::new(0),
            low: AtomicU64::new(0),
            high: AtomicU64::new(0),
            next: AtomicU32::new(0),
            heads: [const { AtomicU64::new(0) }; FANOUT],
            keys: [const { AtomicU64::new(0) }; FANOUT],
        }
    }
}

/// The eight bytes of `key` after `skip`, padded with zeros, as a number that has their order.
#[inline]
fn head(key: &[u8], skip: usize) -> u64 {
    pleach_coding::head(key.get(skip..).unwrap_or_default())
}

impl Node {
    /// Prefetches all lines that [`Node::rank`] searches, so that its cache misses overlap.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(self.version.as_ptr().cast_const().cast());
        for line in self.heads.chunks(8) {
            prefetch(line[0].as_ptr().cast_const().cast());
        }
    }

    /// The version while no change is under way. Waits for the end of a change.
    #[inline]
    pub(super) fn stable_version(&self) -> u64 {
        let mut spins = 0u32;
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version.is_multiple_of(2) {
                return version;
            }
            spins += 1;
            if spins.is_multiple_of(64) {
                std::thread::yield_now(); // The writer may have been descheduled during a change.
            }
            std::hint::spin_loop();
        }
    }

    /// Whether the node has not changed since `version` was loaded, so that everything read since then is valid.
    #[inline]
    pub(super) fn unchanged_since(&self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// For the writer: changes the node in `change`; readers retry.
    pub(super) fn write(&self, change: impl FnOnce(&Self)) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        change(self);
        self.version.store(version + 2, Ordering::Release);
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        (self.count.load(Ordering::Acquire) as usize).min(FANOUT)
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() == FANOUT
    }

    #[inline]
    pub(super) fn key_at(&self, index: usize) -> Option<ArenaRef> {
        ArenaRef::from_word(self.keys[index].load(Ordering::Acquire))
    }

    /// The key at `index`, if its head is that of `key`: any other key has another one, and need not be looked at.
    #[inline]
    pub(super) fn key_like(&self, index: usize, key: &[u8]) -> Option<ArenaRef> {
        let skip = self.skip.load(Ordering::Relaxed) as usize;
        let is_like = index < self.count() && self.heads[index].load(Ordering::Relaxed) == head(key, skip);
        if is_like { self.key_at(index) } else { None }
    }

    pub(super) fn low(&self) -> Option<ArenaRef> {
        ArenaRef::from_word(self.low.load(Ordering::Acquire))
    }

    pub(super) fn high(&self) -> Option<ArenaRef> {
        ArenaRef::from_word(self.high.load(Ordering::Acquire))
    }

    pub(super) fn next(&self) -> u32 {
        self.next.load(Ordering::Acquire)
    }

    /// Number of entries below `key`, or, with `or_equal`, not above it.
    ///
    /// A reader may use the result only if the node is unchanged afterwards.
    #[inline]
    pub(super) fn rank(&self, arena: &Arena, key: &[u8], or_equal: bool) -> usize {
        let count = self.count();
        let skip = self.skip.load(Ordering::Relaxed) as usize;
        let wanted = head(key, skip);
        let mut low = self.partition_point(count, |h| h < wanted);
        if low == count || self.heads[low].load(Ordering::Relaxed) != wanted {
            return low;
        }
        let mut high = low + 1;
        if high < count && self.heads[high].load(Ordering::Relaxed) == wanted {
            high = self.partition_point(count, |h| h <= wanted);
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            let Some(at) = self.key_at(middle) else { return low }; // Lost a race: the caller retries.
            let below = match entry::key(arena, at).cmp(key) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => or_equal,
                std::cmp::Ordering::Greater => false,
            };
            if below {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    #[inline]
    fn partition_point(&self, count: usize, before: impl Fn(u64) -> bool) -> usize {
        let mut base = 0;
        let mut len = count;
        while len > 0 {
            let half = len / 2;
            let middle = base + half;
            if before(self.heads[middle].load(Ordering::Relaxed)) {
                base = middle + 1;
                len -= half + 1;
            } else {
                len = half;
            }
        }
        base
    }

    /// For the writer, in [`Node::write`]: puts the key at `index` and moves the entries from there on up.
    pub(super) fn insert_at(&self, index: usize, key_ref: ArenaRef, key: &[u8]) {
        let count = self.count();
        for i in (index..count).rev() {
            self.heads[i + 1].store(self.heads[i].load(Ordering::Relaxed), Ordering::Relaxed);
            self.keys[i + 1].store(self.keys[i].load(Ordering::Relaxed), Ordering::Release);
        }
        self.heads[index].store(head(key, self.skip.load(Ordering::Relaxed) as usize), Ordering::Relaxed);
        self.keys[index].store(key_ref.to_word(), Ordering::Release);
        self.set_count(count + 1);
    }

    /// For the writer, on a node that no reader can reach yet: copies the entries of `left` from `from` on, its upper fence
    /// and its right neighbour. `separator` becomes the lower fence.
    pub(super) fn fill_from(&self, arena: &Arena, left: &Self, from: usize, separator: ArenaRef) {
        let count = left.count();
        for (to, i) in (from..count).enumerate() {
            self.heads[to].store(left.heads[i].load(Ordering::Relaxed), Ordering::Relaxed);
            self.keys[to].store(left.keys[i].load(Ordering::Relaxed), Ordering::Release);
        }
        self.skip.store(left.skip.load(Ordering::Relaxed), Ordering::Relaxed);
        self.low.store(separator.to_word(), Ordering::Release);
        self.high.store(left.high.load(Ordering::Relaxed), Ordering::Release);
        self.next.store(left.next.load(Ordering::Relaxed), Ordering::Release);
        self.set_count(count - from);
        self.sharpen(arena);
    }

    /// For the writer, in [`Node::write`]: keeps the first `count` entries. `separator` becomes the upper fence and `next` the
    /// right neighbour.
    pub(super) fn trim(&self, arena: &Arena, count: usize, separator: ArenaRef, next: u32) {
        self.set_count(count);
        self.high.store(separator.to_word(), Ordering::Release);
        self.next.store(next, Ordering::Release);
        self.sharpen(arena);
    }

    /// If neighbours have equal heads: computes all heads again, from the bytes after the common prefix of the fences.
    fn sharpen(&self, arena: &Arena) {
        let count = self.count();
        let equal_neighbours = (1..count)
            .any(|i| self.heads[i - 1].load(Ordering::Relaxed) == self.heads[i].load(Ordering::Relaxed));
        let (Some(low), Some(high)) = (self.low(), self.high()) else { return };
        if !equal_neighbours {
            return;
        }
        let skip = common_prefix_len(entry::key(arena, low), entry::key(arena, high));
        if skip <= self.skip.load(Ordering::Relaxed) as usize {
            return;
        }
        self.skip.store(u32::try_from(skip).expect("keys are shorter than 64 KiB"), Ordering::Relaxed);
        for i in 0..count {
            let at = self.key_at(i).expect("the writer sees its own entries");
            self.heads[i].store(head(entry::key(arena, at), skip), Ordering::Relaxed);
        }
    }

    fn set_count(&self, count: usize) {
        self.count.store(u32::try_from(count).expect("at most FANOUT"), Ordering::Release);
    }
}
