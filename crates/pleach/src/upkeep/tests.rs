//! Tests of jobs after a failed step.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use pleach_env::{Env, Fault, FaultKind, FileId, SimEnv};

use super::*;
use crate::{Db, Options};

/// Leaves obsolete files that nothing refers to and that the cleaner has not removed yet.
fn leave_obsolete_files(db: &Db) {
    for value in 0..2u8 {
        db.default_partition().put(b"key", [value]).unwrap();
        db.flush().unwrap();
    }
    let snapshot = db.snapshot();
    db.compact().unwrap();
    drop(snapshot);
}

#[test]
fn a_step_that_found_the_disk_full_is_repeated_once_when_files_could_be_removed() {
    let env = SimEnv::new(1);
    let db = Options::new().env(Arc::clone(&env) as _).open("store").unwrap();
    let upkeep = &db.inner().upkeep;
    let full = || Error::io("write", &upkeep.ctx.dir, io::ErrorKind::StorageFull.into());
    for round in 0..3 {
        leave_obsolete_files(&db);
        let files = env.file_names(&upkeep.ctx.dir).len();
        assert_eq!(upkeep.background_failed(full()), JobStep::Again, "round {round}");
        assert!(env.file_names(&upkeep.ctx.dir).len() < files, "files are removed");
        assert_eq!(upkeep.background_failed(full()), JobStep::Idle, "nothing more can be removed");
        upkeep.ctx.status.forget_shortage();
    }
    assert!(db.poisoned().is_none());
}

/// The store is poisoned then. The log still has what was to be flushed.
#[test]
fn a_flush_whose_names_are_not_synced_leaves_no_file() {
    let open = || {
        let env = SimEnv::new(1);
        let options = Options::new().env(Arc::clone(&env) as _).memtable_bytes(64 << 10).separate_at(100);
        let db = options.open("store").unwrap();
        let value = |key: u32| vec![1; if key.is_multiple_of(8) { 200 } else { 50 }];
        (0..200u32).for_each(|key| db.default_partition().put(key.to_le_bytes(), value(key)).unwrap());
        (env, db)
    };
    let (env, db) = open();
    let (sender, calls) = mpsc::channel();
    env.on_op(Box::new(move |op, call| sender.send((op, call)).unwrap_or(())));
    db.flush().unwrap();
    let syncs: Vec<_> = calls.try_iter().filter(|(_, call)| *call == "sync_dir").map(|(op, _)| op).collect();
    assert!(db.stats().value_files > 0 && !syncs.is_empty());
    for at_op in syncs {
        let (env, db) = open();
        env.set_fault(Some(Fault { at_op, kind: FaultKind::SyncFails }));
        db.flush().unwrap_err();
        assert!(db.poisoned().is_some());
        for name in env.file_names(&db.inner().ctx.dir) {
            let is_left = crate::file_names::parse_sst_name(&name).is_some()
                || crate::file_names::parse_values_name(&name).is_some();
            assert!(!is_left, "{name}");
        }
    }
}

/// A repeated step may remove only its own output: without the limit it would be repeated without end.
#[test]
fn a_step_is_repeated_once_in_a_version_whatever_can_be_removed() {
    let env = SimEnv::new(1);
    let db = Options::new().env(Arc::clone(&env) as _).open("store").unwrap();
    let full = || Error::io("write", &db.inner().ctx.dir, io::ErrorKind::StorageFull.into());
    let mut snapshots = Vec::new();
    for value in 0..2u8 {
        db.default_partition().put(b"key", [value]).unwrap();
        db.flush().unwrap();
        db.default_partition().put(b"key", [value]).unwrap();
        db.flush().unwrap();
        snapshots.push(db.snapshot());
        db.compact().unwrap();
    }
    let mut steps = Vec::new();
    for snapshot in snapshots {
        drop(snapshot);
        let files = env.file_names(&db.inner().ctx.dir).len();
        steps.push(db.inner().upkeep.background_failed(full()));
        assert!(env.file_names(&db.inner().ctx.dir).len() < files, "files are removed");
    }
    assert_eq!(steps, [JobStep::Again, JobStep::Idle]);
}

/// A failed merge was taken off the list of those at work: threads that wait for the list must check it again.
#[test]
#[expect(clippy::disallowed_methods, reason = "a thread of the test, on a real machine")]
fn a_repeated_step_wakes_those_who_wait() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let upkeep = Arc::clone(&db.inner().upkeep);
    let is_done = Arc::new(AtomicBool::new(false));
    let (woken, wakes) = mpsc::channel();
    let waiter = {
        let (upkeep, is_done) = (Arc::clone(&upkeep), Arc::clone(&is_done));
        std::thread::spawn(move || {
            upkeep.ctx.status.wait_until(|| is_done.load(Ordering::Relaxed)).unwrap();
            woken.send(()).unwrap();
        })
    };
    assert!(wakes.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
    is_done.store(true, Ordering::Relaxed);
    upkeep.version_set.record_files.lock().old_manifests.push(FileId(9_999));
    let full = Error::io("write", dir.path(), io::ErrorKind::StorageFull.into());
    assert_eq!(upkeep.background_failed(full), JobStep::Again);
    wakes.recv_timeout(Duration::from_secs(20)).expect("it is woken");
    waiter.join().unwrap();
}

#[test]
fn a_failed_request_stays_until_its_last_waiter_has_seen_the_failure() {
    let (mut background, partition) = (Background::default(), PartitionId(7));
    background.begin_wait(partition, false);
    background.begin_wait(partition, false);
    background.end_wait(partition);
    assert!(background.to_compact.contains(partition));
    background.end_wait(partition);
    assert!(!background.to_compact.contains(partition) && background.waiters.is_empty());
}

/// The look may be a call of the system, and commit leaders take the lock.
#[test]
fn a_watched_wait_looks_without_the_lock() {
    let env = SimEnv::new(1);
    let db = Options::new().env(Arc::clone(&env) as _).open("store").unwrap();
    let upkeep = &db.inner().upkeep;
    let looks = Cell::new(0);
    let is_done = || {
        assert!(upkeep.ctx.status.is_unlocked(), "look {}", looks.get());
        looks.set(looks.get() + 1);
        // A change between a look and the wait for a change is not lost.
        upkeep.ctx.status.notify();
        looks.get() == 3
    };
    upkeep.wait_watched(is_done, &mut || true).unwrap();
    assert_eq!(looks.get(), 3);
}

/// What a conversion has left is told to those who wait for it, and not to those who come later.
#[test]
fn the_rest_of_an_earlier_conversion_is_forgotten() {
    let (mut background, partition) = (Background::default(), PartitionId(7));
    background.begin_wait(partition, true);
    background.note_conversion(partition, 5);
    assert_eq!(background.end_wait(partition), Some(5));
    background.note_conversion(partition, 6);
    background.begin_wait(partition, false);
    assert_eq!(background.end_wait(partition), None);
}

/// Steps the cleaner after each of `waits`, in seconds, with one more delete before those that are marked; tells after which one
/// the memtable was switched.
fn switched_after(deletes: u64, waits: &[(u64, bool)]) -> Option<usize> {
    let env = SimEnv::new(1);
    let db = Options::new().env(Arc::clone(&env) as _).open("store").unwrap();
    let partition = db.default_partition();
    (0..deletes).for_each(|i| partition.delete(i.to_le_bytes()).unwrap());
    let mut cleaner = Cleaner::new(&db.inner().upkeep);
    let memtable = || Arc::as_ptr(&db.inner().version_set.state.load().active.memtable);
    let first = memtable();
    cleaner.step();
    waits.iter().position(|(seconds, deletes_more)| {
        if *deletes_more {
            partition.delete(b"one more").unwrap();
        }
        env.sleep(Duration::from_secs(*seconds));
        cleaner.step();
        memtable() != first
    })
}

#[test]
fn deletes_that_rest_are_flushed() {
    use crate::memtable::DELETES_WORTH_FLUSH as MANY;
    assert_eq!(switched_after(MANY, &[(4, false), (4, false), (4, false)]), Some(2));
    assert_eq!(switched_after(MANY, &[(9, false), (9, true), (9, false), (9, false)]), Some(3));
    assert_eq!(switched_after(MANY - 1, &[(60, false), (60, false)]), None, "too few");
}

/// A commit leader that holds the lock may wait for this very job.
#[test]
fn the_cleaner_waits_for_no_writer() {
    use crate::memtable::DELETES_WORTH_FLUSH as MANY;
    let env = SimEnv::new(1);
    let db = Options::new().env(Arc::clone(&env) as _).open("store").unwrap();
    (0..MANY).for_each(|i| db.default_partition().delete(i.to_le_bytes()).unwrap());
    let (upkeep, writes) = (&db.inner().upkeep, &db.inner().writes);
    let mut cleaner = Cleaner::new(upkeep);
    let mut step_later = || {
        env.sleep(Duration::from_secs(11));
        cleaner.step();
        upkeep.version_set.state.immutable_count()
    };
    step_later();
    let writer = writes.lock();
    assert_eq!(step_later(), 0, "it has left the lock alone");
    drop(writer);
    assert_eq!(step_later(), 1);
}
