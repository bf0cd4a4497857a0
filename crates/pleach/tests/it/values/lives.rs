//! How long files of separated values live: until nothing refers to them, and no snapshot reads them.

use std::path::Path;
use std::sync::Arc;

use pleach::env::{CrashPolicy, SimEnv};

use super::{check, files, fill, key, layout, open, options, value};
use crate::rig::setup::DIR;

/// The tests count reads, so no compaction may read meanwhile.
const LEN: usize = 2000;

#[test]
fn a_dropped_partition_gives_its_segments_back_unread() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let (kept, gone) = (db.default_partition(), db.partition("gone").unwrap());
    fill(&gone, 200, 0, LEN);
    db.flush().unwrap();
    fill(&kept, 200, 0, LEN);
    db.settle().unwrap();
    let (before, files_before) = (db.stats(), files(&env, ".log").len() + files(&env, ".val").len());
    assert_eq!(before.values, 400);
    let reads = env.read_count();
    db.drop_partition(gone).unwrap();
    env.run_jobs();
    assert_eq!(env.read_count(), reads, "nothing of it is read");
    db.settle().unwrap();
    let after = db.stats();
    assert_eq!(after.values, 200);
    assert!(after.value_file_bytes <= before.value_file_bytes / 2 + (LEN as u64 * 70), "{after:?}");
    let files_after = files(&env, ".log").len() + files(&env, ".val").len();
    assert!(files_after < files_before, "{files_after} of {files_before}");
    check(&kept, 200, 0, LEN);
    db.verify().unwrap();
}

#[test]
fn a_snapshot_keeps_old_segments_and_they_go_with_it() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let partition = db.default_partition();
    fill(&partition, 200, 0, LEN);
    db.settle().unwrap();
    let named = files(&env, ".log");
    let snapshot = db.snapshot();
    fill(&partition, 200, 1, LEN);
    db.compact().unwrap();
    env.run_jobs();
    assert!(db.stats().pinned_bytes >= 200 * LEN as u64, "{}", db.stats().pinned_bytes);
    for number in 0..200 {
        let found = snapshot.get(&partition, key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&*value(number, 0, LEN)));
    }
    assert_eq!(snapshot.iter(&partition).map(Result::unwrap).count(), 200);
    drop(snapshot);
    env.run_jobs();
    assert_eq!(db.stats().pinned_bytes, 0);
    let left: Vec<_> = files(&env, ".log").into_iter().filter(|name| named.contains(name)).collect();
    assert!(left.len() <= 1, "the files of the old values are gone: {left:?}");
    check(&partition, 200, 1, LEN);
}

/// Pointers that a merge drops, and pointers in files that a clip cuts, are no references any more.
#[test]
fn references_end_with_the_last_pointer() {
    let env = SimEnv::new(1);
    let db = options(&env).clean_every(1).sst_bytes(4 << 10).open(DIR).unwrap();
    let partition = db.default_partition();
    for round in 0..4 {
        fill(&partition, 500, round, 400);
        db.flush().unwrap();
        assert!(db.stats().values >= 500);
    }
    db.compact().unwrap();
    assert_eq!(db.stats().values, 500);
    for number in 0..500 {
        partition.delete(key(number)).unwrap();
    }
    db.compact().unwrap();
    env.run_jobs();
    let stats = db.stats();
    assert_eq!((stats.values, stats.value_bytes, stats.value_files), (0, 0, 0));
    assert!(files(&env, ".val").is_empty() && files(&env, ".log").len() <= 2);
    db.close().unwrap();
    assert_eq!(layout(&env), "pleach 1");
}

/// Whatever a crash leaves, the next open removes what the version does not name, and nothing else.
#[test]
fn an_open_removes_leftovers_and_keeps_value_segments() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let (partition, small) = (db.default_partition(), db.partition("small").unwrap());
    fill(&partition, 200, 0, LEN);
    for number in 0..2000 {
        small.put(key(number), value(number, 0, 150)).unwrap();
        if number.is_multiple_of(50) {
            small.put(format!("large{number:05}"), value(number, 0, LEN)).unwrap();
        }
    }
    db.flush().unwrap();
    let stats = db.stats();
    assert!(stats.value_copied_bytes > 0, "some segments are mostly small values");
    let killed = env.crash_image(CrashPolicy::ProcessKill, 1);
    killed.write_file(&Path::new(DIR).join("900000.val"), b"left by a flush");
    for round in 0..3 {
        let db = open(&killed);
        assert!(!files(&killed, ".val").contains(&"900000.val".to_owned()));
        check(&db.default_partition(), 200, 0, LEN);
        let found = db.find_partition("small").unwrap().get("large01950").unwrap();
        assert_eq!(found.as_deref(), Some(&*value(1950, 0, LEN)), "open {round}");
        assert_eq!(db.stats().value_files, stats.value_files);
        db.verify().unwrap();
    }
}

/// All values of a segment are hidden by deletes, so relocation says that it has no file. If a crash comes before the file is
/// removed, the next open removes it.
#[test]
fn a_file_without_a_visible_value_does_not_outlive_a_crash() {
    let env = SimEnv::new(1);
    // Without merges for garbage, which would drop the pointers.
    let options = |env: &Arc<SimEnv>| options(env).shape(pleach::Shape::Forest).runs_per_stage(64);
    let db = options(&env).open(DIR).unwrap();
    let partition = db.default_partition();
    fill(&partition, 200, 0, LEN);
    db.flush().unwrap();
    let old = files(&env, ".log");
    // Nothing is removed while a snapshot reads the old values.
    let snapshot = db.snapshot();
    for number in 1..200 {
        partition.delete(key(number)).unwrap();
    }
    partition.put(key(0), value(0, 1, LEN)).unwrap();
    db.settle().unwrap();
    assert!(db.stats().values > 1, "pointers to the old values are still there");
    let left = |env: &SimEnv| files(env, ".log").into_iter().filter(|name| old.contains(name)).count();
    assert!(left(&env) > 1);
    let killed = env.crash_image(CrashPolicy::ProcessKill, 1);
    drop(snapshot);
    let db = options(&killed).open(DIR).unwrap();
    assert_eq!(left(&killed), 0, "the next open removes them");
    check(&db.default_partition(), 1, 1, LEN);
    db.verify().unwrap();
}
