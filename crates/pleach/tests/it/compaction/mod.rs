//! Compactions as users see them: steps, space and shapes, on a simulated machine.

mod pace;
mod range;
mod shapes;
mod space;
mod steps;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use pleach::env::SimEnv;
use pleach::{Db, LearnedIndex, Shape};

use crate::rig::setup::{DIR, Setup};

const SETUP: Setup = Setup {
    memtable_bytes: 32 << 10,
    sst_bytes: 4 << 10,
    shape: Some(Shape::ForestOverBottom),
    compaction_threads: 1,
    runs_per_stage: 4,
    clean_every: 3,
    filter_bits: 10,
    compression: Some(false),
    direct_reads: false,
    learned: Some(LearnedIndex::Never),
    separate_at: Some(0),
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Puts `count` random ones of `keys` keys.
fn put_random(db: &Db, model: &mut Model, rng: &mut Rng, (count, keys): (usize, u32)) {
    let partition = db.default_partition();
    for _ in 0..count {
        let key = format!("{:08}", rng.u32(..keys)).into_bytes();
        let value = vec![rng.u8(..); 100];
        partition.put(&key, &value).unwrap();
        model.insert(key, value);
    }
}

/// Demands that the store holds just what the model does.
fn check(db: &Db, model: &Model, story: &str) {
    let found = db.default_partition().iter().map(|entry| entry.unwrap());
    let found: Model = found.map(|(key, value)| (key.into_vec(), value.into_vec())).collect();
    assert!(found == *model, "{story}: {} entries, {} in the model", found.len(), model.len());
}

/// Numbers and lengths of the SSTs in the directory.
fn ssts(env: &SimEnv) -> BTreeMap<u64, u64> {
    let len = |name: &str| env.read_file(&path(name)).map_or(0, |bytes| bytes.len() as u64);
    let names = env.file_names(Path::new(DIR)).into_iter();
    names.filter_map(|name| Some((name.strip_suffix(".sst")?.parse().ok()?, len(&name)))).collect()
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}
