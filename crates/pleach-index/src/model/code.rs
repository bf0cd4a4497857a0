//! Codes: the numbers that a model learns, of 64 or 128 bits.

use std::fmt::Debug;
use std::ops::{Add, Sub};

/// A code of a key.
pub(crate) trait Code: Copy + Ord + Debug + Add<Output = Self> + Sub<Output = Self> {
    /// Bits of a code.
    const BITS: u32;

    /// Its distance above `origin`; `None` if it is below.
    fn above(self, origin: Self) -> Option<Self>;
    /// The top 64 bits of the distance after a shift to the left by `justify`; a distance that would lose bits counts as the
    /// largest one that does not.
    fn justified(self, justify: u32) -> u64;
    /// Leading zeros.
    fn zeros(self) -> u32;
    /// Bits of the number.
    fn bits(self) -> u32;
    /// The distance in units of `1 << scale`, or `u64::MAX` if that is larger.
    fn scaled(self, scale: u32) -> u64;
    /// How often `step` is in the distance; `u32::MAX` if more often, or if `step` is 0.
    fn steps(self, step: Self) -> u32;
    /// The distance within a segment of `1 << shift` codes, in 2^-64 of the segment; `shift` is 1 at least, and below the
    /// bits of a code.
    fn low(self, shift: u32) -> u64;
    /// `scaled << scale` below this distance: the rest.
    fn rest(self, scaled: u64, scale: u32) -> Self;
    /// The number above `below` and not above `self` that has the most trailing zeros.
    ///
    /// Requires: `below < self`.
    fn roundest_above(self, below: Self) -> Self;
    /// The same, of the distance from `origin`. Of a gap around `origin`, the number itself.
    fn roundest_from(self, below: Self, origin: Self) -> Self {
        match (self.above(origin), below.above(origin)) {
            (Some(distance), Some(below)) => origin + distance.roundest_above(below),
            _ => self,
        }
    }
    /// Trailing zeros; at most 63.
    fn trailing(self) -> u32;
    /// As 128 bits.
    fn wide(self) -> u128;
    /// From 128 bits; `None` if it does not fit.
    fn narrow(wide: u128) -> Option<Self>;
}

impl Code for u64 {
    const BITS: u32 = 64;

    #[inline]
    fn above(self, origin: Self) -> Option<Self> {
        self.checked_sub(origin)
    }

    #[inline]
    fn justified(self, justify: u32) -> u64 {
        let justify = justify & 63;
        self.min(u64::MAX >> justify) << justify
    }

    fn zeros(self) -> u32 {
        self.leading_zeros().min(63)
    }

    fn bits(self) -> u32 {
        64 - self.leading_zeros()
    }

    #[inline]
    fn scaled(self, scale: u32) -> u64 {
        self >> (scale & 63)
    }

    #[inline]
    fn steps(self, step: Self) -> u32 {
        self.checked_div(step).and_then(|steps| u32::try_from(steps).ok()).unwrap_or(u32::MAX)
    }

    #[inline]
    fn low(self, shift: u32) -> u64 {
        self << (shift.wrapping_neg() & 63)
    }

    #[inline]
    fn rest(self, scaled: u64, scale: u32) -> Self {
        self.wrapping_sub(scaled << (scale & 63))
    }

    fn roundest_above(self, below: Self) -> Self {
        let differ = 63 - (self ^ below).leading_zeros().min(63);
        self >> differ << differ
    }

    fn trailing(self) -> u32 {
        self.trailing_zeros().min(63)
    }

    fn wide(self) -> u128 {
        self.into()
    }

    fn narrow(wide: u128) -> Option<Self> {
        wide.try_into().ok()
    }
}

impl Code for u128 {
    const BITS: u32 = 128;

    #[inline]
    fn above(self, origin: Self) -> Option<Self> {
        self.checked_sub(origin)
    }

    #[inline]
    fn justified(self, justify: u32) -> u64 {
        let justify = justify & 127;
        top_half(self.min(u128::MAX >> justify) << justify)
    }

    fn zeros(self) -> u32 {
        self.leading_zeros().min(127)
    }

    fn bits(self) -> u32 {
        128 - self.leading_zeros()
    }

    #[inline]
    fn scaled(self, scale: u32) -> u64 {
        u64::try_from(self >> (scale & 127)).unwrap_or(u64::MAX)
    }

    #[inline]
    fn steps(self, step: Self) -> u32 {
        self.checked_div(step).and_then(|steps| u32::try_from(steps).ok()).unwrap_or(u32::MAX)
    }

    #[inline]
    fn low(self, shift: u32) -> u64 {
        top_half(self << (shift.wrapping_neg() & 127))
    }

    #[inline]
    fn rest(self, scaled: u64, scale: u32) -> Self {
        self.wrapping_sub(u128::from(scaled) << (scale & 63))
    }

    fn roundest_above(self, below: Self) -> Self {
        let differ = 127 - (self ^ below).leading_zeros().min(127);
        self >> differ << differ
    }

    fn trailing(self) -> u32 {
        self.trailing_zeros().min(63)
    }

    fn wide(self) -> u128 {
        self
    }

    fn narrow(wide: u128) -> Option<Self> {
        Some(wide)
    }
}

/// The upper 64 bits.
#[inline]
pub(super) fn top_half(wide: u128) -> u64 {
    (wide >> 64) as u64
}

/// The upper half of a product.
#[inline]
pub(super) fn product_top(a: u64, b: u64) -> u64 {
    top_half(u128::from(a) * u128::from(b))
}
