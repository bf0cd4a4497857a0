//! Filter policies: `leveldb_filterpolicy_t`.
//!
//! Pleach has its own filters. The bits of LevelDB's Bloom filter set theirs. A policy of the caller is not used inside SSTs. But
//! a policy that wrongly excludes keys changes what a get of LevelDB's finds. So each key that a get finds is checked by a filter
//! of that key alone, and the wrong policy has the same effect here.

use std::ffi::c_void;
use std::sync::Arc;

use libc::{c_char, c_int};

use crate::comparator::{Destructor, Name};

pub type CreateFilter = unsafe extern "C" fn(
    state: *mut c_void,
    keys: *const *const c_char,
    key_lens: *const usize,
    key_count: c_int,
    filter_len: *mut usize,
) -> *mut c_char;
pub type KeyMayMatch = unsafe extern "C" fn(
    state: *mut c_void,
    key: *const c_char,
    key_len: usize,
    filter: *const c_char,
    filter_len: usize,
) -> u8;

pub(crate) enum FilterPolicy {
    Bloom { bits_per_key: c_int },
    Custom(Custom),
}

/// Functions of the caller.
pub(crate) struct Custom {
    state: *mut c_void,
    destructor: Destructor,
    create: CreateFilter,
    may_match: KeyMayMatch,
}

// SAFETY: c.h asks that a policy can be used by several threads at the same time.
unsafe impl Send for Custom {}
// SAFETY: as above.
unsafe impl Sync for Custom {}

impl Custom {
    /// What a filter of this key alone says about it.
    pub(crate) fn may_match(&self, key: &[u8]) -> bool {
        let (start, key_len, mut filter_len) = (key.as_ptr().cast(), key.len(), 0);
        // SAFETY: the caller gave the functions for this state. The filter comes from `malloc`.
        unsafe {
            let filter =
                (self.create)(self.state, &raw const start, &raw const key_len, 1, &raw mut filter_len);
            let answer = (self.may_match)(self.state, start, key_len, filter, filter_len);
            libc::free(filter.cast());
            answer != 0
        }
    }
}

impl Drop for Custom {
    fn drop(&mut self) {
        // SAFETY: the caller gave the function for this state, to be called once.
        unsafe { (self.destructor)(self.state) }
    }
}

/// `leveldb_filterpolicy_t`. Stores that use it share it.
pub struct FilterPolicyHandle(pub(crate) Arc<FilterPolicy>);

const _: () = pleach_ffi::assert_shared::<FilterPolicyHandle>();

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: Destructor,
    create: CreateFilter,
    may_match: KeyMayMatch,
    _name: Name,
) -> Box<FilterPolicyHandle> {
    let custom = Custom { state, destructor, create, may_match };
    Box::new(FilterPolicyHandle(Arc::new(FilterPolicy::Custom(custom))))
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> Box<FilterPolicyHandle> {
    Box::new(FilterPolicyHandle(Arc::new(FilterPolicy::Bloom { bits_per_key })))
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_destroy(_: Option<Box<FilterPolicyHandle>>) {}
