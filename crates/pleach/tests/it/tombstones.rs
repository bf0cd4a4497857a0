//! Scans over many tombstones: they find the live keys, and later scans skip the tombstones.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pleach::env::{Env, SimEnv};
use pleach::{Db, Options, Partition, Snapshot};

fn key(i: u64) -> Vec<u8> {
    format!("{i:08}").into_bytes()
}

/// Tombstones that `scan` stepped over.
fn passed(db: &Db, scan: impl FnOnce()) -> u64 {
    let before = db.stats().tombstones_passed;
    scan();
    db.stats().tombstones_passed - before
}

fn first(partition: &Partition) -> Vec<u8> {
    partition.iter().next().unwrap().unwrap().0.to_vec()
}

#[test]
fn the_front_of_a_queue_is_found_in_few_steps() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().memory(4 << 20).memtable_bytes(1 << 20).open(dir.path()).unwrap();
    let queue = db.default_partition();
    (0..1000).for_each(|i| queue.put(key(i), [7; 100]).unwrap());
    let turns = 20_000;
    let steps = passed(&db, || {
        for i in 0..turns {
            queue.put(key(1000 + i), [7; 100]).unwrap();
            let front = first(&queue);
            assert_eq!(front, key(i));
            queue.delete(front).unwrap();
        }
    });
    assert!(steps < turns * 48, "{} steps a turn", steps / turns);
}

/// While others scan without pause, and so keep spans of tombstones, a key that was put into one is found at once.
#[test]
fn a_put_into_a_span_of_tombstones_is_found_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().memory(4 << 20).memtable_bytes(1 << 20).open(dir.path()).unwrap();
    let partition = &db.default_partition();
    (0..100).for_each(|i| partition.delete(key(i)).unwrap());
    let stop = &AtomicBool::new(false);
    let leaps = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    partition.iter().for_each(|entry| assert!(entry.is_ok()));
                }
            });
        }
        let (mut leaps, mut rng) = (0, fastrand::Rng::with_seed(1));
        for _ in 0..20_000 {
            let living = key(rng.u64(..100));
            partition.put(&living, b"value").unwrap();
            assert_eq!(first(partition), living);
            partition.delete(&living).unwrap();
            (0..rng.u32(..1000)).for_each(|_| std::hint::spin_loop());
            leaps += u64::from(passed(&db, || assert!(partition.iter().next().is_none())) < 100);
        }
        stop.store(true, Ordering::Relaxed);
        leaps
    });
    assert!(leaps > 0, "nothing was remembered");
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn compare(
    entries: impl Iterator<Item = pleach::Result<(pleach::Key, pleach::Value)>>,
    model: &[(&Vec<u8>, &Vec<u8>)],
) {
    let read: Vec<_> = entries.take(3).map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    let expected: Vec<_> = model.iter().take(3).map(|(k, v)| ((*k).clone(), (*v).clone())).collect();
    assert_eq!(read, expected);
}

/// Scans from `from` upwards and downwards.
fn check(db: &Partition, snapshot: Option<&Snapshot>, model: &Model, from: &[u8]) {
    let up: Vec<_> = model.range(from.to_vec()..).collect();
    let down: Vec<_> = model.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(from))).rev().collect();
    if let Some(snapshot) = snapshot {
        compare(snapshot.range(db, from..), &up);
        compare(snapshot.range(db, ..from).rev(), &down);
    } else {
        compare(db.range(from..), &up);
        compare(db.range(..from).rev(), &down);
    }
}

/// Long ranges are deleted, single keys are put into them, views old and new are scanned from both ends.
#[test]
fn scans_over_spans_of_tombstones_find_what_a_map_finds() {
    let seed = std::env::var("PLEACH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("PLEACH_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().memory(4 << 20).memtable_bytes(256 << 10).open(dir.path()).unwrap();
    let partition = db.default_partition();
    let mut model = Model::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    for round in 0..20_000u32 {
        match rng.u32(..200) {
            0..4 => {
                let (start, len) = (rng.u64(..2000), rng.u64(20..400));
                for key in (start..start + len).map(key) {
                    partition.delete(&key).unwrap();
                    model.remove(&key);
                }
            }
            4..34 => {
                let key = key(rng.u64(..2400));
                partition.put(&key, round.to_le_bytes()).unwrap();
                model.insert(key, round.to_le_bytes().to_vec());
            }
            34 => {
                snapshots.truncate(2);
                snapshots.insert(0, (db.snapshot(), model.clone()));
            }
            35 if rng.u8(..4) == 0 => db.flush().unwrap(),
            36..50 => {
                for (snapshot, model) in &snapshots {
                    check(&partition, Some(snapshot), model, &key(rng.u64(..2400)));
                }
            }
            _ => check(&partition, None, &model, &key(rng.u64(..2400))),
        }
    }
    let stats = db.stats();
    assert!(stats.tombstones_passed > 0, "{stats:?}");
}

/// The thread that waits in `settle` and the workers judge the age of tombstones by the same clock. Otherwise the thread
/// could wait for a merge that no worker starts.
#[test]
fn a_settle_ends_when_a_tombstone_becomes_too_old_meanwhile() {
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(1 << 20).memtable_bytes(32 << 10);
    let db = options.tombstone_age_max(Duration::from_secs(100)).open("/store").unwrap();
    let partition = db.default_partition();
    partition.put("key", "value").unwrap();
    db.flush().unwrap();
    partition.delete("key").unwrap();
    db.settle().unwrap();
    assert_eq!(db.stats().sst_entries, 2);
    for _ in 0..20 {
        env.sleep(Duration::from_secs(9));
        db.settle().unwrap();
    }
    assert_eq!(db.stats().sst_entries, 0);
}

/// Separated values whose keys are the last thing that is deleted: their space comes back without a call.
#[test]
fn deletes_give_their_space_back_when_it_is_quiet() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().memory(64 << 20).memtable_bytes(8 << 20).open(dir.path()).unwrap();
    let partition = db.default_partition();
    (0..6000).for_each(|i| partition.put(key(i), [7; 4096]).unwrap());
    db.settle().unwrap();
    (0..5000).for_each(|i| partition.delete(key(i)).unwrap());
    let bytes = || -> u64 {
        let files = std::fs::read_dir(dir.path()).unwrap();
        files.filter_map(|file| file.ok()?.metadata().ok()).map(|metadata| metadata.len()).sum()
    };
    assert!(bytes() > 24 << 20);
    let started = std::time::Instant::now();
    // A thousand values, the log, which is allocated in steps of 4 MiB, and the reserve.
    while bytes() > 14 << 20 {
        assert!(started.elapsed() < Duration::from_secs(60), "{} bytes are left", bytes());
        std::thread::sleep(Duration::from_millis(200));
    }
}
