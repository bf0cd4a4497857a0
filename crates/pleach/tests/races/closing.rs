//! Races of a close with all other calls: every acknowledged write survives, and no read takes the store for empty.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

use pleach::env::failpoint::hold;
use pleach::{Db, Durability, Error, ErrorKind, Options, Partition, Result};

use crate::race;

/// Time after which a thread that does not wait has gone on. Too short a time hides a violation and reports none.
const A_WHILE: Duration = Duration::from_millis(50);

fn assert_closed<T>(answer: Result<T>) {
    assert_eq!(answer.err().map(|error| error.kind()), Some(ErrorKind::Closed));
}

#[test]
fn a_commit_under_way_is_in_the_store_that_a_close_leaves() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let held = hold("commit.inserted");
        let writer = spawn({
            let partition = db.default_partition();
            move || partition.put("under way", "1")
        });
        held.wait_for(1);
        let late = db.default_partition();
        let closer = spawn(move || db.close());
        sleep(A_WHILE);
        assert!(!closer.is_finished(), "a close waits for the commit");
        let late = spawn(move || late.put("late", "1"));
        sleep(A_WHILE);
        held.release();
        writer.join().unwrap().unwrap();
        closer.join().unwrap().unwrap();
        assert_closed(late.join().unwrap());
        let db = Db::open(dir.path()).unwrap();
        assert!(db.default_partition().get("under way").unwrap().is_some());
        assert!(db.default_partition().get("late").unwrap().is_none());
    });
}

/// A drop or creation that a close meets in its middle is done and answered so.
#[test]
fn an_edit_under_way_is_in_the_store_that_a_close_leaves() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let gone = db.partition("gone").unwrap();
        let held = hold("edit.applied");
        let dropper = spawn({
            let (db, gone) = (db.clone(), gone.clone());
            move || db.drop_partition(gone)
        });
        held.wait_for(1);
        let creator = spawn({
            let db = db.clone();
            move || db.create_partitions(["gone", "new"]).map(|_| ())
        });
        let closer = spawn(move || db.close());
        sleep(A_WHILE);
        assert!(!closer.is_finished());
        held.release();
        dropper.join().unwrap().unwrap();
        closer.join().unwrap().unwrap();
        let created = creator.join().unwrap();
        let db = Db::open(dir.path()).unwrap();
        match created {
            Ok(()) => assert_eq!(db.partitions(), ["default", "gone", "new"]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed);
                assert_eq!(db.partitions(), ["default"]);
            }
        }
    });
}

/// Runs `read` while the store is closed, just before it looks at the state.
fn beside_a_close<T: Send + 'static>(
    point: &'static str,
    read: impl FnOnce(&Db, &Partition) -> Result<T> + Send + 'static,
) -> Result<T> {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path())?;
    let partition = db.partition("p")?;
    partition.put("flushed", "1")?;
    db.flush()?;
    partition.put("new", "2")?;
    let held = hold(point);
    let reader = spawn({
        let db = db.clone();
        move || read(&db, &partition)
    });
    held.wait_for(1);
    db.close()?;
    drop(Db::open(dir.path())?);
    held.release();
    reader.join().expect("a read does not panic")
}

#[test]
fn a_read_beside_a_close_is_closed_rather_than_empty() {
    race(|| {
        assert_closed(beside_a_close("partition.read", |_, p| p.get("flushed")));
        assert_closed(beside_a_close("partition.read", |_, p| p.get("new")));
        assert_closed(beside_a_close("partition.read", |_, p| p.get_many(["flushed", "new"])));
        assert_closed(beside_a_close("partition.read", |_, p| p.iter().collect::<Result<Vec<_>>>()));
        assert_closed(beside_a_close("partition.read", |_, p| p.stats()));
        assert_closed(beside_a_close("read_view.visible", |_, p| p.iter().rev().collect::<Result<Vec<_>>>()));
        assert_closed(beside_a_close("read_view.visible", |db, p| db.snapshot().get(p, "new")));
        assert_closed(beside_a_close("read_view.visible", |db, p| {
            db.snapshot().range(p, "a".."z").collect::<Result<Vec<_>>>()
        }));
    });
}

#[test]
fn a_partition_dropped_while_its_name_is_created_is_another() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let old = db.partition("name").unwrap();
        old.put("key", "value").unwrap();
        let held = hold("edit.applied");
        let dropper = spawn({
            let (db, old) = (db.clone(), old.clone());
            move || db.drop_partition(old)
        });
        held.wait_for(1);
        let creator = spawn({
            let db = db.clone();
            move || db.create_partitions(["name"])
        });
        sleep(A_WHILE);
        held.release();
        dropper.join().unwrap().unwrap();
        let new = creator.join().unwrap().unwrap().remove(0);
        assert_ne!(new.id(), old.id());
        assert!(new.get("key").unwrap().is_none());
        assert_closed(old.put("key", "value"));
        new.put("key", "new").unwrap();
        drop((new, old));
        db.close().unwrap();
        let db = Db::open(dir.path()).unwrap();
        assert_eq!(db.partition("name").unwrap().get("key").unwrap().as_deref(), Some(&b"new"[..]));
    });
}

/// The last number that one client wrote and that was acknowledged.
#[derive(Default)]
struct Told(AtomicU64);

fn options() -> Options {
    Options::new().memory(16 << 20).memtable_bytes(64 << 10).sst_bytes(16 << 10).compaction_threads(2)
}

const KEYS: u64 = 500;

/// Writes, reads, scans, snapshots, creates and drops until the store is closed.
fn live(db: &Db, client: u64, told: &Told) -> Result<()> {
    let own = db.partition(&format!("client {client}"))?;
    let steady = db.partition("steady")?;
    for number in 1.. {
        let mut batch = db.batch();
        batch.put(&own, "a", number.to_string());
        batch.put(&own, format!("{:05}", number % 1000), [1; 300]);
        batch.put(&own, "b", number.to_string());
        batch.commit(if number % 16 == 0 { Durability::Sync } else { Durability::Buffered })?;
        told.0.store(number, Ordering::Release);
        match (number + client) % 8 {
            0 => assert_eq!(steady.iter().try_fold(0, |n, entry| entry.map(|_| n + 1))?, KEYS),
            1 => assert_eq!(steady.iter().rev().try_fold(0, |n, entry| entry.map(|_| n + 1))?, KEYS),
            2 => {
                let snapshot = db.snapshot();
                assert_eq!(snapshot.get(&own, "a")?, snapshot.get(&own, "b")?);
                let entries = snapshot.prefix(&steady, "k").try_fold(0, |n, entry| entry.map(|_| n + 1))?;
                assert_eq!(entries, KEYS);
            }
            3 => {
                let scratch = db.partition(&format!("scratch {client}"))?;
                scratch.put("key", "value")?;
                db.drop_partition(scratch)?;
            }
            4 => db.flush()?,
            5 => assert!(steady.get_many(["k00000", "k00499"])?.iter().all(Option::is_some)),
            6 if number % 64 < 8 => own.compact()?,
            _ => assert!(steady.get("k00250")?.is_some()),
        }
    }
    Ok(())
}

fn fill(dir: &Path) {
    let db = options().open(dir).unwrap();
    let steady = db.partition("steady").unwrap();
    (0..KEYS).for_each(|key| steady.put(format!("k{key:05}"), [2; 300]).unwrap());
    db.close().unwrap();
}

/// Again and again, with a close at some time: no answer but the right one or `Closed`, and all that was acknowledged is
/// there when the directory is opened at once, beside handles of the store before.
#[test]
fn a_close_beside_everything_loses_nothing() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path());
        for round in 0..40_u64 {
            let db = options().open(dir.path()).unwrap();
            let told: &'static [Told; 4] = Box::leak(Box::default());
            let clients: Vec<_> = (0..4)
                .map(|client| {
                    let db = db.clone();
                    spawn(move || live(&db, client, &told[usize::try_from(client).unwrap()]))
                })
                .collect();
            sleep(Duration::from_millis(round * 7 % 60));
            let other = db.clone();
            let closer = spawn(move || other.close());
            db.close().unwrap();
            let again = options().open(dir.path()).unwrap();
            closer.join().unwrap().unwrap();
            for client in clients {
                let error: Error = client.join().expect("a client does not panic").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Closed, "round {round}: {error}");
            }
            for (client, told) in told.iter().enumerate() {
                let told = told.0.load(Ordering::Acquire);
                let Some(own) = again.find_partition(&format!("client {client}")) else {
                    assert_eq!(told, 0);
                    continue;
                };
                let number = |key| {
                    let value = own.get(key).unwrap();
                    value.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse::<u64>().unwrap())
                };
                // The last commit may have been made and not answered.
                assert_eq!(number("a"), number("b"));
                assert!(
                    told == 0 || (told..=told + 1).contains(&number("a")),
                    "round {round}: {told}, {}",
                    number("a")
                );
            }
            again.verify().unwrap();
            again.close().unwrap();
        }
    });
}

/// Stores that are open for writing.
static OPEN: AtomicU64 = AtomicU64::new(0);

#[test]
fn of_many_that_open_one_directory_one_has_it() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        drop(Db::open(dir.path()).unwrap());
        let openers: Vec<_> = (0..6_u64)
            .map(|opener| {
                let path = dir.path().to_path_buf();
                spawn(move || {
                    let mut opened = 0;
                    for round in 0..60 {
                        match options().read_only(opener == 0 && round % 2 == 0).open(&path) {
                            Ok(db) if db.read_only().is_some() => drop(db),
                            Ok(db) => {
                                assert_eq!(OPEN.fetch_add(1, Ordering::SeqCst), 0, "two have it");
                                let keys = db.default_partition();
                                keys.put(format!("{opener}/{round}"), "value").unwrap();
                                opened += 1;
                                OPEN.fetch_sub(1, Ordering::SeqCst);
                                db.close().unwrap();
                            }
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                        }
                    }
                    opened
                })
            })
            .collect();
        let opened: usize = openers.into_iter().map(|opener| opener.join().unwrap()).sum();
        let db = Db::open(dir.path()).unwrap();
        assert_eq!(db.default_partition().iter().count(), opened);
        assert!(opened > 0);
    });
}

/// Between the open of the lock file and its lock, another process removes the store.
#[test]
fn a_lock_file_that_was_removed_locks_nothing() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        drop(Db::open(dir.path()).unwrap());
        let held = hold("lock.opened");
        let opener = spawn({
            let path = dir.path().to_path_buf();
            move || Db::open(path)
        });
        held.wait_for(1);
        std::fs::remove_file(dir.path().join("LOCK")).unwrap();
        held.release();
        let db = opener.join().unwrap().unwrap();
        assert_eq!(Db::open(dir.path()).unwrap_err().kind(), ErrorKind::Conflict);
        db.close().unwrap();
    });
}

/// A reader found no lock file, because the store was copied without it, and locks the directory instead. Meanwhile a writer
/// makes the file, finds the directory free, and has the store.
#[test]
fn a_reader_that_found_no_lock_file_looks_again() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        drop(Db::open(dir.path()).unwrap());
        std::fs::remove_file(dir.path().join("LOCK")).unwrap();
        let held = hold("lock.no_file");
        let reader = spawn({
            let path = dir.path().to_path_buf();
            move || options().read_only(true).open(path)
        });
        held.wait_for(1);
        let db = Db::open(dir.path()).unwrap();
        held.release();
        assert_eq!(reader.join().unwrap().unwrap_err().kind(), ErrorKind::Conflict);
        db.close().unwrap();
    });
}
