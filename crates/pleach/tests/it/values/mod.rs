//! Separated values: which values are separated, how they are read, how long their files live, and what a failure costs.

mod conversion;
mod damage;
mod failures;
mod layout;
mod lives;
mod packed;
mod reads;

use std::path::Path;
use std::sync::Arc;

use pleach::env::SimEnv;
use pleach::{Db, Options, Partition};

use crate::rig::setup::DIR;

/// Length from which on the stores of these tests separate values.
const SEPARATED: usize = 200;

fn options(env: &Arc<SimEnv>) -> Options {
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(8 << 20).memtable_bytes(128 << 10);
    options.sst_bytes(16 << 10).compaction_threads(1).separate_at(SEPARATED)
}

fn open(env: &Arc<SimEnv>) -> Db {
    options(env).open(DIR).unwrap()
}

fn key(number: u64) -> String {
    format!("key{number:05}")
}

/// A value of this length. No two are alike.
fn value(number: u64, round: u64, len: usize) -> Vec<u8> {
    format!("{number}-{round}-").into_bytes().into_iter().cycle().take(len).collect()
}

/// Puts keys `0..count`, with values of `len` bytes.
fn fill(partition: &Partition, count: u64, round: u64, len: usize) {
    for number in 0..count {
        partition.put(key(number), value(number, round, len)).unwrap();
    }
}

/// Checks that the partition has exactly what [`fill`] has put.
fn check(partition: &Partition, count: u64, round: u64, len: usize) {
    for number in 0..count {
        let found = partition.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&*value(number, round, len)), "key {number}");
    }
    let scanned =
        partition.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap());
    assert!(scanned.eq((0..count).map(|n| (key(n).into_bytes(), value(n, round, len)))));
}

/// The names of the store's files that end in `suffix`.
fn files(env: &SimEnv, suffix: &str) -> Vec<String> {
    env.file_names(Path::new(DIR)).into_iter().filter(|name| name.ends_with(suffix)).collect()
}

/// The first line of `CURRENT`.
fn layout(env: &SimEnv) -> String {
    let current = env.read_file(&Path::new(DIR).join("CURRENT")).unwrap();
    String::from_utf8(current).unwrap().lines().next().unwrap().to_owned()
}
