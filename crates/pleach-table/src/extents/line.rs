//! The line of a group of blocks: the straight line from which the starts of the blocks differ least.
//!
//! Fitted by [`super::Lines`] when an SST is finished.

/// Bits of a slope behind the point. At the end of a group the line is off by at most half a unit.
const FRACTION: u32 = 8;

/// A line, and how many bits the distances from it take. All arithmetic of starts is modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Start of the line, so low that no block starts below the line. It may be below 0.
    pub(super) base: u32,
    /// Units from one block to the next, in 2^-8.
    pub(super) slope: u32,
    /// Bits of a residual, 1 to 32.
    pub(super) width: u32,
}

impl Line {
    /// The line from which `starts` differ least. They ascend.
    pub(super) fn fit(starts: &[u32]) -> Self {
        let lens = || starts.iter().zip(starts.iter().skip(1)).map(|(start, next)| u64::from(next - start));
        let fixed = |len: u64| u32::try_from(len << FRACTION).unwrap_or(u32::MAX);
        let (mut low, mut high) = (fixed(lens().min().unwrap_or(0)), fixed(lens().max().unwrap_or(0)));
        // The spread is a convex function of the slope. It is least between the shortest and the longest block.
        while low < high {
            let middle = low + (high - low) / 2;
            if spread(starts, middle) <= spread(starts, middle + 1) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let distances = || (0..).zip(starts).map(|(no, &start)| i64::from(start) - i64::from(rise(low, no)));
        let least = distances().min().unwrap_or(0);
        let greatest = distances().max().unwrap_or(0);
        let width = (64 - (greatest - least).leading_zeros()).clamp(1, 32);
        Self { base: modulo(least), slope: low, width }
    }

    /// How far `start`, of block `no` of the group, is above the line.
    pub(super) fn residual(self, no: u32, start: u32) -> u32 {
        start.wrapping_sub(self.base.wrapping_add(rise(self.slope, no)))
    }
}

/// How much a line rises up to block `no` of a group.
///
/// Requires: `no` is below 256.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "32 bits times 8 bits, shifted by 8, are 32 bits")]
pub(super) fn rise(slope: u32, no: u32) -> u32 {
    ((u64::from(slope) * u64::from(no)) >> FRACTION) as u32
}

/// Greatest minus least distance of `starts` from a line with this slope, in 2^-8 units.
fn spread(starts: &[u32], slope: u32) -> i64 {
    let distances =
        || (0..).zip(starts).map(|(no, &start)| (i64::from(start) << FRACTION) - i64::from(slope) * no);
    distances().max().unwrap_or(0) - distances().min().unwrap_or(0)
}

/// `number` modulo 2^32.
fn modulo(number: i64) -> u32 {
    u32::try_from(number.rem_euclid(1 << 32)).expect("it is below 2^32")
}
