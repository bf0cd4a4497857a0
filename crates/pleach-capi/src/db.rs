//! Open stores: `pleach_db`, its partitions, and its upkeep.

use std::ffi::{CString, c_char};

use pleach::{Db, Partition, Stats};
use pleach_ffi::{allocate, copy_string, guard};
use serde_json::{Map, Value};

use crate::arguments::{Slot, path, required, text};
use crate::batch::BatchHandle;
use crate::error::{ErrorHandle, report};
use crate::options::OptionsHandle;
use crate::partition::PartitionHandle;
use crate::snapshot::SnapshotHandle;

/// An open store. It stays open until `pleach_db_close`, or until the last handle of it is freed: this one, partitions,
/// snapshots, cursors and batches.
///
/// Thread safety: any number of threads may use it at the same time. A process that is forked after the open must not
/// use it.
pub struct DbHandle {
    db: Db,
}

const _: () = pleach_ffi::assert_shared::<DbHandle>();

impl DbHandle {
    /// The store, for Rust programs that hand it to C.
    pub fn db(&self) -> &Db {
        &self.db
    }

    fn partition(&self, partition: Partition) -> PartitionHandle {
        // A name with a zero byte, which only Rust can create, ends there.
        let name = partition.name().split('\0').next().unwrap_or_default();
        let name = CString::new(name).unwrap_or_default();
        PartitionHandle { db: self.db.clone(), partition, name }
    }
}

/// # Safety
/// By the contract of the functions that open.
unsafe fn open(
    directory: *const c_char,
    options: Option<&OptionsHandle>,
    is_read_only: bool,
    db: *mut *mut DbHandle,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let (slot, path) = unsafe { (Slot::of_handle(db, "db")?, path(directory, "path")?) };
        let db = OptionsHandle::of(options).read_only(is_read_only).open(path)?;
        slot.give(DbHandle { db });
        Ok(())
    })
}

/// Opens the store in directory `path` for reading and writing, and recovers it after a crash. Creates it, and missing
/// directories, if it is not there. One process at a time can have a store open for writing.
///
/// `options` may be null for the defaults. On success `*db` is the store, which the caller frees with `pleach_db_free`;
/// otherwise it is null.
///
/// Errors: `PLEACH_CODE_NOT_FOUND` if there is no store and none may be created; `PLEACH_CODE_INVALID_ARGUMENT` if an option
/// is out of range, or the directory has files that are not a store's; `PLEACH_CODE_CONFLICT` if the store is open already;
/// `PLEACH_CODE_UNSUPPORTED` for a newer format; `PLEACH_CODE_CORRUPTION` for a damaged file; `PLEACH_CODE_IO`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_db_open(
    path: *const c_char,
    options: Option<&OptionsHandle>,
    db: *mut *mut DbHandle,
) -> Option<Box<ErrorHandle>> {
    // SAFETY: by the contract.
    unsafe { open(path, options, false, db) }
}

/// Opens the store in directory `path` for reading only, and changes nothing there. Any number of processes can do so together,
/// but not while one has the store open for writing. Writes fail with `PLEACH_CODE_IO`.
///
/// Otherwise as `pleach_db_open`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_db_open_read_only(
    path: *const c_char,
    options: Option<&OptionsHandle>,
    db: *mut *mut DbHandle,
) -> Option<Box<ErrorHandle>> {
    // SAFETY: by the contract.
    unsafe { open(path, options, true, db) }
}

/// Closes the store: makes all writes durable, ends its threads, and lets others open it at once. From then on every handle of
/// the store fails with `PLEACH_CODE_CLOSED`, for reads too. Values that were read before stay valid. Handles must be freed
/// all the same, also `db`. A second close returns what the first one did.
///
/// Errors: `PLEACH_CODE_POISONED` if an earlier failure had stopped all writes; the message says whether all writes are durable.
/// `PLEACH_CODE_IO` if the last sync fails. The store is closed in both cases.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_db_close(db: Option<&DbHandle>) -> Option<Box<ErrorHandle>> {
    report(|| Ok(required(db, "db")?.db.clone().close()?))
}

/// Frees the handle. If it was the last one of the store, the store is closed, and an error of that is lost: call
/// `pleach_db_close` before. Null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_db_free(db: Option<Box<DbHandle>>) {
    guard((), || drop(db));
}

/// The partition that every store has, in `*partition`. The caller frees it with `pleach_partition_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_db_default_partition(
    db: Option<&DbHandle>,
    partition: *mut *mut PartitionHandle,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let slot = unsafe { Slot::of_handle(partition, "partition")? };
        let db = required(db, "db")?;
        slot.give(db.partition(db.db.default_partition()));
        Ok(())
    })
}

/// The partition called `name` (UTF-8, 1 to 255 bytes), in `*partition`. If it is missing, a durable write creates it. The caller
/// frees it with `pleach_partition_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_db_create_partition(
    db: Option<&DbHandle>,
    name: *const c_char,
    partition: *mut *mut PartitionHandle,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let (slot, name) = unsafe { (Slot::of_handle(partition, "partition")?, text(name, "name")?) };
        let db = required(db, "db")?;
        slot.give(db.partition(db.db.partition(name)?));
        Ok(())
    })
}

/// The partition called `name`, in `*partition`; null if there is none, which is no error. The caller frees it with
/// `pleach_partition_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_db_find_partition(
    db: Option<&DbHandle>,
    name: *const c_char,
    partition: *mut *mut PartitionHandle,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let (slot, name) = unsafe { (Slot::of_handle(partition, "partition")?, text(name, "name")?) };
        let db = required(db, "db")?;
        if let Some(found) = db.db.find_partition(name) {
            slot.give(db.partition(found));
        }
        Ok(())
    })
}

/// Drops a partition with all its entries, by one small durable write. Its handles must be freed all the same; they fail with
/// `PLEACH_CODE_CLOSED`. Snapshots and cursors that were made before still read it.
///
/// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for the default partition and one of another store; `PLEACH_CODE_CLOSED` if it was
/// dropped before.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_db_drop_partition(
    db: Option<&DbHandle>,
    partition: Option<&PartitionHandle>,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        let (db, partition) = (required(db, "db")?, required(partition, "partition")?);
        Ok(db.db.drop_partition(partition.partition.clone())?)
    })
}

/// The names of all partitions, sorted: `*names` is an array of `*count` strings with a null behind them. The caller frees the
/// array, and with it the strings, with one `pleach_free`. A name with a zero byte, which C cannot create, is left out.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_db_partitions(
    db: Option<&DbHandle>,
    names: *mut *mut *mut c_char,
    count: *mut usize,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let (slot, count) = unsafe { (Slot::of_handle(names, "names")?, Slot::new(count, 0, "count")?) };
        let mut names = required(db, "db")?.db.partitions();
        names.retain(|name| !name.contains('\0'));
        count.fill(names.len());
        slot.fill(array_of_strings(&names));
        Ok(())
    })
}

/// An array of strings in one piece of memory from `malloc`: pointers, a null, and the strings.
fn array_of_strings(strings: &[String]) -> *mut *mut c_char {
    let pointers_len = (strings.len() + 1) * size_of::<*mut c_char>();
    let strings_len: usize = strings.iter().map(|string| string.len() + 1).sum();
    let start = allocate(pointers_len + strings_len);
    // `malloc` aligns for any type.
    #[expect(clippy::cast_ptr_alignment, reason = "as above")]
    let array = start.cast::<*mut c_char>();
    let mut at = pointers_len;
    for (number, string) in strings.iter().enumerate() {
        // SAFETY: there is room for all pointers and all strings with their zeros.
        unsafe {
            let to = start.add(at);
            std::ptr::copy_nonoverlapping(string.as_ptr().cast(), to, string.len());
            to.add(string.len()).write(0);
            array.add(number).write(to);
        }
        at += string.len() + 1;
    }
    // SAFETY: as above.
    unsafe { array.add(strings.len()).write(std::ptr::null_mut()) };
    array
}

/// A consistent view of all partitions as they are now, in `*snapshot`. It pins memory and files, so free it soon, with
/// `pleach_snapshot_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_db_snapshot(
    db: Option<&DbHandle>,
    snapshot: *mut *mut SnapshotHandle,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let slot = unsafe { Slot::of_handle(snapshot, "snapshot")? };
        slot.give(SnapshotHandle { snapshot: required(db, "db")?.db.snapshot() });
        Ok(())
    })
}

/// An empty write batch, in `*batch`. The caller frees it with `pleach_batch_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_db_batch(
    db: Option<&DbHandle>,
    batch: *mut *mut BatchHandle,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let slot = unsafe { Slot::of_handle(batch, "batch")? };
        slot.give(BatchHandle::new(&required(db, "db")?.db));
        Ok(())
    })
}

/// Makes all writes so far durable, as a write with `PLEACH_DURABILITY_SYNC` does.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_db_sync(db: Option<&DbHandle>) -> Option<Box<ErrorHandle>> {
    report(|| Ok(required(db, "db")?.db.sync()?))
}

/// Writes what is in memory to files, and waits for that. Not needed for durability.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_db_flush(db: Option<&DbHandle>) -> Option<Box<ErrorHandle>> {
    report(|| Ok(required(db, "db")?.db.flush()?))
}

/// Merges each partition into one sorted run, which takes the least space and is the fastest to read, and waits for that.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_db_compact(db: Option<&DbHandle>) -> Option<Box<ErrorHandle>> {
    report(|| Ok(required(db, "db")?.db.compact()?))
}

/// Reads all files and checks them. Takes about as long as reading the whole store.
///
/// Errors: `PLEACH_CODE_CORRUPTION` with the first damage, its file and its offset.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_db_verify(db: Option<&DbHandle>) -> Option<Box<ErrorHandle>> {
    report(|| {
        required(db, "db")?.db.verify()?;
        Ok(())
    })
}

/// The statistics of the store as one JSON object, in `*json`: its members are those of "store" in `pleach stats --json`. Counts
/// of work start at zero with each open. The caller frees the string with `pleach_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_db_stats_json(
    db: Option<&DbHandle>,
    json: *mut *mut c_char,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let slot = unsafe { Slot::of_handle(json, "json")? };
        give_json(slot, describe(&required(db, "db")?.db.stats()));
        Ok(())
    })
}

fn describe(stats: &Stats) -> Map<String, Value> {
    let counts = stats.counts().map(|(name, count)| (name, Value::from(count)));
    let others = [
        ("read_driver", stats.read_driver.to_string().into()),
        ("stalled_seconds", stats.stalled.as_secs_f64().into()),
        ("training_seconds", stats.training_time.as_secs_f64().into()),
        ("log_is_mapped", stats.log_is_mapped.into()),
        ("log_was_torn", stats.log_was_torn.into()),
        ("log_dropped_records", stats.log_dropped_records.into()),
        ("log_dropped_bytes", stats.log_dropped_bytes.into()),
        ("poisoned", stats.poisoned.clone().into()),
    ];
    counts.chain(others).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Gives an object to the caller as text.
pub(crate) fn give_json(slot: Slot<*mut c_char>, object: Map<String, Value>) {
    slot.fill(copy_string(Value::Object(object).to_string().as_bytes()));
}
