//! Fitting of segments to the gaps between blocks.
//!
//! Boundary `j` of a segment may lie anywhere in its gap: above the code of the last key before it, not above that of the
//! first key behind it. A segment predicts positions in fractions of a block. It is feasible if every gap contains a whole
//! number of fractions. The coarsest such fraction gives the narrowest residuals.
//!
//! Segments are found from left to right. Of several lengths, the one with the fewest bits per boundary is taken. A segment
//! starts at a boundary that is stored exactly, so it starts where the gap is narrow: that boundary then does not ask for
//! finer fractions.
//!
//! # Cost
//! Linear in the number of boundaries, up to a logarithm where segments are halved. With encoding and checking, 6 to 20 ns for each
//! key of an SST (`cargo run --release -p pleach-index --example index_core`, 34 keys a block, two virtual cores of an Intel Xeon).

use super::bits::bits_of;
use super::code::{Code, product_top};
use super::line::{Line, Shape};

/// A gap: code of the last key before a boundary, and of the first key behind it.
pub(crate) type Gap<C> = (C, C);

/// Fraction bits of the slope that is searched first.
const FINE: u32 = 24;
/// Finest fractions that are tried.
const FRACTION_MAX: u32 = 26;
/// Bits of a segment besides its residuals, about: the unit of the choice among lengths. Measured.
const SEGMENT_BITS: u64 = 140;
/// Length of a segment that is tried first. Longer ones follow, or shorter ones if it is not feasible.
const LEN_FIRST: usize = 16;
/// Slopes tried for each fraction, next to the best one.
const NUDGES: [i64; 9] = [1, 0, 2, -1, 3, -2, 5, -4, 8];

/// A fitted segment. The boundaries from `first` on are its own.
#[derive(Debug)]
pub(super) struct Segment<C> {
    /// Code from which on keys are in it.
    pub(super) start: C,
    /// Number of its first boundary, from 0.
    pub(super) first: usize,
    pub(super) len: usize,
    pub(super) line: Line,
}

/// Fits segments to `gaps`.
pub(super) fn fit<C: Code>(gaps: &[Gap<C>]) -> Vec<Segment<C>> {
    let mut fitter = Fitter { gaps, distances: Vec::new() };
    let mut segments = Vec::new();
    let mut first = 0;
    let mut origin = None;
    while let Some(&(below, above)) = gaps.get(first) {
        let start = match origin {
            None => above.roundest_above(below),
            Some(origin) => above.roundest_from(below, origin),
        };
        origin = origin.or(Some(start));
        let (len, line) = fitter.best(first, start);
        first += len;
        fitter.push_split(
            &Segment { start, first: first - len, len, line },
            origin.unwrap_or(start),
            &mut segments,
        );
    }
    segments
}

/// Residuals of the boundaries behind the first of `segment`.
pub(super) fn residuals<C: Code>(segment: &Segment<C>, gaps: &[Gap<C>]) -> impl Iterator<Item = u64> {
    let behind = gaps.get(segment.first + 1..segment.first + segment.len).unwrap_or_default();
    (1..).zip(behind).map(|(no, gap)| {
        let below = justified(gap.0, segment.start, segment.line.shape.justify);
        let lowest = segment.line.predict(below) + 1 - (no << segment.line.shape.fraction);
        u64::try_from(lowest).unwrap_or(0)
    })
}

fn justified<C: Code>(code: C, start: C, justify: u32) -> u64 {
    code.above(start).map_or(0, |distance| distance.justified(justify))
}

/// The segment with the fewest bits per boundary so far.
struct Best {
    len: usize,
    line: Line,
    bits: u64,
}

/// Bits of a segment with `len` boundaries.
fn bits(len: usize, line: &Line) -> u64 {
    SEGMENT_BITS + u64::from(line.shape.width) * (len as u64 - 1)
}

struct Fitter<'a, C> {
    gaps: &'a [Gap<C>],
    /// Justified distances of the gaps behind the first one of the segment in question.
    distances: Vec<(u64, u64)>,
}

impl<C: Code> Fitter<'_, C> {
    /// The length and the line of the best segment that starts at boundary `first` with code `start`.
    fn best(&mut self, first: usize, start: C) -> (usize, Line) {
        let left = self.gaps.len() - first;
        let mut best = Best { len: 1, line: Line::default(), bits: SEGMENT_BITS };
        let (mut wanted, mut worse) = (LEN_FIRST, 0);
        while worse < 2 {
            let len = self.end(first, wanted.min(left)) - first;
            let is_better = self.improve(first, len, start, &mut best);
            worse = if is_better { 0 } else { worse + 1 };
            if len == left {
                break;
            }
            wanted += wanted / 2;
        }
        let mut wanted = LEN_FIRST;
        while best.len == 1 && wanted > 2 {
            wanted -= wanted / 3;
            let len = self.end(first, wanted.min(left)) - first;
            self.improve(first, len, start, &mut best);
        }
        (best.len, best.line)
    }

    /// Takes a segment of `len` boundaries for the best if it has fewer bits per boundary, or the one up to a jump.
    fn improve(&mut self, first: usize, len: usize, start: C, best: &mut Best) -> bool {
        let jump = self.jump(first, len);
        let mut is_better = false;
        for len in [Some(len), jump].into_iter().flatten() {
            let Some(line) = self.line(first, len, start) else { continue };
            let bits = bits(len, &line);
            if bits * (best.len as u64) < best.bits * len as u64 {
                *best = Best { len, line, bits };
                is_better = true;
            }
        }
        is_better
    }

    /// Where a segment of about `wanted` boundaries ends best: before the narrowest of the gaps around.
    fn end(&self, first: usize, wanted: usize) -> usize {
        let end = first + wanted;
        let last = (end + wanted / 4).min(self.gaps.len());
        if last == self.gaps.len() {
            return last;
        }
        let narrowest = (end..last).min_by_key(|&i| self.gaps.get(i).map(|gap| gap.1.above(gap.0)));
        narrowest.unwrap_or(end)
    }

    /// The length up to the widest gap in the last third of `len` boundaries, if no block is as wide as that gap.
    fn jump(&self, first: usize, len: usize) -> Option<usize> {
        let width = |i: usize| self.gaps.get(i).and_then(|gap| gap.1.above(gap.0));
        let widest = (first + len - len / 3..first + len).max_by_key(|&i| width(i))?;
        let before = self.gaps.get(widest.checked_sub(1)?)?;
        let block = self.gaps.get(widest)?.0.above(before.1)?;
        (width(widest)? > block).then_some(widest - first)
    }

    /// Appends `segment`, in halves if these take fewer bits, and so on.
    fn push_split(&mut self, segment: &Segment<C>, origin: C, segments: &mut Vec<Segment<C>>) {
        let Segment { start, first, len, line } = *segment;
        let half = self.end(first, len / 2).min(first + len) - first;
        if line.shape.width > 0
            && half >= 2
            && len - half >= 2
            && let Some(&(below, above)) = self.gaps.get(first + half)
            && let Some(left) = self.line(first, half, start)
        {
            let middle = above.roundest_from(below, origin);
            if let Some(right) = self.line(first + half, len - half, middle)
                && bits(half, &left) + bits(len - half, &right) < bits(len, &line)
            {
                self.push_split(&Segment { start, first, len: half, line: left }, origin, segments);
                let right = Segment { start: middle, first: first + half, len: len - half, line: right };
                self.push_split(&right, origin, segments);
                return;
            }
        }
        segments.push(Segment { start, first, len, line });
    }

    /// The line with the narrowest residuals that was found for `len` boundaries; `None` if there is none.
    fn line(&mut self, first: usize, len: usize, start: C) -> Option<Line> {
        let behind = self.gaps.get(first + 1..first + len)?;
        let &(below, above) = behind.last()?;
        let justify = above.above(start)?.zeros();
        self.distances.clear();
        self.distances.extend(
            behind.iter().map(|gap| (justified(gap.0, start, justify), justified(gap.1, start, justify))),
        );
        let end = justified(below, start, justify) / 2 + justified(above, start, justify) / 2;
        let slope = self.tilted((u128::from(len as u64 - 1) << (64 + FINE)) / u128::from(end.max(1)))?;
        let widths = (0..).zip(&self.distances).map(|(i, gap)| (gap.1 - gap.0, i));
        let (width, narrowest) = widths.min()?;
        let gap_bits = bits_of(product_top(width, slope));
        // With this fraction, the narrowest gap is one to two fractions wide.
        let sure = (FINE + 1 - gap_bits.min(FINE + 1)).min(FRACTION_MAX);
        for fraction in sure.saturating_sub(3)..=(sure + 3).min(FRACTION_MAX) {
            let scaled =
                if fraction <= FINE { slope >> (FINE - fraction) } else { slope << (fraction - FINE) };
            for nudge in NUDGES {
                let slope = scaled.saturating_add_signed(nudge);
                if let Some(line) = self.try_line(justify, slope, fraction, narrowest) {
                    return Some(line);
                }
            }
        }
        None
    }

    /// A line with this slope, if every gap contains a whole fraction.
    fn try_line(&self, justify: u32, slope: u64, fraction: u32, narrowest: usize) -> Option<Line> {
        let (below, above) = self.distances.get(narrowest)?;
        if product_top(*below, slope) == product_top(*above, slope) {
            return None;
        }
        let mut on_line = 0_i64;
        let (mut highest, mut lowest) = (i64::MIN, i64::MAX);
        for (below, above) in &self.distances {
            on_line += 1 << fraction;
            let below = product_top(*below, slope).cast_signed();
            let above = product_top(*above, slope).cast_signed();
            if below == above {
                return None;
            }
            highest = highest.max(below + 1 - on_line);
            lowest = lowest.min(above - on_line);
        }
        let width = bits_of(u64::try_from(highest - lowest).unwrap_or(0));
        let shape = Shape { justify, fraction, width };
        shape.is_usable().then_some(Line { slope, bias: -lowest, shape })
    }

    /// The slope near `slope` whose residuals have the smallest range.
    fn tilted(&self, slope: u128) -> Option<u64> {
        let mut slope = u64::try_from(slope).ok().filter(|slope| *slope < 1 << 60)?;
        let mut best = (i64::MAX, slope);
        for _ in 0..2 {
            let (mut highest, mut lowest) = ((i64::MIN, 0), (i64::MAX, 0));
            let mut on_line = 0_i64;
            for (no, (below, above)) in (1..).zip(&self.distances) {
                on_line += 1 << FINE;
                highest = highest.max((product_top(*below, slope).cast_signed() - on_line, no));
                lowest = lowest.min((product_top(*above, slope).cast_signed() - on_line, no));
            }
            let range = highest.0 - lowest.0;
            best = best.min((range, slope));
            let apart: i64 = highest.1 - lowest.1;
            if range <= 0 || apart == 0 {
                break;
            }
            // Turn the line so that the two extremes meet half way.
            let per_block = range / apart / 2;
            let change = (i128::from(slope) * i128::from(per_block)) >> FINE;
            slope = slope.saturating_add_signed(-i64::try_from(change).ok()?);
        }
        Some(best.1)
    }
}
