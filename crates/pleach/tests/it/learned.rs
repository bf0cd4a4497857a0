//! Learned indexes in a store: which SSTs get one, what they save, and stores that change the option.

use std::sync::Arc;
use std::time::Duration;

use pleach::env::SimEnv;
use pleach::{Db, LearnedIndex, Options, Stats, Thresholds};

use crate::rig::setup::DIR;

const KEYS: u64 = 30_000;

fn options(env: &Arc<SimEnv>, when: LearnedIndex) -> Options {
    Options::new().env(Arc::<SimEnv>::clone(env)).memory(32 << 20).learned_index(when)
}

fn random_digits(i: u64) -> Vec<u8> {
    format!("{:016}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 10_u64.pow(16)).into_bytes()
}

fn url(i: u64) -> Vec<u8> {
    let path = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("https://www.example-{}.com/articles/of/the/year/{path:x}?language=en", i % 300).into_bytes()
}

fn fill(db: &Db, key: fn(u64) -> Vec<u8>) {
    let partition = db.default_partition();
    for i in 0..KEYS {
        partition.put(key(i), [b'v'; 100]).unwrap();
    }
    db.compact().unwrap();
}

/// Compares gets, seeks and a whole scan with the keys.
fn check(db: &Db, key: fn(u64) -> Vec<u8>) {
    let partition = db.default_partition();
    let mut keys: Vec<_> = (0..KEYS).map(key).collect();
    keys.sort();
    for (i, key) in keys.iter().enumerate().step_by(7) {
        assert!(partition.get(key).unwrap().is_some());
        let absent = [key, b"0".as_slice()].concat();
        assert_eq!(partition.get(&absent).unwrap(), None);
        let up = partition.range(absent.clone()..).next().transpose().unwrap();
        assert_eq!(up.map(|(key, _)| key.to_vec()).as_ref(), keys.get(i + 1));
        let down = partition.range(..absent).next_back().transpose().unwrap();
        assert_eq!(down.map(|(key, _)| key.to_vec()).as_ref(), Some(key));
    }
    let all = partition.range::<&[u8]>(..).map(|entry| entry.unwrap().0.to_vec());
    assert!(all.eq(keys), "a scan finds all keys");
    db.verify().unwrap();
}

fn obstacles(stats: &Stats) -> u64 {
    stats.index_ties + stats.index_larger + stats.index_one_block
}

#[test]
fn a_store_keeps_its_answers_when_the_option_changes() {
    let env = SimEnv::new(1);
    let db = options(&env, LearnedIndex::Never).open(DIR).unwrap();
    fill(&db, random_digits);
    let never = db.stats();
    assert_eq!((never.ssts_learned, obstacles(&never)), (0, 0));
    drop(db);
    let db = options(&env, LearnedIndex::Always).open(DIR).unwrap();
    assert_eq!(db.stats().ssts_learned, 0, "SSTs are not written again");
    check(&db, random_digits);
    fill(&db, random_digits);
    let always = db.stats();
    assert!(always.ssts_learned > 0, "{always:?}");
    assert!(always.index_bytes * 2 < never.index_bytes, "{} {}", always.index_bytes, never.index_bytes);
    assert!(always.index_filter_bytes < never.index_filter_bytes);
    check(&db, random_digits);
    drop(db);
    let db = options(&env, LearnedIndex::Never).open(DIR).unwrap();
    let reopened = db.stats();
    assert_eq!((reopened.ssts_learned, reopened.index_bytes), (always.ssts_learned, always.index_bytes));
    check(&db, random_digits);
    fill(&db, random_digits);
    assert_eq!(db.stats().ssts_learned, 0);
    check(&db, random_digits);
}

#[test]
fn keys_that_tie_keep_separators() {
    let env = SimEnv::new(2);
    let db = options(&env, LearnedIndex::Always).open(DIR).unwrap();
    fill(&db, url);
    let stats = db.stats();
    assert!(stats.index_ties > 0, "{stats:?}");
    check(&db, url);
}

#[test]
fn partitions_of_a_shared_flush_file_share_a_model() {
    let env = SimEnv::new(3);
    let thresholds = Thresholds { larger_models: true, ..Thresholds::default() };
    let db = options(&env, LearnedIndex::Always).thresholds(thresholds).open(DIR).unwrap();
    let partitions: Vec<_> = (0..20).map(|n| db.partition(&format!("partition {n}")).unwrap()).collect();
    for (partition, n) in partitions.iter().zip(0..) {
        for i in 0..50 {
            partition.put(random_digits(n * 50 + i), [b'v'; 100]).unwrap();
        }
    }
    db.flush().unwrap();
    let stats = db.stats();
    assert_eq!((stats.ssts, stats.ssts_learned), (1, 1));
    for (partition, n) in partitions.iter().zip(0..) {
        for i in 0..1000 {
            let is_here = partition.get(random_digits(i)).unwrap().is_some();
            assert_eq!(is_here, i / 50 == n);
        }
        assert_eq!(partition.range::<&[u8]>(..).count(), 50);
        assert_eq!(partition.range::<&[u8]>(..).rev().count(), 50);
    }
}

/// A store of SSTs with separators, opened again for adaptive training on a machine of which `busy` is in use.
fn reopened(env: &Arc<SimEnv>, key: fn(u64) -> Vec<u8>, busy: f64) -> (Db, Stats) {
    let db = options(env, LearnedIndex::Never).open(DIR).unwrap();
    fill(&db, key);
    let before = db.stats();
    drop(db);
    env.set_processor_use(busy);
    (options(env, LearnedIndex::Adaptive).open(DIR).unwrap(), before)
}

/// The last SST of a run may be too small for a model.
fn assert_nearly_all(trained: u64, ssts: u64) {
    assert!(trained > 0 && trained + 1 >= ssts && trained <= ssts, "{trained} of {ssts}");
}

/// Lets the jobs run, as an event would: in the simulator no time passes by itself.
fn wake(db: &Db, env: &SimEnv) {
    db.partition("other").unwrap().put(b"key", b"value").unwrap();
    db.flush().unwrap();
    env.run_jobs();
}

#[test]
fn a_busy_machine_does_not_train_and_an_idle_one_does() {
    let env = SimEnv::new(4);
    let (db, before) = reopened(&env, random_digits, 0.9);
    wake(&db, &env);
    let busy = db.stats();
    assert_eq!((busy.ssts_learned, busy.trained_while_reading), (0, 0), "{busy:?}");
    assert!(busy.training_waits > 0);
    check(&db, random_digits);

    let snapshot = db.snapshot();
    let mut range = db.default_partition().range::<&[u8]>(..);
    let first = range.next().unwrap().unwrap().0.to_vec();
    env.set_processor_use(0.1);
    let ops = env.op_count();
    let reads = env.read_count();
    wake(&db, &env);
    let idle = db.stats();
    assert_nearly_all(idle.ssts_learned, before.ssts);
    assert_eq!(idle.trained_while_reading, idle.ssts_learned);
    assert!(idle.index_bytes * 3 < before.index_bytes * 2, "{} {}", idle.index_bytes, before.index_bytes);
    assert!(
        idle.index_filter_bytes < before.index_filter_bytes,
        "{} {}",
        idle.index_filter_bytes,
        before.index_filter_bytes
    );
    assert!(env.op_count() - ops < 100, "no file is written for it");
    assert!(env.read_count() - reads < 10, "and none is read: {} {}", env.read_count(), reads);
    check(&db, random_digits);
    // Reads that began before the training go on.
    assert!(snapshot.get(&db.default_partition(), &first).unwrap().is_some());
    assert_eq!(range.count() as u64, KEYS - 1);
    drop(snapshot);

    // Merged SSTs are trained as they are written.
    fill(&db, random_digits);
    assert!(db.stats().trained_while_writing > 0);
    check(&db, random_digits);
}

#[test]
fn models_are_made_again_after_an_open() {
    let env = SimEnv::new(5);
    let (db, before) = reopened(&env, random_digits, 0.0);
    env.run_jobs();
    assert_nearly_all(db.stats().ssts_learned, before.ssts);
    drop(db);
    let db = options(&env, LearnedIndex::Never).open(DIR).unwrap();
    env.run_jobs();
    let never = db.stats();
    assert_eq!(
        (never.ssts_learned, never.index_bytes),
        (0, before.index_bytes),
        "the files are as they were"
    );
    drop(db);
    let db = options(&env, LearnedIndex::Adaptive).open(DIR).unwrap();
    env.run_jobs();
    assert_nearly_all(db.stats().ssts_learned, before.ssts);
    check(&db, random_digits);
}

#[test]
fn keys_that_tie_are_tried_once() {
    let env = SimEnv::new(6);
    let (db, before) = reopened(&env, url, 0.0);
    env.run_jobs();
    let stats = db.stats();
    assert_eq!((stats.ssts_learned, stats.index_bytes), (0, before.index_bytes));
    assert_eq!(stats.training_waits, 0);
    check(&db, url);
}

#[test]
fn a_flush_beside_many_writers_leaves_training_for_later() {
    let env = SimEnv::new(7);
    env.set_processor_use(1.0);
    // One thread writes, so it counts as many.
    let thresholds = Thresholds { training_writers: 1, larger_models: true, ..Thresholds::default() };
    let db = options(&env, LearnedIndex::Adaptive).thresholds(thresholds).open(DIR).unwrap();
    let partition = db.default_partition();
    for i in 0..1000 {
        partition.put(random_digits(i), [b'v'; 100]).unwrap();
    }
    db.flush().unwrap();
    let stats = db.stats();
    assert_eq!((stats.ssts, stats.ssts_learned, stats.index_many_writers), (1, 0, 1), "{stats:?}");
    assert_eq!(stats.trained_while_writing, 0);
    // Long after the last write there are no writers.
    pleach::env::Env::sleep(&*env, Duration::from_secs(1));
    db.compact().unwrap();
    fill(&db, random_digits);
    let stats = db.stats();
    assert!(stats.trained_while_writing > 0, "the outputs of compactions are trained: {stats:?}");
    assert_eq!(stats.trained_while_reading, 0);
    check(&db, random_digits);
}

#[test]
fn late_and_inexact_models_are_not_used() {
    for (training_time, training_error) in [(Duration::ZERO, 6), (Duration::from_secs(1), 0)] {
        let env = SimEnv::new(8);
        let (db, before) = reopened(&env, random_digits, 0.0);
        drop(db);
        let thresholds = Thresholds { training_time, training_error, ..Thresholds::default() };
        let db = options(&env, LearnedIndex::Adaptive).thresholds(thresholds).open(DIR).unwrap();
        env.run_jobs();
        let stats = db.stats();
        assert_eq!(stats.ssts_learned, 0);
        let (refused, other) = (stats.index_timed_out, stats.index_inexact);
        let (refused, other) = if training_time.is_zero() { (refused, other) } else { (other, refused) };
        // What took too long is tried again.
        let tries = if training_time.is_zero() { 3 } else { 1 };
        assert_nearly_all(refused / tries, before.ssts);
        assert_eq!(other, 0);
        fill(&db, random_digits);
        let is_trained = db.stats().trained_while_writing > 0;
        assert_eq!(is_trained, !training_time.is_zero(), "the error is for training while reading");
        check(&db, random_digits);
    }
}
