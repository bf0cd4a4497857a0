//! Starts of blocks as lines and residuals, for blocks of different lengths.
//!
//! Blocks of one SST are about equally long, so their starts are close to a line. Each group of [`GROUP`] blocks has a line of
//! its own, and each block a residual: how far it starts above the line. All residuals of a group have the same number of bits,
//! so the place of each one is computed.
//!
//! # Invariants
//! 1. *Gapless*: the first block starts at 0, and starts ascend up to `end`. Checked in [`Lines::decode`].
//! 2. *Places*: the residuals of a group follow those of the group before.
//!
//! # On disk
//! Layout: docs/format/sst.md, index block.
//!
//! # Cost
//! A start takes two dependent loads, of the group and of the residual. Decision 0013 has the bytes a block.

use std::sync::Arc;

use pleach_coding::bits::{BitWriter, PADDING, are_last_bits_zero, gather, mask, padded, unpadded};
use pleach_coding::{Decoder, Malformed, u32_at};

use super::line::{Line, rise};
use super::{Extent, allowed};
use crate::codec::Codec;
use crate::sizes::PAGE;

/// Blocks of a group: measured, decision 0013. The residuals of so many blocks take a whole number of words.
const GROUP: u32 = 128;
/// Bytes of a stored line.
const LINE_LEN: usize = 9;

/// A group's line, and where its residuals are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    base: u32,
    slope: u32,
    /// Place of the first residual in units of [`GROUP`] bits, and in the lowest 6 bits the width.
    place_and_width: u32,
}

/// Offsets and lengths of data blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    blocks: u32,
    /// Where the last block ends, in bytes.
    end: u32,
    /// Bits of a unit of starts: aligned blocks start at multiples of pages.
    unit_bits: u32,
    groups: Arc<[Group]>,
    /// Residuals of all groups, and the padding.
    residuals: Arc<[u8]>,
}

impl Lines {
    /// The lines of blocks that start at `starts` (at least one); the last one ends at `end`.
    pub(super) fn new(starts: &[u32], end: u32, codec: Codec) -> Self {
        let unit_bits = unit_bits(codec);
        let starts: Vec<u32> = starts.iter().map(|start| start >> unit_bits).collect();
        let (mut lines, mut residuals) = (Vec::new(), BitWriter::default());
        for group in starts.chunks(GROUP as usize) {
            let line = Line::fit(group);
            for (no, &start) in (0..).zip(group) {
                residuals.push(u64::from(line.residual(no, start)), line.width);
            }
            lines.push(line);
        }
        let blocks = u32::try_from(starts.len()).expect("an SST has fewer than 2^32 blocks");
        Self::assemble(blocks, end, unit_bits, &lines, residuals.finish())
    }

    fn assemble(blocks: u32, end: u32, unit_bits: u32, lines: &[Line], residuals: Box<[u8]>) -> Self {
        let mut place = 0;
        let groups = lines.iter().map(|line| {
            let group =
                Group { base: line.base, slope: line.slope, place_and_width: place << 6 | line.width };
            place += line.width;
            group
        });
        let groups = groups.collect();
        Self { blocks, end, unit_bits, groups, residuals: residuals.into() }
    }

    /// Number of blocks; at least 1.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Offset and length of block `no`.
    #[inline]
    pub(super) fn get(&self, no: u32) -> Extent {
        let start = self.start(no);
        let end = if no + 1 == self.blocks { self.end } else { self.start(no + 1) };
        (u64::from(start), end - start)
    }

    /// Offset of block `no`.
    #[inline]
    fn start(&self, no: u32) -> u32 {
        let Some(group) = self.groups.get((no / GROUP) as usize) else {
            panic!("block {no} of {}", self.blocks)
        };
        let (no, width) = (no % GROUP, group.place_and_width & 63);
        let at = u64::from(group.place_and_width >> 6) * u64::from(GROUP) + u64::from(no * width);
        #[expect(clippy::cast_possible_truncation, reason = "residuals have at most 32 bits")]
        let residual = (gather(&self.residuals, at) & mask(width)) as u32;
        group.base.wrapping_add(rise(group.slope, no)).wrapping_add(residual) << self.unit_bits
    }

    /// Bytes of memory on the heap.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.groups) + self.residuals.len()
    }

    /// Bytes that [`Lines::encode`] appends.
    pub(super) fn encoded_len(&self) -> usize {
        self.groups.len() * LINE_LEN + self.residuals.len() - PADDING
    }

    /// Appends the stored form; the number of blocks is apart.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for group in &*self.groups {
            out.extend_from_slice(&group.base.to_le_bytes());
            out.extend_from_slice(&group.slope.to_le_bytes());
            let [width, ..] = (group.place_and_width & 63).to_le_bytes();
            out.push(width);
        }
        out.extend_from_slice(unpadded(&self.residuals));
    }

    /// The lines of `blocks` blocks up to `end`, from the front of `bytes`, and the bytes that follow. Offsets of errors count
    /// from the first of `bytes`.
    pub(super) fn decode(
        bytes: &[u8],
        blocks: u32,
        end: u32,
        codec: Codec,
    ) -> Result<(Self, &[u8]), Malformed> {
        let short = Malformed::new(0, "lines and residuals of all blocks");
        let mut input = Decoder(bytes);
        let count = blocks.div_ceil(GROUP) as usize;
        let stored = count.checked_mul(LINE_LEN).and_then(|len| input.take(len)).ok_or(short)?;
        let (mut lines, mut residuals_len) = (Vec::with_capacity(count), 0);
        for (no, line) in (0..blocks.div_ceil(GROUP)).zip(stored.chunks_exact(LINE_LEN)) {
            let width = u32::from(line.last().copied().unwrap_or_default());
            if !(1..=32).contains(&width) {
                let at = no as usize * LINE_LEN + LINE_LEN - 1;
                return Err(Malformed::new(at, "residuals of 1 to 32 bits").found(width));
            }
            let len = GROUP.min(blocks - no * GROUP) * width;
            residuals_len += len.div_ceil(8) as usize;
            lines.push(Line { base: u32_at(line, 0), slope: u32_at(line, 4), width });
        }
        let residuals = input.take(residuals_len).ok_or(short)?;
        let found = Self::assemble(blocks, end, unit_bits(codec), &lines, padded(residuals, PADDING));
        found.check_starts(codec)?;
        found.check_last_bits(stored.len() + residuals_len)?;
        Ok((found, input.0))
    }

    /// Whether the blocks fill the file up to the end.
    fn check_starts(&self, codec: Codec) -> Result<(), Malformed> {
        let mut start = 0;
        let is_gapless = self.start(0) == 0
            && (1..=self.blocks).all(|no| {
                let end = if no == self.blocks { self.end } else { self.start(no) };
                let len = end.checked_sub(start);
                start = end;
                len.is_some_and(|len| allowed(len, codec))
            });
        if is_gapless { Ok(()) } else { Err(Malformed::new(0, "ascending starts of blocks")) }
    }

    /// Whether the bits behind the last residual are zero. `len` is the length of lines and residuals.
    fn check_last_bits(&self, len: usize) -> Result<(), Malformed> {
        let width = self.groups.last().map_or(0, |group| group.place_and_width & 63);
        let bits = u64::from(((self.blocks - 1) % GROUP + 1) * width);
        let is_zero = are_last_bits_zero(unpadded(&self.residuals), bits);
        if is_zero { Ok(()) } else { Err(Malformed::new(len - 1, "zero bits behind the last residual")) }
    }
}

/// Bits of the unit of starts.
fn unit_bits(codec: Codec) -> u32 {
    match codec {
        Codec::None => PAGE.trailing_zeros(),
        Codec::Lz4 => 0,
    }
}
