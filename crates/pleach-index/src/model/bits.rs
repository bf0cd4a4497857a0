//! Numbers of a few bits each, one behind the other, the lowest bit first.

/// Widest number that [`gather`] finds whole.
pub(super) const WIDTH_MAX: u32 = 57;
/// Bytes behind the last number, so that all of it is gathered.
pub(super) const PADDING: usize = 8;

/// At least 57 bits from bit `at` on; zeros where there are no bytes.
#[inline]
pub(super) fn gather(bytes: &[u8], at: u64) -> u64 {
    word(bytes, usize::try_from(at >> 3).unwrap_or(usize::MAX)) >> (at & 7)
}

/// Eight bytes from byte `at` on; zeros where there are no eight.
#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..).and_then(<[u8]>::first_chunk);
    eight.map_or(0, |eight| u64::from_le_bytes(*eight))
}

/// The lowest `len` bytes, at most 8.
pub(super) fn bytes_mask(len: usize) -> u64 {
    match 8 - len.min(8) {
        8 => 0,
        missing => u64::MAX >> (8 * missing),
    }
}

/// The lowest `width` bits; `width` is below 64.
#[inline]
pub(super) fn mask(width: u32) -> u64 {
    (1 << (width & 63)) - 1
}

/// Bits that `number` takes.
pub(super) fn bits_of(number: u64) -> u32 {
    64 - number.leading_zeros()
}

/// Bytes under construction.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    /// Bits written.
    len: u64,
}

impl Writer {
    /// Appends the lowest `width` bits of `number`.
    ///
    /// Requires: the other bits are 0, and `width` is at most 57.
    pub(super) fn push(&mut self, number: u64, width: u32) {
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
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes, and the padding behind them.
    pub(super) fn finish(self) -> Box<[u8]> {
        padded(&self.bytes, PADDING)
    }
}

/// `bytes` with `padding` zeros behind them.
pub(super) fn padded(bytes: &[u8], padding: usize) -> Box<[u8]> {
    let mut padded = Vec::with_capacity(bytes.len() + padding);
    padded.extend_from_slice(bytes);
    padded.resize(bytes.len() + padding, 0);
    padded.into()
}

/// `bytes` without the padding.
pub(super) fn unpadded(bytes: &[u8]) -> &[u8] {
    bytes.get(..bytes.len().saturating_sub(PADDING)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_pushed_is_gathered(numbers in vec((any::<u64>(), 0u32..=WIDTH_MAX), 0..50)) {
            let mut writer = Writer::default();
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
        }
    }
}
