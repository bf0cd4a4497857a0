//! Races of commits with readers and flushes.

use std::sync::mpsc::channel;
use std::time::Duration;

use pleach::env::failpoint::{self, hold};
use pleach::env::{Env, Fault, FaultKind, RealEnv, SimEnv};
use pleach::{Db, Durability, Options};

use crate::race;

#[test]
fn a_batch_is_seen_whole_or_not_at_all() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let partition = db.default_partition();
        let held = hold("commit.inserted");
        let writer = std::thread::spawn({
            let (db, partition) = (db.clone(), partition.clone());
            move || {
                let mut batch = db.batch();
                batch.put(&partition, b"a", b"1");
                batch.put(&partition, b"b", b"2");
                batch.commit(Durability::Buffered).unwrap();
            }
        });
        held.wait_for(1);
        let before = db.snapshot();
        assert_eq!(partition.get(b"a").unwrap(), None);
        assert_eq!(partition.iter().count(), 0);
        held.release();
        writer.join().unwrap();
        assert_eq!(before.get(&partition, b"b").unwrap(), None);
        assert_eq!(partition.iter().count(), 2);
    });
}

/// A put that is in the log and not in the memtable holds up the next one, which readers must not see before it, but not the
/// readers.
#[test]
fn puts_side_by_side_are_seen_in_the_order_of_the_log() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let partition = db.default_partition();
        partition.put(b"a", b"0").unwrap();
        let held = hold("commit.side_by_side");
        let put = |key: &'static [u8]| {
            let partition = partition.clone();
            std::thread::spawn(move || partition.put(key, b"1"))
        };
        let first = put(b"a");
        held.wait_for(1);
        let second = put(b"b");
        if RealEnv::new().parallelism() > 1 {
            held.wait_for(2);
        } else {
            println!("one processor: the second put waits in the commit queue instead of at the point");
            std::thread::sleep(Duration::from_millis(50));
            assert!(!second.is_finished());
        }
        let seen = db.last_sequence_number();
        assert_eq!(partition.get(b"a").unwrap().as_deref(), Some(&b"0"[..]));
        assert_eq!(partition.iter().count(), 1);
        // Both are let go at once. Only the first comes to its insert: the second waits for its turn.
        let inserted = hold("commit.inserted");
        held.release();
        inserted.wait_for(1);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(failpoint::held_points(), "commit.inserted (1 waiting)");
        assert_eq!(partition.get(b"b").unwrap(), None);
        inserted.release();
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
        assert_eq!(db.last_sequence_number(), seen + 2);
        assert_eq!(partition.iter().count(), 2);
    });
}

/// What needs the whole memtable waits for puts that are on their way into it: a flush, a drop, a batch, a sync.
#[test]
fn what_ends_a_memtable_waits_for_puts_on_their_way() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let partition = db.default_partition();
        let gone = db.partition("gone").unwrap();
        partition.put(b"before", b"1").unwrap();
        let held = hold("commit.side_by_side");
        let writer = std::thread::spawn({
            let partition = partition.clone();
            move || partition.put(b"under way", b"1")
        });
        held.wait_for(1);
        let flush = std::thread::spawn({
            let db = db.clone();
            move || db.flush()
        });
        let drop_it = std::thread::spawn({
            let db = db.clone();
            move || db.drop_partition(gone)
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!flush.is_finished() && !drop_it.is_finished());
        held.release();
        writer.join().unwrap().unwrap();
        flush.join().unwrap().unwrap();
        drop_it.join().unwrap().unwrap();
        assert_eq!(partition.iter().count(), 2);
        drop(partition);
        db.close().unwrap();
        assert_eq!(Db::open(dir.path()).unwrap().default_partition().iter().count(), 2);
    });
}

/// Of many threads each writes its own numbers to shared keys. What is read never goes back, and nothing is lost at the end.
#[test]
fn many_writers_of_the_same_keys_lose_nothing() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let partition = db.default_partition();
        let writers: Vec<_> = (0..8u64)
            .map(|writer| {
                let (db, partition) = (db.clone(), partition.clone());
                std::thread::spawn(move || {
                    for n in 0..4_000u64 {
                        let own = format!("own {writer} {:03}", n % 300);
                        partition.put(&own, n.to_le_bytes()).unwrap();
                        assert_eq!(partition.get(&own).unwrap().as_deref(), Some(&n.to_le_bytes()[..]));
                        let shared = format!("shared {:02}", n % 10);
                        partition.put(&shared, (n << 8 | writer).to_le_bytes()).unwrap();
                        if n % 500 == writer {
                            db.flush().unwrap();
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(partition.iter().count(), 8 * 300 + 10);
        for writer in 0..8 {
            for n in 3_900..4_000u64 {
                let value = partition.get(format!("own {writer} {:03}", n % 300)).unwrap();
                assert_eq!(value.as_deref(), Some(&n.to_le_bytes()[..]));
            }
        }
        assert_eq!(db.last_sequence_number(), 8 * 8_000);
    });
}

/// The sync of a full segment fails for a commit leader, and has not poisoned the store yet. A flush whose sync of the same
/// segment would succeed, because its pages are clean now, must not go on to name it.
#[test]
fn a_flush_does_not_name_a_segment_that_a_leader_failed_to_sync() {
    race(|| {
        let env = SimEnv::new(1);
        let db = Options::new().env(env.clone()).separate_at(200).open("/store").unwrap();
        let partition = db.default_partition();
        (0..50u8).for_each(|key| partition.put([key], [key; 1000]).unwrap());
        let before_sync = hold("flush.segment_sync");
        let (flushed, ended) = channel();
        std::thread::spawn({
            let db = db.clone();
            move || flushed.send(db.flush()).unwrap()
        });
        before_sync.wait_for(1);
        let before_poison = hold("log.sync_failed");
        let op = env.op_count();
        (op..op + 10).for_each(|at_op| env.add_fault(Fault { at_op, kind: FaultKind::SyncFails }));
        let writer = std::thread::spawn({
            let db = db.clone();
            move || {
                let mut batch = db.batch();
                batch.put(&db.default_partition(), b"new", b"value");
                batch.commit(Durability::Sync)
            }
        });
        before_poison.wait_for(1);
        env.clear_faults();
        before_sync.release();
        let early = ended.recv_timeout(Duration::from_millis(100));
        before_poison.release();
        assert!(writer.join().unwrap().is_err());
        assert!(early.or_else(|_| ended.recv()).unwrap().is_err());
    });
}
