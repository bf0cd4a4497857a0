//! Stores, options, comparators, batches, repair and destroy.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

use pleach_leveldb::*;

use crate::damage::manage;
use crate::support::{Store, caught, folded_comparator, options, parts};

#[test]
fn what_is_put_is_read_after_the_next_open() {
    let dir = tempfile::tempdir().unwrap();
    let long = vec![7; 100_000];
    let store = Store::open(dir.path(), &options()).unwrap();
    store.put(b"", b"empty").unwrap();
    store.put(b"k", b"").unwrap();
    store.put(&long, b"long").unwrap();
    store.put(b"gone", b"1").unwrap();
    store.delete(b"gone").unwrap();
    drop(store);
    let store = Store::open(dir.path(), &options()).unwrap();
    assert_eq!(store.get(b"").unwrap().as_deref(), Some(&b"empty"[..]));
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(store.get(b"gone").unwrap(), None);
    assert_eq!(store.get(&vec![1; 2 << 20]).unwrap(), None);
    assert_eq!(store.keys(true), [&b""[..], &long, b"k"]);
    assert_eq!(store.keys(false), [b"k", &long[..], b""]);
}

#[test]
fn options_are_honoured_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut wanted = options();
    leveldb_options_set_create_if_missing(&mut wanted, 0);
    let missing = Store::open(&path, &wanted).err().unwrap();
    assert!(missing.starts_with("Invalid argument: ") && missing.contains("does not exist"), "{missing}");
    drop(Store::open(&path, &options()).unwrap());
    let mut wanted = options();
    leveldb_options_set_error_if_exists(&mut wanted, 1);
    let exists = Store::open(&path, &wanted).err().unwrap();
    assert!(exists.starts_with("Invalid argument: ") && exists.contains("exists"), "{exists}");
    let held = Store::open(&path, &options()).unwrap();
    let second = Store::open(&path, &options()).err().unwrap();
    assert!(second.starts_with("IO error: lock "), "{second}");
    drop(held);
    // A store of LevelDB's.
    std::fs::create_dir(dir.path().join("old")).unwrap();
    std::fs::write(dir.path().join("old/CURRENT"), "MANIFEST-000002\n").unwrap();
    let old = Store::open(&dir.path().join("old"), &options()).err().unwrap();
    assert!(old.starts_with("Not implemented: ") && old.contains("convert"), "{old}");
}

#[test]
fn a_comparator_is_the_order_and_its_name_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut folded = options();
    leveldb_options_set_comparator(&mut folded, Some(folded_comparator()));
    let store = Store::open(dir.path(), &folded).unwrap();
    for key in ["b", "A", "C"] {
        store.put(key.as_bytes(), b"1").unwrap();
    }
    // Keys that compare equal replace each other.
    store.put(b"a", b"2").unwrap();
    assert_eq!(store.keys(true), [b"a", b"b", b"C"]);
    assert_eq!(store.get(b"A").unwrap().as_deref(), Some(&b"2"[..]));
    let snapshot = leveldb_create_snapshot(store.db()).unwrap();
    store.delete(b"B").unwrap();
    // The later one stays, though it is the lower one in the order of bytes.
    store.put(b"d", b"old").unwrap();
    store.put(b"D", b"new").unwrap();
    drop(store);
    let mut store = Store::open(dir.path(), &folded).unwrap();
    assert_eq!(store.keys(false), [b"D", b"C", b"a"]);
    assert_eq!(store.get(b"d").unwrap().as_deref(), Some(&b"new"[..]));
    leveldb_readoptions_set_snapshot(&mut store.reads, &raw const *snapshot);
    leveldb_readoptions_set_snapshot(&mut store.reads, std::ptr::null());
    leveldb_release_snapshot(store.db(), Some(snapshot));
    drop(store);
    let other = Store::open(dir.path(), &options()).err().unwrap();
    assert!(
        other.contains("leveldb.BytewiseComparator does not match existing comparator: test.Folded"),
        "{other}"
    );
    // The other way round.
    let bytewise = tempfile::tempdir().unwrap();
    Store::open(bytewise.path(), &options()).unwrap().put(b"k", b"1").unwrap();
    let other = Store::open(bytewise.path(), &folded).err().unwrap();
    assert!(other.contains("test.Folded does not match existing comparator"), "{other}");
}

#[test]
fn keys_of_a_comparator_beyond_the_budget_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut folded = options();
    leveldb_options_set_comparator(&mut folded, Some(folded_comparator()));
    let store = Store::open(dir.path(), &folded).unwrap();
    let refused = (0..40_u8).find_map(|n| store.put(&vec![n; 1 << 20], b"").err()).unwrap();
    assert!(refused.starts_with("Not implemented: ") && refused.contains("kept in memory"), "{refused}");
    // What takes no more memory is not.
    store.delete(&vec![0; 1 << 20]).unwrap();
    store.put(b"short", b"").unwrap();
    // Keys that are deleted give their memory back.
    for n in 0..20_u8 {
        store.delete(&vec![n; 1 << 20]).unwrap();
        store.put(&vec![n; 1 << 20], b"").unwrap_or_else(|e| panic!("key {n}: {e}"));
        store.delete(&vec![n; 1 << 20]).unwrap();
    }
}

#[test]
fn batches_are_atomic_and_malformed_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options()).unwrap();
    let mut batch = leveldb_writebatch_create();
    for (key, value) in [(&b"a"[..], &b"1"[..]), (b"b", &[7; 300])] {
        let ((key, key_len), (value, value_len)) = (parts(key), parts(value));
        // SAFETY: key and value are there.
        unsafe { leveldb_writebatch_put(&mut batch, key, key_len, value, value_len) };
    }
    let (key, len) = parts(b"a");
    // SAFETY: the key is there.
    unsafe { leveldb_writebatch_delete(&mut batch, key, len) };
    store.put(b"long", b"1").unwrap();
    let (key, len) = parts(b"long");
    // SAFETY: the key is there.
    unsafe { leveldb_writebatch_delete(&mut batch, key, len) };
    // SAFETY: a batch may be appended to itself.
    unsafe { leveldb_writebatch_append(&raw mut *batch, &raw const *batch) };
    caught(|error| leveldb_write(store.db(), &store.writes, &batch, error)).unwrap();
    assert_eq!(store.keys(true), [b"b"]);
    let sound = [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 1, b'x', 1, b'y', 0, 1, b'b'];
    for (records, why) in [
        (&sound[..11], "too small"),
        (&[&sound[..8], &[3, 0, 0, 0], &sound[12..]].concat(), "wrong count"),
        (&sound[..16], "bad WriteBatch Put"),
        (&sound[..19], "bad WriteBatch Delete"),
        (&[&sound[..12], &[2]].concat(), "unknown WriteBatch tag"),
    ] {
        let (start, len) = parts(records);
        // SAFETY: the records are there.
        let write = |error: ErrorSlot<'_>| unsafe {
            pleach_leveldb_write_records(store.db(), &store.writes, start, len, error);
        };
        let refused = caught(write).unwrap_err();
        assert!(refused.starts_with("Corruption: ") && refused.contains(why), "{refused}");
    }
    assert_eq!(store.keys(true), [b"b"]);
}

#[test]
fn destroy_removes_the_files_of_the_store_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    manage(leveldb_destroy_db, &path).unwrap();
    let store = Store::open(&path, &options()).unwrap();
    store.put(b"k", b"1").unwrap();
    assert!(manage(leveldb_destroy_db, &path).unwrap_err().contains("open"));
    drop(store);
    std::fs::write(path.join("notes.txt"), "mine").unwrap();
    manage(leveldb_destroy_db, &path).unwrap();
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
    std::fs::remove_file(path.join("notes.txt")).unwrap();
    drop(Store::open(&path, &options()).unwrap());
    manage(leveldb_destroy_db, &path).unwrap();
    assert!(!path.exists());
}

#[test]
fn repair_salvages_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    assert!(manage(leveldb_repair_db, &path).unwrap_err().starts_with("IO error: "));
    let store = Store::open(&path, &options()).unwrap();
    for n in 0..100_u8 {
        store.put(&[n], &[n; 100]).unwrap();
    }
    drop(store);
    std::fs::remove_file(path.join("CURRENT")).unwrap();
    assert!(Store::open(&path, &options()).err().unwrap().starts_with("Corruption: "));
    manage(leveldb_repair_db, &path).unwrap();
    assert_eq!(Store::open(&path, &options()).unwrap().keys(true).len(), 100);
    let kept = std::fs::read_dir(dir.path().join("db.damaged")).unwrap().count();
    assert!(kept > 0, "which manifest was in force is a guess, so the old files stay");
}

#[test]
fn a_store_in_memory_lives_as_long_as_its_environment() {
    let mut wanted = options();
    let env = pleach_leveldb_memory_env_create();
    leveldb_options_set_env(&mut wanted, Some(&env));
    let path = Path::new("/in/memory");
    Store::open(path, &wanted).unwrap().put(b"k", b"1").unwrap();
    assert!(!path.exists());
    assert_eq!(Store::open(path, &wanted).unwrap().keys(true), [b"k"]);
}

#[test]
fn properties_have_the_names_of_leveldb() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options()).unwrap();
    let property = |name: &str| {
        let name = CString::new(name).unwrap();
        // SAFETY: the name is a C string; the text comes from `malloc`.
        unsafe {
            let text = leveldb_property_value(store.db(), name.as_ptr());
            let copy = (!text.is_null()).then(|| std::ffi::CStr::from_ptr(text).to_str().unwrap().to_owned());
            leveldb_free(text.cast());
            copy
        }
    };
    for name in ["num-files-at-level0", "num-files-at-level6", "approximate-memory-usage"] {
        property(&format!("leveldb.{name}")).unwrap().parse::<u64>().unwrap();
    }
    assert!(property("leveldb.stats").unwrap().contains("SSTs"));
    assert!(property("leveldb.sstables").is_some());
    assert_eq!(
        [property("leveldb.num-files-at-level7"), property("leveldb.nope"), property("stats")],
        [None, None, None]
    );
}

/// Only the first byte counts.
unsafe extern "C" fn by_first_byte(
    _: *mut c_void,
    a: *const c_char,
    a_len: usize,
    b: *const c_char,
    b_len: usize,
) -> c_int {
    // SAFETY: the library lends so many bytes.
    let first = |key: *const c_char, len| (len > 0).then(|| unsafe { *key.cast::<u8>() });
    first(a, a_len).cmp(&first(b, b_len)) as c_int
}

unsafe extern "C" fn first_byte_name(_: *mut c_void) -> *const c_char {
    c"test.FirstByte".as_ptr()
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

#[test]
fn keys_under_a_comparator_that_are_too_long_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut wanted = options();
    // SAFETY: the functions need no state.
    let comparator =
        unsafe { leveldb_comparator_create(std::ptr::null_mut(), nothing, by_first_byte, first_byte_name) };
    leveldb_options_set_comparator(&mut wanted, Some(&comparator));
    let store = Store::open(dir.path(), &wanted).unwrap();
    store.put(b"k", b"1").unwrap();
    store.put(&vec![b'l'; 1 << 20], b"2").unwrap();
    // The second one would also exceed the memory for keys.
    for len in [(1 << 20) + 1, 40 << 20] {
        let refused = store.put(&vec![b'k'; len], b"3").unwrap_err();
        let (gist, len) = (format!("the key has {len} bytes; a key has at most 1048576"), len);
        assert!(refused.starts_with("Invalid argument: ") && refused.contains(&gist), "{len}: {refused}");
    }
    // It equals a key that is there.
    let long = vec![b'k'; (1 << 20) + 1];
    assert_eq!(store.get(&long).unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.get(&vec![b'x'; 2 << 20]).unwrap(), None);
    store.delete(&long).unwrap();
    assert_eq!(store.get(b"k").unwrap(), None);
    assert_eq!(store.keys(true), [vec![b'l'; 1 << 20]]);
}
