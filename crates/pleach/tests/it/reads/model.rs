//! Model test of point reads: random stores and random reads, of every form, policy and driver, from several clients and
//! among faults. Answers are those of a map, whatever the order in which reads end. A read fails only if the device failed.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use pleach::env::{Clients, Fault, FaultKind, SimEnv};
use pleach::{Db, ErrorKind, Options, Partition, ReadOptions, ReadPolicy, Result, Shape, Value};

use crate::rig::read_drivers::{DRIVERS, ReadBy, may_be_chosen};
use crate::rig::setup::DIR;
use crate::rig::vars;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Stores for each driver.
const STORES: u64 = 6;

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("key{:03}", rng.u32(..400)).into_bytes()
}

fn options(rng: &mut Rng) -> Options {
    Options::new()
        .memory(1 << rng.u32(20..23))
        .shape(if rng.bool() { Shape::Forest } else { Shape::ForestOverBottom })
        .runs_per_stage(rng.usize(2..24))
        .compression(rng.bool())
        .filter_bits_per_key([0.0, 2.0, 10.0][rng.usize(..3)])
}

/// Runs with random entries, the last ones in the memtable.
fn fill(db: &Db, rng: &mut Rng) -> Model {
    let (partition, mut model) = (db.default_partition(), Model::new());
    for run in 0..rng.u8(1..20) {
        for _ in 0..rng.u32(1..200) {
            let key = key(rng);
            if rng.u8(..5) == 0 {
                partition.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = vec![run; rng.usize(..700)];
                partition.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        db.flush().unwrap();
    }
    for _ in 0..5 {
        let key = key(rng);
        partition.put(&key, "memtable").unwrap();
        model.insert(key, b"memtable".to_vec());
    }
    model
}

/// Options of a read, and whether they limit its time.
fn read_options(rng: &mut Rng) -> (ReadOptions, bool) {
    let policies = [
        ReadPolicy::Auto,
        ReadPolicy::Serial,
        ReadPolicy::FixedCount(rng.u32(..20)),
        ReadPolicy::PriorityAware,
    ];
    let options = ReadOptions::new().policy(policies[rng.usize(..4)]).fill_cache(rng.bool());
    if rng.u8(..4) == 0 { (options.timeout(Duration::from_secs(3600)), true) } else { (options, false) }
}

/// Polls without end, which lets other clients run.
fn spin<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        std::thread::yield_now();
    }
}

/// One read, of one form; the keys and what was read.
fn read(
    db: &Db,
    partition: &Partition,
    options: &ReadOptions,
    rng: &mut Rng,
) -> (Vec<Vec<u8>>, Result<Vec<Option<Value>>>) {
    let count = [1, 2, 30, 300][rng.usize(..4)];
    let keys: Vec<_> = (0..count).map(|_| key(rng)).collect();
    let single = || (keys[..1].to_vec(), &keys[0]);
    match rng.u8(..8) {
        0 => (single().0, partition.get_with(single().1, options).map(|found| vec![found])),
        1 => (single().0, db.snapshot().get_with(partition, single().1, options).map(|found| vec![found])),
        2 => (single().0, spin(partition.get_async_with(single().1, options)).map(|found| vec![found])),
        3 => (keys.clone(), spin(partition.get_many_async_with(&keys, options))),
        4 => {
            let future = db.snapshot().get_async_with(partition, single().1, options);
            (single().0, spin(future).map(|found| vec![found]))
        }
        5 => (keys.clone(), spin(db.snapshot().get_many_async_with(partition, &keys, options))),
        6 => (keys.clone(), db.snapshot().get_many_with(partition, &keys, options)),
        _ => (keys.clone(), partition.get_many_with(&keys, options)),
    }
}

fn check(model: &Model, keys: &[Vec<u8>], found: &[Option<Value>], context: &str) {
    assert_eq!(keys.len(), found.len());
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.as_deref(), model.get(key).map(Vec::as_slice), "{context}: {}", key.escape_ascii());
    }
}

/// A simulated machine with a store, opened again.
fn machine(seed: u64, rng: &mut Rng) -> (Arc<SimEnv>, Db, Model) {
    let env = SimEnv::new(seed);
    let options = options(rng).env(Arc::<SimEnv>::clone(&env));
    let db = options.clone().open(DIR).unwrap();
    let model = fill(&db, rng);
    db.close().unwrap();
    let db = options.open(DIR).unwrap();
    (env, db, model)
}

#[test]
fn reads_among_faults_answer_as_a_map_does_or_fail_with_the_device() {
    let (mut failed, mut answered) = (0, 0);
    for store in 0..STORES {
        let seed = vars::seed().wrapping_add(store);
        let mut rng = Rng::with_seed(seed);
        let (env, db, model) = machine(seed, &mut rng);
        let partition = db.default_partition();
        for number in 0..150 {
            let kinds = [FaultKind::ReadEio, FaultKind::ReadShort, FaultKind::ReadAgain];
            let mut has_eio = false;
            for _ in 0..[0, 0, 1, 8][rng.usize(..4)] {
                let kind = kinds[rng.usize(..3)];
                has_eio |= kind == FaultKind::ReadEio;
                env.add_fault(Fault { at_op: env.read_count() + rng.u64(..12), kind });
            }
            let (options, _) = read_options(&mut rng);
            let (keys, found) = read(&db, &partition, &options, &mut rng);
            match found {
                Ok(found) => {
                    check(&model, &keys, &found, &format!("seed {seed}, read {number}"));
                    answered += 1;
                }
                Err(error) => {
                    assert!(has_eio && error.kind() == ErrorKind::Io, "seed {seed}, read {number}: {error}");
                    failed += 1;
                }
            }
            env.clear_faults();
        }
        drop(partition);
        db.close().unwrap();
    }
    println!("{answered} answered, {failed} failed");
}

#[test]
fn reads_of_clients_in_every_order_answer_as_a_map_does() {
    for store in 0..STORES {
        let seed = vars::seed().wrapping_add(100 + store);
        let mut rng = Rng::with_seed(seed);
        let (env, db, model) = machine(seed, &mut rng);
        let (model, mut clients) = (Arc::new(model), Clients::new());
        for number in 0..3 {
            let (db, model, mut rng) = (db.clone(), Arc::clone(&model), rng.fork());
            clients.add(&format!("reader {number}"), move || {
                for _ in 0..20 {
                    let (options, has_timeout) = read_options(&mut rng);
                    let context = format!("seed {seed}, reader {number}");
                    match read(&db, &db.default_partition(), &options, &mut rng) {
                        (keys, Ok(found)) => check(&model, &keys, &found, &context),
                        // The scheduler may end any wait that has a timeout.
                        (_, Err(error)) => {
                            let may_fail = has_timeout && error.kind() == ErrorKind::TimedOut;
                            assert!(may_fail, "{context}: {error}");
                        }
                    }
                }
            });
        }
        env.run_clients(seed, clients);
        db.close().unwrap();
    }
}

#[test]
fn reads_of_threads_answer_as_a_map_does_on_every_driver() {
    for (driver, store) in
        DRIVERS.into_iter().flat_map(|driver| (0..STORES).map(move |store| (driver, store)))
    {
        let seed = vars::seed().wrapping_add(200 + store);
        let mut rng = Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let options = options(&mut rng).read_by(driver).direct_reads(rng.bool());
        let db = options.clone().open(dir.path()).unwrap();
        let model = fill(&db, &mut rng);
        db.close().unwrap();
        let db = options.open(dir.path()).unwrap();
        assert!(may_be_chosen(db.stats().read_driver, driver));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (db, model, mut rng) = (&db, &model, rng.fork());
                scope.spawn(move || {
                    for _ in 0..40 {
                        let (options, _) = read_options(&mut rng);
                        let (keys, found) = read(db, &db.default_partition(), &options, &mut rng);
                        check(model, &keys, &found.unwrap(), &format!("seed {seed}, {driver:?}"));
                    }
                });
            }
        });
        let before = db.stats();
        assert!(before.cache_bytes <= before.cache_capacity_bytes);
        db.close().unwrap();
    }
}
