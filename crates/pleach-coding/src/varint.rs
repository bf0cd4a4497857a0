//! Varints (LEB128): unsigned integers in groups of seven bits, the lowest first. All bytes except the last have the top bit set.

#![deny(clippy::indexing_slicing)]

/// Most bytes of an integer of 32 bits.
const U32_LEN_MAX: usize = 5;
/// Most bytes of an integer of 64 bits.
const U64_LEN_MAX: usize = 10;

/// Appends `value`.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

/// Bytes that `value` takes.
#[inline]
pub fn varint_len(value: u64) -> usize {
    let bits = u64::BITS - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// The value at the start of `bytes`, and its length. `None` if the bytes end early or the value exceeds 64 bits.
#[inline]
pub fn take_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    match take_short(bytes) {
        Some((value, len)) => Some((u64::from(value), len)),
        None => take_long(bytes, U64_LEN_MAX),
    }
}

/// The value at the start of `bytes`, and its length. `None` if the bytes end early or the value exceeds 32 bits.
#[inline]
pub fn take_varint_u32(bytes: &[u8]) -> Option<(u32, usize)> {
    match take_short(bytes) {
        Some((value, len)) => Some((u32::from(value), len)),
        None => take_long_u32(bytes),
    }
}

/// A value of one or two bytes. Most lengths are that short.
#[inline]
fn take_short(bytes: &[u8]) -> Option<(u16, usize)> {
    match *bytes {
        [a, ..] if a < 0x80 => Some((u16::from(a), 1)),
        [a, b, ..] if b < 0x80 => Some((u16::from(a & 0x7f) | u16::from(b) << 7, 2)),
        _ => None,
    }
}

#[cold]
fn take_long_u32(bytes: &[u8]) -> Option<(u32, usize)> {
    let (value, len) = take_long(bytes, U32_LEN_MAX)?;
    Some((u32::try_from(value).ok()?, len))
}

/// A value of at most `len_max` bytes, which is at most [`U64_LEN_MAX`].
fn take_long(bytes: &[u8], len_max: usize) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (at, &byte) in bytes.iter().take(len_max).enumerate() {
        let group = u64::from(byte & 0x7f);
        // The tenth byte holds one bit.
        if at + 1 == U64_LEN_MAX && group > 1 {
            return None;
        }
        value |= group << (7 * at);
        if byte < 0x80 {
            return Some((value, at + 1));
        }
    }
    None
}

#[inline]
fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "a test")]
    use super::*;

    #[test]
    fn every_width_comes_back() {
        for bits in 0..64 {
            for value in [(1u64 << bits) - 1, 1 << bits, u64::MAX >> bits] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                assert_eq!(bytes.len(), varint_len(value));
                assert_eq!(take_varint(&bytes), Some((value, bytes.len())));
                assert_eq!(take_varint(&bytes[..bytes.len() - 1]), None);
                let small = u32::try_from(value).ok();
                assert_eq!(take_varint_u32(&bytes), small.map(|small| (small, bytes.len())));
                assert_eq!(take_varint_u32(&bytes[..bytes.len() - 1]), None);
            }
        }
    }

    #[test]
    fn bytes_are_as_they_were_written() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, 300);
        put_varint(&mut bytes, 5);
        assert_eq!(bytes, [0xac, 0x02, 0x05]);
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let mut bytes = [0xff; 11];
        assert_eq!((take_varint(&bytes), take_varint_u32(&bytes)), (None, None));
        bytes[9] = 2;
        assert_eq!(take_varint(&bytes), None, "65 bits");
        bytes[9] = 1;
        assert_eq!(take_varint(&bytes), Some((u64::MAX, 10)));
        assert_eq!(take_varint_u32(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None, "33 bits");
        assert_eq!(take_varint_u32(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), None, "six bytes");
    }
}
