//! Write batches: operations over any partitions that become visible and durable together.
//!
//! A batch is built in the bytes that the log will hold, so that committing it copies nothing: for each operation the
//! kind, the partition, the length of the key, for a put the length of the value, then the bytes themselves.
//! Layout: docs/format/batch.md.
//!
//! A large value is copied once, into a region that becomes part of the memtable after the log was written from it.

use pleach_coding::{Decoder, put_varint};
use pleach_env::memory::RegionBytes;
use pleach_env::{Error, Result, failpoint};
use pleach_log::RecordBuf;
use pleach_table::{ValueKind, key_hash};

use crate::keys::{PARTITION_PREFIX_LEN, PartitionId, PartitionKey, partition_key};
use crate::limits::{BATCH_BYTES_MAX, KEY_LEN_MAX, OPERATIONS_MAX, VALUE_LEN_MAX};
use crate::memtable::{FOOTPRINT_MAX, Footprint, LARGE_FRONT, LARGE_PER_BATCH, Memtable};

/// Length from which on a value gets a region of its own: mapping one costs little beside copying so many bytes, and a
/// memtable of the largest size has room for all that fit into it.
const LARGE_VALUE_LEN: usize = 4 << 20;

/// Upper bound of a memtable record's bytes beyond those of the operation (see `memtable/entry`).
const RECORD_OVERHEAD_MAX: usize = 64;

const _: () = assert!(
    BATCH_BYTES_MAX + OPERATIONS_MAX * RECORD_OVERHEAD_MAX < FOOTPRINT_MAX,
    "the memtable's memory for any batch can be reserved"
);
const _: () = assert!(
    BATCH_BYTES_MAX / LARGE_VALUE_LEN <= LARGE_PER_BATCH
        && crate::options::MEMTABLE_BYTES_LIMIT / LARGE_VALUE_LEN <= LARGE_PER_BATCH,
    "every large value of a batch or of a memtable finds a chunk of its own"
);

/// [`LARGE_VALUE_LEN`] under the site `tune.large_values`, for the rigs, whose values are small.
const LARGE_VALUE_LEN_TUNED: usize = 500;

/// Operations in the form of a log record.
#[derive(Default)]
pub(crate) struct Operations {
    record: RecordBuf,
    count: u32,
    footprint: Footprint,
}

impl Operations {
    /// Adds a put or, with no value, a delete.
    pub(crate) fn push(&mut self, partition: PartitionId, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_key(key)?;
        let value_bytes = value.unwrap_or_default();
        if is_large(value_bytes.len()) && self.record.regions().count() < LARGE_PER_BATCH {
            return self.push_large(partition, key, value_bytes);
        }
        self.check_room_for(key.len() + value_bytes.len())?;
        self.push_head(partition, key, value);
        self.record.bytes_mut().extend_from_slice(value_bytes);
        self.footprint = self.footprint.and(footprint(key, value_bytes));
        Ok(())
    }

    /// Adds a put whose value gets a region of its own.
    #[cold]
    fn push_large(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<()> {
        check_value_len(value.len())?;
        self.check_room_for(key.len() + value.len())?;
        let Some(piece) = RegionBytes::try_copy(LARGE_FRONT, value) else {
            return Err(Error::invalid(format!(
                "a value of {} bytes needs as much memory, which the system does not give; let the process have more",
                value.len()
            )));
        };
        self.push_head(partition, key, Some(value));
        self.record.push_region(piece);
        self.footprint = self.footprint.and(footprint_of_large(key, value));
        Ok(())
    }

    /// Adds what stands before the value.
    #[inline]
    fn push_head(&mut self, partition: PartitionId, key: &[u8], value: Option<&[u8]>) {
        let out = self.record.bytes_mut();
        let kind = if value.is_some() { ValueKind::Put } else { ValueKind::Tombstone };
        out.push(kind.number());
        put_varint(out, u64::from(partition.get()));
        put_varint(out, key.len() as u64);
        if let Some(value) = value {
            put_varint(out, value.len() as u64);
        }
        out.extend_from_slice(key);
        self.count += 1;
    }

    #[inline]
    fn check_room_for(&self, added: usize) -> Result<()> {
        if self.has_room_for(16 + added) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the batch would exceed {BATCH_BYTES_MAX} bytes; commit it in smaller pieces"
        )))
    }

    fn has_room_for(&self, added: usize) -> bool {
        added <= BATCH_BYTES_MAX - self.record.payload_len()
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Memory the operations will take in a memtable.
    pub(crate) fn footprint(&self) -> Footprint {
        self.footprint
    }

    /// Bytes of the log record.
    pub(crate) fn record_len(&self) -> usize {
        self.record.record_len()
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

    /// As [`Operations::for_each`]; large values come as regions, to keep, and their operations without a value.
    ///
    /// Guarantees: what is left has its length still, and serves to be cleared only.
    pub(crate) fn take_each(&mut self, visit: &mut dyn FnMut(Operation<'_>, Option<RegionBytes>)) {
        let offsets: Vec<_> = self.record.regions().map(|(at, _)| at).collect();
        let mut pieces = self.record.take_regions();
        Self::decode_without(self.record.payload(), offsets.into_iter(), &mut |op, is_region| {
            visit(op, if is_region { pieces.next() } else { None });
        });
    }

    /// Visits the operations of a payload in which the values at `offsets` are missing; told which are.
    fn decode_without(
        payload: &[u8],
        offsets: impl Iterator<Item = usize>,
        visit: &mut dyn FnMut(Operation<'_>, bool),
    ) {
        let (mut rest, mut offsets) = (Decoder(payload), offsets.peekable());
        while !rest.is_empty() {
            let head = Operation::decode_head(&mut rest);
            let (op, value_len) = head.expect("operations were encoded here");
            let at = payload.len() - rest.0.len();
            let is_region = offsets.next_if_eq(&at).is_some();
            let value = rest.take(if is_region { 0 } else { value_len });
            visit(Operation { value: value.expect("operations were encoded here"), ..op }, is_region);
        }
    }

    /// Whether there are large values, which [`Operations::take_each`] gives away.
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

    /// Memory that the operations of a checked payload will take in a memtable.
    pub(crate) fn footprint_of(payload: &[u8]) -> Footprint {
        let mut sum = Footprint::default();
        let decoded = Self::decode(payload, &mut |op| sum = sum.and(op.footprint()));
        debug_assert!(decoded.is_ok(), "checked before");
        sum
    }

    /// The operations that a log record's payload holds; an error message where it is no batch.
    pub(crate) fn decode(payload: &[u8], visit: &mut dyn FnMut(Operation<'_>)) -> Result<(), &'static str> {
        let mut rest = Decoder(payload);
        while !rest.is_empty() {
            visit(Operation::decode(&mut rest).ok_or("an operation of the batch is malformed")?);
        }
        Ok(())
    }
}

/// One operation of a batch.
pub(crate) struct Operation<'a> {
    pub(crate) kind: ValueKind,
    pub(crate) partition: PartitionId,
    pub(crate) user_key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Operation<'a> {
    #[inline]
    fn decode(rest: &mut Decoder<'a>) -> Option<Self> {
        let (head, value_len) = Self::decode_head(rest)?;
        Some(Self { value: rest.take(value_len)?, ..head })
    }

    /// Decodes what stands before the value, and its length.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "45 instructions of each put, measured")]
    fn decode_head(rest: &mut Decoder<'a>) -> Option<(Self, usize)> {
        let kind = ValueKind::from_number(rest.u8()?)?;
        if kind == ValueKind::ValuePointer {
            return None; // A batch carries values; only files point to them.
        }
        let partition = rest.u32()?;
        let key_len = rest.usize()?;
        let value_len = if kind == ValueKind::Tombstone { 0 } else { rest.usize()? };
        if !(1..=KEY_LEN_MAX).contains(&key_len) || value_len > VALUE_LEN_MAX {
            return None;
        }
        let user_key = rest.take(key_len)?;
        Some((Self { kind, partition: PartitionId(partition), user_key, value: &[] }, value_len))
    }

    /// The key by which memtables are ordered.
    #[inline]
    pub(crate) fn partition_key(&self) -> PartitionKey {
        partition_key(self.partition, self.user_key)
    }

    /// Memory the operation takes in a memtable.
    pub(crate) fn footprint(&self) -> Footprint {
        footprint(self.user_key, self.value)
    }

    /// The hash by which memtables, filters and blocks know the key.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        key_hash(self.partition.0, self.user_key)
    }
}

fn footprint(user_key: &[u8], value: &[u8]) -> Footprint {
    Memtable::footprint(PARTITION_PREFIX_LEN + user_key.len(), value.len())
}

fn footprint_of_large(user_key: &[u8], value: &[u8]) -> Footprint {
    Memtable::footprint_of_large(PARTITION_PREFIX_LEN + user_key.len(), value.len())
}

/// Whether a value of this length gets a region of its own.
#[inline]
fn is_large(value_len: usize) -> bool {
    value_len >= LARGE_VALUE_LEN
        || (failpoint::skipped("tune.large_values") && value_len >= LARGE_VALUE_LEN_TUNED)
}

/// An error when `key` is empty or too long.
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        1..=KEY_LEN_MAX => Ok(()),
        len => Err(Error::invalid(format!("the key has {len} bytes; a key has 1 to {KEY_LEN_MAX}"))),
    }
}

fn check_value_len(len: usize) -> Result<()> {
    if len <= VALUE_LEN_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!("the value has {len} bytes; a value has at most {VALUE_LEN_MAX}")))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    type Plain = (u32, Vec<u8>, Option<Vec<u8>>);

    fn operations(plain: &[Plain]) -> Operations {
        let mut operations = Operations::default();
        for (partition, key, value) in plain {
            operations.push(PartitionId(*partition), key, value.as_deref()).unwrap();
        }
        operations
    }

    fn decoded(payload: &[u8]) -> Result<Vec<Plain>, &'static str> {
        let mut plain = Vec::new();
        Operations::decode(payload, &mut |op| {
            let value = (op.kind == ValueKind::Put).then(|| op.value.to_vec());
            plain.push((op.partition.get(), op.user_key.to_vec(), value));
        })?;
        Ok(plain)
    }

    #[test]
    fn stored_bytes_are_fixed() {
        let batch = operations(&[(1, b"alice".to_vec(), Some(b"1".to_vec())), (258, b"x".to_vec(), None)]);
        assert_eq!(batch.payload(), b"\x01\x01\x05\x01alice1\x02\x82\x02\x01x");
        assert_eq!(batch.count(), 2);
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        for (payload, why) in [
            (&b"\0\x01\x01x"[..], "no kind"),
            (b"\x03\x01\x01\0x", "a value pointer"),
            (b"\x04\x01\x01x", "an unknown kind"),
            (b"\x02\x01\0", "an empty key"),
            (b"\x02\x81", "a partition that does not end"),
            (b"\x02\x80\x80\x80\x80\x10\x01x", "a partition above 2^32"),
            (b"\x02\x01\x80\x80\x04x", "a key above the limit"),
            (b"\x01\x01\x01\x81\x80\x80\x80\x02x", "a value above the limit"),
            (b"\x01\x01\x01\x02xv", "a value longer than the rest"),
            (b"\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01x", "a length of 2^64 - 1"),
        ] {
            assert!(decoded(payload).is_err(), "{why}");
        }
        assert_eq!(decoded(b""), Ok(vec![]));
    }

    #[test]
    fn a_batch_stays_below_its_limit() {
        let mut batch = operations(&[(0, b"k".to_vec(), None)]);
        // As if nearly a gibibyte were in it: the check must not need one.
        assert!(batch.has_room_for(BATCH_BYTES_MAX - batch.payload().len()));
        assert!(!batch.has_room_for(BATCH_BYTES_MAX - batch.payload().len() + 1));
        assert!(!batch.has_room_for(usize::MAX));
        let huge = vec![0; VALUE_LEN_MAX + 1];
        assert!(batch.push(PartitionId(0), b"k", Some(&huge)).is_err());
        assert_eq!(batch.count(), 1);
    }

    #[test]
    fn large_values_lie_apart_and_come_back() {
        let plain: Vec<Plain> = [499, 500, 3, 5_000, 0, 501]
            .iter()
            .zip(0u8..)
            .map(|(&len, n)| (u32::from(n), vec![n; 3], (len > 0).then(|| vec![n; len])))
            .collect();
        let whole = operations(&plain);
        let mut batch = failpoint::with_skipped("tune.large_values", || operations(&plain));
        assert!(batch.has_large() && !whole.has_large());
        assert_eq!((batch.payload_len(), batch.record_len()), (whole.payload_len(), whole.record_len()));
        assert_eq!(batch.footprint().large_bytes, 500 + 5_000 + 501 + 3 * LARGE_FRONT);
        let mut visited = Vec::new();
        batch.for_each(&mut |op| {
            let value = (op.kind == ValueKind::Put).then(|| op.value.to_vec());
            visited.push((op.partition.get(), op.user_key.to_vec(), value));
        });
        assert_eq!(visited, plain);
        let mut taken = Vec::new();
        batch.take_each(&mut |op, large| {
            let value = large.map_or_else(|| op.value.to_vec(), |large| large.bytes().to_vec());
            taken.push((
                op.partition.get(),
                op.user_key.to_vec(),
                (op.kind == ValueKind::Put).then_some(value),
            ));
        });
        assert_eq!(taken, plain);
        assert_eq!(batch.payload_len(), whole.payload_len(), "the length is charged after the commit");
        batch.clear();
        assert!(!batch.has_large() && batch.payload_len() == 0);
    }

    proptest! {
        #[test]
        fn batches_come_back(plain in vec((any::<u32>(), vec(any::<u8>(), 1..40), any::<Option<Vec<u8>>>()), 0..20)) {
            let batch = operations(&plain);
            prop_assert_eq!(decoded(batch.payload()), Ok(plain));
            for len in 0..batch.payload().len() {
                // A shorter batch may still be one, never another one.
                let short = decoded(&batch.payload()[..len]).unwrap_or_default();
                prop_assert!(short.len() < batch.count() as usize);
            }
        }

        #[test]
        fn any_bytes_give_an_error_or_operations_within_limits(bytes in vec(any::<u8>(), 0..200)) {
            let mut taken = 0;
            let _any_answer = Operations::decode(&bytes, &mut |op| taken += op.user_key.len() + op.value.len());
            prop_assert!(taken <= bytes.len());
        }
    }
}
