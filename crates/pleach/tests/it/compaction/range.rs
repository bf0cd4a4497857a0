//! Range compactions: what they write, what they leave alone, and what is there after a crash in one.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{CrashPolicy, SimEnv};
use pleach::{Db, Shape, Stats};

use super::{Model, SETUP, check, path, put_random, ssts};
use crate::rig::setup::Setup;

const KEYS: u32 = 3000;
const SHAPES: [Shape; 3] = [Shape::Forest, Shape::ForestOverBottom, Shape::Leveled];

fn key(number: u32) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

/// A store with a bottom run, runs above it, and tombstones.
fn store(env: &Arc<SimEnv>, setup: Setup) -> (Db, Model) {
    let db = setup.open(env).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::with_seed(7));
    put_random(&db, &mut model, &mut rng, (3000, KEYS));
    db.compact().unwrap();
    // Too little garbage for a merge that nobody has asked for.
    for _ in 0..3 {
        put_random(&db, &mut model, &mut rng, (60, KEYS));
        for number in (0..KEYS).filter(|number| number % 70 == 0) {
            db.default_partition().delete(key(number)).unwrap();
            model.remove(&key(number));
        }
        db.flush().unwrap();
    }
    (db, model)
}

fn written(db: &Db) -> u64 {
    let Stats { flush_bytes, compaction_written_bytes, moved_bytes, .. } = db.stats();
    flush_bytes + compaction_written_bytes + moved_bytes
}

/// Demands what `check` does, of walks from both ends and of reads of single keys.
fn check_all(db: &Db, model: &Model, story: &str) {
    check(db, model, story);
    let partition = db.default_partition();
    let down: Vec<_> = partition.iter().rev().map(|entry| entry.unwrap().0.into_vec()).collect();
    assert!(down.iter().rev().eq(model.keys()), "{story}");
    for number in 0..KEYS {
        let key = key(number);
        let found = partition.get(&key).unwrap();
        assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "{story}: {number}");
        if number % 50 == 0 {
            let above = partition.range(&*key..).next().map(|entry| entry.unwrap().0.into_vec());
            assert_eq!(above.as_ref(), model.range(key.clone()..).next().map(|(key, _)| key), "{story}");
            let below = partition.range(..&*key).next_back().map(|entry| entry.unwrap().0.into_vec());
            assert_eq!(below.as_ref(), model.range(..key).next_back().map(|(key, _)| key), "{story}");
        }
    }
}

#[test]
fn a_second_call_writes_nothing() {
    for shape in SHAPES {
        for separate_at in [0, 50] {
            let env = SimEnv::new(1);
            let setup = Setup { shape: Some(shape), separate_at: Some(separate_at), ..SETUP };
            let (db, model) = store(&env, setup);
            let partition = db.default_partition();
            let mut rng = Rng::with_seed(3);
            for round in 0..12 {
                let from = rng.u32(..KEYS);
                let range = key(from)..key(from + rng.u32(1..KEYS / 4));
                let story = format!("{shape:?}, separated at {separate_at}, round {round}: {range:?}");
                partition.compact_range(range.clone()).unwrap();
                let before = (written(&db), ssts(&env), env.op_count());
                partition.compact_range(range.clone()).unwrap();
                assert_eq!((written(&db), ssts(&env), env.op_count()), before, "{story}");
                let passed = db.stats().tombstones_passed;
                let found = partition.range(range.clone()).count();
                assert_eq!(found, model.range(range).count(), "{story}");
                assert_eq!(db.stats().tombstones_passed, passed, "{story}");
                check_all(&db, &model, &story);
                db.verify().unwrap();
            }
            assert!(db.stats().range_compactions > 3, "{:?}", db.stats());
            db.close().unwrap();
            let db = setup.open(&env).unwrap();
            check_all(&db, &model, "opened again");
            db.verify().unwrap();
            db.compact().unwrap();
            check_all(&db, &model, "compacted");
            assert_eq!(db.stats().runs, 1);
            db.verify().unwrap();
        }
    }
}

/// An already compacted range costs nothing, and an untouched memtable is not flushed.
#[test]
fn nothing_is_done_where_nothing_overlaps() {
    let env = SimEnv::new(1);
    let (db, model) = store(&env, SETUP);
    let partition = db.default_partition();
    db.compact().unwrap();
    partition.put("zzz", "elsewhere").unwrap();
    let before = (env.op_count(), env.read_count());
    partition.compact_range(key(0)..key(KEYS)).unwrap();
    partition.compact_range(key(100)..key(100)).unwrap();
    partition.compact_range(key(200)..key(100)).unwrap();
    assert_eq!((env.op_count(), env.read_count()), before);
    let deleted = model.range(key(50)..).next().unwrap().0.clone();
    partition.delete(&deleted).unwrap();
    let flushes = db.stats().flushes;
    partition.compact_range(key(0)..deleted.clone()).unwrap();
    assert_eq!((db.stats().flushes, db.stats().range_compactions), (flushes, 0));
    partition.compact_range(key(0)..=deleted).unwrap();
    assert_eq!((db.stats().flushes, db.stats().range_compactions), (flushes + 1, 1));
    db.verify().unwrap();
}

/// Files outside of the range are not touched: they keep numbers and lengths.
#[test]
fn nothing_outside_is_written_again() {
    let env = SimEnv::new(1);
    let (db, model) = store(&env, SETUP);
    let before = ssts(&env);
    db.default_partition().compact_range(key(1000)..key(1100)).unwrap();
    let after = ssts(&env);
    let (runs, stats) = (db.stats().runs, db.stats());
    assert!(runs > 1, "only the range was merged: {stats:?}");
    let gone = before.keys().filter(|id| !after.contains_key(id)).count();
    let new = after.keys().filter(|id| !before.contains_key(id)).count();
    assert!(
        gone <= 8 && new <= 8 && before.len() > 60,
        "of {} files {gone} are gone, {new} new",
        before.len()
    );
    assert_eq!(stats.range_compactions, 1);
    check_all(&db, &model, "the range is compacted");
}

/// A snapshot that was taken before reads the hidden versions and deleted keys as they were.
#[test]
fn a_snapshot_keeps_what_it_reads() {
    let env = SimEnv::new(1);
    let (db, model) = store(&env, SETUP);
    let partition = db.default_partition();
    let snapshot = db.snapshot();
    for number in 0..KEYS {
        partition.delete(key(number)).unwrap();
    }
    partition.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(partition.iter().count(), 0);
    assert_eq!(db.stats().sst_entries, 0, "{:?}", db.stats());
    let found: Model = snapshot
        .iter(&partition)
        .map(|entry| entry.map(|(key, value)| (key.into_vec(), value.to_vec())).unwrap())
        .collect();
    assert_eq!(found, model);
    drop(snapshot);
    db.verify().unwrap();
}

/// One per cent of a partition costs at most three per cent of its bytes, whatever runs lie above the bottom.
#[test]
fn a_small_range_costs_little() {
    const BIG: u32 = 64 << 10;
    let env = SimEnv::new(1);
    let setup = Setup { memtable_bytes: 4 << 20, sst_bytes: 1 << 20, ..SETUP };
    let db = setup.open(&env).unwrap();
    let (partition, mut rng) = (db.default_partition(), Rng::with_seed(1));
    let mut put = |number| partition.put(key(number), vec![rng.u8(..); 1000]).unwrap();
    (0..BIG).for_each(&mut put);
    db.compact().unwrap();
    let all = db.stats().sst_bytes;
    assert!(all > 60_000_000, "{all}");
    for round in 0..3 {
        (0..BIG).filter(|number| number % 31 == round * 7).for_each(&mut put);
        db.flush().unwrap();
    }
    assert!(db.stats().runs > 3, "{:?}", db.stats());
    let mut most = 0;
    for at in [0, 1000, 20_000, 33_333, 50_000, 64_800] {
        let before = written(&db);
        partition.compact_range(key(at)..key(at + BIG / 100)).unwrap();
        most = most.max(written(&db) - before);
    }
    println!("one per cent of {all} bytes: at most {most} bytes written");
    assert!(most > all / 200 && most * 100 <= all * 3, "{most} of {all}");
    let before = written(&db);
    partition.compact_range(key(40_000)..key(40_010)).unwrap();
    assert!((written(&db) - before) * 100 <= all, "ten keys: {}", written(&db) - before);
    db.verify().unwrap();
}

/// What a killed process leaves before a call of the compaction of everything.
fn env_at(call: u64) -> Arc<SimEnv> {
    let env = SimEnv::new(1);
    let (db, _) = store(&env, SETUP);
    env.capture_at(&[call]);
    db.default_partition().compact_range::<&[u8]>(..).unwrap();
    let (call, capture) = env.captured().into_iter().next().unwrap();
    capture.crash_image(CrashPolicy::ProcessKill, call)
}

/// The job commits as it goes on: a range of many SSTs does not need its space twice.
#[test]
fn a_long_range_is_committed_in_steps() {
    let env = SimEnv::new(1);
    let (db, model) = store(&env, SETUP);
    let (before, from) = (ssts(&env), env.op_count());
    db.default_partition().compact_range::<&[u8]>(..).unwrap();
    let calls: Vec<_> = (from..env.op_count()).collect();
    let half = env_at(calls[calls.len() / 2]);
    let (there, made) = (ssts(&half), |id: &u64| !before.contains_key(id));
    assert!(there.keys().any(made), "outputs are there");
    assert!(before.keys().any(|id| !there.contains_key(id)), "inputs are gone");
    assert_eq!(db.stats().range_compactions, 1);
    assert_eq!(db.stats().sst_garbage, 0);
    check_all(&db, &model, "all is compacted");
}

/// A run whose first key in the range lies far behind the first ones that are committed.
#[test]
fn a_run_that_begins_later_is_cut_once() {
    let env = SimEnv::new(1);
    let (db, mut model) = store(&env, SETUP);
    db.default_partition().compact_range(key(0)..key(KEYS)).unwrap();
    for numbers in [vec![100, 2500, 2600], vec![200, 300, 400]] {
        for number in numbers {
            db.default_partition().put(key(number), "again").unwrap();
            model.insert(key(number), b"again".to_vec());
        }
        db.flush().unwrap();
    }
    db.default_partition().compact_range(key(150)..).unwrap();
    check_all(&db, &model, "one of the runs begins at 2500");
    db.verify().unwrap();
}

/// A small rest of the oldest run, below the range, is written again and committed by itself. What follows must not begin there:
/// the runs that have keys between the rest and the range, but none in the range, give nothing.
#[test]
fn a_rest_below_the_range_does_not_widen_it() {
    let env = SimEnv::new(1);
    let mut model = Model::new();
    let mut put = |db: &Db, key: &str, value: Vec<u8>| {
        db.default_partition().put(key, &value).unwrap();
        model.insert(key.into(), value);
    };
    // The oldest run is one SST, whose first key alone fills an SST of the next open.
    let wide = Setup { compression: Some(true), clean_every: 1, shape: Some(Shape::Forest), ..SETUP };
    let db = Setup { sst_bytes: 1 << 20, ..wide }.open(&env).unwrap();
    put(&db, "a", vec![0; 5000]);
    for key in ["l", "m", "z"] {
        put(&db, key, vec![1; 300]);
    }
    db.compact().unwrap();
    db.close().unwrap();
    let db = wide.open(&env).unwrap();
    put(&db, "c", b"old".to_vec());
    db.flush().unwrap();
    put(&db, "c", b"new".to_vec());
    put(&db, "m", b"new".to_vec());
    db.flush().unwrap();
    db.default_partition().compact_range("k".."p").unwrap();
    assert_eq!(db.stats().range_compactions, 1);
    check(&db, &model, "the value of c is the new one");
    db.verify().unwrap();
}

const POLICIES: [CrashPolicy; 4] =
    [CrashPolicy::DurableOnly, CrashPolicy::Everything, CrashPolicy::Random, CrashPolicy::ProcessKill];

#[test]
fn a_crash_at_any_call_loses_nothing() {
    for setup in [SETUP, Setup { separate_at: Some(50), ..SETUP }] {
        let range = || key(300)..key(1700);
        let env = SimEnv::new(3);
        let (db, _) = store(&env, setup);
        let from = env.op_count();
        db.default_partition().compact_range(range()).unwrap();
        let calls: Vec<_> = (from..=env.op_count()).collect();
        assert!(calls.len() > 20, "{}", calls.len());
        let env = SimEnv::new(3);
        let (db, model) = store(&env, setup);
        env.capture_at(&calls);
        db.default_partition().compact_range(range()).unwrap();
        let mut begun: BTreeMap<bool, u32> = BTreeMap::new();
        for (call, capture) in env.captured() {
            for policy in POLICIES {
                let story = format!("call {call}, {policy:?}");
                let image = capture.crash_image(policy, call);
                let db = setup.open(&image).unwrap_or_else(|e| panic!("{story}: {e}"));
                check(&db, &model, &story);
                db.verify().unwrap();
                let files = ssts(&image);
                db.default_partition().compact_range(range()).unwrap();
                *begun.entry(files == ssts(&image)).or_default() += 1;
                check(&db, &model, &story);
                let before = written(&db);
                db.default_partition().compact_range(range()).unwrap();
                assert_eq!(written(&db), before, "{story}");
                db.verify().unwrap();
            }
        }
        println!("{begun:?}");
    }
}

/// A repair reads the parts of files as readers do.
#[test]
fn a_repair_brings_nothing_back() {
    let env = SimEnv::new(1);
    let (db, mut model) = store(&env, SETUP);
    db.default_partition().compact_range(key(1000)..key(1500)).unwrap();
    for number in 1100..1200 {
        db.default_partition().delete(key(number)).unwrap();
        model.remove(&key(number));
    }
    db.default_partition().compact_range(key(1100)..key(1200)).unwrap();
    db.close().unwrap();
    let options = SETUP.options(&env);
    let report = pleach::repair(path(""), "/repaired", options, &mut |_, _| true).unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
    let db = SETUP.options(&env).open("/repaired").unwrap();
    check(&db, &model, "repaired");
}

/// On the real machine: the merges run beside each other.
#[test]
fn merges_of_other_runs_beside_that_of_a_range_poison_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = pleach::Options::new().memory(16 << 20).open(dir.path()).unwrap();
    let partition = db.default_partition();
    for round in 0..150_u8 {
        partition.put("a", [round]).unwrap();
        partition.put("z", [round]).unwrap();
        // The runs without the key are merged by the policy. Those older than the range's inputs get the age of its output.
        partition.compact_range("a"..="a").unwrap();
    }
    assert_eq!(partition.get("a").unwrap().as_deref(), Some(&[149_u8][..]));
    assert_eq!(partition.get("z").unwrap().as_deref(), Some(&[149_u8][..]));
    db.close().unwrap();
    Db::open(dir.path()).unwrap().verify().unwrap();
}

/// What comes first is deleted, so that nothing is left of the oldest run before the end of the range.
#[test]
fn the_oldest_run_takes_all_outputs_also_behind_its_last_key() {
    let env = SimEnv::new(1);
    let options = pleach::Options::new().env(env).memory(16 << 20).sst_bytes(4 << 10).clean_every(1);
    let db = options.runs_per_stage(20).open("/store").unwrap();
    let partition = db.default_partition();
    let put = |letters: std::ops::RangeInclusive<char>| {
        for letter in letters {
            (0..100).for_each(|number| partition.put(format!("{letter}{number:03}"), [7; 100]).unwrap());
        }
    };
    put('a'..='c');
    db.compact().unwrap();
    put('d'..='z');
    db.flush().unwrap();
    for letter in 'a'..='m' {
        (0..100).for_each(|number| partition.delete(format!("{letter}{number:03}")).unwrap());
    }
    put('n'..='z');
    db.flush().unwrap();
    partition.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(partition.stats().unwrap().runs, 1);
    assert_eq!(partition.iter().count(), 1300);
    db.verify().unwrap();
    // All of it is deleted: no run is left.
    for letter in 'n'..='z' {
        (0..100).for_each(|number| partition.delete(format!("{letter}{number:03}")).unwrap());
    }
    db.flush().unwrap();
    partition.compact_range::<&[u8]>(..).unwrap();
    assert_eq!((partition.stats().unwrap().runs, partition.iter().count()), (0, 0));
    db.verify().unwrap();
}
