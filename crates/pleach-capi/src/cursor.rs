//! Cursors: positions among the entries of a partition.
//!
//! A move answers whether there is an entry, and keeps its error for `pleach_cursor_status`, so that a loop over entries has one
//! call a step.

use std::ffi::c_void;

use pleach::{Cursor, Partition};
use pleach_ffi::guard;

use crate::arguments::{bytes, required};
use crate::error::{ErrorHandle, PleachCode, Result, attempt, report};

/// A position among the entries of a partition, in the order of the keys, at the moment when the cursor was made. It moves to an
/// end, to a key, or by one entry, and lends the entry that it is on. It keeps the store open.
///
/// A move returns whether the cursor is on an entry now. If not, `pleach_cursor_status` tells whether there is none, or the move
/// failed. A cursor on no entry stays there until it is moved to an end or to a key.
///
/// Thread safety: one thread at a time.
pub struct CursorHandle {
    /// `None` after a panic: its state is unknown.
    cursor: Option<Cursor>,
    /// Of the last move, or of a value that could not be read since.
    error: Option<Box<ErrorHandle>>,
    /// Keeps the store open.
    _partition: Partition,
}

const _: () = pleach_ffi::assert_movable::<CursorHandle>();

impl CursorHandle {
    pub(crate) fn new(cursor: Cursor, partition: Partition) -> Self {
        Self { cursor: Some(cursor), error: None, _partition: partition }
    }

    /// Makes a move, and keeps its error.
    #[inline]
    fn go(&mut self, to: impl FnOnce(&mut Cursor) -> Result<bool>) -> bool {
        let Some(cursor) = &mut self.cursor else { return false };
        match attempt(|| to(cursor)) {
            Ok(is_found) => {
                if self.error.is_some() {
                    self.error = None;
                }
                is_found
            }
            Err(error) => self.fail(error),
        }
    }

    #[cold]
    fn fail(&mut self, error: Box<ErrorHandle>) -> bool {
        if error.code() == PleachCode::Internal {
            guard((), || self.cursor = None);
        }
        self.error = Some(error);
        false
    }
}

/// Moves the cursor of a pointer.
#[inline]
fn go(cursor: Option<&mut CursorHandle>, to: impl FnOnce(&mut Cursor) -> Result<bool>) -> bool {
    cursor.is_some_and(|cursor| cursor.go(to))
}

/// Moves to the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_cursor_first(cursor: Option<&mut CursorHandle>) -> bool {
    go(cursor, |cursor| Ok(cursor.first()?))
}

/// Moves to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_cursor_last(cursor: Option<&mut CursorHandle>) -> bool {
    go(cursor, |cursor| Ok(cursor.last()?))
}

/// Moves to the first entry at or above `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_cursor_seek(
    cursor: Option<&mut CursorHandle>,
    key: *const c_void,
    key_len: usize,
) -> bool {
    // SAFETY: by the contract.
    go(cursor, |cursor| Ok(cursor.seek(unsafe { bytes(key, key_len, "key")? })?))
}

/// Moves to the last entry at or below `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_cursor_seek_for_prev(
    cursor: Option<&mut CursorHandle>,
    key: *const c_void,
    key_len: usize,
) -> bool {
    // SAFETY: by the contract.
    go(cursor, |cursor| Ok(cursor.seek_for_prev(unsafe { bytes(key, key_len, "key")? })?))
}

/// Moves to the next entry.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_cursor_next(cursor: Option<&mut CursorHandle>) -> bool {
    go(cursor, |cursor| Ok(cursor.next()?))
}

/// Moves to the previous entry.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_cursor_prev(cursor: Option<&mut CursorHandle>) -> bool {
    go(cursor, |cursor| Ok(cursor.prev()?))
}

/// Whether the cursor is on an entry. False for null.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_cursor_valid(cursor: Option<&CursorHandle>) -> bool {
    guard(false, || cursor.and_then(|cursor| cursor.cursor.as_ref()).is_some_and(Cursor::is_valid))
}

/// The key of the entry, and its length in `*key_len`, until the next move. Null if the cursor is on no entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_cursor_key(
    cursor: Option<&CursorHandle>,
    key_len: *mut usize,
) -> *const c_void {
    let key = guard(None, || cursor?.cursor.as_ref()?.key());
    // SAFETY: by the contract.
    unsafe { lend(key, key_len) }
}

/// The value of the entry, and its length in `*value_len`, until the next move. Null if the cursor is on no entry, or if the
/// value cannot be read, which `pleach_cursor_status` tells. The cursor then stays on the entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_cursor_value(
    cursor: Option<&mut CursorHandle>,
    value_len: *mut usize,
) -> *const c_void {
    let value = cursor.and_then(|handle| {
        let CursorHandle { cursor, error, .. } = handle;
        let cursor = cursor.as_ref()?;
        attempt(|| Ok(cursor.value()?)).unwrap_or_else(|failure| {
            *error = Some(failure);
            None
        })
    });
    // SAFETY: by the contract.
    unsafe { lend(value, value_len) }
}

/// The bytes as C has them. The pointer of empty bytes is not null.
///
/// # Safety
/// `len` must be null or valid for writes.
#[inline]
unsafe fn lend(bytes: Option<&[u8]>, len: *mut usize) -> *const c_void {
    if !len.is_null() {
        // SAFETY: by the contract.
        unsafe { len.write(bytes.map_or(0, <[u8]>::len)) };
    }
    bytes.map_or(std::ptr::null(), |bytes| bytes.as_ptr().cast())
}

/// The error of the last move, or of a value that could not be read since; null if there was none. The caller frees it. The
/// cursor keeps it until the next move.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_cursor_status(cursor: Option<&CursorHandle>) -> Option<Box<ErrorHandle>> {
    report(|| required(cursor, "cursor")?.error.clone().map_or(Ok(()), Err))
}

/// Frees a cursor. Null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_cursor_free(cursor: Option<Box<CursorHandle>>) {
    guard((), || drop(cursor));
}
