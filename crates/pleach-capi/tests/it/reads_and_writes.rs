//! Puts, gets, deletes, batches, snapshots, partitions, upkeep.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

use pleach_capi::*;

use crate::support::*;

#[test]
fn what_is_put_is_read_after_the_next_open() {
    let dir = tempfile::tempdir().unwrap();
    let long = vec![7; 100_000];
    let store = Store::of(open_with(dir.path(), None).unwrap());
    for (key, value) in [(&b""[..], &b"empty"[..]), (b"k", b""), (&long, &long), (b"\0zero", b"\0")] {
        store.put(key, value).unwrap();
    }
    store.put(b"gone", b"1").unwrap();
    let (key, len) = parts(b"gone");
    // SAFETY: the key is there.
    outcome(unsafe { pleach_partition_delete(Some(&store.default), key, len, 1) }).unwrap();
    store.close().unwrap();
    drop(store);
    let store = Store::of(open_with(dir.path(), None).unwrap());
    assert_eq!(store.get(b"").unwrap().as_deref(), Some(&b"empty"[..]));
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(store.get(&long).unwrap().as_deref(), Some(&long[..]));
    assert_eq!(store.get(b"gone").unwrap(), None);
    assert_eq!(keys(&store.default, None), [&b""[..], b"\0zero", &long, b"k"]);
}

#[test]
fn a_copying_get_tells_the_whole_length() {
    let store = Store::in_memory();
    store.put(b"k", b"12345").unwrap();
    let get = |key: &[u8], capacity: usize| {
        let (key, key_len) = parts(key);
        let (mut buffer, mut len, mut found) = ([0_u8; 8], 99, true);
        let start = if capacity == 0 { null_mut() } else { buffer.as_mut_ptr().cast() };
        let (snapshot, len_place, found_place) = (None, &raw mut len, &raw mut found);
        let default = Some(&*store.default);
        // SAFETY: all of it is there.
        let error = unsafe {
            pleach_partition_get_copy(
                default,
                snapshot,
                key,
                key_len,
                start,
                capacity,
                len_place,
                found_place,
            )
        };
        outcome(error).unwrap();
        (buffer, len, found)
    };
    assert_eq!(get(b"k", 8), (*b"12345\0\0\0", 5, true));
    assert_eq!(get(b"k", 2), (*b"12\0\0\0\0\0\0", 5, true));
    assert_eq!(get(b"k", 0), ([0; 8], 5, true));
    assert_eq!(get(b"none", 8), ([0; 8], 0, false));
}

#[test]
fn lent_values_lie_where_they_are_and_outlive_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::of(open_with(dir.path(), None).unwrap());
    // In a memtable, in a block, separated.
    let separated = vec![3; 5_000];
    store.put(b"block", b"1").unwrap();
    store.put(b"separated", &separated).unwrap();
    outcome(pleach_db_flush(Some(&store.db))).unwrap();
    store.put(b"memtable", b"2").unwrap();
    let values: Vec<_> = [&b"block"[..], b"separated", b"memtable"]
        .map(|key| (lend(&store.default, None, key).unwrap(), lend(&store.default, None, key).unwrap()))
        .into();
    assert!(values.iter().all(|(one, other)| one.data == other.data), "nothing is copied");
    // Later writes do not change them.
    store.put(b"memtable", b"3").unwrap();
    store.close().unwrap();
    drop(store);
    let lent: Vec<_> = values.iter().map(|(value, _)| bytes_of(value).unwrap()).collect();
    assert_eq!(lent, [b"1".to_vec(), separated, b"2".to_vec()]);
    for (mut one, mut other) in values {
        // SAFETY: they were filled; a second release does nothing.
        unsafe {
            pleach_value_release(&raw mut one);
            pleach_value_release(&raw mut one);
            pleach_value_release(&raw mut other);
        }
    }
}

#[test]
fn a_batch_is_atomic_and_can_be_used_again() {
    let store = Store::in_memory();
    let other = store.partition("other").unwrap();
    for key in [b"a", b"b", b"c", b"d"] {
        put(&other, key, b"").unwrap();
    }
    let mut batch = store.batch();
    let add = |batch: &mut BatchHandle, key: &[u8], value: &[u8]| {
        let ((key, key_len), (value, value_len)) = (parts(key), parts(value));
        // SAFETY: key and value are there.
        outcome(unsafe {
            pleach_batch_put(Some(batch), Some(&store.default), key, key_len, value, value_len)
        })
    };
    add(&mut batch, b"k", b"v").unwrap();
    add(&mut batch, b"l", b"w").unwrap();
    let ((key, key_len), (lower, lower_len), (upper, upper_len)) = (parts(b"k"), parts(b"b"), parts(b"d"));
    // SAFETY: the keys are there.
    unsafe {
        outcome(pleach_batch_delete(Some(&mut batch), Some(&store.default), key, key_len)).unwrap();
        let range =
            pleach_batch_delete_range(Some(&mut batch), Some(&other), lower, lower_len, upper, upper_len);
        outcome(range).unwrap();
    }
    assert_eq!(pleach_batch_count(Some(&batch)), 5);
    assert!(pleach_batch_bytes(Some(&batch)) > 5);
    assert_eq!(keys(&store.default, None), [b""; 0]);
    let unknown = outcome(pleach_batch_write(Some(&mut batch), 2)).unwrap_err();
    assert_eq!((unknown.code, pleach_batch_count(Some(&batch))), (PleachCode::InvalidArgument, 5));
    outcome(pleach_batch_write(Some(&mut batch), 1)).unwrap();
    assert_eq!(
        (keys(&store.default, None), keys(&other, None)),
        (vec![b"l".to_vec()], vec![b"a".to_vec(), b"d".to_vec()])
    );
    // Empty now, and not spoilt by an error.
    assert_eq!(pleach_batch_count(Some(&batch)), 0);
    add(&mut batch, &vec![0; (1 << 20) + 1], b"").unwrap();
    let refused = outcome(pleach_batch_write(Some(&mut batch), 0)).unwrap_err();
    assert_eq!(refused.code, PleachCode::InvalidArgument);
    add(&mut batch, b"m", b"").unwrap();
    outcome(pleach_batch_clear(Some(&mut batch))).unwrap();
    add(&mut batch, b"n", b"").unwrap();
    outcome(pleach_batch_write(Some(&mut batch), 0)).unwrap();
    assert_eq!(keys(&store.default, None), [b"l", b"n"]);
    pleach_batch_free(Some(batch));
}

#[test]
fn ranges_are_half_open_and_null_is_no_bound() {
    let store = Store::in_memory();
    let fill = || ["a", "b", "c"].iter().for_each(|key| store.put(key.as_bytes(), b"").unwrap());
    let delete = |lower: Option<&[u8]>, upper: Option<&[u8]>| {
        fill();
        let ((lower, lower_len), (upper, upper_len)) = (bound_parts(lower), bound_parts(upper));
        let default = Some(&*store.default);
        // SAFETY: the bounds are there.
        outcome(unsafe { pleach_partition_delete_range(default, lower, lower_len, upper, upper_len, 0) })
            .unwrap();
        keys(&store.default, None).concat()
    };
    assert_eq!(delete(Some(b"b"), Some(b"c")), b"ac");
    assert_eq!(delete(Some(b"b"), None), b"a");
    assert_eq!(delete(None, Some(b"b")), b"bc");
    assert_eq!(delete(Some(b"c"), Some(b"a")), b"abc");
    assert_eq!(delete(None, Some(b"")), b"abc");
    assert_eq!(delete(None, None), b"");
    // The same for sizes.
    fill();
    outcome(pleach_db_flush(Some(&store.db))).unwrap();
    let entries = |lower: Option<&[u8]>, upper: Option<&[u8]>| {
        let ((lower, lower_len), (upper, upper_len)) = (bound_parts(lower), bound_parts(upper));
        let (mut size, mut entries) = (9, 9);
        let (default, places) = (Some(&*store.default), (&raw mut size, &raw mut entries));
        // SAFETY: all of it is there.
        let error = unsafe {
            pleach_partition_approximate_size(default, lower, lower_len, upper, upper_len, places.0, places.1)
        };
        outcome(error).unwrap();
        assert_eq!(size > 0, entries > 0);
        entries
    };
    assert!(entries(None, None) >= 3);
    assert_eq!(entries(Some(b"b"), Some(b"a")), 0);
    // And for compactions: the first range has no key.
    fill();
    outcome(pleach_db_flush(Some(&store.db))).unwrap();
    for (lower, upper, compactions) in [(None, Some(&b"a"[..]), 0), (Some(&b"b"[..]), Some(&b"c"[..]), 1)] {
        let ((lower, lower_len), (upper, upper_len)) = (bound_parts(lower), bound_parts(upper));
        let default = Some(&*store.default);
        // SAFETY: the bounds are there.
        outcome(unsafe { pleach_partition_compact_range(default, lower, lower_len, upper, upper_len) })
            .unwrap();
        // SAFETY: the place is there.
        let stats = text(|json| unsafe { pleach_db_stats_json(Some(&store.db), json) }).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(stats["range_compactions"], compactions);
    }
    assert_eq!(keys(&store.default, None).concat(), b"abc");
}

#[test]
fn a_snapshot_does_not_change() {
    let store = Store::in_memory();
    store.put(b"k", b"1").unwrap();
    let snapshot = store.snapshot();
    assert_eq!(pleach_snapshot_sequence_number(Some(&snapshot)), 1);
    store.put(b"k", b"2").unwrap();
    store.put(b"l", b"").unwrap();
    assert_eq!(get(&store.default, Some(&snapshot), b"k").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
    let contains = |snapshot, key: &[u8]| {
        let (key, len) = parts(key);
        let mut found = true;
        // SAFETY: the key is there.
        outcome(unsafe {
            pleach_partition_contains(Some(&store.default), snapshot, key, len, &raw mut found)
        })
        .unwrap();
        found
    };
    assert_eq!(
        [contains(Some(&*snapshot), b"l"), contains(None, b"l"), contains(None, b"m")],
        [false, true, false]
    );
    assert_eq!(keys(&store.default, Some(&snapshot)), [b"k"]);
    // Of a partition that is newer than the snapshot.
    let newer = store.partition("newer").unwrap();
    assert_eq!(get(&newer, Some(&snapshot), b"k").unwrap_err().code, PleachCode::Closed);
    pleach_snapshot_free(Some(snapshot));
}

#[test]
fn partitions_are_created_found_listed_and_dropped() {
    let store = Store::in_memory();
    let names = || {
        let (mut names, mut count) = (null_mut::<*mut c_char>(), 0);
        // SAFETY: the places are there; the array has `count` strings and a null, and is freed once.
        unsafe {
            outcome(pleach_db_partitions(Some(&store.db), &raw mut names, &raw mut count)).unwrap();
            let listed: Vec<_> =
                (0..count).map(|i| CStr::from_ptr(*names.add(i)).to_str().unwrap().to_owned()).collect();
            assert!((*names.add(count)).is_null());
            pleach_free(names.cast());
            listed
        }
    };
    let find = |name: &CStr| {
        let mut place = std::ptr::dangling_mut();
        // SAFETY: the name is a C string; a handle is a box.
        unsafe {
            outcome(pleach_db_find_partition(Some(&store.db), name.as_ptr(), &raw mut place)).unwrap();
            (!place.is_null()).then(|| Box::from_raw(place))
        }
    };
    assert!(find(c"users").is_none());
    let users = store.partition("users").unwrap();
    // SAFETY: it is a C string that lives as long as the handle.
    assert_eq!(unsafe { CStr::from_ptr(pleach_partition_name(Some(&users))) }, c"users");
    put(&users, b"k", b"").unwrap();
    assert_eq!(keys(&find(c"users").unwrap(), None), [b"k"]);
    let umlaut = store.partition("\u{e4}").unwrap();
    assert_eq!(names(), ["default", "users", "\u{e4}"]);
    assert_eq!(store.partition("").err().unwrap().code, PleachCode::InvalidArgument);
    assert_eq!(store.partition(&"x".repeat(256)).err().unwrap().code, PleachCode::InvalidArgument);
    let drop_it = |partition| outcome(pleach_db_drop_partition(Some(&store.db), Some(partition)));
    drop_it(&users).unwrap();
    assert_eq!(drop_it(&users).unwrap_err().code, PleachCode::Closed);
    assert_eq!(put(&users, b"k", b"").unwrap_err().code, PleachCode::Closed);
    assert_eq!(drop_it(&store.default).unwrap_err().code, PleachCode::InvalidArgument);
    assert_eq!(names(), ["default", "\u{e4}"]);
    pleach_partition_free(Some(umlaut));
}

#[test]
fn upkeep_and_statistics() {
    let store = Store::in_memory();
    store.put(b"k", b"1").unwrap();
    for function in [pleach_db_sync, pleach_db_flush, pleach_db_compact, pleach_db_verify] {
        outcome(function(Some(&store.db))).unwrap();
    }
    outcome(pleach_partition_compact(Some(&store.default))).unwrap();
    // SAFETY: the places are there.
    let (of_store, of_partition) = unsafe {
        (
            text(|json| pleach_db_stats_json(Some(&store.db), json)).unwrap(),
            text(|json| pleach_partition_stats_json(Some(&store.default), json)).unwrap(),
        )
    };
    let of_store: serde_json::Value = serde_json::from_str(&of_store).unwrap();
    let of_partition: serde_json::Value = serde_json::from_str(&of_partition).unwrap();
    assert_eq!((&of_store["sst_entries"], &of_partition["entries"]), (&1.into(), &1.into()));
    assert!(of_store["poisoned"].is_null() && of_store["read_driver"].is_string());
    // SAFETY: it is a constant C string.
    assert_eq!(unsafe { CStr::from_ptr(pleach_version()) }.to_str().unwrap(), env!("CARGO_PKG_VERSION"));
}
