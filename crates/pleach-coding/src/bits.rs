//! Numbers of a few bits each, one behind the other, the lowest bit first.
//!
//! A [`BitWriter`] appends them; [`gather`] finds one by its place, with one load and no branch that depends on the numbers.
//!
//! ```
//! use pleach_coding::bits::{BitWriter, gather, mask};
//!
//! let mut writer = BitWriter::default();
//! [5, 2, 7].into_iter().for_each(|number| writer.push(number, 3));
//! let bytes = writer.finish();
//! assert_eq!(gather(&bytes, 2 * 3) & mask(3), 7);
//! ```

/// Widest number that [`gather`] finds whole.
pub const WIDTH_MAX: u32 = 57;
/// Bytes behind the last number that [`gather`] needs to find all of it.
pub const PADDING: usize = 8;

/// At least [`WIDTH_MAX`] bits from bit `at` on, in the lowest ones; zeros where there are not eight bytes.
#[inline]
pub fn gather(bytes: &[u8], at: u64) -> u64 {
    word(bytes, usize::try_from(at >> 3).unwrap_or(usize::MAX)) >> (at & 7)
}

/// Eight bytes from byte `at` on; zeros where there are no eight.
#[inline]
pub fn word(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..).and_then(<[u8]>::first_chunk);
    eight.map_or(0, |eight| u64::from_le_bytes(*eight))
}

/// All bits of the lowest `len` bytes, at most 8.
pub fn bytes_mask(len: usize) -> u64 {
    match 8 - len.min(8) {
        8 => 0,
        missing => u64::MAX >> (8 * missing),
    }
}

/// The lowest `width` bits, all set; `width` is below 64.
#[inline]
pub fn mask(width: u32) -> u64 {
    (1 << (width & 63)) - 1
}

/// Bits that `number` takes.
pub fn bits_of(number: u64) -> u32 {
    64 - number.leading_zeros()
}

/// Numbers under construction.
#[derive(Debug, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    /// Bits written.
    len: u64,
}

impl BitWriter {
    /// Appends the lowest `width` bits of `number`.
    ///
    /// Requires: the other bits are 0, and `width` is at most 57.
    pub fn push(&mut self, number: u64, width: u32) {
        debug_assert!(
            width <= WIDTH_MAX && number & !mask(width) == 0,
            "{number} has more than {width} bits"
        );
        let shift = u32::try_from(self.len & 7).expect("below 8");
        let mut rest = number << shift;
        let mut first = usize::try_from(self.len >> 3).expect("an index fits memory");
        self.len += u64::from(width);
        let end = usize::try_from(self.len.div_ceil(8)).expect("an index fits memory");
        self.bytes.resize(end, 0);
        while rest != 0 {
            let [lowest, ..] = rest.to_le_bytes();
            if let Some(byte) = self.bytes.get_mut(first) {
                *byte |= lowest;
            }
            rest >>= 8;
            first += 1;
        }
    }

    /// Bits written so far.
    pub fn bits(&self) -> u64 {
        self.len
    }

    /// The bytes, the last one filled with zero bits, and [`PADDING`] behind them.
    pub fn finish(self) -> Box<[u8]> {
        padded(&self.bytes, PADDING)
    }
}

/// `bytes` with `padding` zeros behind them.
pub fn padded(bytes: &[u8], padding: usize) -> Box<[u8]> {
    let mut padded = Vec::with_capacity(bytes.len() + padding);
    padded.extend_from_slice(bytes);
    padded.resize(bytes.len() + padding, 0);
    padded.into()
}

/// `bytes` without the [`PADDING`].
pub fn unpadded(bytes: &[u8]) -> &[u8] {
    bytes.get(..bytes.len().saturating_sub(PADDING)).unwrap_or_default()
}

/// Whether the bits behind the first `bits` are 0; `bytes` end with the byte of the last of them.
pub fn are_last_bits_zero(bytes: &[u8], bits: u64) -> bool {
    bytes.last().is_none_or(|last| bits.is_multiple_of(8) || last >> (bits % 8) == 0)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_pushed_is_gathered(numbers in vec((any::<u64>(), 0u32..=WIDTH_MAX), 0..50)) {
            let mut writer = BitWriter::default();
            for (number, width) in &numbers {
                writer.push(number & mask(*width), *width);
            }
            let bytes = writer.finish();
            let mut at = 0;
            for (number, width) in &numbers {
                prop_assert_eq!(gather(&bytes, at) & mask(*width), number & mask(*width));
                at += u64::from(*width);
            }
            prop_assert_eq!(gather(&bytes, at + 64), 0);
            prop_assert_eq!(unpadded(&bytes).len() as u64, at.div_ceil(8));
            prop_assert!(are_last_bits_zero(unpadded(&bytes), at));
        }
    }
}
