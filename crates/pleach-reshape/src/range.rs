//! Ranges: pairs in the order of keys, from either end.
//!
//! The map gives the next keys, a chunk at a time. The rows of a chunk are read in the order of their places, because rows
//! that were written together share pages. Chunks begin small, for scans that end early, and grow.

use std::ops::{Bound, RangeBounds};

use pleach::Result;

use crate::handle::Reshaped;
use crate::map::{Bounds, Direction, Key};
use crate::snapshot::{Pair, Snapshot, View, owned};

/// Rows of the first chunk, unless the caller expects another number.
const CHUNK_FIRST: usize = 128;
/// Rows of a chunk at most: large enough for rows of one page to come together, a few hundred KiB of short rows.
const CHUNK_MAX: usize = 2048;
/// Bytes of a chunk behind which it takes no further pairs.
pub(crate) const CHUNK_BYTES: usize = 4 << 20;

/// Bytes of a usual pair (arbitrary): a chunk's buffer begins with so much for each.
const PAIR_BYTES: usize = 128;

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

/// What a range reads from.
pub(crate) trait Source {
    /// Fills a chunk with the next pairs of a range, up to `limit`. Returns the edge that it has come to; no edge means that the
    /// range has ended.
    fn fill(
        &mut self,
        chunk: &mut Chunk,
        bounds: Bounds<'_>,
        direction: Direction,
        limit: usize,
    ) -> Result<Option<Key>>;
}

/// Where a pair is in the bytes of a chunk: key and value, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: usize,
    value: usize,
    end: usize,
}

/// Pairs that were read ahead, in one buffer.
#[derive(Default)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Those that were not returned yet.
    left: std::ops::Range<usize>,
}

impl Chunk {
    /// Adds the bytes of a pair.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        Span { start, value: start + key.len(), end: self.bytes.len() }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    #[cfg(test)]
    pub(crate) fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has as many bytes as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= CHUNK_BYTES
    }

    pub(crate) fn key(&self, span: Span) -> &[u8] {
        &self.bytes[span.start..span.value]
    }

    /// Says which of the pairs that were added are there, in the order in which they are to come.
    pub(crate) fn set_order(&mut self, spans: impl Iterator<Item = Span>) {
        self.spans.extend(spans);
        self.left = 0..self.spans.len();
    }

    /// Prepares for so many pairs of usual size.
    pub(crate) fn reserve(&mut self, pairs: usize) {
        self.bytes.reserve(pairs * PAIR_BYTES);
        self.spans.reserve(pairs);
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.left = 0..0;
    }

    fn pair(&self, at: usize) -> (&[u8], &[u8]) {
        let Span { start, value, end } = self.spans[at];
        (&self.bytes[start..value], &self.bytes[value..end])
    }
}

/// Where the ends of a range are, and what they have read ahead.
pub(crate) struct RangeEnds {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    /// Read from the lower end, in ascending order.
    front: Chunk,
    /// Read from the upper end, in descending order.
    back: Chunk,
    chunk_rows: usize,
    /// Whether nothing is left between `front` and `back`.
    is_read: bool,
}

impl RangeEnds {
    pub(crate) fn new<K: AsRef<[u8]>>(bounds: impl RangeBounds<K>) -> Self {
        let (lower, upper) = owned(&bounds);
        let (front, back) = (Chunk::default(), Chunk::default());
        Self { lower, upper, front, back, chunk_rows: CHUNK_FIRST, is_read: false }
    }

    fn expect(&mut self, entries: usize) {
        self.chunk_rows = entries.clamp(1, CHUNK_MAX);
    }

    /// The next pair from an end.
    fn lend(&mut self, direction: Direction, source: &mut impl Source) -> Result<Option<(&[u8], &[u8])>> {
        while !self.is_read && self.chunk(direction).left.is_empty() {
            self.read_ahead(direction, source).inspect_err(|_| self.end())?;
        }
        let (own, other) = match direction {
            Direction::Up => (&mut self.front, &mut self.back),
            Direction::Down => (&mut self.back, &mut self.front),
        };
        Ok(match own.left.next() {
            Some(at) => Some(own.pair(at)),
            None => other.left.next_back().map(|at| other.pair(at)),
        })
    }

    fn read_ahead(&mut self, direction: Direction, source: &mut impl Source) -> Result<()> {
        let bounds = (self.lower.as_ref().map(Vec::as_slice), self.upper.as_ref().map(Vec::as_slice));
        let chunk = if direction == Direction::Up { &mut self.front } else { &mut self.back };
        let edge = source.fill(chunk, bounds, direction, self.chunk_rows)?;
        let pair_bytes = chunk.bytes.len() / chunk.spans.len().max(1);
        let fitting = CHUNK_BYTES.checked_div(pair_bytes).unwrap_or(CHUNK_MAX).max(1);
        self.chunk_rows = (self.chunk_rows * 2).min(CHUNK_MAX).min(fitting);
        match (edge, direction) {
            (None, _) => self.is_read = true,
            (Some(edge), Direction::Up) => self.lower = Bound::Excluded(edge.to_vec()),
            (Some(edge), Direction::Down) => self.upper = Bound::Excluded(edge.to_vec()),
        }
        Ok(())
    }

    fn chunk(&self, direction: Direction) -> &Chunk {
        if direction == Direction::Up { &self.front } else { &self.back }
    }

    fn end(&mut self) {
        self.is_read = true;
        self.front.clear();
        self.back.clear();
    }
}

fn copied(lent: Result<Option<(&[u8], &[u8])>>) -> Option<Result<Pair>> {
    lent.map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec()))).transpose()
}

/// The functions of both kinds of range, which differ in what they read from.
macro_rules! range_functions {
    ($range:ident, $source:ident) => {
        impl $range<'_> {
            /// Sets how many pairs will be taken, about (default: 128). The first read fetches this many, later ones more.
            /// The pairs are the same. Requires: nothing was read yet.
            pub fn expect_entries(mut self, count: usize) -> Self {
                self.ends.expect(count);
                self
            }

            /// The next pair from the start, as by [`Iterator::next`], but lent: nothing is copied.
            ///
            /// # Errors
            /// Those of the iterator. The range ends with the first error.
            pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
                self.ends.lend(Direction::Up, &mut self.$source)
            }

            /// The next pair from the end, lent as by [`next_entry`](Self::next_entry).
            ///
            /// # Errors
            /// Those of [`next_entry`](Self::next_entry).
            pub fn next_back_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
                self.ends.lend(Direction::Down, &mut self.$source)
            }
        }

        impl Iterator for $range<'_> {
            type Item = Result<Pair>;

            fn next(&mut self) -> Option<Self::Item> {
                copied(self.next_entry())
            }
        }

        impl DoubleEndedIterator for $range<'_> {
            fn next_back(&mut self) -> Option<Self::Item> {
                copied(self.next_back_entry())
            }
        }
    };
}

range_functions!(Range, snapshot);
range_functions!(SnapshotRange, view);
