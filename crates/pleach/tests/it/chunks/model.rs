//! Model test of chunks: random stores and random ranges, of partitions and snapshots, in both directions, from several clients
//! and among faults. The entries are those of a map, whatever the order in which reads end and however futures are polled.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use fastrand::Rng;
use pleach::env::sync::Mutex;
use pleach::env::{Clients, Env, Fault, FaultKind, SimEnv, Waiter};
use pleach::{Chunk, ChunkFuture, Db, ErrorKind, Options, Partition, Range, Result, Shape};

use super::{Entry, block_on, owned};
use crate::rig::read_drivers::{DRIVERS, ReadBy};
use crate::rig::setup::DIR;
use crate::rig::vars;

/// What each partition holds.
type Models = BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>;

const PARTITIONS: [&str; 3] = ["", "one", "two"];
const KEYS: u32 = 1_500;
/// Stores for each driver.
const STORES: u64 = 4;

fn key(n: u32) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

fn options(rng: &mut Rng) -> Options {
    Options::new()
        .memory(1 << rng.u32(20..23))
        .shape(if rng.bool() { Shape::Forest } else { Shape::ForestOverBottom })
        .runs_per_stage(rng.usize(2..16))
        .compression(rng.bool())
        .direct_reads(rng.bool())
}

fn partition(db: &Db, name: &str) -> Partition {
    if name.is_empty() { db.default_partition() } else { db.partition(name).unwrap() }
}

/// Runs with random entries and spans of tombstones, the last ones in the memtable.
fn fill(db: &Db, rng: &mut Rng) -> Models {
    let mut models = Models::new();
    let runs = rng.u8(1..8);
    for run in 0..=runs {
        for name in PARTITIONS {
            let (partition, model) = (partition(db, name), models.entry(name).or_default());
            let len_max = [40, 700][rng.usize(..2)];
            let many = if name.is_empty() { 2_000 } else { 60 };
            for _ in 0..rng.u32(1..many) {
                let key = key(rng.u32(..KEYS));
                let value = vec![run; rng.usize(..len_max)];
                partition.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            for _ in 0..rng.u32(..4) {
                let first = rng.u32(..KEYS);
                for n in first..first + rng.u32(..200) {
                    partition.delete(key(n)).unwrap();
                    model.remove(&key(n));
                }
            }
        }
        if run < runs {
            db.flush().unwrap();
        }
    }
    models
}

/// A range, and what it holds by the map.
fn range(db: &Db, models: &Models, rng: &mut Rng) -> (Range, Vec<Entry>) {
    let name = PARTITIONS[rng.usize(..3)];
    let (partition, model) = (partition(db, name), &models[name]);
    let mut numbers = [rng.u32(..KEYS), rng.u32(..KEYS)];
    numbers.sort_unstable();
    let [from, to] = numbers.map(key);
    let mut bounds = [Bound::Included(&from[..]), Bound::Excluded(&to[..])];
    for bound in &mut bounds {
        match (rng.u8(..4), *bound) {
            (0, _) => *bound = Bound::Unbounded,
            (1, Bound::Included(key)) => *bound = Bound::Excluded(key),
            (1, Bound::Excluded(key)) => *bound = Bound::Included(key),
            _ => {}
        }
    }
    if from == to {
        bounds[0] = Bound::Included(&from);
    }
    let bounds = (bounds[0], bounds[1]);
    let mut range = if rng.bool() {
        partition.range::<&[u8]>(bounds)
    } else {
        db.snapshot().range::<&[u8]>(&partition, bounds)
    };
    if rng.u8(..4) == 0 {
        range = range.fill_cache();
    }
    if rng.u8(..4) == 0 {
        range = range.expect_entries(rng.u64(..2_000));
    }
    let expected = model.range::<[u8], _>(bounds).map(|(key, value)| (key.clone(), value.clone()));
    (range, expected.collect())
}

/// How a task sleeps until its chunk is ready.
type Sleep<'s> = &'s dyn Fn(ChunkFuture<'_>) -> Result<Option<Chunk>>;

/// A client of the simulator that sleeps until it is woken. The scheduler reports one that never is.
struct Sleeper {
    is_woken: Mutex<bool>,
    changed: Waiter,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock() = true;
        self.changed.notify_all();
    }
}

fn sleep_in(env: &SimEnv, mut future: ChunkFuture<'_>) -> Result<Option<Chunk>> {
    let sleeper = Arc::new(Sleeper { is_woken: Mutex::new(false), changed: env.waiter() });
    let waker = Waker::from(Arc::clone(&sleeper));
    loop {
        if let Poll::Ready(chunk) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return chunk;
        }
        let mut is_woken = sleeper.is_woken.lock();
        while !*is_woken {
            sleeper.changed.wait(&mut is_woken);
        }
        *is_woken = false;
    }
}

/// The entries of a range by chunks, in ascending order, and the error that ended them. Futures that wait are dropped.
/// Sometimes the chunks are dropped or forgotten too: then not all entries are seen, and the last value is `false`.
fn walk(range: Range, rng: &mut Rng, sleep: Option<Sleep<'_>>) -> (Vec<Entry>, Result<bool>) {
    let (back, entries_max) = (rng.bool(), [1, 5, 60, usize::MAX][rng.usize(..4)]);
    let mut chunks = if back { range.into_chunks_back(entries_max) } else { range.into_chunks(entries_max) };
    let mut entries = Vec::new();
    let ended = loop {
        let mut future = chunks.next_chunk();
        let polled = match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending if rng.bool() => sleep.map_or(Poll::Pending, |sleep| Poll::Ready(sleep(future))),
            polled => polled,
        };
        match polled {
            Poll::Ready(Ok(Some(chunk))) => {
                assert!(!chunk.is_empty() && chunk.len() <= entries_max);
                entries.extend(owned(chunk));
            }
            Poll::Ready(Ok(None)) => break Ok(true),
            Poll::Ready(Err(error)) => break Err(error),
            Poll::Pending => std::thread::yield_now(),
        }
        if rng.u16(..400) == 0 {
            if rng.u8(..4) == 0 {
                std::mem::forget(chunks);
            }
            break Ok(false);
        }
    };
    if back {
        entries.reverse();
    }
    (entries, ended)
}

/// Whether `entries` are all expected ones, or those at one end.
fn check(entries: &[Entry], ended: &Result<bool>, expected: &[Entry], context: &str) {
    if let Ok(true) = ended {
        assert!(entries == expected, "{context}: {} of {}", entries.len(), expected.len());
    } else {
        assert!(expected.starts_with(entries) || expected.ends_with(entries), "{context}");
    }
}

/// A simulated machine with a store, opened again.
fn machine(seed: u64, rng: &mut Rng) -> (Arc<SimEnv>, Db, Models) {
    let env = SimEnv::new(seed);
    let options = options(rng).env(Arc::<SimEnv>::clone(&env));
    let db = options.clone().open(DIR).unwrap();
    let models = fill(&db, rng);
    db.close().unwrap();
    (Arc::clone(&env), options.open(DIR).unwrap(), models)
}

#[test]
fn chunks_among_faults_have_the_entries_of_a_map_or_fail_with_the_device() {
    let (mut failed, mut whole) = (0, 0);
    for store in 0..STORES {
        let seed = vars::seed().wrapping_add(store);
        let mut rng = Rng::with_seed(seed);
        let (env, db, models) = machine(seed, &mut rng);
        for number in 0..60 {
            let kinds = [FaultKind::ReadEio, FaultKind::ReadShort, FaultKind::ReadAgain];
            let mut has_eio = false;
            for _ in 0..[0, 0, 1, 8][rng.usize(..4)] {
                let kind = kinds[rng.usize(..3)];
                has_eio |= kind == FaultKind::ReadEio;
                env.add_fault(Fault { at_op: env.read_count() + rng.u64(..12), kind });
            }
            let (range, expected) = range(&db, &models, &mut rng);
            let (entries, ended) = walk(range, &mut rng, None);
            env.clear_faults();
            let context = format!("seed {seed}, range {number}");
            check(&entries, &ended, &expected, &context);
            whole += u32::from(matches!(ended, Ok(true)));
            if let Err(error) = ended {
                assert!(has_eio && error.kind() == ErrorKind::Io, "{context}: {error}");
                failed += 1;
            }
        }
        db.close().unwrap();
    }
    println!("{whole} ranges read, {failed} failed");
}

#[test]
fn chunks_of_clients_in_every_order_have_the_entries_of_a_map() {
    for store in 0..STORES {
        let seed = vars::seed().wrapping_add(100 + store);
        let mut rng = Rng::with_seed(seed);
        let (env, db, models) = machine(seed, &mut rng);
        let (models, mut clients) = (Arc::new(models), Clients::new());
        for number in 0..3 {
            let (env, db) = (Arc::clone(&env), db.clone());
            let (models, mut rng) = (Arc::clone(&models), rng.fork());
            clients.add(&format!("reader {number}"), move || {
                for _ in 0..8 {
                    let (range, expected) = range(&db, &models, &mut rng);
                    let (entries, ended) = walk(range, &mut rng, Some(&|chunk| sleep_in(&env, chunk)));
                    assert!(ended.is_ok());
                    check(&entries, &ended, &expected, &format!("seed {seed}, reader {number}"));
                }
            });
        }
        env.run_clients(seed, clients);
        db.close().unwrap();
    }
}

#[test]
fn chunks_of_threads_have_the_entries_of_a_map_on_every_driver() {
    for (driver, store) in
        DRIVERS.into_iter().flat_map(|driver| (0..STORES).map(move |store| (driver, store)))
    {
        let seed = vars::seed().wrapping_add(200 + store);
        let mut rng = Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let options = options(&mut rng).read_by(driver);
        let db = options.clone().open(dir.path()).unwrap();
        let models = fill(&db, &mut rng);
        db.close().unwrap();
        let db = options.open(dir.path()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (db, models, mut rng) = (&db, &models, rng.fork());
                scope.spawn(move || {
                    for _ in 0..20 {
                        let (range, expected) = range(db, models, &mut rng);
                        let (entries, ended) = walk(range, &mut rng, Some(&|chunk| block_on(chunk)));
                        assert!(ended.is_ok());
                        check(&entries, &ended, &expected, &format!("seed {seed}, {driver:?}"));
                    }
                });
            }
        });
        db.close().unwrap();
    }
}
