//! What chunks read, and when a task waits for it.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use pleach::env::{Env, RealEnv, SlowEnv};

use super::{KEYS, RUNS, all, block_on, filled, key, machine, of_range, options, owned, poll};
use crate::rig::read_drivers::{DRIVERS, ReadBy};

#[test]
fn chunks_have_the_entries_of_the_range_on_every_driver() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    for (driver, direct) in DRIVERS.into_iter().flat_map(|driver| [(driver, false), (driver, true)]) {
        let db = options(1 << 20).direct_reads(direct).read_by(driver).open(dir.path()).unwrap();
        let partition = db.default_partition();
        for entries_max in [1, 7, 500, usize::MAX] {
            let (from, to) = (key(100), key(KEYS - 100));
            let range = || partition.range(from.as_str()..to.as_str());
            let (up, error) = all(&mut range().into_chunks(entries_max));
            assert!(error.is_none(), "{driver:?}");
            assert_eq!(up, of_range(range()), "{driver:?}");
            let (down, error) = all(&mut range().into_chunks_back(entries_max));
            assert!(error.is_none(), "{driver:?}");
            assert!(down.into_iter().rev().eq(up), "{driver:?}");
        }
    }
}

#[test]
fn chunks_that_are_cached_are_ready_at_the_first_poll_and_full() {
    let (env, db) = machine(1);
    let partition = db.default_partition();
    let expected = of_range(partition.iter().fill_cache());
    let reads = env.read_count();
    for back in [false, true] {
        let range = partition.iter();
        let mut chunks = if back { range.into_chunks_back(100) } else { range.into_chunks(100) };
        let mut entries = Vec::new();
        while let Poll::Ready(Ok(Some(chunk))) = poll(&mut chunks, Waker::noop()) {
            entries.extend(chunk);
            assert!(entries.len() % 100 == 0 || entries.len() == expected.len());
        }
        if back {
            entries.reverse();
        }
        assert!(entries == expected);
        assert!(matches!(poll(&mut chunks, Waker::noop()), Poll::Ready(Ok(None))));
    }
    assert_eq!(env.read_count(), reads);
}

#[test]
fn a_chunk_ends_early_where_the_next_block_is_not_in_memory() {
    let (env, db) = machine(2);
    let mut chunks = db.default_partition().iter().into_chunks(usize::MAX);
    let (reads, mut count, mut entries) = (env.read_count(), 0, 0);
    while let Some(chunk) = block_on(chunks.next_chunk()).unwrap() {
        assert!(!chunk.is_empty());
        (count, entries) = (count + 1, entries + chunk.len() as u64);
    }
    assert!(entries > KEYS / 2);
    assert!((10..=env.read_count() - reads).contains(&count), "{count} chunks");
}

#[test]
fn a_range_that_was_read_in_part_goes_on_in_chunks() {
    let (_env, db) = machine(3);
    let partition = db.default_partition();
    let expected = of_range(partition.iter());
    let mut range = partition.iter();
    let mut entries = of_range(range.by_ref().take(50));
    let last = of_range(range.by_ref().rev().take(50));
    range.seek(&expected[60].0);
    entries.extend(all(&mut range.into_chunks(64)).0);
    entries.extend(last.into_iter().rev());
    assert!(entries.iter().eq(expected[..50].iter().chain(&expected[60..])));
}

/// As the scans of threads: windows of up to 256 KiB, which do not enter the cache.
#[test]
fn long_chunks_read_ahead_by_large_requests_and_leave_the_cache_alone() {
    let (env, db) = machine(4);
    let partition = db.default_partition();
    db.compact().unwrap();
    for back in [false, true] {
        let (reads, cached) = (env.read_count(), db.stats().cache_bytes);
        let range = partition.iter();
        let mut chunks = if back { range.into_chunks_back(1_000) } else { range.into_chunks(1_000) };
        let (entries, error) = all(&mut chunks);
        assert!(error.is_none() && entries.len() as u64 > KEYS / 2);
        let reads = env.read_count() - reads;
        assert!((10..60).contains(&reads), "{reads} reads of 3 MB");
        let admitted = db.stats().cache_bytes - cached;
        assert!(admitted <= 400 << 10, "{admitted} bytes entered the cache");
    }
}

#[test]
fn the_blocks_of_a_seek_are_read_together() {
    const WIDTH: usize = 16;
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let env = Arc::new(SlowEnv::new(Arc::new(RealEnv::new()), WIDTH));
    let db = options(16 << 20).env(Arc::clone(&env) as Arc<dyn Env>).open(dir.path()).unwrap();
    env.set_latency(Duration::from_millis(300));
    let mut chunks = db.default_partition().range(key(KEYS / 2).as_str()..).into_chunks(1);
    assert_eq!(owned(block_on(chunks.next_chunk()).unwrap().unwrap()).len(), 1);
    let running = env.running_max() as u64;
    assert!(running >= RUNS, "{running} of {RUNS} reads at the same time");
    env.set_latency(Duration::ZERO);
}
