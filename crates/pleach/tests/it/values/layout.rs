//! The layout in `CURRENT`: 2 while a store may have separated values, so that older builds refuse it.

use std::path::Path;

use pleach::ErrorKind;
use pleach::env::{CrashPolicy, SimEnv};

use super::{check, fill, layout, open, options};
use crate::rig::setup::DIR;

/// Replaces `CURRENT` by one with another first line.
fn set_layout(env: &SimEnv, header: &str) {
    let path = Path::new(DIR).join("CURRENT");
    let text = String::from_utf8(env.read_file(&path).unwrap()).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines[0] = header;
    let last = lines.len() - 1;
    let body: String = lines[..last].iter().flat_map(|line| [line, "\n"]).collect();
    let crc = crc32c::crc32c(body.as_bytes());
    env.write_file(&path, format!("{body}crc32c {crc:08x}\n").as_bytes());
}

#[test]
fn a_store_without_separated_values_stays_in_the_first_layout() {
    let env = SimEnv::new(1);
    let db = options(&env).separate_at(0).open(DIR).unwrap();
    fill(&db.default_partition(), 10, 0, 1000);
    assert_eq!(layout(&env), "pleach 1");
    db.close().unwrap();
    assert_eq!(layout(&env), "pleach 1");
    // One that might separate values has the second layout until it is closed without any.
    let db = open(&env);
    assert_eq!(layout(&env), "pleach 2");
    fill(&db.default_partition(), 10, 1, 10);
    db.close().unwrap();
    assert_eq!(layout(&env), "pleach 1");
}

#[test]
fn a_store_with_separated_values_has_the_second_layout() {
    let env = SimEnv::new(1);
    let db = open(&env);
    fill(&db.default_partition(), 1, 0, 1000);
    db.close().unwrap();
    assert_eq!(layout(&env), "pleach 2", "it is in the log only");
    let db = options(&env).separate_at(0).open(DIR).unwrap();
    assert_eq!(layout(&env), "pleach 2");
    db.flush().unwrap();
    db.close().unwrap();
    assert_eq!(layout(&env), "pleach 2", "it is in a file");
    let db = options(&env).separate_at(0).open(DIR).unwrap();
    fill(&db.default_partition(), 1, 1, 1000);
    db.compact().unwrap();
    db.close().unwrap();
    assert_eq!(layout(&env), "pleach 1", "it was overwritten");
    check(&open(&env).default_partition(), 1, 1, 1000);
}

#[test]
fn pointers_in_the_first_layout_are_refused() {
    let env = SimEnv::new(1);
    let db = open(&env);
    fill(&db.default_partition(), 10, 0, 1000);
    db.flush().unwrap();
    db.close().unwrap();
    set_layout(&env, "pleach 1");
    let ops = env.op_count();
    let error = options(&env).open(DIR).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.path().unwrap().extension().is_some_and(|extension| extension == "sst"), "{error}");
    assert_eq!(env.op_count(), ops, "nothing was written");
    set_layout(&env, "pleach 2");
    check(&open(&env).default_partition(), 10, 0, 1000);
}

/// The sections of a dropped partition, and of entries below a clip, stay in their files. Such a file has pointers that nothing
/// refers to, so no value is live, but older builds must not read it.
#[test]
fn pointers_that_nothing_reads_need_the_second_layout_too() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let gone = db.partition("gone").unwrap();
    fill(&gone, 5, 0, 1000);
    fill(&db.default_partition(), 5, 0, 10);
    db.flush().unwrap();
    db.drop_partition(gone).unwrap();
    assert_eq!(db.stats().values, 0);
    db.close().unwrap();
    let db = open(&env);
    check(&db.default_partition(), 5, 0, 10);
    db.verify().unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    assert_eq!(layout(&env), "pleach 1", "the file is gone");
}

/// A crash leaves the layout of the last open, whatever the log has.
#[test]
fn a_crash_leaves_the_second_layout() {
    let env = SimEnv::new(1);
    let db = open(&env);
    fill(&db.default_partition(), 300, 0, 1000);
    let killed = env.crash_image(CrashPolicy::ProcessKill, 1);
    drop(db);
    assert_eq!(layout(&killed), "pleach 2");
    let db = options(&killed).separate_at(0).open(DIR).unwrap();
    assert_eq!(layout(&killed), "pleach 2");
    check(&db.default_partition(), 300, 0, 1000);
    db.verify().unwrap();
}
