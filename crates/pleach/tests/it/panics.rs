//! Panics in background work: the store is poisoned with the message, and no thread waits forever.

use std::path::Path;
use std::sync::Arc;

use pleach::env::SimEnv;
use pleach::{Db, Error, ErrorKind, Options, Shape};

use crate::rig::setup::DIR;

fn options(env: &Arc<SimEnv>) -> Options {
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(64 << 20).memtable_bytes(128 << 10);
    options.shape(Shape::Forest).runs_per_stage(2).compaction_threads(2)
}

fn put(db: &Db, key: u32) -> Result<(), Error> {
    db.default_partition().put(key.to_le_bytes(), [1; 1000])
}

fn sst_count(env: &SimEnv) -> usize {
    env.file_names(Path::new(DIR)).iter().filter_map(|name| name.strip_suffix(".sst")).count()
}

/// Has the next call panic that changes the disk while there are more SSTs than now.
fn panic_beside_a_new_sst(env: &Arc<SimEnv>) {
    let (weak, before) = (Arc::downgrade(env), sst_count(env));
    env.on_op(Box::new(move |_, _| {
        let is_beside = weak.upgrade().is_some_and(|env| sst_count(&env) > before);
        assert!(!is_beside, "planted by the test");
    }));
}

fn assert_tells(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    let text = error.to_string();
    assert!(text.contains("panicked: planted by the test"), "{text}");
}

/// Every key reads, in the store that was poisoned and in the one that is opened after it.
fn assert_all_there(env: &Arc<SimEnv>, db: Db, keys: u32) {
    let all_there = |db: &Db| {
        (0..keys).all(|key| {
            db.default_partition().get(key.to_le_bytes()).unwrap().is_some_and(|v| v.len() == 1000)
        })
    };
    assert!(all_there(&db), "reads go on");
    assert_tells(&db.close().unwrap_err());
    assert!(all_there(&options(env).open(DIR).unwrap()));
}

#[test]
fn writers_do_not_wait_for_a_flush_that_panicked() {
    let env = SimEnv::new(1);
    let db = options(&env).open(DIR).unwrap();
    panic_beside_a_new_sst(&env);
    let (keys, error) = (0..10_000).find_map(|key| Some((key, put(&db, key).err()?))).unwrap();
    assert_tells(&error);
    assert_tells(&db.flush().unwrap_err());
    assert_all_there(&env, db, keys);
}

#[test]
fn waiting_for_a_compaction_that_panicked_returns_an_error() {
    let env = SimEnv::new(1);
    let db = options(&env).runs_per_stage(64).open(DIR).unwrap();
    for keys in [0..300, 300..600, 600..900] {
        keys.for_each(|key| put(&db, key).unwrap());
        db.flush().unwrap();
    }
    db.close().unwrap();
    let db = options(&env).open(DIR).unwrap();
    panic_beside_a_new_sst(&env);
    assert_tells(&db.compact().unwrap_err());
    assert_tells(&db.settle().unwrap_err());
    assert_tells(&put(&db, 0).unwrap_err());
    assert_all_there(&env, db, 900);
}
