//! Learned indexes in a store: which SSTs get one, what they save, and stores that change the option.

use std::sync::Arc;

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
