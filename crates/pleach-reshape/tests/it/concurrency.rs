//! Sixteen threads put, insert, delete and read a hundred keys while others scan, take snapshots, make checkpoints and move all
//! rows. The history of each key must be linearizable, and batches must be seen whole.
//!
//! The checker keeps, per key, every state that the key may be in: its value, and which of the running operations have taken
//! effect. When an operation returns, only the states in which it took effect stay. None left is a violation.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use pleach_reshape::store::RowStore;
use pleach_reshape::store::model::ModelStore;
use pleach_reshape::{MapPlace, Options, Reshaped, Stripes, Update};

use crate::rig::{seed, variable};

const KEYS: u64 = 100;
const THREADS: u64 = 16;

/// What was done to one key. Values are unique; 0 stands for none.
#[derive(Clone, Copy, Debug)]
enum Done {
    Write(u64),
    /// A put if the key was not there; whether it was not.
    Insert(u64, bool),
    Read(u64),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    began: u64,
    ended: u64,
    done: Done,
}

/// The state after an operation that takes effect in `state`; `None` if it cannot.
fn apply(done: Done, state: u64) -> Option<u64> {
    match done {
        Done::Write(value) => Some(value),
        Done::Insert(value, true) => (state == 0).then_some(value),
        Done::Insert(_, false) => (state != 0).then_some(state),
        Done::Read(value) => (state == value).then_some(state),
    }
}

/// Whether some order of the operations, each within its time, explains all that they returned.
fn is_linearizable(events: &[Event]) -> bool {
    let mut points: Vec<(u64, bool, usize)> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        points.push((event.began, true, index));
        points.push((event.ended, false, index));
    }
    points.sort_unstable();
    let mut running: BTreeSet<usize> = BTreeSet::new();
    let mut states: HashSet<(u64, BTreeSet<usize>)> = HashSet::from([(0, BTreeSet::new())]);
    for (_, begins, index) in points {
        if begins {
            running.insert(index);
            continue;
        }
        let mut open: Vec<_> = states.iter().cloned().collect();
        while let Some((state, effected)) = open.pop() {
            for other in running.difference(&effected) {
                if let Some(next) = apply(events[*other].done, state) {
                    let mut effected = effected.clone();
                    effected.insert(*other);
                    if states.insert((next, effected.clone())) {
                        open.push((next, effected));
                    }
                }
            }
        }
        let ended = states.into_iter().filter(|(_, effected)| effected.contains(&index));
        states = ended
            .map(|(state, mut effected)| {
                effected.remove(&index);
                (state, effected)
            })
            .collect();
        running.remove(&index);
        if states.is_empty() {
            return false;
        }
    }
    true
}

#[test]
fn the_checker_tells_right_from_wrong() {
    let event = |began, ended, done| Event { began, ended, done };
    let write = event(1, 4, Done::Write(7));
    assert!(is_linearizable(&[write, event(2, 3, Done::Read(0)), event(5, 6, Done::Read(7))]));
    assert!(is_linearizable(&[write, event(2, 3, Done::Read(7))]));
    assert!(!is_linearizable(&[write, event(5, 6, Done::Read(0))]));
    assert!(!is_linearizable(&[write, event(2, 3, Done::Read(7)), event(4, 6, Done::Read(0))]));
    let insert = |began, ended, value, was_new| event(began, ended, Done::Insert(value, was_new));
    assert!(is_linearizable(&[insert(1, 3, 7, true), insert(2, 4, 8, false), event(5, 6, Done::Read(7))]));
    assert!(!is_linearizable(&[insert(1, 3, 7, true), insert(2, 4, 8, true)]));
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:03}").into_bytes()
}

fn value_of(bytes: Option<&Vec<u8>>) -> u64 {
    bytes.map_or(0, |bytes| std::str::from_utf8(bytes).unwrap().parse().unwrap())
}

/// The clock of events, and the next unique value.
struct Clock(AtomicU64);

impl Clock {
    fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

type Events = Vec<(u64, Event)>;

fn operate(store: &Reshaped, clock: &Clock, rng: &mut fastrand::Rng, events: &mut Events) {
    let (number, value) = (rng.u64(..KEYS), clock.tick());
    let began = clock.tick();
    let done = match rng.u8(..8) {
        0..3 => {
            store.put(key(number), value.to_string()).unwrap();
            Done::Write(value)
        }
        3 => Done::Insert(value, store.put_new(key(number), value.to_string()).unwrap()),
        4 => {
            store.delete(key(number)).unwrap();
            Done::Write(0)
        }
        5 => {
            // Two keys at once, with one time.
            let other = (number + 1) % KEYS;
            let mut batch = store.batch();
            batch.put(key(number), value.to_string());
            batch.put(key(other), value.to_string());
            batch.commit().unwrap();
            events.push((other, Event { began, ended: clock.tick(), done: Done::Write(value) }));
            Done::Write(value)
        }
        _ => Done::Read(value_of(store.get(key(number)).unwrap().as_ref())),
    };
    events.push((number, Event { began, ended: clock.tick(), done }));
}

/// Reads all keys of one moment; each counts as a read within the scan.
fn scan(store: &Reshaped, clock: &Clock, rng: &mut fastrand::Rng, events: &mut Events) {
    let began = clock.tick();
    let found: HashMap<Vec<u8>, Vec<u8>> = match rng.u8(..3) {
        0 => store.all().unwrap().map(Result::unwrap).collect(),
        1 => store.all().unwrap().rev().map(Result::unwrap).collect(),
        _ => {
            let keys: Vec<_> = (0..KEYS).map(key).collect();
            let values = store.get_many(&keys).unwrap();
            keys.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?))).collect()
        }
    };
    let ended = clock.tick();
    for number in 0..KEYS {
        let done = Done::Read(value_of(found.get(&key(number))));
        events.push((number, Event { began, ended, done }));
    }
}

pub(crate) fn run(
    seed: u64,
    update: Update,
    rows: Box<dyn RowStore>,
    place: MapPlace,
    bits: u32,
    operations: u64,
) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().update(update).map(place).stripes(Stripes::Ranges(3)).sequence_bits(bits);
    // Every other store has no cache of rows, so that reads go the long way.
    let row_cache_bytes = if (seed + update as u64).is_multiple_of(2) { 0 } else { 32 << 20 };
    let options =
        options.delta_bytes(64 << 10).moves(2000, 8).replaced_rows(20).row_cache_bytes(row_cache_bytes);
    let store = options.open(rows, dir.path()).unwrap();
    let (clock, is_over, all) = (Clock(AtomicU64::new(0)), AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let (store, clock, is_over, all) = (&store, &clock, &is_over, &all);
        let mut writers = Vec::new();
        for thread in 0..THREADS {
            writers.push(scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed * 100 + thread);
                let mut events = Events::new();
                for _ in 0..operations {
                    operate(store, clock, &mut rng, &mut events);
                }
                all.lock().unwrap().append(&mut events);
            }));
        }
        for thread in 0..2 {
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed * 100 + 50 + thread);
                let mut events = Events::new();
                while !is_over.load(Ordering::SeqCst) {
                    scan(store, clock, &mut rng, &mut events);
                    thread::yield_now();
                }
                all.lock().unwrap().append(&mut events);
            });
        }
        scope.spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                store.recluster(key(20)..key(60)).unwrap();
                thread::yield_now();
            }
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                store.recluster::<&[u8]>(..).unwrap();
                store.clean().unwrap();
                store.checkpoint().unwrap();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        // The others end, whatever became of the writers.
        is_over.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok), "a writer failed");
    });
    let mut by_key: HashMap<u64, Vec<Event>> = HashMap::new();
    for (key, event) in all.into_inner().unwrap() {
        by_key.entry(key).or_default().push(event);
    }
    let events: usize = by_key.values().map(Vec::len).sum();
    println!("seed {seed}: {events} events, {update:?}, {place:?}, generation {}", store.stats().generation);
    for (key, events) in by_key {
        assert!(is_linearizable(&events), "PLEACH_SEED={seed}: key {key} of {update:?} {place:?}");
    }
    store.drain().unwrap();
    store.verify().unwrap();
}

#[test]
fn histories_of_sixteen_threads_are_linearizable() {
    let mut seed = seed();
    for _ in 0..variable("PLEACH_ROUNDS", 1) {
        for update in [Update::InPlace, Update::Replace, Update::Defer] {
            for (concurrent, place) in [(false, MapPlace::Disk), (true, MapPlace::Memory)] {
                // With 8 bits, 1020 ids of a generation are exhausted again and again.
                let rows = Box::new(ModelStore::without_history(concurrent));
                let operations = variable("PLEACH_OPERATIONS", 400);
                run(seed, update, rows, place, if concurrent { 8 } else { 56 }, operations);
                seed += 1;
            }
        }
    }
}

#[test]
fn batches_are_seen_whole_by_single_reads_and_snapshots() {
    for update in [Update::InPlace, Update::Replace, Update::Defer] {
        for (concurrent, row_cache_bytes) in [(false, 32 << 20), (true, 32 << 20), (true, 0)] {
            let dir = tempfile::tempdir().unwrap();
            let rows = ModelStore::without_history(concurrent);
            let options = Options::new().update(update).row_cache_bytes(row_cache_bytes);
            let store = options.open(Box::new(rows), dir.path()).unwrap();
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                let (store, is_over) = (&store, &is_over);
                for reader in 0..4 {
                    scope.spawn(move || {
                        while !is_over.load(Ordering::SeqCst) {
                            let read = |key: &str| value_of(store.get(key).unwrap().as_ref());
                            let (first, second) = if reader % 2 == 0 { ("a", "b") } else { ("b", "a") };
                            let before = read(first);
                            let after = read(second);
                            assert!(after >= before, "{update:?}: {after} after {before}");
                            let both = store.get_many(["a", "b"]).unwrap();
                            assert_eq!(both[0], both[1]);
                        }
                    });
                }
                for number in 1..=variable("PLEACH_OPERATIONS", 400) * 5 {
                    let mut batch = store.batch();
                    batch.put("a", number.to_string());
                    batch.put("b", number.to_string());
                    batch.commit().unwrap();
                    if number % 50 == 0 {
                        store.recluster::<&[u8]>(..).unwrap();
                    }
                }
                is_over.store(true, Ordering::SeqCst);
            });
        }
    }
}
