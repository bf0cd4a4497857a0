//! Write batches: operations over any partitions that become visible and durable together.
//!
//! A batch is built in the bytes that the log will hold, so that committing it copies nothing: for each operation the
//! kind, the length of the partition key, for a put the length of the value, then the bytes themselves.
//! Layout: docs/format/batch.md.

use pleach_env::{Error, Result};
use pleach_log::RecordBuf;
use pleach_table::{ValueKind, key_hash};

use crate::coding::{Decoder, put_varint};
use crate::keys::{self, PARTITION_PREFIX_LEN, PartitionId};
use crate::limits::{BATCH_BYTES_MAX, KEY_LEN_MAX, PARTITION_KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::memtable::Memtable;

/// Operations in the form of a log record.
#[derive(Default)]
pub(crate) struct Operations {
    record: RecordBuf,
    count: u32,
    footprint: usize,
}

impl Operations {
    /// Adds a put or, with no value, a delete.
    pub(crate) fn push(&mut self, partition: PartitionId, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_key(key)?;
        let value_bytes = value.unwrap_or_default();
        check_value_len(value_bytes.len())?;
        let added = 16 + key.len() + value_bytes.len();
        if self.record.payload_len() + added > BATCH_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the batch would exceed {BATCH_BYTES_MAX} bytes; commit it in smaller pieces"
            )));
        }
        let out = self.record.bytes_mut();
        let kind = if value.is_some() { ValueKind::Put } else { ValueKind::Tombstone };
        out.push(kind.number());
        put_varint(out, (PARTITION_PREFIX_LEN + key.len()) as u64);
        if value.is_some() {
            put_varint(out, value_bytes.len() as u64);
        }
        out.extend_from_slice(&partition.prefix());
        out.extend_from_slice(key);
        out.extend_from_slice(value_bytes);
        self.count += 1;
        self.footprint += Memtable::footprint(PARTITION_PREFIX_LEN + key.len(), value_bytes.len());
        Ok(())
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Memory the operations will take in a memtable.
    pub(crate) fn footprint(&self) -> usize {
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
        self.footprint = 0;
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
    pub(crate) partition_key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Operation<'a> {
    #[inline]
    fn decode(rest: &mut Decoder<'a>) -> Option<Self> {
        let kind = ValueKind::from_number(rest.u8()?)?;
        let key_len = rest.len()?;
        let value_len = if kind == ValueKind::Tombstone { 0 } else { rest.len()? };
        if key_len > PARTITION_KEY_LEN_MAX || value_len > VALUE_LEN_MAX {
            return None;
        }
        let partition_key = rest.take(key_len)?;
        let value = rest.take(value_len)?;
        let (partition, user_key) = keys::split_partition_key(partition_key)?;
        (!user_key.is_empty()).then_some(Self { kind, partition, partition_key, value })
    }

    /// The hash by which memtables, filters and blocks know the key.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        key_hash(self.partition.0, &self.partition_key[PARTITION_PREFIX_LEN..])
    }
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
