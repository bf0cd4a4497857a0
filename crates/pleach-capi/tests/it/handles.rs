//! Handles: they outlive the close, keep the store open, and are freed in any order; threads share them.

use pleach_capi::*;

use crate::support::*;

#[test]
fn a_closed_store_refuses_all_of_its_handles() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::of(open_with(dir.path(), None).unwrap());
    store.put(b"k", &[1; 5_000]).unwrap();
    outcome(pleach_db_flush(Some(&store.db))).unwrap();
    let (snapshot, mut batch) = (store.snapshot(), store.batch());
    let mut cursor = cursor(&store.default, None).unwrap();
    assert!(pleach_cursor_first(Some(&mut cursor)));
    store.close().unwrap();
    store.close().unwrap();
    // Others can open it although handles are there.
    drop(open_with(dir.path(), None).unwrap());
    let is_closed = |outcome: Outcome| assert_eq!(outcome.unwrap_err().code, PleachCode::Closed);
    is_closed(store.put(b"k", b""));
    is_closed(store.get(b"k").map(drop));
    is_closed(get(&store.default, Some(&snapshot), b"k").map(drop));
    is_closed(outcome(pleach_db_flush(Some(&store.db))));
    is_closed(store.partition("new").map(drop));
    is_closed(crate::support::cursor(&store.default, None).map(drop));
    is_closed(outcome(pleach_batch_write(Some(&mut batch), 0)));
    assert!(!pleach_cursor_next(Some(&mut cursor)) && !pleach_cursor_valid(Some(&cursor)));
    is_closed(outcome(pleach_cursor_status(Some(&cursor))));
    assert!(!pleach_cursor_first(Some(&mut cursor)));
    pleach_db_free(Some(store.db));
    pleach_partition_free(Some(store.default));
    pleach_batch_free(Some(batch));
    pleach_cursor_free(Some(cursor));
    pleach_snapshot_free(Some(snapshot));
}

#[test]
fn any_handle_keeps_the_store_open() {
    let dir = tempfile::tempdir().unwrap();
    let make = || {
        let store = Store::of(open_with(dir.path(), None).unwrap());
        store.put(b"k", b"1").unwrap();
        store
    };
    let is_open =
        || open_with(dir.path(), None).err().map(|failure| failure.code) == Some(PleachCode::Conflict);

    let Store { db, default } = make();
    pleach_db_free(Some(db));
    assert_eq!(get(&default, None, b"k").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(is_open());
    let mut last = cursor(&default, None).unwrap();
    pleach_partition_free(Some(default));
    assert!(is_open() && pleach_cursor_first(Some(&mut last)));
    pleach_cursor_free(Some(last));
    assert!(!is_open());

    let store = make();
    let (snapshot, mut batch) = (store.snapshot(), store.batch());
    drop(store);
    assert!(is_open());
    pleach_snapshot_free(Some(snapshot));
    assert!(is_open());
    outcome(pleach_batch_write(Some(&mut batch), 0)).unwrap();
    pleach_batch_free(Some(batch));
    assert!(!is_open());
}

#[test]
fn threads_share_a_store() {
    let store = Store::in_memory();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..200_u8 {
                    store.put(&[thread, n], &[n]).unwrap();
                    assert_eq!(store.get(&[thread, n]).unwrap(), Some(vec![n]));
                }
            });
        }
    });
    assert_eq!(keys(&store.default, None).len(), 800);
}

#[test]
fn a_close_ends_the_lock_while_a_child_lives() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::of(open_with(dir.path(), None).unwrap());
    // SAFETY: the child only waits for a signal.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::pause();
            libc::_exit(0);
        }
        child
    };
    assert!(child > 0);
    store.close().unwrap();
    let again = open_with(dir.path(), None);
    // SAFETY: it is a child of this process that was not waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    drop(again.unwrap());
}
