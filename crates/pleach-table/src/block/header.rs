//! The header that every block begins with.

#![deny(clippy::indexing_slicing)]

use pleach_coding::{Malformed, u16_at, u32_at};
use pleach_env::{FileId, Site, failpoint};

use crate::codec::Codec;
use crate::crc::address_crc;
use crate::sizes::{HEADER_LEN, may_decompress_to};

/// The purpose of a block, with the number it has on disk. Never renumber; 0 is no type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockType {
    Data = 1,
    Index = 2,
    Filter = 3,
    Properties = 4,
    /// Data, in columns: whole keys and value pointers.
    Columns = 5,
    /// Data, in columns, with values or packed keys.
    PackedColumns = 6,
}

/// Types of data blocks.
pub(crate) const DATA_TYPES: &[BlockType] = &[BlockType::Data, BlockType::Columns, BlockType::PackedColumns];

impl BlockType {
    const ALL: [Self; 6] =
        [Self::Data, Self::Index, Self::Filter, Self::Properties, Self::Columns, Self::PackedColumns];

    /// Whether a type has this number.
    pub(crate) fn has(number: u8) -> bool {
        Self::from_number(number).is_some()
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|block_type| *block_type as u8 == number)
    }

    /// Whether a block with a whole header is columnar, if it is a data block.
    #[inline]
    pub(crate) fn is_columnar(block: &[u8]) -> bool {
        block.get(5).is_some_and(|&number| number >= Self::Columns as u8)
    }

    /// Whether it is a type of data blocks.
    pub(crate) fn is_data(self) -> bool {
        DATA_TYPES.contains(&self)
    }
}

/// A block's header without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The block's type.
    pub(crate) block_type: BlockType,
    /// How the payload is compressed.
    pub(crate) codec: Codec,
    /// Entries of a data block; 0 in others.
    pub(crate) count: u16,
    /// Length of the payload once uncompressed.
    pub(crate) raw_len: u32,
    /// Length of the payload as stored.
    pub(crate) stored_len: u32,
}

impl Header {
    /// The header of an uncompressed block.
    pub(crate) fn uncompressed(block_type: BlockType, count: u16, raw_len: u32) -> Self {
        Self { block_type, codec: Codec::None, count, raw_len, stored_len: raw_len }
    }

    /// Its bytes, the checksum left zero.
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        (bytes[4], bytes[5]) = (self.codec.number(), self.block_type as u8);
        bytes[6..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes
    }

    /// Header of the block that `bytes` may be the start of: for a search. Nothing of it is checked.
    pub(crate) fn guess(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let block_type = BlockType::from_number(bytes[5])?;
        Self::decode(bytes, &[block_type]).ok()
    }

    /// Whether a block can have these lengths.
    pub(crate) fn has_possible_lengths(&self) -> bool {
        match self.codec {
            Codec::None => self.raw_len == self.stored_len,
            Codec::Lz4 => may_decompress_to(self.stored_len as usize, self.raw_len as usize),
        }
    }

    fn decode(bytes: &[u8; HEADER_LEN], types: &[BlockType]) -> Result<Self, Malformed> {
        let block_type = BlockType::from_number(bytes[5]).filter(|block_type| types.contains(block_type));
        Ok(Self {
            block_type: block_type.ok_or(Malformed::new(5, "a block of the type that belongs here"))?,
            codec: Codec::from_number(bytes[4]).ok_or(Malformed::new(4, "a codec this build knows"))?,
            count: u16_at(bytes, 6),
            raw_len: u32_at(bytes, 8),
            stored_len: u32_at(bytes, 12),
        })
    }
}

/// Writes the checksum into a finished block, padding included, that will be stored at `offset`.
///
/// Requires: `block` begins with its header.
pub(crate) fn seal(block: &mut [u8], file_id: FileId, offset: u64) {
    seal_parts(block, &[], file_id, offset);
}

/// As [`seal`], for a block in parts: `head` begins with the header, and the parts in `rest` follow it.
pub(crate) fn seal_parts(head: &mut [u8], rest: &[&[u8]], file_id: FileId, offset: u64) {
    let (crc, covered) = head.split_first_chunk_mut::<4>().expect("a block has a header");
    let sum = address_crc(file_id, offset, covered);
    *crc = rest.iter().fold(sum, |sum, part| crc32c::crc32c_append(sum, part)).to_le_bytes();
}

/// The header and the stored payload of a block of one of `types`, read from `offset`, both checked.
pub(crate) fn check<'a>(
    block: &'a [u8],
    file_id: FileId,
    offset: u64,
    types: &[BlockType],
    site: Site,
) -> Result<(Header, &'a [u8]), Malformed> {
    let (head, rest) = block.split_first_chunk::<HEADER_LEN>().ok_or(Malformed::new(0, "a block header"))?;
    let covered = block.get(4..).unwrap_or_default();
    if address_crc(file_id, offset, covered) != u32_at(head, 0) && !failpoint::skipped(site) {
        return Err(Malformed::new(0, "bytes that match the block's checksum"));
    }
    let header = Header::decode(head, types)?;
    let payload =
        rest.get(..header.stored_len as usize).ok_or(Malformed::new(12, "a payload within the block"))?;
    if !header.has_possible_lengths() {
        return Err(Malformed::new(8, "an uncompressed length that the stored one can have"));
    }
    Ok((header, payload))
}
