//! LZ4: packing and unpacking of bytes, in LZ4's block format. Data blocks and separated values share it.
//!
//! # Cost
//! A packer keeps its table of 8 KiB from call to call; clearing it takes about 0.1 µs. LZ4 takes longer steps through bytes that
//! do not repeat.

use lz4_flex::block;

/// Packed bytes save at least this part of the raw ones: one in so many. For less, unpacking is not worth it (arbitrary).
const SAVED_SHARE: usize = 8;

/// A byte of LZ4 stands for at most so many.
const EXPANSION_MAX: usize = 255;

/// From this length on LZ4 needs a larger table, which is made for each call.
const SMALL_LEN_MAX: usize = u16::MAX as usize;

/// Packs bytes, and keeps the memory that it needs for that.
#[derive(Default)]
pub struct Lz4Packer {
    table: block::CompressTable,
}

impl Lz4Packer {
    /// Packs `raw` into the beginning of `out`. Returns the packed length; `None` if less than an eighth is saved.
    ///
    /// Requires: `out` has [`packed_len_max`] bytes.
    pub fn pack(&mut self, raw: &[u8], out: &mut [u8]) -> Option<usize> {
        let packed = if raw.len() < SMALL_LEN_MAX {
            block::compress_into_with_table(raw, out, &mut self.table)
        } else {
            block::compress_into(raw, out)
        };
        let len = packed.expect("there is room for the worst case");
        (len <= raw.len() - raw.len() / SAVED_SHARE).then_some(len)
    }
}

impl std::fmt::Debug for Lz4Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lz4Packer").finish_non_exhaustive()
    }
}

/// Bytes that packing may need for so many raw bytes.
pub fn packed_len_max(raw_len: usize) -> usize {
    block::get_maximum_output_size(raw_len)
}

/// Whether so many packed bytes may be so many raw ones: a limit for memory that hostile bytes ask for.
pub fn may_unpack_to(packed_len: usize, raw_len: usize) -> bool {
    raw_len <= packed_len.saturating_mul(EXPANSION_MAX)
}

/// Unpacks bytes into `out`. Returns whether they are exactly as many.
#[must_use]
pub fn unpack(packed: &[u8], out: &mut [u8]) -> bool {
    block::decompress_into(packed, out).is_ok_and(|len| len == out.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(packer: &mut Lz4Packer, raw: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; packed_len_max(raw.len())];
        let len = packer.pack(raw, &mut out)?;
        out.truncate(len);
        Some(out)
    }

    #[test]
    fn bytes_come_back_and_are_as_long_as_they_may_be() {
        let mut packer = Lz4Packer::default();
        for len in [16, 100, 1000, 65_534, 65_535, 65_536, 300_000, 50] {
            for period in [1, 7, 20_000] {
                let mut rng = fastrand::Rng::with_seed(len as u64);
                let noise: Vec<_> = std::iter::repeat_with(|| rng.u8(..)).take(period).collect();
                let raw: Vec<_> = noise.iter().copied().cycle().take(len).collect();
                let Some(packed) = packed(&mut packer, &raw) else {
                    assert!(len < 2 * period || len == 16, "{len} bytes of period {period}");
                    continue;
                };
                assert!(packed.len() <= len - len / 8 && may_unpack_to(packed.len(), len));
                let mut out = vec![1; len];
                assert!(unpack(&packed, &mut out) && out == raw);
                assert!(!unpack(&packed, &mut out[1..]), "longer than it should be");
                out.push(0);
                assert!(!unpack(&packed, &mut out), "shorter than it should be");
            }
        }
    }

    #[test]
    fn what_saves_little_is_not_packed() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut packer = Lz4Packer::default();
        let mut raw: Vec<_> = std::iter::repeat_with(|| rng.u8(..)).take(1000).collect();
        assert_eq!(packed(&mut packer, &raw), None);
        assert_eq!(packed(&mut packer, b""), None);
        raw[..100].fill(0);
        assert_eq!(packed(&mut packer, &raw), None, "a tenth repeats");
        raw[..160].fill(0);
        assert!(packed(&mut packer, &raw).is_some());
    }
}
