//! The model of an SST's index: a function from a key's code to the number of the block.
//!
//! The boundaries between blocks are learned, not the keys. A segment is a line through some tens to all boundaries. Each
//! boundary behind the segment's first has a residual: its distance from the line, in fractions of a block. A search finds
//! the segment by a table over the leading bits of codes, predicts a position, and counts the boundaries in a window around
//! it. The window has one, two or four boundaries, whose residuals are gathered at once.
//!
//! # Invariants
//! 1. *Exact*: for every gap, its upper code is found at or behind the boundary, and its lower code before. Checked by `build`.
//! 2. *Monotone*: a larger code is never found in a lower block. A segment answers with its own blocks only, and each
//!    boundary is counted from one prediction on. So invariant 1 holds for all codes between.
//! 3. *In range*: `find` is below the number of blocks, for any code and any decoded parameters.
//!
//! # Concurrency
//! Immutable.
//!
//! # Cost
//! Segments take about 18 bytes, residuals 0 to 32 bits for each boundary. A search reads four places that depend on each
//! other (table, starts, segment, residuals) and has no branch that depends on the key. Prediction takes one multiplication. A
//! search of 8 random bytes, encoding included, is 383 instructions (callgrind), and 50 to 70 ns by key set.
//!
//! # Origin
//! `TridentKV` 3.2: piecewise linear regression over linear models, monotone. A model without residuals is the paper's.
//! Departures: boundaries are learned instead of keys; residuals make packed blocks exact; integers instead of floating-point
//! numbers; lines are chosen for bytes instead of the least square error.

#![deny(clippy::indexing_slicing)]

mod bits;
mod code;
mod fit;
mod line;
mod stored;

use std::hint::select_unpredictable;

use self::bits::{Writer, bits_of, bytes_mask, gather, mask, padded, word};
pub(crate) use self::code::Code;
pub(crate) use self::fit::Gap;
use self::fit::{Segment, fit, residuals};
use self::line::{Line, Shape};

/// Fields of a segment's record.
const FIELDS: usize = 6;
/// The segment's start: its distance from the first segment's, in units of `1 << scale`.
const START: usize = 0;
/// The first block of the segment.
const BLOCK: usize = 1;
/// Where its residuals begin, in bits; that of the segment's first boundary, which has none, would be there.
const RESIDUALS: usize = 2;
const SLOPE: usize = 3;
const BIAS: usize = 4;
/// Shift of the distance, bits of a fraction, bits of a residual: see [`Shape`].
const SHAPE: usize = 5;

/// Most bytes of a record.
const STRIDE_MAX: usize = 31;
/// Bytes from a record on that a search looks at: the starts of four records, eight bytes for each.
const WINDOW_LEN: usize = 136;

/// What a search sees where there is no record; `build` and `load` make sure that there is one.
static NO_RECORD: [u8; WINDOW_LEN] = [0; WINDOW_LEN];

/// A field of all records: its least value, and how the differences to it are stored. Whole bytes, so that a field costs a
/// load and a mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Field {
    base: u64,
    /// Set where a difference has bits.
    mask: u64,
    /// First byte in a record.
    offset: usize,
}

/// The model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model<C> {
    blocks: u32,
    segments: u32,
    /// Start of the first segment.
    origin: C,
    scale: u32,
    /// Most boundaries in a window: 1, 2 or 4.
    candidates: u32,
    fields: [Field; FIELDS],
    /// Bytes of a record.
    stride: usize,
    /// Records, and one more that ends the last segment; then residuals.
    bytes: Box<[u8]>,
    /// First bit of the residuals.
    residuals_at: u64,
    table: Table,
}

/// For each bucket of starts, where the record of the segment is that contains the bucket's first code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    bytes: Box<[u8]>,
    buckets: u64,
    /// Bits of a start below its bucket.
    shift: u32,
    /// Bytes of an entry, and its mask.
    stride: usize,
    mask: u64,
    /// Bits of the largest number of segments that start in one bucket. Halvings find a segment among four.
    steps: u32,
    /// How many segments are then compared one by one; the comparisons do not wait for each other.
    counted: usize,
}

impl<C: Code> Model<C> {
    /// The model of the blocks between which there are `gaps`. `None` if there are none, or if it cannot be exact.
    pub(crate) fn build(gaps: &[Gap<C>]) -> Option<Self> {
        let segments = fit(gaps);
        let origin = segments.first()?.start;
        let distance = |segment: &Segment<C>| segment.start.above(origin);
        let distances: Vec<C> = segments.iter().map(distance).collect::<Option<_>>()?;
        let scale = distances.iter().skip(1).map(|distance| distance.trailing()).min().unwrap_or(63);
        let starts: Vec<u64> = distances.iter().map(|distance| distance.scaled(scale)).collect();
        let records = records(&segments, &starts);
        let (fields, stride) = fields(&records)?;
        let mut bytes = Vec::new();
        for record in &records {
            for (value, field) in record.iter().zip(&fields) {
                let difference = value.wrapping_sub(field.base).to_le_bytes();
                bytes.extend_from_slice(difference.get(..field.len()).unwrap_or_default());
            }
        }
        let mut writer = Writer::after(bytes);
        let residuals_at = writer.len();
        for segment in &segments {
            residuals(segment, gaps).for_each(|residual| writer.push(residual, segment.line.shape.width));
        }
        let model = Self {
            blocks: u32::try_from(gaps.len()).ok()?.checked_add(1)?,
            segments: u32::try_from(segments.len()).ok()?,
            origin,
            scale,
            candidates: segments.iter().map(|segment| segment.line.shape.candidates()).max()?,
            fields,
            stride,
            bytes: writer.finish(),
            residuals_at,
            table: Table::over(&starts, stride),
        };
        model.is_exact(gaps).then_some(model)
    }

    /// Invariant 1.
    pub(crate) fn is_exact(&self, gaps: &[Gap<C>]) -> bool {
        (0..).zip(gaps).all(|(block, gap)| self.find(gap.0) <= block && self.find(gap.1) > block)
            && self.blocks as usize == gaps.len() + 1
    }

    /// Number of the block that can hold a key with `code`.
    #[inline]
    #[expect(clippy::needless_bitwise_bool, reason = "a branch would be unpredictable")]
    pub(crate) fn find(&self, code: C) -> u32 {
        let Some(distance) = code.above(self.origin) else { return 0 };
        let scaled = distance.scaled(self.scale);
        let mut record_at = self.table.record_before(scaled);
        let end = self.segments as usize * self.stride;
        for step in (2..self.table.steps).rev() {
            let probe = record_at + (self.stride << step);
            let is_reached = (probe < end) & (self.fields[START].of(self.record(probe), 0) <= scaled);
            record_at = select_unpredictable(is_reached, probe, record_at);
        }
        let (records, before) = (self.record(record_at), record_at);
        let mut start = self.fields[START].of(records, 0);
        for next in 1..=self.table.counted {
            let ahead = next * self.stride;
            let next_start = self.start_of(records, ahead);
            let is_before_end = before + ahead < end;
            let is_reached = is_before_end & (next_start <= scaled);
            record_at = select_unpredictable(is_reached, before + ahead, record_at);
            start = select_unpredictable(is_reached, next_start, start);
        }
        let distance = distance.rest(start, self.scale);
        self.find_in_segment(self.record(record_at), distance).min(self.blocks - 1)
    }

    /// The records from byte `at` on.
    #[inline]
    fn record(&self, at: usize) -> &[u8; WINDOW_LEN] {
        self.bytes.get(at..).and_then(<[u8]>::first_chunk).unwrap_or(&NO_RECORD)
    }

    /// The start in the record that is `ahead` bytes behind the beginning of `records`.
    #[inline]
    fn start_of(&self, records: &[u8; WINDOW_LEN], ahead: usize) -> u64 {
        // The start is the first field. The mask changes nothing.
        let at = ahead & 127;
        let eight = records.get(at..at + 8).and_then(<[u8]>::first_chunk);
        let difference = eight.map_or(0, |eight| u64::from_le_bytes(*eight)) & self.fields[START].mask;
        self.fields[START].base.wrapping_add(difference)
    }

    /// The block of a code that is `distance` behind the start of the segment of `record`.
    #[inline]
    fn find_in_segment(&self, record: &[u8; WINDOW_LEN], distance: C) -> u32 {
        let [_, block, residuals, slope, bias, shape] = &self.fields;
        let shape = Shape::from_number(shape.of(record, 0));
        let first = block.of(record, 0);
        let last = block.of(record, self.stride).wrapping_sub(first + 1).cast_signed();
        let line = Line { slope: slope.of(record, 0), bias: bias.of(record, 0).cast_signed(), shape };
        let Shape { width, fraction, justify } = shape;
        let position = line.predict(distance.justified(justify));
        let top = (position >> fraction).min(last);
        // Boundaries below the window are passed, those above it are not.
        let lowest = top.wrapping_sub(i64::from(shape.candidates()) - 1).max(1);
        let at = lowest.cast_unsigned().wrapping_mul(width.into()).wrapping_add(residuals.of(record, 0));
        let mut residuals = gather(&self.bytes, self.residuals_at.wrapping_add(at));
        let mut rest = position.wrapping_sub(lowest << fraction);
        let mut count = lowest - 1;
        for i in 0..i64::from(self.candidates) {
            let is_passed = (residuals & mask(width)).cast_signed() <= rest;
            count += i64::from(is_passed & (i <= top.wrapping_sub(lowest)));
            residuals >>= width;
            rest = rest.wrapping_sub(1 << fraction);
        }
        low_half(first.wrapping_add(count.cast_unsigned()))
    }

    /// Field `no` of the record of `segment`.
    fn field(&self, segment: usize, no: usize) -> u64 {
        self.fields.get(no).map_or(0, |field| field.of(self.record(segment * self.stride), 0))
    }

    /// Number of blocks; at least 2.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Number of segments.
    pub(crate) fn segments(&self) -> u32 {
        self.segments
    }

    /// Bytes of memory on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.len() + self.table.bytes.len()
    }
}

/// The record of each segment, and one behind the last.
fn records<C>(segments: &[Segment<C>], starts: &[u64]) -> Vec<[u64; FIELDS]> {
    let mut records = Vec::with_capacity(segments.len() + 1);
    let (mut bits, mut end) = (0_u64, 0);
    for (Segment { first, len, line, .. }, start) in segments.iter().zip(starts) {
        let mut record = [0; FIELDS];
        record[START] = *start;
        record[BLOCK] = *first as u64 + 1;
        record[RESIDUALS] = bits.wrapping_sub(line.shape.width.into());
        record[SLOPE] = line.slope;
        record[BIAS] = line.bias.cast_unsigned();
        record[SHAPE] = line.shape.number();
        records.push(record);
        bits += u64::from(line.shape.width) * (*len as u64 - 1);
        end = first + len;
    }
    let mut sentinel = records.last().copied().unwrap_or_default();
    sentinel[BLOCK] = end as u64 + 1;
    records.push(sentinel);
    records
}

/// How `records` are stored, and the bytes of one; `None` if these are too many.
fn fields(records: &[[u64; FIELDS]]) -> Option<([Field; FIELDS], usize)> {
    let mut fields = [Field::default(); FIELDS];
    let mut offset = 0;
    for (no, field) in fields.iter_mut().enumerate() {
        let values = records.iter().filter_map(|record| record.get(no)).map(|value| value.cast_signed());
        let least = values.clone().min().unwrap_or(0);
        let greatest = values.max().unwrap_or(0);
        let len = bits_of(greatest.wrapping_sub(least).cast_unsigned()).div_ceil(8) as usize;
        *field = Field::new(least.cast_unsigned(), len, offset);
        offset += len;
    }
    (offset <= STRIDE_MAX).then_some((fields, offset))
}

impl Field {
    /// A field of `len` bytes, at most 8.
    fn new(base: u64, len: usize, offset: usize) -> Self {
        Self { base, mask: bytes_mask(len), offset }
    }

    /// The field in the record that is `ahead` bytes behind the beginning of `record`.
    #[inline]
    fn of(&self, record: &[u8; WINDOW_LEN], ahead: usize) -> u64 {
        // The masks change nothing: they tell the compiler that the eight bytes are there.
        let at = (self.offset & STRIDE_MAX) + (ahead & STRIDE_MAX);
        let eight = record.get(at..at + 8).and_then(<[u8]>::first_chunk);
        self.base.wrapping_add(eight.map_or(0, |eight| u64::from_le_bytes(*eight)) & self.mask)
    }

    /// Bytes of a difference.
    fn len(&self) -> usize {
        self.mask.count_ones() as usize / 8
    }
}

impl Table {
    /// A table over ascending `starts`, of which the first is 0: two to four buckets for each.
    /// Records have `record_len` bytes.
    fn over(starts: &[u64], record_len: usize) -> Self {
        let span = starts.last().copied().unwrap_or(0);
        let shift = bits_of(span).saturating_sub(bits_of(starts.len() as u64) + 1);
        let buckets = (span >> shift) + 1;
        let stride = bits_of((starts.len() * record_len) as u64).div_ceil(8) as usize;
        let mut bytes = Vec::new();
        let (mut below, mut most) = (0_usize, 0);
        for bucket in 0..buckets {
            let entry = (below.saturating_sub(1) as u64 * record_len as u64).to_le_bytes();
            bytes.extend_from_slice(entry.get(..stride).unwrap_or_default());
            let rest = starts.get(below..).unwrap_or_default();
            let inside = rest.iter().take_while(|&&start| start >> shift == bucket).count();
            below += inside;
            most = most.max(inside);
        }
        let (steps, counted) = (bits_of(most as u64), most.min(3));
        Self { bytes: padded(&bytes, 8), buckets, shift, stride, mask: bytes_mask(stride), steps, counted }
    }

    /// Where the record of a segment is that starts at or before `scaled`; at most `2^steps - 1` others do so after it.
    #[inline]
    fn record_before(&self, scaled: u64) -> usize {
        let bucket = (scaled >> (self.shift & 63)).min(self.buckets - 1);
        low_half(word(&self.bytes, low_half(bucket) as usize * self.stride) & self.mask) as usize
    }
}

/// The lower 32 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "numbers of blocks and widths have at most 32 bits")]
fn low_half(number: u64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests;
