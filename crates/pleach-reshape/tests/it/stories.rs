//! Rare orders, forced by hooks in the store: a thread stops between its commit and its publication while others read. And
//! failed calls of the store.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pleach::ErrorKind;
use pleach::env::SimEnv;
use pleach_reshape::store::model::{Call, Failure, ModelStore};
use pleach_reshape::store::{RowStore, Table};
use pleach_reshape::testing::set_thread_number;
use pleach_reshape::{Durability, MapPlace, Options, Reshaped, Stripes, Update};

use crate::rig::recluster;

/// Long enough for a thread to come to where it must wait.
pub(crate) const A_WHILE: Duration = Duration::from_millis(30);

pub(crate) struct Stopped {
    pub(crate) reached: Receiver<()>,
    pub(crate) go_on: Sender<()>,
}

/// Stops the next thread that has committed, before it publishes.
pub(crate) fn stop_next_commit(rows: &ModelStore) -> Stopped {
    let (reach, reached) = channel();
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let is_armed = AtomicBool::new(true);
    let hook = move |call| {
        if call == Call::Committed && is_armed.swap(false, Ordering::SeqCst) {
            reach.send(()).unwrap();
            wait.lock().unwrap().recv().unwrap();
        }
    };
    rows.on_call(Some(Arc::new(hook)));
    Stopped { reached, go_on }
}

fn open(rows: &ModelStore, dir: &tempfile::TempDir, update: Update) -> Reshaped {
    let options = Options::new().update(update).map(MapPlace::Memory).background(false);
    options.open(Box::new(rows.clone()), dir.path()).unwrap()
}

#[test]
fn reads_between_commit_and_publication_miss_nothing() {
    for update in [Update::InPlace, Update::Replace, Update::Defer] {
        for (concurrent, is_cached) in [(false, false), (true, false), (false, true), (true, true)] {
            let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(concurrent));
            let store = open(&rows, &dir, update);
            store.put("a", "1").unwrap();
            store.put("b", "1").unwrap();
            if is_cached {
                assert!(store.get("a").unwrap().is_some() && store.get("b").unwrap().is_some());
            }
            let stopped = stop_next_commit(&rows);
            thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut batch = store.batch();
                    batch.put("a", "2");
                    batch.delete("b");
                    batch.put("c", "2");
                    batch.commit().unwrap();
                });
                stopped.reached.recv().unwrap();
                // Acknowledged keys stay; who sees the new value sees the rest of the batch from then on.
                let reader = scope.spawn(|| {
                    let first = store.get("a").unwrap();
                    (first, store.get("b").unwrap(), store.get("c").unwrap())
                });
                let inserted = scope.spawn(|| (store.get("a").unwrap(), store.get("c").unwrap()));
                let deleted = scope.spawn(|| (store.get("b").unwrap(), store.get("c").unwrap()));
                let snapshot = scope.spawn(|| store.get_many(["a", "b", "c"]).unwrap());
                thread::sleep(A_WHILE);
                let is_early = writer.is_finished();
                stopped.go_on.send(()).unwrap();
                assert!(!is_early);
                let bytes = |text: &str| Some(text.as_bytes().to_vec());
                match reader.join().unwrap() {
                    (Some(first), b, c) if first == b"2" => {
                        assert_eq!((b, c), (None, bytes("2")), "{update:?}");
                    }
                    (first, ..) => assert_eq!(first, bytes("1"), "{update:?}"),
                }
                match inserted.join().unwrap() {
                    (Some(a), c) if a == b"2" => assert_eq!(c, bytes("2"), "{update:?}"),
                    (a, _) => assert_eq!(a, bytes("1"), "{update:?}"),
                }
                match deleted.join().unwrap() {
                    (None, c) => assert_eq!(c, bytes("2"), "{update:?}"),
                    (b, _) => assert_eq!(b, bytes("1"), "{update:?}"),
                }
                assert_eq!(snapshot.join().unwrap(), [bytes("2"), None, bytes("2")]);
                writer.join().unwrap();
                let after = ["a", "b", "c"].map(|key| store.get(key).unwrap());
                assert_eq!(after, [bytes("2"), None, bytes("2")]);
            });
        }
    }
}

#[test]
fn a_checkpoint_waits_for_writers_in_flight_and_holds_up_none() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(true));
    let store = open(&rows, &dir, Update::InPlace);
    // The first put raises the ceiling of versions, which others would wait for.
    store.put("first", "1").unwrap();
    let stopped = stop_next_commit(&rows);
    thread::scope(|scope| {
        let writer = scope.spawn(|| store.put("slow", "1").unwrap());
        stopped.reached.recv().unwrap();
        let checkpoint = scope.spawn(|| store.checkpoint().unwrap());
        thread::sleep(A_WHILE);
        let is_early = checkpoint.is_finished();
        // Others write and read while the checkpoint waits.
        store.put("fast", "1").unwrap();
        let found = store.get("fast").unwrap();
        // Whatever is wrong, the writer must go on for the test to end.
        stopped.go_on.send(()).unwrap();
        assert!(!is_early && found.is_some());
        writer.join().unwrap();
        checkpoint.join().unwrap();
    });
    drop(store);
    let store = open(&rows.crash(rows.commits()), &dir, Update::InPlace);
    assert_eq!(store.open_report().rebuilt, None);
    assert_eq!(store.all().unwrap().count(), 3);
    store.verify().unwrap();
}

#[test]
fn waiting_writes_share_a_transaction() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let store = open(&rows, &dir, Update::InPlace);
    store.put("first", "1").unwrap();
    let before = rows.commits();
    let stopped = stop_next_commit(&rows);
    thread::scope(|scope| {
        scope.spawn(|| store.put("leader", "1").unwrap());
        stopped.reached.recv().unwrap();
        for number in 0..10 {
            let store = &store;
            scope.spawn(move || store.put(format!("{number}"), "1").unwrap());
        }
        thread::sleep(A_WHILE * 3);
        stopped.go_on.send(()).unwrap();
    });
    assert!(rows.commits() - before < 5, "{}", rows.commits() - before);
    assert_eq!(store.all().unwrap().count(), 12);
}

#[test]
fn a_second_first_put_finds_the_first_ones_row() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(true));
    let store = open(&rows, &dir, Update::InPlace);
    store.put("first", "1").unwrap();
    let stopped = stop_next_commit(&rows);
    thread::scope(|scope| {
        scope.spawn(|| store.put("k", "1").unwrap());
        stopped.reached.recv().unwrap();
        let second = scope.spawn(|| store.put("k", "2").unwrap());
        let third = scope.spawn(|| store.put_new("k", "3").unwrap());
        thread::sleep(A_WHILE);
        let is_early = second.is_finished() || third.is_finished();
        stopped.go_on.send(()).unwrap();
        assert!(!is_early);
        assert!(!third.join().unwrap());
    });
    assert_eq!(rows.places().len(), 2);
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn failed_commits_leave_what_the_store_has() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let store = open(&rows, &dir, Update::Replace);
    store.put("k", "1").unwrap();
    // Into the cache of rows.
    assert!(store.get("k").unwrap().is_some());
    rows.fail(Some(Failure::Commit));
    assert_eq!(store.put("k", "2").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"1"[..]));
    // It did not take place, so writes go on.
    store.put("k", "3").unwrap();
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"3"[..]));
    rows.fail(Some(Failure::CommitAfterEffect));
    assert!(store.put("k", "4").is_err());
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"4"[..]));
    assert_eq!(store.put("k", "5").unwrap_err().kind(), ErrorKind::Poisoned);
    drop(store);
    let store = open(&rows, &dir, Update::Replace);
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"4"[..]));
    rows.fail(Some(Failure::Sync));
    assert!(store.put_with("k", "6", Durability::Sync).is_err());
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"6"[..]));
    assert_eq!(store.checkpoint().unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn a_commit_that_panics_ends_reads_and_writes() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let store = open(&rows, &dir, Update::InPlace);
    store.put("k", "1").unwrap();
    // Into the cache of rows.
    assert!(store.get("k").unwrap().is_some());
    rows.on_call(Some(Arc::new(|call| {
        if call == Call::Committed {
            resume_unwind(Box::new("a store panics"));
        }
    })));
    assert!(catch_unwind(AssertUnwindSafe(|| store.put("k", "2"))).is_err());
    rows.on_call(None);
    assert_eq!(store.get("k").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(store.put("k", "3").unwrap_err().kind(), ErrorKind::Poisoned);
    drop(store);
    let store = open(&rows, &dir, Update::InPlace);
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_checkpoint_that_waits_for_a_commit_that_panics_fails() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(true));
    let options = || Options::new().background(false).update(Update::Replace);
    let store = options().open(Box::new(rows.clone()), dir.path()).unwrap();
    store.put("k", "1").unwrap();
    store.checkpoint().unwrap();
    store.put("other", "1").unwrap();
    let (reach, reached) = channel();
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let is_armed = AtomicBool::new(true);
    rows.on_call(Some(Arc::new(move |call| {
        if call == Call::Committed && is_armed.swap(false, Ordering::SeqCst) {
            reach.send(()).unwrap();
            wait.lock().unwrap().recv().unwrap();
            resume_unwind(Box::new("a store panics"));
        }
    })));
    thread::scope(|scope| {
        let writer = scope.spawn(|| catch_unwind(AssertUnwindSafe(|| store.put("k", "2"))).is_err());
        reached.recv().unwrap();
        let checkpoint = scope.spawn(|| store.checkpoint());
        thread::sleep(A_WHILE);
        go_on.send(()).unwrap();
        assert!(writer.join().unwrap());
        assert_eq!(checkpoint.join().unwrap().unwrap_err().kind(), ErrorKind::Poisoned);
    });
    rows.on_call(None);
    drop(store);
    let store = options().open(Box::new(rows), dir.path()).unwrap();
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_snapshot_keeps_the_tables_of_exhausted_ids() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let options = Options::new().sequence_bits(4).background(false).update(Update::Replace);
    let store = options.open(Box::new(rows.clone()), dir.path()).unwrap();
    store.put("k", "0").unwrap();
    let mut snapshot = store.snapshot().unwrap();
    let mut number = 0;
    let error = loop {
        number += 1;
        match store.put("k", format!("{number}")) {
            Ok(()) => assert!(number < 1000),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(store.stats().generation > 0);
    assert_eq!(snapshot.get("k").unwrap().as_deref(), Some(&b"0"[..]));
    assert_eq!(rows.tables().len(), 2);
    drop(snapshot);
    for number in 0..500 {
        store.put("k", format!("{number}")).unwrap();
    }
    store.drain().unwrap();
    assert_eq!((rows.tables().len(), rows.places().len()), (1, 1));
}

#[test]
fn more_rows_than_ids_are_refused() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let store = Options::new().sequence_bits(4).background(false).open(Box::new(rows), dir.path()).unwrap();
    let error = (0..1000).find_map(|number| store.put(format!("{number}"), "").err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let rows = store.all().unwrap().map(Result::unwrap).count();
    assert!(rows >= 30, "{rows}");
    store.verify().unwrap();
    for number in 0..rows {
        store.delete(format!("{number}")).unwrap();
    }
    store.put("there is room again", "").unwrap();
}

#[test]
fn keys_may_be_empty_and_long_but_not_too_long() {
    for place in [MapPlace::Memory, MapPlace::Disk] {
        let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
        let options = Options::new().map(place).background(false);
        let store = options.clone().open(Box::new(rows.clone()), dir.path()).unwrap();
        let longest = "k".repeat(pleach_reshape::limits::KEY_LEN_MAX);
        let keys = ["", "a", "k", &longest[1..], &longest];
        for key in keys {
            store.put(key, key).unwrap();
        }
        let too_long = format!("{longest}k");
        assert_eq!(store.put(&too_long, "").unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(store.get(&too_long).unwrap(), None);
        store.close().unwrap();
        let store = options.open(Box::new(rows), dir.path()).unwrap();
        assert_eq!(store.open_report().rows_read, 0);
        assert!(store.all().unwrap().map(Result::unwrap).eq(keys.map(|key| (key.into(), key.into()))));
        assert!(keys.iter().all(|key| store.get(key).unwrap().as_deref() == Some(key.as_bytes())));
        assert_eq!(store.recluster::<&[u8]>(..).unwrap(), 5);
        store.verify().unwrap();
    }
}

#[test]
fn the_last_operation_of_a_key_in_a_batch_wins() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let store = open(&rows, &dir, Update::InPlace);
    let mut batch = store.batch();
    batch.put("a", "1");
    batch.delete("a");
    batch.delete("b");
    batch.put("b", "1");
    batch.put("b", "2");
    assert_eq!(batch.len(), 5);
    batch.commit().unwrap();
    assert_eq!((store.get("a").unwrap(), store.get("b").unwrap()), (None, Some(b"2".to_vec())));
    store.import([("c", "1"), ("c", "2"), ("b", "3"), ("c", "3")].map(Ok)).unwrap();
    assert_eq!(
        (store.get("b").unwrap(), store.get("c").unwrap()),
        (Some(b"3".to_vec()), Some(b"3".to_vec()))
    );
    assert_eq!(rows.places().len(), 2);
}

#[test]
fn a_reclustered_range_lies_in_the_order_of_its_keys() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let store = open(&rows, &dir, Update::InPlace);
    for number in 0..500u64 {
        store.put(format!("{:05}", number * 7919 % 100_003), format!("{number}")).unwrap();
    }
    assert_eq!(store.recluster::<&[u8]>(..).unwrap(), 500);
    let mut values = Vec::new();
    for place in rows.places() {
        rows.get(place, &mut |row| values.push(row[row.len() - 8..].to_vec())).unwrap();
    }
    let expected: Vec<_> = store.all().unwrap().map(Result::unwrap).map(|(_, value)| value).collect();
    assert_eq!(values.len(), expected.len());
    assert!(values.iter().zip(&expected).all(|(row, value)| row.ends_with(value)));
}

/// Puts keys of the numbers, in batches.
fn put_all(store: &Reshaped, numbers: std::ops::Range<u32>) {
    for first in numbers.clone().step_by(500) {
        let mut batch = store.batch();
        for number in first..numbers.end.min(first + 500) {
            batch.put(number.to_le_bytes(), "value");
        }
        batch.commit().unwrap();
    }
}

/// The most memory that the map's changes take while `work` runs.
fn delta_peak(store: &Reshaped, work: impl FnOnce()) -> usize {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let peak = scope.spawn(|| {
            let mut peak = 0;
            while !is_over.load(Ordering::SeqCst) {
                peak = peak.max(store.stats().delta_bytes);
                thread::sleep(Duration::from_millis(1));
            }
            peak
        });
        work();
        is_over.store(true, Ordering::SeqCst);
        peak.join().unwrap()
    })
}

const ROWS: u32 = 40_000;
const DELTA: usize = 256 << 10;

#[test]
fn a_recluster_of_everything_waits_for_checkpoints() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(true));
    let store = Options::new().delta_bytes(DELTA).open(Box::new(rows), dir.path()).unwrap();
    put_all(&store, 0..ROWS);
    let peak = delta_peak(&store, || assert_eq!(store.recluster::<&[u8]>(..).unwrap(), u64::from(ROWS)));
    assert!((1..=2 * DELTA).contains(&peak), "{peak} bytes");
    // As a range, row by row.
    let peak = delta_peak(&store, || assert_eq!(store.recluster(&[0][..]..).unwrap(), u64::from(ROWS)));
    assert!((1..=2 * DELTA).contains(&peak), "{peak} bytes");
    assert_eq!(store.range::<&[u8]>(..).unwrap().count(), ROWS as usize);
}

#[test]
fn rows_with_exhausted_ids_are_moved_in_bounded_memory() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let options = Options::new().delta_bytes(DELTA).sequence_bits(16).background(false);
    let store = options.update(Update::Replace).open(Box::new(rows), dir.path()).unwrap();
    put_all(&store, 0..ROWS);
    while !store.stats().is_draining {
        put_all(&store, 0..500);
    }
    store.checkpoint().unwrap();
    let before = store.stats().checkpoint;
    let peak = delta_peak(&store, || store.drain().unwrap());
    assert!((1..=2 * DELTA).contains(&peak), "{peak} bytes");
    assert!(store.stats().checkpoint > before + 10);
    assert_eq!(store.range::<&[u8]>(..).unwrap().count(), ROWS as usize);
    store.verify().unwrap();
}

#[test]
fn replaced_rows_are_bounded_and_a_close_leaves_none() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(true));
    let options = Options::new().update(Update::Defer).replaced_rows(100);
    let store = options.clone().open(Box::new(rows.clone()), dir.path()).unwrap();
    for _ in 0..20 {
        put_all(&store, 0..200);
        assert!(rows.places().len() <= 200 + 4 * 100, "{} rows", rows.places().len());
    }
    for number in 0..150_u32 {
        store.delete(number.to_le_bytes()).unwrap();
    }
    store.close().unwrap();
    assert_eq!(rows.places().len(), 50);
    // A delete in the next open needs to leave nothing.
    let store = options.update(Update::InPlace).open(Box::new(rows.clone()), dir.path()).unwrap();
    put_all(&store, 0..200);
    for number in 0..200_u32 {
        store.delete(number.to_le_bytes()).unwrap();
    }
    assert_eq!(rows.places(), []);
    store.verify().unwrap();
}

/// A store of keys `00` to `19`, of which a recluster has moved the first few one by one when a commit failed.
fn half_reclustered(rows: &ModelStore, env: &Arc<SimEnv>) -> Reshaped {
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).background(false).moves(1 << 20, 1);
    let store = options.open(Box::new(rows.clone()), "/map").unwrap();
    for number in 0..20 {
        store.put(format!("{number:02}"), "value").unwrap();
    }
    store.checkpoint().unwrap();
    // The generation, then rows.
    assert!(recluster(&store, rows, Some(9), None));
    assert!(store.stats().is_draining);
    let moved = rows.places().iter().filter(|place| place.table == Table(1)).count();
    assert!((5..10).contains(&moved) && rows.places().len() == 20 + moved, "{moved} rows have moved");
    store
}

#[test]
fn a_key_that_moved_and_was_deleted_stays_so_after_a_crash() {
    // With the map from before the deletion, without a map, and with a checkpoint behind the crash.
    for case in 0..3 {
        let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
        let store = half_reclustered(&rows, &env);
        store.delete("00").unwrap();
        store.delete("15").unwrap();
        store.put("01", "changed").unwrap();
        store.put("16", "changed").unwrap();
        drop(store);
        let env = if case == 1 { SimEnv::new(2) } else { env };
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).background(false);
        let open = || options.clone().open(Box::new(rows.crash(rows.commits())), "/map").unwrap();
        let store = open();
        assert_eq!(store.open_report().rebuilt.is_some(), case == 1);
        let check = |store: &Reshaped| {
            assert_eq!((store.get("00").unwrap(), store.get("15").unwrap()), (None, None));
            for key in ["01", "16"] {
                assert_eq!(store.get(key).unwrap().as_deref(), Some(&b"changed"[..]));
            }
            assert_eq!(store.range::<&[u8]>(..).unwrap().count(), 18);
            assert_eq!(store.verify().unwrap().keys, 18);
        };
        check(&store);
        if case == 2 {
            store.checkpoint().unwrap();
        }
        store.drain().unwrap();
        check(&store);
        assert!(!store.stats().is_draining);
    }
}

#[test]
fn a_recluster_goes_on_behind_the_rows_that_have_moved() {
    let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
    let store = half_reclustered(&rows, &env);
    let moved = rows.places().len() - 20;
    drop(store);
    let options = Options::new().env(env).background(false).moves(1 << 20, 1);
    let store = options.open(Box::new(rows.clone()), "/map").unwrap();
    let before = rows.commits();
    store.drain().unwrap();
    // A commit for each row that was left, and a few for checkpoint, generation and the removal of the table.
    assert!((20 - moved..20 - moved + 6).contains(&(rows.commits() - before)));
    assert_eq!((rows.tables().len(), rows.places().len()), (1, 20));
    store.verify().unwrap();
}

#[test]
fn rows_of_a_table_that_could_not_be_dropped_do_not_come_back() {
    let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
    let options = Options::new().background(false).stripes(Stripes::One);
    let store = options.clone().env(env).open(Box::new(rows.clone()), "/map").unwrap();
    for number in 0..20 {
        store.put(format!("{number:02}"), "old").unwrap();
    }
    rows.fail(Some(Failure::DropTable));
    let error = store.recluster::<&[u8]>(..).unwrap_err();
    assert!(error.to_string().contains("drop a table"), "{error}");
    assert_eq!((rows.tables().len(), store.stats().is_draining), (2, false));
    for number in 0..20 {
        let key = format!("{number:02}");
        if number < 10 { store.delete(key).unwrap() } else { store.put(key, "new").unwrap() }
    }
    // It needs the table that is still there.
    assert_eq!(store.recluster::<&[u8]>(..).unwrap(), 10);
    assert_eq!((rows.tables().len(), rows.places().len()), (1, 10));
    drop(store);
    // Without the map.
    let store = options.env(SimEnv::new(2)).open(Box::new(rows.clone()), "/map").unwrap();
    assert_eq!(store.verify().unwrap().keys, 10);
    assert!(store.range::<&[u8]>(..).unwrap().all(|entry| entry.unwrap().1 == b"new"));
}

#[test]
fn a_snapshot_keeps_the_tables_of_a_recluster_and_the_next_one_moves_row_by_row() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let store = open(&rows, &dir, Update::InPlace);
    for number in 0..20 {
        store.put(format!("{number:02}"), "value").unwrap();
    }
    let mut snapshot = store.snapshot().unwrap();
    assert_eq!(store.recluster::<&[u8]>(..).unwrap(), 20);
    assert_eq!((rows.tables().len(), rows.places().len()), (2, 40));
    store.put("00", "changed").unwrap();
    store.delete("01").unwrap();
    assert_eq!(store.recluster::<&[u8]>(..).unwrap(), 19);
    assert_eq!((rows.tables().len(), store.stats().generation), (2, 1));
    assert_eq!(snapshot.all().map(Result::unwrap).filter(|(_, value)| value == b"value").count(), 20);
    drop(snapshot);
    store.checkpoint().unwrap();
    assert_eq!((rows.tables().len(), rows.places().len()), (1, 19));
    assert_eq!(store.recluster("".."99").unwrap(), 19);
    store.verify().unwrap();
}

/// Reclusters all of some keys, so many in a transaction, and a range of them meanwhile: behind the first transaction and its
/// checkpoint.
fn recluster_meanwhile(keys: u64, at_a_time: usize, syncs_before: usize, range: std::ops::Range<&str>) {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    // A checkpoint behind each transaction.
    let options = Options::new().background(false).moves(1 << 20, at_a_time).delta_bytes(1);
    let store = options.open(Box::new(rows.clone()), dir.path()).unwrap();
    for number in 0..keys {
        store.put(format!("{number:02}"), "value").unwrap();
    }
    store.checkpoint().unwrap();
    let (reach, reached) = channel();
    let (go_on, wait) = channel::<()>();
    let (wait, syncs) = (Mutex::new(wait), AtomicUsize::new(0));
    rows.on_call(Some(Arc::new(move |call| {
        if call == Call::Sync && syncs.fetch_add(1, Ordering::SeqCst) == syncs_before {
            reach.send(()).unwrap();
            wait.lock().unwrap().recv().unwrap();
        }
    })));
    let in_range = (0..keys).filter(|number| range.contains(&&format!("{number:02}")[..])).count() as u64;
    thread::scope(|scope| {
        let all = scope.spawn(|| store.recluster::<&[u8]>(..).unwrap());
        reached.recv().unwrap();
        let moved = store.recluster(range.clone()).unwrap();
        store.put(range.start, "changed").unwrap();
        go_on.send(()).unwrap();
        assert_eq!((moved, all.join().unwrap()), (in_range, keys - in_range));
        assert_eq!(store.get(range.start).unwrap().as_deref(), Some(&b"changed"[..]));
    });
    assert_eq!(rows.places().len() as u64, keys);
    assert_eq!(store.verify().unwrap().garbage_rows, 0);
}

#[test]
fn a_row_that_a_recluster_of_its_range_moves_meanwhile_is_moved_once() {
    recluster_meanwhile(20, 1, 3, "10".."15");
    // Transactions that are long enough for runs: the row of before is in the older half of the map then.
    recluster_meanwhile(24, 8, 0, "12".."22");
    recluster_meanwhile(24, 8, 0, "16".."22");
}

#[test]
fn writers_leave_the_ids_of_moved_rows_alone() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let options = Options::new().sequence_bits(5).background(false).update(Update::Replace).moves(1 << 20, 1);
    let store = options.open(Box::new(rows.clone()), dir.path()).unwrap();
    for number in 0..20 {
        store.put(format!("{number:02}"), "value").unwrap();
    }
    assert!(recluster(&store, &rows, Some(4), None) && store.stats().is_draining);
    // More than a stripe has, while those rows wait.
    for _ in 0..200 {
        store.put("00", "changed").unwrap();
    }
    store.drain().unwrap();
    assert_eq!((rows.tables().len(), rows.places().len()), (1, 20));
    store.verify().unwrap();
}

/// Otherwise the key's entry would name a row that a later generation gives to another key.
#[test]
fn a_key_that_was_deleted_during_a_recluster_has_no_entry_after_it() {
    let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
    let store = half_reclustered(&rows, &env);
    store.checkpoint().unwrap();
    store.delete("15").unwrap();
    store.drain().unwrap();
    drop(store);
    let options = Options::new().env(env).background(false);
    let store = options.open(Box::new(rows), "/map").unwrap();
    assert_eq!(store.recluster::<&[u8]>(..).unwrap(), 19);
    for number in 0..20 {
        store.put(format!("x{number:02}"), "value").unwrap();
    }
    store.put("15", "again").unwrap();
    assert_eq!(store.range::<&[u8]>(..).unwrap().count(), 40);
    assert_eq!(store.verify().unwrap().keys, 40);
}

#[test]
fn a_recluster_leaves_one_half_of_the_map() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let open = || Options::new().background(false).open(Box::new(rows.clone()), dir.path()).unwrap();
    let store = open();
    for number in 0..100 {
        store.put(format!("{:02}", number * 37 % 100), "value").unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    store.recluster::<&[u8]>(..).unwrap();
    assert!(store.stats().has_runs);
    drop(snapshot);
    let partitions = || pleach::Db::open(dir.path()).unwrap().partitions();
    // As a crash would: the snapshot has kept the tables and the half of before.
    drop(store);
    assert_eq!(partitions().len(), 5);
    let store = open();
    assert!(store.stats().has_runs);
    assert_eq!(store.all().unwrap().map(Result::unwrap).count(), 100);
    // Single keys count more than the runs they were in.
    store.put_new("50x", "between").unwrap();
    store.delete("51").unwrap();
    store.checkpoint().unwrap();
    let found: Vec<_> = store.range("50".."53").unwrap().map(|pair| pair.unwrap().0).collect();
    assert_eq!(found, [&b"50"[..], b"50x", b"52"]);
    assert_eq!(store.get_many(["50", "51", "52"]).unwrap().iter().flatten().count(), 2);
    store.verify().unwrap();
    store.close().unwrap();
    assert_eq!(partitions(), ["default", "keys-1", "runs-1"]);
}

/// Rows of a key in two stripes, and one that says that it was deleted. The layer goes to the map's store between any two rows.
#[test]
fn a_rebuild_takes_the_newest_row_also_behind_a_deletion() {
    for ends_deleted in [false, true] {
        let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(true));
        let options = || {
            Options::new()
                .update(Update::Defer)
                .stripes(Stripes::Ranges(2))
                .replaced_rows(1 << 20)
                .background(false)
                .delta_bytes(1)
        };
        let store = options().open(Box::new(rows.clone()), dir.path().join("map")).unwrap();
        set_thread_number(0);
        store.put("k", "first").unwrap();
        store.delete("k").unwrap();
        set_thread_number(1);
        store.put("k", "second").unwrap();
        if ends_deleted {
            store.delete("k").unwrap();
        }
        set_thread_number(0);
        store.put("k", "third").unwrap();
        for number in 0..100 {
            store.put(format!("other {number}"), "1").unwrap();
        }
        drop(store);
        std::fs::remove_dir_all(dir.path().join("map")).unwrap();
        let store = options().open(Box::new(rows), dir.path().join("map")).unwrap();
        assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"third"[..]));
        assert_eq!(store.verify().unwrap().keys, 101);
    }
}
