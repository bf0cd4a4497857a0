//! The bytes of a value pointer, held by value.

use std::fmt;
use std::ops::Deref;

/// Bytes of the longest value pointer: varints of 64, 32 and 32 bits.
const LEN_MAX: usize = 10 + 5 + 5;

/// The bytes of a value pointer. A columnar block does not have them in one place.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PointerBytes {
    len: u8,
    bytes: [u8; LEN_MAX],
}

impl PointerBytes {
    /// A copy of `bytes`; `None` if no pointer is so long.
    pub fn copy_of(bytes: &[u8]) -> Option<Self> {
        let mut copy = Self { len: u8::try_from(bytes.len()).ok()?, ..Self::default() };
        copy.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(copy)
    }

    /// The three numbers of a pointer as varints. A segment from 2^63 on is no segment, but hostile bytes may say one.
    #[inline]
    pub(crate) fn of_numbers(segment: u64, offset: u32, len: u32) -> Self {
        let mut pointer = Self::default();
        for number in [segment, offset.into(), len.into()] {
            pointer.push_varint(number);
        }
        pointer
    }

    #[inline]
    fn push_varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.push((number & 0x7f) as u8);
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        self.bytes[usize::from(self.len)] = byte;
        self.len += 1;
    }
}

impl Deref for PointerBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for PointerBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PointerBytes").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use pleach_coding::put_varint;

    use super::*;

    #[test]
    fn numbers_are_varints() {
        for numbers in [
            (0, 0, 0),
            (127, 128, 1 << 14),
            (1 << 21, (1 << 21) - 1, 1 << 28),
            (u32::MAX.into(), 1 << 27, 99),
            ((1 << 63) - 1, u32::MAX, u32::MAX),
            (u64::MAX, u32::MAX, u32::MAX),
        ] {
            let mut expected = Vec::new();
            put_varint(&mut expected, numbers.0);
            put_varint(&mut expected, numbers.1.into());
            put_varint(&mut expected, numbers.2.into());
            let pointer = PointerBytes::of_numbers(numbers.0, numbers.1, numbers.2);
            assert_eq!(pointer[..], expected);
            assert_eq!(PointerBytes::copy_of(&expected), Some(pointer));
        }
        assert_eq!(PointerBytes::copy_of(&[1; LEN_MAX + 1]), None);
    }
}
