//! Descriptors: a store with many more files than the process may open, and a process without a free descriptor.

use std::sync::Arc;

use pleach::env::{Env, Fault, FaultKind, SimEnv};
use pleach::{Db, Error, ErrorKind, Options, Shape};

use crate::rig::child::run_after;
use crate::rig::setup::DIR;
use crate::rig::tuning;

/// SSTs of one block.
const SMALL: u64 = 4 << 10;

fn options() -> Options {
    Options::new().memory(64 << 20).memtable_bytes(256 << 10).sst_bytes(SMALL).compaction_threads(2)
}

fn simulated(env: &Arc<SimEnv>) -> Options {
    options().env(Arc::<SimEnv>::clone(env))
}

/// The key: in the order of its number.
fn name(key: u32) -> String {
    format!("{key:08}")
}

fn value(key: u32) -> Vec<u8> {
    key.to_le_bytes().repeat(250)
}

/// Writes `keys` keys, each once, into one block a handful, and flushes them.
fn fill(db: &Db, keys: u32) -> Result<(), Error> {
    let partition = db.default_partition();
    for key in 0..keys {
        // In an order that makes every flush cover the whole range.
        let key = key * 7919 % keys;
        partition.put(name(key), value(key))?;
    }
    db.flush()
}

fn check(db: &Db, keys: u32) {
    let partition = db.default_partition();
    for key in (0..keys).step_by(13) {
        assert_eq!(partition.get(name(key)).unwrap().as_deref(), Some(&*value(key)));
    }
    let scanned = partition.iter().map(|entry| entry.unwrap().0.to_vec());
    assert!(scanned.eq((0..keys).map(|key| name(key).into_bytes())));
}

/// Fills a store, reads, scans, compacts, reopens and verifies it.
fn live(mut open: impl FnMut() -> Db, ssts: u32) {
    let keys = 4 * ssts;
    let db = open();
    fill(&db, keys).unwrap();
    check(&db, keys);
    db.settle().unwrap();
    check(&db, keys);
    assert!(db.verify().unwrap().ssts >= u64::from(ssts));
    db.close().unwrap();
    let db = open();
    check(&db, keys);
    db.compact().unwrap();
    check(&db, keys);
    db.verify().unwrap();
    db.close().unwrap();
}

#[test]
fn a_store_has_more_files_than_descriptors() {
    let env = SimEnv::new(1);
    env.set_handle_limit(Some(48));
    live(|| simulated(&env).shape(Shape::Leveled).open(DIR).unwrap(), 500);
    assert_eq!(env.open_files().limit(), 24);
    let db = simulated(&env).shape(Shape::Leveled).open(DIR).unwrap();
    check(&db, 2_000);
    let stats = db.stats();
    assert_eq!((stats.open_files, stats.open_files_max), (env.open_files().len() as u64, 24));
    assert!((1..=24).contains(&stats.open_files) && stats.ssts > 24);
}

#[test]
fn a_process_with_64_descriptors_keeps_1500_ssts() {
    run_after("ulimit -n 64", "descriptors::child_with_few_descriptors");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_with_few_descriptors() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    live(|| options().open(dir.path().join("store")).unwrap(), 1500);
}

/// A store that was opened by a relative path keeps its files when the process changes its directory.
#[test]
fn a_process_may_change_its_directory() {
    run_after("ulimit -n 64", "descriptors::child_that_changes_its_directory");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_that_changes_its_directory() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::env::set_current_dir(dir.path()).unwrap();
    let db = options().open("store").unwrap();
    fill(&db, 400).unwrap();
    std::env::set_current_dir("/").unwrap();
    // Of 100 SSTs 32 are open: the others are opened again by their paths.
    db.verify().unwrap();
    check(&db, 400);
    fill(&db, 800).unwrap();
    db.compact().unwrap();
    check(&db, 800);
    db.close().unwrap();
    let db = options().open(dir.path().join("store")).unwrap();
    check(&db, 800);
}

/// Closed files are opened again by their names, so the names must stay as long as a reader needs the files.
#[test]
fn files_that_a_snapshot_pins_are_opened_again() {
    let env = SimEnv::new(1);
    env.set_handle_limit(Some(32));
    let db = simulated(&env).memory(2 << 20).memtable_bytes(64 << 10).open(DIR).unwrap();
    fill(&db, 2000).unwrap();
    let (snapshot, partition) = (db.snapshot(), db.default_partition());
    let mut range = partition.iter();
    let begun: Vec<_> = range.by_ref().take(3).map(Result::unwrap).collect();
    for key in 0..2000 {
        partition.put(name(key), b"overwritten").unwrap();
    }
    db.compact().unwrap();
    db.settle().unwrap();
    for key in (0..2000).rev() {
        assert_eq!(snapshot.get(&partition, name(key)).unwrap().as_deref(), Some(&*value(key)));
    }
    let seen = begun.into_iter().chain(range.map(Result::unwrap)).map(|(_, value)| value.to_vec());
    assert!(seen.eq((0..2000).map(value)));
}

/// Whether the message says what to do about it.
fn is_advised(error: &Error) -> bool {
    error.kind() == ErrorKind::Io && error.to_string().contains("ulimit -n")
}

#[test]
fn a_process_without_descriptors_poisons_nothing() {
    for reserve in 0..4 {
        let env = SimEnv::new(1);
        let db = simulated(&env).open(DIR).unwrap();
        fill(&db, 500).unwrap();
        db.settle().unwrap();
        let used = env.handle_count() - env.open_files().len();
        env.set_handle_limit(Some(used + reserve));
        // Another user takes all free descriptors, again and again.
        env.set_other_handles(reserve);
        let partition = db.default_partition();
        let mut key = 10_000_u32;
        let refused = loop {
            match partition.put(name(key), value(key)) {
                Ok(()) => key += 1,
                Err(error) => break error,
            }
            assert!(key < 20_000, "no descriptor was ever needed");
        };
        assert!(is_advised(&refused), "{refused}");
        let refused = db.flush().unwrap_err();
        assert!(is_advised(&refused), "{refused}");
        assert_eq!(db.poisoned().map(|error| error.to_string()), None);

        env.set_handle_limit(None);
        partition.put(b"afterwards", b"it goes on").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let db = simulated(&env).open(DIR).unwrap();
        let partition = db.default_partition();
        assert_eq!(partition.get(b"afterwards").unwrap().as_deref(), Some(&b"it goes on"[..]));
        for key in (0..500).chain(10_000..key) {
            assert_eq!(partition.get(name(key)).unwrap().as_deref(), Some(&*value(key)));
        }
    }
}

#[test]
fn an_open_without_descriptors_says_so_and_harms_nothing() {
    let env = SimEnv::new(1);
    let db = simulated(&env).open(DIR).unwrap();
    fill(&db, 300).unwrap();
    db.close().unwrap();
    let mut refused = 0;
    for limit in 0..20 {
        env.set_handle_limit(Some(limit));
        match simulated(&env).open(DIR) {
            Ok(db) => db.close().unwrap(),
            Err(error) => {
                assert!(is_advised(&error), "{error}");
                refused += 1;
            }
        }
        assert_eq!(env.handle_count(), 0);
    }
    assert!(refused >= 3);
    env.set_handle_limit(None);
    let db = simulated(&env).open(DIR).unwrap();
    let partition = db.default_partition();
    assert!((0..300u32).all(|key| partition.get(name(key)).unwrap().as_deref() == Some(&*value(key))));
}

/// A short life of a store; how many of its keys were acknowledged. Errors end a step, not the life.
fn short_life(env: &Arc<SimEnv>, mut check: impl FnMut(Error)) -> Option<(Db, Vec<u32>)> {
    let options = simulated(env).memtable_bytes(32 << 10).shape(Shape::Forest).runs_per_stage(2);
    let db = options.thresholds(tuning::of("tune.short_manifests")).open(DIR).map_err(&mut check).ok()?;
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        for key in 0..40 {
            let key = 100 * round + key;
            match db.default_partition().put(name(key), value(key)) {
                Ok(()) => acknowledged.push(key),
                Err(error) => check(error),
            }
        }
        let _told = db.partition(&format!("p{round}")).map_err(&mut check);
        let _told = db.flush().map_err(&mut check);
        let _told = db.sync().map_err(&mut check);
    }
    let _told = db.settle().map_err(&mut check);
    Some((db, acknowledged))
}

/// No descriptor for a dozen calls in a row, from any call on: more than one call is repeated.
#[test]
fn a_shortage_of_descriptors_at_any_call_poisons_nothing() {
    let env = SimEnv::new(1);
    drop(short_life(&env, |error| panic!("{error}")));
    let ops = (0..env.op_count()).map(|at| shortage(at, FaultKind::TooManyFiles));
    let opens = (0..env.open_count()).map(|at| shortage(at, FaultKind::OpenTooManyFiles));
    let errors: usize = ops.chain(opens).sum();
    assert!(errors > 10, "{errors} errors");
}

/// Runs a short life with a shortage from call `first` on; returns the number of errors.
fn shortage(first: u64, kind: FaultKind) -> usize {
    let (env, mut errors) = (SimEnv::new(1), 0);
    (first..first + 12).for_each(|at_op| env.add_fault(Fault { at_op, kind }));
    let told = |error: Error| {
        errors += 1;
        assert!(is_advised(&error), "{kind:?} at {first}: {error}");
    };
    let life = short_life(&env, told);
    env.clear_faults();
    if let Some((db, acknowledged)) = life {
        assert!(db.poisoned().is_none(), "{kind:?} at {first}");
        db.flush().unwrap();
        db.settle().unwrap();
        db.close().unwrap();
        let db = simulated(&env).open(DIR).unwrap();
        let is_there = |key: &u32| db.default_partition().get(name(*key)).unwrap().is_some();
        assert!(acknowledged.iter().all(is_there), "{kind:?} at {first}");
    }
    errors
}
