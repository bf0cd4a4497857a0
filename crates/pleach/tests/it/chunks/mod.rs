//! Chunks of ranges: on every driver they have the entries of the range, however their futures are polled, dropped or forgotten.

mod ends;
mod model;
mod reads;

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pleach::env::SimEnv;
use pleach::{Chunk, Db, Options, RangeChunks, Result, Shape};

use crate::rig::setup::DIR;
use crate::rig::tasks::block_on;

type Entry = (Vec<u8>, Vec<u8>);

/// More than the smallest cache holds.
const KEYS: u64 = 8_000;
const RUNS: u64 = 6;

fn key(n: u64) -> String {
    format!("user{n:06}")
}

/// A run of all keys, and smaller ones that each overwrite and delete keys from everywhere.
fn fill(db: &Db) {
    let partition = db.default_partition();
    for run in 0..RUNS {
        let value = vec![u8::try_from(run).unwrap(); 400];
        for n in (0..KEYS).filter(|n| run == 0 || n % RUNS == run || n % 97 == run) {
            if n % 31 == run {
                partition.delete(key(n)).unwrap();
            } else {
                partition.put(key(n), &value).unwrap();
            }
        }
        db.flush().unwrap();
    }
}

fn options(memory: usize) -> Options {
    Options::new().memory(memory).memtable_bytes(8 << 20).shape(Shape::Forest).runs_per_stage(12)
}

/// A directory with a store of several runs.
fn filled(dir: &Path) {
    fill(&options(16 << 20).open(dir).unwrap());
}

/// A machine with a store whose blocks are all in SSTs, opened again so that none is cached.
fn machine(seed: u64) -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(seed);
    let options = options(16 << 20).env(Arc::<SimEnv>::clone(&env));
    let db = options.clone().open(DIR).unwrap();
    fill(&db);
    db.close().unwrap();
    (env, options.open(DIR).unwrap())
}

/// Polls the next chunk once.
fn poll(chunks: &mut RangeChunks, waker: &Waker) -> Poll<Result<Option<Vec<Entry>>>> {
    let polled = Pin::new(&mut chunks.next_chunk()).poll(&mut Context::from_waker(waker));
    polled.map_ok(|chunk| chunk.map(owned))
}

fn next(chunks: &mut RangeChunks) -> Result<Option<Vec<Entry>>> {
    Ok(block_on(chunks.next_chunk())?.map(owned))
}

fn owned(chunk: Chunk) -> Vec<Entry> {
    chunk.into_iter().map(|(key, value)| (key.into_vec(), value.into_vec())).collect()
}

/// All entries, and the error that ended them.
fn all(chunks: &mut RangeChunks) -> (Vec<Entry>, Option<pleach::Error>) {
    let mut entries = Vec::new();
    loop {
        match next(chunks) {
            Ok(Some(chunk)) => {
                assert!(!chunk.is_empty());
                entries.extend(chunk);
            }
            Ok(None) => return (entries, None),
            Err(error) => return (entries, Some(error)),
        }
    }
}

fn of_range(range: impl Iterator<Item = Result<(pleach::Key, pleach::Value)>>) -> Vec<Entry> {
    owned(range.map(Result::unwrap).collect())
}
