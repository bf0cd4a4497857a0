//! Heads of a node's keys: eight bytes of each key as a number, in the order of the keys.
//!
//! A node searches them instead of its keys. Each node has an array of them; a node with many equal heads has a second one.
//!
//! # Concurrency
//! As in `node`: the writer changes the words one by one, and a reader that meets a change reads them again.

use std::hint::select_unpredictable;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use pleach_env::memory::{prefetch, prefetch_to_write};

use super::FANOUT;

/// Heads in a cache line.
const IN_LINE: usize = 8;

/// A head for each entry that a node can have. Not aligned to cache lines: with aligned nodes a memtable of 16-byte keys took
/// more memory, and puts were 3 % slower (measured).
pub(super) struct Heads([AtomicU64; FANOUT]);

impl Default for Heads {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; FANOUT])
    }
}

impl Heads {
    #[inline]
    pub(super) fn at(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set(&self, index: usize, head: u64) {
        self.0[index].store(head, Ordering::Relaxed);
    }

    /// Inserts `head` at `index`. Entries from there to `count` move up by one.
    #[inline]
    pub(super) fn insert(&self, index: usize, count: usize, head: u64) {
        for i in (index..count).rev() {
            self.set(i + 1, self.at(i));
        }
        self.set(index, head);
    }

    /// Copies the entries of `other` in `range` to the front.
    pub(super) fn copy_from(&self, other: &Self, range: Range<usize>) {
        for (to, i) in range.enumerate() {
            self.set(to, other.at(i));
        }
    }

    /// Number of entries below `count` whose head is that of the entry before them.
    pub(super) fn repeated(&self, count: usize) -> usize {
        (1..count).filter(|&i| self.at(i - 1) == self.at(i)).count()
    }

    /// The entries of `range` whose head is `wanted`. If there are none: the empty range where they would be.
    #[inline]
    pub(super) fn equal_range(&self, range: Range<usize>, wanted: u64) -> Range<usize> {
        let end = range.end;
        let low = self.partition_point(range.clone(), |head| head < wanted);
        if low == end || self.at(low) != wanted {
            return low..low;
        }
        let mut high = low + 1;
        if high < end && self.at(high) == wanted {
            // In the whole range: the processor runs both searches at once, and guesses their number of steps.
            high = self.partition_point(range, |head| head <= wanted);
        }
        low..high
    }

    /// Without a branch that depends on the heads: the processor would guess every second one wrong.
    #[inline]
    fn partition_point(&self, range: Range<usize>, before: impl Fn(u64) -> bool) -> usize {
        let is_before = |index: usize| before(self.at(index % FANOUT));
        let mut base = range.start;
        let mut len = range.len();
        while len > 1 {
            let half = len / 2;
            base += select_unpredictable(is_before(base + half - 1), half, 0);
            len -= half;
        }
        base + usize::from(!range.is_empty() && is_before(base))
    }

    /// Prefetches the entries of `range`.
    #[inline]
    pub(super) fn prefetch(&self, range: Range<usize>) {
        for line in range.start / IN_LINE..range.end.div_ceil(IN_LINE) {
            prefetch(self.0[line * IN_LINE % FANOUT].as_ptr().cast_const().cast());
        }
    }

    /// Prefetches the entries of `range` to change them.
    #[inline]
    pub(super) fn prefetch_to_write(&self, range: Range<usize>) {
        let heads = &self.0[range];
        prefetch_to_write(heads.as_ptr().cast(), size_of_val(heads));
    }
}
