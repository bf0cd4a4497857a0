//! Nodes of the memtable's tree: sorted references to key records, and an eight-byte head of each key.
//!
//! The keys of a node share a prefix of `skip` bytes. A head is the eight bytes of a key behind it, so a search in a node rarely
//! reads a key record. It does so only to compare keys with equal heads. A node in which many heads are equal has *second heads*
//! too: the eight bytes behind the first ones. They tell most of the other keys apart ([decision 0002]).
//!
//! A key that is searched has the common prefix of the fences `low` and `high` as well. Where a fence is missing, in the root
//! for one, the prefix may be longer than that: then a search compares it first, with the first key.
//!
//! # Invariants
//! 1. Entries `0..count` ascend by key. Heads ascend with them, and so do the second heads of entries with equal heads.
//! 2. The keys share `skip` bytes, and all keys that may ever lie between the fences share the first `fenced` of them. Only the
//!    right node of a split that appends has no key at first; its first key may be shorter than `skip`.
//!
//! # Concurrency
//! One writer. Readers are optimistic: they load `version`, which is odd while the writer changes the node, read the node, and
//! start again if `version` has changed. Every field is an atomic. So a reader that loses the race sees old or new words,
//! never torn ones, and every reference that it sees was published. Second heads are published once, while the node changes.
//!
//! [decision 0002]: ../../../../docs/design/0002-memtable.md

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use pleach_coding::{HEAD_LEN, common_prefix_len, head_behind};
use pleach_env::memory::{prefetch, prefetch_to_write};

use super::arena::{Arena, ArenaRef};
use super::entry;

mod heads;

use heads::Heads;

/// Most entries of a node. With 64 the tree of a full memtable has four levels, and moving half of the entries costs about as
/// much as one cache miss.
pub(super) const FANOUT: usize = 64;

/// A node gets second heads if more than one of so many heads equals the one before (arbitrary): then a search meets equal heads
/// often enough. Second heads take eight bytes for each entry that the node can have.
const REPEATED_FRACTION: usize = 8;

/// Bytes of second heads.
pub(super) const SECOND_HEADS_BYTES: usize = size_of::<Heads>();

/// The sorted part of a node, shared by leaves and inner nodes.
pub(super) struct Node {
    version: AtomicU64,
    count: AtomicU32,
    /// Bytes in front of the heads.
    skip: AtomicU32,
    /// So many of them each key between the fences has, so a search need not compare them.
    fenced: AtomicU32,
    /// First key that may lie in the node; 0 = no bound.
    low: AtomicU64,
    /// First key beyond the node; 0 = no bound.
    high: AtomicU64,
    /// Leaves: the leaf to the right; 0 = none.
    next: AtomicU32,
    /// The heads behind `heads`, of a node that has or had many equal heads.
    second_heads: OnceLock<Box<[Heads; 1]>>,
    heads: Heads,
    keys: [AtomicU64; FANOUT],
}

impl Default for Node {
    fn default() -> Self {
        Self {
            version: AtomicU64::new(0),
            count: AtomicU32::new(0),
            skip: AtomicU32::new(0),
            fenced: AtomicU32::new(0),
            low: AtomicU64::new(0),
            high: AtomicU64::new(0),
            next: AtomicU32::new(0),
            second_heads: OnceLock::new(),
            heads: Heads::default(),
            keys: [const { AtomicU64::new(0) }; FANOUT],
        }
    }
}

impl Node {
    /// Prefetches all lines that [`Node::rank`] searches, so that its cache misses overlap.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(self.version.as_ptr().cast_const().cast());
        self.heads.prefetch(0..FANOUT);
    }

    #[inline]
    fn second_heads(&self) -> Option<&Heads> {
        self.second_heads.get().map(|heads| &heads[0])
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

    /// The version at this moment, which is odd while a change is under way.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether the node has not changed since `version` was loaded, so that everything read since then is valid.
    #[inline]
    pub(super) fn unchanged_since(&self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// For the writer: changes the node in `change`; readers retry.
    pub(super) fn write<T>(&self, change: impl FnOnce(&Self) -> T) -> T {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let changed = change(self);
        self.version.store(version + 2, Ordering::Release);
        changed
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

    /// The key at `index`, if its heads are those of `key`. Few other keys have the same ones; the rest need not be looked at.
    #[inline]
    pub(super) fn key_like(&self, index: usize, key: &[u8]) -> Option<ArenaRef> {
        let skip = self.skip.load(Ordering::Relaxed) as usize;
        let is_like = index < self.count()
            && self.heads.at(index) == head_behind(key, skip)
            && self.second_heads().is_none_or(|heads| heads.at(index) == head_behind(key, skip + HEAD_LEN));
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
        if skip > self.fenced.load(Ordering::Relaxed) as usize {
            match self.compare_prefix(arena, key, skip) {
                std::cmp::Ordering::Less => return 0,
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => return count,
            }
        }
        let mut range = self.heads.equal_range(0..count, head_behind(key, skip));
        if !range.is_empty()
            && let Some(second) = self.second_heads()
        {
            second.prefetch(range.clone());
            range = second.equal_range(range, head_behind(key, skip + HEAD_LEN));
        }
        if range.is_empty() {
            return range.start;
        }
        self.rank_of_keys(arena, key, range, or_equal)
    }

    /// As [`Node::rank`], in a range of entries that has the place.
    fn rank_of_keys(&self, arena: &Arena, key: &[u8], range: Range<usize>, or_equal: bool) -> usize {
        let skip = self.skip.load(Ordering::Relaxed) as usize;
        self.prefetch_keys(arena, skip, range.clone());
        let Range { start: mut low, end: mut high } = range;
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

    /// The order of the first `skip` bytes of `key` and of those that the node's keys share.
    fn compare_prefix(&self, arena: &Arena, key: &[u8], skip: usize) -> std::cmp::Ordering {
        // There is none in an empty node, or if a race was lost; then the caller tries again.
        let Some(first) = self.key_at(0) else { return std::cmp::Ordering::Equal };
        let first = entry::key(arena, first);
        key[..skip.min(key.len())].cmp(&first[..skip.min(first.len())])
    }

    /// Prefetches the keys that a search in `range` compares first, so that its cache misses overlap.
    #[inline]
    fn prefetch_keys(&self, arena: &Arena, skip: usize, range: Range<usize>) {
        let middle = usize::midpoint(range.start, range.end);
        for index in [middle, usize::midpoint(range.start, middle), usize::midpoint(middle + 1, range.end)] {
            if range.contains(&index)
                && let Some(at) = self.key_at(index)
            {
                entry::prefetch_key(arena, at, skip + HEAD_LEN);
            }
        }
    }

    /// Prefetches what [`Node::insert_at`] changes behind the heads, which a search has read.
    #[inline]
    pub(super) fn prefetch_to_insert(&self, index: usize) {
        let end = self.count().min(FANOUT - 1);
        let keys = &self.keys[index.min(end)..=end];
        prefetch_to_write(keys.as_ptr().cast(), size_of_val(keys));
        if let Some(heads) = self.second_heads() {
            heads.prefetch_to_write(index.min(end)..end + 1);
        }
    }

    /// For the writer, in [`Node::write`]: puts the key at `index` and moves the entries from there on up. Returns
    /// whether the node got second heads.
    #[must_use]
    pub(super) fn insert_at(&self, arena: &Arena, index: usize, key_ref: ArenaRef, key: &[u8]) -> bool {
        let count = self.count();
        let skip = self.skip.load(Ordering::Relaxed) as usize;
        if skip > self.fenced.load(Ordering::Relaxed) as usize
            && self.compare_prefix(arena, key, skip).is_ne()
        {
            let first = self.key_at(0).map_or(key, |first| entry::key(arena, first));
            self.set_skip(arena, common_prefix_len(first, key));
        }
        for i in (index..count).rev() {
            self.heads.set(i + 1, self.heads.at(i));
            self.keys[i + 1].store(self.keys[i].load(Ordering::Relaxed), Ordering::Release);
        }
        let skip = self.skip.load(Ordering::Relaxed) as usize;
        self.heads.set(index, head_behind(key, skip));
        if let Some(heads) = self.second_heads() {
            heads.insert(index, count, head_behind(key, skip + HEAD_LEN));
        }
        self.keys[index].store(key_ref.to_word(), Ordering::Release);
        self.set_count(count + 1);
        // Nodes with both fences are sharpened when they are made.
        let is_due = (count + 1).is_power_of_two() && (self.low().is_none() || self.high().is_none());
        is_due && self.sharpen(arena)
    }

    /// For the writer, on a node that no reader can reach yet: copies the entries of `left` from `from` on, its upper fence
    /// and its right neighbour. `separator` becomes the lower fence. Returns whether the node got second heads.
    #[must_use]
    pub(super) fn fill_from(&self, arena: &Arena, left: &Self, from: usize, separator: ArenaRef) -> bool {
        let count = left.count();
        for (to, i) in (from..count).enumerate() {
            self.keys[to].store(left.keys[i].load(Ordering::Relaxed), Ordering::Release);
        }
        self.heads.copy_from(&left.heads, from..count);
        self.skip.store(left.skip.load(Ordering::Relaxed), Ordering::Relaxed);
        self.fenced.store(left.fenced.load(Ordering::Relaxed), Ordering::Relaxed);
        self.low.store(separator.to_word(), Ordering::Release);
        self.high.store(left.high.load(Ordering::Relaxed), Ordering::Release);
        self.next.store(left.next.load(Ordering::Relaxed), Ordering::Release);
        self.set_count(count - from);
        self.lengthen_skip(arena);
        self.add_second_heads(arena, Some((left, from)))
    }

    /// For the writer, in [`Node::write`]: keeps the first `count` entries. `separator` becomes the upper fence and `next` the
    /// right neighbour. Returns whether the node got second heads.
    #[must_use]
    pub(super) fn trim(&self, arena: &Arena, count: usize, separator: ArenaRef, next: u32) -> bool {
        self.set_count(count);
        self.high.store(separator.to_word(), Ordering::Release);
        self.next.store(next, Ordering::Release);
        self.sharpen(arena)
    }

    /// Makes the heads as different as possible. Returns whether the node got second heads.
    fn sharpen(&self, arena: &Arena) -> bool {
        self.lengthen_skip(arena);
        self.second_heads().is_none() && self.add_second_heads(arena, None)
    }

    /// If neighbours have equal heads: computes all heads again, from the bytes behind the longest prefix that is known.
    fn lengthen_skip(&self, arena: &Arena) {
        let count = self.count();
        let common = |low: Option<ArenaRef>, high: Option<ArenaRef>| match (low, high) {
            (Some(low), Some(high)) => common_prefix_len(entry::key(arena, low), entry::key(arena, high)),
            _ => 0,
        };
        let (low, high) = (self.low(), self.high());
        let fenced = common(low, high);
        self.fenced.store(u32::try_from(fenced).expect("keys are shorter than 4 GiB"), Ordering::Relaxed);
        if self.heads.repeated(count) > 0 {
            let is_open = low.is_none() || high.is_none();
            let known = if is_open { common(self.key_at(0), self.key_at(count - 1)) } else { fenced };
            if known > self.skip.load(Ordering::Relaxed) as usize {
                self.set_skip(arena, known);
            }
        }
    }

    /// Gives the node second heads if many heads are equal and there is memory. Returns whether it got them. `origin`: the node
    /// whose entries these were, and the index of the first one there.
    fn add_second_heads(&self, arena: &Arena, origin: Option<(&Self, usize)>) -> bool {
        let count = self.count();
        if self.heads.repeated(count) <= count / REPEATED_FRACTION {
            return false;
        }
        let Some(own) = self.make_second_heads() else { return false };
        let skip = self.skip.load(Ordering::Relaxed);
        let known = origin.and_then(|(node, from)| {
            let is_behind_the_same = node.skip.load(Ordering::Relaxed) == skip;
            node.second_heads().filter(|_| is_behind_the_same).map(|heads| (heads, from))
        });
        match known {
            Some((heads, from)) => own.copy_from(heads, from..from + count),
            None => self.set_skip(arena, skip as usize),
        }
        true
    }

    /// Gives the node second heads, which are not filled; `None` without memory for them.
    fn make_second_heads(&self) -> Option<&Heads> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(1).ok()?;
        memory.push(Heads::default());
        let heads = memory.try_into().ok()?;
        Some(&self.second_heads.get_or_init(|| heads)[0])
    }

    /// Computes all heads from the bytes behind the first `skip` ones.
    fn set_skip(&self, arena: &Arena, skip: usize) {
        self.skip.store(u32::try_from(skip).expect("keys are shorter than 4 GiB"), Ordering::Relaxed);
        for i in 0..self.count() {
            let at = self.key_at(i).expect("the writer sees its own entries");
            let key = entry::key(arena, at);
            self.heads.set(i, head_behind(key, skip));
            if let Some(heads) = self.second_heads() {
                heads.set(i, head_behind(key, skip + HEAD_LEN));
            }
        }
    }

    fn set_count(&self, count: usize) {
        self.count.store(u32::try_from(count).expect("at most FANOUT"), Ordering::Release);
    }
}
