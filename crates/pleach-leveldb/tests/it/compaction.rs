//! What is on disk after a compaction of a range, and after the destruction of nothing.

use std::ffi::{CStr, CString};

use pleach_leveldb::*;

use crate::support::{Store, caught, folded_comparator, options, parts};

fn property(store: &Store, name: &CStr) -> String {
    // SAFETY: the name is a C string; the text comes from `malloc`.
    unsafe {
        let text = leveldb_property_value(store.db(), name.as_ptr());
        let copy = CStr::from_ptr(text).to_str().unwrap().to_owned();
        leveldb_free(text.cast());
        copy
    }
}

pub(crate) fn compact(store: &Store, start: Option<&[u8]>, limit: Option<&[u8]>) {
    let [(start, start_len), (limit, limit_len)] =
        [start, limit].map(|key| key.map_or((std::ptr::null(), 0), parts));
    // SAFETY: the keys are there.
    unsafe { leveldb_compact_range(store.db(), start, start_len, limit, limit_len) };
}

#[test]
fn a_range_of_reversed_keys_is_merged() {
    let dir = tempfile::tempdir().unwrap();
    let mut reversed = options();
    leveldb_options_set_comparator(
        &mut reversed,
        Some(Box::leak(pleach_leveldb_comparator_create_reverse_bytewise())),
    );
    let store = Store::open(dir.path(), &reversed).unwrap();
    let files = || property(&store, c"leveldb.num-files-at-level0");
    for n in 0..100_u8 {
        store.put(&[b'b', n], &[n; 100]).unwrap();
    }
    compact(&store, Some(b"a"), Some(b"z"));
    assert_eq!(files(), "0", "the range is empty in this order");
    compact(&store, Some(b"z"), Some(b"a"));
    assert_eq!(files(), "1");
}

#[test]
fn an_open_makes_the_order_that_of_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut folded = options();
    leveldb_options_set_comparator(&mut folded, Some(folded_comparator()));
    drop(Store::open(dir.path(), &options()).unwrap());
    let refused = Store::open(dir.path(), &folded).err().unwrap();
    assert!(refused.contains("does not match existing comparator: leveldb.BytewiseComparator"), "{refused}");
    assert!(Store::open(dir.path(), &options()).unwrap().keys(true).is_empty());
    // A store that only the engine has seen has none yet.
    let other = tempfile::tempdir().unwrap();
    pleach::Db::open(other.path()).unwrap().close().unwrap();
    drop(Store::open(other.path(), &folded).unwrap());
}

#[test]
fn destroy_removes_an_empty_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let name = CString::new(path.to_str().unwrap()).unwrap();
    std::fs::create_dir(&path).unwrap();
    // SAFETY: the name is a C string.
    caught(|error| unsafe { leveldb_destroy_db(&options(), name.as_ptr(), error) }).unwrap();
    assert!(!path.exists());
}
