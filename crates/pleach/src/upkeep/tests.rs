//! Tests of what a job does after a failed step.

use std::io;
use std::sync::Arc;

use pleach_env::SimEnv;

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

/// What a repeated step removes may be what it has written itself: repeating it in the same version may never end.
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
