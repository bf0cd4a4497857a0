//! Reclusters that sort the old rows through a temporary file: what they leave, and what happens when the file fails.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pleach::env::{Env, Fault, FaultKind, SimEnv};
use pleach_reshape::store::model::{Call, ModelStore};
use pleach_reshape::store::{RowStore, Table};
use pleach_reshape::{MapPlace, Options, Reshaped, Update};

use crate::rig::{Contents, DIR, assert_contents};

const ROWS: u64 = 2000;
/// Bytes of rows in memory: a few dozen runs.
const MEMORY: usize = 8 << 10;

fn options(env: &Arc<SimEnv>) -> Options {
    let env = Arc::<SimEnv>::clone(env);
    // With the map in memory, the reads of the disk are those of the file.
    let options = Options::new().env(env).background(false).map(MapPlace::Memory);
    options.update(Update::Defer).moves(MEMORY, 16)
}

/// A store of rows whose keys are in no order, some of them replaced or deleted, and what it holds.
fn scattered(rows: &ModelStore, env: &Arc<SimEnv>) -> (Reshaped, Contents) {
    let store = options(env).open(Box::new(rows.clone()), DIR).unwrap();
    let mut contents = Contents::new();
    for number in 0..ROWS + 200 {
        let key = format!("{:05}", number % ROWS * 7919 % 100_003).into_bytes();
        let value = format!("{number}").into_bytes();
        store.put(&key, &value).unwrap();
        contents.insert(key, value);
    }
    for number in 100..200 {
        let key = format!("{:05}", number * 7919 % 100_003).into_bytes();
        store.delete(&key).unwrap();
        contents.remove(&key);
    }
    store.checkpoint().unwrap();
    (store, contents)
}

fn assert_in_order(rows: &ModelStore, contents: &Contents) {
    let mut found = Vec::new();
    for place in rows.places() {
        rows.get(place, &mut |row| found.push(row.to_vec())).unwrap();
    }
    assert_eq!(found.len(), contents.len());
    assert!(found.iter().zip(contents.values()).all(|(row, value)| row.ends_with(value)));
}

#[test]
fn scattered_rows_are_sorted_through_a_file_that_leaves_nothing() {
    let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
    let (store, contents) = scattered(&rows, &env);
    let reads = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&reads);
    rows.on_call(Some(Arc::new(move |call| {
        own.fetch_add(u64::from(call == Call::Get), Ordering::SeqCst);
    })));
    let calls = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&calls);
    env.on_op(Box::new(move |_, name| own.lock().unwrap().push(name)));
    assert_eq!(store.recluster::<&[u8]>(..).unwrap(), contents.len() as u64);
    env.on_op(Box::new(|_, _| {}));
    rows.on_call(None);
    let calls = calls.lock().unwrap();
    let count = |name: &str| calls.iter().filter(|call| **call == name).count();
    assert!(count("write_at") > 20, "{calls:?}");
    // A row in the file needs no read of the store by itself.
    assert_eq!(reads.load(Ordering::SeqCst), 0);
    assert!(!env.file_names(Path::new(DIR)).contains(&"MOVES".to_owned()));
    assert_in_order(&rows, &contents);
    assert_contents(&store, &contents, "reclustered");
    // They lie in order now, so the next recluster needs no file.
    drop(calls);
    let before = env.op_count();
    assert_eq!(store.recluster::<&[u8]>(..).unwrap(), contents.len() as u64);
    assert!(env.op_count() - before < 20);
    assert_in_order(&rows, &contents);
}

#[test]
fn an_open_removes_what_a_crash_left_of_a_file() {
    let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
    let (store, contents) = scattered(&rows, &env);
    drop(store);
    env.write_file(&Path::new(DIR).join("MOVES"), b"rest");
    let store = options(&env).open(Box::new(rows.clone()), DIR).unwrap();
    assert!(!env.file_names(Path::new(DIR)).contains(&"MOVES".to_owned()));
    // Nor does one hinder a recluster.
    env.write_file(&Path::new(DIR).join("MOVES"), b"rest");
    store.recluster::<&[u8]>(..).unwrap();
    assert_contents(&store, &contents, "reclustered");
    assert!(!env.file_names(Path::new(DIR)).contains(&"MOVES".to_owned()));
}

/// Calls that change the machine, and reads of it, from the begin of a generation up to the first move of a recluster; counted
/// from the call of the recluster.
fn calls_of_a_sort() -> (Range<u64>, Range<u64>) {
    let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
    let (store, _) = scattered(&rows, &env);
    let before = (env.op_count(), env.read_count());
    // Of the first commit, which begins the generation, and of the first move.
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (own, disk, own_rows) = (Arc::clone(&seen), Arc::clone(&env), rows.clone());
    rows.on_call(Some(Arc::new(move |call| {
        let is_moved = own_rows.places().iter().any(|place| place.table == Table(1));
        let mut seen = own.lock().unwrap();
        if call == Call::Commit && (seen.is_empty() || is_moved && seen.len() == 1) {
            seen.push((disk.op_count(), disk.read_count()));
        }
    })));
    store.recluster::<&[u8]>(..).unwrap();
    rows.on_call(None);
    let seen = seen.lock().unwrap();
    let range = |begin: u64, end: u64, before: u64| begin - before..end - before;
    (range(seen[0].0, seen[1].0, before.0), range(seen[0].1, seen[1].1, before.1))
}

#[test]
fn a_file_that_fails_is_done_without() {
    let (calls, reads) = calls_of_a_sort();
    assert!(calls.clone().count() > 30 && reads.clone().count() > 30, "{calls:?} calls and {reads:?} reads");
    for kind in [FaultKind::Eio, FaultKind::NoSpace, FaultKind::ReadEio] {
        let is_read = kind == FaultKind::ReadEio;
        for at in (if is_read { &reads } else { &calls }).clone().step_by(7) {
            let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
            let (store, contents) = scattered(&rows, &env);
            let before = if is_read { env.read_count() } else { env.op_count() };
            env.set_fault(Some(Fault { at_op: before + at, kind }));
            assert_eq!(store.recluster::<&[u8]>(..).unwrap(), contents.len() as u64, "{kind:?} at {at}");
            assert_eq!(env.faults_struck(), 1);
            env.clear_faults();
            assert_contents(&store, &contents, &format!("{kind:?} at {at}"));
            assert_in_order(&rows, &contents);
            drop(store);
            // Its removal may have failed.
            let store = options(&env).open(Box::new(rows.clone()), DIR).unwrap();
            assert_contents(&store, &contents, &format!("{kind:?} at {at}, and an open"));
            assert!(!env.file_names(Path::new(DIR)).contains(&"MOVES".to_owned()));
        }
    }
}

#[test]
fn a_disk_without_room_for_the_file_is_left_alone() {
    let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
    let (store, contents) = scattered(&rows, &env);
    let used = env.used_space();
    env.set_capacity(used + (64 << 10));
    let free = env.available_space(Path::new(DIR)).unwrap();
    let least = Arc::new(AtomicU64::new(free));
    let (own, disk) = (Arc::clone(&least), Arc::downgrade(&env));
    env.on_op(Box::new(move |_, name| {
        if let Some(disk) = disk.upgrade().filter(|_| name == "write_at") {
            own.fetch_min(disk.available_space(Path::new(DIR)).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
    }));
    assert_eq!(store.recluster::<&[u8]>(..).unwrap(), contents.len() as u64);
    env.on_op(Box::new(|_, _| {}));
    assert!(least.load(Ordering::SeqCst) > free / 2, "{least:?} of {free}");
    assert_contents(&store, &contents, "reclustered");
    assert_in_order(&rows, &contents);
}
