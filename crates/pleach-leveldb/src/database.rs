//! An open store: `leveldb_t`, its reads, writes and snapshots.

use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libc::{c_char, c_int};
use pleach::env::{Env, OpenOptions};
use pleach::limits::KEY_LEN_MAX;
use pleach::{Db, Durability, ErrorKind, Partition, ReadOptions, Snapshot, Value};
use pleach_ffi::{bytes, c_string, copy, copy_string, guard};

use crate::batch::{Batch, decode};
use crate::comparator::BYTEWISE;
use crate::filter_policy::FilterPolicy;
use crate::handles::Logger;
use crate::key_form::KeyForm;
use crate::options::{OptionsHandle, ReadOptionsHandle, WriteOptionsHandle};
use crate::order::find_partition;
use crate::ordered::{Ordered, View};
use crate::process::Process;
use crate::properties;
use crate::repair::MARKER;
use crate::status::{ErrorSlot, Kind, Result, Status, report};

/// `leveldb_t`.
pub struct Database {
    pub(crate) db: Db,
    pub(crate) partition: Partition,
    pub(crate) key_form: KeyForm,
    /// The view of a comparator whose order is neither that of bytes nor the reverse.
    pub(crate) ordered: Option<Ordered>,
    filter_policy: Option<Arc<FilterPolicy>>,
    info_log: Option<Arc<Logger>>,
    path: PathBuf,
    opened_in: Process,
}

const _: () = pleach_ffi::assert_shared::<Database>();

/// `leveldb_snapshot_t`.
pub struct SnapshotHandle {
    pub(crate) snapshot: Snapshot,
    pub(crate) view: Option<View>,
    made_in: Process,
}

const _: () = pleach_ffi::assert_shared::<SnapshotHandle>();

/// The path of a store whose name is a C string.
///
/// # Safety
/// It must be one.
pub(crate) unsafe fn path_of(name: *const c_char) -> PathBuf {
    // SAFETY: by the contract.
    PathBuf::from(OsStr::from_bytes(unsafe { c_string(name) }))
}

/// What is in a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Store,
    /// LevelDB's own files.
    LevelDb,
}

/// Looks at `CURRENT`: LevelDB's names a manifest in the first line. If it is missing or damaged, other files tell whose
/// directory it is: Pleach never writes names that end with `.ldb`, nor `LOG`. But LevelDB leaves a `LOG` in a store of Pleach's
/// that it was asked to open, so beside `RESERVE`, which only Pleach writes, this name tells nothing.
pub(crate) fn look(env: &dyn Env, path: &Path) -> Result<Found> {
    let current = path.join("CURRENT");
    let failed = |e| Status::new(Kind::Io, format!("{}: {e}", current.display()));
    // Joined with the name of a file, the empty name would be the working directory.
    if path.as_os_str().is_empty() {
        return Err(Status::new(Kind::Io, "the empty name is that of no directory"));
    }
    let otherwise = if env.metadata(&current).map_err(failed)?.is_some() {
        let file = env.open_file(&current, OpenOptions::default()).map_err(failed)?;
        let mut start = [0; 9];
        let is_long = file.read_exact_at(&mut start, 0).is_ok();
        match &start {
            b"MANIFEST-" if is_long => return Ok(Found::LevelDb),
            start if is_long && start.starts_with(b"pleach ") => return Ok(Found::Store),
            _ => Found::Store,
        }
    } else {
        Found::Nothing
    };
    Ok(if has_leveldb_names(env, path)? { Found::LevelDb } else { otherwise })
}

fn has_leveldb_names(env: &dyn Env, path: &Path) -> Result<bool> {
    let failed = |e| Status::new(Kind::Io, format!("{}: {e}", path.display()));
    if env.metadata(path).map_err(failed)?.is_none_or(|metadata| metadata.is_file) {
        return Ok(false);
    }
    let names = env.list_dir(path).map_err(failed)?;
    let is_pleachs = names.iter().any(|(name, _)| name == "RESERVE");
    let is_leveldbs = |name: &str| {
        name.strip_suffix(".ldb").is_some() || (!is_pleachs && (name == "LOG" || name == "LOG.old"))
    };
    Ok(names.iter().any(|(name, _)| is_leveldbs(name)))
}

/// An error if the directory may not be written. LevelDB takes its lock before it looks for a store, so it reports this first.
fn check_writable(options: &OptionsHandle, path: &Path) -> Result<()> {
    let c_path = std::ffi::CString::new(path.as_os_str().as_bytes());
    let Ok(c_path) = c_path else { return Ok(()) };
    let is_on_disk = options.other_env.is_none() && path.is_dir();
    // SAFETY: it is a C string.
    if is_on_disk && unsafe { libc::access(c_path.as_ptr(), libc::W_OK) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Status::new(Kind::Io, format!("{}/LOCK: {error}", path.display())));
    }
    Ok(())
}

/// The error for a directory of LevelDB's.
pub(crate) fn is_leveldb(path: &Path) -> Status {
    let message =
        "this directory has files of LevelDB's; adapters/leveldb/build/convert copies them to a new store";
    Status::new(Kind::NotSupported, format!("{}: {message}", path.display()))
}

/// Whether a repair has ended while it moved files. Requires: there is no `CURRENT`.
fn is_being_repaired(env: &dyn Env, path: &Path) -> Result<bool> {
    let marker = path.join(MARKER);
    let failed = |e| Status::new(Kind::Io, format!("{}: {e}", marker.display()));
    Ok(env.metadata(&marker).map_err(failed)?.is_some())
}

impl Database {
    fn open(options: &OptionsHandle, path: PathBuf) -> Result<Self> {
        let name = path.display().to_string();
        let invalid = |message: &str| Err(Status::new(Kind::InvalidArgument, format!("{name}: {message}")));
        let found = look(&*options.env(), &path)?;
        match found {
            Found::LevelDb => return Err(is_leveldb(&path)),
            Found::Nothing if is_being_repaired(&*options.env(), &path)? => {
                return Err(Status::new(
                    Kind::Corruption,
                    format!("{name}: a repair was interrupted; repair the store again"),
                ));
            }
            Found::Nothing if !options.create_if_missing => {
                check_writable(options, &path)?;
                return invalid("does not exist (create_if_missing is false)");
            }
            Found::Nothing | Found::Store => {}
        }
        // By this name alone the library takes the order for that of bytes, and keeps no view of the keys.
        if let Some(comparator) = options.comparator()?
            && comparator.name() == BYTEWISE
            && !comparator.seems_bytewise()
        {
            let message = format!("the comparator has the name {BYTEWISE}, but another order");
            return Err(Status::new(Kind::NotSupported, format!("{name}: {message}; give it another name")));
        }
        let filter_policy = options.filter_policy()?;
        let opened = options.translate().open(&path);
        let db = opened.map_err(|error| match error.kind() {
            ErrorKind::Conflict => Status::new(
                Kind::Io,
                format!("lock {name}/LOCK: Resource temporarily unavailable: the store is open already"),
            ),
            _ => Status::from(error),
        })?;
        let (partition, key_form) = find_partition(&db, options)?;
        let ordered = match options.custom_comparator()? {
            Some(comparator) if key_form == KeyForm::Plain => {
                Some(Ordered::build((&db, &partition), &comparator, options.view_bytes_max())?)
            }
            _ => None,
        };
        let info_log = options.info_log.clone();
        let opened_in = Process::this();
        let database = Self { db, partition, key_form, ordered, filter_policy, info_log, path, opened_in };
        let stats = database.db.stats();
        database.log(&format!(
            "Pleach {}: opened {name}: {} SSTs, {} bytes; memory {} bytes",
            env!("CARGO_PKG_VERSION"),
            stats.ssts,
            stats.sst_bytes,
            stats.memory_bytes
        ));
        if stats.log_was_torn {
            database
                .log(&format!("the log ended in a torn write: {} bytes dropped", stats.log_dropped_bytes));
        }
        Ok(database)
    }

    fn log(&self, line: &str) {
        if let Some(info_log) = &self.info_log {
            info_log.write(line);
        }
    }

    /// Tells the caller's log of an error.
    pub(crate) fn logged(&self, error: Status) -> Status {
        self.log(&error.to_string());
        error
    }

    fn read(&self, options: &ReadOptionsHandle, key: &[u8]) -> Result<Option<Value>> {
        let read_options = ReadOptions::new().fill_cache(options.fill_cache);
        let value = match (&self.ordered, options.snapshot()) {
            (Some(ordered), snapshot) => {
                let now;
                let (view, snapshot) =
                    if let Some(SnapshotHandle { snapshot, view: Some(view), .. }) = snapshot {
                        (view, snapshot)
                    } else {
                        now = ordered.snapshot(&self.db);
                        (&now.0, &now.1)
                    };
                match view.find(key) {
                    Some(key) => snapshot.get_with(&self.partition, &key.bytes, &read_options)?,
                    None => None,
                }
            }
            // No such key can be put, and none is equal to it.
            (None, _) if key.len() > KEY_LEN_MAX => None,
            (None, snapshot) => {
                let form = self.key_form.encode(key);
                if form.len() > KEY_LEN_MAX {
                    return Ok(None);
                }
                match snapshot {
                    Some(snapshot) => snapshot.snapshot.get_with(&self.partition, &form, &read_options)?,
                    None => self.partition.get_with(&form, &read_options)?,
                }
            }
        };
        Ok(value.filter(|_| self.filter_allows(key)))
    }

    /// Whether a filter policy of the caller lets the key be found.
    #[inline]
    fn filter_allows(&self, key: &[u8]) -> bool {
        match self.filter_policy.as_deref() {
            Some(FilterPolicy::Custom(custom)) => custom.may_match(key),
            _ => true,
        }
    }

    fn write_one(&self, key: &[u8], value: Option<&[u8]>, durability: Durability) -> Result<()> {
        if let Some(ordered) = &self.ordered {
            return ordered.write((&self.db, &self.partition), &[(key, value)], durability);
        }
        let key = self.key_form.encode_for_write(key)?;
        match value {
            Some(value) => self.partition.put_with(&key, value, durability)?,
            None => self.partition.delete_with(&key, durability)?,
        }
        Ok(())
    }

    pub(crate) fn write(&self, data: &[u8], durability: Durability) -> Result<()> {
        let records = decode(data)?;
        if let Some(ordered) = &self.ordered {
            return ordered.write((&self.db, &self.partition), &records, durability);
        }
        if let &[(key, value)] = &*records {
            return self.write_one(key, value, durability);
        }
        let mut batch = self.db.batch();
        for (key, value) in records {
            let key = self.key_form.encode_for_write(key)?;
            match value {
                Some(value) => batch.put(&self.partition, &key, value),
                None => batch.delete(&self.partition, &key),
            }
        }
        batch.commit(durability)?;
        Ok(())
    }

    fn approximate_size(&self, start: &[u8], limit: &[u8]) -> Result<u64> {
        // Data in memory would count as nothing, by LevelDB too; but there a write buffer is small.
        let Some(ordered) = &self.ordered else {
            let (start, limit) = (self.key_form.encode(start), self.key_form.encode(limit));
            return Ok(if start < limit { self.partition.approximate_size(start..limit)?.bytes } else { 0 });
        };
        let all = self.partition.approximate_size::<&[u8]>(..)?.bytes;
        let (counted, keys) = ordered.snapshot(&self.db).0.count(start, limit);
        Ok(u64::try_from(u128::from(all) * counted as u128 / (keys as u128).max(1)).unwrap_or(u64::MAX))
    }

    fn compact_range(&self, start: Option<&[u8]>, limit: Option<&[u8]>) -> Result<()> {
        match (start, limit) {
            (None, None) => self.partition.compact()?,
            _ if self.ordered.is_some() => {}
            _ => {
                let bound = |key: Option<&[u8]>| match key {
                    Some(key) => Bound::Included(self.key_form.encode(key).into_owned()),
                    None => Bound::Unbounded,
                };
                self.partition.compact_range((bound(start), bound(limit)))?;
            }
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_open(
    options: &OptionsHandle,
    name: *const c_char,
    error: ErrorSlot<'_>,
) -> Option<Box<Database>> {
    // SAFETY: by the contract of c.h.
    let path = unsafe { path_of(name) };
    report(error, || Ok(Box::new(Database::open(options, path)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_close(db: Option<Box<Database>>) {
    let Some(db) = db else { return };
    if !db.opened_in.is_this() {
        // The store belongs to the parent.
        std::mem::forget(db);
        return;
    }
    guard((), || {
        let Database { db, partition, ordered, info_log, path, .. } = *db;
        drop((partition, ordered));
        let closed = db.close();
        if let Some(info_log) = info_log {
            let outcome = closed.map_or_else(|error| error.to_string(), |()| "nothing is lost".to_owned());
            info_log.write(&format!("Pleach: closed {}: {outcome}", path.display()));
        }
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_put(
    db: &Database,
    options: &WriteOptionsHandle,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
    error: ErrorSlot<'_>,
) {
    // SAFETY: by the contract of c.h.
    let (key, value) = unsafe { (bytes(key, key_len), bytes(value, value_len)) };
    report(error, || db.write_one(key, Some(value), options.durability).map_err(|e| db.logged(e)));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_delete(
    db: &Database,
    options: &WriteOptionsHandle,
    key: *const c_char,
    key_len: usize,
    error: ErrorSlot<'_>,
) {
    // SAFETY: by the contract of c.h.
    let key = unsafe { bytes(key, key_len) };
    report(error, || db.write_one(key, None, options.durability).map_err(|e| db.logged(e)));
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_write(
    db: &Database,
    options: &WriteOptionsHandle,
    batch: &Batch,
    error: ErrorSlot<'_>,
) {
    report(error, || db.write(batch.data(), options.durability).map_err(|e| db.logged(e)));
}

/// A copy of the value, which the caller frees; null if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_get(
    db: &Database,
    options: &ReadOptionsHandle,
    key: *const c_char,
    key_len: usize,
    value_len: &mut usize,
    error: ErrorSlot<'_>,
) -> *mut c_char {
    // SAFETY: by the contract of c.h.
    let key = unsafe { bytes(key, key_len) };
    *value_len = 0;
    let value = report(error, || db.read(options, key).map_err(|e| db.logged(e))).flatten();
    value.map_or(std::ptr::null_mut(), |value| {
        *value_len = value.len();
        copy(&value)
    })
}

/// Gives the value to `sink`. Returns 1 if there is one.
pub(crate) fn get_to(
    db: &Database,
    options: &ReadOptionsHandle,
    key: &[u8],
    sink: impl FnOnce(&[u8]),
    error: ErrorSlot<'_>,
) -> u8 {
    let value = report(error, || db.read(options, key).map_err(|e| db.logged(e))).flatten();
    value.map_or(0, |value| {
        sink(&value);
        1
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_snapshot(db: &Database) -> Option<Box<SnapshotHandle>> {
    guard(None, || {
        let (view, snapshot) = match &db.ordered {
            Some(ordered) => {
                let (view, snapshot) = ordered.snapshot(&db.db);
                (Some(view), snapshot)
            }
            None => (None, db.db.snapshot()),
        };
        Some(Box::new(SnapshotHandle { snapshot, view, made_in: Process::this() }))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_release_snapshot(_: &Database, snapshot: Option<Box<SnapshotHandle>>) {
    guard((), || {
        if let Some(snapshot) = snapshot {
            snapshot.made_in.drop_here(snapshot);
        }
    });
}

/// The text of a property, which the caller frees; null for an unknown one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_property_value(db: &Database, name: *const c_char) -> *mut c_char {
    // SAFETY: by the contract of c.h.
    let name = unsafe { c_string(name) };
    guard(std::ptr::null_mut(), || {
        let text = std::str::from_utf8(name).ok().and_then(|name| properties::text(db, name));
        text.map_or(std::ptr::null_mut(), |text| copy_string(text.as_bytes()))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_approximate_sizes(
    db: &Database,
    count: c_int,
    starts: *const *const c_char,
    start_lens: *const usize,
    limits: *const *const c_char,
    limit_lens: *const usize,
    sizes: *mut u64,
) {
    for i in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: by the contract of c.h each array has `count` elements.
        unsafe {
            let start = bytes(*starts.add(i), *start_lens.add(i));
            let limit = bytes(*limits.add(i), *limit_lens.add(i));
            *sizes.add(i) = guard(0, || db.approximate_size(start, limit).unwrap_or(0));
        }
    }
}

/// Merges what the store holds from `start` to `limit`, both included; null is without a bound. Errors go to the caller's log.
///
/// Under a comparator of the caller's own, a range of its order is none of bytes: then only a call without bounds merges.
///
/// # Safety
/// As c.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_compact_range(
    db: &Database,
    start: *const c_char,
    start_len: usize,
    limit: *const c_char,
    limit_len: usize,
) {
    // SAFETY: by the contract of c.h.
    let bound = |key: *const c_char, len| (!key.is_null()).then(|| unsafe { bytes(key, len) });
    let (start, limit) = (bound(start, start_len), bound(limit, limit_len));
    guard((), || {
        if let Err(error) = db.compact_range(start, limit) {
            db.logged(error);
        }
    });
}
