//! Stories: defects that the rigs found, each as a short script.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{CrashPolicy, Env, Fault, FaultKind, SimEnv};
use pleach::{ErrorKind, LearnedIndex, Shape};

use crate::rig::action::{Action, Op};
use crate::rig::compare;
use crate::rig::driver::Driver;
use crate::rig::setup::{DIR, Setup};

const SETUP: Setup = Setup {
    memtable_bytes: 16 << 10,
    sst_bytes: 4 << 10,
    shape: Some(Shape::Forest),
    compaction_threads: 1,
    runs_per_stage: 4,
    clean_every: 1,
    filter_bits: 10,
    compression: Some(false),
    direct_reads: false,
    learned: Some(LearnedIndex::Never),
    separate_at: Some(0),
};

/// Crashes tried at one call, each with its own seed.
const SEEDS: u64 = 400;

/// The seed of a machine on which the failed writes of these stories write all their bytes.
const MACHINE: u64 = 4;

fn put(slot: usize, key: &str, sync: bool) -> Action {
    let op = Op { slot, key: key.as_bytes().into(), value: Some(b"value".as_slice().into()) };
    Action::Write { ops: vec![op], sync }
}

fn full_disk(action: Action, calls: u64) -> Action {
    Action::OnFullDisk(Box::new(action), calls)
}

/// Runs the actions on a new store.
fn after(actions: &[Action]) -> Driver {
    on_machine(1, actions)
}

/// As [`after`], with a seed for the machine. The seed decides, for example, how many bytes a failed write has written.
fn on_machine(seed: u64, actions: &[Action]) -> Driver {
    let mut driver = Driver::create(SimEnv::new(seed), SETUP).unwrap();
    for action in actions {
        driver.must(action).unwrap();
    }
    driver
}

/// Crashes now in many ways. Each time the store must have a state of the history.
fn crash_now(driver: &Driver, story: &str) {
    let rare = [CrashPolicy::Everything, CrashPolicy::DurableOnly, CrashPolicy::ProcessKill]
        .map(|policy| (policy, 0));
    for (policy, seed) in (0..SEEDS).map(|seed| (CrashPolicy::Random, seed)).chain(rare) {
        let image = driver.env.crash_image(policy, seed);
        let opened = SETUP.open(&image);
        let db = opened.unwrap_or_else(|e| panic!("{story}, {policy:?} {seed}: {e}"));
        let candidates = driver.timeline.expect(driver.env.op_count(), policy == CrashPolicy::ProcessKill);
        let found = compare::find(&db, &candidates, &mut Rng::with_seed(seed));
        assert!(found.is_ok(), "{story}, {policy:?} {seed}: {}", found.err().unwrap());
        image.power_off();
    }
}

/// A disk that was full twice failed the sync of a fence. The log was poisoned, but the store was not: every write failed, and
/// `Stats::poisoned` was empty.
#[test]
fn a_full_disk_that_a_fence_finds_poisons_the_store() {
    let driver = after(&[put(0, "a", true)]);
    let partition = driver.db().default_partition();
    for _ in 0..2 {
        let at_op = driver.env.op_count();
        driver.env.set_fault(Some(Fault { at_op, kind: FaultKind::NoSpace }));
        assert!(partition.put(b"b", b"").unwrap_err().is_out_of_space());
    }
    driver.env.clear_faults();
    assert_eq!(partition.put(b"b", b"").unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(driver.db().poisoned().is_some());
}

/// Rows were copied to another partition, the old partition was dropped, and the power was cut. The drop was durable, and the
/// copies were only buffered: both were lost.
#[test]
fn what_was_copied_before_a_drop_survives_it() {
    let driver = after(&[Action::Create(1), put(1, "row", true), put(0, "row", false), Action::Drop(1)]);
    crash_now(&driver, "after the drop");
}

/// A crash during the creation of a log segment left the first bytes of its header. The next open took the file for a foreign
/// one, not for a torn header, and refused the store.
#[test]
fn the_first_bytes_of_a_header_are_a_torn_header() {
    let driver = after(&[put(0, "a", true), Action::Reopen]);
    let image = driver.env.crash_image(CrashPolicy::Everything, 1);
    let path = PathBuf::from(DIR).join("900000.log");
    let mut header = vec![0; 4096];
    header[..4].copy_from_slice(b"PLCH");
    image.write_file(&path, &header);
    let db = SETUP.open(&image).unwrap();
    assert_eq!(db.default_partition().get(b"a").unwrap().as_deref(), Some(&b"value"[..]));
    assert!(!image.file_names(Path::new(DIR)).contains(&"900000.log".to_owned()));
    assert!(image.metadata(&path).unwrap().is_none());
}

/// A manifest lost its last edits and the marker behind them, so it looked like a shorter manifest. The store opened without a
/// partition that had been created. The log notes how long the manifest was.
#[test]
fn a_manifest_that_ends_before_what_the_log_notes_is_damage() {
    let large = Op { slot: 0, key: b"large".as_slice().into(), value: Some(vec![1; 9000].into()) };
    let fill = Action::Write { ops: vec![large], sync: true };
    // Two of them fill the memtable. The third one goes to a new log segment, whose header has the hint.
    let driver = after(&[Action::Create(1), fill.clone(), fill.clone(), fill]);
    let image = driver.env.crash_image(CrashPolicy::Everything, 1);
    let names = image.file_names(Path::new(DIR));
    let path = Path::new(DIR).join(names.iter().find(|name| name.starts_with("MANIFEST-")).unwrap());
    let bytes = image.read_file(&path).unwrap();
    let cut_at = |len: usize| {
        let image = driver.env.crash_image(CrashPolicy::Everything, 1);
        // Zeros: a shorter file would contradict its stamp.
        let zeros = vec![0; bytes.len() - len];
        image.write_file(&path, &[&bytes[..len], &zeros].concat());
        SETUP.open(&image).map(|db| db.partitions().len())
    };
    let mut refused = 0;
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    for len in 1..end {
        refused += u32::from(cut_at(len).is_err_and(|e| e.kind() == ErrorKind::Corruption));
        assert_ne!(cut_at(len).ok(), Some(1), "zeros from {len} on, the partition is gone without an error");
    }
    assert!(refused > 0, "no cut is noticed");
}

/// A flush found the disk full while it wrote its edit. Much later, with room again, `settle` returned this error once more.
#[test]
fn a_full_disk_of_long_ago_is_forgotten() {
    for calls in 0..8 {
        let mut driver = after(&[put(0, "a", false), full_disk(Action::Flush, calls)]);
        driver.env.run_jobs();
        driver.must(&Action::Settle).unwrap();
    }
}

/// The edit of a flush failed on a full disk, but all of its bytes were written. The flush removed its file, the bytes survived
/// a crash, and the manifest named a missing file.
#[test]
fn an_edit_that_failed_is_never_found() {
    for calls in 0..12 {
        let driver = on_machine(MACHINE, &[put(0, "a", true), full_disk(Action::Flush, calls)]);
        driver.env.run_jobs();
        crash_now(&driver, &format!("a flush whose call {calls} failed"));
    }
}

/// A drop failed in the same way, and a later write to its partition was durable. Then a crash brought the drop back.
#[test]
fn a_drop_that_failed_does_not_happen_later() {
    for calls in 0..4 {
        let created = [Action::Create(1), put(1, "a", true), full_disk(Action::Drop(1), calls)];
        let mut driver = on_machine(MACHINE, &created);
        let env = Arc::clone(&driver.env);
        if driver.world().has(1) {
            driver.must(&put(1, "b", true)).unwrap();
            env.run_jobs();
            crash_now(&driver, &format!("a drop whose call {calls} failed"));
        }
    }
}

/// A batch failed on a full disk, and then a partition was dropped durably. A crash brought the batch back, although the later
/// drop was acknowledged.
#[test]
fn a_batch_that_failed_is_not_found_after_a_drop_or_sync() {
    for then in [Action::Drop(1), Action::Sync, Action::Create(2)] {
        for machine in 0..8 {
            let failed = full_disk(put(0, "b", false), 0);
            let driver = on_machine(machine, &[Action::Create(1), put(0, "a", true), failed, then.clone()]);
            crash_now(&driver, &format!("machine {machine}, a failed batch, then {then:?}"));
        }
    }
}

/// The process that created a store was killed before the name of `CURRENT` was durable. The next open wrote a manifest, and a
/// power cut left its name and not that of `CURRENT`.
#[test]
fn a_creation_that_was_killed_survives_a_power_cut_in_the_next_open() {
    const CALLS: u64 = 40;
    let calls: Vec<u64> = (0..CALLS).collect();
    let created = SimEnv::new(1);
    created.capture_at(&calls);
    SETUP.open(&created).unwrap().close().unwrap();
    let mut cuts = 0;
    for (killed_at, capture) in created.captured() {
        let killed = capture.crash_image(CrashPolicy::ProcessKill, 1);
        killed.capture_at(&calls[..12]);
        SETUP.open(&killed).unwrap().close().unwrap();
        for (cut_at, capture) in killed.captured() {
            for seed in 0..20 {
                let image = capture.crash_image(CrashPolicy::Random, seed);
                let opened = SETUP.open(&image);
                assert!(opened.is_ok(), "{killed_at}, {cut_at}, {seed}: {:?}", opened.err());
                cuts += 1;
            }
        }
    }
    assert!(cuts > 1000, "{cuts} power cuts");
}
