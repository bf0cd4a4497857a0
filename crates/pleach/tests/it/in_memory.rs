//! Stores in memory: the whole engine on threads, in a `MemEnv`.

#![expect(clippy::big_endian_bytes, reason = "byte order is key order")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pleach::env::{Env, MemEnv};
use pleach::{Db, Durability, ErrorKind, Options, ReadDriver};

const ENTRIES: u32 = 100_000;

fn options(env: &Arc<MemEnv>) -> Options {
    Options::new().env(Arc::<MemEnv>::clone(env)).memory(8 << 20)
}

fn key(i: u32) -> [u8; 4] {
    i.wrapping_mul(2_654_435_761).to_be_bytes()
}

/// Every tenth is long enough to be separated.
fn value(i: u32) -> Vec<u8> {
    let len = if i.is_multiple_of(10) { 2000 } else { 100 };
    i.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn fill(db: &Db, entries: std::ops::Range<u32>) {
    let partition = db.default_partition();
    for i in entries {
        partition.put(key(i), value(i)).unwrap();
    }
}

fn check(db: &Db) {
    let partition = db.default_partition();
    for i in (0..ENTRIES).step_by(7) {
        assert_eq!(partition.get(key(i)).unwrap().as_deref(), Some(&value(i)[..]));
    }
    assert_eq!(partition.get(key(ENTRIES)).unwrap(), None);
    let mut count = 0;
    for entry in &partition {
        count += u32::from(!entry.unwrap().1.is_empty());
    }
    assert_eq!(count, ENTRIES);
}

#[test]
fn a_store_is_closed_and_opened_again_in_memory() {
    let env = Arc::new(MemEnv::new());
    let db = options(&env).open("data").unwrap();
    fill(&db, 0..ENTRIES / 2);
    db.flush().unwrap();
    db.compact().unwrap();
    fill(&db, ENTRIES / 2..ENTRIES);
    db.sync().unwrap();
    db.verify().unwrap();
    check(&db);
    assert_eq!(db.stats().read_driver, ReadDriver::Blocking);
    db.close().unwrap();

    let db = options(&env).create_if_missing(false).open("data").unwrap();
    check(&db);
    db.settle().unwrap();
    let before = env.used_bytes();
    db.create_partitions(["other"]).unwrap();
    for i in 0..ENTRIES {
        db.default_partition().delete(key(i)).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(db.default_partition().iter().count(), 0);
    // A thread of its own removes them.
    let end = env.now() + Duration::from_secs(20);
    while env.used_bytes() >= before / 4 {
        assert!(env.now() < end, "removed files take no memory");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!Path::new("data").exists(), "nothing is on the disk");
}

#[test]
fn a_store_in_memory_is_open_once() {
    let env = Arc::new(MemEnv::new());
    let db = options(&env).open("/data").unwrap();
    db.default_partition().put_with("key", "value", Durability::Sync).unwrap();
    for path in ["/data", "data", "./x/../data"] {
        assert_eq!(options(&env).open(path).unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(options(&env).read_only(true).open(path).unwrap_err().kind(), ErrorKind::Conflict);
    }
    // Another environment is another machine.
    let other = Arc::new(MemEnv::new());
    assert_eq!(options(&other).open("/data").unwrap().default_partition().get("key").unwrap(), None);
    db.close().unwrap();
    let readers = [(); 2].map(|()| options(&env).read_only(true).open("data").unwrap());
    for reader in &readers {
        assert_eq!(reader.default_partition().get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
    assert_eq!(options(&env).open("data").unwrap_err().kind(), ErrorKind::Conflict);
    drop(readers);
    options(&env).open("data").unwrap();
}

#[test]
fn stores_in_one_memory_do_not_meet() {
    let env = Arc::new(MemEnv::new());
    let stores = ["a", "b", "a/inner"].map(|path| options(&env).open(path).unwrap());
    std::thread::scope(|scope| {
        for (db, name) in stores.iter().zip(["a", "b", "inner"]) {
            scope.spawn(move || {
                for i in 0..20_000_u32 {
                    db.default_partition().put(i.to_be_bytes(), format!("{name}{i}")).unwrap();
                }
                db.compact().unwrap();
            });
        }
    });
    for (db, name) in stores.into_iter().zip(["a", "b", "inner"]) {
        for i in (0..20_000_u32).step_by(13) {
            let read = db.default_partition().get(i.to_be_bytes()).unwrap();
            assert_eq!(read.as_deref(), Some(format!("{name}{i}").as_bytes()));
        }
        db.close().unwrap();
    }
    let names: Vec<_> = env.list_dir(Path::new("/")).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn many_threads_read_while_files_come_and_go() {
    let env = Arc::new(MemEnv::new());
    // A small cache, so that most reads come to the files.
    let db = options(&env).memory(2 << 20).open("data").unwrap();
    fill(&db, 0..ENTRIES / 4);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                let (partition, mut random) = (db.default_partition(), fastrand::Rng::with_seed(seed));
                while !is_over.load(Ordering::Relaxed) {
                    let several = [(); 20].map(|()| random.u32(..ENTRIES / 4));
                    let read = partition.get_many(several.map(key)).unwrap();
                    for (i, read) in several.into_iter().zip(read) {
                        assert_eq!(read.as_deref(), Some(&value(i)[..]));
                    }
                    let first = key(random.u32(..));
                    assert!(partition.range(first..).take(50).all(|entry| entry.is_ok()));
                }
            });
        }
        for _ in 0..4 {
            fill(&db, 0..ENTRIES / 4);
            db.compact().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_ring_cannot_read_memory_and_direct_reads_are_ordinary_ones() {
    let env = Arc::new(MemEnv::new());
    fill(&options(&env).open("data").unwrap(), 0..1000);
    let refused = options(&env).read_driver(ReadDriver::Ring).open("data").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Io);
    for driver in [ReadDriver::Threads, ReadDriver::Blocking] {
        let db = options(&env).direct_reads(true).read_driver(driver).open("data").unwrap();
        db.compact().unwrap();
        let read = db.default_partition().get_many((0..1000).map(key)).unwrap();
        assert!((0..).zip(read).all(|(i, read)| read.as_deref() == Some(&value(i)[..])));
    }
}
