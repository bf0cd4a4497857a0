//! Every form of read returns separated values, wherever they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pleach::env::{RealEnv, SimEnv, SlowEnv};
use pleach::{Db, Durability, ErrorKind, Options, ReadDriver, ReadOptions, Result, Value};

use super::{SEPARATED, check, fill, key, open, options, value};
use crate::rig::setup::DIR;
use crate::rig::tasks::block_on;
use crate::rig::tuning;

type Entry = (Vec<u8>, Vec<u8>);

fn owned(entry: Result<(pleach::Key, Value)>) -> Entry {
    entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
}

/// Compares all forms of reads of the default partition with `model`.
pub(super) fn compare(db: &Db, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let partition = db.default_partition();
    let keys: Vec<_> = model.keys().cloned().chain([b"missing".to_vec()]).collect();
    let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
    let gets = keys.iter().map(|key| partition.get(key).unwrap().map(|value| value.to_vec()));
    assert!(gets.eq(expected.iter().cloned()));
    let plain = |values: Vec<Option<Value>>| -> Vec<Option<Vec<u8>>> {
        values.into_iter().map(|value| value.map(|value| value.to_vec())).collect()
    };
    assert_eq!(plain(partition.get_many(&keys).unwrap()), expected);
    assert_eq!(plain(block_on(partition.get_many_async(&keys)).unwrap()), expected);
    let slow = ReadOptions::default().timeout(Duration::from_secs(60));
    let by_futures = keys.iter().map(|key| block_on(partition.get_async_with(key, &slow)).unwrap());
    assert_eq!(plain(by_futures.collect()), expected);
    let entries: Vec<Entry> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert!(partition.iter().map(owned).eq(entries.iter().cloned()));
    assert!(partition.iter().rev().map(owned).eq(entries.iter().rev().cloned()));
    let mut both = partition.iter();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    while let Some(entry) = both.next() {
        first.push(owned(entry));
        last.extend(both.next_back().map(owned));
    }
    first.extend(last.into_iter().rev());
    assert_eq!(first, entries, "from both ends until they meet");
    let (mut lent, mut up, mut down) = (Vec::new(), partition.iter(), partition.iter());
    while let Some((key, value)) = up.next_entry().unwrap() {
        lent.push((key.to_vec(), value.to_vec()));
        let (key, value) = down.next_back_entry().unwrap().unwrap();
        lent.push((key.to_vec(), value.to_vec()));
    }
    let pairs = entries.iter().zip(entries.iter().rev()).flat_map(|(up, down)| [up, down]);
    assert!(lent.iter().eq(pairs), "lent entries");
    for is_back in [false, true] {
        let mut chunks =
            if is_back { partition.iter().into_chunks_back(7) } else { partition.iter().into_chunks(7) };
        let mut found: Vec<Entry> = Vec::new();
        while let Some(chunk) = block_on(chunks.next_chunk()).unwrap() {
            found.extend(chunk.into_iter().map(|(key, value)| (key.into_vec(), value.into_vec())));
        }
        if is_back {
            found.reverse();
        }
        assert_eq!(found, entries, "chunks");
    }
}

/// Lengths around the threshold, overwritten by other lengths and deleted, in SSTs, memtables and both.
pub(super) fn mixed(db: &Db, model: &mut BTreeMap<Vec<u8>, Vec<u8>>, lens: &[usize]) {
    let partition = db.default_partition();
    for round in 0..3 {
        for number in (0..120).filter(|number| round == 0 || number % 5 == round) {
            let mut batch = db.batch();
            for (place, len) in lens.iter().enumerate() {
                let name = key(number * 10 + place as u64).into_bytes();
                if round > 0 && number % 3 == 0 {
                    batch.delete(&partition, &name);
                    model.remove(&name);
                } else {
                    let with = value(
                        number,
                        round,
                        lens[(place + usize::try_from(round).unwrap()) % lens.len()].max(*len),
                    );
                    batch.put(&partition, &name, &with);
                    model.insert(name, with);
                }
            }
            batch.commit(Durability::Buffered).unwrap();
        }
        if round < 2 {
            db.flush().unwrap();
        }
    }
}

pub(super) const LENS: [usize; 5] = [0, SEPARATED - 1, SEPARATED, SEPARATED + 1, 3000];

/// Compares what lies in memtables, what a recovery has made of the log, and what is flushed and merged.
pub(super) fn compare_after_recovery_and_flush(
    db: Db,
    open: impl Fn() -> Db,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Db {
    compare(&db, model);
    drop(db);
    let db = open();
    compare(&db, model);
    db.settle().unwrap();
    compare(&db, model);
    db
}

#[test]
fn all_reads_find_separated_values() {
    for driver in [ReadDriver::Threads, ReadDriver::Blocking] {
        for direct in [false, true] {
            let env = SimEnv::new(1);
            let open = || options(&env).read_driver(driver).direct_reads(direct).open(DIR).unwrap();
            let (db, mut model) = (open(), BTreeMap::new());
            mixed(&db, &mut model, &LENS);
            let db = compare_after_recovery_and_flush(db, open, &model);
            assert!(db.stats().values > 0);
            let report = db.verify().unwrap();
            let separated = model.values().filter(|value| value.len() >= SEPARATED).count();
            assert_eq!(report.values, separated as u64);
            db.compact().unwrap();
            compare(&db, &model);
        }
    }
}

#[test]
fn values_below_the_threshold_stay_in_ssts() {
    let env = SimEnv::new(1);
    let db = open(&env);
    fill(&db.default_partition(), 50, 0, SEPARATED - 1);
    db.flush().unwrap();
    assert_eq!((db.stats().values, db.stats().value_files), (0, 0));
    fill(&db.default_partition(), 50, 1, SEPARATED);
    db.flush().unwrap();
    let bytes = 50 * (SEPARATED as u64 + 4);
    assert_eq!((db.stats().values, db.stats().value_bytes), (50, bytes));
    check(&db.default_partition(), 50, 1, SEPARATED);
}

#[test]
fn the_threshold_may_change_with_each_open() {
    let env = SimEnv::new(1);
    let mut values = [0, 100, 0, 500, 50].into_iter().enumerate().map(|(round, separate_at)| {
        let db = options(&env).separate_at(separate_at).open(DIR).unwrap();
        let partition = db.default_partition();
        if round > 0 {
            check(&partition, 60, round as u64 - 1, 300);
        }
        fill(&partition, 60, round as u64, 300);
        db.flush().unwrap();
        check(&partition, 60, round as u64, 300);
        db.compact().unwrap();
        check(&partition, 60, round as u64, 300);
        db.verify().unwrap();
        db.stats().values
    });
    assert_eq!([values.next(), values.next(), values.next()], [Some(0), Some(60), Some(0)]);
    assert_eq!([values.next(), values.next()], [Some(0), Some(60)]);
}

/// Values that have a memory region and log calls of their own, below and above the threshold.
#[test]
fn large_values_are_separated_too() {
    for separate_at in [300, 5000] {
        let env = SimEnv::new(1);
        let open = || {
            let options = options(&env).separate_at(separate_at).memtable_bytes(256 << 10);
            options.thresholds(tuning::of("tune.large_values")).open(DIR).unwrap()
        };
        let (db, mut model) = (open(), BTreeMap::new());
        mixed(&db, &mut model, &[10, 400, 1000, 4999, 5000, 9000]);
        let db = compare_after_recovery_and_flush(db, open, &model);
        db.verify().unwrap();
    }
}

/// Of 4 MiB, which is the length from which on a value has a region by default.
#[test]
fn values_of_mebibytes_are_separated() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Options::new().memory(64 << 20).separate_at(1000).open(dir.path()).unwrap();
    let db = open();
    let partition = db.default_partition();
    fill(&partition, 3, 0, 4 << 20);
    partition.put("small", "value").unwrap();
    check_prefix(&db);
    db.flush().unwrap();
    assert_eq!(db.stats().values, 3);
    check_prefix(&db);
    drop((partition, db));
    check_prefix(&open());
}

fn check_prefix(db: &Db) {
    let partition = db.default_partition();
    for number in 0..3 {
        assert_eq!(partition.get(key(number)).unwrap().unwrap()[..], value(number, 0, 4 << 20)[..]);
    }
    assert_eq!(partition.iter().count(), 4);
}

#[test]
fn a_store_is_read_without_a_change() {
    let env = SimEnv::new(1);
    let (db, mut model) = (open(&env), BTreeMap::new());
    mixed(&db, &mut model, &LENS);
    drop(db);
    let ops = env.op_count();
    env.set_read_only(true);
    let readers = [(); 2].map(|()| options(&env).separate_at(0).read_only(true).open(DIR).unwrap());
    for db in &readers {
        compare(db, &model);
        db.verify().unwrap();
    }
    drop(readers);
    assert_eq!(env.op_count(), ops, "nothing was written");
}

/// Futures of separated values, given up at any place, beside others that go on.
#[test]
fn futures_are_dropped_and_forgotten() {
    let env = SimEnv::new(1);
    let (db, mut model) = (open(&env), BTreeMap::new());
    mixed(&db, &mut model, &LENS);
    drop(db);
    let db = open(&env);
    let partition = db.default_partition();
    let mut rng = fastrand::Rng::with_seed(1);
    let waker = std::task::Waker::noop();
    for (key, expected) in &model {
        let mut dropped = partition.get_async(key);
        for _ in 0..rng.u8(..4) {
            let polled = std::pin::Pin::new(&mut dropped).poll(&mut std::task::Context::from_waker(waker));
            if polled.is_ready() {
                break;
            }
        }
        if rng.u8(..8) == 0 {
            std::mem::forget(dropped);
        } else {
            drop(dropped);
        }
        assert_eq!(block_on(partition.get_async(key)).unwrap().as_deref(), Some(&**expected));
    }
    db.close().unwrap();
    assert_eq!(partition.get(key(0)).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(block_on(partition.get_async(key(0))).unwrap_err().kind(), ErrorKind::Closed);
}

/// The blocks are cached, and only the values are read.
#[test]
fn a_device_that_does_not_answer_ends_each_read_of_a_value_at_its_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let env = Arc::new(SlowEnv::new(Arc::new(RealEnv::new()), 16));
    let options = Options::new().memory(8 << 20).separate_at(SEPARATED).read_driver(ReadDriver::Threads);
    let db = options.env(Arc::<SlowEnv>::clone(&env)).open(dir.path()).unwrap();
    let partition = db.default_partition();
    fill(&partition, 20, 0, 1000);
    db.flush().unwrap();
    // The block of all pointers, and another value.
    partition.get(key(4)).unwrap();
    let latency = Duration::from_millis(500);
    env.set_latency(latency);
    let options = ReadOptions::new().timeout(Duration::from_millis(20));
    let forms: [&dyn Fn() -> Result<Option<Value>>; 4] = [
        &|| partition.get_with(key(3), &options),
        &|| partition.get_many_with([key(3)], &options).map(|mut many| many.remove(0)),
        &|| block_on(partition.get_async_with(key(3), &options)),
        &|| block_on(partition.get_many_async_with([key(3)], &options)).map(|mut many| many.remove(0)),
    ];
    for form in forms {
        let began = Instant::now();
        match form() {
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
            Ok(_) => assert!(began.elapsed() >= latency, "a busy machine"),
        }
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
    env.set_latency(Duration::ZERO);
    check(&partition, 20, 0, 1000);
    db.close().unwrap();
}

/// What was read before a close or a drop of the partition stays.
#[test]
fn values_outlive_their_store() {
    let env = SimEnv::new(1);
    let db = open(&env);
    fill(&db.default_partition(), 20, 0, 1000);
    db.flush().unwrap();
    let found = db.default_partition().get(key(7)).unwrap().unwrap();
    let shared = Arc::new(found);
    db.close().unwrap();
    assert_eq!(shared[..], value(7, 0, 1000)[..]);
}
