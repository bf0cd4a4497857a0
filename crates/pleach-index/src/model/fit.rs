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
//! Linear in the number of boundaries, up to a logarithm where segments are halved. Times are in design/0011.

use super::code::Code;
use super::line::Line;
use super::points::{FINE, Points};

/// A gap: code of the last key before a boundary, and of the first key behind it.
pub(crate) type Gap<C> = (C, C);

/// Bits of a segment besides its residuals, about: the unit of the choice among lengths. Measured.
const SEGMENT_BITS: u64 = 200;
/// Length of a segment that is tried first. Longer ones follow, or shorter ones if it is not feasible.
const LEN_FIRST: usize = 16;

/// A fitted segment. The boundaries from `first` on are its own.
#[derive(Debug)]
pub(super) struct Segment<C> {
    /// Code from which on keys are in it; of segments that span equally many codes, that of the first one.
    pub(super) start: C,
    /// Number of its first boundary, from 0.
    pub(super) first: usize,
    pub(super) len: usize,
    pub(super) line: Line,
}

/// Fits segments to `gaps`.
///
/// A bit of a residual counts as `weight` bits. A search is faster without any.
pub(super) fn fit<C: Code>(gaps: &[Gap<C>], weight: u64) -> Vec<Segment<C>> {
    let mut fitter = Fitter { gaps, weight, points: Points::default() };
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

/// Least and greatest residuals of the boundaries behind the first of `segment`, whose start is the first boundary.
pub(super) fn residuals<C: Code>(segment: &Segment<C>, gaps: &[Gap<C>]) -> impl Iterator<Item = (u64, u64)> {
    let behind = gaps.get(segment.first + 1..segment.first + segment.len).unwrap_or_default();
    let (start, justify) = (segment.start, segment.line.shape.justify);
    let distance = move |code| justified(code, start, justify);
    segment.line.residual_ranges(behind.iter().map(move |gap| (distance(gap.0), distance(gap.1))))
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

struct Fitter<'a, C> {
    gaps: &'a [Gap<C>],
    weight: u64,
    points: Points,
}

impl<C: Code> Fitter<'_, C> {
    /// Bits of a segment with `len` boundaries.
    fn bits(&self, len: usize, line: &Line) -> u64 {
        SEGMENT_BITS + self.weight * u64::from(line.shape.width) * (len as u64 - 1)
    }

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
            let bits = self.bits(len, &line);
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
                && self.bits(half, &left) + self.bits(len - half, &right) < self.bits(len, &line)
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
        self.points.distances.clear();
        self.points.distances.extend(
            behind.iter().map(|gap| (justified(gap.0, start, justify), justified(gap.1, start, justify))),
        );
        let end = justified(below, start, justify) / 2 + justified(above, start, justify) / 2;
        let slope = (u128::from(len as u64 - 1) << (64 + FINE)) / u128::from(end.max(1));
        self.points.line(slope, justify)
    }
}
