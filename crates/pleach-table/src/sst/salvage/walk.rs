//! The walk over a damaged file: finds its blocks.
//!
//! If the index is whole, it gives the places of the blocks. Otherwise the walk searches the file. A block proves itself by
//! its checksum, which covers the file's number and the block's offset.

use pleach_coding::{Malformed, u32_at};
use pleach_env::{Error, Result};

use super::super::load::{BLOCK_CRC, decompress};
use super::super::open::{TAIL_CRC, Tail};
use super::SalvageSst;
use super::window::{WINDOW_LEN, Window};
use crate::block::{BlockType, DATA_TYPES, Header, check};
use crate::codec::Codec;
use crate::crc::address_crc;
use crate::properties::Properties;
use crate::sizes::{BLOCK_LEN_MAX, FILE_LEN_MAX, FOOTER_LEN, HEADER_LEN, PAGE};

/// Bytes whose checksum may turn out wrong in a search, as a multiple of the file's length. Arbitrary: ordinary bytes look
/// like the header of a block once in many GiB, so only forged files reach this.
const WORK_FACTOR: u64 = 64;

/// What a walk finds.
pub(super) enum Found<'a> {
    /// A data block, uncompressed and validated, and its end in the file.
    Block(&'a [u8], u64),
    /// An offset and a number of bytes that are not a block.
    Damage(u64, u64, Error),
    /// The properties, if the file is searched.
    Properties(Properties),
}

/// Called for everything that a walk finds; returns whether to go on.
type Visit<'v> = dyn FnMut(Found<'_>) -> Result<bool> + 'v;

/// What a data block may be.
#[derive(Clone, Copy)]
struct Allowed {
    /// With [`Codec::None`], uncompressed blocks only.
    codec: Codec,
    types: &'static [BlockType],
}

impl Allowed {
    /// Anything: the tail is not known.
    const ANY: Self = Self { codec: Codec::Lz4, types: DATA_TYPES };
}

/// A walk over the file. Its methods return whether `visit` wants to go on.
pub(super) struct Walk<'s> {
    sst: &'s SalvageSst,
    window: Window<'s>,
    uncompressed: Vec<u8>,
    work_left: u64,
}

impl<'s> Walk<'s> {
    pub(super) fn new(sst: &'s SalvageSst) -> Self {
        let work_left = sst.len.saturating_mul(WORK_FACTOR);
        Self { sst, window: Window::new(sst), uncompressed: Vec::new(), work_left }
    }

    /// Visits the blocks of the index.
    pub(super) fn follow(&mut self, tail: &Tail, visit: &mut Visit<'_>) -> Result<bool> {
        let allowed = Allowed { codec: tail.codec, types: tail.data_types };
        for number in 0..tail.extents.blocks() {
            let (offset, len) = tail.extents.get(number);
            if !self.visit_block(offset, len.into(), allowed, visit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Visits the data block at `offset`, or the damage there.
    fn visit_block(
        &mut self,
        offset: u64,
        len: u64,
        allowed: Allowed,
        visit: &mut Visit<'_>,
    ) -> Result<bool> {
        match self.load(offset, len, allowed) {
            Ok(()) => visit(Found::Block(&self.uncompressed, offset + len)),
            Err(error) => visit(Found::Damage(offset, len, error)),
        }
    }

    /// Loads the data block at `offset` into `uncompressed`.
    fn load(&mut self, offset: u64, len: u64, allowed: Allowed) -> Result<()> {
        let sst = self.sst;
        let damaged = |malformed| Error::malformed(&sst.path, offset, malformed);
        if offset + len > sst.len {
            return Err(damaged(Malformed::new(0, "a block within the file")));
        }
        if len > WINDOW_LEN as u64 {
            let stored = u32_at(self.window.get(offset, HEADER_LEN)?, 0);
            if self.crc(offset, len)? != stored {
                return Err(damaged(Malformed::new(0, "bytes that match the block's checksum")));
            }
        }
        let stored = self.window.get(offset, usize::try_from(len).expect("a file is shorter than 4 GiB"))?;
        let (header, payload) =
            check(stored, sst.file_id, offset, allowed.types, BLOCK_CRC).map_err(damaged)?;
        if allowed.codec == Codec::None && header.codec != Codec::None {
            return Err(damaged(Malformed::new(4, "no compression in an uncompressed SST")));
        }
        self.uncompressed.clear();
        self.uncompressed.resize(HEADER_LEN + header.raw_len as usize, 0);
        decompress(&header, payload, &mut self.uncompressed).map_err(damaged)
    }

    /// The checksum that the block of `len` bytes at `offset` should have.
    fn crc(&mut self, offset: u64, len: u64) -> Result<u32> {
        self.window.crc(address_crc(self.sst.file_id, offset, &[]), offset + 4, len - 4)
    }

    /// Searches for blocks from `offset` to the end of the file.
    pub(super) fn search(&mut self, mut offset: u64, visit: &mut Visit<'_>) -> Result<bool> {
        let end = self.sst.len.min(FILE_LEN_MAX);
        let mut lost_from = offset;
        let mut first_error = None;
        while offset + HEADER_LEN as u64 <= end {
            match self.prove(offset) {
                Ok(Some((block_type, len))) => {
                    if !self.visit_lost(lost_from, offset, first_error.take(), visit)?
                        || !self.visit_proven(offset, len, block_type, visit)?
                    {
                        return Ok(false);
                    }
                    offset += len;
                    lost_from = offset;
                }
                Ok(None) => offset = self.next_candidate(offset + 1, end),
                // Bytes up to the next page are lost: they cannot be read, or the search has taken too long.
                Err(error) => {
                    first_error.get_or_insert(error);
                    offset = (offset / PAGE as u64 + 1) * PAGE as u64;
                }
            }
        }
        // Behind the last block stands the footer, which is not a block.
        let lost_to = if lost_from + (FOOTER_LEN as u64) < end { end } else { lost_from };
        self.visit_lost(lost_from, lost_to, first_error, visit)
    }

    fn visit_lost(&self, from: u64, to: u64, error: Option<Error>, visit: &mut Visit<'_>) -> Result<bool> {
        if from == to {
            return Ok(true);
        }
        let other_bytes = || Error::malformed(&self.sst.path, from, Malformed::new(0, "a block"));
        visit(Found::Damage(from, to - from, error.unwrap_or_else(other_bytes)))
    }

    fn visit_proven(
        &mut self,
        offset: u64,
        len: u64,
        block_type: BlockType,
        visit: &mut Visit<'_>,
    ) -> Result<bool> {
        match block_type {
            BlockType::Data | BlockType::Columns | BlockType::PackedColumns => {
                self.visit_block(offset, len, Allowed::ANY, visit)
            }
            BlockType::Properties => {
                let len = usize::try_from(len).expect("a file is shorter than 4 GiB");
                let stored = self.window.get(offset, len)?;
                let payload = check(stored, self.sst.file_id, offset, &[block_type], TAIL_CRC);
                let properties = payload.and_then(|(_, payload)| Properties::decode(payload));
                properties.map_or(Ok(true), |properties| visit(Found::Properties(properties)))
            }
            BlockType::Index | BlockType::Filter => Ok(true),
        }
    }

    /// The next offset from `from` on at which a block may begin, by the codec and type in its header.
    fn next_candidate(&self, from: u64, end: u64) -> u64 {
        let bytes = self.window.held_from(from + 4);
        let place = bytes.windows(2).position(|pair| pair[0] <= 1 && BlockType::has(pair[1]));
        let skipped = place.unwrap_or(bytes.len().saturating_sub(2)) as u64;
        (from + skipped).min(end).max(from)
    }

    /// Type and length of the block that begins at `offset`, if its checksum confirms them.
    fn prove(&mut self, offset: u64) -> Result<Option<(BlockType, u64)>> {
        let head = self.window.get(offset, HEADER_LEN)?.first_chunk().expect("as many as were asked for");
        let Some(header) = Header::guess(head) else { return Ok(None) };
        let block_type = header.block_type;
        let stored_crc = u32_at(head, 0);
        let packed = HEADER_LEN as u64 + u64::from(header.stored_len);
        let padded = packed.next_multiple_of(PAGE as u64);
        let left = self.sst.len.min(FILE_LEN_MAX) - offset;
        if packed > left || !is_plausible(&header) {
            return Ok(None);
        }
        let crc = self.crc(offset, packed)?;
        if crc == stored_crc {
            return Ok(Some((block_type, packed)));
        }
        let may_be_padded = offset.is_multiple_of(PAGE as u64) && header.codec == Codec::None;
        if may_be_padded
            && block_type.is_data()
            && padded <= left
            && self.window.crc(crc, offset + packed, padded - packed)? == stored_crc
        {
            return Ok(Some((block_type, padded)));
        }
        self.work_left = self.work_left.checked_sub(padded).ok_or_else(|| {
            let message = "found too many bytes that look like blocks and are none";
            Error::corruption(&self.sst.path, offset, message)
        })?;
        Ok(None)
    }
}

/// Whether a block can have such a header.
fn is_plausible(header: &Header) -> bool {
    let entries = match (header.block_type.is_data(), header.count) {
        (true, 0) => false,
        (true, 1) => true,
        (true, _) => HEADER_LEN + header.raw_len as usize <= BLOCK_LEN_MAX,
        (_, count) => count == 0 && header.codec == Codec::None,
    };
    entries && header.stored_len > 0 && header.has_possible_lengths()
}
