//! Reads of many keys: on every driver they answer as single reads do, and read each block once.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{Fault, FaultKind, SimEnv};
use pleach::limits::KEY_LEN_MAX;
use pleach::{ErrorKind, ReadDriver};

use super::{KEYS, RUNS, fill, key, machine, options, some_keys};
use crate::rig::read_drivers::{DRIVERS, ReadBy, are_rings_refused, may_be_chosen, may_be_refused};
use crate::rig::setup::DIR;
use crate::rig::tasks::block_on;

#[test]
fn many_keys_are_answered_as_single_ones_on_every_driver() {
    for (compressed, direct) in [(false, false), (true, false), (false, true), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        fill(&options(8 << 20).compression(compressed).open(dir.path()).unwrap());
        for driver in DRIVERS {
            let db = options(1 << 20).direct_reads(direct).read_by(driver).open(dir.path()).unwrap();
            assert!(may_be_chosen(db.stats().read_driver, driver));
            let partition = db.default_partition();
            (0..KEYS).step_by(17).for_each(|n| partition.put(key(n), "in the memtable").unwrap());
            let snapshot = db.snapshot();
            let mut rng = Rng::with_seed(7);
            for count in [0, 1, 2, 3, 100, 129, 3000] {
                let keys = some_keys(&mut rng, count);
                let many = partition.get_many(&keys).unwrap();
                assert_eq!(many.len(), count);
                for (key, found) in keys.iter().zip(&many) {
                    let single = partition.get(key).unwrap();
                    assert_eq!(found.as_deref(), single.as_deref(), "{driver:?} {compressed} {direct} {key}");
                }
                assert_eq!(many, snapshot.get_many(&partition, &keys).unwrap());
            }
            let too_long = vec![0; KEY_LEN_MAX + 1];
            assert_eq!(
                partition.get_many([b"a", &too_long[..]]).unwrap_err().kind(),
                ErrorKind::InvalidArgument
            );
        }
    }
}

#[test]
fn neighbouring_blocks_are_read_at_once() {
    let env = SimEnv::new(1);
    let options = options(8 << 20).env(Arc::<SimEnv>::clone(&env));
    let db = options.clone().open(DIR).unwrap();
    let partition = db.default_partition();
    (0..128u32).for_each(|n| partition.put(format!("key{n:03}"), [1; 200]).unwrap());
    db.close().unwrap();
    let db = options.clone().open(DIR).unwrap();
    let partition = db.default_partition();
    db.flush().unwrap();
    let before = env.read_count();
    let keys: Vec<_> = (0..128).map(|n| format!("key{n:03}")).collect();
    assert!(partition.get_many(&keys).unwrap().iter().all(Option::is_some));
    let reads = env.read_count() - before;
    assert_eq!(reads, 1, "128 x 200 bytes in neighbouring blocks of 4 KiB");
    assert!(partition.get_many(&keys).unwrap().iter().all(Option::is_some));
    assert_eq!(env.read_count(), before + reads, "all is cached now");
}

#[test]
fn the_order_in_which_reads_end_changes_no_answer() {
    let mut answers = Vec::new();
    for seed in 0..6 {
        let (_env, db) = machine(seed);
        let keys = some_keys(&mut Rng::with_seed(3), 2000);
        answers.push(db.default_partition().get_many(&keys).unwrap());
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_read_that_fails_is_an_error_and_the_next_call_answers() {
    let (env, db) = machine(1);
    let partition = db.default_partition();
    let keys = some_keys(&mut Rng::with_seed(5), 300);
    let expected = partition.get_many(&keys).unwrap();
    let mut failed = 0;
    for nth in 0..60 {
        drop(db.clone());
        let other = some_keys(&mut Rng::with_seed(100 + nth), 50);
        env.add_fault(Fault { at_op: env.read_count() + nth % 20, kind: FaultKind::ReadEio });
        match partition.get_many(&other) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io);
                assert_eq!(error.path().and_then(Path::extension).unwrap(), "sst");
                failed += 1;
            }
        }
        env.clear_faults();
        assert_eq!(partition.get_many(&keys).unwrap(), expected);
    }
    assert!(failed > 5, "{failed} calls failed");
    assert!(db.stats().poisoned.is_none());
}

/// Those in flight end; the blocks that wait are not read.
#[test]
fn no_read_is_begun_after_one_has_failed() {
    let (env, db) = machine(1);
    let before = env.read_count();
    env.add_fault(Fault { at_op: before, kind: FaultKind::ReadEio });
    let error = db.default_partition().get_many((0..KEYS).map(key)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let reads = env.read_count() - before;
    assert!((2..=128).contains(&reads), "{reads} reads");
}

/// Also if the future is kept. Tasks read by themselves here, in an order of the seed, so one reads for another.
#[test]
fn a_future_that_has_failed_wants_no_further_block() {
    let (env, db) = machine(1);
    let partition = db.default_partition();
    env.add_fault(Fault { at_op: env.read_count(), kind: FaultKind::ReadEio });
    let mut failed = partition.get_many_async((0..100).map(key));
    assert_eq!(block_on(&mut failed).unwrap_err().kind(), ErrorKind::Io);
    let before = env.read_count();
    assert!(block_on(partition.get_async(key(KEYS - 1))).is_ok());
    let reads = env.read_count() - before;
    assert!(reads <= RUNS.into(), "{reads} reads of one key");
    drop(failed);
}

#[test]
fn where_rings_are_refused_threads_read() {
    let dir = tempfile::tempdir().unwrap();
    fill(&options(8 << 20).open(dir.path()).unwrap());
    let opened = options(8 << 20).open(dir.path()).unwrap();
    let chosen = opened.stats().read_driver;
    drop(opened);
    let forced = options(8 << 20).read_driver(ReadDriver::Ring).open(dir.path());
    if are_rings_refused() {
        assert_eq!(chosen, ReadDriver::Threads);
        assert_eq!(forced.unwrap_err().kind(), ErrorKind::Io);
    } else if !may_be_refused(ReadDriver::Ring) {
        assert_eq!(chosen, forced.unwrap().stats().read_driver);
    }
}
