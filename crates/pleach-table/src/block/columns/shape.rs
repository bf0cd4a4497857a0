//! Shape of a columnar block that is being filled: what its length depends on, entry by entry.
//!
//! Offsets are stored as distances from a line. Three lines are tried: a constant, the line through the first two pointers,
//! and the mean slope of the block before, which suits values of different sizes in key order.
//!
//! # Invariants
//! 1. *Never too short*: [`Shape::block_len`] is at least the length of a block of these entries, and of the first ones of
//!    them, encoded by this shape. Checked when the SST builder pads the block.

use pleach_coding::bits::bits_of;

use super::key_shape::{KeyForm, KeyShape};
use super::layout::FIXED_LEN;
use super::{BITS_MAX, Pointer};
use crate::block::waiting::Apart;
use crate::sizes::HEADER_LEN;

/// Columns with values are stored if they save at least one part in this many (arbitrary).
const GAIN_SHARE: usize = 8;

/// The smallest and the greatest of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds<T> {
    min: T,
    max: T,
}

impl<T: Ord + Copy> Bounds<T> {
    fn of(number: T) -> Self {
        Self { min: number, max: number }
    }

    #[inline]
    fn add(&mut self, number: T) {
        self.min = self.min.min(number);
        self.max = self.max.max(number);
    }
}

/// An entry's number in the block, and its pointer's offset.
type Place = (i64, i64);

/// A line through the origin, and the distances of offsets from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    stride: i64,
    distances: Bounds<i64>,
}

impl Line {
    fn through(place: Place, stride: i64) -> Self {
        Self { stride, distances: Bounds::of(place.1 - place.0 * stride) }
    }

    #[inline]
    pub(super) fn place(at: usize, pointer: Pointer) -> Place {
        (i64::try_from(at).expect("an index fits"), pointer.offset.into())
    }

    #[inline]
    pub(super) fn distance(&self, (at, offset): Place) -> i64 {
        offset - at * self.stride
    }

    #[inline]
    fn add(&mut self, place: Place) {
        self.distances.add(self.distance(place));
    }

    #[inline]
    fn bits(&self) -> u32 {
        bits_of((self.distances.max - self.distances.min).cast_unsigned())
    }

    pub(super) fn stride(&self) -> i64 {
        self.stride
    }

    pub(super) fn distance_min(&self) -> i64 {
        self.distances.min
    }
}

/// The pointers of a block that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointers {
    first: Place,
    last: Place,
    segments: Bounds<u64>,
    lens: Bounds<u32>,
    lines: [Line; 3],
}

impl Pointers {
    fn of(place: Place, pointer: Pointer, stride: i64) -> Self {
        Self {
            first: place,
            last: place,
            segments: Bounds::of(pointer.segment),
            lens: Bounds::of(pointer.len),
            lines: [0, 0, stride].map(|stride| Line::through(place, stride)),
        }
    }

    #[inline]
    fn add(&mut self, place: Place, pointer: Pointer) {
        if self.last == self.first {
            let stride = (place.1 - self.first.1) / (place.0 - self.first.0);
            self.lines[1] = Line::through(self.first, stride);
        }
        self.last = place;
        self.segments.add(pointer.segment);
        self.lens.add(pointer.len);
        self.lines.iter_mut().for_each(|line| line.add(place));
    }

    /// The line that leaves the fewest bits. At most 32: the constant one has no more.
    #[inline]
    pub(super) fn best_line(&self) -> Line {
        let [constant, second, before] = self.lines;
        let better = |a: Line, b: Line| if b.bits() < a.bits() { b } else { a };
        better(better(constant, second), before)
    }

    /// Bits of segment, offset and length in a record.
    #[inline]
    pub(super) fn bits(&self) -> [u32; 3] {
        let offset_bits = self.lines.iter().map(Line::bits).min().unwrap_or(BITS_MAX);
        [
            bits_of(self.segments.max - self.segments.min),
            offset_bits,
            bits_of((self.lens.max - self.lens.min).into()),
        ]
    }

    pub(super) fn segment_min(&self) -> u64 {
        self.segments.min
    }

    pub(super) fn len_min(&self) -> u32 {
        self.lens.min
    }
}

/// What the entries have beside their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    /// There are tombstones at most.
    Nothing,
    Pointers(Pointers),
    /// Values of so many bytes each.
    Values(usize),
}

/// The shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    keys: KeyShape,
    has_tombstones: bool,
    /// Mean stride of the block before.
    stride: i64,
    contents: Contents,
}

impl Shape {
    /// Without entries. `stride` is the mean stride of the block before.
    pub(crate) fn new(stride: i64) -> Self {
        Self { keys: KeyShape::new(), has_tombstones: false, stride, contents: Contents::Nothing }
    }

    /// Adds entry `at` of the block, which has `key`; `first` is the block's first key, and all up to this one share
    /// `prefix_len` bytes. `false` if no columnar block can hold these entries.
    #[inline]
    pub(crate) fn add(
        &mut self,
        at: usize,
        first: &[u8],
        key: &[u8],
        prefix_len: usize,
        apart: Apart,
    ) -> bool {
        self.keys.add(at, first, key, prefix_len);
        match (apart, &mut self.contents) {
            (Apart::Tombstone, _) => {
                self.has_tombstones = true;
                true
            }
            (Apart::Value(len), Contents::Nothing) => {
                self.contents = Contents::Values(len);
                true
            }
            (Apart::Value(len), Contents::Values(of_all)) => len == *of_all,
            (Apart::Pointer(pointer), Contents::Nothing) => {
                let place = Line::place(at, pointer);
                self.contents = Contents::Pointers(Pointers::of(place, pointer, self.stride));
                true
            }
            (Apart::Pointer(pointer), Contents::Pointers(pointers)) => {
                pointers.add(Line::place(at, pointer), pointer);
                bits_of(pointers.segments.max - pointers.segments.min) <= BITS_MAX
            }
            (Apart::Value(_), Contents::Pointers(_)) | (Apart::Pointer(_), Contents::Values(_)) => false,
        }
    }

    /// Length of the block of `entries`, header included, if their keys share `prefix_len` bytes. `None` if there are tombstones
    /// only: then rows are right.
    #[inline]
    pub(crate) fn block_len(&self, entries: usize, prefix_len: usize) -> Option<usize> {
        let contents = match &self.contents {
            Contents::Nothing => return None,
            Contents::Pointers(pointers) => {
                (entries * pointers.bits().iter().sum::<u32>() as usize).div_ceil(8)
            }
            Contents::Values(len) => entries * len,
        };
        let kinds = if self.has_tombstones { entries.div_ceil(8) } else { 0 };
        Some(HEADER_LEN + FIXED_LEN + self.keys.len_of(entries, prefix_len) + kinds + contents)
    }

    /// Whether a columnar block of this length is stored, if rows take `rows_len`. Rows are faster to search, so a gain of a few
    /// bytes is not enough for values.
    #[inline]
    pub(crate) fn is_better(&self, len: usize, rows_len: usize) -> bool {
        match self.contents {
            Contents::Values(_) => len + rows_len / GAIN_SHARE < rows_len,
            _ => len < rows_len,
        }
    }

    /// The mean distance of the offsets of neighbouring values.
    pub(crate) fn mean_stride(&self) -> i64 {
        let mean = |pointers: &Pointers| {
            (pointers.last.1 - pointers.first.1) / (pointers.last.0 - pointers.first.0).max(1)
        };
        self.pointers().map_or(0, mean)
    }

    /// How keys that share `prefix_len` bytes are stored.
    pub(super) fn key_form(&self, prefix_len: usize) -> KeyForm {
        self.keys.form(prefix_len)
    }

    pub(super) fn has_tombstones(&self) -> bool {
        self.has_tombstones
    }

    /// Length of each value; `None` if the block is one of pointers.
    pub(super) fn value_len(&self) -> Option<usize> {
        if let Contents::Values(len) = self.contents { Some(len) } else { None }
    }

    pub(super) fn pointers(&self) -> Option<&Pointers> {
        if let Contents::Pointers(pointers) = &self.contents { Some(pointers) } else { None }
    }
}
