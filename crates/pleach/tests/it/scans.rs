//! Reads of scans: the blocks of all runs are read at once, on every driver, and no order in which reads end changes an
//! entry.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{Fault, FaultKind, SimEnv};
use pleach::{Db, ErrorKind, Options, Range, Shape};

use crate::rig::read_drivers::{DRIVERS, ReadBy};
use crate::rig::setup::DIR;

/// More than the smallest cache holds.
const KEYS: u64 = 12_000;
const RUNS: u64 = 8;

type Model = BTreeMap<String, Vec<u8>>;

fn key(n: u64) -> String {
    format!("user{n:06}")
}

/// A run of all keys, and smaller ones that each overwrite and delete keys from everywhere. What the store holds.
fn fill(db: &Db) -> Model {
    let partition = db.default_partition();
    let mut model = Model::new();
    for run in 0..RUNS {
        let round = u8::try_from(run).unwrap();
        for n in (0..KEYS).filter(|n| run == 0 || n % RUNS == run || n % 97 == run) {
            if n % 31 == run {
                partition.delete(key(n)).unwrap();
                model.remove(&key(n));
            } else {
                let value = vec![round; 250 + usize::try_from(n % 100).unwrap()];
                partition.put(key(n), &value).unwrap();
                model.insert(key(n), value);
            }
        }
        db.flush().unwrap();
    }
    model
}

fn options(memory: usize) -> Options {
    Options::new().memory(memory).memtable_bytes(4 << 20).shape(Shape::Forest).runs_per_stage(12)
}

/// A machine with a store of eight runs, opened again so that no block is cached.
fn machine(seed: u64, memory: usize, direct: bool) -> (Arc<SimEnv>, Db, Model) {
    let env = SimEnv::new(seed);
    let options = options(memory).direct_reads(direct).env(Arc::<SimEnv>::clone(&env));
    let db = options.clone().open(DIR).unwrap();
    let model = fill(&db);
    db.close().unwrap();
    (env, options.open(DIR).unwrap(), model)
}

/// The entries of a walk that changes its direction now and then.
fn some_entries(mut range: Range, rng: &mut Rng, count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut up = rng.bool();
    let mut entries = Vec::new();
    while entries.len() < count {
        if rng.u8(..16) == 0 {
            up = !up;
        }
        let Some(entry) = (if up { range.next() } else { range.next_back() }) else { break };
        let (key, value) = entry.unwrap();
        entries.push((key.into_vec(), value.into_vec()));
    }
    entries
}

#[test]
fn a_seek_over_eight_runs_waits_for_the_device_about_once() {
    for direct in [false, true] {
        let (env, db, model) = machine(1, 8 << 20, direct);
        let partition = db.default_partition();
        let (reads, waits) = (env.read_count(), env.read_wait_count());
        // Far from each other, so that no block serves two seeks.
        let seeks: Vec<_> = (0..20).map(|n| key(n * KEYS / 20 + 17)).collect();
        for (n, from) in seeks.iter().enumerate() {
            let (found, expected) = if n % 2 == 0 {
                (partition.range(from.as_str()..).next(), model.range(from.clone()..).next())
            } else {
                (partition.range(..from.as_str()).next_back(), model.range(..from.clone()).next_back())
            };
            let ((key, value), expected) = (found.unwrap().unwrap(), expected.unwrap());
            assert_eq!((key.as_ref(), value.as_ref()), (expected.0.as_bytes(), &expected.1[..]));
        }
        let (reads, waits) = (env.read_count() - reads, env.read_wait_count() - waits);
        assert!(reads >= 20 * RUNS, "{reads} blocks read: a seek reads one of each run");
        assert!(reads <= 20 * (RUNS + 2), "{reads} blocks read");
        assert!((20..=35).contains(&waits), "{waits} waits of 20 seeks, direct: {direct}");
    }
}

#[test]
fn the_order_in_which_reads_end_changes_no_entry() {
    let mut walks = Vec::new();
    for seed in 0..6 {
        let (_env, db, _) = machine(seed, 8 << 20, seed % 2 == 0);
        let mut rng = Rng::with_seed(3);
        let mut entries = Vec::new();
        for _ in 0..30 {
            let from = key(rng.u64(..KEYS));
            let to = key(rng.u64(..KEYS));
            let range = db.default_partition().range(from.as_str().min(&to)..to.as_str().max(&from));
            let count = rng.usize(1..400);
            entries.extend(some_entries(range, &mut rng, count));
        }
        walks.push(entries);
    }
    assert!(walks.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn scans_give_the_same_entries_on_every_driver() {
    for (compressed, direct) in [(false, false), (true, false), (false, true), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let model = fill(&options(8 << 20).compression(compressed).open(dir.path()).unwrap());
        for driver in DRIVERS {
            let db = options(1 << 20).direct_reads(direct).read_by(driver).open(dir.path()).unwrap();
            let partition = db.default_partition();
            let mut rng = Rng::with_seed(5);
            for _ in 0..50 {
                let bounds = [key(rng.u64(..KEYS)), key(rng.u64(..KEYS + 50))];
                let (from, to) = (bounds.iter().min().unwrap(), bounds.iter().max().unwrap());
                let count = rng.usize(1..500);
                let range = || partition.range(from.as_str()..to.as_str());
                let up = range().take(count).map(Result::unwrap);
                let expected = model.range(from.clone()..to.clone());
                assert!(
                    up.map(|(k, v)| (k.into_vec(), v.into_vec()))
                        .eq(expected.clone().take(count).map(|(k, v)| (k.clone().into_bytes(), v.clone())))
                );
                let down = range().rev().take(count).map(Result::unwrap);
                assert!(
                    down.map(|(k, v)| (k.into_vec(), v.into_vec()))
                        .eq(expected.rev().take(count).map(|(k, v)| (k.clone().into_bytes(), v.clone())))
                );
            }
        }
    }
}

#[test]
fn a_read_that_fails_ends_the_scan_and_the_next_one_reads_on() {
    let (env, db, model) = machine(1, 1 << 20, false);
    let partition = db.default_partition();
    let mut rng = Rng::with_seed(9);
    let mut failed = 0;
    for nth in 0..80 {
        let from = key(rng.u64(..KEYS));
        let up = rng.bool();
        let range = || if up { partition.range(from.as_str()..) } else { partition.range(..from.as_str()) };
        let collect = |mut range: Range| -> Result<Vec<_>, pleach::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = if up { range.next() } else { range.next_back() } {
                let (key, value) = entry.inspect_err(|_| assert!(range.next().is_none(), "it has ended"))?;
                entries.push((String::from_utf8(key.into_vec()).unwrap(), value.into_vec()));
            }
            Ok(entries)
        };
        env.add_fault(Fault { at_op: env.read_count() + nth % 20, kind: FaultKind::ReadEio });
        if let Err(error) = collect(range()) {
            assert_eq!(error.kind(), ErrorKind::Io);
            assert_eq!(error.path().and_then(Path::extension).unwrap(), "sst");
            assert!(error.offset().is_some(), "{error}");
            failed += 1;
        }
        env.clear_faults();
        let mut expected: Vec<_> = if up { model.range(from.clone()..) } else { model.range(..from.clone()) }
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        if !up {
            expected.reverse();
        }
        assert!(collect(range()).unwrap() == expected);
    }
    assert!(failed > 5, "{failed} scans failed");
    assert!(db.stats().poisoned.is_none());
}

/// Reads, and waits for them, of a walk over `count` entries.
fn reads_of(env: &SimEnv, range: Range, count: usize) -> (u64, u64) {
    let (reads, waits) = (env.read_count(), env.read_wait_count());
    for entry in range.take(count) {
        entry.unwrap();
    }
    (env.read_count() - reads, env.read_wait_count() - waits)
}

/// A machine with a store of one run of 12 MB, opened again.
fn machine_of_one_run(seed: u64, direct: bool) -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(seed);
    let options = options(64 << 20).direct_reads(direct).env(Arc::<SimEnv>::clone(&env));
    let db = options.clone().open(DIR).unwrap();
    (0..KEYS).for_each(|n| db.default_partition().put(key(n), [1; 1000]).unwrap());
    db.flush().unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    (env, options.open(DIR).unwrap())
}

#[test]
fn a_long_scan_reads_ahead_by_large_requests_and_leaves_the_cache_alone() {
    for (seed, direct) in [(1, false), (2, true)] {
        for up in [true, false] {
            let (env, db) = machine_of_one_run(seed, direct);
            let partition = db.default_partition();
            let some: Vec<_> = (0..100).map(|n| key(n * KEYS / 100)).collect();
            let read_some = || assert!(some.iter().all(|key| partition.get(key).unwrap().is_some()));
            read_some();
            let cached = db.stats().cache_bytes;
            let (reads, waits) = (env.read_count(), env.read_wait_count());
            let mut range = partition.iter();
            let mut count = 0;
            while (if up { range.next_entry() } else { range.next_back_entry() }).unwrap().is_some() {
                count += 1;
            }
            assert_eq!(count, KEYS);
            let (reads, waits) = (env.read_count() - reads, env.read_wait_count() - waits);
            assert!((50..90).contains(&reads), "{reads} reads of 12 MB, up: {up}");
            assert!(waits <= reads / 2 + 5, "{waits} waits of {reads} reads, up: {up}");
            let admitted = db.stats().cache_bytes - cached;
            assert!(admitted <= 200 << 10, "{admitted} bytes entered the cache");
            let reads = env.read_count();
            read_some();
            assert_eq!(env.read_count(), reads, "what was cached before still is");
        }
    }
}

#[test]
fn a_scan_that_fills_the_cache_spares_the_next_one_its_reads() {
    let (env, db) = machine_of_one_run(1, false);
    let partition = db.default_partition();
    let mut count = 0;
    let mut range = partition.iter().fill_cache();
    while range.next_entry().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, KEYS);
    assert_eq!(reads_of(&env, partition.iter(), usize::MAX), (0, 0));
}

#[test]
fn a_scan_reads_what_it_is_told_to_expect_at_once_and_nothing_else() {
    for direct in [false, true] {
        let (env, db) = machine_of_one_run(3, direct);
        let partition = db.default_partition();
        let range = |n: u64| partition.range(key(n).as_str()..);
        let unknown = reads_of(&env, range(1_000), 100);
        let known = reads_of(&env, range(4_000).expect_entries(100), 100);
        // The seek and a window; as much again where the walk comes to another file.
        let few = |(reads, waits): (u64, u64)| reads <= 4 && waits <= 3;
        assert!(few(known) && known.0 < unknown.0 && known.1 < unknown.1, "{known:?}, {unknown:?}");
        let back = partition.range(..key(8_000).as_str()).expect_entries(100);
        let (reads, waits) = (env.read_count(), env.read_wait_count());
        assert_eq!(back.rev().take(100).map(Result::unwrap).count(), 100);
        let known = (env.read_count() - reads, env.read_wait_count() - waits);
        assert!(few(known), "{known:?}");
        // Nothing is read behind the end of the range.
        let (from, to) = (key(9_000), key(9_040));
        let (reads, _) = reads_of(&env, partition.range(from.as_str()..to.as_str()), 100);
        assert!(reads <= 4, "{reads} reads of 40 KB");
    }
}

#[test]
fn a_scan_reads_at_once_what_scans_before_it_have_taken() {
    for direct in [false, true] {
        let (env, db) = machine_of_one_run(3, direct);
        let partition = db.default_partition();
        let range = |n: u64| partition.range(key(n).as_str()..);
        let scan = |n: u64, count: usize| reads_of(&env, range(n), count);
        let unknown = scan(7_000, 100);
        // About one scan in 16 is noted.
        (0..16 * 50).for_each(|n| assert!(scan(n * 5, 100).0 < 20));
        let usual = scan(9_000, 100);
        assert!(usual.0 <= 4 && usual.1 <= 3 && usual.1 < unknown.1, "{usual:?}, {unknown:?}");
        let back = (env.read_count(), env.read_wait_count());
        assert_eq!(partition.range(..key(8_600).as_str()).rev().take(100).map(Result::unwrap).count(), 100);
        assert!(env.read_count() - back.0 <= 4 && env.read_wait_count() - back.1 <= 3);
        let bytes_of_eight = |n| {
            let bytes = env.read_bytes();
            scan(n, 8);
            env.read_bytes() - bytes
        };
        let long = bytes_of_eight(10_000);
        // A few short scans are enough to read short again.
        (0..40).for_each(|n| assert!(scan(n * 5, 1).0 < 20));
        let short = bytes_of_eight(11_000);
        assert!(long > 90_000 && short < 60_000, "{long} bytes, then {short}");
    }
}

#[test]
fn scans_that_are_dropped_leave_no_read_and_no_file_behind() {
    let dir = tempfile::tempdir().unwrap();
    fill(&options(8 << 20).open(dir.path()).unwrap());
    for driver in DRIVERS {
        let db = options(1 << 20).read_by(driver).direct_reads(true).open(dir.path()).unwrap();
        let partition = db.default_partition();
        let mut rng = Rng::with_seed(1);
        let mut kept = Vec::new();
        for _ in 0..200 {
            let from = key(rng.u64(..KEYS));
            let mut range = partition.range(from.as_str()..);
            if rng.bool() {
                range = range.expect_entries(rng.u64(..2_000));
            }
            for _ in 0..rng.usize(..2_000) {
                if range.next_entry().unwrap().is_none() {
                    break;
                }
            }
            if rng.u8(..10) == 0 {
                kept.push(range);
            }
        }
        let stats = db.stats();
        assert!(stats.cache_bytes <= stats.cache_capacity_bytes);
        // Close waits for what is in flight, and the scans that are left end.
        drop(partition);
        db.close().unwrap();
        for mut range in kept {
            if let Some(Err(error)) = range.next() {
                assert_eq!(error.kind(), ErrorKind::Closed);
            }
        }
    }
}
