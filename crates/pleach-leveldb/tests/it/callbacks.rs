//! Functions of the caller: comparators, filter policies. When they are called, on which threads, and how often destroyed.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::ThreadId;

use pleach_leveldb::*;

use crate::compaction::compact;
use crate::support::{Store, folded_options, options};

/// What a comparator of these tests has seen.
#[derive(Default)]
struct Seen {
    threads: Mutex<HashSet<ThreadId>>,
    destroyed: AtomicUsize,
    random: AtomicU64,
}

unsafe extern "C" fn count_destroyed(state: *mut c_void) {
    // SAFETY: the tests give a `Seen` that outlives the comparator.
    unsafe { &*state.cast::<Seen>() }.destroyed.fetch_add(1, Relaxed);
}

unsafe extern "C" fn reverse(
    state: *mut c_void,
    a: *const c_char,
    a_len: usize,
    b: *const c_char,
    b_len: usize,
) -> c_int {
    // SAFETY: as above.
    let seen = unsafe { &*state.cast::<Seen>() };
    seen.threads.lock().unwrap().insert(std::thread::current().id());
    // SAFETY: the library lends the keys.
    unsafe { compare_reverse_bytes(state, a, a_len, b, b_len) }
}

/// Says anything.
unsafe extern "C" fn senseless(
    state: *mut c_void,
    _: *const c_char,
    _: usize,
    _: *const c_char,
    _: usize,
) -> c_int {
    // SAFETY: as above.
    let n = unsafe { &*state.cast::<Seen>() }.random.fetch_add(1, Relaxed);
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as c_int % 3 - 1
}

unsafe extern "C" fn reverse_name(_: *mut c_void) -> *const c_char {
    c"test.Reverse".as_ptr()
}

unsafe extern "C" fn bytewise_name(_: *mut c_void) -> *const c_char {
    c"leveldb.BytewiseComparator".as_ptr()
}

unsafe extern "C" fn name_of_ff(_: *mut c_void) -> *const c_char {
    c"test.\xff".as_ptr()
}

unsafe extern "C" fn name_of_fe(_: *mut c_void) -> *const c_char {
    c"test.\xfe".as_ptr()
}

type Compare = unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int;
type Name = unsafe extern "C" fn(*mut c_void) -> *const c_char;

fn comparator(seen: &Seen, compare: Compare, name: Name) -> Box<ComparatorHandle> {
    let state = std::ptr::from_ref(seen).cast_mut().cast();
    // SAFETY: `seen` outlives the comparator.
    unsafe { leveldb_comparator_create(state, count_destroyed, compare, name) }
}

fn options_with(comparator: &ComparatorHandle) -> Box<OptionsHandle> {
    let mut options = options();
    leveldb_options_set_comparator(&mut options, Some(comparator));
    options
}

#[test]
fn a_comparator_is_called_on_the_callers_threads_and_destroyed_once() {
    let (dir, seen) = (tempfile::tempdir().unwrap(), Seen::default());
    let handle = comparator(&seen, reverse, reverse_name);
    let mut options = options_with(&handle);
    leveldb_options_set_write_buffer_size(&mut options, 64 << 10);
    let store = Store::open(dir.path(), &options).unwrap();
    // The store needs neither of them any more.
    leveldb_options_destroy(Some(options));
    leveldb_comparator_destroy(Some(handle));
    assert_eq!(seen.destroyed.load(Relaxed), 0);
    for n in 0..2000_u16 {
        store.put(&n.to_le_bytes(), &[7; 200]).unwrap();
    }
    let mut iterator = leveldb_create_iterator(store.db(), &store.reads);
    leveldb_iter_seek_to_first(&mut iterator);
    compact(&store, None, None);
    assert_eq!(store.keys(false).len(), 2000);
    drop(store);
    assert_eq!(*seen.threads.lock().unwrap(), HashSet::from([std::thread::current().id()]));
    leveldb_iter_destroy(Some(iterator));
    assert_eq!(seen.destroyed.load(Relaxed), 1);
}

/// The caller may free what its functions use as soon as it has destroyed them, whatever options name them.
#[test]
fn options_keep_no_comparator_alive() {
    let (dir, seen) = (tempfile::tempdir().unwrap(), Seen::default());
    let handle = comparator(&seen, reverse, reverse_name);
    let options = options_with(&handle);
    drop(Store::open(dir.path(), &options).unwrap());
    leveldb_comparator_destroy(Some(handle));
    assert_eq!(seen.destroyed.load(Relaxed), 1);
    let refused = Store::open(dir.path(), &options).err().unwrap();
    assert!(refused.starts_with("Invalid argument: ") && refused.contains("destroyed"), "{refused}");
    leveldb_options_destroy(Some(options));
    assert_eq!(seen.destroyed.load(Relaxed), 1);
}

#[test]
fn a_comparator_without_sense_costs_answers_only() {
    let (dir, seen) = (tempfile::tempdir().unwrap(), Seen::default());
    let handle = comparator(&seen, senseless, reverse_name);
    let options = options_with(&handle);
    for _ in 0..3 {
        let store = Store::open(dir.path(), &options).unwrap();
        for n in 0..500_u16 {
            // May replace any key, or be refused as a bug; but comes back.
            let _any = store.put(&(n % 100).to_le_bytes(), b"value");
            let _any = store.delete(&(n % 90).to_le_bytes());
            let _any = store.get(&(n % 100).to_le_bytes());
        }
        let mut iterator = leveldb_create_iterator(store.db(), &store.reads);
        leveldb_iter_seek_to_first(&mut iterator);
        for n in 0..2000 {
            if n % 3 == 0 {
                leveldb_iter_prev(&mut iterator);
            } else {
                leveldb_iter_next(&mut iterator);
            }
            if leveldb_iter_valid(&iterator) == 0 {
                leveldb_iter_seek_to_last(&mut iterator);
            }
        }
        leveldb_iter_destroy(Some(iterator));
    }
}

#[test]
fn the_name_of_the_default_order_is_for_that_order() {
    let (dir, seen) = (tempfile::tempdir().unwrap(), Seen::default());
    let handle = comparator(&seen, reverse, bytewise_name);
    let options = options_with(&handle);
    let refused = Store::open(dir.path(), &options).err().unwrap();
    assert!(refused.starts_with("Not implemented: ") && refused.contains("another name"), "{refused}");
}

#[test]
fn names_that_are_no_text_are_different_names() {
    let (dir, seen) = (tempfile::tempdir().unwrap(), Seen::default());
    let (first, second) = (comparator(&seen, reverse, name_of_ff), comparator(&seen, reverse, name_of_fe));
    Store::open(dir.path(), &options_with(&first)).unwrap().put(b"k", b"1").unwrap();
    let refused = Store::open(dir.path(), &options_with(&second)).err().unwrap();
    assert!(refused.starts_with("Invalid argument: ") && refused.contains("does not match"), "{refused}");
    assert_eq!(Store::open(dir.path(), &options_with(&first)).unwrap().keys(true), [b"k"]);
}

unsafe extern "C" fn no_filter(
    _: *mut c_void,
    _: *const *const c_char,
    _: *const usize,
    _: c_int,
    len: *mut usize,
) -> *mut c_char {
    // SAFETY: the library lends the place; the caller of this function frees what it returns.
    unsafe {
        *len = 0;
        libc::malloc(1).cast()
    }
}

unsafe extern "C" fn may_match(
    _: *mut c_void,
    key: *const c_char,
    len: usize,
    _: *const c_char,
    _: usize,
) -> u8 {
    // SAFETY: the library lends the key.
    let key = unsafe { std::slice::from_raw_parts(key.cast::<u8>(), len) };
    u8::from(key.cmp(b"hidden") != Ordering::Equal)
}

#[test]
fn a_filter_policy_is_asked_and_destroyed_once() {
    let (dir, seen) = (tempfile::tempdir().unwrap(), Seen::default());
    let state = std::ptr::from_ref(&seen).cast_mut().cast();
    // SAFETY: `seen` outlives the policy.
    let policy =
        unsafe { leveldb_filterpolicy_create(state, count_destroyed, no_filter, may_match, reverse_name) };
    let mut options = options();
    leveldb_options_set_filter_policy(&mut options, Some(&policy));
    let store = Store::open(dir.path(), &options).unwrap();
    leveldb_filterpolicy_destroy(Some(policy));
    leveldb_options_destroy(Some(options));
    store.put(b"hidden", b"1").unwrap();
    store.put(b"shown", b"1").unwrap();
    assert_eq!(store.get(b"hidden").unwrap(), None);
    assert!(store.get(b"shown").unwrap().is_some());
    assert_eq!(seen.destroyed.load(Relaxed), 0);
    drop(store);
    assert_eq!(seen.destroyed.load(Relaxed), 1);
}

#[test]
fn threads_put_get_walk_and_compact_beside_each_other() {
    for mut options in [options(), folded_options()] {
        leveldb_options_set_write_buffer_size(&mut options, 64 << 10);
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), &options).unwrap();
        // Each key's value is its own and the version's number, twice.
        let value_of =
            |key: &[u8], version: u16| [key, &version.to_le_bytes(), &version.to_le_bytes()].concat();
        std::thread::scope(|threads| {
            let store = &store;
            for thread in 0..4_u64 {
                threads.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    for version in 0..1500_u16 {
                        let key = format!("{:03}", random.u16(..300));
                        match random.u8(..100) {
                            0..60 => store.put(key.as_bytes(), &value_of(key.as_bytes(), version)).unwrap(),
                            60..70 => store.delete(key.as_bytes()).unwrap(),
                            70..98 => {
                                if let Some(value) = store.get(key.as_bytes()).unwrap() {
                                    assert_eq!(value[..3], *key.as_bytes());
                                    assert_eq!(value[3..5], value[5..]);
                                }
                            }
                            98 => {
                                let keys = store.keys(version.is_multiple_of(2));
                                let is_sorted = keys.is_sorted() || keys.iter().rev().is_sorted();
                                assert!(is_sorted);
                            }
                            _ if version % 8 == 0 => {
                                compact(store, None, None);
                            }
                            _ => {}
                        }
                    }
                });
            }
        });
        let before = store.keys(true);
        drop(store);
        assert_eq!(Store::open(dir.path(), &options).unwrap().keys(true), before);
    }
}

#[test]
fn sizes_grow_with_the_range() {
    for mut options in [options(), folded_options()] {
        leveldb_options_set_compression(&mut options, 0);
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), &options).unwrap();
        for n in 0..5000_u16 {
            store.put(format!("{n:05}").as_bytes(), &[7; 500]).unwrap();
        }
        compact(&store, None, None);
        let size = |start: &[u8], limit: &[u8]| store.size(start, limit);
        let sizes: Vec<_> = (0..=50).map(|n| size(b"", format!("{:05}", n * 100).as_bytes())).collect();
        assert!(sizes.is_sorted(), "{sizes:?}");
        let (half, all) = (sizes[25], size(b"", b"~"));
        assert!((2_000_000..4_000_000).contains(&all), "{all}");
        assert!(half * 10 > all * 4 && half * 10 < all * 6, "{half} of {all}");
        assert_eq!(size(b"1", b"0"), 0);
        assert_eq!(size(&vec![b'a'; 2 << 20], &vec![b'b'; 2 << 20]), 0);
    }
}
