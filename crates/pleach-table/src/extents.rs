//! Extents of the data blocks of an SST: their offsets and lengths.
//!
//! Data blocks fill the file from its start to its tail without gaps, so their starts suffice. If all blocks but the last are
//! equally long, as in uncompressed SSTs of small entries, one number suffices.
//!
//! # On disk
//! Layout: docs/format/sst.md, index block.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use pleach_coding::Malformed;

use crate::codec::Codec;
use crate::sizes::{HEADER_LEN, PAGE};

/// Numbers on disk. Never renumber.
const UNIFORM: u8 = 1;
const STARTS: u8 = 2;

/// Offsets and lengths of all data blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extents {
    /// Blocks of `stride` bytes up to `end`; the last may be of another length.
    Uniform { stride: u32, blocks: u32, end: u32 },
    /// Start of each block, and the end of the last.
    Starts(Arc<[u32]>),
}

impl Extents {
    /// The extents of blocks that start at `starts` (at least one); the last one ends at `end`.
    pub(crate) fn new(starts: &[u32], end: u32) -> Self {
        let blocks = u32::try_from(starts.len()).expect("an SST has fewer than 2^32 blocks");
        let stride = starts.get(1).copied().unwrap_or(end);
        let uniform =
            (0..blocks).zip(starts).all(|(i, &start)| u64::from(start) == u64::from(i) * u64::from(stride));
        if uniform {
            return Self::Uniform { stride, blocks, end };
        }
        Self::Starts(starts.iter().copied().chain([end]).collect())
    }

    /// Number of blocks; at least 1.
    pub(crate) fn blocks(&self) -> u32 {
        match self {
            Self::Uniform { blocks, .. } => *blocks,
            Self::Starts(starts) => u32::try_from(starts.len() - 1).expect("fewer than 2^32"),
        }
    }

    /// Offset and length of block `no`.
    ///
    /// Requires: `no` is less than [`Extents::blocks`].
    #[inline]
    pub(crate) fn get(&self, no: u32) -> (u64, u32) {
        match self {
            Self::Uniform { stride, blocks, end } => {
                let start = no * stride;
                (u64::from(start), if no + 1 == *blocks { end - start } else { *stride })
            }
            Self::Starts(starts) => match starts.get(no as usize..) {
                Some([start, end, ..]) => (u64::from(*start), end - start),
                _ => panic!("block {no} of {}", starts.len() - 1),
            },
        }
    }

    /// Bytes of memory on the heap.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Uniform { .. } => 0,
            Self::Starts(starts) => starts.len() * 4,
        }
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Uniform { stride, blocks, .. } => {
                out.extend_from_slice(&[UNIFORM, 0, 0, 0]);
                out.extend_from_slice(&blocks.to_le_bytes());
                out.extend_from_slice(&stride.to_le_bytes());
            }
            Self::Starts(starts) => {
                out.extend_from_slice(&[STARTS, 0, 0, 0]);
                out.extend_from_slice(&self.blocks().to_le_bytes());
                for start in starts.iter().take(starts.len() - 1) {
                    out.extend_from_slice(&start.to_le_bytes());
                }
            }
        }
    }

    /// The extents at the start of `bytes`, for blocks that end at `end`, and the bytes that follow.
    pub(crate) fn decode(bytes: &[u8], end: u32, codec: Codec) -> Result<(Self, &[u8]), Malformed> {
        let short = Malformed::new(0, "extents within the index block");
        let ([kind, zero_0, zero_1, zero_2, blocks @ ..], rest) =
            bytes.split_first_chunk::<8>().ok_or(short)?;
        if [*zero_0, *zero_1, *zero_2] != [0; 3] {
            return Err(Malformed::new(1, "zeros"));
        }
        let blocks = u32::from_le_bytes(*blocks);
        if blocks == 0 {
            return Err(Malformed::new(4, "at least one data block"));
        }
        match *kind {
            UNIFORM => {
                let (stride, rest) = rest.split_first_chunk::<4>().ok_or(short)?;
                let stride = u32::from_le_bytes(*stride);
                let last = u64::from(stride) * u64::from(blocks - 1);
                if last + HEADER_LEN as u64 > u64::from(end)
                    || !allowed(stride, codec)
                    || !aligned(end, codec)
                {
                    return Err(Malformed::new(8, "blocks that fill the file up to its tail"));
                }
                Ok((Self::Uniform { stride, blocks, end }, rest))
            }
            STARTS => {
                let len = (blocks as usize).checked_mul(4).filter(|&len| len <= rest.len()).ok_or(short)?;
                let (starts, rest) = rest.split_at_checked(len).ok_or(short)?;
                let starts = starts.as_chunks::<4>().0.iter().map(|start| u32::from_le_bytes(*start));
                let starts: Arc<[u32]> = starts.chain([end]).collect();
                let gapless = starts.first() == Some(&0)
                    && starts.windows(2).all(
                        |pair| matches!(pair, [start, next] if start < next && allowed(next - start, codec)),
                    );
                if !gapless {
                    return Err(Malformed::new(8, "ascending starts of blocks"));
                }
                Ok((Self::Starts(starts), rest))
            }
            _ => Err(Malformed::new(0, "extents of a kind this build knows")),
        }
    }
}

/// Whether a block can have this length.
fn allowed(len: u32, codec: Codec) -> bool {
    len as usize > HEADER_LEN && aligned(len, codec)
}

fn aligned(offset: u32, codec: Codec) -> bool {
    codec != Codec::None || (offset as usize).is_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_come_back() {
        for (starts, end, uniform) in [
            (vec![0, 4096, 8192], 12_288, true),
            (vec![0, 4096, 8192], 16_384, true),
            (vec![0], 8192, true),
            (vec![0, 8192, 12_288], 16_384, false),
        ] {
            let extents = Extents::new(&starts, end);
            assert_eq!(matches!(extents, Extents::Uniform { .. }), uniform);
            let mut bytes = Vec::new();
            extents.encode(&mut bytes);
            bytes.push(77);
            let (decoded, rest) = Extents::decode(&bytes, end, Codec::None).unwrap();
            assert_eq!((&decoded, rest), (&extents, [77].as_slice()));
            let ends = starts.iter().skip(1).copied().chain([end]);
            for ((no, &start), end) in (0..).zip(&starts).zip(ends) {
                assert_eq!(decoded.get(no), (u64::from(start), end - start));
            }
        }
    }

    #[test]
    fn impossible_extents_are_rejected() {
        for (bytes, end) in [
            (vec![], 4096),
            (vec![3, 0, 0, 0, 1, 0, 0, 0, 0, 0x10, 0, 0], 4096),
            (vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0], 4096),
            (vec![1, 0, 0, 0, 2, 0, 0, 0, 0, 0x10, 0, 0], 4096),
            (vec![1, 0, 0, 0, 1, 0, 0, 0, 1, 0x10, 0, 0], 4097),
            (vec![1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x10, 0, 0], 4096),
            (vec![2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0x10, 0, 0], 4096),
            (vec![2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 4096),
        ] {
            assert!(Extents::decode(&bytes, end, Codec::None).is_err(), "{bytes:?}");
        }
    }
}
