//! A decoder of untrusted bytes.

use crate::varint::{put_varint, take_varint, take_varint_u32};

/// Takes values from the front of its bytes. A method returns `None` and takes nothing if the value is not there.
///
/// The caller makes the error ([`Malformed`](crate::Malformed)), because it knows what it expected.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    /// Whether all bytes are taken.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// A byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (&array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(array)
    }

    /// A little-endian integer of two bytes.
    #[inline]
    pub fn fixed_u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// A little-endian integer of four bytes.
    #[inline]
    pub fn fixed_u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A varint.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let (value, len) = take_varint(self.0)?;
        self.0 = self.0.get(len..)?;
        Some(value)
    }

    /// A varint that fits 32 bits.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        let (value, len) = take_varint_u32(self.0)?;
        self.0 = self.0.get(len..)?;
        Some(value)
    }

    /// A varint that is a length or a count on this machine.
    #[inline]
    pub fn usize(&mut self) -> Option<usize> {
        let (value, len) = take_varint(self.0)?;
        let value = usize::try_from(value).ok()?;
        self.0 = self.0.get(len..)?;
        Some(value)
    }

    /// `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Bytes behind their length, as [`put_bytes`] writes them.
    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let mut rest = *self;
        let len = rest.usize()?;
        let bytes = rest.take(len)?;
        *self = rest;
        Some(bytes)
    }
}

/// Appends the length of `bytes` and the bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_taken() {
        let mut out = Vec::new();
        put_bytes(&mut out, b"key");
        put_varint(&mut out, 1 << 40);
        out.extend_from_slice(&[1, 2]);
        let mut input = Decoder(&out);
        assert_eq!(input.bytes(), Some(&b"key"[..]));
        assert_eq!((input.u32(), input.bytes()), (None, None));
        assert_eq!(input.varint(), Some(1 << 40));
        assert_eq!((input.take(3), input.array::<3>(), input.fixed_u32()), (None, None, None));
        let mut array = input;
        assert_eq!((array.array(), array.u8()), (Some([1, 2]), None));
        assert_eq!((input.fixed_u16(), input.fixed_u16()), (Some(0x0201), None));
        assert!(input.is_empty());
    }
}
