//! Declarations of the functions of LevelDB's C interface that are used here, as `leveldb/c.h` of 1.23 has them.
//!
//! Objects are opaque and handled by pointer. A function that can fail takes a pointer to an error, which must be null
//! before the call and afterwards may hold a string that [`leveldb_free`] frees.

#![expect(unsafe_code, reason = "LevelDB is called through its C interface")]

use std::ffi::{c_char, c_int, c_void};

macro_rules! opaque {
    ($($name:ident),*) => {
        $(
            #[repr(C)]
            pub(super) struct $name {
                _private: [u8; 0],
            }
        )*
    };
}

opaque!(Cache, Database, FilterPolicy, Iterator, Options, ReadOptions, WriteBatch, WriteOptions);

/// `leveldb_no_compression`.
pub(super) const NO_COMPRESSION: c_int = 0;
/// `leveldb_snappy_compression`.
pub(super) const SNAPPY_COMPRESSION: c_int = 1;

unsafe extern "C" {
    pub(super) fn leveldb_major_version() -> c_int;
    pub(super) fn leveldb_minor_version() -> c_int;
    pub(super) fn leveldb_free(allocated: *mut c_void);

    pub(super) fn leveldb_open(
        options: *const Options,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut Database;
    pub(super) fn leveldb_close(db: *mut Database);
    pub(super) fn leveldb_put(
        db: *mut Database,
        options: *const WriteOptions,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn leveldb_delete(
        db: *mut Database,
        options: *const WriteOptions,
        key: *const u8,
        key_len: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn leveldb_write(
        db: *mut Database,
        options: *const WriteOptions,
        batch: *mut WriteBatch,
        error: *mut *mut c_char,
    );
    pub(super) fn leveldb_get(
        db: *mut Database,
        options: *const ReadOptions,
        key: *const u8,
        key_len: usize,
        value_len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut u8;
    pub(super) fn leveldb_property_value(db: *mut Database, name: *const c_char) -> *mut c_char;
    pub(super) fn leveldb_compact_range(
        db: *mut Database,
        start: *const u8,
        start_len: usize,
        limit: *const u8,
        limit_len: usize,
    );

    pub(super) fn leveldb_create_iterator(db: *mut Database, options: *const ReadOptions) -> *mut Iterator;
    pub(super) fn leveldb_iter_destroy(iterator: *mut Iterator);
    pub(super) fn leveldb_iter_valid(iterator: *const Iterator) -> u8;
    pub(super) fn leveldb_iter_seek_to_first(iterator: *mut Iterator);
    pub(super) fn leveldb_iter_seek_to_last(iterator: *mut Iterator);
    pub(super) fn leveldb_iter_seek(iterator: *mut Iterator, key: *const u8, key_len: usize);
    pub(super) fn leveldb_iter_next(iterator: *mut Iterator);
    pub(super) fn leveldb_iter_prev(iterator: *mut Iterator);
    pub(super) fn leveldb_iter_key(iterator: *const Iterator, len: *mut usize) -> *const u8;
    pub(super) fn leveldb_iter_value(iterator: *const Iterator, len: *mut usize) -> *const u8;
    pub(super) fn leveldb_iter_get_error(iterator: *const Iterator, error: *mut *mut c_char);

    pub(super) fn leveldb_writebatch_create() -> *mut WriteBatch;
    pub(super) fn leveldb_writebatch_destroy(batch: *mut WriteBatch);
    pub(super) fn leveldb_writebatch_clear(batch: *mut WriteBatch);
    pub(super) fn leveldb_writebatch_put(
        batch: *mut WriteBatch,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    );
    pub(super) fn leveldb_writebatch_delete(batch: *mut WriteBatch, key: *const u8, key_len: usize);

    pub(super) fn leveldb_options_create() -> *mut Options;
    pub(super) fn leveldb_options_destroy(options: *mut Options);
    pub(super) fn leveldb_options_set_create_if_missing(options: *mut Options, flag: u8);
    pub(super) fn leveldb_options_set_paranoid_checks(options: *mut Options, flag: u8);
    pub(super) fn leveldb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
    pub(super) fn leveldb_options_set_max_open_files(options: *mut Options, files: c_int);
    pub(super) fn leveldb_options_set_block_size(options: *mut Options, bytes: usize);
    pub(super) fn leveldb_options_set_block_restart_interval(options: *mut Options, entries: c_int);
    pub(super) fn leveldb_options_set_max_file_size(options: *mut Options, bytes: usize);
    pub(super) fn leveldb_options_set_compression(options: *mut Options, kind: c_int);
    pub(super) fn leveldb_options_set_cache(options: *mut Options, cache: *mut Cache);
    pub(super) fn leveldb_options_set_filter_policy(options: *mut Options, policy: *mut FilterPolicy);

    pub(super) fn leveldb_cache_create_lru(bytes: usize) -> *mut Cache;
    pub(super) fn leveldb_cache_destroy(cache: *mut Cache);
    pub(super) fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut FilterPolicy;
    pub(super) fn leveldb_filterpolicy_destroy(policy: *mut FilterPolicy);

    pub(super) fn leveldb_readoptions_create() -> *mut ReadOptions;
    pub(super) fn leveldb_readoptions_destroy(options: *mut ReadOptions);
    pub(super) fn leveldb_writeoptions_create() -> *mut WriteOptions;
    pub(super) fn leveldb_writeoptions_destroy(options: *mut WriteOptions);
    pub(super) fn leveldb_writeoptions_set_sync(options: *mut WriteOptions, flag: u8);
}
