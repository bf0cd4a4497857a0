//! Attacks on separated values.

use std::path::Path;
use std::sync::Arc;

use pleach::env::{Clients, Env, Fault, FaultKind, SimEnv};
use pleach::{Conversion, Db, Options, Partition};

use super::{SEPARATED, check, fill, files, key, open, options, value};
use crate::rig::setup::DIR;

const KEYS: u64 = 2000;
const LEN: usize = 500;

fn fill_at_random(partition: &Partition, round: u64, step: u64) {
    for number in (0..KEYS).map(|number| number * 787 % KEYS).filter(|number| number % step == 0) {
        partition.put(key(number), value(number, round, LEN)).unwrap();
    }
}

/// A settle ends when a conversion gives up the wait for room.
#[test]
fn a_settle_ends_when_a_conversion_finds_no_room() {
    for seed in 0..10 {
        let env = SimEnv::new(seed);
        let db = options(&env).space_target(4.0).open(DIR).unwrap();
        let partition = db.default_partition();
        fill_at_random(&partition, 0, 1);
        db.compact().unwrap();
        db.settle().unwrap();
        env.set_capacity(env.used_space() + (100 << 10));
        for _ in 0..40 {
            assert_eq!(partition.iter().count() as u64, KEYS);
        }
        let mut clients = Clients::new();
        let client = db.clone();
        clients.add("settle", move || client.settle().unwrap());
        env.run_clients(seed, clients);
        assert_eq!(db.stats().value_converted_bytes, 0);
    }
}

/// The same, at the space target: relocation frees what it can.
#[test]
fn a_settle_ends_when_relocation_frees_too_little() {
    for seed in 0..10 {
        let env = SimEnv::new(seed);
        let db = options(&env).space_target(1.3).memtable_bytes(64 << 10).open(DIR).unwrap();
        let partition = db.default_partition();
        fill_at_random(&partition, 0, 1);
        db.compact().unwrap();
        db.settle().unwrap();
        let snapshot = db.snapshot();
        fill_at_random(&partition, 1, 3);
        db.settle().unwrap();
        for _ in 0..40 {
            assert_eq!(partition.iter().count() as u64, KEYS);
        }
        let mut clients = Clients::new();
        let client = db.clone();
        clients.add("settle", move || client.settle().unwrap());
        env.run_clients(seed, clients);
        eprintln!("{seed}: converted {}", db.stats().value_converted_bytes);
        drop(snapshot);
    }
}

/// A process without descriptors is no damage.
#[test]
fn a_verification_without_a_descriptor_reports_no_damage() {
    let env = SimEnv::new(1);
    let db = open(&env);
    fill(&db.default_partition(), 50, 0, LEN);
    db.flush().unwrap();
    drop(db);
    let mut struck = 0;
    for call in 0..20 {
        let db = open(&env);
        env.clear_faults();
        let before = env.faults_struck();
        for at_op in (0..8).map(|more| env.open_count() + call + more) {
            env.add_fault(Fault { at_op, kind: FaultKind::OpenTooManyFiles });
        }
        let verified = db.verify_all(&mut |_, _| true);
        if env.faults_struck() > before {
            struck += 1;
        }
        if let Ok((_, damage)) = verified {
            assert!(damage.is_empty(), "open {call}: {damage:?}");
        }
        env.clear_faults();
    }
    assert!(struck > 0);
}

/// A changed byte of a file of moved values costs its value, and not the store.
#[test]
fn a_damaged_moved_value_does_not_poison_the_store() {
    let env = SimEnv::new(1);
    let db = options(&env).open(DIR).unwrap();
    let partition = db.default_partition();
    fill(&partition, 400, 0, 1000);
    for round in 1..4 {
        for number in (0..400).filter(|number| number % 3 != 0) {
            partition.put(key(number), value(number, round, 1000)).unwrap();
        }
        db.settle().unwrap();
    }
    drop((partition, db));
    // The head of a value of a moved file.
    let mut struck = 0;
    for name in files(&env, ".val") {
        let path = Path::new(DIR).join(&name);
        let mut bytes = env.read_file(&path).unwrap();
        if bytes[12] != 2 {
            continue;
        }
        for number in (0..400).filter(|number| number % 3 == 0) {
            let wanted = value(number, 0, 1000);
            if let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted) {
                bytes[at - 5] ^= 1;
                struck += 1;
                break;
            }
        }
        env.write_file(&path, &bytes);
    }
    assert!(struck > 0, "values were moved");
    let db = options(&env).open(DIR).unwrap();
    let partition = db.default_partition();
    for round in 4..10 {
        for number in 0..400 {
            if number % 3 == 0 && number % 9 != 0 || number % 3 == 1 {
                partition.put(key(number), value(number, round, 1000)).unwrap();
            }
        }
        db.settle().unwrap();
        assert!(db.poisoned().is_none(), "{:?}", db.poisoned());
    }
    let _ = (SEPARATED, check as fn(&Partition, u64, u64, usize), Conversion::Never);
    let _ = |db: &Db, o: Options, e: Arc<dyn Env>| drop((db.stats(), o, e));
}

/// With `Conversion::Always` everything is copied, large values too.
#[test]
fn always_copies_large_values() {
    let env = SimEnv::new(1);
    let db = options(&env).conversion(Conversion::Always).space_target(4.0).open(DIR).unwrap();
    let partition = db.default_partition();
    for number in (0..20).map(|number| number * 7 % 20) {
        partition.put(key(number), value(number, 0, 100_000)).unwrap();
    }
    for number in (20..2000).map(|number| number * 787 % 1980 + 20) {
        partition.put(key(number), value(number, 0, 500)).unwrap();
    }
    let left = db.convert().unwrap();
    let stats = db.stats();
    eprintln!("{left} bytes left, {} values copied of {}", stats.values_converted, stats.values);
    assert_eq!(left, 0, "there is room for everything");
}
