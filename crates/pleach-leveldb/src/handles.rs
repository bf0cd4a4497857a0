//! Small objects that the caller makes and hands over: caches, environments, loggers; and functions of no object.

use std::ffi::c_void;
use std::sync::Arc;

use libc::{c_char, c_int};
use pleach::env::{Env, RealEnv};
use pleach_ffi::{copy_string, guard};

/// `leveldb_cache_t`: a size. Each store that uses it has a cache of that size.
pub struct Cache {
    pub(crate) capacity: usize,
}

const _: () = pleach_ffi::assert_shared::<Cache>();

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: usize) -> Box<Cache> {
    Box::new(Cache { capacity })
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_destroy(_: Option<Box<Cache>>) {}

/// `leveldb_env_t`: memory, or the machine.
pub struct EnvHandle {
    pub(crate) other: Option<Arc<dyn Env>>,
}

const _: () = pleach_ffi::assert_shared::<EnvHandle>();

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_default_env() -> Box<EnvHandle> {
    Box::new(EnvHandle { other: None })
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_env_destroy(_: Option<Box<EnvHandle>>) {}

/// A directory for tests, which is made if it is missing: that of `TEST_TMPDIR`, or one of this user. The caller frees the name.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_env_get_test_directory(_: &EnvHandle) -> *mut c_char {
    guard(std::ptr::null_mut(), || {
        // SAFETY: it cannot fail.
        let user = unsafe { libc::geteuid() };
        let named = std::env::var("TEST_TMPDIR").ok().filter(|name| !name.is_empty());
        let name = named.unwrap_or_else(|| format!("/tmp/leveldbtest-{user}"));
        // The store that is opened there reports a directory that could not be made.
        let _stays_missing = RealEnv::new().create_dir_all(std::path::Path::new(&name));
        copy_string(name.as_bytes())
    })
}

/// `leveldb_logger_t`. Stores that use it share it.
pub struct LoggerHandle(pub(crate) Arc<Logger>);

const _: () = pleach_ffi::assert_shared::<LoggerHandle>();

/// What takes a line of text.
pub(crate) struct Logger {
    pub(crate) state: *mut c_void,
    pub(crate) write: unsafe extern "C" fn(state: *mut c_void, line: *const c_char, len: usize),
}

// SAFETY: LevelDB asks that a logger can be used by several threads at the same time.
unsafe impl Send for Logger {}
// SAFETY: as above.
unsafe impl Sync for Logger {}

impl Logger {
    pub(crate) fn write(&self, line: &str) {
        // SAFETY: the caller gave the function for this state; the line is there during the call.
        unsafe { (self.write)(self.state, line.as_ptr().cast(), line.len()) }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_free(memory: *mut c_void) {
    // SAFETY: by the contract of c.h.
    unsafe { libc::free(memory) }
}

/// The version of LevelDB whose interface this is.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_major_version() -> c_int {
    1
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_minor_version() -> c_int {
    23
}
