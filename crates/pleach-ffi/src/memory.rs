//! Bytes that come from C, and copies of ours that C frees.

use libc::c_char;

/// The `len` bytes at `start`, which may be null if there are none.
///
/// # Safety
/// They must be there, and stay as they are, for `'a`.
pub unsafe fn bytes<'a>(start: *const c_char, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the contract.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

/// The bytes of a C string without its end.
///
/// # Safety
/// As for [`bytes`], up to a zero.
pub unsafe fn c_string<'a>(start: *const c_char) -> &'a [u8] {
    // SAFETY: by the contract.
    unsafe { std::ffi::CStr::from_ptr(start) }.to_bytes()
}

/// A copy from `malloc`, of at least one byte. Ends the process if there is no memory.
pub fn copy(data: &[u8]) -> *mut c_char {
    let to = allocate(data.len());
    // SAFETY: `to` is new and has room.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr().cast(), to, data.len()) };
    to
}

/// A copy with a zero behind it.
pub fn copy_string(data: &[u8]) -> *mut c_char {
    let to = allocate(data.len() + 1);
    // SAFETY: `to` is new and has room.
    unsafe {
        std::ptr::copy_nonoverlapping(data.as_ptr().cast(), to, data.len());
        to.add(data.len()).write(0);
    }
    to
}

/// Memory from `malloc` for `len` bytes, at least one. Ends the process if there is none.
pub fn allocate(len: usize) -> *mut c_char {
    // SAFETY: a size above zero is always legal.
    let to = unsafe { libc::malloc(len.max(1)) };
    if to.is_null() {
        std::alloc::handle_alloc_error(std::alloc::Layout::new::<u8>());
    }
    to.cast()
}
