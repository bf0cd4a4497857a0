//! The input of an append: a payload with room for its header, and the sequence numbers it takes.

use pleach_env::memory::RegionBytes;
use pleach_env::{Error, FileId, Result};

use super::record::{PAYLOAD_LEN_MAX, RECORD_HEADER_LEN, RecordHeader, RecordKind, SEQ_MAX, SeqNo};

/// A payload with room for its record header in front, so that a single record is written without a copy.
///
/// Large pieces of the payload can lie apart, in regions of their own; they are written from there.
pub struct RecordBuf {
    /// At least [`RECORD_HEADER_LEN`] bytes; the header is filled in by the writer.
    bytes: Vec<u8>,
    /// The pieces that lie apart, if there are any.
    apart: Option<Box<Apart>>,
}

/// Pieces of a payload that lie apart.
#[derive(Default)]
struct Apart {
    /// In their order; each with the offset in [`RecordBuf::bytes`] before which it belongs.
    pieces: Vec<(usize, RegionBytes)>,
    /// Bytes of them all.
    len: usize,
}

impl RecordBuf {
    /// An empty payload.
    pub fn new() -> Self {
        Self { bytes: vec![0; RECORD_HEADER_LEN], apart: None }
    }

    /// An empty payload with room for `payload_len` bytes.
    pub fn with_capacity(payload_len: usize) -> Self {
        let mut bytes = Vec::with_capacity(RECORD_HEADER_LEN + payload_len);
        bytes.resize(RECORD_HEADER_LEN, 0);
        Self { bytes, apart: None }
    }

    /// The payload, without the pieces that lie apart.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[RECORD_HEADER_LEN..]
    }

    /// The payload, to change bytes already there (a count, say).
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[RECORD_HEADER_LEN..]
    }

    /// Length of the payload, pieces apart included.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.record_len() - RECORD_HEADER_LEN
    }

    /// Length in the log at most: the longest header and the payload.
    #[inline]
    pub fn record_len(&self) -> usize {
        self.bytes.len() + self.apart.as_ref().map_or(0, |apart| apart.len)
    }

    /// Appends a piece of payload that stays where it is.
    pub fn push_apart(&mut self, piece: RegionBytes) {
        let apart = self.apart.get_or_insert_default();
        apart.len += piece.bytes().len();
        apart.pieces.push((self.bytes.len(), piece));
    }

    /// Whether no piece of the payload lies apart.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.apart.is_none()
    }

    /// The pieces that lie apart, each with the offset in [`RecordBuf::payload`] before which it belongs.
    pub fn apart(&self) -> impl Iterator<Item = (usize, &RegionBytes)> {
        let pieces = self.apart.as_ref().map_or(&[][..], |apart| &apart.pieces);
        pieces.iter().map(|(at, piece)| (at - RECORD_HEADER_LEN, piece))
    }

    /// Takes the pieces that lie apart, in their order. The buffer keeps its length, but is no record
    /// any more: [`RecordBuf::clear`] it.
    pub fn take_apart(&mut self) -> impl Iterator<Item = RegionBytes> + use<> {
        let taken = self.apart.as_mut().map(|apart| std::mem::take(&mut apart.pieces));
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
        if self.apart.is_some() {
            self.apart = None;
        }
    }

    /// Fills in the header and returns the whole record. Requires: no piece lies apart.
    #[inline]
    pub(crate) fn seal(&mut self, header: &RecordHeader, id: FileId, offset: u64) -> &[u8] {
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
        let encoded = header
            .encode_with(id, offset, |seed| self.pieces(RECORD_HEADER_LEN).fold(seed, crc32c::crc32c_append));
        self.bytes[..RECORD_HEADER_LEN].copy_from_slice(&encoded);
        self.pieces(RECORD_HEADER_LEN - header.len())
    }

    /// The record from this offset in `bytes` on: what is there up to the first piece that lies apart, that piece, and so on.
    fn pieces(&self, start: usize) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(start).chain(self.apart_at().map(|(at, _)| at));
        let ends = self.apart_at().map(|(at, _)| at).chain([self.bytes.len()]);
        let apart = self.apart_at().map(|(_, piece)| piece.bytes()).chain([&[][..]]);
        let within = starts.zip(ends).map(|(start, end)| &self.bytes[start..end]);
        within.zip(apart).flat_map(|(within, apart)| [within, apart])
    }

    fn apart_at(&self) -> impl Iterator<Item = (usize, &RegionBytes)> {
        self.apart().map(|(at, piece)| (at + RECORD_HEADER_LEN, piece))
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

impl Append<'_> {
    /// Checks the record against the limits and the number that is due, and makes its header.
    pub(crate) fn header(&self, next_seq: SeqNo, durable_seq: SeqNo, epoch: u8) -> Result<RecordHeader> {
        let numbers = (self.first_seq, self.count);
        RecordHeader::of(self.record.payload_len(), numbers, next_seq, durable_seq, epoch)
    }
}

impl RecordHeader {
    /// The header of a record that takes `count` sequence numbers from `first_seq` on. Checks it against the limits and the
    /// number that is due.
    pub(crate) fn of(
        len: usize,
        (first_seq, count): (SeqNo, u32),
        next_seq: SeqNo,
        durable_seq: SeqNo,
        epoch: u8,
    ) -> Result<Self> {
        if first_seq != next_seq {
            return Err(Error::invalid(format!(
                "record starts at sequence number {first_seq}, {next_seq} is due"
            )));
        }
        if count == 0 || first_seq == 0 || SEQ_MAX - u64::from(count) < first_seq {
            return Err(Error::invalid(format!("record takes {count} sequence numbers from {first_seq} on")));
        }
        let Some(payload_len) = u32::try_from(len).ok().filter(|_| len <= PAYLOAD_LEN_MAX) else {
            return Err(Error::invalid(format!(
                "record of {len} bytes, at most {PAYLOAD_LEN_MAX} are allowed"
            )));
        };
        let durable_lag = Self::lag(first_seq, durable_seq);
        Ok(Self { kind: RecordKind::Data, epoch, payload_len, first_seq, count, durable_lag })
    }
}
