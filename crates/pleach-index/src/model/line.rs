//! The line of a segment: from a code's distance to a position in fractions of a block.

use super::code::product_top;

/// The shifts and widths of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Shift that moves the largest distance to the top of 64 bits, below 128.
    pub(super) justify: u32,
    /// Bits of a fraction, below 64.
    pub(super) fraction: u32,
    /// Bits of a residual, below 64.
    pub(super) width: u32,
}

impl Shape {
    /// The shape in one number.
    pub(super) fn number(self) -> u64 {
        u64::from(self.justify) << 12 | u64::from(self.fraction) << 6 | u64::from(self.width)
    }

    /// The shape of a number; what does not belong to it is ignored.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    pub(super) fn from_number(number: u64) -> Self {
        let number = number as u32;
        Self { justify: number >> 12 & 127, fraction: number >> 6 & 63, width: number & 63 }
    }

    /// How many boundaries residuals can leave undecided: 1, 2 or 4.
    #[inline]
    pub(super) fn candidates(self) -> u32 {
        1 << self.width.saturating_sub(self.fraction).min(2)
    }

    /// Whether the residuals of all candidates can be gathered at once, and decide.
    pub(super) fn is_usable(self) -> bool {
        let undecided = self.width.saturating_sub(self.fraction);
        let widest = [32, 28, 14].get(undecided as usize);
        widest.is_some_and(|widest| self.width <= *widest)
    }
}

/// A line, and how far boundaries are from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Fractions at the top of the range.
    pub(super) slope: u64,
    /// Added to a prediction so that no residual is negative.
    pub(super) bias: i64,
    pub(super) shape: Shape,
}

impl Line {
    /// The predicted position of a justified distance.
    #[inline]
    pub(super) fn predict(&self, distance: u64) -> i64 {
        product_top(distance, self.slope).cast_signed().wrapping_add(self.bias)
    }
}
