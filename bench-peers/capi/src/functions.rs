//! The functions of the interface. Where nothing else is said, they return 1 when it is done and [`FAILED`] on an error.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pleach_bench::Result;
use pleach_ffi::{bytes, c_string};

use crate::error::{FAILED, answer};
use crate::keys::{KEY_LEN, key};
use crate::session::PeersSession;
use crate::store::config;

/// It is done, or the row was found.
const DONE: c_int = 1;
/// There is no such row.
const NO_ROW: c_int = 0;

/// Opens a session of the calling thread with the store of `engine`, by its name, in `folder`, which is created. If this process
/// has the store open, the session shares it; all arguments must then be the same. Null on an error.
///
/// `memory_bytes` is for buffers and caches. `durability` is `buffered` or `sync`. `settings` are the engine's own, as
/// `<name>=<value>,...`, or empty. All texts are strings of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peers_open(
    engine: *const c_char,
    folder: *const c_char,
    memory_bytes: u64,
    durability: *const c_char,
    settings: *const c_char,
    tables: u32,
) -> *mut PeersSession {
    answer(std::ptr::null_mut(), || {
        // SAFETY: strings of C, or null, by the contract.
        let (engine, folder, durability, settings) =
            unsafe { (text(engine)?, text(folder)?, text(durability)?, text(settings)?) };
        let folder = Path::new(OsStr::from_bytes(folder));
        let [engine, durability, settings] =
            [engine, durability, settings].map(|text| String::from_utf8_lossy(text));
        let config = config(folder, memory_bytes, &durability, &settings, tables as usize)?;
        Ok(Box::into_raw(Box::new(PeersSession::open(&engine, config)?)))
    })
}

/// Ends a session; null is allowed. The last session of a store closes the store. The thread that opened the session calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peers_close(session: *mut PeersSession) -> c_int {
    answer(FAILED, || {
        if !session.is_null() {
            // SAFETY: `peers_open` made it, and it is not used again, by the contract.
            unsafe { Box::from_raw(session) }.close()?;
        }
        Ok(DONE)
    })
}

/// Gives a key a row, whether there is one or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peers_insert(
    session: *mut PeersSession,
    table: u32,
    key: *const c_char,
    key_len: usize,
    row: *const c_char,
    row_len: usize,
) -> c_int {
    answer(FAILED, || {
        // SAFETY: the session of this thread and bytes that are there, by the contract.
        let (session, key, row) = unsafe { (own(session)?, bytes(key, key_len), bytes(row, row_len)) };
        session.insert(table as usize, key, row)?;
        Ok(DONE)
    })
}

/// Reads a row, sets `field_len` bytes at `offset` in it and writes it: as `$set` of a field in a document. Returns 0 if there is
/// no such row. Of two updates of one row at a time the last one may undo the other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peers_update(
    session: *mut PeersSession,
    table: u32,
    key: *const c_char,
    key_len: usize,
    offset: usize,
    field: *const c_char,
    field_len: usize,
) -> c_int {
    answer(FAILED, || {
        // SAFETY: the session of this thread and bytes that are there, by the contract.
        let (session, key, field) = unsafe { (own(session)?, bytes(key, key_len), bytes(field, field_len)) };
        let is_found = session.update(table as usize, key, offset, field)?;
        Ok(if is_found { DONE } else { NO_ROW })
    })
}

/// Copies the first `capacity` bytes of a row to `row`, and its length to `row_len`. Returns 0 if there is no such row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peers_read(
    session: *mut PeersSession,
    table: u32,
    key: *const c_char,
    key_len: usize,
    row: *mut c_char,
    capacity: usize,
    row_len: *mut usize,
) -> c_int {
    answer(FAILED, || {
        // SAFETY: the session of this thread and bytes that are there, by the contract.
        let (session, key) = unsafe { (own(session)?, bytes(key, key_len)) };
        let is_found = session.read(table as usize, key, &mut |found| {
            // SAFETY: `row` has room for `capacity` bytes, and `row_len` for a length, by the contract.
            unsafe {
                std::ptr::copy_nonoverlapping(found.as_ptr().cast(), row, found.len().min(capacity));
                row_len.write(found.len());
            }
        })?;
        Ok(if is_found { DONE } else { NO_ROW })
    })
}

/// Removes all tables and their rows. No other session may use them meanwhile, and none afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peers_drop_tables(session: *mut PeersSession) -> c_int {
    answer(FAILED, || {
        // SAFETY: the session of this thread, by the contract.
        unsafe { own(session) }?.drop_tables()?;
        Ok(DONE)
    })
}

/// Writes the 16 bytes of the key with `index`, which is below 10^16, to `to`. Different indexes have different keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peers_key(index: u64, to: *mut c_char) -> c_int {
    answer(FAILED, || {
        let key = key(index)?;
        // SAFETY: there is room for a key, by the contract.
        unsafe { std::ptr::copy_nonoverlapping(key.as_ptr().cast(), to, KEY_LEN) };
        Ok(DONE)
    })
}

/// The bytes of a string of C, which must not be null.
unsafe fn text<'a>(start: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: by the caller's contract.
    if start.is_null() { Err("a text is null".into()) } else { Ok(unsafe { c_string(start) }) }
}

/// The session, which must not be null.
unsafe fn own<'a>(session: *mut PeersSession) -> Result<&'a mut PeersSession> {
    // SAFETY: by the caller's contract.
    unsafe { session.as_mut() }.ok_or_else(|| "the session is null".into())
}

#[cfg(test)]
mod tests;
