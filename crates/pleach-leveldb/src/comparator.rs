//! The caller's order of keys: `leveldb_comparator_t`.

use std::cmp::Ordering;
use std::ffi::c_void;
use std::sync::Arc;

use libc::{c_char, c_int};
use pleach_ffi::{bytes, c_string};

use crate::key_form::REVERSE_BYTEWISE_C;

/// LevelDB's default: the order of bytes.
pub(crate) const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// Keys on which orders of numbers, of text and of lengths differ from that of bytes.
const SAMPLES: [&[u8]; 10] = [b"", b"\0", b"\0\0", b"10", b"9", b"A", b"a", b"ab", b"\x7f", b"\xff"];

pub type Destructor = unsafe extern "C" fn(state: *mut c_void);
pub type Compare = unsafe extern "C" fn(
    state: *mut c_void,
    a: *const c_char,
    a_len: usize,
    b: *const c_char,
    b_len: usize,
) -> c_int;
pub type Name = unsafe extern "C" fn(state: *mut c_void) -> *const c_char;

/// Functions of the caller. They are only called on the caller's threads.
pub(crate) struct Comparator {
    state: *mut c_void,
    destructor: Destructor,
    compare: Compare,
    name: Name,
}

// SAFETY: c.h asks that a comparator can be used by several threads at the same time.
unsafe impl Send for Comparator {}
// SAFETY: as above.
unsafe impl Sync for Comparator {}

impl Comparator {
    pub(crate) fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        // SAFETY: the caller gave the function for this state; both keys are there during the call.
        unsafe { (self.compare)(self.state, a.as_ptr().cast(), a.len(), b.as_ptr().cast(), b.len()) }.cmp(&0)
    }

    pub(crate) fn name(&self) -> String {
        // SAFETY: the caller gave the function for this state; it returns a C string.
        let name = unsafe { c_string((self.name)(self.state)) };
        // Names of other bytes than text stay different from each other: the bytes are escaped, as `\xff`.
        name.utf8_chunks().fold(String::new(), |name, chunk| {
            name + chunk.valid() + &chunk.invalid().escape_ascii().to_string()
        })
    }

    /// Whether the function agrees with the order of bytes on a few keys.
    pub(crate) fn seems_bytewise(&self) -> bool {
        let order_of = |a: &[u8], b: &[u8]| self.compare(a, b) == a.cmp(b);
        SAMPLES.iter().all(|a| SAMPLES.iter().all(|b| order_of(a, b)))
    }
}

impl Drop for Comparator {
    fn drop(&mut self) {
        // SAFETY: the caller gave the function for this state, to be called once.
        unsafe { (self.destructor)(self.state) }
    }
}

/// `leveldb_comparator_t`. Stores that use it share it.
pub struct ComparatorHandle(pub(crate) Arc<Comparator>);

const _: () = pleach_ffi::assert_shared::<ComparatorHandle>();

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Destructor,
    compare: Compare,
    name: Name,
) -> Box<ComparatorHandle> {
    Box::new(ComparatorHandle(Arc::new(Comparator { state, destructor, compare, name })))
}

unsafe extern "C" fn destroy_nothing(_: *mut c_void) {}

/// The reverse order of bytes, here for all that need it as a function: tests hand it over as a caller's own.
#[doc(hidden)]
pub unsafe extern "C" fn compare_reverse_bytes(
    _: *mut c_void,
    a: *const c_char,
    a_len: usize,
    b: *const c_char,
    b_len: usize,
) -> c_int {
    // SAFETY: by the contract of a comparator.
    unsafe { bytes(b, b_len).cmp(bytes(a, a_len)) as c_int }
}

unsafe extern "C" fn reverse_bytewise_name(_: *mut c_void) -> *const c_char {
    REVERSE_BYTEWISE_C.as_ptr()
}

/// The reverse order of bytes, by the name that it has in RocksDB. Its stores need no memory for keys.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_leveldb_comparator_create_reverse_bytewise() -> Box<ComparatorHandle> {
    let (destructor, compare, name) = (destroy_nothing, compare_reverse_bytes, reverse_bytewise_name);
    Box::new(ComparatorHandle(Arc::new(Comparator {
        state: std::ptr::null_mut(),
        destructor,
        compare,
        name,
    })))
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_comparator_destroy(_: Option<Box<ComparatorHandle>>) {}
