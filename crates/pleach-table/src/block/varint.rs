//! Lengths of one to five bytes, seven bits each, least significant first.

#![deny(clippy::indexing_slicing)]

/// Most bytes a length takes.
const LEN_MAX: usize = 5;

/// Bytes that `value` takes.
#[inline]
pub(super) fn encoded_len(value: u32) -> usize {
    match value {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        0x20_0000..=0xfff_ffff => 4,
        _ => LEN_MAX,
    }
}

/// Appends `value`.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// The value at the start of `bytes` and how many bytes it takes; `None` where they end early or it exceeds 32 bits.
#[inline]
pub(super) fn take(bytes: &[u8]) -> Option<(u32, usize)> {
    match *bytes {
        [a, ..] if a < 0x80 => Some((u32::from(a), 1)),
        [a, b, ..] if b < 0x80 => Some((u32::from(a & 0x7f) | u32::from(b) << 7, 2)),
        _ => take_long(bytes),
    }
}

#[cold]
fn take_long(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(LEN_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Some((u32::try_from(value).ok()?, i + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "a test")]
    use super::*;

    #[test]
    fn every_width_comes_back() {
        for value in
            [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455, 268_435_456, u32::MAX]
        {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(bytes.len(), encoded_len(value));
            assert_eq!(take(&bytes), Some((value, bytes.len())));
            assert_eq!(take(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take(&[0xff; 6]), None);
        assert_eq!(take(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None, "33 bits");
    }
}
