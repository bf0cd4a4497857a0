//! The input of an append: a payload with space for its header, and the sequence numbers it takes.

use pleach_env::FileId;
use pleach_env::memory::RegionBytes;

use super::record_header::{RECORD_HEADER_LEN, RecordHeader, SeqNo};

/// A payload with space for its record header in front, so that a single record is written without a copy.
///
/// Large pieces of the payload stay in memory regions of their own and are written from there.
pub struct RecordBuf {
    /// At least [`RECORD_HEADER_LEN`] bytes; the header is filled in by the writer.
    bytes: Vec<u8>,
    /// The pieces in regions, if there are any.
    regions: Option<Box<Regions>>,
    /// See [`RecordBuf::payload_offset`].
    payload_offset: u64,
}

/// Pieces of a payload that stay in memory regions.
#[derive(Default)]
struct Regions {
    /// In the order of the payload; each with the offset in [`RecordBuf::bytes`] before which it belongs.
    pieces: Vec<(usize, RegionBytes)>,
    /// Total bytes.
    len: usize,
}

impl RecordBuf {
    /// An empty payload.
    pub fn new() -> Self {
        Self { bytes: vec![0; RECORD_HEADER_LEN], regions: None, payload_offset: 0 }
    }

    /// An empty payload with capacity for `payload_len` bytes.
    pub fn with_capacity(payload_len: usize) -> Self {
        let mut bytes = Vec::with_capacity(RECORD_HEADER_LEN + payload_len);
        bytes.resize(RECORD_HEADER_LEN, 0);
        Self { bytes, regions: None, payload_offset: 0 }
    }

    /// Bytes of memory for header and payload, without the pieces in regions.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The payload without the pieces in regions.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[RECORD_HEADER_LEN..]
    }

    /// Where the payload begins in the file to which the record was last appended.
    pub fn payload_offset(&self) -> u64 {
        self.payload_offset
    }

    /// Length of the payload, regions included.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.record_len() - RECORD_HEADER_LEN
    }

    /// Length in the log at most: the longest header and the payload.
    #[inline]
    pub fn record_len(&self) -> usize {
        self.bytes.len() + self.regions.as_ref().map_or(0, |regions| regions.len)
    }

    /// Appends a piece of payload that stays in its region.
    pub fn push_region(&mut self, piece: RegionBytes) {
        let regions = self.regions.get_or_insert_default();
        regions.len += piece.bytes().len();
        regions.pieces.push((self.bytes.len(), piece));
    }

    /// Whether the record is one piece of memory.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.regions.is_none()
    }

    /// The pieces in regions, each with the offset in [`RecordBuf::payload`] before which it belongs.
    pub fn regions(&self) -> impl Iterator<Item = (usize, &RegionBytes)> {
        let pieces = self.regions.as_ref().map_or(&[][..], |regions| &regions.pieces);
        pieces.iter().map(|(at, piece)| (at - RECORD_HEADER_LEN, piece))
    }

    /// Takes the pieces in regions, in the order of the payload. Afterwards the buffer must be cleared
    /// ([`RecordBuf::clear`]): it keeps its length, but holds no valid record.
    pub fn take_regions(&mut self) -> impl Iterator<Item = RegionBytes> + use<> {
        let taken = self.regions.as_mut().map(|regions| std::mem::take(&mut regions.pieces));
        taken.unwrap_or_default().into_iter().map(|(_, piece)| piece)
    }

    /// The bytes to append payload to. Append only: the first [`RECORD_HEADER_LEN`] bytes are the writer's.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Empties the payload and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.truncate(RECORD_HEADER_LEN);
        self.regions = None;
    }

    /// Fills in the header and returns the whole record. Requires: it is contiguous.
    #[inline]
    pub(crate) fn seal(&mut self, header: &RecordHeader, id: FileId, offset: u64) -> &[u8] {
        self.payload_offset = offset + header.len() as u64;
        let encoded = header.encode(id, offset, self.payload());
        self.bytes[..RECORD_HEADER_LEN].copy_from_slice(&encoded);
        &self.bytes[RECORD_HEADER_LEN - header.len()..]
    }

    /// Fills in the header and returns the record in pieces, in their order.
    pub(crate) fn seal_pieces(
        &mut self,
        header: &RecordHeader,
        id: FileId,
        offset: u64,
    ) -> impl Iterator<Item = &[u8]> {
        self.payload_offset = offset + header.len() as u64;
        let encoded = header
            .encode_with(id, offset, |seed| self.pieces(RECORD_HEADER_LEN).fold(seed, crc32c::crc32c_append));
        self.bytes[..RECORD_HEADER_LEN].copy_from_slice(&encoded);
        self.pieces(RECORD_HEADER_LEN - header.len())
    }

    /// The record from offset `start` in `bytes` on: the bytes up to the first piece in a region, that piece, and so on.
    fn pieces(&self, mut start: usize) -> impl Iterator<Item = &[u8]> {
        let end = (self.payload().len(), &[][..]);
        let pieces = self.regions().map(|(at, piece)| (at, piece.bytes())).chain([end]);
        pieces.flat_map(move |(at, piece)| {
            let before = &self.bytes[start..at + RECORD_HEADER_LEN];
            start = at + RECORD_HEADER_LEN;
            [before, piece]
        })
    }
}

impl Default for RecordBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for RecordBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordBuf").field("payload_len", &self.payload_len()).finish()
    }
}

/// A record to append: its payload and the sequence numbers it takes.
#[derive(Debug)]
pub struct Append<'a> {
    /// The payload.
    pub record: &'a mut RecordBuf,
    /// The sequence number after the last one appended.
    pub first_seq: SeqNo,
    /// How many it takes, at least one.
    pub count: u32,
}
