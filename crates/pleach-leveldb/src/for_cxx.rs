//! Functions beside those of `c.h`, for the C++ interface in `adapters/leveldb`; its `pleach_leveldb.h` declares them.

use std::ffi::c_void;
use std::sync::Arc;

use libc::c_char;
use pleach::env::MemEnv;
use pleach_ffi::bytes;

use crate::database::{Database, get_to};
use crate::handles::{EnvHandle, Logger, LoggerHandle};
use crate::options::{ReadOptionsHandle, WriteOptionsHandle};
use crate::status::{ErrorSlot, report};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_leveldb_get_to(
    db: &Database,
    options: &ReadOptionsHandle,
    key: *const c_char,
    key_len: usize,
    sink: unsafe extern "C" fn(state: *mut c_void, value: *const c_char, len: usize),
    state: *mut c_void,
    error: ErrorSlot<'_>,
) -> u8 {
    // SAFETY: by the contract of the header.
    let key = unsafe { bytes(key, key_len) };
    // SAFETY: the caller gave the function for this state; the value is there during the call.
    get_to(db, options, key, |value| unsafe { sink(state, value.as_ptr().cast(), value.len()) }, error)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_leveldb_write_records(
    db: &Database,
    options: &WriteOptionsHandle,
    records: *const c_char,
    len: usize,
    error: ErrorSlot<'_>,
) {
    // SAFETY: by the contract of the header.
    let records = unsafe { bytes(records, len) };
    report(error, || db.write(records, options.durability).map_err(|e| db.logged(e)));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_leveldb_logger_create(
    state: *mut c_void,
    write: unsafe extern "C" fn(state: *mut c_void, line: *const c_char, len: usize),
) -> Box<LoggerHandle> {
    Box::new(LoggerHandle(Arc::new(Logger { state, write })))
}

#[unsafe(no_mangle)]
pub extern "C" fn pleach_leveldb_logger_destroy(_: Option<Box<LoggerHandle>>) {}

#[unsafe(no_mangle)]
pub extern "C" fn pleach_leveldb_memory_env_create() -> Box<EnvHandle> {
    Box::new(EnvHandle { other: Some(Arc::new(MemEnv::new())) })
}
