//! Segments that span equally many codes.
//!
//! A search finds such a segment by a shift, without a table and without comparing starts. Keys whose density changes
//! little need no others.
//!
//! # Cost
//! Some spans are compared by a sample of their segments. Linear in the number of boundaries.

use pleach_coding::bits::bits_of;

use super::code::Code;
use super::fit::{Gap, Segment};
use super::line::Line;
use super::points::{FINE, Points};
use super::record::RECORD_BITS;

/// Bits of the mean number of boundaries in a segment of the span that is tried first.
const LEN_BITS_FIRST: u32 = 6;
/// How often the span is halved at most.
const HALVINGS_MAX: u32 = 6;
/// A span's cost is estimated from a sample: every fourth segment, at least 3 and about 24 at most. Arbitrary.
const COMPARED_ONE_IN: u64 = 4;
const COMPARED: (u64, u64) = (3, 24);

/// The segments.
pub(super) struct Even<C> {
    /// The first code of the first segment.
    pub(super) origin: C,
    /// A segment spans `1 << shift` codes.
    pub(super) shift: u32,
    pub(super) segments: Vec<Segment<C>>,
}

/// Fits segments to `gaps`, of the span with the fewest bits. `None` if no span fits, or one would need more segments than
/// there are boundaries.
pub(super) fn fit_evenly<C: Code>(gaps: &[Gap<C>]) -> Option<Even<C>> {
    let origin = gaps.first()?.0;
    let span_bits = gaps.last()?.1.above(origin)?.bits().min(C::BITS - 1);
    let cost = |shift| cost(gaps, origin, shift).unwrap_or(u64::MAX);
    let first = (span_bits + LEN_BITS_FIRST).saturating_sub(bits_of(gaps.len() as u64)).clamp(1, span_bits);
    let mut best = (cost(first), first);
    let halved = (1..first).rev().take(HALVINGS_MAX as usize);
    for shifts in [&mut (first + 1..=span_bits) as &mut dyn Iterator<Item = u32>, &mut { halved }] {
        for shift in shifts {
            let next = (cost(shift), shift);
            if next.0 >= best.0 && best.0 < u64::MAX {
                break;
            }
            best = next;
        }
        if best.1 > first {
            break;
        }
    }
    // A sample may miss a segment that no line fits; half of its span may do.
    (1..=best.1).rev().take(2).find_map(|shift| {
        let mut points = Points::default();
        let all = 0..=last_segment(gaps, origin, shift)?;
        let segments = all.map(|no| segment(gaps, origin, shift, no, &mut points)).collect::<Option<_>>()?;
        Some(Even { origin, shift, segments })
    })
}

/// Least and greatest residuals of the boundaries of `segment`, which spans `1 << shift` codes.
pub(super) fn even_residuals<C: Code>(
    segment: &Segment<C>,
    gaps: &[Gap<C>],
    shift: u32,
) -> impl Iterator<Item = (u64, u64)> {
    let origin = segment.start;
    let number = move |code: C| code.above(origin).map_or(0, |distance| distance.scaled(shift));
    let distance = move |code: C| code.above(origin).map_or(0, |distance| distance.low(shift));
    let inside = gaps.get(segment.first..segment.first + segment.len).unwrap_or_default();
    segment.line.residual_ranges(inside.iter().map(move |gap| {
        let ends_inside = number(gap.0) == number(gap.1);
        (distance(gap.0), if ends_inside { distance(gap.1) } else { u64::MAX })
    }))
}

/// Number of the segment in which the last gap ends; `None` if the segments are more than the boundaries.
fn last_segment<C: Code>(gaps: &[Gap<C>], origin: C, shift: u32) -> Option<u64> {
    let last = gaps.last()?.1.above(origin)?.scaled(shift);
    (last < gaps.len() as u64).then_some(last)
}

/// About the bits of the segments that span `1 << shift` codes.
fn cost<C: Code>(gaps: &[Gap<C>], origin: C, shift: u32) -> Option<u64> {
    let last = last_segment(gaps, origin, shift)?;
    let compared = (last / COMPARED_ONE_IN).clamp(COMPARED.0, COMPARED.1);
    let step = usize::try_from(last / compared).ok()?.max(1);
    let mut points = Points::default();
    let mut bits = 0;
    for no in (0..=last).step_by(step) {
        let segment = segment(gaps, origin, shift, no, &mut points)?;
        bits += RECORD_BITS + u64::from(segment.line.shape.width) * segment.len as u64;
    }
    Some(bits * step as u64)
}

/// Segment `no`.
fn segment<C: Code>(
    gaps: &[Gap<C>],
    origin: C,
    shift: u32,
    no: u64,
    points: &mut Points,
) -> Option<Segment<C>> {
    let number = |code: C| code.above(origin).map_or(0, |distance| distance.scaled(shift));
    let distance = |code: C| code.above(origin).map_or(0, |distance| distance.low(shift));
    let first = gaps.partition_point(|gap| number(gap.0) < no);
    points.distances.clear();
    points.last = None;
    for gap in gaps.get(first..)?.iter().take_while(|gap| number(gap.0) == no) {
        if number(gap.1) == no {
            points.distances.push((distance(gap.0), distance(gap.1)));
        } else {
            points.last = Some(distance(gap.0));
        }
    }
    let len = points.distances.len() + usize::from(points.last.is_some());
    Some(Segment { start: origin, first, len, line: line(points)? })
}

/// A line through `points`.
fn line(points: &Points) -> Option<Line> {
    let middle = |gap: &(u64, u64)| gap.0 / 2 + gap.1 / 2;
    let ends = (points.distances.first().map(middle), points.distances.last().map(middle));
    let slope = match ends {
        (Some(first), Some(last)) if first < last => {
            ((points.distances.len() as u128 - 1) << (64 + FINE)) / u128::from(last - first)
        }
        _ => 1 << FINE,
    };
    points.line(slope, 0)
}
