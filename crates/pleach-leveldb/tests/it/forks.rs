//! Children of a fork have their parent's handles.

use std::time::{Duration, Instant};

use pleach_leveldb::*;

use crate::support::{Store, options};

/// Runs `work` in a child, which then ends, or waits to be killed.
fn in_child(work: impl FnOnce(), waits: bool) -> libc::pid_t {
    // SAFETY: the child calls nothing that needs another thread or the allocator.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        work();
        if waits {
            // SAFETY: it only waits for a signal, and nobody sends one that does not end the child.
            unsafe { libc::pause() };
        }
        // SAFETY: nothing of the parent's is to be done here.
        unsafe { libc::_exit(0) };
    }
    child
}

fn kill(child: libc::pid_t) {
    // SAFETY: it is a child of this process that was not waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

/// Whether the child ends by itself within ten seconds, and without a panic.
fn ends(child: libc::pid_t) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        let mut status = 0;
        // SAFETY: it is a child of this process.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return status == 0;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(child);
    false
}

#[test]
fn a_child_releases_its_parents_handles_without_effect() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), &options()).unwrap();
    store.put(b"a", b"1").unwrap();
    let (iterator, snapshot) =
        (leveldb_create_iterator(store.db(), &store.reads), leveldb_create_snapshot(store.db()).unwrap());
    let files = || std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
    let before = (files(), std::fs::read(dir.path().join("CURRENT")).unwrap());
    let (mut handles, db) = (Some((iterator, snapshot)), store.db.take());
    let mut in_both = Some(db);
    let child = in_child(
        || {
            let db = in_both.take().unwrap();
            let (iterator, snapshot) = handles.take().unwrap();
            leveldb_iter_destroy(Some(iterator));
            leveldb_release_snapshot(db.as_ref().unwrap(), Some(snapshot));
            leveldb_close(db);
        },
        false,
    );
    assert!(ends(child), "the child wants threads of its parent");
    store.db = in_both.unwrap();
    assert_eq!((files(), std::fs::read(dir.path().join("CURRENT")).unwrap()), before);
    assert!(Store::open(dir.path(), &options()).is_err(), "the parent has the lock");
    store.put(b"b", b"1").unwrap();
    let (iterator, snapshot) = handles.unwrap();
    leveldb_iter_destroy(Some(iterator));
    leveldb_release_snapshot(store.db(), Some(snapshot));
    drop(store);
    assert_eq!(Store::open(dir.path(), &options()).unwrap().keys(true), [b"a", b"b"]);
}

#[test]
fn a_close_ends_the_lock_while_a_child_lives() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options()).unwrap();
    let child = in_child(|| {}, true);
    drop(store);
    let again = Store::open(dir.path(), &options());
    kill(child);
    again.unwrap();
}
