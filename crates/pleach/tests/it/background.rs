//! Waits for background work, and background work on a full disk, on a simulated machine.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pleach::env::{Env, Fault, FaultKind, SimEnv};
use pleach::{Db, ErrorKind, Options, Shape};

use crate::rig::setup::DIR;

/// Bytes of a memtable: large ones are flushed with several writes.
const LARGE: usize = 8 << 20;
const SMALL: usize = 128 << 10;

fn open(env: &Arc<SimEnv>, memtable_bytes: usize) -> Db {
    options(env, memtable_bytes).open(DIR).unwrap()
}

fn options(env: &Arc<SimEnv>, memtable_bytes: usize) -> Options {
    let options =
        Options::new().env(Arc::<SimEnv>::clone(env)).memory(64 << 20).memtable_bytes(memtable_bytes);
    options.sst_bytes(2 << 20).shape(Shape::ForestOverBottom).compaction_threads(2)
}

fn put_all(db: &Db, keys: std::ops::Range<u32>) {
    let partition = db.default_partition();
    keys.for_each(|key| partition.put(key.to_le_bytes(), [1; 1000]).unwrap());
}

fn sst_count(env: &SimEnv) -> usize {
    env.file_names(Path::new(DIR)).iter().filter_map(|name| name.strip_suffix(".sst")).count()
}

/// Runs `act` before each call that changes the disk while there are more SSTs than now. The first such calls are the new
/// SST's own writes, during which no lock is held; later calls may hold the lock of the manifest.
fn while_writing_ssts(env: &Arc<SimEnv>, mut act: impl FnMut() + Send + 'static) {
    let (weak, before) = (Arc::downgrade(env), sst_count(env));
    env.on_op(Box::new(move |_, _| {
        if weak.upgrade().is_some_and(|env| sst_count(&env) > before) {
            act();
        }
    }));
}

/// A store with a few runs in each of two partitions, so that merges are due.
fn open_with_runs(env: &Arc<SimEnv>) -> Db {
    let db = options(env, SMALL).shape(Shape::Forest).runs_per_stage(64).open(DIR).unwrap();
    for keys in [0..300, 100..400, 200..500] {
        put_all(&db, keys);
        let other = db.partition("other").unwrap();
        (0..300u32).for_each(|key| other.put(key.to_le_bytes(), [3; 100]).unwrap());
        db.flush().unwrap();
    }
    db.close().unwrap();
    options(env, SMALL).shape(Shape::Forest).runs_per_stage(2).open(DIR).unwrap()
}

/// The unfinished SST of a failed flush once stayed. The removal of its finished SSTs once counted as freed space, so the
/// flush was repeated without end.
#[test]
fn a_flush_on_a_full_disk_leaves_nothing() {
    for free in (1..=20).map(|quarter| quarter << 18) {
        let env = SimEnv::new(1);
        let db = open(&env, LARGE);
        let small = db.partition("small").unwrap();
        small.put(b"in a shared file", [2; 1000]).unwrap();
        put_all(&db, 0..3000);
        // 4 MiB are for the next log segment.
        env.set_capacity(env.used_space() + (4 << 20) + free);
        let ops = env.op_count();
        let Err(error) = db.flush() else { return };
        assert!(error.is_out_of_space(), "{error}");
        env.run_jobs();
        assert_eq!(sst_count(&env), 0, "{free} bytes were free");
        assert!(env.op_count() < ops + 50, "the flush was tried again and again");
        env.set_capacity(1 << 30);
        db.flush().unwrap();
        db.verify().unwrap();
    }
    panic!("no flush went through");
}

/// If any call of a flush or of its edit finds the disk full, the files of the flush are removed.
#[test]
fn a_flush_that_fails_at_any_call_leaves_no_files() {
    let write = |db: &Db| {
        db.partition("small").unwrap().put(b"in a shared file", [2; 1000]).unwrap();
        put_all(db, 0..3000);
    };
    let env = SimEnv::new(1);
    let db = open(&env, LARGE);
    write(&db);
    let ops = env.op_count();
    db.flush().unwrap();
    let calls = env.op_count() - ops;
    let mut failed = 0;
    let kinds = [FaultKind::NoSpace, FaultKind::NoSpaceFrom];
    for (call, kind) in (0..calls).flat_map(|call| kinds.map(|kind| (call, kind))) {
        let env = SimEnv::new(1);
        let db = open(&env, LARGE);
        write(&db);
        env.remove_file(&Path::new(DIR).join("RESERVE")).unwrap();
        env.add_fault(Fault { at_op: env.op_count() + call, kind });
        failed += usize::from(db.flush().is_err());
        env.run_jobs();
        env.clear_faults();
        if db.poisoned().is_some() {
            continue; // A sync found the disk full.
        }
        db.flush().unwrap();
        env.run_jobs();
        assert_eq!(sst_count(&env) as u64, db.verify().unwrap().ssts, "{kind:?} at call {call}");
    }
    assert!(failed > 5, "{failed} of {calls}");
}

/// The waiting thread once waited forever, because no job was left to wake it.
#[test]
fn a_close_ends_the_waits_for_background_work() {
    let env = SimEnv::new(1);
    let db = open_with_runs(&env);
    let mut other_handle = Some(db.clone());
    while_writing_ssts(&env, move || {
        if let Some(db) = other_handle.take() {
            db.close().unwrap();
        }
    });
    assert_eq!(db.compact().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.settle().unwrap_err().kind(), ErrorKind::Closed);
}

/// A writer that waits for a flush keeps others from the log, and a close needs it: they once waited for each other.
#[test]
fn a_close_does_not_wait_for_a_writer_that_waits_for_a_flush() {
    let env = SimEnv::new(1);
    let db = open(&env, SMALL);
    let (mut other_handle, (closed, has_closed)) = (Some(db.clone()), mpsc::channel());
    // It is the cleaner that removes files, so the flush that the writer waits for is still to come.
    env.on_op(Box::new(move |_, name| {
        if let Some(db) = other_handle.take_if(|_| name == "remove_file") {
            let closed = closed.clone();
            std::thread::spawn(move || closed.send(db.close()));
            // Time to stop the jobs.
            std::thread::sleep(Duration::from_millis(300));
        }
    }));
    let partition = db.default_partition();
    let error = (0..2000u32).find_map(|key| partition.put(key.to_le_bytes(), [1; 1000]).err());
    assert_eq!(error.unwrap().kind(), ErrorKind::Closed);
    has_closed.recv_timeout(Duration::from_secs(10)).unwrap().unwrap();
}

/// It once waited for all that was written meanwhile too.
#[test]
fn a_flush_ends_though_others_go_on_writing() {
    let env = SimEnv::new(1);
    let db = open(&env, SMALL);
    put_all(&db, 0..50);
    let busy = db.clone();
    while_writing_ssts(&env, move || {
        let partition = busy.default_partition();
        let mut keys = 0..1000u32;
        // Memtables fill up as fast as they are flushed.
        while busy.stats().flushes < 100
            && keys.next().is_some_and(|key| partition.try_put(key.to_le_bytes(), [4; 1000]).is_ok())
        {
        }
    });
    db.flush().unwrap();
    let flushes = db.stats().flushes;
    assert!(flushes < 10, "waited for {flushes} flushes");
    env.on_op(Box::new(|_, _| {}));
}

/// The other's failure once took the request away, which looked as if it had been fulfilled.
#[test]
fn a_compaction_is_done_though_another_caller_met_a_full_disk() {
    for seed in 0..20 {
        let env = SimEnv::new(seed);
        let db = open_with_runs(&env);
        let (weak, mut other_caller) = (Arc::downgrade(&env), Some(db.clone()));
        while_writing_ssts(&env, move || {
            if let (Some(db), Some(env)) = (other_caller.take(), weak.upgrade()) {
                env.add_fault(Fault { at_op: env.op_count(), kind: FaultKind::NoSpaceFrom });
                assert!(db.default_partition().compact().unwrap_err().is_out_of_space());
                env.clear_faults();
            }
        });
        let partition = db.default_partition();
        assert!(partition.stats().unwrap().runs > 1, "seed {seed}: {:?}", db.stats());
        partition.compact().unwrap();
        assert_eq!(partition.stats().unwrap().runs, 1, "seed {seed}");
    }
}

/// A `try_put` was once queued behind a put that waited for a flush.
#[test]
fn a_try_put_is_not_queued_behind_a_put_that_waits() {
    let env = SimEnv::new(1);
    let db = open(&env, SMALL);
    let mut other = Some(db.default_partition());
    let (verdict, verdicts) = mpsc::channel();
    while_writing_ssts(&env, move || {
        let Some(other) = other.take() else { return };
        let (answer, answers) = mpsc::channel();
        std::thread::spawn(move || answer.send(other.try_put(b"impatient", b"")));
        verdict.send(answers.recv_timeout(Duration::from_secs(10))).unwrap();
    });
    // The jobs of a simulated machine run only while a thread waits.
    put_all(&db, 0..2000);
    let answer = verdicts.recv().unwrap().expect("the answer comes while the other waits");
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Conflict);
    env.on_op(Box::new(|_, _| {}));
}

/// The charge of writers was once set only after the first flush, and the debt of a dropped partition stayed.
#[test]
fn an_open_and_a_drop_set_the_charge_by_the_debt() {
    let env = SimEnv::new(1);
    let forest = |k| options(&env, LARGE).shape(Shape::Forest).runs_per_stage(k).open(DIR).unwrap();
    let db = forest(64);
    let other = db.partition("other").unwrap();
    for key in 0..60u8 {
        other.put([key], [5; 100]).unwrap();
        db.flush().unwrap();
    }
    drop(other);
    db.close().unwrap();
    let db = forest(2);
    let took = || {
        let started = env.now();
        db.default_partition().put(b"a", vec![6; 256 << 10]).unwrap();
        env.now().saturating_sub(started)
    };
    let slowed = took();
    assert!(slowed > Duration::from_millis(2), "{slowed:?} with the runs of another shape");
    db.drop_partition(db.find_partition("other").unwrap()).unwrap();
    let free = took();
    assert!(free < Duration::from_micros(500), "{free:?} without debt");
}
