//! Errors: the text of the calling thread's last one, and what runs each function that can fail.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use pleach_bench::Result;
use pleach_ffi::guard;

/// The answer of a function that failed.
pub const FAILED: c_int = -1;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the error of the last call that failed on this thread; empty if none did. It is valid until the next call on this
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn peers_error() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}

/// Runs the work of a function. Its error, or that it panicked, becomes the thread's last error.
pub(crate) fn answer<T>(failed: T, work: impl FnOnce() -> Result<T>) -> T {
    let panicked = || Err("a panic; its message is on the standard error output".into());
    guard(None, || Some(work())).unwrap_or_else(panicked).unwrap_or_else(|error| {
        // The text of a path or a library may have any bytes; a string of C ends at a zero.
        let text = CString::new(error.to_string().replace('\0', "\\0")).unwrap_or_default();
        LAST.set(text);
        failed
    })
}
