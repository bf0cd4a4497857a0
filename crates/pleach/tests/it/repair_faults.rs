//! Repair on a simulated machine: full disks, failed reads and interruptions at every call.

use std::path::Path;
use std::sync::Arc;

use pleach::env::{Env, Fault, FaultKind, SimEnv};
use pleach::{Options, RepairReport, Result, repair};

use crate::repair::{Content, content_of};
use crate::rig::setup::DIR;

const NEW: &str = "/new";

fn options(env: &Arc<SimEnv>) -> Options {
    Options::new().env(Arc::<SimEnv>::clone(env)).memory(4 << 20).memtable_bytes(64 << 10)
}

/// A machine with a closed store of SSTs, sections and a log; without its manifest if it is to be `guessed`.
fn machine(guessed: bool) -> (Arc<SimEnv>, Content) {
    let env = SimEnv::new(1);
    let db = options(&env).open(DIR).unwrap();
    for round in 0..3u8 {
        for (name, keys) in [("default", 300u32), ("small", 10)] {
            let partition = db.partition(name).unwrap();
            (0..keys).for_each(|key| partition.put(key.to_le_bytes(), vec![round; 300]).unwrap());
        }
        db.flush().unwrap();
    }
    (250..350u32).for_each(|key| db.default_partition().put(key.to_le_bytes(), vec![9; 100]).unwrap());
    let content = content_of(&db);
    db.close().unwrap();
    if guessed {
        for name in env.file_names(Path::new(DIR)).iter().filter(|name| name.starts_with("MANIFEST")) {
            env.remove_file(&Path::new(DIR).join(name)).unwrap();
        }
    }
    (env, content)
}

fn bytes_of(env: &SimEnv) -> Vec<(String, Option<Vec<u8>>)> {
    let names = env.file_names(Path::new(DIR)).into_iter();
    names.map(|name| (name.clone(), env.read_file(&Path::new(DIR).join(name)))).collect()
}

/// Repairs into `into`, and shows that the old store is as it was.
fn run(env: &Arc<SimEnv>, into: &str, progress: &mut pleach::RepairProgress<'_>) -> Result<RepairReport> {
    let before = bytes_of(env);
    let result = repair(DIR, into, options(env), progress);
    assert!(before == bytes_of(env), "the old store was changed");
    result
}

fn content_at(env: &Arc<SimEnv>, dir: &str) -> Content {
    let db = options(env).create_if_missing(false).open(dir).unwrap();
    let content = content_of(&db);
    db.close().unwrap();
    content
}

#[test]
fn a_full_disk_at_any_call_of_a_repair_is_told_and_costs_nothing() {
    let (env, content) = machine(false);
    let first = env.op_count();
    run(&env, NEW, &mut |_, _| true).unwrap();
    let calls = env.op_count() - first;
    assert!(calls > 50 && content_at(&env, NEW) == content);
    let mut failed = 0;
    for call in (0..calls).step_by(3) {
        let (env, content) = machine(false);
        env.set_fault(Some(Fault { at_op: env.op_count() + call, kind: FaultKind::NoSpaceFrom }));
        match run(&env, NEW, &mut |_, _| true) {
            Err(error) => {
                let is_shortage = error.is_out_of_space() || error.to_string().contains("ENOSPC");
                assert!(is_shortage, "call {call}: {error}");
                failed += 1;
            }
            // The last calls remove files or are not needed: then nothing is missing.
            Ok(report) => assert!(report.is_clean(), "call {call}: {report:#?}"),
        }
        env.clear_faults();
        assert!(run(&env, "/again", &mut |_, _| true).unwrap().is_clean());
        assert!(content_at(&env, "/again") == content, "call {call}");
    }
    assert!(failed > 10, "only {failed} of the calls need space");
}

#[test]
fn a_repair_that_is_stopped_leaves_a_store_with_a_part() {
    for guessed in [false, true] {
        let (env, content) = machine(guessed);
        let mut calls = 0;
        run(&env, NEW, &mut |_, _| {
            calls += 1;
            true
        })
        .unwrap();
        assert!(calls > 5 && content_at(&env, NEW).len() == content.len(), "{calls} calls");
        for stop in 0..calls {
            let (env, content) = machine(guessed);
            let mut call = 0;
            let report = run(&env, NEW, &mut |_, _| {
                call += 1;
                call <= stop
            })
            .unwrap();
            assert!(
                !report.complete && !report.is_clean() && call == stop + 1,
                "{call} calls at stop {stop}"
            );
            assert_eq!(env.handle_count(), 0, "no file is left open");
            let found = content_at(&env, NEW);
            let lens: Vec<_> =
                found.keys().filter(|(_, key)| !content.keys().any(|(_, k)| k == key)).collect();
            assert!(lens.is_empty(), "made up: {lens:?}");
        }
    }
}

#[test]
fn reads_that_fail_during_a_repair_are_damage() {
    for guessed in [false, true] {
        let (env, _) = machine(guessed);
        let first = env.read_count();
        run(&env, NEW, &mut |_, _| true).unwrap();
        let reads = env.read_count() - first;
        let mut reported = 0;
        for read in 0..reads {
            let (env, content) = machine(guessed);
            env.set_fault(Some(Fault { at_op: env.read_count() + read, kind: FaultKind::ReadEio }));
            let Ok(report) = run(&env, NEW, &mut |_, _| true) else { continue };
            reported += u64::from(report.damaged_places > 0);
            let found = content_at(&env, NEW);
            assert!(report.damaged_places > 0 || found.len() == content.len(), "read {read}: {report:#?}");
        }
        assert!(reported > reads / 2, "{reported} of {reads} were reported");
    }
}
