//! Cursors: moves, lent entries, and errors.

use pleach_capi::*;

use crate::support::*;

fn store() -> Store {
    let store = Store::in_memory();
    for key in ["a", "b", "c"] {
        store.put(key.as_bytes(), key.repeat(2).as_bytes()).unwrap();
    }
    store
}

fn seek(cursor: &mut CursorHandle, to: &[u8]) -> bool {
    let (to, len) = parts(to);
    // SAFETY: the key is there.
    unsafe { pleach_cursor_seek(Some(cursor), to, len) }
}

fn seek_for_prev(cursor: &mut CursorHandle, to: &[u8]) -> bool {
    let (to, len) = parts(to);
    // SAFETY: the key is there.
    unsafe { pleach_cursor_seek_for_prev(Some(cursor), to, len) }
}

#[test]
fn a_cursor_moves_both_ways_and_lends_its_entry() {
    let store = store();
    let mut cursor = cursor(&store.default, None).unwrap();
    let at = |cursor: &mut CursorHandle, is_found: bool| {
        outcome(pleach_cursor_status(Some(cursor))).unwrap();
        assert_eq!(pleach_cursor_valid(Some(cursor)), is_found);
        let (key, value) = (key(cursor), value(cursor));
        assert_eq!((key.is_some(), value), (is_found, key.as_ref().map(|key| key.repeat(2))));
        key.map(|key| String::from_utf8(key).unwrap())
    };
    assert_eq!(at(&mut cursor, false), None);
    // A step from no entry leads nowhere.
    assert!(!pleach_cursor_next(Some(&mut cursor)) && !pleach_cursor_prev(Some(&mut cursor)));
    assert!(pleach_cursor_first(Some(&mut cursor)));
    assert_eq!(at(&mut cursor, true).as_deref(), Some("a"));
    assert!(pleach_cursor_next(Some(&mut cursor)) && pleach_cursor_next(Some(&mut cursor)));
    assert_eq!(at(&mut cursor, true).as_deref(), Some("c"));
    assert!(pleach_cursor_prev(Some(&mut cursor)));
    assert_eq!(at(&mut cursor, true).as_deref(), Some("b"));
    assert!(pleach_cursor_last(Some(&mut cursor)) && !pleach_cursor_next(Some(&mut cursor)));
    assert_eq!(at(&mut cursor, false), None);
    assert!(seek(&mut cursor, b"aa"));
    assert_eq!(at(&mut cursor, true).as_deref(), Some("b"));
    assert!(seek_for_prev(&mut cursor, b"aa"));
    assert_eq!(at(&mut cursor, true).as_deref(), Some("a"));
    assert!(!seek(&mut cursor, b"d") && !seek_for_prev(&mut cursor, b""));
    assert_eq!(at(&mut cursor, false), None);
    pleach_cursor_free(Some(cursor));
}

#[test]
fn a_cursor_sees_its_moment() {
    let store = store();
    let snapshot = store.snapshot();
    store.put(b"d", b"").unwrap();
    let mut now = cursor(&store.default, None).unwrap();
    let mut then = cursor(&store.default, Some(&snapshot)).unwrap();
    pleach_snapshot_free(Some(snapshot));
    store.put(b"e", b"").unwrap();
    assert!(pleach_cursor_last(Some(&mut now)) && pleach_cursor_last(Some(&mut then)));
    assert_eq!((key(&now).unwrap(), key(&then).unwrap()), (b"d".to_vec(), b"c".to_vec()));
}

#[test]
fn a_value_that_cannot_be_read_is_an_error_of_the_cursor() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = pleach_options_create().unwrap();
    outcome(pleach_options_set_separate_at(Some(&mut options), 100)).unwrap();
    let store = Store::of(open_with(dir.path(), Some(&options)).unwrap());
    store.put(b"a", &[1; 9_000]).unwrap();
    store.put(b"b", b"2").unwrap();
    outcome(pleach_db_flush(Some(&store.db))).unwrap();
    store.close().unwrap();
    drop(store);
    // The file of the separated value loses its bytes.
    let mut damaged = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(100).position(|window| window == [1; 100]) {
            bytes[at + 50] = 2;
            std::fs::write(path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    let store = Store::of(open_with(dir.path(), Some(&options)).unwrap());
    assert_eq!(store.get(b"a").unwrap_err().code, PleachCode::Corruption);
    let mut cursor = cursor(&store.default, None).unwrap();
    assert!(pleach_cursor_first(Some(&mut cursor)));
    assert_eq!((key(&cursor), value(&mut cursor)), (Some(b"a".to_vec()), None));
    let error = outcome(pleach_cursor_status(Some(&cursor))).unwrap_err();
    assert_eq!(error.code, PleachCode::Corruption);
    // It is still there, and the walk goes on.
    outcome(pleach_cursor_status(Some(&cursor))).unwrap_err();
    assert!(pleach_cursor_next(Some(&mut cursor)));
    outcome(pleach_cursor_status(Some(&cursor))).unwrap();
    assert_eq!(value(&mut cursor).as_deref(), Some(&b"2"[..]));
}
