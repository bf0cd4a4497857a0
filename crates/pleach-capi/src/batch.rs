//! Write batches, and the removal of ranges of keys.

use std::ffi::c_void;

use pleach::{Db, Partition, WriteBatch};
use pleach_ffi::guard;

use crate::arguments::{bounds, bytes, required};
use crate::error::{ErrorHandle, Result, report};
use crate::options::durability;
use crate::partition::PartitionHandle;

/// Puts and deletes over any partitions of one store that become visible and durable together. It keeps the store open.
///
/// Thread safety: one thread at a time.
pub struct BatchHandle {
    db: Db,
    batch: WriteBatch,
}

const _: () = pleach_ffi::assert_movable::<BatchHandle>();

impl BatchHandle {
    pub(crate) fn new(db: &Db) -> Self {
        Self { db: db.clone(), batch: db.batch() }
    }
}

/// Adds a delete for each entry that `partition` has now from `lower` on and below `upper`.
pub(crate) fn delete_range(
    batch: &mut WriteBatch,
    partition: &Partition,
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> Result<()> {
    let mut cursor = partition.cursor()?;
    let mut is_found = cursor.seek(lower.unwrap_or_default())?;
    while is_found && let Some(key) = cursor.key().filter(|key| upper.is_none_or(|upper| *key < upper)) {
        let len = batch.len();
        batch.delete(partition, key);
        if batch.len() == len {
            break; // It is full, which its commit reports.
        }
        is_found = cursor.next()?;
    }
    Ok(())
}

/// Adds a put. `pleach_batch_write` reports a key or value that is too long.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_batch_put(
    batch: Option<&mut BatchHandle>,
    partition: Option<&PartitionHandle>,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        let (batch, partition) = (required(batch, "batch")?, required(partition, "partition")?);
        // SAFETY: by the contract.
        let (key, value) = unsafe { (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?) };
        batch.batch.put(&partition.partition, key, value);
        Ok(())
    })
}

/// Adds a delete of a key, which need not be there.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_batch_delete(
    batch: Option<&mut BatchHandle>,
    partition: Option<&PartitionHandle>,
    key: *const c_void,
    key_len: usize,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        let (batch, partition) = (required(batch, "batch")?, required(partition, "partition")?);
        // SAFETY: by the contract.
        batch.batch.delete(&partition.partition, unsafe { bytes(key, key_len, "key")? });
        Ok(())
    })
}

/// Adds a delete of each key that `partition` has now, at or above `lower` and below `upper`. A bound whose pointer is null is
/// none. Keys that are put later, by this batch too, stay. It reads all keys of the range, and each takes room in the batch.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_batch_delete_range(
    batch: Option<&mut BatchHandle>,
    partition: Option<&PartitionHandle>,
    lower: *const c_void,
    lower_len: usize,
    upper: *const c_void,
    upper_len: usize,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        let (batch, partition) = (required(batch, "batch")?, required(partition, "partition")?);
        // SAFETY: by the contract.
        let (lower, upper) = unsafe { bounds((lower, lower_len), (upper, upper_len))? };
        delete_range(&mut batch.batch, &partition.partition, lower, upper)
    })
}

/// Removes all operations, and the error of one that was refused.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_batch_clear(batch: Option<&mut BatchHandle>) -> Option<Box<ErrorHandle>> {
    report(|| {
        required(batch, "batch")?.batch.clear();
        Ok(())
    })
}

/// The number of operations. 0 for null.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_batch_count(batch: Option<&BatchHandle>) -> usize {
    guard(0, || batch.map_or(0, |batch| batch.batch.len()))
}

/// Bytes that the batch will take in the log; at most 1 GiB can be written. 0 for null.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_batch_bytes(batch: Option<&BatchHandle>) -> usize {
    guard(0, || batch.map_or(0, |batch| batch.batch.bytes()))
}

/// Writes all operations, or none if it returns an error, and empties the batch in both cases. `durability` is a
/// `pleach_durability`; an unknown one is an error that leaves the batch as it is.
///
/// Errors: `PLEACH_CODE_INVALID_ARGUMENT` if a key, a value or the batch is too long, or a partition belongs to another store;
/// those of `pleach_partition_put`.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_batch_write(
    batch: Option<&mut BatchHandle>,
    durability: u32,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        let (handle, durability) = (required(batch, "batch")?, self::durability(durability)?);
        let batch = std::mem::replace(&mut handle.batch, handle.db.batch());
        Ok(batch.commit(durability)?)
    })
}

/// Frees a batch without writing it. Null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_batch_free(batch: Option<Box<BatchHandle>>) {
    guard((), || drop(batch));
}
