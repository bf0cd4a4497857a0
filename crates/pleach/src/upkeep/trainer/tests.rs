//! Tests of the exchange of readers. `tests/it/learned.rs` has the stories of whole stores.

use std::sync::Weak;

use pleach_env::SimEnv;
use pleach_table::IndexKind;

use super::*;
use crate::version::Version;
use crate::{Db, LearnedIndex, Options, Thresholds};

const KEYS: u64 = 20_000;

fn open(env: &Arc<SimEnv>, when: LearnedIndex) -> Db {
    let thresholds = Thresholds { larger_models: true, ..Thresholds::default() };
    let options = Options::new().env(Arc::clone(env) as _).memory(32 << 20).learned_index(when);
    options.thresholds(thresholds).open("store").unwrap()
}

/// An adaptive store whose SSTs have separators, on a busy machine.
fn untrained(env: &Arc<SimEnv>, keys: u64) -> Db {
    let db = open(env, LearnedIndex::Never);
    for i in 0..keys {
        let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes().to_le_bytes();
        db.default_partition().put(key, [7; 100]).unwrap();
    }
    db.flush().unwrap();
    drop(db);
    env.set_processor_use(1.0);
    open(env, LearnedIndex::Adaptive)
}

fn train(db: &Db, env: &SimEnv) {
    env.set_processor_use(0.0);
    db.inner().ctx.status.wake_jobs();
    env.run_jobs();
}

fn version(db: &Db) -> Arc<Version> {
    Arc::clone(&db.inner().version_set.state.load().version)
}

fn kinds(version: &Version) -> Vec<IndexKind> {
    let runs = version.partitions().flat_map(|(_, partition)| &partition.tree.runs);
    runs.flat_map(|run| &run.files).map(|file| file.sst().index_kind()).collect()
}

#[test]
fn separators_are_freed_with_the_last_version_that_shows_them() {
    let env = SimEnv::new(1);
    let db = untrained(&env, KEYS);
    let snapshot = db.snapshot();
    let old_version = version(&db);
    let old: Vec<Weak<Sst>> =
        old_version.live_files().iter().map(|file| Arc::downgrade(&file.sst())).collect();
    let (_, old_bytes) = db.inner().version_set.lock().files.table_bytes();
    assert!(!old.is_empty());
    train(&db, &env);
    let new_version = version(&db);
    assert!(kinds(&old_version).iter().all(|kind| *kind == IndexKind::Separators));
    assert!(kinds(&new_version).iter().all(|kind| *kind == IndexKind::Learned));
    drop(old_version);
    assert!(old.iter().all(|sst| sst.upgrade().is_some()), "the snapshot reads by them");
    drop(snapshot);
    assert!(old.iter().all(|sst| sst.upgrade().is_none()));
    // The budgets see the new sizes.
    let bytes: u64 = new_version.live_files().iter().map(|file| file.index_bytes()).sum();
    assert_eq!(db.inner().version_set.lock().files.table_bytes().1, bytes);
    assert!(bytes < old_bytes);
}

#[test]
fn a_file_that_is_merged_meanwhile_is_let_alone() {
    let env = SimEnv::new(2);
    let db = untrained(&env, KEYS);
    let old_version = version(&db);
    let trained: Vec<Sst> = old_version
        .live_files()
        .iter()
        .filter_map(|file| db.inner().upkeep.train_while_reading(file))
        .collect();
    assert!(!trained.is_empty());
    db.default_partition().put(b"key", b"value").unwrap();
    db.compact().unwrap();
    let (_, bytes) = db.inner().version_set.lock().files.table_bytes();
    db.inner().version_set.replace_ssts(trained);
    assert_eq!(db.inner().version_set.lock().files.table_bytes().1, bytes);
    assert!(kinds(&old_version).iter().all(|kind| *kind == IndexKind::Separators));
}

#[test]
fn nothing_is_trained_while_an_sst_is_written() {
    let env = SimEnv::new(3);
    let db = untrained(&env, KEYS);
    let writing = TrainingWhileWriting::begin(&db.inner().upkeep.trained_while_writing);
    train(&db, &env);
    assert_eq!(db.stats().trained_while_reading, 0);
    drop(writing);
    train(&db, &env);
    assert!(db.stats().trained_while_reading > 0);
}

#[test]
fn a_poisoned_store_does_not_train() {
    let env = SimEnv::new(4);
    let db = untrained(&env, KEYS);
    let error = pleach_env::Error::new(pleach_env::ErrorKind::Poisoned, "a test");
    db.inner().ctx.status.set_poison(error);
    train(&db, &env);
    assert_eq!(db.stats().trained_while_reading, 0);
}

#[test]
fn blocks_get_the_memory_of_freed_separators() {
    let env = SimEnv::new(5);
    let db = untrained(&env, 16 * KEYS);
    drop(db);
    // One run, so that no compaction trains.
    open(&env, LearnedIndex::Never).compact().unwrap();
    let db = open(&env, LearnedIndex::Adaptive);
    env.run_jobs();
    let before = db.stats();
    // Nothing but this trainer wakes the cleaner now.
    let mut trainer = Trainer::new(&db.inner().upkeep);
    assert!(matches!(trainer.step(), JobStep::IdleFor(_)), "the machine is busy");
    env.set_processor_use(0.0);
    while matches!(trainer.step(), JobStep::Again) {}
    env.run_jobs();
    let after = db.stats();
    let freed = before.index_bytes - after.index_bytes;
    assert!(freed > 2 * (16 << 10), "more than the cache is rounded down by");
    assert!(after.cache_capacity_bytes >= before.cache_capacity_bytes + freed - (16 << 10));
}

#[test]
fn a_busy_machine_is_asked_again_by_itself() {
    let env = SimEnv::new(5);
    let db = untrained(&env, KEYS);
    let mut trainer = Trainer::new(&db.inner().upkeep);
    for _ in 0..3 {
        assert!(matches!(trainer.step(), JobStep::IdleFor(_)), "nothing else would wake it");
    }
    env.set_processor_use(0.0);
    assert!(matches!(trainer.step(), JobStep::Again), "there may be more files than one step trains");
    assert!(db.stats().trained_while_reading > 0);
    assert!(matches!(trainer.step(), JobStep::Idle));
}

#[test]
fn a_file_whose_partition_is_dropped_meanwhile_is_let_alone() {
    let env = SimEnv::new(7);
    let db = untrained(&env, KEYS);
    let gone = db.partition("gone").unwrap();
    for i in 0..20_000_u64 {
        gone.put(format!("{i:08}"), [7; 100]).unwrap();
    }
    let default_files = version(&db).live_files().len();
    db.flush().unwrap();
    drop(gone);
    drop(db);
    let db = open(&env, LearnedIndex::Adaptive);
    let files = version(&db).live_files();
    assert!(files.len() > default_files);
    let trained: Vec<Sst> = files
        .iter()
        .filter_map(|file| file.sst().learn_index(pleach_table::IndexChoice::Learned).ok())
        .collect();
    drop(files);
    db.drop_partition(db.partition("gone").unwrap()).unwrap();
    env.run_jobs();
    db.inner().version_set.replace_ssts(trained);
    let now = version(&db);
    let bytes: u64 = now.live_files().iter().map(|file| file.index_bytes()).sum();
    assert_eq!(db.inner().version_set.lock().files.table_bytes().1, bytes);
    assert_eq!(now.live_files().len(), default_files);
    env.run_jobs();
    db.verify().unwrap();
}
