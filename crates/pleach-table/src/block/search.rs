//! A binary search in a block, one comparison at a time.

use std::cmp::Ordering;

/// The search: the answer is between `base` and `base + size`.
#[derive(Clone, Copy)]
pub(crate) struct Search {
    base: usize,
    size: usize,
}

impl Search {
    /// In `count` entries.
    #[inline]
    pub(super) fn of(count: usize) -> Self {
        Self { base: 0, size: count }
    }

    /// One that is over.
    #[inline]
    pub(super) fn ended(answer: usize) -> Self {
        Self { base: answer, size: 0 }
    }

    /// The entry to compare next.
    #[inline]
    pub(super) fn middle(&self) -> usize {
        self.base + self.size / 2
    }

    /// Takes the order of the middle entry and what is sought.
    #[inline]
    pub(super) fn narrow(&mut self, order: Ordering) {
        let half = self.size / 2;
        match order {
            Ordering::Less => {
                self.base += half + 1;
                self.size -= half + 1;
            }
            Ordering::Equal => *self = Self::ended(self.base + half),
            Ordering::Greater => self.size = half,
        }
    }

    /// Whether the answer is known.
    #[inline]
    pub(crate) fn is_over(self) -> bool {
        self.size == 0
    }

    /// The answer. Requires: over.
    #[inline]
    pub(crate) fn answer(self) -> usize {
        self.base
    }
}
