//! Space: garbage that snapshots pin, and a disk that is nearly full.

use fastrand::Rng;
use pleach::Shape;
use pleach::env::SimEnv;

use super::{Model, SETUP, check, put_random};
use crate::rig::setup::Setup;

#[test]
fn space_that_a_snapshot_pins_is_reported() {
    let env = SimEnv::new(1);
    let db = SETUP.open(&env).unwrap();
    let mut model = Model::new();
    let rng = &mut Rng::with_seed(1);
    put_random(&db, &mut model, rng, (2000, 1000));
    db.flush().unwrap();
    let snapshot = db.snapshot();
    let before = model.clone();
    put_random(&db, &mut model, rng, (2000, 1000));
    db.compact().unwrap();
    env.run_jobs();
    let pinned = db.stats().pinned_bytes;
    assert!(pinned > 50_000, "{pinned} bytes are pinned");
    let seen = snapshot.prefix(&db.default_partition(), b"").map(|entry| entry.unwrap());
    assert!(seen.map(|(key, value)| (key.into_vec(), value.into_vec())).collect::<Model>() == before);
    drop(snapshot);
    db.settle().unwrap();
    env.run_jobs();
    assert_eq!(db.stats().pinned_bytes, 0);
    check(&db, &model, "after the snapshot");
}

/// So much that the machine's blocks of 4 KiB make no difference.
const CAPACITY: u64 = 8 << 20;

/// Writers meet the full disk first. They leave enough room for a merge of everything, which makes room for writes.
#[test]
fn a_nearly_full_disk_can_still_be_emptied() {
    for shape in [Shape::Forest, Shape::ForestOverBottom, Shape::Leveled] {
        for seed in 0..4 {
            let env = SimEnv::new(seed);
            env.set_capacity(CAPACITY);
            let setup = Setup { shape: Some(shape), memtable_bytes: 128 << 10, sst_bytes: 32 << 10, ..SETUP };
            let db = setup.open(&env).unwrap();
            let (partition, mut model) = (db.default_partition(), Model::new());
            let mut rng = Rng::with_seed(seed);
            let error = loop {
                let key = format!("{:08}", rng.u32(..100_000_000)).into_bytes();
                match partition.put(&key, [5; 200]) {
                    Ok(()) => drop(model.insert(key, vec![5; 200])),
                    Err(error) => break error,
                }
                if rng.u8(..) == 0 {
                    env.step_job();
                }
            };
            let story = format!("{shape:?}, seed {seed}, {} entries", model.len());
            assert!(error.is_out_of_space(), "{story}: {error}");
            assert!(error.to_string().contains("are kept for flush and compaction"), "{story}: {error}");
            assert!(model.len() > 15_000, "{story}: the store gave up early");
            check(&db, &model, &story);
            db.compact().unwrap_or_else(|e| panic!("{story}: compact: {e}, {:#?}", db.stats()));
            check(&db, &model, &story);
            assert!(db.poisoned().is_none(), "{story}");
            let gone: Vec<_> = model.keys().take(model.len() / 2).cloned().collect();
            for key in &gone {
                partition.delete(key).unwrap_or_else(|e| panic!("{story}: delete: {e}"));
                model.remove(key);
            }
            db.compact().unwrap_or_else(|e| panic!("{story}: compact after deletes: {e}"));
            env.run_jobs();
            assert!(env.used_space() < CAPACITY * 2 / 3, "{story}: {} bytes are used", env.used_space());
            put_random(&db, &mut model, &mut rng, (500, 100_000));
            check(&db, &model, &story);
        }
    }
}
