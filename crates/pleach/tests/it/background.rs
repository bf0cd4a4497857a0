//! Who waits for background work, and what a full disk makes of it, on a simulated machine.

use std::path::Path;
use std::sync::Arc;

use pleach::env::SimEnv;
use pleach::{Db, Options, Shape};

use crate::rig::setup::DIR;

const MEMTABLE_BYTES: usize = 8 << 20;

fn open(env: &Arc<SimEnv>) -> Db {
    let options =
        Options::new().env(Arc::<SimEnv>::clone(env)).memory(64 << 20).memtable_bytes(MEMTABLE_BYTES);
    options.sst_bytes(2 << 20).shape(Shape::ForestOverBottom).compaction_threads(1).open(DIR).unwrap()
}

fn put_all(db: &Db, keys: std::ops::Range<u32>) {
    let partition = db.default_partition();
    keys.for_each(|key| partition.put(key.to_be_bytes(), [1; 1000]).unwrap());
}

fn sst_count(env: &SimEnv) -> usize {
    env.file_names(Path::new(DIR)).iter().filter(|name| name.ends_with(".sst")).count()
}

/// An SST that was being written once stayed, and those that were finished let the flush be tried again and again.
#[test]
fn a_flush_on_a_full_disk_leaves_nothing() {
    for free in (1..=20).map(|quarter| quarter << 18) {
        let env = SimEnv::new(1);
        let db = open(&env);
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
