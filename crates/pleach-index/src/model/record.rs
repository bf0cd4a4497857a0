//! A segment as it is in memory: 16 bytes.

use super::line::{Line, Shape};

/// Most blocks of a model.
pub(super) const BLOCKS_MAX: u32 = (1 << BLOCK_BITS) - 1;
const BLOCK_BITS: u32 = 22;
/// Bits of a record.
pub(super) const RECORD_BITS: u64 = 128;

/// What a search needs of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    slope: u32,
    /// Where its residuals begin, in bits. Its first boundary has none.
    residuals: u32,
    /// From the lowest bit on: first block (22 bits), justify (7), fraction (5), width (6), bias (24).
    rest: u64,
}

impl Record {
    /// The record of a segment whose first block is `block`; `None` if the line does not fit.
    pub(super) fn new(block: u32, residuals: u32, line: Line) -> Option<Self> {
        let Line { slope, bias, shape: Shape { justify, fraction, width } } = line;
        if !line.is_usable() || block > BLOCKS_MAX {
            return None;
        }
        let rest = bias.cast_unsigned() << 40
            | u64::from(width) << 34
            | u64::from(fraction) << 29
            | u64::from(justify) << BLOCK_BITS
            | u64::from(block);
        Some(Self { slope: u32::try_from(slope).ok()?, residuals, rest })
    }

    /// What stands behind the last segment: it starts at `block`.
    pub(super) fn end(block: u32) -> Self {
        Self { slope: 0, residuals: 0, rest: block.into() }
    }

    /// Its first block.
    #[inline]
    pub(super) fn block(&self) -> u32 {
        self.low() & BLOCKS_MAX
    }

    #[inline]
    pub(super) fn line(&self) -> Line {
        Line { slope: self.slope.into(), bias: self.rest.cast_signed() >> 40, shape: self.shape() }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    pub(super) fn shape(&self) -> Shape {
        Shape {
            justify: self.low() >> BLOCK_BITS & 127,
            fraction: (self.rest >> 29) as u32 & 31,
            width: (self.rest >> 34) as u32 & 63,
        }
    }

    /// First bit of the residual of boundary `no`, counted from 0 in the segment; of `width` bits.
    #[inline]
    pub(super) fn residual_bit(&self, no: u64, width: u32) -> u64 {
        u64::from(self.residuals).wrapping_add(no.wrapping_sub(1).wrapping_mul(width.into()))
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    fn low(&self) -> u32 {
        self.rest as u32
    }
}
