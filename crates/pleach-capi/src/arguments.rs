//! Arguments from C: pointers that may be null, bytes, strings, numbers of enumerations, and places for results.

use std::ffi::{OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pleach_ffi::c_string;

use crate::error::{ErrorHandle, Result};

/// The object of a pointer.
#[inline]
pub(crate) fn required<T>(pointer: Option<T>, name: &str) -> Result<T> {
    pointer.ok_or_else(|| null(name))
}

#[cold]
fn null(name: &str) -> Box<ErrorHandle> {
    ErrorHandle::invalid(&format!("{name} is null"))
}

/// The `len` bytes at `start`, which may be null if there are none.
///
/// # Safety
/// They must be there, and stay as they are, for `'a`.
#[inline]
pub(crate) unsafe fn bytes<'a>(start: *const c_void, len: usize, name: &str) -> Result<&'a [u8]> {
    if start.is_null() && len > 0 {
        return Err(null(name));
    }
    if isize::try_from(len).is_err() {
        return Err(ErrorHandle::invalid(&format!("the length of {name} is {len} bytes")));
    }
    // SAFETY: by the contract.
    Ok(unsafe { pleach_ffi::bytes(start.cast(), len) })
}

/// A bound of a range of keys: null is none.
///
/// # Safety
/// As for [`bytes`].
unsafe fn bound<'a>(start: *const c_void, len: usize, name: &str) -> Result<Option<&'a [u8]>> {
    if start.is_null() && len == 0 {
        return Ok(None);
    }
    // SAFETY: by the contract.
    unsafe { bytes(start, len, name) }.map(Some)
}

/// The first key of a range, and the one behind it.
pub(crate) type Bounds<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// The bounds of a range of keys, of which each may be null for none.
///
/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn bounds<'a>(
    (lower, lower_len): (*const c_void, usize),
    (upper, upper_len): (*const c_void, usize),
) -> Result<Bounds<'a>> {
    // SAFETY: by the contract.
    unsafe { Ok((bound(lower, lower_len, "lower")?, bound(upper, upper_len, "upper")?)) }
}

/// The path of a C string.
///
/// # Safety
/// It must be null or a C string that stays as it is for `'a`.
pub(crate) unsafe fn path<'a>(string: *const c_char, name: &str) -> Result<&'a Path> {
    if string.is_null() {
        return Err(null(name));
    }
    // SAFETY: by the contract.
    let bytes = unsafe { c_string(string) };
    if bytes.is_empty() {
        return Err(ErrorHandle::invalid(&format!("{name} is empty")));
    }
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// The text of a C string of UTF-8.
///
/// # Safety
/// As for [`path`].
pub(crate) unsafe fn text<'a>(string: *const c_char, name: &str) -> Result<&'a str> {
    if string.is_null() {
        return Err(null(name));
    }
    // SAFETY: by the contract.
    std::str::from_utf8(unsafe { c_string(string) })
        .map_err(|_| ErrorHandle::invalid(&format!("{name} is not UTF-8")))
}

/// The member of an enumeration whose members have the numbers from 0 on.
#[inline]
pub(crate) fn member<T: Copy>(members: &[T], number: u32, name: &str) -> Result<T> {
    members.get(number as usize).copied().ok_or_else(|| {
        ErrorHandle::invalid(&format!("{name} is {number}; it must be below {}", members.len()))
    })
}

/// A place for a result, which need not hold anything yet.
pub(crate) struct Slot<T>(*mut T);

impl<T> Slot<T> {
    /// The place at `pointer`, with `empty` in it.
    ///
    /// # Safety
    /// It must be null or valid for writes.
    #[inline]
    pub(crate) unsafe fn new(pointer: *mut T, empty: T, name: &str) -> Result<Self> {
        if pointer.is_null() {
            return Err(null(name));
        }
        // SAFETY: by the contract.
        unsafe { pointer.write(empty) };
        Ok(Self(pointer))
    }

    /// Puts the result there.
    #[inline]
    pub(crate) fn fill(self, result: T) {
        // SAFETY: by the contract of `new`, it is valid for writes; what is there needs no drop.
        unsafe { self.0.write(result) };
    }
}

impl<T> Slot<*mut T> {
    /// A place for a handle, with null in it.
    ///
    /// # Safety
    /// As for [`Slot::new`].
    #[inline]
    pub(crate) unsafe fn of_handle(pointer: *mut *mut T, name: &str) -> Result<Self> {
        // SAFETY: by the contract.
        unsafe { Self::new(pointer, std::ptr::null_mut(), name) }
    }

    /// Gives the handle to the caller.
    #[inline]
    pub(crate) fn give(self, handle: T) {
        self.fill(Box::into_raw(Box::new(handle)));
    }
}
