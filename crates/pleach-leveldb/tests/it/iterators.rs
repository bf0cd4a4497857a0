//! Iterators: errors, lifetimes, threads.

use std::path::Path;

use pleach_leveldb::*;

use crate::compaction::compact;
use crate::support::{Store, caught, folded_options, options, parts};

/// Bytes that no compression makes shorter.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// Changes the byte behind `pattern` wherever a file of the directory has it. Returns how often.
fn damage(dir: &Path, pattern: &[u8]) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let places: Vec<_> =
            bytes.windows(pattern.len()).enumerate().filter(|(_, w)| *w == pattern).collect();
        let places: Vec<_> = places.iter().map(|(at, _)| at + pattern.len()).collect();
        found += places.len();
        for at in &places {
            bytes[*at] ^= 1;
        }
        if !places.is_empty() {
            std::fs::write(&path, bytes).unwrap();
        }
    }
    found
}

#[test]
fn a_value_that_cannot_be_read_is_an_error_at_the_end_of_the_walk() {
    for options in [options(), folded_options()] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), &options).unwrap();
        for n in 0..20_u8 {
            store.put(&[b'a', n], &noise(n.into(), 3000)).unwrap();
        }
        compact(&store, None, None);
        drop(store);
        assert_eq!(damage(dir.path(), &noise(7, 3000)[..100]), 1);
        let store = Store::open(dir.path(), &options).unwrap();
        let mut iterator = leveldb_create_iterator(store.db(), &store.reads);
        leveldb_iter_seek_to_first(&mut iterator);
        let mut values = 0;
        while leveldb_iter_valid(&iterator) == 1 {
            let mut len = 0;
            leveldb_iter_value(&iterator, &mut len);
            values += usize::from(len == 3000);
            leveldb_iter_next(&mut iterator);
        }
        assert!(values < 20);
        let error = caught(|error| leveldb_iter_get_error(&iterator, error)).unwrap_err();
        assert!(error.starts_with("Corruption: "), "{error}");
        // The others can be read.
        let (key, len) = parts(b"a\x08");
        // SAFETY: the key is there.
        unsafe { leveldb_iter_seek(&mut iterator, key, len) };
        let mut len = 0;
        leveldb_iter_value(&iterator, &mut len);
        assert_eq!(len, 3000);
        caught(|error| leveldb_iter_get_error(&iterator, error)).unwrap();
        leveldb_iter_destroy(Some(iterator));
    }
}

#[test]
fn handles_that_outlive_the_store_give_errors() {
    for options in [options(), folded_options()] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path(), &options).unwrap();
        for n in 0..100_u8 {
            store.put(&[n], &[n; 2000]).unwrap();
        }
        let snapshot = leveldb_create_snapshot(store.db()).unwrap();
        let mut iterator = leveldb_create_iterator(store.db(), &store.reads);
        leveldb_iter_seek_to_first(&mut iterator);
        leveldb_close(store.db.take());
        let again = Store::open(dir.path(), &options).unwrap();
        leveldb_iter_next(&mut iterator);
        assert_eq!(leveldb_iter_valid(&iterator), 0);
        assert!(caught(|error| leveldb_iter_get_error(&iterator, error)).is_err());
        leveldb_iter_seek_to_last(&mut iterator);
        assert_eq!(leveldb_iter_valid(&iterator), 0);
        drop(again);
        leveldb_iter_destroy(Some(iterator));
        drop(snapshot);
    }
}

#[test]
fn a_snapshot_is_read_by_gets_and_iterators_of_any_thread() {
    for options in [options(), folded_options()] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path(), &options).unwrap();
        for key in [b"a", b"b", b"c"] {
            store.put(key, b"old").unwrap();
        }
        let snapshot = leveldb_create_snapshot(store.db()).unwrap();
        store.put(b"b", b"new").unwrap();
        store.delete(b"c").unwrap();
        store.put(b"d", b"new").unwrap();
        leveldb_readoptions_set_snapshot(&mut store.reads, &raw const *snapshot);
        assert_eq!(store.get(b"b").unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(store.get(b"c").unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(store.get(b"d").unwrap(), None);
        let mut iterator = leveldb_create_iterator(store.db(), &store.reads);
        // The snapshot goes, the iterator keeps what it sees.
        leveldb_readoptions_set_snapshot(&mut store.reads, std::ptr::null());
        leveldb_release_snapshot(store.db(), Some(snapshot));
        compact(&store, None, None);
        let found = std::thread::scope(|threads| {
            let walk = threads.spawn(move || {
                let mut found = Vec::new();
                leveldb_iter_seek_to_last(&mut iterator);
                while leveldb_iter_valid(&iterator) == 1 {
                    let mut len = 0;
                    let value = leveldb_iter_value(&iterator, &mut len);
                    // SAFETY: the iterator lends so many bytes.
                    found.push(unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len) }.to_vec());
                    leveldb_iter_prev(&mut iterator);
                }
                leveldb_iter_destroy(Some(iterator));
                found
            });
            walk.join().unwrap()
        });
        assert_eq!(found, [b"old", b"old", b"old"]);
        assert_eq!(store.keys(true), [b"a", b"b", b"d"]);
    }
}

#[test]
fn an_iterator_turns_between_any_two_entries() {
    for options in [options(), folded_options()] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), &options).unwrap();
        let mut iterator = leveldb_create_iterator(store.db(), &store.reads);
        for seek in [leveldb_iter_seek_to_first, leveldb_iter_seek_to_last] {
            seek(&mut iterator);
            assert_eq!(leveldb_iter_valid(&iterator), 0, "an empty store");
        }
        drop(iterator);
        for n in 0..9_u8 {
            store.put(&[n], b"").unwrap();
            if n == 4 {
                compact(&store, None, None);
            }
        }
        let mut iterator = leveldb_create_iterator(store.db(), &store.reads);
        let at = |iterator: &IteratorHandle| {
            let mut len = 0;
            let key = leveldb_iter_key(iterator, &mut len);
            // SAFETY: the iterator lends so many bytes.
            unsafe { std::slice::from_raw_parts(key.cast::<u8>(), len) }.to_vec()
        };
        for n in 1..8_u8 {
            let (key, len) = parts(std::slice::from_ref(&n));
            // SAFETY: the key is there.
            unsafe { leveldb_iter_seek(&mut iterator, key, len) };
            for (step, expected) in [
                (leveldb_iter_next as extern "C" fn(&mut IteratorHandle), n + 1),
                (leveldb_iter_prev, n),
                (leveldb_iter_prev, n - 1),
                (leveldb_iter_next, n),
                (leveldb_iter_next, n + 1),
            ] {
                step(&mut iterator);
                assert_eq!(at(&iterator), [expected]);
            }
        }
        leveldb_iter_seek_to_first(&mut iterator);
        leveldb_iter_prev(&mut iterator);
        assert_eq!(leveldb_iter_valid(&iterator), 0);
        leveldb_iter_destroy(Some(iterator));
    }
}
