//! Shape of a columnar block that is being filled: what its length depends on, entry by entry.
//!
//! Offsets are stored as distances from a line. Three lines are tried: a constant, the line through the first two pointers,
//! and the mean slope of the block before, which suits values of different sizes in key order.
//!
//! # Invariants
//! 1. *Never too short*: [`Shape::block_len`] is at least the length of a block of these entries, and of the first ones of
//!    them, encoded by this shape. Checked when the SST builder pads the block.

use pleach_coding::bits::bits_of;

use super::layout::{FIXED_LEN, are_numbers};
use super::{BITS_MAX, Pointer};
use crate::block::waiting::Apart;
use crate::sizes::HEADER_LEN;

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
struct Pointers {
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
    fn best_line(&self) -> Line {
        let [constant, second, before] = self.lines;
        let better = |a: Line, b: Line| if b.bits() < a.bits() { b } else { a };
        better(better(constant, second), before)
    }

    #[inline]
    fn bits(&self) -> [u32; 3] {
        let offset_bits = self.lines.iter().map(Line::bits).min().unwrap_or(BITS_MAX);
        [
            bits_of(self.segments.max - self.segments.min),
            offset_bits,
            bits_of((self.lens.max - self.lens.min).into()),
        ]
    }
}

/// The shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of all keys.
    keys_len: usize,
    first_key_len: usize,
    keys_vary: bool,
    has_tombstones: bool,
    /// Mean stride of the block before.
    stride: i64,
    pointers: Option<Pointers>,
}

impl Shape {
    /// Without entries. `stride` is the mean stride of the block before.
    pub(crate) fn new(stride: i64) -> Self {
        let (keys_len, first_key_len) = (0, 0);
        Self { keys_len, first_key_len, keys_vary: false, has_tombstones: false, stride, pointers: None }
    }

    /// Adds entry `at` of the block; `false` if no columnar block can hold these entries.
    #[inline]
    pub(crate) fn add(&mut self, at: usize, key_len: usize, apart: Option<Apart>) -> bool {
        if at == 0 {
            self.first_key_len = key_len;
        }
        self.keys_len += key_len;
        self.keys_vary |= key_len != self.first_key_len;
        match apart {
            None => false,
            Some(Apart::Tombstone) => {
                self.has_tombstones = true;
                true
            }
            Some(Apart::Pointer(pointer)) => {
                let place = Line::place(at, pointer);
                let stride = self.stride;
                let pointers = self.pointers.get_or_insert_with(|| Pointers::of(place, pointer, stride));
                if pointers.last != place {
                    pointers.add(place, pointer);
                }
                bits_of(pointers.segments.max - pointers.segments.min) <= BITS_MAX
            }
        }
    }

    /// Length of the block of `entries`, header included, if their keys share `prefix_len` bytes. `None` without a pointer: then
    /// rows are right.
    #[inline]
    pub(crate) fn block_len(&self, entries: usize, prefix_len: usize) -> Option<usize> {
        let bits = self.pointers.as_ref()?.bits();
        let tags = if are_numbers(self.keys_vary, self.first_key_len - prefix_len) { 0 } else { entries };
        let ends = if self.keys_vary { 2 * entries } else { 0 };
        let kinds = if self.has_tombstones { entries.div_ceil(8) } else { 0 };
        let suffixes = self.keys_len - entries * prefix_len;
        let records = (entries * bits.iter().sum::<u32>() as usize).div_ceil(8);
        Some(HEADER_LEN + FIXED_LEN + prefix_len + tags + ends + kinds + suffixes + records)
    }

    /// The mean distance of the offsets of neighbouring values.
    pub(crate) fn mean_stride(&self) -> i64 {
        let mean = |pointers: Pointers| {
            (pointers.last.1 - pointers.first.1) / (pointers.last.0 - pointers.first.0).max(1)
        };
        self.pointers.map_or(0, mean)
    }

    pub(super) fn keys_vary(&self) -> bool {
        self.keys_vary
    }

    pub(super) fn has_tombstones(&self) -> bool {
        self.has_tombstones
    }

    fn pointers(&self) -> &Pointers {
        self.pointers.as_ref().expect("a columnar block has a pointer")
    }

    pub(super) fn best_line(&self) -> Line {
        self.pointers().best_line()
    }

    /// Bits of segment, offset and length in a record.
    pub(super) fn bits(&self) -> [u32; 3] {
        self.pointers().bits()
    }

    pub(super) fn segment_min(&self) -> u64 {
        self.pointers().segments.min
    }

    pub(super) fn len_min(&self) -> u32 {
        self.pointers().lens.min
    }
}
