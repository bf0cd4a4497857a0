//! Write batches: operations over any partitions that become visible and durable together.
//!
//! A batch is built in the bytes that the log will hold, so that committing it copies nothing: for each operation the
//! kind, the partition, the length of the key, for a put the length of the value, then the bytes themselves.
//! Layout: docs/format/batch.md.

use pleach_env::{Error, Result};
use pleach_log::RecordBuf;
use pleach_table::{ValueKind, key_hash};

use crate::coding::{Decoder, put_varint};
use crate::keys::{PARTITION_PREFIX_LEN, PartitionId, PartitionKey, partition_key};
use crate::limits::{BATCH_BYTES_MAX, KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::memtable::{Footprint, Memtable};

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
        check_value_len(value_bytes.len())?;
        if !self.has_room_for(16 + key.len() + value_bytes.len()) {
            return Err(Error::invalid(format!(
                "the batch would exceed {BATCH_BYTES_MAX} bytes; commit it in smaller pieces"
            )));
        }
        let out = self.record.bytes_mut();
        let kind = if value.is_some() { ValueKind::Put } else { ValueKind::Tombstone };
        out.push(kind.number());
        put_varint(out, u64::from(partition.get()));
        put_varint(out, key.len() as u64);
        if value.is_some() {
            put_varint(out, value_bytes.len() as u64);
        }
        out.extend_from_slice(key);
        out.extend_from_slice(value_bytes);
        self.count += 1;
        self.footprint = self.footprint.and(footprint(key, value_bytes));
        Ok(())
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

    pub(crate) fn payload(&self) -> &[u8] {
        self.record.payload()
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
        let kind = ValueKind::from_number(rest.u8()?)?;
        if kind == ValueKind::ValuePointer {
            return None; // A batch carries values; only files point to them.
        }
        let partition = rest.u32()?;
        let key_len = rest.len()?;
        let value_len = if kind == ValueKind::Tombstone { 0 } else { rest.len()? };
        if !(1..=KEY_LEN_MAX).contains(&key_len) || value_len > VALUE_LEN_MAX {
            return None;
        }
        let user_key = rest.take(key_len)?;
        let value = rest.take(value_len)?;
        Some(Self { kind, partition: PartitionId(partition), user_key, value })
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
