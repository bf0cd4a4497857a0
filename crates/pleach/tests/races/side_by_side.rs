//! Writers side by side, as fast as they can be, with everything that ends their work beside them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use pleach::{Db, ErrorKind, Options, Partition};

use crate::race;

const WRITERS: u64 = 4;

/// The memtable is switched every few hundred puts.
fn options() -> Options {
    Options::new().memory(1 << 20).memtable_bytes(32 << 10)
}

fn number(partition: &Partition, key: &str) -> u64 {
    let value = partition.get(key).unwrap();
    value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

/// A snapshot sees each batch whole, and with it every batch before it.
#[test]
fn snapshots_beside_many_writers_see_whole_batches_in_order() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = options().open(dir.path()).unwrap();
        let partition = db.default_partition();
        let is_over = AtomicBool::new(false);
        scope(|threads| {
            for writer in 0..WRITERS {
                let (db, partition, is_over) = (&db, &partition, &is_over);
                threads.spawn(move || {
                    for n in (1u64..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                        let mut batch = db.batch();
                        for key in [
                            &*format!("first {writer}"),
                            "shared first",
                            "shared last",
                            &*format!("last {writer}"),
                        ] {
                            let value = if key.starts_with("shared") { n << 8 | writer } else { n };
                            batch.put(partition, key, value.to_le_bytes());
                        }
                        batch.commit(pleach::Durability::Buffered).unwrap();
                        partition.put(format!("alone {writer}"), n.to_le_bytes()).unwrap();
                    }
                });
            }
            let mut seen = [0; 4];
            for turn in 0..2_000 {
                let snapshot = db.snapshot();
                let at = |key: &str| {
                    let value = snapshot.get(&partition, key).unwrap();
                    value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
                };
                assert_eq!(at("shared first"), at("shared last"));
                for (writer, seen) in seen.iter_mut().enumerate() {
                    let last = at(&format!("last {writer}"));
                    assert_eq!(at(&format!("first {writer}")), last, "a batch is whole");
                    let alone = at(&format!("alone {writer}"));
                    assert!(alone == last || alone + 1 == last, "{alone} is put after batch {last}");
                    assert!(*seen <= last, "what was seen stays");
                    *seen = last;
                }
                if turn % 100 == 0 {
                    db.flush().unwrap();
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

/// A close takes every put that is answered, and answers all others.
#[test]
fn a_close_beside_many_writers_keeps_what_was_answered() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..15u64 {
            let db = options().open(dir.path()).unwrap();
            let partition = db.default_partition();
            let answered: Vec<u64> = scope(|threads| {
                let writers: Vec<_> = (0..WRITERS)
                    .map(|writer| {
                        let partition = &partition;
                        threads.spawn(move || {
                            let key = format!("{writer}");
                            for n in 1u64.. {
                                let value = (round << 32 | n).to_le_bytes();
                                let put = if writer == 0 {
                                    partition.try_put(&key, value)
                                } else {
                                    partition.put(&key, value)
                                };
                                match put {
                                    Ok(()) => {}
                                    Err(error) if error.kind() == ErrorKind::Closed => {
                                        return round << 32 | (n - 1);
                                    }
                                    Err(error) => {
                                        assert_eq!((writer, error.kind()), (0, ErrorKind::Conflict));
                                    }
                                }
                            }
                            unreachable!("the store is closed before")
                        })
                    })
                    .collect();
                sleep(Duration::from_millis(2 + round));
                db.close().unwrap();
                writers.into_iter().map(|writer| writer.join().unwrap()).collect()
            });
            let db = options().open(dir.path()).unwrap();
            for (writer, answered) in answered.into_iter().enumerate().skip(1) {
                let found = number(&db.default_partition(), &writer.to_string());
                assert!(
                    found == answered || answered == round << 32,
                    "writer {writer}: {found:x} {answered:x}"
                );
            }
            db.close().unwrap();
        }
    });
}

/// A batch that writes to a partition that is dropped meanwhile is done in full before the drop, or refused in full.
#[test]
fn a_drop_beside_many_writers_refuses_whole_batches() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = options().open(dir.path()).unwrap();
        for round in 0..20 {
            let (kept, gone) = (db.default_partition(), db.partition("gone").unwrap());
            scope(|threads| {
                for writer in 0..WRITERS {
                    let (db, kept, gone) = (&db, &kept, gone.clone());
                    threads.spawn(move || {
                        let key = format!("{round} {writer}");
                        for n in 1u64.. {
                            let mut batch = db.batch();
                            batch.put(kept, &key, n.to_le_bytes());
                            batch.put(&gone, &key, n.to_le_bytes());
                            if batch.commit(pleach::Durability::Buffered).is_err() {
                                assert_eq!(number(kept, &key), n - 1);
                                break;
                            }
                            kept.put(format!("{key} alone"), n.to_le_bytes()).unwrap();
                        }
                    });
                }
                sleep(Duration::from_millis(3));
                db.drop_partition(gone.clone()).unwrap();
            });
            assert!(db.find_partition("gone").is_none());
            for writer in 0..WRITERS {
                let batches = number(&kept, &format!("{round} {writer}"));
                assert_eq!(number(&kept, &format!("{round} {writer} alone")), batches);
            }
        }
        drop(db);
        assert!(Db::open(dir.path()).unwrap().poisoned().is_none());
    });
}
