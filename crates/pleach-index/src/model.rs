//! The model of an SST's index: a function from a key's code to the number of the block.
//!
//! The boundaries between blocks are learned, not the keys. A segment is a line through some tens to all boundaries. Each
//! boundary of a segment has a residual: its distance from the line, in fractions of a block. A search finds the segment,
//! predicts a position, and counts the boundaries in a window around it. The window has one, two or four boundaries.
//!
//! There are two layouts. In the *even* one all segments span equally many codes, so that a shift finds the segment. In the
//! *uneven* one a segment starts exactly at a boundary, which has no residual, and a table over the leading bits of codes
//! finds it. Keys that lie on few lines get the uneven layout, and so do keys whose density changes much. `build` takes the even
//! layout. If that does not exist, or takes at most a byte for each boundary, it fits the uneven one too and keeps the smaller.
//!
//! # Invariants
//! 1. *Exact*: for every gap, its upper code is found at or behind the boundary, and its lower code before. `build` checks
//!    it.
//! 2. *Monotone*: a larger code is never found in a lower block. A segment answers with its own blocks only, and each
//!    boundary is counted from one prediction on. So invariant 1 holds for all codes between.
//! 3. *In range*: `find` is below the number of blocks, for any code and any decoded parameters.
//!
//! # Concurrency
//! Immutable.
//!
//! # Cost
//! A segment takes 16 bytes, or 32 with start and table; residuals take 0 to 28 bits for each boundary. In the uneven layout
//! their lower bits may be apart, where only some boundaries need them. A search reads two places that depend on each other
//! (record, residuals) in the even layout, four in the uneven one, and has no branch that depends on the key, except where
//! lower bits are apart ([`Fine`]). Prediction takes one multiplication. Times are in design/0011.
//!
//! # Origin
//! `TridentKV` 3.2: piecewise linear regression over linear models, monotone. A model without residuals is the paper's.
//! Departures: boundaries are learned instead of keys; residuals make packed blocks exact; integers instead of floating-point
//! numbers; lines are chosen for bytes instead of the least square error.

#![deny(clippy::indexing_slicing)]

mod code;
mod even;
mod fine;
mod fit;
mod line;
mod points;
mod record;
mod starts;
mod stored;

use pleach_coding::bits::{BitWriter, WIDTH_MAX, gather, mask};

pub(crate) use self::code::Code;
use self::even::{Even, even_residuals, fit_evenly};
use self::fine::{Fine, FineBuilder, fine_bits};
pub(crate) use self::fit::Gap;
use self::fit::{Segment, fit, residuals};
use self::line::Shape;
use self::record::{BLOCKS_MAX, Record};
use self::starts::Starts;

/// Weight of residuals where few are needed. Arbitrary.
const WEIGHT_OF_FEW: u64 = 16;

/// The model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model<C> {
    /// The first code of the first segment.
    origin: C,
    blocks: u32,
    /// Boundaries in a window: 1, 2 or 4; 0 if there are no residuals. A segment may need fewer: those below are passed.
    candidates: u32,
    /// Whether one load finds the residuals of a window.
    are_gathered_at_once: bool,
    layout: Layout,
    /// A record for each segment, and one that ends the last.
    records: Box<[Record]>,
    residuals: Box<[u8]>,
}

/// Where segments start.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Layout {
    /// Every segment spans `1 << shift` codes.
    Even { shift: u32 },
    /// With the lower bits of residuals, if these are apart.
    Uneven(Starts, Option<Fine>),
}

impl Layout {
    /// How many bits of residuals are apart.
    fn fine_bits(&self) -> u32 {
        match self {
            Self::Even { .. } => 0,
            Self::Uneven(_, fine) => fine.as_ref().map_or(0, |fine| fine.bits),
        }
    }
}

impl<C: Code> Model<C> {
    /// The model of the blocks between which there are `gaps`. `None` if there are none, or if it cannot be exact.
    pub(crate) fn build(gaps: &[Gap<C>]) -> Option<Self> {
        let even = Self::even(gaps).filter(|model| model.is_exact(gaps));
        let is_small = even.as_ref().is_some_and(|even| even.memory() <= gaps.len());
        if even.is_some() && !is_small {
            // Boundaries that are this far from a line are so from any. Lower bits apart would save random keys a bit or
            // two, but a search takes 33 ns instead of 25.
            return even;
        }
        let weight = if is_small { WEIGHT_OF_FEW } else { 1 };
        let uneven = Self::uneven(gaps, weight).filter(|model| model.is_exact(gaps));
        even.into_iter().chain(uneven).min_by_key(Self::memory)
    }

    fn even(gaps: &[Gap<C>]) -> Option<Self> {
        let Even { origin, shift, segments } = fit_evenly(gaps)?;
        let blocks = blocks_of(gaps)?;
        let (mut writer, mut records) = (BitWriter::default(), Vec::with_capacity(segments.len() + 1));
        for segment in &segments {
            let bits = u32::try_from(writer.bits()).ok()?;
            records.push(Record::new(u32::try_from(segment.first).ok()?, bits, segment.line)?);
            let width = segment.line.shape.width;
            even_residuals(segment, gaps, shift).for_each(|(residual, _)| writer.push(residual, width));
        }
        Some(Self::of(origin, blocks, Layout::Even { shift }, records, writer.finish()))
    }

    fn uneven(gaps: &[Gap<C>], weight: u64) -> Option<Self> {
        let segments = fit(gaps, weight);
        let origin = segments.first()?.start;
        let distance = |segment: &Segment<C>| segment.start.above(origin);
        let distances: Vec<C> = segments.iter().map(distance).collect::<Option<_>>()?;
        let scale = distances.iter().skip(1).map(|distance| distance.trailing()).min().unwrap_or(63);
        let starts = distances.iter().map(|distance| distance.scaled(scale)).collect();
        let starts = Starts::new(starts, scale)?;
        let blocks = blocks_of(gaps)?;
        let shapes = segments.iter().map(|segment| segment.line.shape);
        let ranges = segments.iter().flat_map(|segment| residuals(segment, gaps));
        let fine_bits = fine_bits(shapes, ranges);
        let mut fine = FineBuilder::new(fine_bits, blocks);
        let (mut writer, mut records) = (BitWriter::default(), Vec::with_capacity(segments.len() + 1));
        for segment in &segments {
            let bits = u32::try_from(writer.bits()).ok()?;
            // The first boundary is the start.
            let first = u32::try_from(segment.first + 1).ok()?;
            records.push(Record::new(first, bits, segment.line)?);
            let width = segment.line.shape.width.saturating_sub(fine_bits);
            for (block, (least, most)) in (first + 1..).zip(residuals(segment, gaps)) {
                writer.push(fine.upper(block, least, most), width);
            }
        }
        let fine = (fine_bits > 0).then(|| fine.finish());
        Some(Self::of(origin, blocks, Layout::Uneven(starts, fine), records, writer.finish()))
    }

    fn of(origin: C, blocks: u32, layout: Layout, mut records: Vec<Record>, residuals: Box<[u8]>) -> Self {
        let shapes = records.iter().map(Record::shape);
        let width = shapes.clone().map(|shape| shape.width).max().unwrap_or(0);
        let width = width.saturating_sub(layout.fine_bits());
        let candidates = shapes.filter(|shape| shape.width > 0).map(Shape::candidates).max().unwrap_or(0);
        let end = if matches!(layout, Layout::Uneven(..)) { blocks } else { blocks - 1 };
        records.push(Record::end(end));
        Self {
            origin,
            blocks,
            candidates,
            are_gathered_at_once: candidates * width <= WIDTH_MAX,
            layout,
            records: records.into(),
            residuals,
        }
    }

    /// Invariant 1.
    pub(crate) fn is_exact(&self, gaps: &[Gap<C>]) -> bool {
        (0..).zip(gaps).all(|(block, gap)| self.find(gap.0) <= block && self.find(gap.1) > block)
            && self.blocks as usize == gaps.len() + 1
    }

    /// Number of the block that can hold a key with `code`.
    #[inline]
    pub(crate) fn find(&self, code: C) -> u32 {
        let Some(distance) = code.above(self.origin) else { return 0 };
        match &self.layout {
            Layout::Even { shift } => {
                let segment = usize::try_from(distance.scaled(*shift)).unwrap_or(usize::MAX);
                let Some([record, next]) = self.pair(segment) else { return self.blocks - 1 };
                let last = next.block().wrapping_sub(record.block());
                self.find_in_segment(record, last, distance.low(*shift), None)
            }
            Layout::Uneven(starts, None) => self.find_unevenly(starts, distance),
            Layout::Uneven(starts, Some(fine)) => self.find_finely(starts, fine, distance),
        }
    }

    /// Apart, so that the even layout needs few registers.
    #[inline(never)]
    fn find_unevenly(&self, starts: &Starts, distance: C) -> u32 {
        self.find_by_start(starts, distance, None)
    }

    #[inline(never)]
    fn find_finely(&self, starts: &Starts, fine: &Fine, distance: C) -> u32 {
        self.find_by_start(starts, distance, Some(fine))
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "callers differ in what they know of the arguments")]
    fn find_by_start(&self, starts: &Starts, distance: C, fine: Option<&Fine>) -> u32 {
        let segment = starts.segment_of(distance.scaled(starts.scale()));
        let Some([record, next]) = self.pair(segment) else { return self.blocks - 1 };
        let rest = distance.rest(starts.of(segment), starts.scale());
        // The first boundary is the start.
        let last = next.block().wrapping_sub(record.block()).wrapping_sub(1);
        self.find_in_segment(record, last, rest.justified(record.shape().justify), fine)
    }

    /// The records of a segment and of the next one.
    #[inline]
    fn pair(&self, segment: usize) -> Option<&[Record; 2]> {
        self.records.get(segment..).and_then(<[Record]>::first_chunk)
    }

    /// The block of a code that is `distance` behind the start of the segment of `record`, which has `last` boundaries.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the layouts differ in what they know of the arguments")]
    fn find_in_segment(&self, record: &Record, last: u32, distance: u64, fine: Option<&Fine>) -> u32 {
        let line = record.line();
        let first = record.block();
        let exact = line.predict(distance);
        // `last` is not negative: `read_records` gives an uneven segment at least one boundary.
        let top = (exact >> line.shape.fraction).min(last.cast_signed().into());
        if self.candidates == 0 {
            return first + low_half(top.max(0).cast_unsigned());
        }
        let fine_bits = fine.map_or(0, |fine| if line.shape.width == 0 { 0 } else { fine.bits });
        let Shape { width, fraction, .. } = line.shape.without(fine_bits);
        // Boundaries below the window are passed, those above it are not.
        let lowest = top.wrapping_sub(i64::from(self.candidates) - 1).max(1);
        let position = exact >> fine_bits;
        let window =
            Window { width, fraction, rest: position.wrapping_sub(lowest << fraction), last: top - lowest };
        let at = record.residual_bit(lowest.cast_unsigned(), width);
        let residuals = gather(&self.residuals, at);
        let mut passed = match self.candidates {
            _ if !self.are_gathered_at_once => self.passed_in_wide(window, at),
            1 | 2 => window.passed::<2>(residuals),
            _ => window.passed::<4>(residuals),
        };
        if let Some(fine) = fine {
            let rest = exact.cast_unsigned() & mask(fine_bits);
            while self.is_near_last(window, at, passed)
                && fine.is_above(first.wrapping_add(low_half((lowest - 1 + passed).cast_unsigned())), rest)
            {
                passed -= 1;
            }
        }
        first + low_half((lowest - 1 + passed).cast_unsigned())
    }

    /// Whether the last boundary passed has the upper bits of the position.
    #[inline]
    fn is_near_last(&self, window: Window, at: u64, passed: i64) -> bool {
        let last = passed.wrapping_sub(1);
        let at = at.wrapping_add(last.cast_unsigned().wrapping_mul(window.width.into()));
        let residual = (gather(&self.residuals, at) & mask(window.width)).cast_signed();
        passed > 0 && residual == window.rest.wrapping_sub(last << window.fraction)
    }

    /// As in [`Model::find_in_segment`], where one load does not find all residuals of the window.
    #[cold]
    fn passed_in_wide(&self, window: Window, at: u64) -> i64 {
        let residual = |i| gather(&self.residuals, at.wrapping_add(u64::from(i * window.width)));
        (0..self.candidates).map(|i| window.passes(residual(i), i)).sum()
    }

    /// Number of blocks; at least 2.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Number of segments.
    pub(crate) fn segments(&self) -> u32 {
        u32::try_from(self.records.len() - 1).expect("fewer than blocks")
    }

    /// Most boundaries among which residuals decide.
    pub(crate) fn boundaries_compared(&self) -> u32 {
        self.candidates
    }

    /// Bytes of residuals.
    pub(crate) fn residual_bytes(&self) -> usize {
        self.residuals.len()
    }

    /// Bytes of memory on the heap.
    pub(crate) fn memory(&self) -> usize {
        let starts = match &self.layout {
            Layout::Even { .. } => 0,
            Layout::Uneven(starts, fine) => starts.memory() + fine.as_ref().map_or(0, Fine::memory),
        };
        starts + size_of_val(&*self.records) + self.residuals.len()
    }
}

/// The number of blocks between which there are `gaps`; `None` if a model cannot have so many.
fn blocks_of<C>(gaps: &[Gap<C>]) -> Option<u32> {
    u32::try_from(gaps.len()).ok()?.checked_add(1).filter(|&blocks| blocks <= BLOCKS_MAX)
}

/// The boundaries of a segment among which residuals decide.
#[derive(Clone, Copy)]
struct Window {
    /// Bits of a residual.
    width: u32,
    /// Bits of a fraction of a block.
    fraction: u32,
    /// The position above the first boundary, in fractions.
    rest: i64,
    /// Number of the last boundary; below 0 there is none.
    last: i64,
}

impl Window {
    /// How many of the first `COUNT` boundaries are in the window and passed, by their residuals.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a few operations")]
    fn passed<const COUNT: u32>(self, residuals: u64) -> i64 {
        (0..COUNT).map(|i| self.passes(residuals >> ((i * self.width) & 63), i)).sum()
    }

    /// Whether boundary `i` is in the window and passed, by its residual, which is the lowest bits of `residual`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a few operations")]
    fn passes(self, residual: u64, i: u32) -> i64 {
        let residual = (residual & mask(self.width)).cast_signed();
        let is_passed = residual <= self.rest.wrapping_sub(i64::from(i) << self.fraction);
        i64::from(is_passed & (i64::from(i) <= self.last))
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
