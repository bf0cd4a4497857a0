//! Failures: a sync that fails, and a process without a descriptor.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pleach::env::{Clients, CrashPolicy, Fault, FaultKind, SimEnv};
use pleach::{Db, Durability, ErrorKind};

use super::{check, files, fill, key, open, options, value};
use crate::rig::setup::DIR;

const LEN: usize = 1000;

/// A store with values in its memtable that were never synced.
fn unsynced() -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(1);
    let db = open(&env);
    fill(&db.default_partition(), 50, 0, LEN);
    (env, db)
}

/// The store is struck at every sync of the flush. The first one is that of the value segment: the writes may be lost, so the
/// close says so, although the log itself was never synced with an error.
#[test]
fn a_failed_sync_of_a_value_segment_poisons_the_store() {
    let (env, db) = unsynced();
    let before = env.op_count();
    db.flush().unwrap();
    let calls = env.op_count() - before;
    drop(db);
    let mut messages = Vec::new();
    for call in 0..calls {
        let (env, db) = unsynced();
        assert_eq!(env.op_count(), before, "the machine is the same each time");
        env.set_fault(Some(Fault { at_op: before + call, kind: FaultKind::SyncFails }));
        let flushed = db.flush();
        if env.faults_struck() == 0 || flushed.is_ok() {
            continue;
        }
        env.clear_faults();
        let partition = db.default_partition();
        check(&partition, 50, 0, LEN);
        if db.poisoned().is_some() {
            assert_eq!(partition.put("new", "value").unwrap_err().kind(), ErrorKind::Poisoned);
        }
        if let Err(error) = db.close() {
            messages.push(error.to_string());
        }
        // What the machine still shows is right, though it need not be durable.
        check(&open(&env).default_partition(), 50, 0, LEN);
    }
    let of_segment = messages.iter().find(|message| message.contains("sync the log segment"));
    assert!(of_segment.is_some_and(|message| message.contains("writes may be lost")), "{messages:#?}");
}

/// A flush and a synced write sync the same full segment side by side, and one of the syncs fails. The pages are clean then, so
/// the other sync succeeds although bytes are lost: it once let the write be acknowledged, or the flush name the segment.
#[test]
fn a_sync_beside_a_failed_one_of_the_same_segment_promises_nothing() {
    let (mut failed_flushes, mut failed_writes) = (0, 0);
    for seed in 0..50 {
        for call in 0..20 {
            let (env, db) = unsynced();
            env.set_fault(Some(Fault { at_op: env.op_count() + call, kind: FaultKind::SyncFails }));
            let [is_flushed, is_written] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
            let mut clients = Clients::new();
            let (client, done) = (db.clone(), Arc::clone(&is_flushed));
            clients.add("flush", move || done.store(client.flush().is_ok(), Ordering::Relaxed));
            let (client, done) = (db.clone(), Arc::clone(&is_written));
            clients.add("write", move || {
                let mut batch = client.batch();
                batch.put(&client.default_partition(), "new", "value");
                done.store(batch.commit(Durability::Sync).is_ok(), Ordering::Relaxed);
            });
            env.run_clients(seed, clients);
            let [is_flushed, is_written] = [is_flushed, is_written].map(|done| done.load(Ordering::Relaxed));
            failed_flushes += usize::from(!is_flushed);
            failed_writes += usize::from(!is_written);
            let cut = open(&env.crash_image(CrashPolicy::DurableOnly, 1));
            let partition = cut.default_partition();
            if is_flushed || is_written {
                let is_there = |n| partition.get(key(n)).unwrap().as_deref() == Some(&*value(n, 0, LEN));
                assert!((0..50).all(is_there), "seed {seed}, call {call}: {is_flushed} {is_written}");
            }
            cut.verify().unwrap();
            if is_written {
                assert!(partition.get("new").unwrap().is_some());
            }
        }
    }
    println!("{failed_flushes} flushes and {failed_writes} writes failed");
    assert!(failed_flushes > 100 && failed_writes > 30);
}

/// A flush makes the segments and the copies durable that it names, although no write asked for a sync.
#[test]
fn flushed_values_survive_a_power_cut() {
    let (env, db) = unsynced();
    let copied = db.partition("copied").unwrap();
    for number in 0..30 {
        let mut batch = db.batch();
        batch.put(&copied, key(number), value(number, 7, LEN));
        for other in 0..10 {
            batch.put(&copied, format!("small{}", number * 10 + other), [1; 150]);
        }
        batch.commit(Durability::Buffered).unwrap();
        if number == 10 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    assert!(db.stats().value_copied_bytes > 0 && db.stats().value_files > 1);
    let cut = env.crash_image(CrashPolicy::DurableOnly, 1);
    let db = open(&cut);
    check(&db.default_partition(), 50, 0, LEN);
    let copied = db.find_partition("copied").unwrap();
    for number in 0..30 {
        assert_eq!(copied.get(key(number)).unwrap().as_deref(), Some(&*value(number, 7, LEN)));
    }
    db.verify().unwrap();
}

/// A segment that lives on gives back what was reserved behind its records.
#[test]
fn the_reserved_space_of_value_segments_is_freed() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let partition = db.default_partition();
    for number in 0..20 {
        partition.put(key(number), value(number, 0, 3000)).unwrap();
        db.flush().unwrap();
    }
    env.run_jobs();
    let stats = db.stats();
    assert_eq!((stats.value_files, stats.value_copied_bytes), (20, 0));
    let (segments, len) = (files(&env, ".log"), |name: &String| {
        env.read_file(&Path::new(DIR).join(name)).unwrap().len() as u64
    });
    let lens: u64 = segments.iter().map(len).sum();
    assert!(lens > 21 * (16 << 10), "they keep their lengths: {lens}");
    assert!(env.used_space() < lens / 2, "{} of {lens} bytes", env.used_space());
    check(&partition, 20, 0, 3000);
}

/// A full segment is opened once more, for the flush to sync it. Without a descriptor for that, the flush copies the values, and
/// the segment goes.
#[test]
fn without_a_descriptor_values_are_copied() {
    let (env, db) = unsynced();
    let segments = files(&env, ".log");
    env.set_fault(Some(Fault { at_op: env.open_count(), kind: FaultKind::OpenTooManyFiles }));
    db.flush().unwrap();
    assert_eq!(env.faults_struck(), 1);
    let stats = db.stats();
    assert_eq!((stats.values, stats.value_files), (50, 1));
    assert!(stats.value_copied_bytes >= 50 * LEN as u64, "{}", stats.value_copied_bytes);
    check(&db.default_partition(), 50, 0, LEN);
    env.run_jobs();
    assert!(files(&env, ".log").iter().all(|name| !segments.contains(name)), "{segments:?}");
    assert_eq!(files(&env, ".val").len(), 1);
    drop(db);
    check(&open(&env).default_partition(), 50, 0, LEN);
}

/// A segment of which less than half is values that the flush keeps does not live on.
#[test]
fn values_among_many_small_ones_are_copied() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let partition = db.default_partition();
    for number in 0..50 {
        let mut batch = db.batch();
        batch.put(&partition, key(number), value(number, 0, LEN));
        batch.put(&partition, "overwritten", value(number, 0, LEN + 200));
        batch.commit(Durability::Buffered).unwrap();
    }
    db.flush().unwrap();
    let stats = db.stats();
    assert_eq!((stats.values, stats.value_files), (51, 1));
    assert!((50_000..60_000).contains(&stats.value_copied_bytes), "{}", stats.value_copied_bytes);
    partition.delete("overwritten").unwrap();
    check(&partition, 50, 0, LEN);
    drop((partition, db));
    check(&options(&env).separate_at(0).open(DIR).unwrap().default_partition(), 50, 0, LEN);
}
