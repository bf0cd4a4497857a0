//! Operations of a write batch, encoded as the payload of a log record.
//!
//! A put or delete is encoded once, when it is added. The log writes these bytes, and the memtable is filled from them, so
//! a commit copies nothing else. A large value is copied once, into a region of its own: the log is written from the
//! region, which then becomes part of the memtable.
//!
//! A value that is to be separated has a checksum in front. Memtables keep the place of such a value in the log beside it.
//!
//! # On disk
//! Layout: docs/format/batch.md. This module owns the bytes; no other module parses them.

use pleach_coding::{Decoder, put_varint};
use pleach_env::memory::RegionBytes;
use pleach_env::{Error, Result};
use pleach_log::RecordBuf;
use pleach_table::{ValueKind, key_hash};

use crate::keys::{PARTITION_PREFIX_LEN, PartitionId, PartitionKey, partition_key};
use crate::limits::{BATCH_BYTES_MAX, KEY_LEN_MAX, OPERATIONS_MAX, VALUE_LEN_MAX};
use crate::memtable::{FOOTPRINT_MAX, Footprint, LARGE_FRONT, LARGE_PER_BATCH, Memtable, PLACE_LEN};
use crate::options::{LARGE_VALUE_LEN, MEMTABLE_BYTES_LIMIT, ValueSizes};
use crate::values::{CHECKSUM_LEN, checksum};

/// Upper bound of a memtable record's bytes beyond those of the operation (see `memtable/entry`).
const RECORD_OVERHEAD_MAX: usize = 80;

/// Upper bound of an operation's bytes beside key and value: kind, partition, two lengths, checksum.
const HEAD_LEN_MAX: usize = 20;

const _: () = assert!(
    BATCH_BYTES_MAX + OPERATIONS_MAX * RECORD_OVERHEAD_MAX < FOOTPRINT_MAX,
    "the memtable's memory for any batch can be reserved"
);
const _: () = assert!(
    BATCH_BYTES_MAX / LARGE_VALUE_LEN <= LARGE_PER_BATCH
        && MEMTABLE_BYTES_LIMIT / LARGE_VALUE_LEN <= LARGE_PER_BATCH,
    "every large value of a batch or of a memtable has a chunk of its own"
);

/// See the module's text.
#[derive(Default)]
pub(crate) struct Operations {
    record: RecordBuf,
    count: u32,
    /// Hash of the first operation's key, as [`Operation::hash`]; not set while there is none.
    first_hash: u64,
    footprint: Footprint,
}

impl Operations {
    /// Adds a put or, with no value, a delete. `sizes` says whether the value is separated, and whether it gets a region of its
    /// own; only such a value is compared with [`VALUE_LEN_MAX`].
    pub(crate) fn push(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        value: Option<&[u8]>,
        sizes: ValueSizes,
    ) -> Result<()> {
        check_key(key)?;
        let value_bytes = value.unwrap_or_default();
        if value_bytes.len() >= sizes.large && self.record.regions().count() < LARGE_PER_BATCH {
            return self.push_large(partition, key, value_bytes, value_bytes.len() >= sizes.separated);
        }
        self.check_room_for(key.len() + value_bytes.len())?;
        let kind = match value {
            None => ValueKind::Tombstone,
            Some(value) if value.len() >= sizes.separated => ValueKind::ValuePointer,
            Some(_) => ValueKind::Put,
        };
        self.push_head(partition, key, kind, value_bytes);
        self.record.bytes_mut().extend_from_slice(value_bytes);
        let len = value_bytes.len() + place_len(kind);
        self.footprint = self.footprint.and(Memtable::footprint(PARTITION_PREFIX_LEN + key.len(), len));
        Ok(())
    }

    /// Adds a put whose value is stored in a region of its own.
    #[cold]
    fn push_large(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        value: &[u8],
        is_separated: bool,
    ) -> Result<()> {
        if value.len() > VALUE_LEN_MAX {
            let message = format!("the value has {} bytes; a value has at most {VALUE_LEN_MAX}", value.len());
            return Err(Error::invalid(message));
        }
        self.check_room_for(key.len() + value.len())?;
        let Some(piece) = RegionBytes::try_copy(LARGE_FRONT, value) else {
            return Err(Error::invalid(format!(
                "a value of {} bytes needs as much memory, which the system does not give; let the process have more",
                value.len()
            )));
        };
        let kind = if is_separated { ValueKind::ValuePointer } else { ValueKind::Put };
        self.push_head(partition, key, kind, value);
        self.record.push_region(piece);
        self.footprint =
            self.footprint.and(Memtable::footprint_of_large(PARTITION_PREFIX_LEN + key.len(), value.len()));
        Ok(())
    }

    /// Adds the bytes in front of the value.
    #[inline]
    fn push_head(&mut self, partition: PartitionId, key: &[u8], kind: ValueKind, value: &[u8]) {
        let out = self.record.bytes_mut();
        out.push(kind.number());
        put_varint(out, u64::from(partition.get()));
        put_varint(out, key.len() as u64);
        if kind != ValueKind::Tombstone {
            put_varint(out, value.len() as u64);
        }
        out.extend_from_slice(key);
        if kind == ValueKind::ValuePointer {
            out.extend_from_slice(&checksum(partition, key, value).to_le_bytes());
        }
        if self.count == 0 {
            self.first_hash = key_hash(partition.get(), key);
        }
        self.count += 1;
    }

    #[inline]
    fn check_room_for(&self, added: usize) -> Result<()> {
        if self.has_room_for(HEAD_LEN_MAX + added) {
            return Ok(());
        }
        let message = format!("the batch would exceed {BATCH_BYTES_MAX} bytes; commit it in smaller pieces");
        Err(Error::invalid(message))
    }

    fn has_room_for(&self, added: usize) -> bool {
        added <= BATCH_BYTES_MAX - self.record.payload_len()
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Hash of the key, if there is one operation only.
    #[inline]
    pub(crate) fn only_hash(&self) -> Option<u64> {
        (self.count == 1).then_some(self.first_hash)
    }

    /// Memory that the operations will take in a memtable.
    pub(crate) fn footprint(&self) -> Footprint {
        self.footprint
    }

    /// Bytes of the log record.
    pub(crate) fn record_len(&self) -> usize {
        self.record.record_len()
    }

    /// Where the payload begins in the log segment to which it was last appended.
    pub(crate) fn payload_offset(&self) -> u64 {
        self.record.payload_offset()
    }

    /// Bytes of the log record's payload.
    pub(crate) fn payload_len(&self) -> usize {
        self.record.payload_len()
    }

    /// The payload of a batch without large values.
    #[cfg(test)]
    pub(crate) fn payload(&self) -> &[u8] {
        assert!(self.record.is_contiguous());
        self.record.payload()
    }

    /// The pieces of the payload.
    #[cfg(test)]
    pub(crate) fn payload_bytes(&self) -> std::collections::VecDeque<Vec<u8>> {
        let (mut pieces, mut start) = (std::collections::VecDeque::new(), 0);
        for (at, region) in self.record.regions() {
            pieces.push_back(self.record.payload()[start..at].to_vec());
            pieces.push_back(region.bytes().to_vec());
            start = at;
        }
        pieces.push_back(self.record.payload()[start..].to_vec());
        pieces
    }

    /// Makes the batch look as if it took this much of a memtable.
    #[cfg(test)]
    pub(crate) fn claim(&mut self, footprint: Footprint) {
        self.footprint = footprint;
    }

    /// Visits the operations in their order.
    #[inline]
    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(Operation<'_>)) {
        if !self.record.is_contiguous() {
            return self.for_each_in_pieces(visit);
        }
        Self::decode(self.record.payload(), visit).expect("operations were encoded here");
    }

    #[cold]
    fn for_each_in_pieces(&self, visit: &mut dyn FnMut(Operation<'_>)) {
        let offsets = self.record.regions().map(|(at, _)| at);
        let mut values = self.record.regions().map(|(_, piece)| piece.bytes());
        Self::decode_without(self.record.payload(), offsets, &mut |op, is_region| {
            let value = if is_region { values.next().unwrap_or_default() } else { op.value };
            visit(Operation { value, ..op });
        });
    }

    /// As [`Operations::for_each`], but gives large values away as regions; their operations have no value.
    ///
    /// Guarantees: the lengths stay the same. Requires: only [`Operations::clear`] and the lengths are used afterwards.
    pub(crate) fn take_each(&mut self, visit: &mut dyn FnMut(Operation<'_>, Option<RegionBytes>)) {
        let offsets: Vec<_> = self.record.regions().map(|(at, _)| at).collect();
        let mut pieces = self.record.take_regions();
        Self::decode_without(self.record.payload(), offsets.into_iter(), &mut |op, is_region| {
            visit(op, if is_region { pieces.next() } else { None });
        });
    }

    /// Visits the operations of a payload that lacks the values at `offsets`. `visit` learns whether its value is one.
    fn decode_without(
        payload: &[u8],
        offsets: impl Iterator<Item = usize>,
        visit: &mut dyn FnMut(Operation<'_>, bool),
    ) {
        let (mut rest, mut offsets) = (Decoder(payload), offsets.peekable());
        let mut region_bytes = 0;
        while !rest.is_empty() {
            let head = Operation::decode_head(&mut rest);
            let (op, value_len) = head.expect("operations were encoded here");
            let at = payload.len() - rest.0.len();
            let is_region = offsets.next_if_eq(&at).is_some();
            let value = rest.take(if is_region { 0 } else { value_len });
            let value = value.expect("operations were encoded here");
            visit(Operation { value, value_at: at + region_bytes, ..op }, is_region);
            region_bytes += if is_region { value_len } else { 0 };
        }
    }

    /// Whether there are large values.
    #[inline]
    pub(crate) fn has_large(&self) -> bool {
        !self.record.is_contiguous()
    }

    pub(crate) fn record_mut(&mut self) -> &mut RecordBuf {
        &mut self.record
    }

    pub(crate) fn clear(&mut self) {
        self.record.clear();
        self.count = 0;
        self.footprint = Footprint::default();
    }

    /// Memory that the operations of a payload will take in a memtable. Requires: the payload was checked.
    pub(crate) fn footprint_of(payload: &[u8]) -> Footprint {
        let mut sum = Footprint::default();
        let decoded = Self::decode(payload, &mut |op| {
            let len = op.value.len() + place_len(op.kind);
            sum = sum.and(Memtable::footprint(PARTITION_PREFIX_LEN + op.user_key.len(), len));
        });
        debug_assert!(decoded.is_ok(), "checked before");
        sum
    }

    /// Visits the operations of a log record's payload; an error message if the payload is malformed.
    pub(crate) fn decode(payload: &[u8], visit: &mut dyn FnMut(Operation<'_>)) -> Result<(), &'static str> {
        let mut rest = Decoder(payload);
        while !rest.is_empty() {
            let op = Operation::decode(&mut rest).ok_or("an operation of the batch is malformed")?;
            let value_at = payload.len() - rest.0.len() - op.value.len();
            visit(Operation { value_at, ..op });
        }
        Ok(())
    }
}

/// Bytes that a memtable takes for the place of a value.
#[inline]
fn place_len(kind: ValueKind) -> usize {
    if kind == ValueKind::ValuePointer { PLACE_LEN } else { 0 }
}

/// One operation of a batch.
pub(crate) struct Operation<'a> {
    /// [`ValueKind::ValuePointer`] is a put whose value is separated.
    pub(crate) kind: ValueKind,
    pub(crate) partition: PartitionId,
    pub(crate) user_key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Where the value begins in the payload. In front of a separated one is its checksum.
    pub(crate) value_at: usize,
}

impl<'a> Operation<'a> {
    #[inline]
    fn decode(rest: &mut Decoder<'a>) -> Option<Self> {
        let (head, value_len) = Self::decode_head(rest)?;
        Some(Self { value: rest.take(value_len)?, ..head })
    }

    /// Decodes the bytes in front of the value, and the value's length.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "45 instructions of each put, measured")]
    fn decode_head(rest: &mut Decoder<'a>) -> Option<(Self, usize)> {
        let kind = ValueKind::from_number(rest.u8()?)?;
        let partition = rest.u32()?;
        let key_len = rest.usize()?;
        let value_len = if kind == ValueKind::Tombstone { 0 } else { rest.usize()? };
        if !(1..=KEY_LEN_MAX).contains(&key_len) || value_len > VALUE_LEN_MAX {
            return None;
        }
        let user_key = rest.take(key_len)?;
        if kind == ValueKind::ValuePointer {
            rest.take(CHECKSUM_LEN)?;
        }
        let op = Self { kind, partition: PartitionId(partition), user_key, value: &[], value_at: 0 };
        Some((op, value_len))
    }

    /// The key by which memtables are ordered.
    #[inline]
    pub(crate) fn partition_key(&self) -> PartitionKey {
        partition_key(self.partition, self.user_key)
    }

    /// The hash of the key in memtables, filters and blocks.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        key_hash(self.partition.0, self.user_key)
    }
}

/// An error when `key` is empty or too long.
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        1..=KEY_LEN_MAX => Ok(()),
        len => Err(Error::invalid(format!("the key has {len} bytes; a key has 1 to {KEY_LEN_MAX}"))),
    }
}

#[cfg(test)]
mod tests;
