//! Values that are lent without a copy: a structure of the caller's that pins the memory of the value.
//!
//! # Invariants
//! 1. *Empty or pinned*: `data` is null, or `pin` begins with a [`Value`] whose bytes are those at `data`. A [`Value`] may be
//!    moved, because its bytes lie outside of it.

use std::ffi::c_void;

use pleach::Value;
use pleach_ffi::guard;

// A pin has some words to spare, so that programs need not be compiled again when it grows.
const _: () = assert!(size_of::<Value>() <= size_of::<[u64; 6]>(), "a value fits into the pin");
const _: () = assert!(align_of::<Value>() <= align_of::<u64>(), "a value may lie in the pin");
const _: () = pleach_ffi::assert_shared::<Value>();

/// A value that was read, where it lies: nothing is copied. It pins the memory of a block or memtable until
/// `pleach_value_release`, so release it soon, or copy the bytes. It stays valid when the store is closed.
///
/// The structure belongs to the caller, for instance on the stack. It may be moved, but not copied and released twice.
///
/// Thread safety: any number of threads may read the bytes; one releases them.
#[repr(C)]
pub struct ValueHandle {
    /// The first byte; null if there is no value. The pointer of an empty value is not null.
    pub data: *const c_void,
    /// Bytes of the value.
    pub len: usize,
    /// For Pleach alone.
    pub pin: [u64; 6],
}

impl ValueHandle {
    /// No value.
    pub const EMPTY: Self = Self { data: std::ptr::null(), len: 0, pin: [0; 6] };

    #[inline]
    pub(crate) fn new(value: Value) -> Self {
        let mut handle = Self { data: value.as_ptr().cast(), len: value.len(), pin: [0; 6] };
        // SAFETY: the pin has room for a value, by the assertions above.
        unsafe { (&raw mut handle.pin).cast::<Value>().write(value) };
        handle
    }
}

/// Releases a value, and makes it empty, so that a second release does nothing. Null and an empty value are allowed; a structure
/// that no function has filled is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_value_release(value: *mut ValueHandle) {
    guard((), || {
        // SAFETY: by the contract it is null, or was filled.
        let Some(value) = (unsafe { value.as_mut() }) else { return };
        if !value.data.is_null() {
            (value.data, value.len) = (std::ptr::null(), 0);
            // SAFETY: invariant 1; from now on it is empty.
            drop(unsafe { (&raw const value.pin).cast::<Value>().read() });
        }
    });
}
