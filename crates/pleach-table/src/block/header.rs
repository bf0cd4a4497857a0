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
}

/// A block's header without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
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
    pub(crate) fn uncompressed(count: u16, raw_len: u32) -> Self {
        Self { codec: Codec::None, count, raw_len, stored_len: raw_len }
    }

    /// Its bytes, the checksum left zero.
    pub(crate) fn encode(&self, block_type: BlockType) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        (bytes[4], bytes[5]) = (self.codec.number(), block_type as u8);
        bytes[6..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes
    }

    /// Type and header of the block that `bytes` may be the start of: for a search. Nothing of it is checked.
    pub(crate) fn guess(bytes: &[u8; HEADER_LEN]) -> Option<(BlockType, Self)> {
        let block_type = match bytes[5] {
            1 => BlockType::Data,
            2 => BlockType::Index,
            3 => BlockType::Filter,
            4 => BlockType::Properties,
            _ => return None,
        };
        Self::decode(bytes, block_type).ok().map(|header| (block_type, header))
    }

    /// Whether a block can have these lengths.
    pub(crate) fn has_possible_lengths(&self) -> bool {
        match self.codec {
            Codec::None => self.raw_len == self.stored_len,
            Codec::Lz4 => may_decompress_to(self.stored_len as usize, self.raw_len as usize),
        }
    }

    fn decode(bytes: &[u8; HEADER_LEN], block_type: BlockType) -> Result<Self, Malformed> {
        if bytes[5] != block_type as u8 {
            return Err(Malformed::new(5, "a block of the type that belongs here"));
        }
        Ok(Self {
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

/// The header and the stored payload of a block read from `offset`, both checked.
pub(crate) fn check(
    block: &[u8],
    file_id: FileId,
    offset: u64,
    block_type: BlockType,
    site: Site,
) -> Result<(Header, &[u8]), Malformed> {
    let (head, rest) = block.split_first_chunk::<HEADER_LEN>().ok_or(Malformed::new(0, "a block header"))?;
    let covered = block.get(4..).unwrap_or_default();
    if address_crc(file_id, offset, covered) != u32_at(head, 0) && !failpoint::skipped(site) {
        return Err(Malformed::new(0, "bytes that match the block's checksum"));
    }
    let header = Header::decode(head, block_type)?;
    let payload =
        rest.get(..header.stored_len as usize).ok_or(Malformed::new(12, "a payload within the block"))?;
    if !header.has_possible_lengths() {
        return Err(Malformed::new(8, "an uncompressed length that the stored one can have"));
    }
    Ok((header, payload))
}
