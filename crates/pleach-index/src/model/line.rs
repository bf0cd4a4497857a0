//! The line of a segment: from a code's distance to a position in fractions of a block.

use pleach_coding::bits::mask;

use super::code::product_top;

/// Finest fractions.
pub(super) const FRACTION_MAX: u32 = 26;
/// Bits of a slope, and of a bias with its sign.
const SLOPE_BITS: u32 = 32;
const BIAS_BITS: u32 = 24;

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

    /// The shape of a number, if it is one.
    pub(super) fn from_number(number: u64) -> Option<Self> {
        let number = u32::try_from(number).ok().filter(|number| number >> 19 == 0)?;
        Some(Self { justify: number >> 12, fraction: number >> 6 & 63, width: number & 63 })
    }

    /// The shape of positions and residuals without their lowest `bits`.
    #[inline]
    pub(super) fn without(self, bits: u32) -> Self {
        let [fraction, width] = [self.fraction, self.width].map(|all| all.saturating_sub(bits));
        Self { fraction, width, ..self }
    }

    /// How many boundaries residuals can leave undecided: 1, 2 or 4.
    #[inline]
    pub(super) fn candidates(self) -> u32 {
        1 << self.width.saturating_sub(self.fraction).min(2)
    }

    /// Whether the candidates decide.
    fn is_usable(self) -> bool {
        self.fraction <= FRACTION_MAX && self.width <= self.fraction + 2 && self.justify < 128
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
    /// Whether a record has room for it, and a search can use it.
    pub(super) fn is_usable(&self) -> bool {
        self.shape.is_usable()
            && self.slope < 1 << SLOPE_BITS
            && self.bias.unsigned_abs() < 1 << (BIAS_BITS - 1)
    }

    /// Least and greatest residuals of the boundaries whose gaps have these `distances`.
    pub(super) fn residual_ranges(
        self,
        distances: impl Iterator<Item = (u64, u64)>,
    ) -> impl Iterator<Item = (u64, u64)> {
        (1..).zip(distances).map(move |(no, (below, above))| {
            let on_line = no << self.shape.fraction;
            let [least, most] = [self.predict(below) + 1, self.predict(above)]
                .map(|position| u64::try_from(position - on_line).unwrap_or(0));
            (least, most.min(mask(self.shape.width)))
        })
    }

    /// The predicted position of a justified distance.
    #[inline]
    pub(super) fn predict(&self, distance: u64) -> i64 {
        product_top(distance, self.slope).cast_signed().wrapping_add(self.bias)
    }
}
