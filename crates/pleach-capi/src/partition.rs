//! Partitions: `pleach_partition`, its reads and writes.

use std::ffi::{CString, c_char, c_void};
use std::ops::Bound;

use pleach::{Db, Partition, Value};
use pleach_ffi::guard;
use serde_json::Map;

use crate::arguments::{Slot, bounds, bytes, required};
use crate::batch::delete_range;
use crate::cursor::CursorHandle;
use crate::db::give_json;
use crate::error::{ErrorHandle, Result, report};
use crate::options::durability;
use crate::snapshot::SnapshotHandle;
use crate::value::ValueHandle;

/// An independent key space of a store, ordered by the bytes of the keys. It keeps the store open.
///
/// Keys have at most 1 MiB, values at most 512 MiB; both may be empty and have any bytes.
///
/// Thread safety: any number of threads may use it at the same time.
pub struct PartitionHandle {
    pub(crate) db: Db,
    pub(crate) partition: Partition,
    pub(crate) name: CString,
}

const _: () = pleach_ffi::assert_shared::<PartitionHandle>();

impl PartitionHandle {
    /// The value of a key, now or in a snapshot.
    #[inline]
    fn read(&self, snapshot: Option<&SnapshotHandle>, key: &[u8]) -> pleach::Result<Option<Value>> {
        match snapshot {
            None => self.partition.get(key),
            Some(snapshot) => snapshot.snapshot.get(&self.partition, key),
        }
    }
}

/// The name of a partition, which lives as long as the handle. Null for null.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_partition_name(partition: Option<&PartitionHandle>) -> *const c_char {
    partition.map_or(std::ptr::null(), |partition| partition.name.as_ptr())
}

/// Frees the handle, not the partition. Null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_partition_free(partition: Option<Box<PartitionHandle>>) {
    guard((), || drop(partition));
}

/// Reads the value of `key`, in `snapshot` or, if that is null, now. `*value` is lent: it points to where the value lies, and
/// the caller releases it with `pleach_value_release`. If there is no value, or after an error, its `data` is null; it need not
/// be released then, but may be. What was in `*value` before is overwritten.
///
/// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for a key that is too long, `PLEACH_CODE_CLOSED`, `PLEACH_CODE_IO`,
/// `PLEACH_CODE_CORRUPTION`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_partition_get(
    partition: Option<&PartitionHandle>,
    snapshot: Option<&SnapshotHandle>,
    key: *const c_void,
    key_len: usize,
    value: *mut ValueHandle,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let (slot, key) =
            unsafe { (Slot::new(value, ValueHandle::EMPTY, "value")?, bytes(key, key_len, "key")?) };
        if let Some(value) = required(partition, "partition")?.read(snapshot, key)? {
            slot.fill(ValueHandle::new(value));
        }
        Ok(())
    })
}

/// Copies the value of `key`, in `snapshot` or, if that is null, now, into `buffer`: as much as its `capacity` has room for.
/// `*value_len` is the length of the whole value, so a value longer than `capacity` can be read again with more room. `*found`
/// says whether there is a value. `buffer` may be null if `capacity` is 0.
///
/// Errors: those of `pleach_partition_get`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_partition_get_copy(
    partition: Option<&PartitionHandle>,
    snapshot: Option<&SnapshotHandle>,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    capacity: usize,
    value_len: *mut usize,
    found: *mut bool,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let (len, found) =
            unsafe { (Slot::new(value_len, 0, "value_len")?, Slot::new(found, false, "found")?) };
        // SAFETY: by the contract.
        let key = unsafe { bytes(key, key_len, "key")? };
        if buffer.is_null() && capacity > 0 {
            return Err(ErrorHandle::invalid("buffer is null, and its capacity is not 0"));
        }
        let Some(value) = required(partition, "partition")?.read(snapshot, key)? else { return Ok(()) };
        let copied = value.len().min(capacity);
        if copied > 0 {
            // SAFETY: by the contract the buffer has room for `capacity` bytes; it is the caller's, so the value is elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), copied) };
        }
        len.fill(value.len());
        found.fill(true);
        Ok(())
    })
}

/// Whether `key` has a value, in `snapshot` or, if that is null, now.
///
/// Errors: those of `pleach_partition_get`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_partition_contains(
    partition: Option<&PartitionHandle>,
    snapshot: Option<&SnapshotHandle>,
    key: *const c_void,
    key_len: usize,
    found: *mut bool,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let (slot, key) = unsafe { (Slot::new(found, false, "found")?, bytes(key, key_len, "key")?) };
        slot.fill(required(partition, "partition")?.read(snapshot, key)?.is_some());
        Ok(())
    })
}

/// Sets the value of `key`. `durability` is a `pleach_durability`.
///
/// Errors: `PLEACH_CODE_INVALID_ARGUMENT` if key or value are too long, or for an unknown durability; `PLEACH_CODE_IO` if the
/// disk is full (nothing is lost, see `pleach_error_is_shortage`) or the store is open for reading only; `PLEACH_CODE_POISONED`
/// after a failure that stopped all writes; `PLEACH_CODE_CLOSED`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_partition_put(
    partition: Option<&PartitionHandle>,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    durability: u32,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let (key, value) = unsafe { (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?) };
        let durability = self::durability(durability)?;
        Ok(required(partition, "partition")?.partition.put_with(key, value, durability)?)
    })
}

/// Removes `key`, if it has a value. `durability` is a `pleach_durability`.
///
/// Errors: those of `pleach_partition_put`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_partition_delete(
    partition: Option<&PartitionHandle>,
    key: *const c_void,
    key_len: usize,
    durability: u32,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let key = unsafe { bytes(key, key_len, "key")? };
        let durability = self::durability(durability)?;
        Ok(required(partition, "partition")?.partition.delete_with(key, durability)?)
    })
}

/// Removes all keys at or above `lower` and below `upper`, in one batch. A bound whose pointer is null is none. Keys that others
/// put meanwhile may stay. It reads all keys of the range, and writes a delete for each; to remove everything, drop the
/// partition. `durability` is a `pleach_durability`.
///
/// Errors: those of `pleach_partition_put`; `PLEACH_CODE_INVALID_ARGUMENT` if the keys take more than a batch can have, 1 GiB:
/// then nothing was removed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_partition_delete_range(
    partition: Option<&PartitionHandle>,
    lower: *const c_void,
    lower_len: usize,
    upper: *const c_void,
    upper_len: usize,
    durability: u32,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let (lower, upper) = unsafe { bounds((lower, lower_len), (upper, upper_len))? };
        let (partition, durability) = (required(partition, "partition")?, self::durability(durability)?);
        let mut batch = partition.db.batch();
        delete_range(&mut batch, &partition.partition, lower, upper)?;
        Ok(batch.commit(durability)?)
    })
}

/// A cursor over all entries, on none yet, in `*cursor`. It reads the partition as it is now, or in `snapshot` if that is not
/// null. It pins memory and files, so free it soon, with `pleach_cursor_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_partition_cursor(
    partition: Option<&PartitionHandle>,
    snapshot: Option<&SnapshotHandle>,
    cursor: *mut *mut CursorHandle,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let slot = unsafe { Slot::of_handle(cursor, "cursor")? };
        let partition = required(partition, "partition")?;
        let cursor = match snapshot {
            None => partition.partition.cursor()?,
            Some(snapshot) => snapshot.snapshot.cursor(&partition.partition)?,
        };
        slot.give(CursorHandle::new(cursor, partition.partition.clone()));
        Ok(())
    })
}

/// Merges the partition into one sorted run, and waits for that.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_partition_compact(partition: Option<&PartitionHandle>) -> Option<Box<ErrorHandle>> {
    report(|| Ok(required(partition, "partition")?.partition.compact()?))
}

/// Merges what the partition holds at or above `lower` and below `upper`, and waits for that. A bound whose pointer is null is
/// none. It writes little besides the range, and nothing where there is nothing to merge.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_partition_compact_range(
    partition: Option<&PartitionHandle>,
    lower: *const c_void,
    lower_len: usize,
    upper: *const c_void,
    upper_len: usize,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let (lower, upper) = unsafe { bounds((lower, lower_len), (upper, upper_len))? };
        let lower = lower.map_or(Bound::Unbounded, Bound::Included);
        let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(required(partition, "partition")?.partition.compact_range::<&[u8]>((lower, upper))?)
    })
}

/// Estimates the bytes and entries at or above `lower` and below `upper`, without reading data. A bound whose pointer is null is
/// none. Entries in memory are not counted; overwritten and deleted ones are, until a compaction removes them.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_partition_approximate_size(
    partition: Option<&PartitionHandle>,
    lower: *const c_void,
    lower_len: usize,
    upper: *const c_void,
    upper_len: usize,
    size: *mut u64,
    entries: *mut u64,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let (size, entries) = unsafe { (Slot::new(size, 0, "size")?, Slot::new(entries, 0, "entries")?) };
        // SAFETY: by the contract.
        let (lower, upper) = unsafe { bounds((lower, lower_len), (upper, upper_len))? };
        let partition = &required(partition, "partition")?.partition;
        let estimate = estimate(partition, lower, upper)?;
        size.fill(estimate.bytes);
        entries.fill(estimate.entries);
        Ok(())
    })
}

fn estimate(
    partition: &Partition,
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> Result<pleach::SizeEstimate> {
    let lower = lower.unwrap_or_default();
    let Some(upper) = upper else { return Ok(partition.approximate_size(lower..)?) };
    // An empty range.
    if lower >= upper {
        return Ok(pleach::SizeEstimate::default());
    }
    Ok(partition.approximate_size(lower..upper)?)
}

/// The statistics of a partition as one JSON object, in `*json`: `entries`, `bytes`, `value_bytes`, `runs`, `sections`, `stages`.
/// Entries in memory are not counted. The caller frees the string with `pleach_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_partition_stats_json(
    partition: Option<&PartitionHandle>,
    json: *mut *mut c_char,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let slot = unsafe { Slot::of_handle(json, "json")? };
        let stats = required(partition, "partition")?.partition.stats()?;
        let members = [
            ("entries", stats.entries),
            ("bytes", stats.bytes),
            ("value_bytes", stats.value_bytes),
            ("runs", stats.runs),
            ("sections", stats.sections),
            ("stages", stats.stages),
        ];
        let object: Map<_, _> =
            members.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
        give_json(slot, object);
        Ok(())
    })
}
