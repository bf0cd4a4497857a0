//! A block in flight is read once, however many reads of whatever kind want it, on every driver.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::thread;

use pleach::env::{Clients, SimEnv};
use pleach::{Db, Options, Partition, ReadDriver};

use super::{KEYS, key, machine, newest_key, options, run_all, value};
use crate::rig::read_drivers::{DRIVERS, ReadBy};
use crate::rig::setup::DIR;
use crate::rig::tasks::{Panics, block_on};

/// Blocks that are wanted.
const BLOCKS: usize = 8;

/// A key in a block of its own, and far from the others.
fn lone_key(n: usize) -> String {
    format!("key{:03}", n * 10)
}

/// Reads that keep the blocks busy: so many of each.
const EACH: usize = 16;

fn all_keys() -> Vec<String> {
    (0..EACH * BLOCKS).map(|n| lone_key(n % BLOCKS)).collect()
}

/// A store whose entries each have a block, opened again.
fn opened(options: &Options, dir: &std::path::Path) -> Db {
    let db = options.clone().open(dir).unwrap();
    assert_eq!(db.stats().lookup_reads, 0);
    db
}

fn get_each(partition: &Partition) {
    assert!(all_keys().iter().all(|key| partition.get(key).unwrap().is_some()));
}

fn get_many(partition: &Partition) {
    assert!(partition.get_many(all_keys()).unwrap().iter().all(Option::is_some));
}

fn get_async(partition: &Partition) {
    let futures = all_keys().into_iter().map(|key| (0, partition.get_async(key))).collect();
    assert!(run_all(futures, 1, None).into_iter().all(|(_, answer)| answer.unwrap().is_some()));
}

fn get_many_async(partition: &Partition) {
    assert!(block_on(partition.get_many_async(all_keys())).unwrap().iter().all(Option::is_some));
}

const FORMS: [fn(&Partition); 4] = [get_each, get_many, get_async, get_many_async];

#[test]
fn gets_of_eight_blocks_make_eight_reads_on_every_driver() {
    let dir = tempfile::tempdir().unwrap();
    for (compressed, direct) in [(false, false), (true, true)] {
        let options = options(8 << 20).direct_reads(direct).separate_at(0);
        let db = options.clone().compression(compressed).open(dir.path()).unwrap();
        for n in 0..10 * BLOCKS {
            let mut value = vec![0; 3000];
            fastrand::Rng::with_seed(n as u64).fill(&mut value);
            db.default_partition().put(format!("key{n:03}"), value).unwrap();
        }
        db.flush().unwrap();
        db.compact().unwrap();
        db.close().unwrap();
        for driver in DRIVERS {
            let options = options.clone().read_by(driver);
            for form in FORMS {
                let db = opened(&options, dir.path());
                form(&db.default_partition());
                assert_eq!(db.stats().lookup_reads, BLOCKS as u64, "{driver:?}");
                form(&db.default_partition());
                assert_eq!(db.stats().lookup_reads, BLOCKS as u64, "{driver:?}: all is cached now");
            }
            for _ in 0..10 {
                let db = opened(&options, dir.path());
                let (partition, barrier) = (db.default_partition(), Barrier::new(2 * FORMS.len()));
                thread::scope(|scope| {
                    for form in FORMS.into_iter().chain(FORMS) {
                        let (partition, barrier) = (&partition, &barrier);
                        scope.spawn(move || {
                            barrier.wait();
                            form(partition);
                        });
                    }
                });
                assert_eq!(db.stats().lookup_reads, BLOCKS as u64, "{driver:?}, all at once");
            }
        }
    }
}

/// Polls without end: each poll is a point where other clients may run.
fn spin<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}

#[test]
fn clients_that_want_one_block_share_its_read_in_every_order() {
    for seed in 0..25 {
        let (env, db) = machine(seed);
        let n = newest_key();
        let before = env.read_count();
        let mut clients = Clients::new();
        for (name, form) in [("get", 0), ("get_many", 1), ("get_async", 2), ("get_many_async", 3)] {
            for _ in 0..2 {
                let partition = db.default_partition();
                clients.add(name, move || {
                    let found = match form {
                        0 => partition.get(key(n)).unwrap(),
                        1 => partition.get_many([key(n), key(n)]).unwrap().remove(1),
                        2 => spin(partition.get_async(key(n))).unwrap(),
                        _ => spin(partition.get_many_async([key(n), key(n)])).unwrap().remove(1),
                    };
                    assert_eq!(found.as_deref(), Some(&value(n, 3)[..]));
                });
            }
        }
        env.run_clients(seed, clients);
        assert_eq!(env.read_count() - before, 1, "seed {seed}");
    }
}

#[test]
fn a_read_that_nobody_wants_any_more_is_not_made() {
    let (env, db): (Arc<SimEnv>, Db) = machine(1);
    let (partition, n) = (db.default_partition(), newest_key());
    let before = env.read_count();
    let mut future = partition.get_async(key(n));
    assert!(Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(future);
    assert!(block_on(partition.get_async(key(n + 4))).unwrap().is_some());
    assert_eq!(env.read_count() - before, 1, "only that of the second key");
    assert!(partition.get(key(n)).unwrap().is_some());
    assert_eq!(env.read_count() - before, 2);
}

/// Tasks read by themselves here, in an order of the seed, so one reads for another.
#[test]
fn a_block_that_is_read_when_nobody_wants_it_any_more_is_cached_and_counted_as_wasted() {
    let (env, db) = machine(1);
    let (partition, n) = (db.default_partition(), newest_key());
    let before = env.read_count();
    let mut unwanted = partition.get_async(key(n));
    assert!(Pin::new(&mut unwanted).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let others = (1..).map(|other| n + 400 * other);
    let made = others.zip(1..).find_map(|(other, count)| {
        assert!(block_on(partition.get_async(key(other))).is_ok());
        let made = env.read_count() - before;
        (made > count).then_some(made)
    });
    assert_eq!(db.stats().wasted_reads, 0);
    drop(unwanted);
    assert_eq!(db.stats().wasted_reads, 1);
    assert!(partition.get(key(n)).unwrap().is_some());
    assert_eq!(Some(env.read_count() - before), made);
}

#[test]
fn a_block_that_nobody_wanted_is_evicted_before_those_that_were_used() {
    let (env, db) = machine(1);
    db.close().unwrap();
    let db = options(1 << 20).env(Arc::<SimEnv>::clone(&env)).open(DIR).unwrap();
    let partition = db.default_partition();
    let gets = |keys: &[String]| {
        let before = env.read_count();
        assert!(keys.iter().all(|key| partition.get(key).unwrap().is_some()));
        env.read_count() - before
    };
    // In blocks of their own.
    let keys: Vec<_> = (0..KEYS).filter(|n| n % 4 == 3 && n % 11 != 3).step_by(20).map(key).collect();
    let (used, keys) = keys.split_at(10);
    assert_eq!(gets(used), 10);
    let (unwanted, helpers) = keys.split_at(10);
    let mut futures: Vec<_> = unwanted.iter().map(|key| partition.get_async(key)).collect();
    for future in &mut futures {
        assert!(Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    // Tasks read by themselves here, and one for another.
    let before = env.read_count();
    let mut helpers = (1..).zip(helpers);
    assert!(helpers.any(|(count, key)| {
        assert!(block_on(partition.get_async(key)).unwrap().is_some());
        env.read_count() - before == 10 + count
    }));
    drop(futures);
    assert_eq!(db.stats().wasted_reads, 10);
    let mut others = (0..KEYS).filter(|n| n % 4 < 3).map(key);
    let is_full = || db.stats().cache_bytes == db.stats().cache_capacity_bytes;
    while !is_full() {
        partition.get(others.next().unwrap()).unwrap();
    }
    // A full cache admits what is read a second time.
    for key in others.take(2) {
        (0..2).for_each(|_| drop(partition.get(&key).unwrap()));
    }
    let (used, unwanted) = (gets(used), gets(unwanted));
    assert!(used == 0 && unwanted > 0, "{used} used ones and {unwanted} others were evicted");
}

#[test]
fn a_waker_that_panics_leaves_no_other_asleep() {
    let dir = tempfile::tempdir().unwrap();
    super::fill(&options(8 << 20).open(dir.path()).unwrap());
    for driver in [ReadDriver::Ring, ReadDriver::Threads] {
        for n in (3..200).step_by(44) {
            let db = options(8 << 20).read_by(driver).open(dir.path()).unwrap();
            let partition = db.default_partition();
            let mut first = partition.get_async(key(n));
            let second = partition.get_async(key(n));
            let waker = Waker::from(Arc::new(Panics));
            let polled = Pin::new(&mut first).poll(&mut Context::from_waker(&waker));
            assert!(block_on(second).unwrap().is_some() == (n % 11 != 3));
            assert!(polled.is_ready() || block_on(first).unwrap().is_some() == (n % 11 != 3));
            drop(partition);
            db.close().unwrap();
        }
    }
}
