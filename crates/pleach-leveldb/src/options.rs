//! Options of a store, of reads and of writes, and what they mean to Pleach: docs/leveldb.md.

use std::sync::{Arc, Weak};

use libc::c_int;
use pleach::env::{Env, RealEnv};
use pleach::{Durability, Options};

use crate::comparator::{BYTEWISE, Comparator, ComparatorHandle};
use crate::database::SnapshotHandle;
use crate::filter_policy::{FilterPolicy, FilterPolicyHandle};
use crate::handles::{Cache, EnvHandle, Logger, LoggerHandle};
use crate::status::{Kind, Result, Status};

/// LevelDB's cache if the caller gives none.
const CACHE_BYTES_DEFAULT: usize = 8 << 20;

/// LevelDB's bounds of a write buffer, and its default.
const WRITE_BUFFER_MIN: usize = 64 << 10;
const WRITE_BUFFER_MAX: usize = 1 << 30;
const WRITE_BUFFER_DEFAULT: usize = 4 << 20;

/// Bounds of the memory of a store, whatever the caller's numbers are.
const MEMORY_MIN: usize = 2 << 20;
const MEMORY_MAX: usize = 1 << 50;

/// Least budget for the keys of a custom comparator: about 130,000 of 24 bytes. A quarter of LevelDB's default memory would be
/// used up by a small program.
const VIEW_BYTES_MIN: usize = 16 << 20;

/// `leveldb_options_t`.
#[derive(Clone)]
pub struct OptionsHandle {
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    /// Of the caller's, as is the next one: once it is destroyed, nothing of it may be called, not even its destructor later.
    comparator: Option<Weak<Comparator>>,
    filter_policy: Option<Weak<FilterPolicy>>,
    /// Where the files are, if not on the machine.
    pub(crate) other_env: Option<Arc<dyn Env>>,
    pub(crate) info_log: Option<Arc<Logger>>,
    write_buffer_size: usize,
    cache_capacity: Option<usize>,
    compresses: bool,
}

const _: () = pleach_ffi::assert_shared::<OptionsHandle>();

impl Default for OptionsHandle {
    fn default() -> Self {
        Self {
            create_if_missing: false,
            error_if_exists: false,
            comparator: None,
            filter_policy: None,
            other_env: None,
            info_log: None,
            write_buffer_size: WRITE_BUFFER_DEFAULT,
            cache_capacity: None,
            compresses: true,
        }
    }
}

impl OptionsHandle {
    /// Where the files are.
    pub(crate) fn env(&self) -> Arc<dyn Env> {
        match &self.other_env {
            Some(env) => Arc::clone(env),
            // As LevelDB does.
            None => Arc::new(RealEnv::new().with_mapped_reads()),
        }
    }

    /// The comparator.
    ///
    /// # Errors
    /// `InvalidArgument`: it has been destroyed.
    pub(crate) fn comparator(&self) -> Result<Option<Arc<Comparator>>> {
        still_there(self.comparator.as_ref(), "comparator")
    }

    /// The filter policy, as [`comparator`](Self::comparator).
    pub(crate) fn filter_policy(&self) -> Result<Option<Arc<FilterPolicy>>> {
        still_there(self.filter_policy.as_ref(), "filter policy")
    }

    /// The comparator, if it is not the order of bytes.
    pub(crate) fn custom_comparator(&self) -> Result<Option<Arc<Comparator>>> {
        Ok(self.comparator()?.filter(|comparator| comparator.name() != BYTEWISE))
    }

    /// Memory that the caller has allowed: cache and two write buffers.
    pub(crate) fn memory_bytes(&self) -> usize {
        let cache = self.cache_capacity.unwrap_or(CACHE_BYTES_DEFAULT);
        cache.saturating_add(2 * self.write_buffer()).clamp(MEMORY_MIN, MEMORY_MAX)
    }

    /// Memory that the keys of a custom comparator may take, in addition to [`OptionsHandle::memory_bytes`].
    pub(crate) fn view_bytes_max(&self) -> usize {
        (self.memory_bytes() / 4).max(VIEW_BYTES_MIN)
    }

    fn write_buffer(&self) -> usize {
        self.write_buffer_size.clamp(WRITE_BUFFER_MIN, WRITE_BUFFER_MAX)
    }

    /// Pleach's options for these.
    pub(crate) fn translate(&self) -> Options {
        let mut options = Options::new()
            .env(self.env())
            .create_if_missing(self.create_if_missing)
            .error_if_exists(self.error_if_exists)
            .memory(self.memory_bytes())
            .memtable_bytes(self.write_buffer())
            .compression(self.compresses);
        let policy = self.filter_policy.as_ref().and_then(Weak::upgrade);
        if let Some(FilterPolicy::Bloom { bits_per_key }) = policy.as_deref() {
            options = options.filter_bits_per_key(f32::from(filter_bits(*bits_per_key)));
        }
        options
    }
}

fn still_there<T>(object: Option<&Weak<T>>, what: &str) -> Result<Option<Arc<T>>> {
    let gone = || Status::new(Kind::InvalidArgument, format!("the {what} of the options has been destroyed"));
    object.map(|object| object.upgrade().ok_or_else(gone)).transpose()
}

/// Bits per key for those of LevelDB's Bloom filter: at least 1, which LevelDB also takes for less, and at most Pleach's maximum.
fn filter_bits(bits_per_key: c_int) -> u8 {
    u8::try_from(bits_per_key.clamp(1, 32)).expect("32 is in range")
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> Box<OptionsHandle> {
    Box::default()
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_destroy(_: Option<Box<OptionsHandle>>) {}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_comparator(
    options: &mut OptionsHandle,
    comparator: Option<&ComparatorHandle>,
) {
    options.comparator = comparator.map(|handle| Arc::downgrade(&handle.0));
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_filter_policy(
    options: &mut OptionsHandle,
    policy: Option<&FilterPolicyHandle>,
) {
    options.filter_policy = policy.map(|handle| Arc::downgrade(&handle.0));
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_create_if_missing(options: &mut OptionsHandle, yes: u8) {
    options.create_if_missing = yes != 0;
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_error_if_exists(options: &mut OptionsHandle, yes: u8) {
    options.error_if_exists = yes != 0;
}

/// Without effect: every block's checksum is compared, and damage is always an error.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_paranoid_checks(_: &mut OptionsHandle, _yes: u8) {}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_env(options: &mut OptionsHandle, env: Option<&EnvHandle>) {
    options.other_env = env.and_then(|handle| handle.other.clone());
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_info_log(options: &mut OptionsHandle, logger: Option<&LoggerHandle>) {
    options.info_log = logger.map(|handle| Arc::clone(&handle.0));
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_write_buffer_size(options: &mut OptionsHandle, bytes: usize) {
    options.write_buffer_size = bytes;
}

/// Without effect: Pleach opens at most half of the descriptors that the process may have.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_max_open_files(_: &mut OptionsHandle, _files: c_int) {}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_cache(options: &mut OptionsHandle, cache: Option<&Cache>) {
    options.cache_capacity = cache.map(|cache| cache.capacity);
}

/// Without effect: blocks have Pleach's size.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_block_size(_: &mut OptionsHandle, _bytes: usize) {}

/// Without effect, as above.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_block_restart_interval(_: &mut OptionsHandle, _entries: c_int) {}

/// Without effect: SSTs have Pleach's size.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_max_file_size(_: &mut OptionsHandle, _bytes: usize) {}

/// Anything but `leveldb_no_compression` is LZ4.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_compression(options: &mut OptionsHandle, compression: c_int) {
    options.compresses = compression != 0;
}

/// `leveldb_readoptions_t`.
pub struct ReadOptionsHandle {
    pub(crate) fill_cache: bool,
    pub(crate) snapshot: *const SnapshotHandle,
}

// SAFETY: by the contract of c.h the snapshot is there while a read uses the options, and any thread may read it.
unsafe impl Send for ReadOptionsHandle {}
// SAFETY: as above.
unsafe impl Sync for ReadOptionsHandle {}
const _: () = pleach_ffi::assert_shared::<ReadOptionsHandle>();

impl ReadOptionsHandle {
    pub(crate) fn snapshot(&self) -> Option<&SnapshotHandle> {
        // SAFETY: by the contract of c.h it is there until the read has ended.
        unsafe { self.snapshot.as_ref() }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> Box<ReadOptionsHandle> {
    Box::new(ReadOptionsHandle { fill_cache: true, snapshot: std::ptr::null() })
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_destroy(_: Option<Box<ReadOptionsHandle>>) {}

/// Without effect: checksums are always compared.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_verify_checksums(_: &mut ReadOptionsHandle, _yes: u8) {}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_fill_cache(options: &mut ReadOptionsHandle, yes: u8) {
    options.fill_cache = yes != 0;
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_snapshot(
    options: &mut ReadOptionsHandle,
    snapshot: *const SnapshotHandle,
) {
    options.snapshot = snapshot;
}

/// `leveldb_writeoptions_t`.
pub struct WriteOptionsHandle {
    pub(crate) durability: Durability,
}

const _: () = pleach_ffi::assert_shared::<WriteOptionsHandle>();

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> Box<WriteOptionsHandle> {
    Box::new(WriteOptionsHandle { durability: Durability::Buffered })
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_destroy(_: Option<Box<WriteOptionsHandle>>) {}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_set_sync(options: &mut WriteOptionsHandle, yes: u8) {
    options.durability = if yes != 0 { Durability::Sync } else { Durability::Buffered };
}

#[cfg(test)]
mod tests {
    use super::filter_bits;

    #[test]
    fn bits_of_a_filter_are_kept_in_range() {
        let bits = [-5, 0, 1, 10, 32, 33, 255, 256, 1000, i32::MAX].map(filter_bits);
        assert_eq!(bits, [1, 1, 1, 10, 32, 32, 32, 32, 32, 32]);
    }
}
