//! Cursors: turns among many runs, the edges of a partition, what a cursor sees, and failed reads. Random moves are compared
//! with a map by the rigs (`rig/query.rs`).

use std::path::Path;
use std::sync::Arc;

use pleach::env::SimEnv;
use pleach::{Cursor, Db, ErrorKind, Options};

use crate::rig::setup::DIR;

fn key(n: usize) -> String {
    format!("{n:05}")
}

/// A partition whose keys lie in turn in `runs` runs and a memtable, so that the source changes at each step.
fn interlaced(options: Options, runs: usize, keys: usize) -> Db {
    let db = options.open(DIR).unwrap();
    let partition = db.default_partition();
    for run in 0..=runs {
        for n in (run..keys).step_by(runs + 1) {
            partition.put(key(n), format!("value {n}")).unwrap();
        }
        if run < runs {
            db.flush().unwrap();
        }
    }
    db
}

/// A store of 40,000 keys in six runs and a memtable, of which nothing is in the cache.
fn reopened() -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(16 << 20);
    interlaced(options.clone(), 6, 40_000).close().unwrap();
    (env, options.open(DIR).unwrap())
}

fn on(cursor: &Cursor) -> Option<usize> {
    cursor.key().map(|key| String::from_utf8_lossy(key).parse().unwrap())
}

#[test]
fn a_cursor_turns_anywhere() {
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(16 << 20);
    let db = interlaced(options, 6, 400);
    let mut cursor = db.default_partition().cursor().unwrap();
    for start in [0, 1, 7, 200, 398, 399] {
        for walk in [1, 2, 3, 5, 20, 150] {
            assert!(cursor.seek(key(start)).unwrap());
            let mut expected = Some(start);
            for step in 0..4 * walk {
                let up = step / walk % 2 == 0;
                expected = match expected {
                    Some(399) if up => None,
                    Some(n) if up => Some(n + 1),
                    Some(n) => n.checked_sub(1),
                    None => None,
                };
                let found = if up { cursor.next() } else { cursor.prev() };
                assert_eq!(found.unwrap(), expected.is_some());
                assert_eq!(on(&cursor), expected, "start {start} walk {walk} step {step}");
            }
        }
    }
}

/// Neighbouring keys often share a source here, and each walk is a few steps long, so a turn follows two sources, of which one
/// has moved twice.
#[test]
fn a_turn_keeps_the_order_of_its_sources() {
    const KEYS: usize = 300;
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let db = Options::new().env(SimEnv::new(1)).memory(16 << 20).open(DIR).unwrap();
        let partition = db.default_partition();
        let owners: Vec<u8> = (0..KEYS).map(|_| random.u8(..4)).collect();
        for run in 0..4 {
            for n in (0..KEYS).filter(|&n| owners[n] == run) {
                partition.put(key(n), "value").unwrap();
            }
            db.flush().unwrap();
        }
        let mut cursor = partition.cursor().unwrap();
        let mut at = KEYS / 2;
        assert!(cursor.seek(key(at)).unwrap());
        for walk in 0..500 {
            let (steps, up) = (random.usize(1..=6), random.bool());
            for _ in 0..steps {
                let is_at_end = if up { at + 1 == KEYS } else { at == 0 };
                if is_at_end {
                    break;
                }
                at = if up { at + 1 } else { at - 1 };
                let found = if up { cursor.next() } else { cursor.prev() };
                assert!(found.unwrap(), "seed {seed} walk {walk}");
                assert_eq!(on(&cursor), Some(at), "seed {seed} walk {walk}");
            }
        }
    }
}

#[test]
fn a_turn_reads_no_block_that_lies_elsewhere() {
    let (env, db) = reopened();
    let mut cursor = db.default_partition().cursor().unwrap();
    cursor.seek(key(20_001)).unwrap();
    let before = env.read_count();
    for _ in 0..100 {
        assert!(cursor.next().unwrap());
        assert!(cursor.prev().unwrap());
    }
    assert_eq!(on(&cursor), Some(20_001));
    // A source whose entry is the first of its block may have to step into the one before.
    assert!(env.read_count() - before <= 2, "{} reads", env.read_count() - before);
}

#[test]
fn a_cursor_that_only_seeks_reads_what_a_get_reads() {
    let (env, db) = reopened();
    let mut cursor = db.default_partition().cursor().unwrap();
    assert!(cursor.seek(key(1)).unwrap());
    let reads_of = |n: usize| {
        let before = env.read_count();
        assert!(cursor.seek(key(n)).unwrap());
        assert_eq!(on(&cursor), Some(n));
        env.read_count() - before
    };
    // None of them lies in the memtable.
    let keys = (1000..40_000).step_by(2000).filter(|n| n % 7 != 6);
    assert!(keys.map(reads_of).max() <= Some(1));
    // A step seeks the other sources, in both directions.
    for n in [2501, 4502, 6503] {
        for forward in [true, false] {
            assert!(cursor.seek(key(n + 100)).unwrap());
            assert!(cursor.seek(key(n)).unwrap());
            assert!(if forward { cursor.next() } else { cursor.prev() }.unwrap());
            assert_eq!(on(&cursor), Some(if forward { n + 1 } else { n - 1 }));
        }
    }
    // A seek to a key that is not there, and to one that a newer source has deleted.
    db.default_partition().delete(key(9000)).unwrap();
    let mut cursor = db.default_partition().cursor().unwrap();
    for (sought, found) in [(8000, 8000), (9000, 9001), (39_999, 39_999)] {
        assert!(cursor.seek(key(sought)).unwrap());
        assert_eq!(on(&cursor), Some(found));
    }
    assert!(!cursor.next().unwrap());
    assert!(cursor.seek(key(8000)).unwrap() && cursor.seek(key(7000) + "x").unwrap());
    assert_eq!(on(&cursor), Some(7001));
}

#[test]
fn a_cursor_of_an_empty_partition_is_nowhere() {
    let env = SimEnv::new(1);
    let db = Options::new().env(env).memory(16 << 20).open(DIR).unwrap();
    let mut cursor = db.default_partition().cursor().unwrap();
    assert!(!cursor.is_valid());
    assert!(!cursor.next().unwrap());
    assert!(!cursor.first().unwrap());
    assert!(!cursor.last().unwrap());
    assert!(!cursor.seek("").unwrap());
    assert!(!cursor.seek_for_prev("b").unwrap());
    assert_eq!(cursor.key(), None);
    assert_eq!(cursor.value().unwrap(), None);
}

#[test]
fn a_cursor_keeps_its_moment() {
    let env = SimEnv::new(1);
    let db = Options::new().env(env).memory(16 << 20).open(DIR).unwrap();
    let users = db.default_partition();
    users.put("b", "1").unwrap();
    let mut cursor = users.cursor().unwrap();
    let snapshot = db.snapshot();
    users.put("a", "2").unwrap();
    users.delete("b").unwrap();
    users.put("c", "2").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    let mut of_snapshot = snapshot.cursor(&users).unwrap();
    for cursor in [&mut cursor, &mut of_snapshot] {
        assert!(cursor.first().unwrap());
        assert_eq!(cursor.key(), Some(&b"b"[..]));
        assert_eq!(cursor.value().unwrap(), Some(&b"1"[..]));
        assert!(!cursor.next().unwrap());
    }
    let mut now = users.cursor().unwrap();
    assert!(now.seek("b").unwrap());
    assert_eq!(now.key(), Some(&b"c"[..]));
    db.drop_partition(db.partition("other").unwrap()).unwrap();
    db.close().unwrap();
    assert_eq!(now.prev().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(now.first().unwrap_err().kind(), ErrorKind::Closed);
    assert!(!now.is_valid());
}

/// A seek fails behind tombstones that it has passed. The cursor goes elsewhere and passes one more.
#[test]
fn a_cursor_that_failed_behind_tombstones_hides_no_keys() {
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(16 << 20).direct_reads(true);
    let db = options.clone().open(DIR).unwrap();
    let partition = db.default_partition();
    (0..4_000).for_each(|n| partition.put(key(n), [7; 100]).unwrap());
    db.flush().unwrap();
    drop(partition);
    db.close().unwrap();
    let db = options.open(DIR).unwrap();
    let mut paths = env.file_names(Path::new(DIR)).into_iter().map(|name| Path::new(DIR).join(name));
    let sst = paths.find(|path| path.extension().is_some_and(|end| end == "sst")).unwrap();
    env.add_unreadable(&sst, 200_000..200_512);
    let partition = db.default_partition();
    let first_bad = partition.iter().position(|entry| entry.is_err()).unwrap();
    let deleted = first_bad - 60..first_bad;
    deleted.clone().chain([3_900]).for_each(|n| partition.delete(key(n)).unwrap());
    let mut cursor = partition.cursor().unwrap();
    assert_eq!(cursor.seek(key(deleted.start)).unwrap_err().kind(), ErrorKind::Io);
    assert!(cursor.last().unwrap());
    while on(&cursor) != Some(3_899) {
        assert!(cursor.prev().unwrap());
    }
    assert!(cursor.next().unwrap());
    assert_eq!(on(&cursor), Some(3_901));
    let next = partition.range(key(deleted.start)..).next().unwrap();
    assert_eq!(next.unwrap_err().kind(), ErrorKind::Io);
    env.clear_faults();
    let next = partition.range(key(deleted.start)..).next().unwrap().unwrap();
    assert_eq!(&next.0[..], key(first_bad).as_bytes());
}

#[test]
fn a_cursor_that_failed_can_be_sought_again() {
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(16 << 20).direct_reads(true);
    let db = options.clone().open(DIR).unwrap();
    for n in 0..4_000 {
        db.default_partition().put(key(n), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let db = options.open(DIR).unwrap();
    let names = env.file_names(Path::new(DIR)).into_iter();
    let sst = names
        .map(|name| Path::new(DIR).join(name))
        .find(|path| path.extension().is_some_and(|end| end == "sst"));
    let sst = sst.unwrap();
    env.add_unreadable(&sst, 200_000..200_512);
    let mut cursor = db.default_partition().cursor().unwrap();
    assert!(cursor.first().unwrap());
    let error = loop {
        match cursor.next() {
            Ok(found) => assert!(found, "the walk should fail in the middle"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(!cursor.is_valid());
    assert!(!cursor.next().unwrap());
    assert!(cursor.last().unwrap());
    assert_eq!(on(&cursor), Some(3_999));
    assert!(cursor.prev().unwrap());
    assert_eq!(on(&cursor), Some(3_998));
    while cursor.prev().is_ok_and(|found| found) {}
    assert!(cursor.seek(key(0)).unwrap());
    assert!(cursor.next().unwrap());
    assert_eq!(on(&cursor), Some(1));
}
