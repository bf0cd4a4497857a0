//! Extents of the data blocks of an SST: their offsets and lengths.
//!
//! Data blocks fill the file from its start to its tail without gaps, so their starts suffice. If all blocks but the last are
//! equally long, as in uncompressed SSTs of small entries, one number suffices. Other starts are kept as lines and residuals,
//! or one by one where that takes fewer bytes: in SSTs of few blocks.
//!
//! # On disk
//! Layout: docs/format/sst.md, index block.

#![deny(clippy::indexing_slicing)]

mod line;
mod lines;

use std::sync::Arc;

use pleach_coding::Malformed;

use self::lines::Lines;
use crate::codec::Codec;
use crate::sizes::{HEADER_LEN, PAGE};

/// Numbers on disk. Never renumber.
const UNIFORM: u8 = 1;
const STARTS: u8 = 2;
const LINES: u8 = 3;
/// Bytes of kind and number of blocks.
const HEAD_LEN: usize = 8;

/// Offset and length of a block.
type Extent = (u64, u32);

/// Offsets and lengths of all data blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extents {
    /// Blocks of `stride` bytes up to `end`; the last may be of another length.
    Uniform { stride: u32, blocks: u32, end: u32 },
    /// Start of each block, and the end of the last.
    Starts(Arc<[u32]>),
    /// Lines, and how far each block starts above them.
    Lines(Lines),
}

impl Extents {
    /// The extents of blocks that start at `starts` (at least one); the last one ends at `end`.
    pub(crate) fn new(starts: &[u32], end: u32, codec: Codec) -> Self {
        let blocks = u32::try_from(starts.len()).expect("an SST has fewer than 2^32 blocks");
        let stride = starts.get(1).copied().unwrap_or(end);
        let uniform =
            (0..blocks).zip(starts).all(|(i, &start)| u64::from(start) == u64::from(i) * u64::from(stride));
        if uniform {
            return Self::Uniform { stride, blocks, end };
        }
        let lines = Lines::new(starts, end, codec);
        if lines.encoded_len() < size_of_val(starts) {
            return Self::Lines(lines);
        }
        Self::Starts(starts.iter().copied().chain([end]).collect())
    }

    /// Number of blocks; at least 1.
    pub(crate) fn blocks(&self) -> u32 {
        match self {
            Self::Uniform { blocks, .. } => *blocks,
            Self::Starts(starts) => u32::try_from(starts.len() - 1).expect("fewer than 2^32"),
            Self::Lines(lines) => lines.blocks(),
        }
    }

    /// Offset and length of block `no`.
    ///
    /// Requires: `no` is less than [`Extents::blocks`].
    #[inline]
    pub(crate) fn get(&self, no: u32) -> Extent {
        match self {
            Self::Uniform { stride, blocks, end } => {
                let start = no * stride;
                (u64::from(start), if no + 1 == *blocks { end - start } else { *stride })
            }
            Self::Starts(starts) => match starts.get(no as usize..) {
                Some([start, end, ..]) => (u64::from(*start), end - start),
                _ => panic!("block {no} of {}", starts.len() - 1),
            },
            Self::Lines(lines) => lines.get(no),
        }
    }

    /// Bytes of memory on the heap.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Uniform { .. } => 0,
            Self::Starts(starts) => starts.len() * 4,
            Self::Lines(lines) => lines.memory(),
        }
    }

    /// Whether they are stored as lines, which older builds do not know.
    pub(crate) fn are_lines(&self) -> bool {
        matches!(self, Self::Lines(_))
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self {
            Self::Uniform { .. } => UNIFORM,
            Self::Starts(_) => STARTS,
            Self::Lines(_) => LINES,
        };
        out.extend_from_slice(&[kind, 0, 0, 0]);
        out.extend_from_slice(&self.blocks().to_le_bytes());
        match self {
            Self::Uniform { stride, .. } => out.extend_from_slice(&stride.to_le_bytes()),
            Self::Starts(starts) => {
                for start in starts.iter().take(starts.len() - 1) {
                    out.extend_from_slice(&start.to_le_bytes());
                }
            }
            Self::Lines(lines) => lines.encode(out),
        }
    }

    /// The extents at the start of `bytes`, for blocks that end at `end`, and the bytes that follow.
    pub(crate) fn decode(bytes: &[u8], end: u32, codec: Codec) -> Result<(Self, &[u8]), Malformed> {
        let short = Malformed::new(0, "extents within the index block");
        let ([kind, zero_0, zero_1, zero_2, blocks @ ..], rest) =
            bytes.split_first_chunk::<HEAD_LEN>().ok_or(short)?;
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
                let (starts, rest) = decode_starts(rest, blocks, end, codec)?;
                Ok((Self::Starts(starts), rest))
            }
            LINES => {
                let (lines, rest) = Lines::decode(rest, blocks, end, codec)
                    .map_err(|m| Malformed { offset: HEAD_LEN + m.offset, ..m })?;
                Ok((Self::Lines(lines), rest))
            }
            _ => Err(Malformed::new(0, "extents of a kind this build knows")),
        }
    }
}

/// The starts of blocks one by one, and the bytes that follow.
fn decode_starts(
    bytes: &[u8],
    blocks: u32,
    end: u32,
    codec: Codec,
) -> Result<(Arc<[u32]>, &[u8]), Malformed> {
    let len = (blocks as usize).checked_mul(4);
    let (starts, rest) = len
        .and_then(|len| bytes.split_at_checked(len))
        .ok_or(Malformed::new(0, "extents within the index block"))?;
    let starts = starts.as_chunks::<4>().0.iter().map(|start| u32::from_le_bytes(*start));
    let starts: Arc<[u32]> = starts.chain([end]).collect();
    let gapless = starts.first() == Some(&0)
        && starts
            .windows(2)
            .all(|pair| matches!(pair, [start, next] if start < next && allowed(next - start, codec)));
    if gapless { Ok((starts, rest)) } else { Err(Malformed::new(HEAD_LEN, "ascending starts of blocks")) }
}

/// Whether a block can have this length.
fn allowed(len: u32, codec: Codec) -> bool {
    len as usize > HEADER_LEN && aligned(len, codec)
}

fn aligned(offset: u32, codec: Codec) -> bool {
    codec != Codec::None || (offset as usize).is_multiple_of(PAGE)
}

#[cfg(test)]
mod tests;
