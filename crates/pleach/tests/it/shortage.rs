//! A machine that has no thread or no memory for a store: an error, and nothing is harmed.

use std::sync::Arc;

use pleach::env::SimEnv;
use pleach::{ErrorKind, Options};

use crate::rig::child::run_after;
use crate::rig::setup::DIR;

#[test]
fn an_open_without_threads_is_an_error_and_releases_the_store() {
    let env = SimEnv::new(1);
    let options = || Options::new().env(Arc::<SimEnv>::clone(&env)).memory(64 << 20).compaction_threads(2);
    let db = options().open(DIR).unwrap();
    db.default_partition().put(b"key", b"value").unwrap();
    db.close().unwrap();
    for limit in 0..4 {
        env.set_job_limit(Some(limit));
        let error = options().open(DIR).expect_err("it needs four threads");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("ulimit -u"), "{error}");
    }
    env.set_job_limit(Some(4));
    let db = options().open(DIR).unwrap();
    assert_eq!(db.default_partition().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
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
