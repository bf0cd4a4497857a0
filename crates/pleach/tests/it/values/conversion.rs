//! Conversion: separated values are copied in the order of their keys, within the space target.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pleach::env::{Clients, SimEnv};
use pleach::{Conversion, Db, Options, Partition};

use super::{SEPARATED, check, key, options, value};
use crate::rig::setup::DIR;
use crate::rig::tasks::block_on;

const KEYS: u64 = 2000;
const LEN: usize = 500;

fn ready(env: &Arc<SimEnv>, change: impl Fn(Options) -> Options) -> Db {
    let db = change(options(env)).open(DIR).unwrap();
    fill_at_random(&db.default_partition(), 0, 1);
    db.compact().unwrap();
    db
}

/// Puts every `step`th key, in an order that is not that of the keys.
fn fill_at_random(partition: &Partition, round: u64, step: u64) {
    for number in (0..KEYS).map(|number| number * 787 % KEYS).filter(|number| number % step == 0) {
        partition.put(key(number), value(number, round, LEN)).unwrap();
    }
}

/// Reads that a scan makes whose values are in the system's memory no more.
fn reads_of_a_scan(env: &SimEnv, partition: &Partition) -> u64 {
    let before = env.read_count();
    assert_eq!(partition.iter().map(Result::unwrap).count() as u64, KEYS);
    env.read_count() - before
}

#[test]
fn values_come_into_the_order_of_their_keys() {
    let env = SimEnv::new(1);
    let db = ready(&env, |options| options.space_target(4.0));
    let partition = db.default_partition();
    let before = reads_of_a_scan(&env, &partition);
    db.convert().unwrap();
    env.run_jobs();
    let stats = db.stats();
    assert!(stats.value_converted_bytes >= KEYS * LEN as u64, "{stats:?}");
    assert_eq!(stats.values, KEYS);
    let after = reads_of_a_scan(&env, &partition);
    assert!(after * 10 < before, "{after} reads after the conversion, {before} before");
    check(&partition, KEYS, 0, LEN);
    db.verify().unwrap();
    // The old copies are gone, and nothing is left to be done.
    assert!(stats.value_file_bytes < KEYS * (LEN as u64 + 20), "{stats:?}");
    db.convert().unwrap();
    assert_eq!(db.stats().value_converted_bytes, stats.value_converted_bytes, "values in order stay");
    drop((partition, db));
    let db = options(&env).open(DIR).unwrap();
    check(&db.default_partition(), KEYS, 0, LEN);
    db.verify().unwrap();
}

#[test]
fn a_second_conversion_copies_what_has_come_since() {
    let env = SimEnv::new(1);
    let db = ready(&env, |options| options.space_target(4.0));
    let partition = db.default_partition();
    db.convert().unwrap();
    let before = db.stats().value_converted_bytes;
    fill_at_random(&partition, 1, 4);
    db.convert().unwrap();
    let copied = db.stats().value_converted_bytes - before;
    let new = KEYS / 4 * LEN as u64;
    assert!((new / 2..new * 5 / 4).contains(&copied), "{copied} bytes for {new} new ones");
    let expected = |number: u64| value(number, u64::from(number.is_multiple_of(4)), LEN);
    for number in 0..KEYS {
        assert_eq!(partition.get(key(number)).unwrap().as_deref(), Some(&*expected(number)));
    }
    db.verify().unwrap();
}

/// A conversion at a tight target takes several passes. All of them together find the disk full if they take more than the
/// target, and what is being written.
#[test]
fn a_conversion_stays_within_the_space_target() {
    let env = SimEnv::new(1);
    let db = ready(&env, |options| options.space_target(1.3));
    let partition = db.default_partition();
    db.settle().unwrap();
    let before = reads_of_a_scan(&env, &partition);
    let live = KEYS * LEN as u64;
    let slack = 700 << 10;
    env.set_capacity(live * 13 / 10 + slack);
    db.convert().unwrap();
    let stats = db.stats();
    assert!(stats.value_converted_bytes >= live, "{stats:?}");
    assert!(stats.value_moved_bytes > 0, "space was freed between passes: {stats:?}");
    let after = reads_of_a_scan(&env, &partition);
    assert!(after * 5 < before, "{after} reads after the conversion, {before} before");
    check(&partition, KEYS, 0, LEN);
    db.verify().unwrap();
}

#[test]
fn a_snapshot_reads_old_values_across_a_conversion() {
    let env = SimEnv::new(1);
    let db = ready(&env, |options| options.space_target(4.0));
    let partition = db.default_partition();
    let snapshot = db.snapshot();
    fill_at_random(&partition, 1, 2);
    db.convert().unwrap();
    env.run_jobs();
    assert!(db.stats().pinned_bytes > 0);
    for number in 0..KEYS {
        let found = snapshot.get(&partition, key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&*value(number, 0, LEN)));
        let found = partition.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&*value(number, u64::from(number % 2 == 0), LEN)));
    }
    drop(snapshot);
    env.run_jobs();
    assert_eq!(db.stats().pinned_bytes, 0);
}

#[test]
fn a_conversion_tells_how_far_it_is_and_can_be_stopped() {
    // Values are copied in groups of 4096.
    const MANY: u64 = 6 << 12;
    let env = SimEnv::new(1);
    let db = options(&env).space_target(4.0).open(DIR).unwrap();
    let partition = db.default_partition();
    for number in (0..MANY).map(|number| number * 787 % MANY) {
        partition.put(key(number), value(number, 0, SEPARATED)).unwrap();
    }
    let mut told = Vec::new();
    let stopped = partition.convert_with(&mut |passed, all| {
        told.push((passed, all));
        passed < all / 3
    });
    assert_eq!(stopped.unwrap(), 0);
    let (passed, all) = *told.last().unwrap();
    assert!(told.len() > 3 && told.is_sorted() && passed < all, "{told:?}");
    let before = db.stats().values_converted;
    assert!((MANY / 4..MANY).contains(&before), "{before} values");
    // Another one ends what the first has left.
    assert_eq!(partition.convert_with(&mut |_, _| true).unwrap(), 0);
    env.run_jobs();
    let copied = db.stats().values_converted;
    assert!((MANY * 95 / 100..MANY * 11 / 10).contains(&copied), "{copied} values");
    check(&partition, MANY, 0, SEPARATED);
    db.verify().unwrap();
}

/// At a low target a conversion takes several passes.
#[test]
fn a_conversion_can_be_stopped_between_its_passes() {
    for stop_at in 1..4 {
        let env = SimEnv::new(1);
        let db = ready(&env, |options| options.space_target(1.3));
        let partition = db.default_partition();
        // A pass ends with all bytes. Before the next one, while space is freed, none are passed.
        let (mut passes, mut between) = (0, 0);
        let left = partition.convert_with(&mut |passed, all| {
            passes += u32::from(passed == all);
            between += u32::from(passes > 0 && passed == 0);
            between < stop_at
        });
        let left = left.unwrap();
        assert!(passes > 0 && left > 0, "{stop_at}: {passes} passes, {left} bytes left");
        let copied = db.stats().values_converted;
        env.run_jobs();
        assert_eq!(db.stats().values_converted, copied, "no other pass begins");
        assert_eq!(partition.convert().unwrap(), 0);
        check(&partition, KEYS, 0, LEN);
    }
}

/// Chunks that fill the cache read values of the system's cache once.
#[test]
fn chunks_fill_the_cache_of_values_if_they_are_told_to() {
    let env = SimEnv::new(1);
    let db = ready(&env, |options| options.space_target(4.0).memory(32 << 20));
    let reads = |fills: bool| {
        let before = db.stats().value_reads;
        let range = db.default_partition().iter();
        let mut chunks = if fills { range.fill_cache() } else { range }.into_chunks(100);
        let mut found = 0;
        while let Some(chunk) = block_on(chunks.next_chunk()).unwrap() {
            found += chunk.len() as u64;
        }
        assert_eq!(found, KEYS);
        db.stats().value_reads - before
    };
    assert_eq!(reads(false), KEYS, "all are counted");
    assert_eq!(reads(true), KEYS, "nothing was cached");
    let third = reads(false);
    assert!(third < KEYS / 5, "{third} reads");
}

#[test]
fn cached_values_stay_cached_across_a_conversion() {
    for name in ["default", "other"] {
        let env = SimEnv::new(1);
        let db = options(&env).space_target(4.0).memory(32 << 20).open(DIR).unwrap();
        let partition = db.partition(name).unwrap();
        fill_at_random(&partition, 0, 1);
        db.compact().unwrap();
        check(&partition, KEYS, 0, LEN);
        let reads = || {
            let before = db.stats().value_reads;
            check(&partition, KEYS, 0, LEN);
            db.stats().value_reads - before
        };
        let before = reads();
        assert!(before < KEYS / 10, "most are cached: {before} reads");
        db.convert().unwrap();
        assert!(db.stats().values_converted > KEYS * 95 / 100);
        let after = reads();
        assert!(after < KEYS / 10, "{name}: {after} reads");
    }
}

#[test]
fn cached_values_stay_cached_when_they_are_overwritten() {
    let env = SimEnv::new(1);
    let db = ready(&env, |options| options.space_target(4.0).memory(32 << 20));
    let partition = db.default_partition();
    check(&partition, KEYS, 0, LEN);
    fill_at_random(&partition, 1, 1);
    db.flush().unwrap();
    let before = db.stats().value_reads;
    check(&partition, KEYS, 1, LEN);
    let reads = db.stats().value_reads - before;
    assert!(reads < KEYS / 10, "{reads} reads");
}

/// Reads everything, by its iterator or by chunks.
fn scan(partition: &Partition, by_chunks: bool) {
    let mut found = 0;
    if by_chunks {
        let mut chunks = partition.iter().into_chunks(100);
        while let Some(chunk) = block_on(chunks.next_chunk()).unwrap() {
            found += chunk.len() as u64;
        }
    } else {
        found = partition.iter().count() as u64;
    }
    assert_eq!(found, KEYS);
}

#[test]
fn scans_pay_for_a_conversion() {
    for by_chunks in [false, true] {
        scans_pay_for_conversions(by_chunks);
    }
}

fn scans_pay_for_conversions(by_chunks: bool) {
    for (conversion, is_done) in
        [(Conversion::Never, false), (Conversion::ForScans, true), (Conversion::Always, true)]
    {
        let env = SimEnv::new(1);
        let db = ready(&env, |options| options.space_target(4.0).conversion(conversion));
        let partition = db.default_partition();
        db.settle().unwrap();
        assert_eq!(db.stats().value_converted_bytes > 0, conversion == Conversion::Always);
        (0..40).for_each(|_| scan(&partition, by_chunks));
        db.settle().unwrap();
        let converted = db.stats().value_converted_bytes;
        assert_eq!(converted > 0, is_done, "{conversion:?}");
        // Scans of values in order do not pay for another one.
        (0..40).for_each(|_| scan(&partition, by_chunks));
        db.settle().unwrap();
        assert_eq!(db.stats().value_converted_bytes, converted, "{conversion:?}");
        check(&partition, KEYS, 0, LEN);
    }
}

/// A store at its space target has no room for copies. The rule frees space, and copies as far as it reaches, again and again.
#[test]
fn scans_pay_for_conversions_of_a_store_without_room() {
    for conversion in [Conversion::ForScans, Conversion::Always] {
        let env = SimEnv::new(1);
        let change =
            |options: Options| options.space_target(1.3).conversion(conversion).memtable_bytes(64 << 10);
        let db = ready(&env, change);
        let partition = db.default_partition();
        for round in 1..4 {
            fill_at_random(&partition, round, 3);
        }
        db.flush().unwrap();
        db.settle().unwrap();
        let before = reads_of_a_scan(&env, &partition);
        for _ in 0..20 {
            (0..10).for_each(|_| scan(&partition, false));
            db.settle().unwrap();
        }
        db.compact().unwrap();
        db.settle().unwrap();
        let stats = db.stats();
        assert!(stats.value_converted_bytes > KEYS * LEN as u64 / 4, "{conversion:?}: {stats:?}");
        let after = reads_of_a_scan(&env, &partition);
        assert!(after * 3 < before || conversion == Conversion::Always, "{before} reads, then {after}");
        assert!(stats.value_file_bytes < KEYS * (LEN as u64 + 20) * 14 / 10, "{stats:?}");
        assert_eq!(
            stats.value_moved_bytes == 0,
            conversion == Conversion::Always,
            "{conversion:?}: {stats:?}"
        );
        for number in 0..KEYS {
            let round = if number.is_multiple_of(3) { 3 } else { 0 };
            assert_eq!(partition.get(key(number)).unwrap().as_deref(), Some(&*value(number, round, LEN)));
        }
        db.verify().unwrap();
    }
}

/// What the target allows may be more than the disk has. A conversion leaves what it has no room for, and room for others.
#[test]
fn a_conversion_leaves_room_on_a_full_disk() {
    for kib in [100, 200, 400] {
        let env = SimEnv::new(1);
        let db = ready(&env, |options| options.space_target(4.0).memtable_bytes(64 << 10));
        let partition = db.default_partition();
        db.settle().unwrap();
        env.set_capacity(env.used_space() + (kib << 10));
        let left = db.convert().unwrap_or_else(|error| panic!("{kib} KiB: {error}"));
        assert!(left > 0, "{kib} KiB have no room for all copies");
        db.compact().unwrap();
        check(&partition, KEYS, 0, LEN);
        db.verify().unwrap();
    }
}

/// Scans until a conversion is due, and settles beside the jobs.
fn scan_and_settle(env: &Arc<SimEnv>, db: &Db, seed: u64) {
    for _ in 0..40 {
        assert_eq!(db.default_partition().iter().count() as u64, KEYS);
    }
    let mut clients = Clients::new();
    let client = db.clone();
    clients.add("settle", move || client.settle().unwrap());
    env.run_clients(seed, clients);
}

/// A settle ends when a conversion gives up the wait for room.
#[test]
fn a_settle_ends_when_a_conversion_finds_no_room() {
    for seed in 0..30 {
        let env = SimEnv::new(seed);
        let db = options(&env).space_target(4.0).open(DIR).unwrap();
        let partition = db.default_partition();
        fill_at_random(&partition, 0, 1);
        db.compact().unwrap();
        db.settle().unwrap();
        env.set_capacity(env.used_space() + (100 << 10));
        scan_and_settle(&env, &db, seed);
        assert_eq!(db.stats().value_converted_bytes, 0);
    }
}

/// The same, at the space target: relocation frees what it can.
#[test]
fn a_settle_ends_when_relocation_frees_too_little() {
    for seed in 0..30 {
        let env = SimEnv::new(seed);
        let db = options(&env).space_target(1.3).memtable_bytes(64 << 10).open(DIR).unwrap();
        let partition = db.default_partition();
        fill_at_random(&partition, 0, 1);
        db.compact().unwrap();
        db.settle().unwrap();
        let snapshot = db.snapshot();
        fill_at_random(&partition, 1, 3);
        db.settle().unwrap();
        scan_and_settle(&env, &db, seed);
        drop(snapshot);
    }
}

/// Others overwrite without end, and take the room that is freed for copies. The conversion ends with what it could do.
#[test]
fn a_conversion_ends_beside_writers_at_the_space_target() {
    for (seed, target) in [(1, 1.1), (2, 1.2), (3, 1.3)] {
        let env = SimEnv::new(seed);
        let db = ready(&env, |options| options.space_target(target).memtable_bytes(64 << 10));
        db.settle().unwrap();
        let is_done = Arc::new(AtomicBool::new(false));
        let mut clients = Clients::new();
        let (client, done) = (db.clone(), Arc::clone(&is_done));
        clients.add("convert", move || {
            client.convert().unwrap();
            done.store(true, Ordering::Relaxed);
        });
        let (partition, done) = (db.default_partition(), Arc::clone(&is_done));
        clients.add("overwrite", move || {
            for round in 0..40 * KEYS {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                partition.put(key(round * 787 % KEYS), value(round * 787 % KEYS, round, LEN)).unwrap();
            }
            panic!("{target}: the conversion does not end");
        });
        env.run_clients(seed, clients);
        db.verify().unwrap();
    }
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
    assert_eq!(db.convert().unwrap(), 0, "there is room for everything");
    assert!(db.stats().values_converted >= 2000);
}
