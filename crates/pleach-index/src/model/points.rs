//! The gaps of one segment, and the search for a line through them.
//!
//! A line is feasible if every gap contains a whole number of fractions of a block. The coarsest such fraction gives the
//! narrowest residuals.

use pleach_coding::bits::bits_of;

use super::code::product_top;
use super::line::{FRACTION_MAX, Line, Shape};

/// Fraction bits of the slope that is searched first.
pub(super) const FINE: u32 = 24;
/// A line whose residuals spread over 4 blocks or more is given up: a search compares at most four boundaries
/// ([`Shape::candidates`]). A nudge might still save some; they are not worth the time.
const RANGE_MAX: i64 = 4 << FINE;
/// Slopes tried for each fraction, next to the best one.
const NUDGES: [i64; 9] = [1, 0, 2, -1, 3, -2, 5, -4, 8];

/// The gaps.
#[derive(Debug, Default)]
pub(super) struct Points {
    /// Both ends of each gap, as distances from the segment's start in 2^-64 of what its slope refers to.
    pub(super) distances: Vec<(u64, u64)>,
    /// Lower end of a gap behind them that reaches beyond the segment.
    pub(super) last: Option<u64>,
}

impl Points {
    /// The line with the narrowest residuals that was found near `slope`; `None` if there is none.
    pub(super) fn line(&self, slope: u128, justify: u32) -> Option<Line> {
        let widths = (0..).zip(&self.distances).map(|(i, gap)| (gap.1 - gap.0, i));
        let Some((width, narrowest)) = widths.min() else {
            // No code of the segment passes the last boundary.
            return Some(Line { slope: 0, bias: 0, shape: Shape { justify, fraction: 0, width: 0 } });
        };
        let (range, slope) = self.tilted(slope)?;
        if range >= RANGE_MAX {
            return None;
        }
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
        if let Some(below) = self.last {
            on_line += 1 << fraction;
            highest = highest.max(product_top(below, slope).cast_signed() + 1 - on_line);
        }
        let width = bits_of(u64::try_from(highest - lowest).unwrap_or(0));
        let shape = Shape { justify, fraction, width };
        Some(Line { slope, bias: -lowest, shape }).filter(Line::is_usable)
    }

    /// Tilts a line of `slope`. Returns the smallest range of residuals that was found, in 2^-24 of a block, and its slope.
    fn tilted(&self, slope: u128) -> Option<(i64, u64)> {
        let mut slope = u64::try_from(slope).ok().filter(|slope| *slope < 1 << 60)?;
        let mut best = (i64::MAX, slope);
        for _ in 0..2 {
            let (mut highest, mut lowest) = ((i64::MIN, 0), (i64::MAX, 0));
            let mut on_line = 0_i64;
            for (no, (below, above)) in (1..).zip(&self.distances) {
                on_line += 1 << FINE;
                let below = product_top(*below, slope).cast_signed() - on_line;
                let above = product_top(*above, slope).cast_signed() - on_line;
                // Extremes are rare, so these branches are predicted.
                if below >= highest.0 {
                    highest = (below, no);
                }
                if above < lowest.0 {
                    lowest = (above, no);
                }
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
        Some(best)
    }
}
