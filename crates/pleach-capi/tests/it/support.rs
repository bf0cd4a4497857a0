//! Calls of the functions from Rust: errors as `Result`, handles that are freed when they are dropped.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::null_mut;

use pleach_capi::*;

/// An error, as its code and message.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: PleachCode,
    pub(crate) message: String,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

pub(crate) fn outcome(error: Option<Box<ErrorHandle>>) -> Outcome {
    let Some(error) = error else { return Ok(()) };
    let code = pleach_error_code(Some(&error));
    // SAFETY: it is a C string that lives as long as the error.
    let message = unsafe { CStr::from_ptr(pleach_error_message(Some(&error))) };
    let message = message.to_str().unwrap().to_owned();
    assert!(!message.is_empty());
    pleach_error_free(Some(error));
    Err(Failure { code, message })
}

/// The handle that a function puts into its place.
pub(crate) fn handle<T>(call: impl FnOnce(*mut *mut T) -> Option<Box<ErrorHandle>>) -> Outcome<Box<T>> {
    // Not null, as uninitialised memory of C.
    let mut place = std::ptr::dangling_mut();
    let result = outcome(call(&raw mut place));
    assert_eq!(place.is_null(), result.is_err());
    // SAFETY: the function gave a box.
    result.map(|()| unsafe { Box::from_raw(place) })
}

/// The text that a function puts into its place.
pub(crate) fn text(call: impl FnOnce(*mut *mut c_char) -> Option<Box<ErrorHandle>>) -> Outcome<String> {
    let mut place = null_mut();
    outcome(call(&raw mut place))?;
    // SAFETY: it is a C string, which is freed once.
    unsafe {
        let text = CStr::from_ptr(place).to_str().unwrap().to_owned();
        pleach_free(place.cast());
        Ok(text)
    }
}

pub(crate) fn parts(bytes: &[u8]) -> (*const c_void, usize) {
    (bytes.as_ptr().cast(), bytes.len())
}

/// A bound: null for none.
pub(crate) fn bound_parts(bound: Option<&[u8]>) -> (*const c_void, usize) {
    bound.map_or((std::ptr::null(), 0), parts)
}

pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

pub(crate) fn open_with(path: &Path, options: Option<&OptionsHandle>) -> Outcome<Box<DbHandle>> {
    let path = c_path(path);
    // SAFETY: the path is a C string.
    handle(|db| unsafe { pleach_db_open(path.as_ptr(), options, db) })
}

/// A store in memory and its default partition.
pub(crate) struct Store {
    pub(crate) db: Box<DbHandle>,
    pub(crate) default: Box<PartitionHandle>,
}

impl Store {
    pub(crate) fn in_memory() -> Self {
        let mut options = pleach_options_create().unwrap();
        outcome(pleach_options_set_in_memory(Some(&mut options), true)).unwrap();
        Self::of(open_with(Path::new("/in/memory"), Some(&options)).unwrap())
    }

    pub(crate) fn of(db: Box<DbHandle>) -> Self {
        // SAFETY: the place is there.
        let default = handle(|p| unsafe { pleach_db_default_partition(Some(&db), p) }).unwrap();
        Self { db, default }
    }

    pub(crate) fn partition(&self, name: &str) -> Outcome<Box<PartitionHandle>> {
        let name = CString::new(name).unwrap();
        // SAFETY: the name is a C string.
        handle(|p| unsafe { pleach_db_create_partition(Some(&self.db), name.as_ptr(), p) })
    }

    pub(crate) fn snapshot(&self) -> Box<SnapshotHandle> {
        // SAFETY: the place is there.
        handle(|s| unsafe { pleach_db_snapshot(Some(&self.db), s) }).unwrap()
    }

    pub(crate) fn batch(&self) -> Box<BatchHandle> {
        // SAFETY: the place is there.
        handle(|b| unsafe { pleach_db_batch(Some(&self.db), b) }).unwrap()
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        put(&self.default, key, value)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        get(&self.default, None, key)
    }

    pub(crate) fn close(&self) -> Outcome {
        outcome(pleach_db_close(Some(&self.db)))
    }
}

pub(crate) fn put(partition: &PartitionHandle, key: &[u8], value: &[u8]) -> Outcome {
    let ((key, key_len), (value, value_len)) = (parts(key), parts(value));
    // SAFETY: key and value are there.
    outcome(unsafe { pleach_partition_put(Some(partition), key, key_len, value, value_len, 0) })
}

/// A get that lends; the bytes are copied here.
pub(crate) fn get(
    partition: &PartitionHandle,
    snapshot: Option<&SnapshotHandle>,
    key: &[u8],
) -> Outcome<Option<Vec<u8>>> {
    let mut value = lend(partition, snapshot, key)?;
    let copy = bytes_of(&value);
    // SAFETY: the value was filled.
    unsafe { pleach_value_release(&raw mut value) };
    assert!(value.data.is_null() && value.len == 0);
    Ok(copy)
}

pub(crate) fn lend(
    partition: &PartitionHandle,
    snapshot: Option<&SnapshotHandle>,
    key: &[u8],
) -> Outcome<ValueHandle> {
    let (key, key_len) = parts(key);
    let mut value = ValueHandle::EMPTY;
    // SAFETY: the key is there.
    outcome(unsafe { pleach_partition_get(Some(partition), snapshot, key, key_len, &raw mut value) })?;
    Ok(value)
}

pub(crate) fn bytes_of(value: &ValueHandle) -> Option<Vec<u8>> {
    // SAFETY: the value is pinned.
    (!value.data.is_null())
        .then(|| unsafe { std::slice::from_raw_parts(value.data.cast::<u8>(), value.len) }.to_vec())
}

pub(crate) fn cursor(
    partition: &PartitionHandle,
    snapshot: Option<&SnapshotHandle>,
) -> Outcome<Box<CursorHandle>> {
    // SAFETY: the place is there.
    handle(|c| unsafe { pleach_partition_cursor(Some(partition), snapshot, c) })
}

/// The key that a cursor is on.
pub(crate) fn key(cursor: &CursorHandle) -> Option<Vec<u8>> {
    let mut len = 7;
    // SAFETY: the place is there.
    let start = unsafe { pleach_cursor_key(Some(cursor), &raw mut len) };
    lent(start, len)
}

pub(crate) fn value(cursor: &mut CursorHandle) -> Option<Vec<u8>> {
    let mut len = 7;
    // SAFETY: the place is there.
    let start = unsafe { pleach_cursor_value(Some(cursor), &raw mut len) };
    lent(start, len)
}

fn lent(start: *const c_void, len: usize) -> Option<Vec<u8>> {
    assert!(!start.is_null() || len == 0);
    // SAFETY: the bytes are there until the next move.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) }.to_vec())
}

/// All keys, upwards.
pub(crate) fn keys(partition: &PartitionHandle, snapshot: Option<&SnapshotHandle>) -> Vec<Vec<u8>> {
    let mut cursor = cursor(partition, snapshot).unwrap();
    let mut keys = Vec::new();
    let mut is_found = pleach_cursor_first(Some(&mut cursor));
    while is_found {
        keys.push(key(&cursor).unwrap());
        is_found = pleach_cursor_next(Some(&mut cursor));
    }
    outcome(pleach_cursor_status(Some(&cursor))).unwrap();
    keys
}
