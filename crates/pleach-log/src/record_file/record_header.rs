//! Record headers: the fields in front of a payload.
//!
//! A long header proves itself: its tag and checksum, 64 bits, say that this file's writer put it at this offset. The payload
//! has a checksum of its own. A short header has one checksum for header and payload, and is decoded with the sequence number
//! and epoch that the record before it gives.
//!
//! # On disk
//! Layout: docs/format/log.md, "Record".

use pleach_coding::{u32_at, u64_at};
use pleach_env::{Error, FileId};

/// Sequence number: the place of one operation in the order of writes, from 1 on. 0 means "none yet".
pub type SeqNo = u64;

/// Largest sequence number that a file can store: seven bytes. The last operation has one less, because the number due after
/// it must be storable too.
pub const SEQ_MAX: SeqNo = (1 << 56) - 1;

/// Length of the longest header in front of a payload.
pub const RECORD_HEADER_LEN: usize = 32;

/// Length of the header of a short record: one operation, small, and not the first.
pub const SHORT_HEADER_LEN: usize = 6;

/// Longest payload of a short record: what 13 bits say.
pub(crate) const SHORT_PAYLOAD_MAX: u32 = (1 << 13) - 1;

/// Longest payload (1 GiB). Arbitrary, far above any sensible batch; a longer length in a header is damage.
pub const PAYLOAD_LEN_MAX: usize = 1 << 30;

/// `durable_lag` of a record that does not say what was durable.
pub(crate) const LAG_UNKNOWN: u32 = u32::MAX;

/// Highest epoch. Only the last fence of a file has it; `RecordWriter` appends no data after that.
pub(crate) const EPOCH_MAX: u8 = (1 << 5) - 1;

/// Where in a long header the checksum of the payload is, and that of the header, which covers all before it.
const PAYLOAD_CRC_AT: usize = 24;
const HEADER_CRC_AT: usize = 28;

/// By how much the tag grows from one byte of a file to the next, and from one file to the next. Odd, so that every tag
/// occurs once in 4 GiB. Otherwise arbitrary, but unlike the steps by which numbers in payloads grow.
pub(crate) const TAG_STEP: u32 = 0x9e37_79b1;
const TAG_FILE_STEP: u32 = 0x85eb_ca6b;

/// The first four bytes of a long header at `offset` of file `id`.
pub(crate) fn tag(id: FileId, offset: u64) -> u32 {
    let low = |number: u64| u32_at(&number.to_le_bytes(), 0);
    low(offset).wrapping_add(low(id.0).wrapping_mul(TAG_FILE_STEP)).wrapping_mul(TAG_STEP)
}

const KIND_BITS: u32 = 3;
const KIND_MASK: u8 = (1 << KIND_BITS) - 1;

/// The kind of a record. Numbers on disk: never renumber; 4 to 7 are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// A payload that takes one or more sequence numbers.
    Data = 1,
    /// No payload, no sequence numbers. Written after a sync, to claim it, and after a failed append, as a fence.
    Marker = 2,
    /// A payload that takes the one sequence number that is due. Number and epoch are not stored: they follow from the record
    /// before, and the checksum covers them. It makes no claim of what is durable.
    Short = 3,
}

/// Where a chain of records begins, or goes on behind damage: the place of a record, and what a short record does not store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStart {
    /// Where its header starts.
    pub offset: u64,
    /// Its first sequence number.
    pub first_seq: SeqNo,
    /// Its epoch.
    pub epoch: u8,
}

/// A decoded record header. The reader, which knows the address, compares the checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) epoch: u8,
    pub(crate) payload_len: u32,
    pub(crate) first_seq: SeqNo,
    pub(crate) count: u32,
    pub(crate) durable_lag: u32,
}

impl RecordHeader {
    /// The header of a long record that takes `count` sequence numbers from `first_seq` on. An error if another
    /// number is due or the record exceeds a limit.
    pub(crate) fn of(
        payload_len: usize,
        (first_seq, count): (SeqNo, u32),
        next_seq: SeqNo,
        durable_seq: SeqNo,
        epoch: u8,
    ) -> pleach_env::Result<Self> {
        if first_seq != next_seq {
            return Err(Error::invalid(format!(
                "record starts at sequence number {first_seq}, {next_seq} is due"
            )));
        }
        if count == 0 || first_seq == 0 || SEQ_MAX - u64::from(count) < first_seq {
            return Err(Error::invalid(format!("record takes {count} sequence numbers from {first_seq} on")));
        }
        let len = u32::try_from(payload_len).ok().filter(|_| payload_len <= PAYLOAD_LEN_MAX);
        let payload_len = len.ok_or_else(|| {
            Error::invalid(format!("record of {payload_len} bytes, at most {PAYLOAD_LEN_MAX} are allowed"))
        })?;
        let durable_lag = Self::lag(first_seq, durable_seq);
        Ok(Self { kind: RecordKind::Data, epoch, payload_len, first_seq, count, durable_lag })
    }

    /// The sequence number after this record's last.
    pub(crate) fn next_seq(&self) -> SeqNo {
        self.first_seq + u64::from(self.count)
    }

    /// The record's claim: all sequence numbers up to this one were durable when it was written. `None` if it makes none.
    pub(crate) fn durable_seq(&self) -> Option<SeqNo> {
        (self.durable_lag != LAG_UNKNOWN)
            .then(|| (self.first_seq - 1).saturating_sub(u64::from(self.durable_lag)))
    }

    /// The lag to write into a record that starts at `first_seq` when everything up to `durable_seq` is durable.
    pub(crate) fn lag(first_seq: SeqNo, durable_seq: SeqNo) -> u32 {
        u32::try_from((first_seq - 1).saturating_sub(durable_seq)).unwrap_or(LAG_UNKNOWN)
    }

    /// Length of this header on disk.
    pub(crate) fn len(&self) -> usize {
        if self.kind == RecordKind::Short { SHORT_HEADER_LEN } else { RECORD_HEADER_LEN }
    }

    /// Length of the record on disk.
    pub(crate) fn record_len(&self) -> u64 {
        self.len() as u64 + u64::from(self.payload_len)
    }

    /// The record that is due behind this one, which is at `offset`.
    pub(crate) fn due_behind(&self, offset: u64) -> ChainStart {
        ChainStart { offset: offset + self.record_len(), first_seq: self.next_seq(), epoch: self.epoch }
    }

    /// Whether the record can be a short one.
    pub(crate) fn can_be_short(&self) -> bool {
        self.kind == RecordKind::Data && self.count == 1 && self.payload_len <= SHORT_PAYLOAD_MAX
    }

    /// Encodes the header of a record with `payload` at `offset` of file `id`, checksums included: the last
    /// [`RecordHeader::len`] bytes.
    #[inline]
    pub(crate) fn encode(&self, id: FileId, offset: u64, payload: &[u8]) -> [u8; RECORD_HEADER_LEN] {
        self.encode_with(id, offset, |seed| crc32c::crc32c_append(seed, payload))
    }

    /// As [`RecordHeader::encode`], with the function that continues a checksum over the payload.
    #[inline]
    pub(crate) fn encode_with(
        &self,
        id: FileId,
        offset: u64,
        payload_crc: impl FnOnce(u32) -> u32,
    ) -> [u8; RECORD_HEADER_LEN] {
        let mut bytes = [0; RECORD_HEADER_LEN];
        let header = &mut bytes[RECORD_HEADER_LEN - self.len()..];
        if self.kind == RecordKind::Short {
            let [low, high, ..] = self.payload_len.to_le_bytes();
            header[4] = self.kind as u8 | (high << KIND_BITS);
            header[5] = low;
            let crc = payload_crc(self.payload_crc_seed(header, id, offset));
            header[0..4].copy_from_slice(&crc.to_le_bytes());
        } else {
            header[0..4].copy_from_slice(&tag(id, offset).to_le_bytes());
            header[4] = self.kind as u8 | (self.epoch << KIND_BITS);
            header[5..12].copy_from_slice(&self.first_seq.to_le_bytes()[..7]);
            header[12..16].copy_from_slice(&self.payload_len.to_le_bytes());
            header[16..20].copy_from_slice(&self.count.to_le_bytes());
            header[20..24].copy_from_slice(&self.durable_lag.to_le_bytes());
            let payload_crc = payload_crc(0);
            header[PAYLOAD_CRC_AT..HEADER_CRC_AT].copy_from_slice(&payload_crc.to_le_bytes());
            let crc = header_crc(header, id, offset);
            header[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        }
        bytes
    }

    /// Decodes the header at the start of `bytes`, without comparing its checksums; an error says why it cannot be one. `due`
    /// is the number and the epoch of a short record.
    pub(crate) fn decode(bytes: &[u8], due: Option<(SeqNo, u8)>) -> Result<Self, &'static str> {
        const END: &str = "the end of the file";
        let kind = match bytes.get(4).ok_or(END)? & KIND_MASK {
            1 => RecordKind::Data,
            2 => RecordKind::Marker,
            3 => return Self::decode_short(*bytes.first_chunk().ok_or(END)?, due),
            _ => return Err("an unknown record kind"),
        };
        let bytes: &[u8; RECORD_HEADER_LEN] = bytes.first_chunk().ok_or(END)?;
        let mut seq = [0; 8];
        seq[..7].copy_from_slice(&bytes[5..12]);
        let header = Self {
            kind,
            epoch: bytes[4] >> KIND_BITS,
            payload_len: u32_at(bytes, 12),
            first_seq: u64_at(&seq, 0),
            count: u32_at(bytes, 16),
            durable_lag: u32_at(bytes, 20),
        };
        let takes_none = header.payload_len == 0 && header.count == 0;
        match kind {
            RecordKind::Data if header.count == 0 => Err("a data record without sequence numbers"),
            RecordKind::Marker if !takes_none => Err("a marker with a payload"),
            _ if header.payload_len as usize > PAYLOAD_LEN_MAX => Err("a payload length above the limit"),
            _ if header.first_seq == 0 || header.next_seq() > SEQ_MAX => {
                Err("a sequence number out of range")
            }
            _ => Ok(header),
        }
    }

    fn decode_short(bytes: [u8; SHORT_HEADER_LEN], due: Option<(SeqNo, u8)>) -> Result<Self, &'static str> {
        let (first_seq, epoch) = due.ok_or("a short record without a record before it")?;
        if first_seq >= SEQ_MAX {
            return Err("a sequence number out of range");
        }
        let payload_len = u32::from(bytes[5]) | u32::from(bytes[4] >> KIND_BITS) << 8;
        let kind = RecordKind::Short;
        Ok(Self { kind, epoch, payload_len, first_seq, count: 1, durable_lag: LAG_UNKNOWN })
    }

    /// Whether tag and checksum of a long header fit this place. Always true for a short header: its checksum covers the
    /// payload too.
    pub(crate) fn is_proven(&self, encoded: &[u8], id: FileId, offset: u64) -> bool {
        self.kind == RecordKind::Short
            || u32_at(encoded, 0) == tag(id, offset)
                && u32_at(encoded, HEADER_CRC_AT) == header_crc(encoded, id, offset)
    }

    /// The start value of the checksum that covers the payload. The checksum of a short record covers, before the payload, the
    /// address, the fields that a short record does not store, and the header without the checksum.
    pub(crate) fn payload_crc_seed(&self, encoded: &[u8], id: FileId, offset: u64) -> u32 {
        if self.kind != RecordKind::Short {
            return 0;
        }
        let mut covered = [0; 27];
        covered[0..8].copy_from_slice(&id.0.to_le_bytes());
        covered[8..16].copy_from_slice(&offset.to_le_bytes());
        covered[16..24].copy_from_slice(&self.first_seq.to_le_bytes());
        covered[24] = self.epoch;
        covered[25..27].copy_from_slice(&encoded[4..6]);
        crc32c::crc32c(&covered)
    }

    /// The checksum that covers the payload, as stored in the encoded header.
    pub(crate) fn stored_payload_crc(&self, encoded: &[u8]) -> u32 {
        u32_at(encoded, if self.kind == RecordKind::Short { 0 } else { PAYLOAD_CRC_AT })
    }
}

/// Checksum of the address and of a long header up to the checksum itself.
fn header_crc(encoded: &[u8], id: FileId, offset: u64) -> u32 {
    let mut covered = [0; 16 + HEADER_CRC_AT];
    covered[0..8].copy_from_slice(&id.0.to_le_bytes());
    covered[8..16].copy_from_slice(&offset.to_le_bytes());
    covered[16..].copy_from_slice(&encoded[..HEADER_CRC_AT]);
    crc32c::crc32c(&covered)
}
