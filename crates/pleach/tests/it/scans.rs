//! Reads of scans: the blocks of all runs are read at once, on every driver, and no order in which reads end changes an
//! entry.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{Fault, FaultKind, SimEnv};
use pleach::{Db, ErrorKind, Options, Range, ReadDriver, Shape};

use crate::rig::setup::DIR;

const DRIVERS: [ReadDriver; 3] = [ReadDriver::Ring, ReadDriver::Threads, ReadDriver::Blocking];

/// More than the smallest cache holds.
const KEYS: u64 = 6_000;
const RUNS: u64 = 8;

type Model = BTreeMap<String, Vec<u8>>;

fn key(n: u64) -> String {
    format!("user{n:06}")
}

/// Runs that each hold keys from everywhere, with overwritten and deleted ones. What the store holds.
fn fill(db: &Db) -> Model {
    let partition = db.default_partition();
    let mut model = Model::new();
    for run in 0..RUNS {
        let round = u8::try_from(run).unwrap();
        for n in (0..KEYS).filter(|n| n % RUNS == run || n % 97 == run) {
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

/// A machine with a store of eight runs, opened anew so that no block is cached.
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
            let db = options(1 << 20).direct_reads(direct).read_driver(driver).open(dir.path()).unwrap();
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
