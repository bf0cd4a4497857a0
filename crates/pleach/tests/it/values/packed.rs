//! Packed values: with LZ4 each separated value is packed alone, and every reader finds it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pleach::env::{CrashPolicy, SimEnv, failpoint};
use pleach::{Db, ErrorKind, Options, ReadDriver, Thresholds, repair};

use super::reads::{LENS, compare, compare_after_recovery_and_flush, mixed};
use super::{SEPARATED, check, files, fill, key, options, value};
use crate::rig::setup::DIR;

/// Values of [`value`] repeat, so that LZ4 saves most of them.
const LEN: usize = 1000;

fn packed(env: &Arc<SimEnv>) -> Options {
    options(env).compression(true)
}

fn open(env: &Arc<SimEnv>) -> Db {
    packed(env).open(DIR).unwrap()
}

/// Bytes that do not repeat.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
}

/// A value whose packed form is about half as long.
fn half(number: u64, round: u64, len: usize) -> Vec<u8> {
    noise(number + 1_000_000 * round, len / 2).repeat(2)
}

#[test]
fn all_reads_find_packed_values() {
    for driver in [ReadDriver::Threads, ReadDriver::Blocking] {
        for direct in [false, true] {
            let env = SimEnv::new(1);
            let open = || packed(&env).read_driver(driver).direct_reads(direct).open(DIR).unwrap();
            let (db, mut model) = (open(), BTreeMap::new());
            mixed(&db, &mut model, &LENS);
            let db = compare_after_recovery_and_flush(db, open, &model);
            let report = db.verify().unwrap();
            let separated = || model.values().map(Vec::len).filter(|len| *len >= SEPARATED);
            assert_eq!(report.values, separated().count() as u64);
            let (stored, raw) = (db.stats().value_bytes, separated().sum::<usize>() as u64);
            assert!(stored * 4 < raw, "{stored} bytes for {raw}");
            db.convert().unwrap();
            compare(&db, &model);
            // From the cache.
            compare(&db, &model);
            db.verify().unwrap();
        }
    }
}

#[test]
fn values_that_do_not_repeat_are_stored_as_they_are() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let partition = db.default_partition();
    for number in 0..50 {
        partition.put(key(number), noise(number, 500)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!((db.stats().values, db.stats().value_bytes), (50, 50 * 504));
    for number in 0..50 {
        assert_eq!(partition.get(key(number)).unwrap().as_deref(), Some(&*noise(number, 500)));
    }
    db.verify().unwrap();
}

/// The raw length decides, however short the packed value is.
#[test]
fn the_raw_length_decides_about_separation() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let partition = db.default_partition();
    partition.put("below", vec![7; SEPARATED - 1]).unwrap();
    partition.put("at", vec![7; SEPARATED]).unwrap();
    db.flush().unwrap();
    let stats = db.stats();
    assert_eq!(stats.values, 1);
    assert!(stats.value_bytes < 40, "{}", stats.value_bytes);
    check_lens(&db, &[("at", SEPARATED), ("below", SEPARATED - 1)]);
}

fn check_lens(db: &Db, expected: &[(&str, usize)]) {
    let partition = db.default_partition();
    for (key, len) in expected {
        assert_eq!(partition.get(key).unwrap().as_deref(), Some(&*vec![7; *len]));
    }
}

#[test]
fn the_option_may_change_with_each_open() {
    let env = SimEnv::new(1);
    let mut model = BTreeMap::new();
    let mut put = |db: &Db, round: u64| {
        for number in (0..60).filter(|number| round == 0 || number % 3 == round % 3) {
            let with = value(number, round, LEN);
            db.default_partition().put(key(number), &with).unwrap();
            model.insert(key(number).into_bytes(), with);
        }
        compare(db, &model);
    };
    for round in 0..6 {
        // Some of the log is recovered, and then flushed, under the other option.
        let db = options(&env).compression(round % 2 == 0).open(DIR).unwrap();
        put(&db, round);
        match round {
            1 => db.flush().unwrap(),
            3 => db.settle().unwrap(),
            4 => assert_eq!(db.convert().unwrap(), 0),
            _ => {}
        }
        db.verify().unwrap();
    }
    let db = options(&env).open(DIR).unwrap();
    compare(&db, &model);
    db.compact().unwrap();
    compare(&db, &model);
    let bytes = db.stats().value_bytes;
    assert!((60 * 100..60 * LEN as u64).contains(&bytes), "some are packed, and some are not: {bytes}");
}

/// Among many small values, separated ones are copied by the flush.
#[test]
fn a_flush_packs_what_it_copies() {
    for is_packed in [true, false] {
        let env = SimEnv::new(1);
        let db = open(&env);
        let partition = db.default_partition();
        for number in 0..200 {
            partition.put(key(number), value(number, 0, if number % 10 == 0 { LEN } else { 150 })).unwrap();
        }
        drop((partition, db));
        let db = options(&env).compression(is_packed).open(DIR).unwrap();
        db.flush().unwrap();
        let stats = db.stats();
        assert!(stats.value_copied_bytes > 0);
        assert_eq!(stats.value_bytes * 4 < 20 * LEN as u64, is_packed, "{stats:?}");
        for number in 0..200 {
            let expected = value(number, 0, if number % 10 == 0 { LEN } else { 150 });
            assert_eq!(db.default_partition().get(key(number)).unwrap().as_deref(), Some(&*expected));
        }
        db.verify().unwrap();
    }
}

/// Conversions find no value in order.
#[test]
fn packed_values_are_moved_and_converted_as_they_are() {
    let env = SimEnv::new(1);
    let thresholds = Thresholds { ordered_gap: 0, ..Thresholds::default() };
    let db = packed(&env).space_target(1.1).thresholds(thresholds).open(DIR).unwrap();
    let partition = db.default_partition();
    let keys = 1500;
    let put = |number, round| partition.put(key(number), half(number, round, LEN)).unwrap();
    (0..keys).for_each(|number| put(number, 0));
    db.settle().unwrap();
    let snapshot = db.snapshot();
    for round in 1..5 {
        let numbers = (0..keys).map(|number| number * 787 % keys);
        numbers.filter(|number| round == 4 || number % 4 == round).for_each(|number| put(number, round));
        db.settle().unwrap();
    }
    let check = |db: &Db| {
        for number in 0..keys {
            let found = db.default_partition().get(key(number)).unwrap();
            assert_eq!(found.as_deref(), Some(&*half(number, 4, LEN)));
        }
        db.verify().unwrap();
    };
    assert!(db.stats().value_moved_bytes > 0, "{:?}", db.stats());
    check(&db);
    for number in (0..keys).step_by(7) {
        let found = snapshot.get(&partition, key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&*half(number, 0, LEN)));
    }
    drop((snapshot, partition, db));
    let db = packed(&env).space_target(4.0).thresholds(thresholds).open(DIR).unwrap();
    check(&db);
    db.convert().unwrap();
    let stats = db.stats();
    assert!(stats.value_converted_bytes > 0, "{stats:?}");
    assert!(stats.value_bytes * 10 < keys * LEN as u64 * 6, "{stats:?}");
    check(&db);
    drop(db);
    check(&open(&env));
}

/// Each byte of a value segment and of a file of copies is changed: a value is right, or it is an error of that file.
#[test]
fn a_changed_byte_of_a_packed_value_is_damage() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let copied = db.partition("copied").unwrap();
    let kept = db.default_partition();
    (0..4).for_each(|number| kept.put(key(number), half(number, 0, 400)).unwrap());
    db.flush().unwrap();
    for number in 0..4 {
        copied.put(key(number), half(number, 0, 400)).unwrap();
        copied.put(format!("small{number}"), noise(number, SEPARATED - 1)).unwrap();
        copied.put(format!("other{number}"), noise(number, SEPARATED - 1)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!((db.stats().values, files(&env, ".val").len()), (8, 1));
    let stored = usize::try_from(db.stats().value_bytes / 2).unwrap();
    drop((kept, copied, db));
    let disk = env.capture();
    for (suffix, partition) in [(".log", "default"), (".val", "copied")] {
        let path = Path::new(DIR).join(files(&env, suffix).remove(0));
        let bytes = env.read_file(&path).unwrap();
        let (end, mut failed) = (bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1, 0);
        for at in 64..end {
            for change in [1, 0x10, 0x80, 0xff] {
                let env: Arc<SimEnv> = disk.crash_image(CrashPolicy::Everything, 1);
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                env.write_file(&path, &damaged);
                let db = packed(&env).read_only(true).open(DIR).unwrap();
                let partition = db.find_partition(partition).unwrap();
                for number in 0..4 {
                    match partition.get(key(number)) {
                        Ok(found) => assert_eq!(found.as_deref(), Some(&*half(number, 0, 400))),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                            assert_eq!(error.path(), Some(&*path));
                            failed += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(failed, 4 * stored, "each changed byte is noticed in its value only");
    }
}

type Change<'c> = &'c dyn Fn(&mut [u8]);

/// With the checksum of the record right, a malformed value is damage of the log, found before anything is inserted.
#[test]
fn a_malformed_value_in_the_log_is_damage() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let partition = db.default_partition();
    partition.put("first", "small").unwrap();
    let mut batch = db.batch();
    batch.put(&partition, "before", "small");
    batch.put(&partition, "same", vec![7; LEN]);
    batch.commit(pleach::Durability::Sync).unwrap();
    drop((partition, db));
    let path = Path::new(DIR).join(files(&env, ".log").pop().unwrap());
    let bytes = env.read_file(&path).unwrap();
    // The head of the packed value: its length, a token, and the byte that repeats.
    let at = bytes.windows(4).position(|window| window == [0xe8, 0x07, 0x1f, 7]).unwrap();
    let batch_at = bytes.windows(6).position(|window| window == b"before").unwrap();
    let disk = env.capture();
    let broken = |change: Change<'_>| {
        let env: Arc<SimEnv> = disk.crash_image(CrashPolicy::Everything, 1);
        let mut damaged = bytes.clone();
        change(&mut damaged[at..]);
        env.write_file(&path, &damaged);
        env
    };
    let changes: [Change<'_>; 5] = [
        &|bytes| bytes[..2].copy_from_slice(&[0x80, 0x00]),
        &|bytes| bytes[..2].copy_from_slice(&[0xe9, 0x07]),
        &|bytes| bytes[..2].copy_from_slice(&[0xff, 0x7f]),
        &|bytes| bytes[2] = 0xff,
        &|bytes| bytes[4..6].fill(0),
    ];
    for change in changes {
        for read_only in [false, true] {
            let env = broken(change);
            let files_before = env.file_names(Path::new(DIR));
            let opened =
                failpoint::with_skipped("log.record.crc", || packed(&env).read_only(read_only).open(DIR));
            let error = opened.unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*path)), "{error}");
            let offset = usize::try_from(error.offset().unwrap()).unwrap();
            assert!((64..batch_at).contains(&offset) && offset + 40 > batch_at, "{error}");
            assert_eq!(env.file_names(Path::new(DIR)), files_before, "nothing was written");
        }
        let env = broken(change);
        let report =
            failpoint::with_skipped("log.record.crc", || repair(DIR, "/new", packed(&env), &mut |_, _| true));
        let report = report.unwrap();
        assert_eq!(report.damaged_places, 1, "{report:#?}");
        let db = packed(&env).open("/new").unwrap();
        assert_eq!(db.default_partition().get("first").unwrap().as_deref(), Some(&b"small"[..]));
        assert_eq!(db.default_partition().get("same").unwrap(), None);
    }
}

/// Without the manifest, a repair finds values by their checksums.
#[test]
fn a_repair_takes_packed_values() {
    for with_manifest in [true, false] {
        let env = SimEnv::new(1);
        let db = open(&env);
        fill(&db.default_partition(), 50, 0, LEN);
        db.flush().unwrap();
        db.default_partition().put("unflushed", vec![7; LEN]).unwrap();
        drop(db);
        if !with_manifest {
            let manifest = env.file_names(Path::new(DIR)).into_iter().find(|name| name.contains("MANIFEST"));
            let path = Path::new(DIR).join(manifest.unwrap());
            pleach::env::Env::remove_file(&*env, &path).unwrap();
        }
        repair(DIR, "/new", packed(&env), &mut |_, _| true).unwrap();
        let db = packed(&env).open("/new").unwrap();
        let partition = db.default_partition();
        assert_eq!(partition.get("unflushed").unwrap().as_deref(), Some(&*vec![7; LEN]));
        for number in 0..50 {
            assert_eq!(partition.get(key(number)).unwrap().as_deref(), Some(&*value(number, 0, LEN)));
        }
    }
}

/// A packed value is not read again from its file once it is cached.
#[test]
fn packed_values_are_cached_raw() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let partition = db.default_partition();
    fill(&partition, 100, 0, LEN);
    db.flush().unwrap();
    check(&partition, 100, 0, LEN);
    let reads = env.read_count();
    for number in 0..100 {
        assert_eq!(partition.get(key(number)).unwrap().as_deref(), Some(&*value(number, 0, LEN)));
    }
    // A few found their bucket full.
    assert!(env.read_count() < reads + 10);
    let held = partition.get(key(7)).unwrap().unwrap();
    db.close().unwrap();
    assert_eq!(held[..], value(7, 0, LEN)[..]);
}
