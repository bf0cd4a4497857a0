//! Order of repair: a newer version of a key is inserted after an older one, whatever SSTs hold them.

use std::sync::Arc;

use pleach::env::SimEnv;
use pleach::{Durability, Options, repair};

use crate::rig::setup::DIR;

/// Two SSTs that several partitions share. The first partition is in the newer one only: reading the SSTs partition by
/// partition would read the newer one first.
#[test]
fn shared_ssts_are_read_by_age_whatever_partitions_are_in_them() {
    let env = SimEnv::new(1);
    let options = || {
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(8 << 20).runs_per_stage(64);
        options.compaction_threads(1)
    };
    let db = options().open(DIR).unwrap();
    let partitions = db.create_partitions(["first", "second", "third"]).unwrap();
    for (value, members) in [("old", [1, 2]), ("new", [0_usize, 1])] {
        let mut batch = db.batch();
        for member in members {
            batch.put(&partitions[member], "key", value);
        }
        batch.commit(Durability::Sync).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(db.stats().ssts, 2, "the partitions share their SSTs");
    drop(partitions);
    db.close().unwrap();
    repair(DIR, "/new", options(), &mut |_, _| true).unwrap();
    let db = options().open("/new").unwrap();
    for (name, value) in [("first", "new"), ("second", "new"), ("third", "old")] {
        let found = db.find_partition(name).unwrap().get("key").unwrap();
        assert_eq!(found.as_deref(), Some(value.as_bytes()), "{name}");
    }
}
