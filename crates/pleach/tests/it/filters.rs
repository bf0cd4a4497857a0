//! Filters in a store: wasted probes, and the choice of filters if memory is short.
#![expect(clippy::cast_precision_loss, reason = "figures to compare")]

use std::sync::Arc;

use pleach::env::{Fault, FaultKind, SimEnv};
use pleach::{Db, Options, Partition};

use crate::rig::setup::DIR;
use crate::rig::tuning;

fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// How often the store of many runs is looked at.
const STOPS: u32 = 8;

/// Puts the even numbers below `2 * keys`, in the order that [`key`] makes of them.
fn fill(partition: &Partition, keys: u64) {
    for i in 0..keys {
        partition.put(key(2 * i), i.to_le_bytes()).unwrap();
    }
}

/// Gets `gets` odd numbers, which are all missing. Returns the wasted probes of each.
fn wasted(db: &Db, partition: &Partition, gets: u32) -> f64 {
    let before = db.stats().wasted_probes;
    for i in 0..u64::from(gets) {
        assert_eq!(partition.get(key(2 * i + 1)).unwrap(), None);
    }
    let wasted = u32::try_from(db.stats().wasted_probes - before).unwrap();
    f64::from(wasted) / f64::from(gets)
}

fn find_all(partition: &Partition, keys: u64) {
    for i in 0..keys {
        assert_eq!(partition.get(key(2 * i)).unwrap().as_deref(), Some(&i.to_le_bytes()[..]));
    }
}

#[test]
fn a_missing_key_costs_few_searches_however_many_runs_there_are() {
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memtable_bytes(64 << 10);
    let db = options.open(DIR).unwrap();
    let partition = db.default_partition();
    let (mut runs, mut sum) = (0, 0.0);
    for stop in 0..STOPS {
        for i in 0..17 * 600 {
            let number = u64::from(stop * 17 * 600 + i);
            partition.put(key(2 * number), [b'v'; 20]).unwrap();
            if i % 600 == 599 {
                db.settle().unwrap();
            }
        }
        runs += db.stats().runs;
        sum += wasted(&db, &partition, 20_000);
    }
    let stats = db.stats();
    let bits = 8.0 * stats.filter_bytes as f64 / stats.sst_entries as f64;
    let (runs, mean) = (runs as f64 / f64::from(STOPS), sum / f64::from(STOPS));
    println!("{runs} runs, {bits:.2} bits a key, {mean:.4} wasted probes for a missing key");
    assert!(runs > 3.0 && bits < 11.0, "{runs} runs, {bits} bits");
    assert!(mean <= 0.08, "{mean}");
}

/// See `Options::memory`: memtables take at most three eighths and the cache at least two, so filters take at most three.
const MEMORY: usize = 1 << 20;
const FILTERS_MAX: u64 = MEMORY as u64 * 3 / 8;

#[test]
fn where_memory_is_a_little_short_all_filters_stay_with_fewer_bits() {
    const KEYS: u64 = 450_000;
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(MEMORY).sst_bytes(256 << 10);
    let db = options.open(DIR).unwrap();
    let partition = db.default_partition();
    fill(&partition, KEYS);
    partition.compact().unwrap();
    env.run_jobs();
    let stats = db.stats();
    assert_eq!(stats.filters_missing, 0, "{stats:?}");
    let bits = stats.filter_bytes as f64 * 8.0 / KEYS as f64;
    assert!((4.5..6.5).contains(&bits), "{bits} bits per key, ten do not fit");
    let rate = wasted(&db, &partition, 40_000);
    assert!((0.04..0.16).contains(&rate), "{rate}");
}

#[test]
fn where_memory_is_short_the_filters_that_are_used_stay() {
    const KEYS: u64 = 300_000;
    let env = SimEnv::new(1);
    let options = || Options::new().env(Arc::<SimEnv>::clone(&env)).memory(MEMORY).sst_bytes(256 << 10);
    let db = options().open(DIR).unwrap();
    let names = ["used", "left alone", "deserted"];
    let partitions = names.map(|name| db.partition(name).unwrap());
    for partition in &partitions {
        fill(partition, KEYS);
    }
    db.flush().unwrap();
    for partition in &partitions {
        partition.compact().unwrap();
    }
    env.run_jobs();
    let stats = db.stats();
    assert!(stats.filter_bytes < FILTERS_MAX && stats.filters_missing > 0, "{stats:?}");
    assert_eq!(stats.cache_capacity_bytes, MEMORY as u64 / 4, "filters have displaced blocks");
    for used in &partitions {
        // Counted are samples, and a newcomer must be far more useful than what it displaces.
        let mut rates = Vec::new();
        for _ in 0..6 {
            rates.push(wasted(&db, used, 40_000));
            env.run_jobs();
        }
        println!("{rates:.3?}");
        let last = rates.last().unwrap();
        assert!(*last < 0.3, "{rates:?}");
        find_all(used, KEYS);
        assert!(db.stats().filter_bytes < FILTERS_MAX);
    }
    drop(partitions);
    db.close().unwrap();
    let db = options().open(DIR).unwrap();
    let stats = db.stats();
    assert!(stats.filter_bytes > 0 && stats.cache_capacity_bytes < MEMORY as u64 * 3 / 4, "{stats:?}");
    let used = stats.index_filter_bytes + stats.memtable_bytes + stats.cache_capacity_bytes;
    assert!(used <= MEMORY as u64, "{stats:?}");
    for name in names {
        find_all(&db.partition(name).unwrap(), KEYS);
    }
    db.verify().unwrap();
}

#[test]
fn a_filter_that_cannot_be_read_again_is_done_without() {
    const KEYS: u64 = 2000;
    let env = SimEnv::new(1);
    let options = || Options::new().env(Arc::<SimEnv>::clone(&env)).memory(MEMORY).sst_bytes(4 << 10);
    {
        let db = options().thresholds(tuning::of("tune.short_filters")).open(DIR).unwrap();
        let stays = db.partition("stays").unwrap();
        let goes = db.partition("goes").unwrap();
        for partition in [&goes, &stays] {
            fill(partition, KEYS);
            partition.compact().unwrap();
        }
        env.run_jobs();
        let missing = db.stats().filters_missing;
        db.drop_partition(goes).unwrap();
        for read in 0..1000 {
            env.add_fault(Fault { at_op: env.read_count() + read, kind: FaultKind::ReadEio });
        }
        env.run_jobs();
        assert!(env.faults_struck() > 0, "filters were to be read");
        env.clear_faults();
        env.run_jobs();
        let stats = db.stats();
        assert!(
            0 < stats.filters_missing && stats.filters_missing < missing && stats.poisoned.is_none(),
            "{stats:?}"
        );
        find_all(&stays, KEYS);
        assert!(wasted(&db, &stays, 1000) > 0.1);
    }
    let db = options().open(DIR).unwrap();
    assert_eq!(db.stats().filters_missing, 0);
}
