//! Little-endian integers of fixed width at a place in bytes.
//!
//! Requires: the caller has checked that the bytes are there. Otherwise use [`Decoder`](crate::Decoder).

/// The integer in the two bytes at `at`.
#[inline]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

/// The integer in the four bytes at `at`.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// The integer in the eight bytes at `at`.
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[inline]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the caller has checked that the bytes are there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_byte_comes_first() {
        let bytes = [9, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(u16_at(&bytes, 1), 0x0201);
        assert_eq!(u32_at(&bytes, 1), 0x0403_0201);
        assert_eq!(u64_at(&bytes, 1), 0x0807_0605_0403_0201);
    }
}
