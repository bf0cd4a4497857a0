//! A safe, thin cover over LevelDB's C interface: a database, its iterators and its write batches.
//!
//! # Concurrency
//! LevelDB synchronises a database itself; an iterator or a write batch belongs to one thread at a time, which `&mut`
//! guarantees.

#![expect(unsafe_code, reason = "LevelDB is called through its C interface")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;

use pleach_bench::Result;

use super::ffi;

/// What a database is opened with.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) cache_bytes: usize,
    pub(super) write_buffer_bytes: usize,
    pub(super) file_bytes: usize,
    pub(super) block_bytes: usize,
    pub(super) restart_interval: c_int,
    pub(super) files_max: c_int,
    pub(super) filter_bits: c_int,
    pub(super) compression: bool,
    /// Whether each write is synced.
    pub(super) sync: bool,
}

/// An open database with the objects that it refers to.
///
/// # Invariants
/// 1. Live: all pointers come from the matching create function and are destroyed once, in `drop`.
/// 2. Outlived: cache, filter policy and options are destroyed after the database that refers to them.
pub(super) struct Database {
    raw: NonNull<ffi::Database>,
    options: NonNull<ffi::Options>,
    cache: NonNull<ffi::Cache>,
    filter: NonNull<ffi::FilterPolicy>,
    reading: NonNull<ffi::ReadOptions>,
    writing: NonNull<ffi::WriteOptions>,
}

// SAFETY: LevelDB's databases take calls from any thread at once; the option objects are only read after `open`.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

/// Version of the library in use, major and minor.
pub(super) fn version() -> (c_int, c_int) {
    // SAFETY: both only return a number.
    unsafe { (ffi::leveldb_major_version(), ffi::leveldb_minor_version()) }
}

impl Database {
    pub(super) fn open(folder: &Path, wanted: &Options) -> Result<Self> {
        let name = CString::new(folder.as_os_str().as_bytes())?;
        // SAFETY: the create functions take numbers, allocate and do not fail but by an exception of the allocator.
        let (options, cache, filter, reading, writing) = unsafe {
            (
                created(ffi::leveldb_options_create()),
                created(ffi::leveldb_cache_create_lru(wanted.cache_bytes)),
                created(ffi::leveldb_filterpolicy_create_bloom(wanted.filter_bits)),
                created(ffi::leveldb_readoptions_create()),
                created(ffi::leveldb_writeoptions_create()),
            )
        };
        let compression = if wanted.compression { ffi::SNAPPY_COMPRESSION } else { ffi::NO_COMPRESSION };
        let raw_options = options.as_ptr();
        // SAFETY: all pointers are live; cache and filter policy outlive the options (invariant 2).
        unsafe {
            ffi::leveldb_options_set_create_if_missing(raw_options, 1);
            ffi::leveldb_options_set_paranoid_checks(raw_options, 0);
            ffi::leveldb_options_set_write_buffer_size(raw_options, wanted.write_buffer_bytes);
            ffi::leveldb_options_set_max_open_files(raw_options, wanted.files_max);
            ffi::leveldb_options_set_block_size(raw_options, wanted.block_bytes);
            ffi::leveldb_options_set_block_restart_interval(raw_options, wanted.restart_interval);
            ffi::leveldb_options_set_max_file_size(raw_options, wanted.file_bytes);
            ffi::leveldb_options_set_compression(raw_options, compression);
            ffi::leveldb_options_set_cache(raw_options, cache.as_ptr());
            // The smallest filter has a bit or more for each key: none is another thing.
            if wanted.filter_bits > 0 {
                ffi::leveldb_options_set_filter_policy(raw_options, filter.as_ptr());
            }
            ffi::leveldb_writeoptions_set_sync(writing.as_ptr(), u8::from(wanted.sync));
        }
        // SAFETY: options and name are live; the error is null before the call.
        let opened = checked(|error| unsafe { ffi::leveldb_open(raw_options, name.as_ptr(), error) });
        match opened {
            Ok(raw) => Ok(Self { raw: created(raw), options, cache, filter, reading, writing }),
            Err(error) => {
                // SAFETY: nothing refers to them, for there is no database.
                unsafe { destroy(options, cache, filter, reading, writing) };
                Err(error)
            }
        }
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (db, how) = (self.raw.as_ptr(), self.writing.as_ptr());
        // SAFETY: invariant 1; key and value are read during the call only.
        checked(|error| unsafe {
            ffi::leveldb_put(db, how, key.as_ptr(), key.len(), value.as_ptr(), value.len(), error);
        })
    }

    pub(super) fn delete(&self, key: &[u8]) -> Result<()> {
        let (db, how) = (self.raw.as_ptr(), self.writing.as_ptr());
        // SAFETY: invariant 1; the key is read during the call only.
        checked(|error| unsafe { ffi::leveldb_delete(db, how, key.as_ptr(), key.len(), error) })
    }

    pub(super) fn write(&self, batch: &mut WriteBatch) -> Result<()> {
        // SAFETY: invariant 1; the batch is live and ours alone.
        checked(|error| unsafe {
            ffi::leveldb_write(self.raw.as_ptr(), self.writing.as_ptr(), batch.0.as_ptr(), error);
        })
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Allocated>> {
        let (db, how) = (self.raw.as_ptr(), self.reading.as_ptr());
        let mut len = 0;
        // SAFETY: invariant 1; the key is read during the call only, the length written.
        let value = checked(|error| unsafe {
            ffi::leveldb_get(db, how, key.as_ptr(), key.len(), &raw mut len, error)
        })?;
        Ok(NonNull::new(value).map(|start| Allocated { start, len }))
    }

    pub(super) fn iterator(&self) -> Iterator<'_> {
        // SAFETY: invariant 1; the iterator's lifetime keeps the database alive.
        let raw = unsafe { ffi::leveldb_create_iterator(self.raw.as_ptr(), self.reading.as_ptr()) };
        Iterator { raw: created(raw), database: PhantomData }
    }

    /// The value of a property such as `leveldb.stats`.
    pub(super) fn property(&self, name: &CStr) -> Result<String> {
        // SAFETY: invariant 1; the name ends with a zero.
        let text = unsafe { ffi::leveldb_property_value(self.raw.as_ptr(), name.as_ptr()) };
        taken(text).ok_or_else(|| format!("LevelDB has no property {}", name.to_string_lossy()).into())
    }

    /// Writes the memtable to a file, then compacts the files that hold keys between `start` and `limit`, inclusive.
    pub(super) fn compact_range(&self, start: &[u8], limit: &[u8]) {
        let (start_at, limit_at) = (start.as_ptr(), limit.as_ptr());
        // SAFETY: invariant 1; both keys are read during the call only.
        unsafe {
            ffi::leveldb_compact_range(self.raw.as_ptr(), start_at, start.len(), limit_at, limit.len());
        }
    }

    /// Writes the memtable to a file, then merges every file into the last level that has any.
    pub(super) fn compact_all(&self) {
        let (start, limit) = (ptr::null(), ptr::null());
        // SAFETY: invariant 1; null stands for the ends.
        unsafe { ffi::leveldb_compact_range(self.raw.as_ptr(), start, 0, limit, 0) }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: invariant 1; iterators borrow the database, so none is left.
        unsafe {
            ffi::leveldb_close(self.raw.as_ptr());
            destroy(self.options, self.cache, self.filter, self.reading, self.writing);
        }
    }
}

/// Destroys what a database refers to.
///
/// # Safety
/// All are live, and no database refers to them any more.
unsafe fn destroy(
    options: NonNull<ffi::Options>,
    cache: NonNull<ffi::Cache>,
    filter: NonNull<ffi::FilterPolicy>,
    reading: NonNull<ffi::ReadOptions>,
    writing: NonNull<ffi::WriteOptions>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::leveldb_options_destroy(options.as_ptr());
        ffi::leveldb_cache_destroy(cache.as_ptr());
        ffi::leveldb_filterpolicy_destroy(filter.as_ptr());
        ffi::leveldb_readoptions_destroy(reading.as_ptr());
        ffi::leveldb_writeoptions_destroy(writing.as_ptr());
    }
}

/// Bytes that LevelDB has allocated for us.
pub(super) struct Allocated {
    start: NonNull<u8>,
    len: usize,
}

impl Deref for Allocated {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: LevelDB has handed over `len` initialised bytes, which are ours until `drop`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: they come from LevelDB's allocation and are freed once.
        unsafe { ffi::leveldb_free(self.start.as_ptr().cast()) };
    }
}

/// A position among the entries of a database, as they were when it was created.
pub(super) struct Iterator<'a> {
    raw: NonNull<ffi::Iterator>,
    database: PhantomData<&'a Database>,
}

impl Iterator<'_> {
    pub(super) fn seek_to_first(&mut self) {
        // SAFETY: the iterator is live and ours alone, here and below.
        unsafe { ffi::leveldb_iter_seek_to_first(self.raw.as_ptr()) };
    }

    pub(super) fn seek_to_last(&mut self) {
        // SAFETY: as above.
        unsafe { ffi::leveldb_iter_seek_to_last(self.raw.as_ptr()) };
    }

    /// Goes to the first entry at or above a key.
    pub(super) fn seek(&mut self, key: &[u8]) {
        // SAFETY: as above; the key is read during the call only.
        unsafe { ffi::leveldb_iter_seek(self.raw.as_ptr(), key.as_ptr(), key.len()) };
    }

    /// Requires: there is an entry here.
    pub(super) fn next(&mut self) {
        debug_assert!(self.entry().is_some());
        // SAFETY: as above; the position is valid.
        unsafe { ffi::leveldb_iter_next(self.raw.as_ptr()) };
    }

    /// Requires: there is an entry here.
    pub(super) fn prev(&mut self) {
        debug_assert!(self.entry().is_some());
        // SAFETY: as above; the position is valid.
        unsafe { ffi::leveldb_iter_prev(self.raw.as_ptr()) };
    }

    /// The entry here; none beyond either end, or after an error.
    pub(super) fn entry(&self) -> Option<(&[u8], &[u8])> {
        let raw = self.raw.as_ptr();
        // SAFETY: the iterator is live; key and value stay where they are until it moves, which takes `&mut self`.
        unsafe {
            if ffi::leveldb_iter_valid(raw) == 0 {
                return None;
            }
            let (mut key_len, mut value_len) = (0, 0);
            let key = ffi::leveldb_iter_key(raw, &raw mut key_len);
            let value = ffi::leveldb_iter_value(raw, &raw mut value_len);
            Some((bytes(key, key_len), bytes(value, value_len)))
        }
    }

    /// An error that has ended the iteration.
    pub(super) fn status(&self) -> Result<()> {
        // SAFETY: the iterator is live.
        checked(|error| unsafe { ffi::leveldb_iter_get_error(self.raw.as_ptr(), error) })
    }
}

impl Drop for Iterator<'_> {
    fn drop(&mut self) {
        // SAFETY: it is live and destroyed once.
        unsafe { ffi::leveldb_iter_destroy(self.raw.as_ptr()) };
    }
}

/// Writes that are committed together.
pub(super) struct WriteBatch(NonNull<ffi::WriteBatch>);

impl WriteBatch {
    pub(super) fn new() -> Self {
        // SAFETY: it allocates and nothing else.
        Self(created(unsafe { ffi::leveldb_writebatch_create() }))
    }

    pub(super) fn clear(&mut self) {
        // SAFETY: the batch is live and ours alone, here and below; keys and values are copied.
        unsafe { ffi::leveldb_writebatch_clear(self.0.as_ptr()) };
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        let batch = self.0.as_ptr();
        // SAFETY: as above.
        unsafe {
            ffi::leveldb_writebatch_put(batch, key.as_ptr(), key.len(), value.as_ptr(), value.len());
        }
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        // SAFETY: as above.
        unsafe { ffi::leveldb_writebatch_delete(self.0.as_ptr(), key.as_ptr(), key.len()) };
    }
}

impl Drop for WriteBatch {
    fn drop(&mut self) {
        // SAFETY: it is live and destroyed once.
        unsafe { ffi::leveldb_writebatch_destroy(self.0.as_ptr()) };
    }
}

/// What a create function has returned.
fn created<T>(raw: *mut T) -> NonNull<T> {
    NonNull::new(raw).expect("LevelDB's create functions do not return null")
}

/// Bytes at a pointer that may be null where there are none.
///
/// # Safety
/// `len` bytes at `start` stay there, unchanged, for the lifetime.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    if start.is_null() { &[] } else { unsafe { slice::from_raw_parts(start, len) } }
}

/// Calls a function that reports errors by a string.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error = ptr::null_mut();
    let result = call(&raw mut error);
    taken(error).map_or(Ok(result), |words| Err(words.into()))
}

/// A string that LevelDB has allocated, freed; none for null.
fn taken(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: LevelDB's strings end with a zero; this one is ours and freed once, after it is copied.
    unsafe {
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        ffi::leveldb_free(text.cast());
        Some(copy)
    }
}
