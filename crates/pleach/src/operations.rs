//! Operations of a write batch, encoded as the payload of a log record.
//!
//! A put or delete is encoded once, when it is added. The log writes these bytes, and the memtable is filled from them, so
//! a commit copies nothing else. A large value is copied once, into a region of its own: the log is written from the
//! region, which then becomes part of the memtable.
//!
//! A value that is to be separated has a checksum in front, and may be packed: by the thread that adds it, before it waits for
//! others. Memtables keep such a value as it is, with its place in the log beside it. So a batch keeps the raw values of packed
//! ones until they are in the memtable: a copy takes the leader less time than unpacking.
//!
//! # On disk
//! Layout: docs/format/batch.md. This module owns the bytes; no other module parses them.

use std::cell::Cell;

use pleach_coding::{Decoder, put_varint};
use pleach_env::memory::RegionBytes;
use pleach_env::{Error, Result};
use pleach_log::RecordBuf;
use pleach_table::{ValueKind, key_hash};

use crate::keys::{PARTITION_PREFIX_LEN, PartitionId, PartitionKey, partition_key};
use crate::limits::{BATCH_BYTES_MAX, KEY_LEN_MAX, OPERATIONS_MAX, VALUE_LEN_MAX};
use crate::memtable::{FOOTPRINT_MAX, Footprint, LARGE_FRONT, LARGE_PER_BATCH, Memtable, PLACE_LEN};
use crate::options::{LARGE_VALUE_LEN, MEMTABLE_BYTES_LIMIT, ValueSizes};
use crate::values::{CHECKSUM_LEN, PackedValue, ValuePacker, checksum, packed_checksum};

/// The number of a separated put whose value is packed. The others are those of [`ValueKind`], which has no such kind: it is in
/// batches only. Never renumber.
const PACKED_PUT: u8 = 4;

/// Upper bound of a memtable record's bytes beyond those of the operation (see `memtable/entry`).
const RECORD_OVERHEAD_MAX: usize = 80;

/// Upper bound of an operation's bytes beside key and value: kind, partition, two lengths, checksum.
const HEAD_LEN_MAX: usize = 20;

/// Bytes of the raw values of all packed ones in a batch, at most.
const UNPACKED_BYTES_MAX: usize = BATCH_BYTES_MAX;

const _: () = assert!(
    BATCH_BYTES_MAX + UNPACKED_BYTES_MAX + OPERATIONS_MAX * RECORD_OVERHEAD_MAX < FOOTPRINT_MAX,
    "the memtable's memory for any batch can be reserved"
);
const _: () = assert!(
    BATCH_BYTES_MAX / LARGE_VALUE_LEN <= LARGE_PER_BATCH
        && MEMTABLE_BYTES_LIMIT / LARGE_VALUE_LEN <= LARGE_PER_BATCH,
    "every large value of a batch or of a memtable has a chunk of its own"
);

/// A thread keeps the memory of a batch for its next one, if it has at most so many bytes. What packing needs beside raw values
/// is not counted.
const KEPT_LEN_MAX: usize = 1 << 20;

thread_local! {
    /// The memory of this thread's last batch.
    static KEPT: Cell<Option<Operations>> = const { Cell::new(None) };
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Operations {
    record: RecordBuf,
    count: u32,
    /// Hash of the first operation's key, as [`Operation::hash`]; not set while there is none.
    first_hash: u64,
    footprint: Footprint,
    /// Whether a value is not in the payload as it is: it has a region of its own, or it is packed.
    is_in_pieces: bool,
    packing: Option<Box<Packing>>,
}

/// What packing needs. Threads keep it for their next batch.
#[derive(Default)]
struct Packing {
    packer: ValuePacker,
    /// The raw values of all packed ones, in their order.
    raw: Vec<u8>,
}

impl Operations {
    /// No operations, in the memory of this thread's last batch if that was kept.
    pub(crate) fn in_kept_memory() -> Self {
        // None is kept any more while the values of a thread that ends are dropped.
        KEPT.try_with(Cell::take).ok().flatten().unwrap_or_default()
    }

    /// Keeps the memory for this thread's next batch, without the regions of large values, which a failed commit has left.
    pub(crate) fn keep_memory(mut self) {
        self.clear();
        let raw = self.packing.as_ref().map_or(0, |packing| packing.raw.capacity());
        if self.record.capacity() + raw <= KEPT_LEN_MAX {
            let _dropped_instead = KEPT.try_with(|kept| kept.set(Some(self)));
        }
    }

    /// Adds a put or, with no value, a delete. `sizes` says whether the value is separated, whether it may be packed, and
    /// whether it gets a region of its own; only such a value is compared with [`VALUE_LEN_MAX`].
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
            Some(value) if value.len() >= sizes.separated => {
                if sizes.packs(value.len()) && self.push_packed(partition, key, value)? {
                    return Ok(());
                }
                ValueKind::ValuePointer
            }
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
        self.is_in_pieces = true;
        self.record.push_region(piece);
        self.footprint =
            self.footprint.and(Memtable::footprint_of_large(PARTITION_PREFIX_LEN + key.len(), value.len()));
        Ok(())
    }

    /// Adds a separated put with its value packed. Returns whether that saves enough; if not, nothing is added.
    ///
    /// Requires: there is room for the raw value.
    #[cold]
    fn push_packed(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut packing = self.packing.take().unwrap_or_default();
        let has_room = packing.raw.len() + value.len() <= UNPACKED_BYTES_MAX;
        let packed = if has_room { packing.packer.pack(value) } else { None };
        let is_packed = packed.is_some();
        if let Some(packed) = packed {
            let crc = packed_checksum(partition, key, packed);
            self.push_head_as(partition, key, PACKED_PUT, Some(packed.len()), Some(crc));
            self.record.bytes_mut().extend_from_slice(packed);
            packing.raw.extend_from_slice(value);
            self.is_in_pieces = true;
            let footprint = Memtable::footprint(PARTITION_PREFIX_LEN + key.len(), PLACE_LEN + value.len());
            self.footprint = self.footprint.and(footprint);
        }
        self.packing = Some(packing);
        if has_room { Ok(is_packed) } else { Err(too_long()) }
    }

    /// Adds the bytes in front of a value that is not packed.
    #[inline]
    fn push_head(&mut self, partition: PartitionId, key: &[u8], kind: ValueKind, value: &[u8]) {
        let len = (kind != ValueKind::Tombstone).then_some(value.len());
        let crc = (kind == ValueKind::ValuePointer).then(|| checksum(partition, key, value));
        self.push_head_as(partition, key, kind.number(), len, crc);
    }

    /// Adds the bytes in front of a value.
    #[inline]
    fn push_head_as(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        number: u8,
        value_len: Option<usize>,
        crc: Option<u32>,
    ) {
        let out = self.record.bytes_mut();
        out.push(number);
        put_varint(out, u64::from(partition.get()));
        put_varint(out, key.len() as u64);
        if let Some(len) = value_len {
            put_varint(out, len as u64);
        }
        out.extend_from_slice(key);
        if let Some(crc) = crc {
            out.extend_from_slice(&crc.to_le_bytes());
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
        Err(too_long())
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

    /// Bytes that a commit copies: the payload, and the raw values of packed ones.
    pub(crate) fn copied_len(&self) -> usize {
        let raw =
            if self.is_in_pieces { self.packing.as_ref().map_or(0, |packing| packing.raw.len()) } else { 0 };
        self.payload_len() + raw
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

    /// Visits the operations in their order, with raw values.
    #[inline]
    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(Operation<'_>)) {
        if self.is_in_pieces {
            return self.for_each_in_pieces(visit);
        }
        Self::decode(self.record.payload(), visit).expect("operations were encoded here");
    }

    /// Shows the hashes of their keys, if no large or packed value is among them. Operations that cannot be decoded are left out:
    /// the panic is that of who inserts them.
    pub(crate) fn for_each_hash(&self, visit: &mut dyn FnMut(u64)) {
        if !self.is_in_pieces {
            let _who_inserts_panics = Self::decode(self.record.payload(), &mut |op| visit(op.hash()));
        }
    }

    #[cold]
    fn for_each_in_pieces(&self, visit: &mut dyn FnMut(Operation<'_>)) {
        let offsets = self.record.regions().map(|(at, _)| at);
        let mut values = self.record.regions().map(|(_, piece)| piece.bytes());
        let raw = self.packing.as_ref().map_or(&[][..], |packing| &packing.raw);
        Self::decode_without(self.record.payload(), offsets, raw, &mut |op, is_region| {
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
        let raw = self.packing.as_ref().map_or(&[][..], |packing| &packing.raw);
        Self::decode_without(self.record.payload(), offsets.into_iter(), raw, &mut |op, is_region| {
            visit(op, if is_region { pieces.next() } else { None });
        });
    }

    /// Visits the operations of a payload that lacks the values at `offsets`, and whose packed values have the `raw` bytes.
    /// `visit` learns whether its value is missing.
    fn decode_without(
        payload: &[u8],
        offsets: impl Iterator<Item = usize>,
        mut raw: &[u8],
        visit: &mut dyn FnMut(Operation<'_>, bool),
    ) {
        let (mut rest, mut offsets) = (Decoder(payload), offsets.peekable());
        let mut region_bytes = 0;
        while !rest.is_empty() {
            let head = Operation::decode_head(&mut rest);
            let (op, value_len) = head.expect("operations were encoded here");
            let at = payload.len() - rest.0.len();
            let is_region = offsets.next_if_eq(&at).is_some();
            let stored = rest.take(if is_region { 0 } else { value_len });
            let op = stored.and_then(|stored| op.with_stored(stored));
            let mut op = op.expect("operations were encoded here");
            if let Some(packed) = op.packed.take() {
                (op.value, raw) = raw.split_at(packed.raw_len());
            }
            visit(Operation { stored_len: value_len, value_at: at + region_bytes, ..op }, is_region);
            region_bytes += if is_region { value_len } else { 0 };
        }
    }

    /// Whether a value is not in the payload as it is.
    #[inline]
    pub(crate) fn is_in_pieces(&self) -> bool {
        self.is_in_pieces
    }

    pub(crate) fn record_mut(&mut self) -> &mut RecordBuf {
        &mut self.record
    }

    pub(crate) fn clear(&mut self) {
        self.record.clear();
        self.count = 0;
        self.footprint = Footprint::default();
        if std::mem::take(&mut self.is_in_pieces)
            && let Some(packing) = &mut self.packing
        {
            packing.raw.clear();
        }
    }

    /// Memory that the operations of a payload will take in a memtable. Requires: the payload was checked.
    pub(crate) fn footprint_of(payload: &[u8]) -> Footprint {
        let mut sum = Footprint::default();
        let decoded = Self::decode(payload, &mut |op| {
            let len = op.raw_len() + place_len(op.kind);
            sum = sum.and(Memtable::footprint(PARTITION_PREFIX_LEN + op.user_key.len(), len));
        });
        debug_assert!(decoded.is_ok(), "checked before");
        sum
    }

    /// Visits the operations of a log record's payload, with their values as they are stored; an error message if the payload is
    /// malformed. Blocks of packed values are not looked at.
    pub(crate) fn decode(payload: &[u8], visit: &mut dyn FnMut(Operation<'_>)) -> Result<(), &'static str> {
        let (mut rest, mut unpacked) = (Decoder(payload), 0);
        while !rest.is_empty() {
            let op = Operation::decode(&mut rest).ok_or("an operation of the batch is malformed")?;
            if let Some(packed) = op.packed {
                unpacked += packed.raw_len();
                if unpacked > UNPACKED_BYTES_MAX {
                    return Err("its packed values would take too much memory");
                }
            }
            let value_at = payload.len() - rest.0.len() - op.value.len();
            visit(Operation { value_at, ..op });
        }
        Ok(())
    }

    /// As [`Operations::decode`], but with raw values. After an error, some operations may have been visited.
    pub(crate) fn decode_raw(
        payload: &[u8],
        visit: &mut dyn FnMut(Operation<'_>),
    ) -> Result<(), &'static str> {
        let (mut scratch, mut is_malformed) = (Vec::new(), false);
        Self::decode(payload, &mut |op| match op.packed {
            _ if is_malformed => {}
            None => visit(op),
            Some(packed) => match packed.unpack(&mut scratch) {
                Some(value) => visit(Operation { value, packed: None, ..op }),
                None => is_malformed = true,
            },
        })?;
        if is_malformed { Err("a value of the batch cannot be unpacked") } else { Ok(()) }
    }
}

#[cold]
fn too_long() -> Error {
    Error::invalid(format!("the batch would exceed {BATCH_BYTES_MAX} bytes; commit it in smaller pieces"))
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
    /// As the visit gives it: raw, or as it is stored.
    pub(crate) value: &'a [u8],
    /// What `value` is, if it is packed.
    pub(crate) packed: Option<PackedValue<'a>>,
    /// Where the stored value begins in the payload. In front of a separated one is its checksum.
    pub(crate) value_at: usize,
    /// Bytes of the stored value.
    pub(crate) stored_len: usize,
}

impl<'a> Operation<'a> {
    #[inline]
    fn decode(rest: &mut Decoder<'a>) -> Option<Self> {
        let (head, value_len) = Self::decode_head(rest)?;
        head.with_stored(rest.take(value_len)?)
    }

    /// The operation with its stored value; `None` if it should be packed and cannot be.
    #[inline]
    fn with_stored(mut self, stored: &'a [u8]) -> Option<Self> {
        (self.value, self.stored_len) = (stored, stored.len());
        if self.packed.is_some() {
            self.packed = Some(PackedValue::decode(stored)?);
        }
        Some(self)
    }

    /// Decodes the bytes in front of the value, and the value's length.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "45 instructions of each put, measured")]
    fn decode_head(rest: &mut Decoder<'a>) -> Option<(Self, usize)> {
        let number = rest.u8()?;
        let (kind, packed) = match ValueKind::from_number(number) {
            Some(kind) => (kind, None),
            None if number == PACKED_PUT => (ValueKind::ValuePointer, Some(PackedValue::UNKNOWN)),
            None => return None,
        };
        let partition = rest.u32()?;
        let key_len = rest.usize()?;
        let value_len = if kind == ValueKind::Tombstone { 0 } else { rest.usize()? };
        if key_len > KEY_LEN_MAX || value_len > VALUE_LEN_MAX {
            return None;
        }
        let user_key = rest.take(key_len)?;
        if kind == ValueKind::ValuePointer {
            rest.take(CHECKSUM_LEN)?;
        }
        let partition = PartitionId(partition);
        let op = Self { kind, partition, user_key, value: &[], packed, value_at: 0, stored_len: 0 };
        Some((op, value_len))
    }

    /// Bytes of the raw value.
    #[inline]
    pub(crate) fn raw_len(&self) -> usize {
        self.packed.map_or(self.value.len(), PackedValue::raw_len)
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

/// An error when `key` is too long.
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        0..=KEY_LEN_MAX => Ok(()),
        len => Err(Error::invalid(format!("the key has {len} bytes; a key has at most {KEY_LEN_MAX}"))),
    }
}

#[cfg(test)]
mod tests;
