//! The promises of a close, on a simulated and on the real machine.

use std::future::Future;
use std::mem;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};

use pleach::env::{CrashPolicy, Fault, FaultKind, SimEnv};
use pleach::{Db, Durability, ErrorKind, Options};

use crate::rig::setup::DIR;

fn open(env: &Arc<SimEnv>) -> Db {
    options(env).open(DIR).unwrap()
}

fn options(env: &Arc<SimEnv>) -> Options {
    Options::new().env(Arc::<SimEnv>::clone(env)).memory(64 << 20).memtable_bytes(128 << 10)
}

/// Lets a flush fail with a device error, so that the store is poisoned and its log is healthy. Returns the value of the key `b`,
/// which the flush would have written.
fn poison_by_flush(env: &Arc<SimEnv>, db: &Db) -> String {
    env.run_jobs();
    db.default_partition().put(b"a", b"1").unwrap();
    let ops = env.op_count();
    db.flush().unwrap();
    let calls = env.op_count() - ops;
    for call in (0..calls).rev() {
        let value = call.to_string();
        db.default_partition().put(b"b", &value).unwrap();
        env.add_fault(Fault { at_op: env.op_count() + call, kind: FaultKind::Eio });
        if db.flush().is_err() && db.poisoned().is_some() {
            env.clear_faults();
            return value;
        }
        env.clear_faults();
    }
    panic!("no flush failed");
}

/// It once returned `Ok`, and did not sync the log, which was healthy.
#[test]
fn a_close_after_a_failed_flush_syncs_the_log_and_fails() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let keys = db.default_partition();
    keys.put(b"a", b"1").unwrap();
    let value = poison_by_flush(&env, &db);
    let syncs_before = env.crash_image(CrashPolicy::DurableOnly, 1);
    let lost = options(&syncs_before).open(DIR).unwrap();
    let found = lost.default_partition().get(b"b").unwrap();
    assert_ne!(found.as_deref(), Some(value.as_bytes()), "the write is only buffered");
    let (second, third) = (db.clone(), db.clone());
    let error = db.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(error.to_string().contains("every write is durable"), "{error}");
    assert_eq!(second.close().unwrap_err().to_string(), error.to_string());
    drop(third);
    let crashed = env.crash_image(CrashPolicy::DurableOnly, 1);
    let db = options(&crashed).open(DIR).unwrap();
    assert_eq!(db.default_partition().get(b"b").unwrap().as_deref(), Some(value.as_bytes()));
}

/// Writes that are in SSTs need not be synced in the log. The close of a store that a failed merge has stopped syncs only the
/// segment after the last flush, which is empty.
#[test]
fn a_close_of_a_poisoned_store_does_not_sync_what_is_flushed() {
    let env = SimEnv::new(1);
    let db = open(&env);
    for value in 0..2u8 {
        db.default_partition().put(b"a", [value]).unwrap();
        db.flush().unwrap();
    }
    env.add_fault(Fault { at_op: env.op_count() + 1, kind: FaultKind::Eio });
    db.compact().unwrap_err();
    assert!(db.poisoned().is_some());
    env.clear_faults();
    let (sender, calls) = mpsc::channel();
    env.on_op(Box::new(move |_, name| sender.send(name).unwrap()));
    let error = db.close().unwrap_err();
    assert!(error.to_string().contains("every write is durable"), "{error}");
    let calls: Vec<_> = calls.try_iter().collect();
    assert_eq!(calls.iter().filter(|name| **name == "sync").count(), 1, "{calls:?}");
}

/// The last handle's drop is a close too.
#[test]
fn a_drop_after_a_failed_flush_syncs_the_log() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let value = poison_by_flush(&env, &db);
    drop(db);
    let crashed = env.crash_image(CrashPolicy::DurableOnly, 1);
    let db = options(&crashed).open(DIR).unwrap();
    assert_eq!(db.default_partition().get(b"b").unwrap().as_deref(), Some(value.as_bytes()));
}

#[test]
fn a_failed_sync_at_close_is_returned_to_each_handle_and_not_repeated() {
    let env = SimEnv::new(1);
    let db = open(&env);
    db.default_partition().put(b"a", b"1").unwrap();
    env.add_fault(Fault { at_op: env.op_count(), kind: FaultKind::SyncFails });
    let other = db.clone();
    let error = db.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let ops = env.op_count();
    assert_eq!(other.close().unwrap_err().to_string(), error.to_string());
    assert_eq!(env.op_count(), ops);
}

#[test]
fn a_close_after_a_failed_sync_of_the_log_does_not_repeat_it() {
    let env = SimEnv::new(1);
    let db = open(&env);
    db.default_partition().put(b"a", b"1").unwrap();
    env.add_fault(Fault { at_op: env.op_count(), kind: FaultKind::SyncFails });
    db.sync().unwrap_err();
    let ops = env.op_count();
    let error = db.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(error.to_string().contains("writes may be lost"), "{error}");
    assert_eq!(env.op_count(), ops);
}

/// Handles once went on reading, and kept the directory locked.
#[test]
fn after_a_close_every_handle_answers_closed_and_the_directory_can_be_opened() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let users = db.partition("users").unwrap();
    for key in 0..100u32 {
        users.put(key.to_le_bytes(), [7; 1000]).unwrap();
    }
    db.flush().unwrap();
    users.put(b"buffered", b"1").unwrap();
    let (snapshot, other) = (db.snapshot(), db.clone());
    let value = users.get(5u32.to_le_bytes()).unwrap().unwrap();
    let buffered = users.get(b"buffered").unwrap().unwrap();
    let (mut range, mut unread) = (users.iter(), users.iter());
    let first = range.next().unwrap().unwrap();
    let mut batch = db.batch();
    batch.put(&users, b"late", b"1");
    db.close().unwrap();

    // While the old handles live.
    let again = Db::open(dir.path()).unwrap();
    let closed = |error: pleach::Error| assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    closed(users.get(5u32.to_le_bytes()).unwrap_err());
    closed(users.get_many([b"a"]).unwrap_err());
    closed(users.put(b"a", b"").unwrap_err());
    closed(users.try_put(b"a", b"").unwrap_err());
    closed(users.iter().next().unwrap().unwrap_err());
    closed(users.stats().unwrap_err());
    closed(users.compact().unwrap_err());
    closed(snapshot.get(&users, b"a").unwrap_err());
    closed(snapshot.prefix(&users, b"a").next().unwrap().unwrap_err());
    closed(range.next().unwrap().unwrap_err());
    assert!(range.next().is_none());
    closed(unread.next_back().unwrap().unwrap_err());
    closed(batch.commit(Durability::Sync).unwrap_err());
    closed(other.partition("users").unwrap_err());
    closed(other.partition("new").unwrap_err());
    closed(other.default_partition().get(b"a").unwrap_err());
    closed(other.snapshot().get(&users, b"a").unwrap_err());
    closed(other.sync().unwrap_err());
    closed(other.flush().unwrap_err());
    closed(other.compact().unwrap_err());
    closed(other.convert().unwrap_err());
    closed(other.settle().unwrap_err());
    closed(other.verify().unwrap_err());
    closed(other.drop_partition(users.clone()).unwrap_err());
    assert_eq!((&*value, &*buffered, first.1.len()), (&[7u8; 1000][..], &b"1"[..], 1000));

    // The obsolete pinned files are removed, and dropping the old handles changes nothing.
    again.compact().unwrap();
    drop((snapshot, other, users, range));
    again.verify().unwrap();
    let users = again.find_partition("users").unwrap();
    assert_eq!(users.iter().count(), 101);
    assert_eq!(again.stats().ssts, ssts_in(dir.path()));
}

/// Whoever keeps handles keeps only memory.
#[test]
fn a_close_closes_all_files_whatever_is_kept() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let keys = db.default_partition();
    for key in 0..200u32 {
        keys.put(key.to_le_bytes(), [7; 1000]).unwrap();
        if key % 50 == 0 {
            db.flush().unwrap();
        }
    }
    let (snapshot, mut range) = (db.snapshot(), keys.iter());
    assert!(range.next().unwrap().is_ok());
    let mut future = keys.get_async(1u32.to_le_bytes());
    let _pending = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    mem::forget(future);
    assert!(env.handle_count() > 4);
    db.clone().close().unwrap();
    assert_eq!(env.handle_count(), 0);
    assert_eq!(range.last().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(snapshot.get(&keys, [0; 4]).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.verify().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(env.handle_count(), 0);
}

/// A snapshot keeps files that are obsolete; the next open removes them.
#[test]
fn files_pinned_at_a_close_are_removed_by_the_next_open() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let keys = db.default_partition();
    for round in 0..3u32 {
        for key in 0..100u32 {
            keys.put(key.to_le_bytes(), [u8::try_from(round).unwrap(); 1000]).unwrap();
        }
        db.flush().unwrap();
    }
    let snapshot = db.snapshot();
    db.compact().unwrap();
    db.close().unwrap();
    assert!(ssts_in(dir.path()) > 1, "the snapshot pins what was merged");
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(ssts_in(dir.path()), db.stats().ssts);
    drop(snapshot);
    db.verify().unwrap();
}

fn ssts_in(dir: &Path) -> u64 {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.extension().is_some_and(|e| e == "sst")).count() as u64
}

/// The end of a log is zeros after a crash too. The note of the close distinguishes damage from that.
#[test]
fn a_log_that_lost_its_end_after_a_close_is_damaged() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let keys = db.default_partition();
    keys.put("first", [7; 200]).unwrap();
    keys.put("second", "value").unwrap();
    db.close().unwrap();
    let logs = env.file_names(Path::new(DIR)).into_iter().filter(|name| name.contains(".log"));
    let path = Path::new(DIR).join(logs.max().unwrap());
    let mut log = env.read_file(&path).unwrap();
    let end = log.windows(200).position(|bytes| bytes == [7; 200]).unwrap() + 200;
    log[end..].fill(0);
    env.write_file(&path, &log);
    let error = options(&env).open(DIR).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("the store was closed with 2"), "{error}");
}
