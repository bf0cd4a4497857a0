//! Many threads on one store of the real machine: group commit, atomic batches, snapshots and scans beside flushes,
//! compactions and partitions that come and go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pleach::{Db, Durability, Options, Result};

/// Keys each writer moves together, in two partitions.
const KEYS: u64 = 50;
const WRITERS: u64 = 3;
const ROUNDS: u64 = 400;

fn key(writer: u64, i: u64) -> Vec<u8> {
    format!("{writer:02}/{i:06}").into_bytes()
}

/// Each round a writer gives all its keys, in both partitions, the round's number, in one batch.
fn write(db: &Db, writer: u64, done: &[AtomicU64]) -> Result<()> {
    let (left, right) = (db.partition("left")?, db.partition("right")?);
    for round in 1..=ROUNDS {
        let mut batch = db.batch();
        for i in 0..KEYS {
            batch.put(&left, key(writer, i), round.to_le_bytes());
            batch.put(&right, key(writer, i), round.to_le_bytes());
        }
        batch.commit(if round % 50 == 0 { Durability::Sync } else { Durability::Buffered })?;
        done[usize::try_from(writer).expect("few writers")].store(round, Ordering::Release);
    }
    Ok(())
}

fn round_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("eight bytes"))
}

/// A snapshot shows each writer's batches whole: one round everywhere, none older than what was acknowledged.
fn check_snapshot(db: &Db, done: &[AtomicU64], rng: &mut fastrand::Rng) -> Result<()> {
    let (left, right) = (db.partition("left")?, db.partition("right")?);
    let writer = rng.u64(..WRITERS);
    let acknowledged = done[usize::try_from(writer).expect("few writers")].load(Ordering::Acquire);
    let snapshot = db.snapshot();
    let first = snapshot.get(&left, key(writer, 0))?.map_or(0, |v| round_of(&v));
    assert!(first >= acknowledged, "an acknowledged batch is missing");
    for i in 0..KEYS {
        let read = snapshot.get(&right, key(writer, i))?.map_or(0, |v| round_of(&v));
        assert_eq!(read, first, "a batch is torn");
    }
    let prefix = format!("{writer:02}/");
    let mut scanned = 0;
    for entry in snapshot.prefix(&left, &prefix) {
        assert_eq!(round_of(&entry?.1), first, "a scan is torn");
        scanned += 1;
    }
    assert_eq!(scanned, if first == 0 { 0 } else { KEYS });
    let backwards = snapshot.prefix(&right, &prefix).rev().count() as u64;
    assert_eq!(backwards, scanned);
    Ok(())
}

#[test]
fn snapshots_and_batches_stay_whole_beside_everything_else() {
    let seed = std::env::var("PLEACH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("PLEACH_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new().memory(1 << 20).memtable_bytes(128 << 10).sst_bytes(32 << 10);
    let db = options().open(dir.path()).unwrap();
    let done: Vec<_> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, done, stop) = (&db, &done, &stop);
        let writers: Vec<_> =
            (0..WRITERS).map(|w| scope.spawn(move || write(db, w, done).unwrap())).collect();
        for reader in 0..2 {
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + reader);
                while !stop.load(Ordering::Acquire) {
                    check_snapshot(db, done, &mut rng).unwrap();
                }
            });
        }
        scope.spawn(move || {
            for n in 0.. {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                let name = format!("scratch-{n}");
                let scratch = db.partition(&name).unwrap();
                (0..200u32).for_each(|i| scratch.put(i.to_le_bytes(), b"gone soon").unwrap());
                db.flush().unwrap();
                db.drop_partition(scratch).unwrap();
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, Ordering::Release);
    });
    check_last_round(&db, "at the end");
    db.settle().unwrap();
    check_last_round(&db, "when all has settled");
    db.verify().unwrap();
    let stats = db.stats();
    assert!(stats.flushes > 5 && stats.compactions > 1, "{stats:?}");
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    check_last_round(&db, "after a new start");
}

/// Every key has the value of the last round.
fn check_last_round(db: &Db, when: &str) {
    for name in ["left", "right"] {
        let partition = db.partition(name).unwrap();
        for writer in 0..WRITERS {
            for i in 0..KEYS {
                let round = round_of(&partition.get(key(writer, i)).unwrap().unwrap());
                assert_eq!(round, ROUNDS, "{when}, partition {name}, writer {writer}, key {i}");
            }
        }
    }
}
