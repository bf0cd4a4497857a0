//! Runs of rows that came in the order of their keys.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use pleach::env::SimEnv;
use pleach_reshape::store::model::{Call, ModelStore};
use pleach_reshape::{MapPlace, Options, Reshaped, Update};

use crate::stories::{A_WHILE, stop_next_commit};

fn open(rows: &ModelStore, dir: &Path, update: Update) -> Reshaped {
    Options::new().background(false).update(update).open(Box::new(rows.clone()), dir).unwrap()
}

fn put_in_order(store: &Reshaped, count: u32) {
    for number in 0..count {
        store.put(format!("{number:02}"), "value").unwrap();
    }
    store.checkpoint().unwrap();
}

fn assert_gone(store: &Reshaped, key: &str) {
    assert_eq!(store.get(key).unwrap(), None, "{key}");
    assert!(store.all().unwrap().all(|pair| pair.unwrap().0 != key.as_bytes()), "{key}");
    store.verify().unwrap();
}

#[test]
fn a_replaced_row_that_may_be_in_a_run_goes_at_once() {
    for update in [Update::InPlace, Update::Replace, Update::Defer] {
        let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
        let store = open(&rows, dir.path(), update);
        put_in_order(&store, 20);
        assert_eq!(store.stats().has_runs_of_writers, update != Update::Defer);
        let forget = |store: &Reshaped, key: &str| {
            store.put(key, "again").unwrap();
            store.delete(key).unwrap();
            store.checkpoint().unwrap();
            assert_gone(store, key);
        };
        forget(&store, "03");
        // As a killed process would.
        drop(store);
        let store = open(&rows, dir.path(), Update::Defer);
        forget(&store, "05");
        drop(store);
        let store = open(&rows, dir.path(), Update::InPlace);
        assert_gone(&store, "03");
        assert_gone(&store, "05");
        forget(&store, "07");
        assert_eq!(store.all().unwrap().count(), 17);
    }
}

#[test]
fn runs_of_writers_are_known_to_later_opens_as_long_as_they_are_there() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let store = open(&rows, dir.path(), Update::InPlace);
    put_in_order(&store, 20);
    store.close().unwrap();
    let store = open(&rows, dir.path(), Update::Defer);
    assert!(store.stats().has_runs_of_writers);
    store.recluster::<&[u8]>(..).unwrap();
    store.close().unwrap();
    let store = open(&rows, dir.path(), Update::Defer);
    assert!(store.stats().has_runs && !store.stats().has_runs_of_writers);
    store.close().unwrap();
    // A map that is made from the rows.
    std::fs::remove_dir_all(dir.path()).unwrap();
    let store = open(&rows, dir.path(), Update::InPlace);
    assert_eq!(store.all().unwrap().count(), 20);
    assert!(store.open_report().rebuilt.is_some());
    store.close().unwrap();
    let options = Options::new().background(false).map(MapPlace::Memory);
    let store = options.open(Box::new(rows), dir.path()).unwrap();
    assert_eq!(store.all().unwrap().count(), 20);
}

/// Single entries, and runs, of the map of a store that is closed.
fn entries(dir: &Path, generation: u64) -> (usize, usize) {
    let db = pleach::Db::open(dir).unwrap();
    let count = |name: &str| db.find_partition(&format!("{name}-{generation}")).unwrap().iter().count();
    (count("keys"), count("runs"))
}

#[test]
fn runs_go_with_their_rows() {
    const KEYS: u32 = 5000;
    let key = |number: u32| format!("{number:04}");
    for update in [Update::InPlace, Update::Replace] {
        let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::without_history(false));
        let store = open(&rows, dir.path(), update);
        for numbers in [0..KEYS / 2, KEYS / 2..KEYS] {
            numbers.for_each(|number| store.put(key(number), "value").unwrap());
            store.checkpoint().unwrap();
        }
        store.close().unwrap();
        assert_eq!(entries(dir.path(), 0), (8, 78));
        // Old keys go, new ones come.
        let store = open(&rows, dir.path(), update);
        for first in (0..4000).step_by(500) {
            (first..first + 500).for_each(|number| store.delete(key(number)).unwrap());
            store.checkpoint().unwrap();
            assert_eq!(store.all().unwrap().next().unwrap().unwrap().0, key(first + 500).into_bytes());
        }
        store.close().unwrap();
        let (singles, runs) = entries(dir.path(), 0);
        assert!(singles < 8 && (16..30).contains(&runs), "{singles} {runs}");
        // Others are replaced.
        let store = open(&rows, dir.path(), update);
        (4000..KEYS).for_each(|number| store.put(key(number), "again").unwrap());
        store.checkpoint().unwrap();
        assert_eq!(store.all().unwrap().count(), 1000);
        assert_eq!(store.verify().unwrap().keys, 1000);
        store.close().unwrap();
        let (singles, runs) = entries(dir.path(), 0);
        assert_eq!(singles > 8, update == Update::Replace);
        assert_eq!(runs < 15, update == Update::Replace, "{runs}");
    }
}

#[test]
fn a_recluster_of_a_range_leaves_runs() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::without_history(false));
    let store = open(&rows, dir.path(), Update::InPlace);
    for number in 0..2000 {
        store.put(format!("{number:04}"), "value").unwrap();
    }
    store.checkpoint().unwrap();
    for _ in 0..3 {
        assert_eq!(store.recluster("0000".."1500").unwrap(), 1500);
        store.checkpoint().unwrap();
        assert_eq!(store.all().unwrap().count(), 2000);
    }
    assert_eq!(store.verify().unwrap().keys, 2000);
    store.close().unwrap();
    let (singles, runs) = entries(dir.path(), 0);
    assert!(singles < 200 && runs < 45, "{singles} {runs}");
}

/// Most runs have no rows any more, and no checkpoint has removed them.
#[test]
fn ranges_do_not_read_through_all_runs_without_rows() {
    const KEYS: u32 = 20_000;
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::without_history(false));
    let key = |number: u32| format!("{number:05}");
    let store = open(&rows, dir.path(), Update::Replace);
    (0..KEYS).for_each(|number| store.put(key(number), "value").unwrap());
    store.checkpoint().unwrap();
    // In an order in which no checkpoint sees neighbours.
    for first in 0..50 {
        for number in (first..KEYS).step_by(50) {
            store.put(key(number), "again").unwrap();
        }
        store.checkpoint().unwrap();
    }
    let scans = || rows.scans();
    let before = scans();
    let found: Vec<_> = store.range(key(100)..).unwrap().expect_entries(10).take(10).collect();
    assert_eq!(found.into_iter().map(|pair| pair.unwrap().0).last(), Some(key(109).into_bytes()));
    assert!(scans() - before < 20, "{}", scans() - before);
    let back = store.range(..key(KEYS - 100)).unwrap().rev().take(10).last().unwrap().unwrap();
    assert_eq!(back.0, key(KEYS - 110).into_bytes());
    let before = scans();
    assert_eq!(store.all().unwrap().count(), KEYS as usize);
    assert_eq!(store.all().unwrap().rev().count(), KEYS as usize);
    assert!(scans() - before < 2000, "{}", scans() - before);
}

#[test]
fn a_checkpoint_that_is_tried_again_leaves_the_right_map() {
    const KEYS: u32 = 20_000;
    let key = |number: u32| format!("{number:05}");
    let mut failed = 0;
    for room in (0..12).map(|step| step << 14) {
        let (env, rows) = (SimEnv::new(room), ModelStore::without_history(false));
        let map = pleach::Options::new().memory(2 << 20).memtable_bytes(32 << 10).sst_bytes(16 << 10);
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).background(false).map_options(map);
        let open = || options.clone().open(Box::new(rows.clone()), "/map").unwrap();
        let store = open();
        (0..KEYS / 4).for_each(|number| store.put(key(number), "value").unwrap());
        store.checkpoint().unwrap();
        (KEYS / 4..KEYS).for_each(|number| store.put(key(number), "value").unwrap());
        (0..KEYS / 8).for_each(|number| store.delete(key(number)).unwrap());
        env.set_capacity(env.used_space() + room);
        let is_full = store.checkpoint().is_err();
        failed += u32::from(is_full);
        let check = |store: &Reshaped| {
            assert_eq!(store.all().unwrap().count(), (KEYS - KEYS / 8) as usize);
            assert_eq!(store.get(key(KEYS / 2)).unwrap().unwrap(), b"value");
            assert_eq!(store.get(key(5)).unwrap(), None);
        };
        check(&store);
        env.set_capacity(u64::MAX);
        let again = store.checkpoint();
        check(&store);
        store.delete(key(KEYS - 1)).unwrap();
        if again.is_ok() {
            store.checkpoint().unwrap();
        }
        drop(store);
        let store = open();
        assert_eq!(store.get(key(KEYS - 1)).unwrap(), None);
        assert_eq!(store.verify().unwrap().keys, u64::from(KEYS - KEYS / 8 - 1));
    }
    assert!(failed > 2, "{failed}");
}

/// A store with a run of which 40 rows of 64 have gone.
fn mostly_gone(rows: &ModelStore, dir: &Path) -> Arc<Reshaped> {
    let store = Arc::new(open(rows, dir, Update::Replace));
    put_in_order(&store, 64);
    for number in 0..40 {
        store.put(format!("{number:02}"), "again").unwrap();
    }
    store
}

#[test]
fn a_run_stays_while_it_is_not_durable_that_its_rows_have_gone() {
    // Behind the commit of the checkpoint's number, and while the store is synced.
    for late in [Call::Committed, Call::Sync] {
        let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
        let store = mostly_gone(&rows, dir.path());
        let commits = Arc::new(OnceLock::new());
        let (own_rows, own_store, own_commits) = (rows.clone(), Arc::downgrade(&store), Arc::clone(&commits));
        rows.on_call(Some(Arc::new(move |call| {
            if call == late && own_commits.set(own_rows.commits()).is_ok() {
                let store = own_store.upgrade().unwrap();
                for number in 40..64 {
                    store.delete(format!("{number:02}")).unwrap();
                }
            }
        })));
        store.checkpoint().unwrap();
        rows.on_call(None);
        assert_eq!(store.all().unwrap().count(), 40);
        drop(store);
        // The deletions came too late for the sync.
        let store = open(&rows.crash(*commits.get().unwrap()), dir.path(), Update::Replace);
        assert_eq!(store.open_report().rebuilt, None);
        assert_eq!(store.all().unwrap().count(), 64);
        assert_eq!(store.verify().unwrap().keys, 64);
    }
}

#[test]
fn a_run_stays_while_a_writer_has_not_published_where_its_row_is_now() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(true));
    let store = mostly_gone(&rows, dir.path());
    for number in 40..63 {
        store.delete(format!("{number:02}")).unwrap();
    }
    let (own_rows, own_store) = (rows.clone(), Arc::downgrade(&store));
    let (stop, stopped) = channel();
    let stop = Mutex::new(Some(stop));
    rows.on_call(Some(Arc::new(move |call| {
        // Behind the commit of the checkpoint's number.
        if call == Call::Committed
            && let Some(stop) = stop.lock().unwrap().take()
        {
            let writer = stop_next_commit(&own_rows);
            let store = own_store.upgrade().unwrap();
            let thread = thread::spawn(move || store.put("63", "moved").unwrap());
            writer.reached.recv().unwrap();
            stop.send((writer, thread)).unwrap();
        }
    })));
    store.checkpoint().unwrap();
    let (writer, thread) = stopped.recv().unwrap();
    let reader = {
        let store = Arc::clone(&store);
        thread::spawn(move || store.get("63").unwrap())
    };
    thread::sleep(A_WHILE);
    writer.go_on.send(()).unwrap();
    thread.join().unwrap();
    assert!(reader.join().unwrap().is_some());
    assert_eq!(store.get("63").unwrap().unwrap(), b"moved");
    assert_eq!(store.all().unwrap().count(), 41);
}

#[test]
fn short_runs_and_runs_that_go_in_small_parts_go_too() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::without_history(false));
    let store = open(&rows, dir.path(), Update::Replace);
    for first in (0..500).step_by(10) {
        let mut batch = store.batch();
        (first..first + 10).for_each(|number| batch.put(format!("{number:04}"), "value"));
        batch.commit().unwrap();
        store.put("!head", first.to_string()).unwrap();
    }
    (500..1500).for_each(|number| store.put(format!("{number:04}"), "value").unwrap());
    store.close().unwrap();
    let (singles, runs) = entries(dir.path(), 0);
    assert!(singles < 8 && (60..70).contains(&runs), "{singles} {runs}");
    let store = open(&rows, dir.path(), Update::Replace);
    for number in 0..1500 {
        store.delete(format!("{number:04}")).unwrap();
        if number % 10 == 7 || number < 100 {
            store.checkpoint().unwrap();
        }
    }
    store.close().unwrap();
    assert_eq!(entries(dir.path(), 0), (1, 0));
}

#[test]
fn keys_among_others_form_no_run_beside_those_that_come_in_order() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let store = open(&rows, dir.path(), Update::Replace);
    let key = |number: u32| format!("{number:03}");
    (0..64).for_each(|number| store.put(key(number), "value").unwrap());
    store.checkpoint().unwrap();
    // Their rows are neighbours, and their keys.
    (3..11).for_each(|number| store.put(key(number), "again").unwrap());
    (64..264).for_each(|number| store.put(key(number), "value").unwrap());
    store.checkpoint().unwrap();
    assert_eq!(store.all().unwrap().count(), 264);
    for number in 0..264 {
        let expected = if (3..11).contains(&number) { "again" } else { "value" };
        assert_eq!(store.get(key(number)).unwrap().unwrap(), expected.as_bytes());
    }
    store.close().unwrap();
    assert_eq!(entries(dir.path(), 0), (8, 5));
}

#[test]
fn keys_that_threads_put_in_order_are_there_at_once() {
    const KEYS: u64 = 6000;
    for concurrent in [false, true] {
        let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::without_history(concurrent));
        let store = open(&rows, dir.path(), Update::Replace);
        let key = |number: u64| format!("{number:05}");
        let (next, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for len in [1, 1, 2, 5] {
                let (store, next, acknowledged) = (&store, &next, &acknowledged);
                scope.spawn(move || {
                    loop {
                        let first = next.fetch_add(len, Ordering::SeqCst);
                        if first >= KEYS {
                            return;
                        }
                        let mut batch = store.batch();
                        (first..first + len).for_each(|number| batch.put(key(number), number.to_string()));
                        batch.commit().unwrap();
                        acknowledged.fetch_add(len, Ordering::SeqCst);
                        for number in [first, first + len - 1] {
                            let found = store.get(key(number)).unwrap();
                            assert_eq!(found.unwrap(), number.to_string().into_bytes());
                        }
                        // A key of a tail, of a tree, or of a run is written again.
                        let old = first / 2;
                        if first % 16 == 0 && store.get(key(old)).unwrap().is_some() {
                            store.put(key(old), old.to_string()).unwrap();
                        }
                    }
                });
            }
            while next.load(Ordering::SeqCst) < KEYS {
                store.checkpoint().unwrap();
                let before = acknowledged.load(Ordering::SeqCst);
                let mut snapshot = store.snapshot().unwrap();
                let seen = snapshot.all().map(|pair| pair.unwrap().0);
                let seen: Vec<_> = seen.collect();
                assert!(seen.is_sorted_by(|key, next| key < next) && seen.len() as u64 >= before);
            }
        });
        let all = acknowledged.into_inner();
        assert_eq!(store.all().unwrap().count() as u64, all);
        assert_eq!(store.verify().unwrap().keys, all);
        store.close().unwrap();
        let store = open(&rows, dir.path(), Update::Replace);
        assert_eq!(store.all().unwrap().rev().count() as u64, all);
    }
}
