//! Ranges: pairs in the order of keys, from either end.
//!
//! The map gives the next keys, a chunk at a time. The rows of a chunk are read in the order of their places, because rows
//! that were written together share pages. Chunks begin small, for scans that end early, and grow.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use pleach::Result;

use crate::handle::Reshaped;
use crate::map::{Bounds, Direction};
use crate::snapshot::{Pair, Snapshot, View, owned};

/// Rows of the first chunk: a usual scan is one chunk.
const CHUNK_FIRST: usize = 128;
/// Rows of a chunk at most: large enough for rows of one page to come together, a few hundred KiB of short rows.
const CHUNK_MAX: usize = 2048;

/// Pairs of a key range in the order of keys: an iterator over one moment, from either end. It ends after an error.
#[must_use = "a range is lazy"]
pub struct Range<'a> {
    snapshot: Snapshot<'a>,
    ends: RangeEnds,
}

/// As [`Range`], of a snapshot that the caller holds.
#[must_use = "a range is lazy"]
pub struct SnapshotRange<'s> {
    view: View<'s>,
    ends: RangeEnds,
}

impl Reshaped {
    /// The pairs of a key range as of now.
    ///
    /// # Errors
    /// `Io`: the store refused a snapshot. The range returns those of [`get`](Self::get).
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<Range<'_>> {
        Ok(Range { snapshot: self.snapshot()?, ends: RangeEnds::new(bounds) })
    }

    /// All pairs as of now.
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn all(&self) -> Result<Range<'_>> {
        self.range::<&[u8]>(..)
    }
}

impl<'s> SnapshotRange<'s> {
    pub(crate) fn new(view: View<'s>, ends: RangeEnds) -> Self {
        Self { view, ends }
    }
}

/// Where the ends of a range are, and what they have read ahead.
pub(crate) struct RangeEnds {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    /// Read from the lower end, in ascending order.
    front: VecDeque<Pair>,
    /// Read from the upper end, in descending order.
    back: VecDeque<Pair>,
    chunk: usize,
    /// Whether nothing is left between `front` and `back`.
    is_read: bool,
}

impl RangeEnds {
    pub(crate) fn new<K: AsRef<[u8]>>(bounds: impl RangeBounds<K>) -> Self {
        let (lower, upper) = owned(&bounds);
        let (front, back) = (VecDeque::new(), VecDeque::new());
        Self { lower, upper, front, back, chunk: CHUNK_FIRST, is_read: false }
    }

    fn next(
        &mut self,
        direction: Direction,
        mut pairs: impl FnMut(Bounds<'_>, usize) -> Result<(Vec<Pair>, Option<crate::map::Key>)>,
    ) -> Option<Result<Pair>> {
        while !self.is_read && self.ahead(direction).is_empty() {
            let bounds = (self.lower.as_ref().map(Vec::as_slice), self.upper.as_ref().map(Vec::as_slice));
            let (chunk, edge) = match pairs(bounds, self.chunk) {
                Ok(chunk) => chunk,
                Err(error) => {
                    self.end();
                    return Some(Err(error));
                }
            };
            self.chunk = (self.chunk * 2).min(CHUNK_MAX);
            self.is_read = edge.is_none();
            if let Some(edge) = edge {
                let edge = Bound::Excluded(edge.to_vec());
                *(if direction == Direction::Up { &mut self.lower } else { &mut self.upper }) = edge;
            }
            self.ahead(direction).extend(chunk);
        }
        let (own, other) = match direction {
            Direction::Up => (&mut self.front, &mut self.back),
            Direction::Down => (&mut self.back, &mut self.front),
        };
        own.pop_front().or_else(|| other.pop_back()).map(Ok)
    }

    fn ahead(&mut self, direction: Direction) -> &mut VecDeque<Pair> {
        if direction == Direction::Up { &mut self.front } else { &mut self.back }
    }

    fn end(&mut self) {
        self.is_read = true;
        self.front.clear();
        self.back.clear();
    }
}

impl Iterator for Range<'_> {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { snapshot, ends } = self;
        ends.next(Direction::Up, |bounds, limit| snapshot.pairs(bounds, Direction::Up, limit))
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let Self { snapshot, ends } = self;
        ends.next(Direction::Down, |bounds, limit| snapshot.pairs(bounds, Direction::Down, limit))
    }
}

impl Iterator for SnapshotRange<'_> {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { view, ends } = self;
        ends.next(Direction::Up, |bounds, limit| view.pairs(bounds, Direction::Up, limit))
    }
}

impl DoubleEndedIterator for SnapshotRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let Self { view, ends } = self;
        ends.next(Direction::Down, |bounds, limit| view.pairs(bounds, Direction::Down, limit))
    }
}
