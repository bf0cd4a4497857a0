//! Scans of separated values: values are read together, and nobody notices but by the time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{Fault, FaultKind, SimEnv};
use pleach::{Db, ErrorKind, Options, Partition, Range};

use crate::rig::read_drivers::{DRIVERS, ReadBy};
use crate::rig::setup::DIR;
use crate::rig::tasks::block_on;
use crate::rig::vars;

const KEYS: u64 = 2_000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Entry = (Vec<u8>, Vec<u8>);

fn key(n: u64) -> Vec<u8> {
    format!("user{n:06}").into_bytes()
}

fn options() -> Options {
    Options::new().memory(1 << 20).separate_at(200)
}

fn put(partition: &Partition, model: &mut Model, n: u64, value: Vec<u8>) {
    partition.put(key(n), &value).unwrap();
    model.insert(key(n), value);
}

/// Runs and a memtable with small values, large ones, a few very large ones, and tombstones. What the store holds.
fn fill(db: &Db, rng: &mut Rng) -> Model {
    let partition = db.default_partition();
    let mut model = Model::new();
    for round in 0..4_u8 {
        for _ in 0..KEYS {
            let n = rng.u64(..KEYS);
            let len = match rng.u8(..100) {
                0..30 => rng.usize(..200),
                30..99 => rng.usize(200..1_000),
                _ => rng.usize(..100_000),
            };
            match rng.u8(..5) {
                0 => {
                    partition.delete(key(n)).unwrap();
                    model.remove(&key(n));
                }
                _ => put(&partition, &mut model, n, vec![round.wrapping_add(n.to_le_bytes()[0]); len]),
            }
        }
        if round < 3 {
            db.flush().unwrap();
        }
    }
    model
}

/// The next entry, taken or lent.
fn step(range: &mut Range, up: bool, lends: bool) -> Option<Entry> {
    let owned = |(key, value): (&[u8], &[u8])| (key.to_vec(), value.to_vec());
    match (up, lends) {
        (true, true) => range.next_entry().unwrap().map(owned),
        (false, true) => range.next_back_entry().unwrap().map(owned),
        (true, false) => {
            range.next().map(|entry| owned((&entry.as_ref().unwrap().0, &entry.as_ref().unwrap().1)))
        }
        (false, false) => {
            range.next_back().map(|entry| owned((&entry.as_ref().unwrap().0, &entry.as_ref().unwrap().1)))
        }
    }
}

/// The next key, and the length of its value.
fn step_key(range: &mut Range, up: bool) -> Option<(Vec<u8>, usize)> {
    let next = if up { range.next_key() } else { range.next_back_key() };
    next.unwrap().map(|(key, len)| (key.to_vec(), len))
}

/// The entries that chunks of the rest have.
fn rest(range: Range, up: bool, entries_max: usize) -> Vec<Entry> {
    let mut chunks = if up { range.into_chunks(entries_max) } else { range.into_chunks_back(entries_max) };
    let mut entries = Vec::new();
    while let Some(chunk) = block_on(chunks.next_chunk()).unwrap() {
        entries.extend(chunk.into_iter().map(|(key, value)| (key.into_vec(), value.into_vec())));
    }
    entries
}

/// A walk of a range that turns, seeks and ends in chunks, beside the same of the model.
fn walk(partition: &Partition, model: &Model, rng: &mut Rng) {
    let bounds = [rng.u64(..KEYS), rng.u64(..KEYS)];
    let [from, to] = [*bounds.iter().min().unwrap(), *bounds.iter().max().unwrap()].map(key);
    let mut left: Vec<Entry> =
        model.range(from.clone()..to.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut range = partition.range(&from[..]..&to[..]);
    if rng.bool() {
        range = range.expect_entries(rng.u64(..400));
    }
    let mut up = rng.bool();
    let turns = [1, 20, 1_000][rng.usize(..3)];
    for _ in 0..rng.usize(..400) {
        if rng.usize(..turns) == 0 {
            up = !up;
        }
        if rng.u8(..30) == 0 {
            let to = key(rng.u64(..KEYS));
            if rng.bool() {
                range.seek(&to);
                left.retain(|(key, _)| *key >= to);
            } else {
                range.seek_back(&to);
                left.retain(|(key, _)| *key <= to);
            }
        }
        let expected = match up {
            _ if left.is_empty() => None,
            true => Some(left.remove(0)),
            false => left.pop(),
        };
        if rng.usize(..3) == 0 {
            let expected = expected.as_ref().map(|(key, value)| (key.clone(), value.len()));
            assert!(step_key(&mut range, up) == expected);
        } else {
            assert!(step(&mut range, up, rng.bool()) == expected);
        }
        if expected.is_none() {
            assert!(step(&mut range, !up, rng.bool()).is_none(), "it has ended");
            return;
        }
    }
    if !up {
        left.reverse();
    }
    assert!(rest(range, up, rng.usize(1..300)) == left);
}

#[test]
fn walks_that_turn_and_seek_have_the_entries_of_the_store() {
    let mut rng = Rng::with_seed(vars::seed());
    for driver in DRIVERS {
        let dir = tempfile::tempdir().unwrap();
        let model = fill(&options().open(dir.path()).unwrap(), &mut rng);
        for direct in [false, true] {
            let db = options().direct_reads(direct).read_by(driver).open(dir.path()).unwrap();
            (0..40).for_each(|_| walk(&db.default_partition(), &model, &mut rng));
        }
    }
    let env = SimEnv::new(rng.u64(..));
    let db = options().env(Arc::<SimEnv>::clone(&env)).open(DIR).unwrap();
    let model = fill(&db, &mut rng);
    (0..100).for_each(|_| walk(&db.default_partition(), &model, &mut rng));
}

/// A machine with values of 1000 bytes, put in random order and opened again so that nothing is cached.
fn machine(seed: u64, direct: bool) -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(seed);
    let options = options().memory(16 << 20).direct_reads(direct).env(Arc::<SimEnv>::clone(&env));
    let db = options.clone().open(DIR).unwrap();
    for n in 0..KEYS {
        db.default_partition().put(key(n * 1_009 % KEYS), [1; 1000]).unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
    (env, options.open(DIR).unwrap())
}

/// Reads, waits, and bytes read, of a walk over `count` entries.
fn cost(env: &SimEnv, range: Range, count: usize) -> [u64; 3] {
    let now = || [env.read_count(), env.read_wait_count(), env.read_bytes()];
    let before = now();
    assert_eq!(range.take(count).map(Result::unwrap).count(), count);
    let after = now();
    [0, 1, 2].map(|at| after[at] - before[at])
}

#[test]
fn a_scan_waits_for_many_values_at_once() {
    for direct in [false, true] {
        let (env, db) = machine(1, direct);
        let partition = db.default_partition();
        let [_, _, bytes] = cost(&env, partition.range(&key(1_500)[..]..), 1);
        assert!(bytes < 80 << 10, "{bytes} bytes were read for one entry");
        let [_, waits, _] = cost(&env, partition.range(&key(100)[..]..), 500);
        assert!(waits <= 30, "{waits} waits of 500 entries that nobody expected");
        let [_, waits, _] = cost(&env, partition.range(&key(1_000)[..]..).expect_entries(200), 200);
        assert!(waits <= 8, "{waits} waits of 200 entries that were expected");
    }
}

#[test]
fn a_read_that_fails_ends_a_scan_behind_the_entries_before_it() {
    let (env, db) = machine(2, false);
    let partition = db.default_partition();
    let mut failures = 0;
    for nth in 0..60 {
        let expects = [0, 20, 300][nth % 3];
        let range = || partition.range(&key(500)[..]..).expect_entries(expects).take(300);
        let first = env.read_count() + nth as u64 * 2;
        (first..first + 1_000).for_each(|at_op| env.add_fault(Fault { at_op, kind: FaultKind::ReadEio }));
        let mut walk = range();
        let (mut entries, mut error) = (Vec::new(), None);
        for entry in walk.by_ref() {
            match entry {
                Ok(entry) => entries.push(entry),
                Err(failed) => error = Some(failed),
            }
        }
        env.clear_faults();
        let expected: Vec<_> = range().map(Result::unwrap).collect();
        assert!(entries[..] == expected[..entries.len()], "what was read is right");
        match error {
            None => assert_eq!(entries.len(), expected.len()),
            Some(error) => {
                assert!(error.kind() == ErrorKind::Io && walk.next().is_none(), "{error}");
                assert_ne!(error.path().and_then(Path::extension), None);
                failures += 1;
            }
        }
        // One read that fails is made again.
        env.add_fault(Fault { at_op: env.read_count() + 5, kind: FaultKind::ReadEio });
        assert!(range().map_while(Result::ok).count() >= 4);
        env.clear_faults();
    }
    assert!(failures > 5, "{failures} scans failed");
}

#[test]
fn entries_before_a_value_that_fails_come_first_in_a_chunk() {
    let (env, db) = machine(3, true);
    let partition = db.default_partition();
    let range = || partition.range(&key(500)[..]..&key(800)[..]);
    // Their blocks are cached now, and the values are not.
    let expected: Vec<_> = range().map(Result::unwrap).collect();
    let mut cut_short = 0;
    for nth in 0..60 {
        let first = env.read_count() + nth;
        (first..first + 1_000).for_each(|at_op| env.add_fault(Fault { at_op, kind: FaultKind::ReadEio }));
        let mut chunks = range().into_chunks(50);
        let mut entries = Vec::new();
        let ended = loop {
            match block_on(chunks.next_chunk()) {
                Ok(Some(chunk)) => entries.extend(chunk),
                ended => break ended,
            }
        };
        env.clear_faults();
        assert!(entries[..] == expected[..entries.len()], "what was read is right");
        assert_eq!(ended.err().map(|error| error.kind()), Some(ErrorKind::Io));
        assert!(block_on(chunks.next_chunk()).unwrap().is_none(), "the range has ended");
        cut_short += usize::from(entries.len() % 50 != 0);
    }
    assert!(cut_short > 20, "{cut_short} chunks were cut short");
}

#[test]
fn values_that_were_read_ahead_are_not_given_out_of_a_closed_store() {
    let (_env, db) = machine(3, false);
    let partition = db.default_partition();
    let mut range = partition.iter().expect_entries(100);
    assert!(range.next().unwrap().is_ok());
    drop(partition);
    db.close().unwrap();
    assert_eq!(range.next().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert!(range.next().is_none());
}

/// Keys cost no reads of values, and end with the store.
#[test]
fn keys_are_walked_without_values() {
    let env = SimEnv::new(1);
    let db = options().env(Arc::<SimEnv>::clone(&env)).open(DIR).unwrap();
    let partition = db.default_partition();
    for n in 0..100 {
        partition.put(key(n), [7; 300]).unwrap();
    }
    db.flush().unwrap();
    assert!(partition.range(key(10)..key(20)).next_key().unwrap() == Some((&key(10), 300)));
    env.clear_faults();
    let before = env.read_count();
    let mut range = partition.iter();
    let mut count = 0;
    while range.next_key().unwrap().is_some() {
        count += 1;
    }
    assert_eq!((count, env.read_count() - before), (100, 0), "the keys' blocks are cached");
    let (mut gathered, mut walked) = (partition.iter(), partition.iter());
    gathered.next().unwrap().unwrap();
    walked.next_key().unwrap();
    db.close().unwrap();
    for range in [&mut gathered, &mut walked] {
        assert_eq!(range.next_key().unwrap_err().kind(), ErrorKind::Closed);
        assert!(range.next_key().unwrap().is_none(), "it has ended");
    }
}
