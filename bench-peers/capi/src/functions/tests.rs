//! The interface as C calls it, over the model and redb.

use std::ffi::{CStr, CString};

use super::*;
use crate::error::peers_error;

const ENGINES: [&str; 2] = ["reference", "redb"];
const KEY: &[u8] = b"a key";

fn open(engine: &str, folder: &Path, durability: &str, tables: u32) -> *mut PeersSession {
    let texts = [engine, folder.to_str().expect("a plain path"), durability, ""];
    let [engine, folder, durability, settings] = texts.map(|text| CString::new(text).expect("no zero"));
    // SAFETY: all are strings of C.
    unsafe {
        let (engine, folder, durability) = (engine.as_ptr(), folder.as_ptr(), durability.as_ptr());
        peers_open(engine, folder, 16 << 20, durability, settings.as_ptr(), tables)
    }
}

fn close(session: *mut PeersSession) {
    // SAFETY: each test closes a session of its own once.
    assert_eq!(unsafe { peers_close(session) }, DONE, "{}", error());
}

fn insert(session: *mut PeersSession, table: u32, key: &[u8], row: &[u8]) -> c_int {
    // SAFETY: the session is open, and the bytes are there.
    unsafe { peers_insert(session, table, key.as_ptr().cast(), key.len(), row.as_ptr().cast(), row.len()) }
}

fn update(session: *mut PeersSession, key: &[u8], offset: usize, field: &[u8]) -> c_int {
    let (start, len) = (field.as_ptr().cast(), field.len());
    // SAFETY: the session is open, and the bytes are there.
    unsafe { peers_update(session, 0, key.as_ptr().cast(), key.len(), offset, start, len) }
}

/// The answer, what is copied with room for so many bytes, and the row's length.
fn read(session: *mut PeersSession, table: u32, key: &[u8], room: usize) -> (c_int, Vec<u8>, usize) {
    let (mut row, mut len) = (vec![0_u8; room], 0);
    let to = row.as_mut_ptr().cast();
    // SAFETY: the session is open, and there is room for what is written.
    let answer =
        unsafe { peers_read(session, table, key.as_ptr().cast(), key.len(), to, room, &raw mut len) };
    row.truncate(len);
    (answer, row, len)
}

fn error() -> String {
    // SAFETY: it is a string of C until the next call.
    unsafe { CStr::from_ptr(peers_error()) }.to_str().expect("our texts are UTF-8").to_owned()
}

#[test]
fn rows_are_inserted_read_and_updated() {
    for engine in ENGINES {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let session = open(engine, folder.path(), "buffered", 2);
        assert!(!session.is_null(), "{engine}: {}", error());
        assert_eq!(read(session, 0, KEY, 9).0, NO_ROW);
        assert_eq!(update(session, KEY, 0, b"x"), NO_ROW);
        assert_eq!(insert(session, 0, KEY, b"the row"), DONE);
        assert_eq!(read(session, 0, KEY, 9), (DONE, b"the row".to_vec(), 7));
        assert_eq!(read(session, 0, KEY, 3), (DONE, b"the".to_vec(), 7));
        assert_eq!(read(session, 1, KEY, 9).0, NO_ROW, "tables are apart");
        assert_eq!(update(session, KEY, 4, b"ROW"), DONE);
        assert_eq!(read(session, 0, KEY, 9), (DONE, b"the ROW".to_vec(), 7));
        close(session);
    }
}

#[test]
fn threads_share_a_store_that_the_last_one_closes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = open("redb", folder.path(), "sync", 1);
    std::thread::scope(|scope| {
        for number in 0..4_u8 {
            let path = folder.path();
            scope.spawn(move || {
                let session = open("redb", path, "sync", 1);
                for key in 0..50 {
                    assert_eq!(insert(session, 0, &[number, key], &[key]), DONE, "{}", error());
                }
                close(session);
            });
        }
    });
    assert_eq!(read(first, 0, &[3, 49], 1), (DONE, vec![49], 1));
    close(first);
    // redb locks its file: the store is closed if it can be opened with other settings.
    let again = open("redb", folder.path(), "buffered", 1);
    assert_eq!(read(again, 0, &[0, 0], 1), (DONE, vec![0], 1), "{}", error());
    close(again);
}

#[test]
fn errors_have_texts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    assert!(open("leveldbx", folder.path(), "sync", 1).is_null());
    assert!(error().starts_with("there is no engine \"leveldbx\"; there are: pleach,"), "{}", error());
    assert!(open("redb", folder.path(), "never", 1).is_null());
    assert_eq!(error(), "durability \"never\": it is buffered or sync");
    assert!(open("redb", folder.path(), "sync", 0).is_null());
    let session = open("redb", folder.path(), "sync", 1);
    assert!(open("redb", folder.path(), "buffered", 1).is_null());
    assert_eq!(error(), "the folder is open with another engine or with other settings");
    assert_eq!(insert(session, 1, KEY, b""), FAILED);
    assert_eq!(error(), "no table 1: there are 1");
    assert_eq!(insert(session, 0, KEY, b"row"), DONE);
    assert_eq!(update(session, KEY, 2, b"ab"), FAILED);
    assert_eq!(error(), "the row has 3 bytes, and no field at 2");
    assert_eq!(read(session, 0, KEY, 9).1, b"row");
    assert_eq!(insert(std::ptr::null_mut(), 0, KEY, b""), FAILED);
    assert_eq!(error(), "the session is null");
    close(session);
    close(std::ptr::null_mut());
    assert_eq!(answer(FAILED, || panic!("on purpose")), FAILED);
    assert_eq!(error(), "a panic; its message is on the standard error output");
}

#[test]
fn dropped_tables_are_gone() {
    for engine in ENGINES {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let session = open(engine, folder.path(), "buffered", 2);
        assert_eq!(insert(session, 1, KEY, b"row"), DONE);
        // SAFETY: it is open, and no other thread uses the store.
        assert_eq!(unsafe { peers_drop_tables(session) }, DONE, "{}", error());
        close(session);
        if engine == "redb" {
            let session = open(engine, folder.path(), "buffered", 2);
            assert_eq!(read(session, 1, KEY, 9).0, NO_ROW);
            close(session);
        }
    }
}

#[test]
fn keys_are_random_digits() {
    let mut key = [0_u8; KEY_LEN];
    // SAFETY: there is room for a key.
    let mut made = |index| (unsafe { peers_key(index, key.as_mut_ptr().cast()) }, key);
    let keys: std::collections::BTreeSet<_> = (0..1000).map(|index| made(index).1).collect();
    assert_eq!(keys.len(), 1000);
    assert!(keys.iter().flatten().all(u8::is_ascii_digit));
    assert_ne!(made(0).1[..8], made(1).1[..8], "neighbours are far apart");
    assert_eq!(made(10_u64.pow(16)).0, FAILED);
}
