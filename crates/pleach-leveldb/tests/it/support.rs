//! A store that is opened by the C functions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pleach_leveldb::*;

/// What a function that can fail has said.
pub(crate) fn caught<T>(call: impl FnOnce(ErrorSlot<'_>) -> T) -> Result<T, String> {
    let mut error = std::ptr::null_mut();
    let answer = call(Some(&mut error));
    if error.is_null() {
        return Ok(answer);
    }
    // SAFETY: it is a C string from `malloc`.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_str().unwrap().to_owned();
        leveldb_free(error.cast());
        text
    };
    Err(text)
}

pub(crate) fn parts(bytes: &[u8]) -> (*const c_char, usize) {
    (bytes.as_ptr().cast(), bytes.len())
}

pub(crate) struct Store {
    pub(crate) db: Option<Box<Database>>,
    pub(crate) reads: Box<ReadOptionsHandle>,
    pub(crate) writes: Box<WriteOptionsHandle>,
}

pub(crate) fn options() -> Box<OptionsHandle> {
    let mut options = leveldb_options_create();
    leveldb_options_set_create_if_missing(&mut options, 1);
    options
}

/// Options of a store that ignores the case of letters.
pub(crate) fn folded_options() -> Box<OptionsHandle> {
    let mut options = options();
    leveldb_options_set_comparator(&mut options, Some(folded_comparator()));
    options
}

impl Store {
    pub(crate) fn open(path: &Path, options: &OptionsHandle) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a C string.
        let db = caught(|error| unsafe { leveldb_open(options, name.as_ptr(), error) })?;
        Ok(Self { db, reads: leveldb_readoptions_create(), writes: leveldb_writeoptions_create() })
    }

    pub(crate) fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let ((key, key_len), (value, value_len)) = (parts(key), parts(value));
        // SAFETY: key and value are there.
        caught(|error| unsafe { leveldb_put(self.db(), &self.writes, key, key_len, value, value_len, error) })
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<(), String> {
        let (key, key_len) = parts(key);
        // SAFETY: the key is there.
        caught(|error| unsafe { leveldb_delete(self.db(), &self.writes, key, key_len, error) })
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let ((key, key_len), mut len) = (parts(key), 0);
        // SAFETY: the key is there; the value comes from `malloc`.
        unsafe {
            let value = caught(|error| leveldb_get(self.db(), &self.reads, key, key_len, &mut len, error))?;
            let copy = (!value.is_null()).then(|| std::slice::from_raw_parts(value.cast(), len).to_vec());
            leveldb_free(value.cast());
            Ok(copy)
        }
    }

    /// All keys, upwards or downwards.
    pub(crate) fn keys(&self, up: bool) -> Vec<Vec<u8>> {
        let mut iterator = leveldb_create_iterator(self.db(), &self.reads);
        let mut keys = Vec::new();
        if up {
            leveldb_iter_seek_to_first(&mut iterator);
        } else {
            leveldb_iter_seek_to_last(&mut iterator);
        }
        while leveldb_iter_valid(&iterator) == 1 {
            let mut len = 0;
            let key = leveldb_iter_key(&iterator, &mut len);
            // SAFETY: the iterator lends so many bytes.
            keys.push(unsafe { std::slice::from_raw_parts(key.cast(), len) }.to_vec());
            if up {
                leveldb_iter_next(&mut iterator);
            } else {
                leveldb_iter_prev(&mut iterator);
            }
        }
        caught(|error| leveldb_iter_get_error(&iterator, error)).unwrap();
        leveldb_iter_destroy(Some(iterator));
        keys
    }

    /// The approximate size of a range.
    pub(crate) fn size(&self, start: &[u8], limit: &[u8]) -> u64 {
        let ((start, start_len), (limit, limit_len), mut size) = (parts(start), parts(limit), 0);
        // SAFETY: each array has one element.
        unsafe {
            leveldb_approximate_sizes(
                self.db(),
                1,
                &raw const start,
                &raw const start_len,
                &raw const limit,
                &raw const limit_len,
                &raw mut size,
            );
        }
        size
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        leveldb_close(self.db.take());
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// Ignores the case of ASCII letters.
unsafe extern "C" fn folded(
    _: *mut c_void,
    a: *const c_char,
    a_len: usize,
    b: *const c_char,
    b_len: usize,
) -> c_int {
    // SAFETY: the library lends so many bytes.
    let [a, b] = unsafe {
        [std::slice::from_raw_parts(a.cast::<u8>(), a_len), std::slice::from_raw_parts(b.cast::<u8>(), b_len)]
    };
    a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase()) as c_int
}

unsafe extern "C" fn folded_name(_: *mut c_void) -> *const c_char {
    c"test.Folded".as_ptr()
}

/// It is never destroyed, so that options can be used again.
pub(crate) fn folded_comparator() -> &'static ComparatorHandle {
    // SAFETY: the functions need no state.
    Box::leak(unsafe { leveldb_comparator_create(std::ptr::null_mut(), nothing, folded, folded_name) })
}
