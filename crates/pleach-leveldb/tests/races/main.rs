//! Races: tests that hold threads at named points of the sources (`pleach::env::failpoint`), and so force an order that chance
//! gives rarely. Holds are global, so this is a binary of its own, and its tests run one at a time.

#![expect(unsafe_code, reason = "the interface of C")]
#![expect(clippy::unnecessary_box_returns, reason = "handles are boxes")]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a race needs threads and real files")]
#![expect(dead_code, reason = "other tests use more of the support")]

#[path = "../it/support.rs"]
mod support;

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pleach::env::failpoint::hold;
use pleach_leveldb::*;

use support::{Store, folded_options, options};

/// Longest time that reads may take (arbitrary, far above what they need on a busy machine).
const READ_TIME_MAX: Duration = Duration::from_secs(10);

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A store under a comparator of the caller's whose writes are synced, with the keys `a` and `c`.
fn ordered_store(path: &Path) -> Store {
    let mut store = Store::open(path, &folded_options()).unwrap();
    leveldb_writeoptions_set_sync(&mut store.writes, 1);
    store.put(b"a", b"1").unwrap();
    store.put(b"c", b"1").unwrap();
    store
}

/// Puts `A` in the place of `a`, puts `b`, and deletes `c`.
fn write_all_three(store: &Store) {
    let mut batch = leveldb_writebatch_create();
    // SAFETY: keys and values are there.
    unsafe {
        leveldb_writebatch_put(&mut batch, c"A".as_ptr(), 1, c"2".as_ptr(), 1);
        leveldb_writebatch_put(&mut batch, c"b".as_ptr(), 1, c"2".as_ptr(), 1);
        leveldb_writebatch_delete(&mut batch, c"c".as_ptr(), 1);
    }
    support::caught(|error| leveldb_write(store.db(), &store.writes, &batch, error)).unwrap();
}

/// Reads beside the batch of [`write_all_three`], whose thread is held at `site`: gets, walks and a snapshot.
fn reads_beside_a_write(site: &'static str, keys: &[&[u8]], value_of_a: &[u8]) {
    let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let store = ordered_store(dir.path());
    std::thread::scope(|threads| {
        let held = hold(site);
        threads.spawn(|| write_all_three(&store));
        held.wait_for(1);
        let (done, read) = channel();
        threads.spawn(|| {
            let gets = [b"a", b"b", b"c"].map(|key| store.get(key).unwrap());
            let _nobody_waits_any_more = { done }.send((gets, store.keys(true), store.keys(false)));
        });
        // The failure of a read that waits drops the hold, so that all threads end.
        let ([a, b, c], up, down) = read.recv_timeout(READ_TIME_MAX).expect("no read waits for the write");
        held.release();
        let has = |key: &[u8]| keys.contains(&key);
        assert_eq!((a.as_deref(), b.is_some(), c.is_some()), (Some(value_of_a), has(b"b"), has(b"c")));
        assert!(up == keys && down.iter().rev().eq(keys), "{up:?} {down:?}");
    });
    assert_eq!(store.keys(true), [b"A", b"b"]);
}

#[test]
fn reads_under_a_comparator_do_not_wait_for_a_commit_and_its_sync() {
    reads_beside_a_write("commit.inserted", &[b"a", b"c"], b"1");
}

#[test]
fn reads_under_a_comparator_see_a_write_whole_as_soon_as_the_store_shows_it() {
    reads_beside_a_write("ordered.committed", &[b"A", b"b"], b"2");
}

#[test]
fn a_store_that_comes_up_beside_the_open_exists() {
    let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let (made, path) = (dir.path().join("made"), dir.path().join("db"));
    Store::open(&made, &options()).unwrap().put(b"k", b"1").unwrap();
    std::thread::scope(|threads| {
        let held = hold("lock.opened");
        let opened = threads.spawn(|| {
            let mut new = options();
            leveldb_options_set_error_if_exists(&mut new, 1);
            Store::open(&path, &new).err()
        });
        held.wait_for(1);
        for entry in std::fs::read_dir(&made).unwrap() {
            let name = entry.unwrap().file_name();
            if name != "LOCK" {
                std::fs::rename(made.join(&name), path.join(&name)).unwrap();
            }
        }
        held.release();
        let refused = opened.join().unwrap().expect("there is a store");
        assert!(refused.starts_with("Invalid argument: ") && refused.contains("exists"), "{refused}");
    });
    assert_eq!(Store::open(&path, &options()).unwrap().keys(true), [b"k"]);
}
