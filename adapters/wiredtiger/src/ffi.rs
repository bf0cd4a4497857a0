//! Declarations of the functions of `shim.c`, and of the library's own that need no shim.

#![expect(unsafe_code, reason = "WiredTiger is called through a shim in C")]

use std::ffi::{c_char, c_int};

/// An open database, `WT_CONNECTION`.
#[repr(C)]
pub(crate) struct Connection {
    _private: [u8; 0],
}

/// A thread's way in, `WT_SESSION`.
#[repr(C)]
pub(crate) struct Session {
    _private: [u8; 0],
}

/// A position in a table, `WT_CURSOR`.
#[repr(C)]
pub(crate) struct Cursor {
    _private: [u8; 0],
}

/// `WT_NOTFOUND`.
pub(crate) const NOT_FOUND: c_int = -31803;
/// `WT_ROLLBACK`: a conflict with another transaction.
pub(crate) const ROLLBACK: c_int = -31800;
/// `EBUSY`.
pub(crate) const BUSY: c_int = 16;

/// Statistics as `shim.c` numbers them.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub enum Statistic {
    /// Bytes written to the log.
    LogBytes,
    /// Bytes of blocks written to files of tables.
    BlockWrittenBytes,
    /// Bytes of blocks read from them.
    BlockReadBytes,
    /// Bytes in the cache.
    CacheBytes,
    /// Those of them that are dirty.
    CacheDirtyBytes,
    /// Those of them in internal pages.
    CacheInternalBytes,
    /// Pages that callers had to evict themselves.
    EvictedByApplication,
    /// Time that this took, in microseconds.
    ApplicationEvictionUs,
    /// Time that callers waited for space in the cache, in microseconds.
    ApplicationCacheWaitUs,
    /// Checkpoints.
    Checkpoints,
}

unsafe extern "C" {
    pub(crate) fn wiredtiger_version(
        major: *mut c_int,
        minor: *mut c_int,
        patch: *mut c_int,
    ) -> *const c_char;
    pub(crate) fn wiredtiger_strerror(error: c_int) -> *const c_char;

    pub(crate) fn shim_open(home: *const c_char, config: *const c_char, out: *mut *mut Connection) -> c_int;
    pub(crate) fn shim_close(connection: *mut Connection) -> c_int;
    pub(crate) fn shim_open_session(
        connection: *mut Connection,
        config: *const c_char,
        out: *mut *mut Session,
    ) -> c_int;

    pub(crate) fn shim_close_session(session: *mut Session) -> c_int;
    pub(crate) fn shim_create(session: *mut Session, uri: *const c_char, config: *const c_char) -> c_int;
    pub(crate) fn shim_drop(session: *mut Session, uri: *const c_char) -> c_int;
    pub(crate) fn shim_checkpoint(session: *mut Session) -> c_int;
    pub(crate) fn shim_flush_log(session: *mut Session) -> c_int;
    pub(crate) fn shim_begin(session: *mut Session, config: *const c_char) -> c_int;
    pub(crate) fn shim_commit(session: *mut Session) -> c_int;
    pub(crate) fn shim_roll_back(session: *mut Session) -> c_int;
    pub(crate) fn shim_truncate(session: *mut Session, first: *mut Cursor, last: *mut Cursor) -> c_int;
    pub(crate) fn shim_open_cursor(session: *mut Session, uri: *const c_char, out: *mut *mut Cursor)
    -> c_int;

    pub(crate) fn shim_close_cursor(cursor: *mut Cursor) -> c_int;
    pub(crate) fn shim_reset(cursor: *mut Cursor) -> c_int;
    pub(crate) fn shim_insert(
        cursor: *mut Cursor,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    ) -> c_int;
    pub(crate) fn shim_remove(cursor: *mut Cursor, key: *const u8, key_len: usize) -> c_int;
    pub(crate) fn shim_search(cursor: *mut Cursor, key: *const u8, key_len: usize) -> c_int;
    pub(crate) fn shim_search_near(
        cursor: *mut Cursor,
        key: *const u8,
        key_len: usize,
        exact: *mut c_int,
    ) -> c_int;
    pub(crate) fn shim_next(cursor: *mut Cursor) -> c_int;
    pub(crate) fn shim_prev(cursor: *mut Cursor) -> c_int;
    pub(crate) fn shim_key(cursor: *mut Cursor, key: *mut *const u8, key_len: *mut usize) -> c_int;
    pub(crate) fn shim_name(cursor: *mut Cursor, name: *mut *const c_char) -> c_int;
    pub(crate) fn shim_value(cursor: *mut Cursor, value: *mut *const u8, value_len: *mut usize) -> c_int;
    pub(crate) fn shim_statistic(cursor: *mut Cursor, statistic: c_int, value: *mut u64) -> c_int;
}
