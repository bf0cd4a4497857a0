//! The background job when something fails under it, and what writers learn of that. And large values, for which neither moves
//! nor ranges take more memory than they may.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use pleach::ErrorKind;
use pleach_reshape::store::Table;
use pleach_reshape::store::model::{Call, Failure, ModelStore};
use pleach_reshape::{Options, Reshaped};

use crate::rig::{contents, recluster};

/// So little memory for the map's changes that a few hundred puts need a checkpoint.
const DELTA: usize = 64 << 10;
/// Puts that need many checkpoints.
const PUTS: u32 = 10_000;

fn open(rows: &ModelStore, dir: &tempfile::TempDir, options: Options) -> Reshaped {
    options.open(Box::new(rows.clone()), dir.path()).unwrap()
}

#[test]
fn writers_do_not_wait_for_a_job_that_has_panicked() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::without_history(true));
    let store = open(&rows, &dir, Options::new().delta_bytes(DELTA));
    rows.on_call(Some(Arc::new(|call| {
        if call == Call::Sync {
            resume_unwind(Box::new("a store panics"));
        }
    })));
    let error = (0..PUTS).find_map(|number| store.put(number.to_le_bytes(), "v").err());
    assert_eq!(error.expect("nobody makes checkpoints").kind(), ErrorKind::Poisoned);
    rows.on_call(None);
}

#[test]
fn moves_that_fail_in_the_background_stop_no_writer() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(true));
    let store = open(&rows, &dir, Options::new().background(false).moves(1 << 20, 1));
    for number in 0..20 {
        store.put(format!("{number:02}"), "value").unwrap();
    }
    store.checkpoint().unwrap();
    assert!(recluster(&store, &rows, Some(9), None));
    assert!(store.stats().is_draining);
    drop(store);
    let last = rows.places().into_iter().rfind(|place| place.table == Table(0)).unwrap();
    rows.damage(last, |bytes| bytes[0] ^= 1);
    let store = open(&rows, &dir, Options::new().delta_bytes(DELTA));
    for number in 0..PUTS {
        store.put(number.to_le_bytes(), "v").unwrap();
    }
    let error = store.background_error().expect("the moves met the damage");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(store.stats().is_draining);
}

#[test]
fn writers_learn_why_there_is_no_room_and_go_on_when_there_is() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::without_history(true));
    let store = open(&rows, &dir, Options::new().delta_bytes(DELTA));
    let own = rows.clone();
    rows.on_call(Some(Arc::new(move |call| {
        if call == Call::Commit && thread::current().name() == Some("reshape") {
            own.fail(Some(Failure::Commit));
        }
    })));
    // Now and then a put takes the failure instead of the job.
    let failed = (0..PUTS).find(|number| {
        let is_full = store.stats().delta_bytes > DELTA;
        store.put(number.to_le_bytes(), "v").is_err() && is_full
    });
    assert!(failed.is_some() && store.background_error().is_some());
    rows.on_call(None);
    rows.fail(None);
    // A checkpoint that has begun may still fail.
    assert!((0..100).any(|_| store.put("k", "v").is_ok()));
    for number in 0..PUTS {
        store.put(number.to_le_bytes(), "v").unwrap();
    }
    assert!(store.background_error().is_none());
}

#[test]
fn a_close_makes_rows_durable_that_were_written_in_place() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let store = open(&rows, &dir, Options::new().background(false));
    store.put("k", "1").unwrap();
    store.checkpoint().unwrap();
    store.put("k", "2").unwrap();
    store.close().unwrap();
    let store = open(&rows.crash(rows.durable_commits()), &dir, Options::new().background(false));
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"2"[..]));
}

/// Chunks are sized by the pairs before, so what comes behind many small values is the hard case.
#[test]
fn large_values_behind_small_ones_are_moved_and_scanned() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::without_history(false));
    let store = open(&rows, &dir, Options::new().background(false).moves(256 << 10, 128));
    // In an order that is not that of the keys.
    for number in (0..2000_u32).map(|number| number * 7 % 2000) {
        store.put(format!("a{number:04}"), "small").unwrap();
    }
    for number in (0..120_u32).map(|number| number * 7 % 120) {
        store.put(format!("b{number:04}"), vec![b'0' + (number % 10) as u8; 64 << 10]).unwrap();
    }
    let before = contents(&store);
    assert_eq!(before.len(), 2120);
    assert_eq!(store.recluster::<&[u8]>(..).unwrap(), 2120);
    assert!(contents(&store) == before, "behind a recluster of all");
    assert_eq!(store.recluster("a".."c").unwrap(), 2120);
    assert!(contents(&store) == before, "behind a recluster of a part");
    let expected = before.range(b"a1900".to_vec()..b"b0100".to_vec()).rev();
    let found = store.range("a1900".."b0100").unwrap().expect_entries(500).rev();
    assert!(found.map(Result::unwrap).eq(expected.map(|(key, value)| (key.clone(), value.clone()))));
}
