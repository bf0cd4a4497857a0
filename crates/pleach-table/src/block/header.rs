//! The header that every block begins with.

#![deny(clippy::indexing_slicing)]

use pleach_coding::Malformed;
use pleach_env::{FileId, Site, failpoint};

use crate::codec::Codec;
use crate::crc::address_crc;
use crate::limits::{HEADER_LEN, unfolding_allowed};

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
    /// Length of the payload once unfolded.
    pub(crate) raw_len: u32,
    /// Length of the payload as stored.
    pub(crate) stored_len: u32,
}

impl Header {
    /// The header of an unfolded block.
    pub(crate) fn unfolded(count: u16, raw_len: u32) -> Self {
        Self { codec: Codec::None, count, raw_len, stored_len: raw_len }
    }

    /// Its bytes, the checksum left zero.
    pub(crate) fn encode(&self, block_type: BlockType) -> [u8; HEADER_LEN] {
        let [count_0, count_1] = self.count.to_le_bytes();
        let [raw_0, raw_1, raw_2, raw_3] = self.raw_len.to_le_bytes();
        let [len_0, len_1, len_2, len_3] = self.stored_len.to_le_bytes();
        let (codec, kind) = (self.codec.number(), block_type as u8);
        [0, 0, 0, 0, codec, kind, count_0, count_1, raw_0, raw_1, raw_2, raw_3, len_0, len_1, len_2, len_3]
    }

    /// The type and the header of a block, if `bytes` can be one: for a search. Nothing of it is checked.
    pub(crate) fn guess(bytes: &[u8; HEADER_LEN]) -> Option<(BlockType, Self)> {
        let block_type = match bytes.get(5)? {
            1 => BlockType::Data,
            2 => BlockType::Index,
            3 => BlockType::Filter,
            4 => BlockType::Properties,
            _ => return None,
        };
        Self::decode(bytes, block_type).ok().map(|header| (block_type, header))
    }

    fn decode(bytes: &[u8; HEADER_LEN], block_type: BlockType) -> Result<Self, Malformed> {
        let [
            _,
            _,
            _,
            _,
            codec,
            kind,
            count_0,
            count_1,
            raw_0,
            raw_1,
            raw_2,
            raw_3,
            len_0,
            len_1,
            len_2,
            len_3,
        ] = *bytes;
        if kind != block_type as u8 {
            return Err(Malformed::new(5, "a block of the type that belongs here"));
        }
        Ok(Self {
            codec: Codec::from_number(codec).ok_or(Malformed::new(4, "a codec this build knows"))?,
            count: u16::from_le_bytes([count_0, count_1]),
            raw_len: u32::from_le_bytes([raw_0, raw_1, raw_2, raw_3]),
            stored_len: u32::from_le_bytes([len_0, len_1, len_2, len_3]),
        })
    }
}

/// Writes the checksum into a finished block, padding included, that will be stored at `offset`.
///
/// Requires: `block` begins with its header.
pub(crate) fn seal(block: &mut [u8], file_id: FileId, offset: u64) {
    seal_parts(block, &[], file_id, offset);
}

/// The same for a block of which only the `head` is at hand to be changed; the other parts follow it.
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
    let (crc, covered) = block.split_first_chunk::<4>().ok_or(Malformed::new(0, "a block header"))?;
    if address_crc(file_id, offset, covered) != u32::from_le_bytes(*crc) && !failpoint::skipped(site) {
        return Err(Malformed::new(0, "bytes that match the block's checksum"));
    }
    let header = Header::decode(head, block_type)?;
    let payload =
        rest.get(..header.stored_len as usize).ok_or(Malformed::new(12, "a payload within the block"))?;
    let plausible = match header.codec {
        Codec::None => header.raw_len == header.stored_len,
        Codec::Lz4 => unfolding_allowed(payload.len(), header.raw_len as usize),
    };
    if !plausible {
        return Err(Malformed::new(8, "an unfolded length that the stored one can have"));
    }
    Ok((header, payload))
}
