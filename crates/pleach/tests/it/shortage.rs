//! Shortage of threads or memory: the store returns an error, and nothing is lost.

use std::path::Path;
use std::sync::Arc;

use pleach::env::failpoint::with_skipped;
use pleach::env::{CrashPolicy, SimEnv};
use pleach::{ErrorKind, LearnedIndex, Options};

use crate::rig::child::run_after;
use crate::rig::setup::DIR;

#[test]
fn an_open_without_threads_is_an_error_and_releases_the_store() {
    let env = SimEnv::new(1);
    let options = || Options::new().env(Arc::<SimEnv>::clone(&env)).memory(64 << 20).compaction_threads(2);
    let db = options().open(DIR).unwrap();
    db.default_partition().put(b"key", b"value").unwrap();
    db.close().unwrap();
    for limit in 0..5 {
        env.set_job_limit(Some(limit));
        let error = options().open(DIR).expect_err("it needs five threads");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("ulimit -u"), "{error}");
    }
    env.set_job_limit(Some(5));
    // Without the thread that trains while reading a store is as good as without that training.
    for learned in [LearnedIndex::Never, LearnedIndex::Adaptive] {
        let db = options().learned_index(learned).open(DIR).unwrap();
        assert_eq!(db.default_partition().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        db.close().unwrap();
    }
}

/// The close of a store whose jobs could not be started must not wait for them to flush what the log held.
#[test]
fn an_open_without_threads_fails_with_a_long_log_too() {
    let killed = SimEnv::new(1);
    let options = |env: &Arc<SimEnv>| {
        Options::new().env(Arc::<SimEnv>::clone(env)).memory(64 << 20).memtable_bytes(8 << 20)
    };
    let db = options(&killed).open(DIR).unwrap();
    (0..3000u32).for_each(|key| db.default_partition().put(key.to_le_bytes(), [7; 1000]).unwrap());
    let env = killed.crash_image(CrashPolicy::ProcessKill, 1);
    env.set_job_limit(Some(0));
    let error = options(&env).open(DIR).expect_err("it needs threads");
    assert!(error.to_string().contains("ulimit -u"), "{error}");
    env.set_job_limit(None);
    assert_eq!(options(&env).open(DIR).unwrap().default_partition().iter().count(), 3000);
}

/// A switch of the memtable without memory for the next one once panicked and poisoned the store.
#[test]
fn a_memtable_that_finds_no_memory_is_an_error_before_anything_is_logged() {
    let env = SimEnv::new(1);
    let open = || Options::new().env(Arc::<SimEnv>::clone(&env)).memory(1 << 20).open(DIR);
    let db = open().unwrap();
    let keys = db.default_partition();
    let mut accepted = 0u32;
    with_skipped("memory.words", || {
        let mut put = || keys.put(accepted.to_le_bytes(), [7; 1000]).map(|()| accepted += 1);
        let error = (0..1000).find_map(|_| put().err()).expect("the memtable is full");
        assert!(error.to_string().contains("memory for another memtable"), "{error}");
        assert!(put().is_err());
        assert!(db.flush().unwrap_err().to_string().contains("memory"));
    });
    assert!(accepted > 0 && db.poisoned().is_none());
    assert_eq!(keys.iter().count(), accepted as usize);
    keys.put("after", "it").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let names = env.file_names(Path::new(DIR));
    let error = with_skipped("memory.words", || open().unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(env.file_names(Path::new(DIR)), names);
    let db = open().unwrap();
    assert_eq!(db.default_partition().iter().count(), accepted as usize + 1);
    let keys = db.default_partition();
    with_skipped("memory.words", || db.close()).expect("a close needs no memory");
    assert_eq!(keys.get("after").unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn memory_is_taken_as_it_is_used() {
    run_after("ulimit -n 256", "shortage::child_with_ten_tebibytes");
}

/// Resident memory of this process in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_with_ten_tebibytes() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for memory in [10 << 40, 1 << 50] {
        let open = || Options::new().memory(memory).open(dir.path().join("store")).unwrap();
        let db = open();
        for key in 0..1000_u32 {
            db.default_partition().put(key.to_le_bytes(), [1; 1000]).unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        let db = open();
        assert_eq!(db.default_partition().iter().count(), 1000);
        assert!(db.stats().cache_capacity_bytes >= 2 << 40);
        db.close().unwrap();
        let resident = resident_kib();
        assert!(resident < 256 << 10, "{resident} KiB resident");
    }
}

#[test]
fn memory_that_the_system_refuses_is_an_error() {
    run_after("ulimit -v 2097152", "shortage::child_with_two_gibibytes_of_addresses");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_with_two_gibibytes_of_addresses() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("store");
    let options = |memory: usize| Options::new().memory(memory).compaction_threads(1);
    let db = options(64 << 20).open(&path).unwrap();
    db.default_partition().put(b"key", b"value").unwrap();
    db.close().unwrap();
    for memory in [8 << 30, 64 << 30, 10 << 40] {
        let error = options(memory).open(&path).expect_err("there is no room for it");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("memory"), "{error}");
    }
    let db = options(64 << 20).open(&path).unwrap();
    assert_eq!(db.default_partition().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}
