//! Point reads that keep several blocks in flight: a store whose blocks are in SSTs, and what polls many futures.

mod async_gets;
mod get_many;
mod model;
mod policies;
mod progress;
mod sharing;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use fastrand::Rng;
use pleach::env::SimEnv;
use pleach::{Db, GetFuture, Options, Partition, Result, Shape, Value};

use crate::rig::setup::DIR;
use crate::rig::tasks::{Unpark, block_on};

/// More than the smallest cache holds.
const KEYS: u64 = 6_000;

/// Runs that [`fill`] makes.
const RUNS: u8 = 4;

fn key(n: u64) -> String {
    format!("user{:08}", n * 7_919 % 1_000_003)
}

/// The value of a key in the run of a round.
fn value(n: u64, round: u8) -> Vec<u8> {
    vec![round; 200 + usize::try_from(n % 300).unwrap()]
}

/// Several runs, with overwritten and deleted keys. Key `n` is in the first `n % 4 + 1` of them.
fn fill(db: &Db) {
    let partition = db.default_partition();
    for round in 0..RUNS {
        for n in (0..KEYS).filter(|n| n % 4 >= u64::from(round)) {
            if n % 11 == u64::from(round) {
                partition.delete(key(n)).unwrap();
            } else {
                partition.put(key(n), value(n, round)).unwrap();
            }
        }
        db.flush().unwrap();
    }
}

/// A key of [`fill`] with a value in the newest run.
fn newest_key() -> u64 {
    (0..KEYS).find(|n| n % 4 == 3 && n % 11 != 3).unwrap()
}

fn options(memory: usize) -> Options {
    Options::new().memory(memory).memtable_bytes(4 << 20).shape(Shape::Forest).runs_per_stage(8)
}

/// A machine with a store whose blocks are all in SSTs, opened again so that none is cached.
fn machine(seed: u64) -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(seed);
    let options = options(8 << 20).env(Arc::<SimEnv>::clone(&env));
    let db = options.clone().open(DIR).unwrap();
    fill(&db);
    db.close().unwrap();
    (env, options.open(DIR).unwrap())
}

/// Polls futures in an order of the seed until all are ready; drops or forgets one in `drops` before.
fn run_all(
    mut futures: Vec<(u64, GetFuture)>,
    seed: u64,
    drops: Option<u64>,
) -> Vec<(u64, Result<Option<Value>>)> {
    let mut rng = Rng::with_seed(seed);
    let waker = Waker::from(Unpark::new());
    let mut ended = Vec::new();
    while !futures.is_empty() {
        let at = rng.usize(..futures.len());
        match Pin::new(&mut futures[at].1).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => ended.push((futures.swap_remove(at).0, answer)),
            Poll::Pending if drops.is_some_and(|one_in| rng.u64(..one_in) == 0) => {
                let (_, future) = futures.swap_remove(at);
                if rng.bool() {
                    drop(future);
                } else {
                    std::mem::forget(future);
                }
            }
            Poll::Pending => thread::yield_now(),
        }
    }
    ended
}

/// Reads of keys of which some are absent.
fn started(partition: &Partition, rng: &mut Rng, count: usize) -> Vec<(u64, GetFuture)> {
    let numbers = (0..count).map(|_| rng.u64(..KEYS + KEYS / 10));
    numbers.map(|n| (n, partition.get_async(key(n)))).collect()
}

/// Keys in any order, some twice, some absent.
fn some_keys(rng: &mut Rng, count: usize) -> Vec<String> {
    (0..count).map(|_| key(rng.u64(..KEYS + KEYS / 10))).collect()
}
