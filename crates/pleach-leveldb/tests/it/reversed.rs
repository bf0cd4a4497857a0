//! Stores in the reverse order of bytes, whose keys are stored in a form of their own.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

use pleach::Options;
use pleach_leveldb::*;

use crate::compaction::compact;
use crate::support::{Store, caught, folded_comparator, options, parts};

const NAME: &str = "rocksdb.ReverseBytewiseComparator";

pub(crate) fn reversed() -> Box<OptionsHandle> {
    let mut reversed = options();
    leveldb_options_set_comparator(
        &mut reversed,
        Some(Box::leak(pleach_leveldb_comparator_create_reverse_bytewise())),
    );
    reversed
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

unsafe extern "C" fn other_name(_: *mut c_void) -> *const c_char {
    c"test.Reverse".as_ptr()
}

unsafe extern "C" fn name(_: *mut c_void) -> *const c_char {
    c"rocksdb.ReverseBytewiseComparator".as_ptr()
}

/// The order of bytes.
unsafe extern "C" fn bytes(
    state: *mut c_void,
    a: *const c_char,
    a_len: usize,
    b: *const c_char,
    b_len: usize,
) -> c_int {
    // SAFETY: by the contract of a comparator.
    unsafe { compare_reverse_bytes(state, b, b_len, a, a_len) }
}

/// Wrong for prefixes only.
unsafe extern "C" fn almost_reverse(
    state: *mut c_void,
    a: *const c_char,
    a_len: usize,
    b: *const c_char,
    b_len: usize,
) -> c_int {
    let shorter = a_len.min(b_len);
    // SAFETY: as above.
    match unsafe { compare_reverse_bytes(state, a, shorter, b, shorter) } {
        0 => a_len.cmp(&b_len) as c_int,
        order => order,
    }
}

fn with_function(compare: Compare, name: Name) -> Box<OptionsHandle> {
    let mut wanted = options();
    // SAFETY: the functions need no state.
    let comparator = unsafe { leveldb_comparator_create(std::ptr::null_mut(), nothing, compare, name) };
    leveldb_options_set_comparator(&mut wanted, Some(Box::leak(comparator)));
    wanted
}

#[test]
fn keys_descend_and_are_those_of_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let ascending: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"\0\0a", b"a", b"a\0", b"ab", b"b", b"\xff\xff"];
    let store = Store::open(dir.path(), &reversed()).unwrap();
    for key in ascending {
        store.put(key, &[key, b"'s"].concat()).unwrap();
    }
    let descending: Vec<&[u8]> = ascending.into_iter().rev().collect();
    assert_eq!(store.keys(true), descending);
    assert_eq!(store.keys(false), ascending);
    drop(store);
    // A function of the caller's that has the name is the same order.
    let store = Store::open(dir.path(), &with_function(compare_reverse_bytes, name)).unwrap();
    assert_eq!(store.keys(true), descending);
    for key in ascending {
        assert_eq!(store.get(key).unwrap(), Some([key, b"'s"].concat()));
    }
    store.delete(b"a\0").unwrap();
    assert_eq!(store.get(b"a\0").unwrap(), None);
    assert_eq!(store.keys(true).len(), 8);
    let mut iterator = leveldb_create_iterator(store.db(), &store.reads);
    for (sought, found) in [
        (&b"a\0"[..], Some(&b"a"[..])),
        (b"b", Some(b"b")),
        (b"aa", Some(b"a")),
        (b"\xff\xff\0", Some(b"\xff\xff")),
    ] {
        assert_eq!(seek(&mut iterator, sought).as_deref(), found);
    }
    assert_eq!(seek(&mut iterator, b"").as_deref(), Some(&b""[..]));
    leveldb_iter_next(&mut iterator);
    assert_eq!(leveldb_iter_valid(&iterator), 0);
    leveldb_iter_destroy(Some(iterator));
}

fn entry(iterator: &IteratorHandle) -> Option<Vec<u8>> {
    let mut len = 0;
    let key = leveldb_iter_key(iterator, &mut len);
    // SAFETY: the iterator lends so many bytes.
    (leveldb_iter_valid(iterator) == 1)
        .then(|| unsafe { std::slice::from_raw_parts(key.cast(), len) }.to_vec())
}

fn seek(iterator: &mut IteratorHandle, key: &[u8]) -> Option<Vec<u8>> {
    let (key, len) = parts(key);
    // SAFETY: the key is there.
    unsafe { leveldb_iter_seek(iterator, key, len) };
    entry(iterator)
}

/// Random keys: texts, numbers, and runs of zeros.
fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u8(0..4) {
        0 => (0..random.usize(0..4)).map(|_| [0, 1, 0xfe, 0xff][random.usize(0..4)]).collect(),
        1 => [&[0; 6][..], &[random.u8(0..2), random.u8(..)]].concat(),
        2 => [vec![0; random.usize(0..260)], vec![1; random.usize(0..2)]].concat(),
        _ => format!("user{}", random.u8(0..100)).into_bytes(),
    }
}

#[test]
fn random_calls_agree_with_a_map() {
    let seed = std::env::var("PLEACH_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("PLEACH_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut wanted = reversed();
    leveldb_options_set_write_buffer_size(&mut wanted, 64 << 10);
    let mut store = Store::open(dir.path(), &wanted).unwrap();
    let mut model = BTreeMap::new();
    for step in 0..4000 {
        let key = random_key(&mut random);
        match random.u8(0..20) {
            0..8 => {
                let value = vec![random.u8(..); random.usize(0..300)];
                store.put(&key, &value).unwrap();
                model.insert(Reverse(key), value);
            }
            8..12 => {
                store.delete(&key).unwrap();
                model.remove(&Reverse(key));
            }
            12 => write_batch(&store, &mut random, &mut model),
            13..16 => assert_eq!(store.get(&key).unwrap().as_ref(), model.get(&Reverse(key)), "step {step}"),
            16 => walk(&store, &mut random, &model),
            17 if step % 10 == 0 => {
                drop(store);
                store = Store::open(dir.path(), &wanted).unwrap();
            }
            18 if step % 10 == 0 => compact(&store, None, None),
            _ => {}
        }
    }
    let keys: Vec<_> = model.into_keys().map(|Reverse(key)| key).collect();
    assert_eq!(store.keys(true), keys);
}

fn write_batch(store: &Store, random: &mut fastrand::Rng, model: &mut BTreeMap<Reverse<Vec<u8>>, Vec<u8>>) {
    let mut batch = leveldb_writebatch_create();
    for n in 0..random.u8(0..6) {
        let key = random_key(random);
        let (start, len) = parts(&key);
        // SAFETY: key and value are there.
        unsafe {
            if random.bool() {
                leveldb_writebatch_put(&mut batch, start, len, parts(&[n]).0, 1);
                model.insert(Reverse(key), vec![n]);
            } else {
                leveldb_writebatch_delete(&mut batch, start, len);
                model.remove(&Reverse(key));
            }
        }
    }
    caught(|error| leveldb_write(store.db(), &store.writes, &batch, error)).unwrap();
}

/// A snapshot is taken, all is overwritten, and an iterator of the snapshot seeks and turns.
fn walk(store: &Store, random: &mut fastrand::Rng, model: &BTreeMap<Reverse<Vec<u8>>, Vec<u8>>) {
    let snapshot = leveldb_create_snapshot(store.db()).unwrap();
    let mut reads = leveldb_readoptions_create();
    leveldb_readoptions_set_snapshot(&mut reads, &raw const *snapshot);
    for Reverse(key) in model.keys().take(20) {
        store.put(key, b"later").unwrap();
    }
    let keys: Vec<_> = model.keys().map(|Reverse(key)| key).collect();
    let mut iterator = leveldb_create_iterator(store.db(), &reads);
    let sought = random_key(random);
    let mut at = keys.partition_point(|key| **key > sought);
    let mut found = seek(&mut iterator, &sought);
    for _ in 0..20 {
        assert_eq!(found.as_ref(), keys.get(at).copied());
        let Some(key) = &found else { break };
        let mut len = 0;
        let value = leveldb_iter_value(&iterator, &mut len);
        // SAFETY: the iterator lends so many bytes.
        let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len) };
        assert_eq!(value, model[&Reverse(key.clone())]);
        if random.bool() {
            leveldb_iter_next(&mut iterator);
            at += 1;
        } else {
            leveldb_iter_prev(&mut iterator);
            at = at.wrapping_sub(1);
        }
        found = entry(&iterator);
    }
    leveldb_iter_destroy(Some(iterator));
    leveldb_release_snapshot(store.db(), Some(snapshot));
    for (Reverse(key), value) in model.iter().take(20) {
        store.put(key, value).unwrap();
    }
}

#[test]
fn keys_take_no_memory_and_may_be_long() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &reversed()).unwrap();
    // More than the budget that keys of another comparator have.
    for n in 0..40_u8 {
        store.put(&vec![n; 1_000_000], b"").unwrap();
    }
    assert_eq!(store.keys(true).len(), 40);
    let too_long = vec![b'x'; 1 << 20];
    let refused = store.put(&too_long, b"").unwrap_err();
    assert!(
        refused.starts_with("Invalid argument: ") && refused.contains("1048578 as it is stored"),
        "{refused}"
    );
    // Zeros are short in the stored form.
    let zeros = vec![0; (1 << 20) + 1];
    assert!(store.put(&zeros, b"").unwrap_err().starts_with("Invalid argument: "));
    store.put(&zeros[1..], b"zeros").unwrap();
    assert_eq!(store.get(&zeros[1..]).unwrap().as_deref(), Some(&b"zeros"[..]));
    assert_eq!([store.get(&too_long).unwrap(), store.get(&zeros).unwrap()], [None, None]);
    let mut iterator = leveldb_create_iterator(store.db(), &store.reads);
    assert_eq!(seek(&mut iterator, &zeros), Some(zeros[1..].to_vec()));
    leveldb_iter_destroy(Some(iterator));
}

#[test]
fn a_comparator_of_the_name_must_have_the_order() {
    let dir = tempfile::tempdir().unwrap();
    for wrong in [with_function(almost_reverse, name), with_function(bytes, name)] {
        let refused = Store::open(dir.path(), &wrong).err().unwrap();
        assert!(refused.starts_with("Invalid argument: ") && refused.contains(NAME), "{refused}");
    }
    // The store that was refused has no order yet.
    Store::open(dir.path(), &options()).unwrap().put(b"k", b"1").unwrap();
}

#[test]
fn a_store_of_another_order_or_form_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &str, options: &OptionsHandle| Store::open(&dir.path().join(path), options);
    open("reversed", &reversed()).unwrap().put(b"k", b"1").unwrap();
    let mut folded = options();
    leveldb_options_set_comparator(&mut folded, Some(folded_comparator()));
    for other in [&options(), &folded, &with_function(compare_reverse_bytes, other_name)] {
        let refused = open("reversed", other).err().unwrap();
        assert!(refused.ends_with(&format!("does not match existing comparator: {NAME}")), "{refused}");
    }
    open("bytes", &options()).unwrap().put(b"k", b"1").unwrap();
    let refused = open("bytes", &reversed()).err().unwrap();
    assert!(
        refused.contains(&format!("{NAME} does not match existing comparator: leveldb.Byte")),
        "{refused}"
    );
    // A store that keeps the keys of this comparator as they are.
    let db = Options::new().open(dir.path().join("plain")).unwrap();
    db.partition(&format!("comparator:{NAME}")).unwrap().put(b"k", b"1").unwrap();
    db.close().unwrap();
    let refused = open("plain", &reversed()).err().unwrap();
    assert!(refused.starts_with("Invalid argument: ") && refused.contains("another form"), "{refused}");
}

#[test]
fn stored_bytes_that_are_no_key_are_corruption() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &reversed()).unwrap();
    store.put(b"a", b"1").unwrap();
    drop(store);
    let db = Options::new().open(dir.path()).unwrap();
    db.partition(&format!("reversed:{NAME}")).unwrap().put([0x10, 0xff, 0x80], b"no key").unwrap();
    db.close().unwrap();
    let store = Store::open(dir.path(), &reversed()).unwrap();
    let mut iterator = leveldb_create_iterator(store.db(), &store.reads);
    leveldb_iter_seek_to_first(&mut iterator);
    assert_eq!(entry(&iterator), None);
    let error = caught(|error| leveldb_iter_get_error(&iterator, error)).unwrap_err();
    assert!(error.starts_with("Corruption: ") && error.contains("byte 2"), "{error}");
    // Other entries can be read.
    assert_eq!(seek(&mut iterator, b"a"), Some(b"a".to_vec()));
    caught(|error| leveldb_iter_get_error(&iterator, error)).unwrap();
    leveldb_iter_destroy(Some(iterator));
    assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn sizes_are_those_of_descending_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let mut wanted = reversed();
    leveldb_options_set_compression(&mut wanted, 0);
    let store = Store::open(dir.path(), &wanted).unwrap();
    for n in 0..2000_u32 {
        store.put(format!("key{n:04}").as_bytes(), &[7; 100]).unwrap();
    }
    compact(&store, None, None);
    let size = |start: &[u8], limit: &[u8]| store.size(start, limit);
    let (all, half) = (size(b"z", b"a"), size(b"key1999", b"key1000"));
    assert!(all >= 200_000 && (all / 3..all * 2 / 3).contains(&half), "{all} {half}");
    assert_eq!([size(b"a", b"z"), size(b"zz", b"z")], [0, 0]);
}

#[test]
fn a_repair_keeps_order_and_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let store = Store::open(&path, &reversed()).unwrap();
    for n in 0..100_u8 {
        store.put(&[n, 0, 0, n], &[n; 100]).unwrap();
    }
    drop(store);
    std::fs::remove_file(path.join("CURRENT")).unwrap();
    repair(&path);
    let store = Store::open(&path, &reversed()).unwrap();
    assert_eq!(store.keys(false), (0..100).map(|n| vec![n, 0, 0, n]).collect::<Vec<_>>());
}

fn repair(path: &Path) {
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the name is a C string.
    caught(|error| unsafe { leveldb_repair_db(&reversed(), name.as_ptr(), error) }).unwrap();
}
