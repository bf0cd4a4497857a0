//! How chunks end: futures that are dropped or forgotten, reads that fail, closed stores, dropped partitions, wakers that panic.

use std::mem::forget;
use std::path::Path;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;

use fastrand::Rng;
use pleach::ErrorKind;
use pleach::env::{Fault, FaultKind, SimEnv};

use super::{KEYS, all, filled, key, machine, next, of_range, options, poll};
use crate::rig::read_drivers::{DRIVERS, ReadBy};
use crate::rig::setup::DIR;
use crate::rig::tasks::{Panics, Unpark};

#[test]
fn chunks_that_are_dropped_or_forgotten_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    for driver in DRIVERS {
        let db = options(1 << 20).read_by(driver).direct_reads(true).open(dir.path()).unwrap();
        let partition = db.default_partition();
        thread::scope(|scope| {
            for thread in 0..3 {
                let partition = &partition;
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(thread);
                    for _ in 0..40 {
                        let from = key(rng.u64(..KEYS));
                        let range = partition.range(from.as_str()..).expect_entries(rng.u64(..2_000));
                        let expected = of_range(partition.range(from.as_str()..).take(1_000));
                        let mut chunks = range.into_chunks(rng.usize(1..300));
                        let (mut entries, polls) = (Vec::new(), rng.usize(..50));
                        for _ in 0..polls {
                            match poll(&mut chunks, Waker::noop()) {
                                Poll::Ready(chunk) => entries.extend(chunk.unwrap().unwrap_or_default()),
                                Poll::Pending => thread::yield_now(),
                            }
                        }
                        let len = entries.len().min(expected.len());
                        assert!(entries[..len] == expected[..len], "{driver:?}");
                        if rng.u8(..8) == 0 {
                            forget(chunks);
                        }
                    }
                });
            }
        });
        let stats = db.stats();
        assert!(stats.cache_bytes <= stats.cache_capacity_bytes);
        drop(partition);
        db.close().unwrap();
    }
}

#[test]
fn a_read_that_fails_ends_the_chunks_behind_the_entries_before_it() {
    for back in [false, true] {
        let (env, mut db) = machine(5);
        let mut failures = 0;
        for at in 0.. {
            // Opened again, so that no block is cached.
            db.close().unwrap();
            db = options(16 << 20).env(Arc::<SimEnv>::clone(&env)).open(DIR).unwrap();
            let partition = db.default_partition();
            let range = || partition.range(key(1_000).as_str()..key(2_500).as_str());
            // From here on all reads fail: a window that fails is read again, block by block.
            let first = env.read_count() + at;
            (first..first + 100).for_each(|at_op| env.add_fault(Fault { at_op, kind: FaultKind::ReadEio }));
            let mut chunks = if back { range().into_chunks_back(400) } else { range().into_chunks(400) };
            let (entries, error) = all(&mut chunks);
            env.clear_faults();
            let mut expected = of_range(range());
            if back {
                expected.reverse();
            }
            let Some(error) = error else {
                assert!(entries == expected);
                break;
            };
            failures += 1;
            assert_eq!(error.kind(), ErrorKind::Io);
            assert_eq!(error.path().and_then(Path::extension).unwrap(), "sst");
            assert!(entries.len() < expected.len() && entries[..] == expected[..entries.len()]);
            assert!(next(&mut chunks).unwrap().is_none(), "it has ended");
        }
        assert!(failures >= 8, "{failures} reads failed");
    }
}

#[test]
fn a_close_ends_chunks_whose_reads_are_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    for driver in DRIVERS {
        for entries in [0, 300, 3_000] {
            let db = options(1 << 20).read_by(driver).open(dir.path()).unwrap();
            let partition = db.default_partition();
            let mut chunks = partition.iter().into_chunks(100);
            let not_begun = partition.iter().into_chunks(100);
            let forgotten = partition.range(key(500).as_str()..).into_chunks(100);
            let mut seen = 0;
            while seen < entries {
                seen += next(&mut chunks).unwrap().unwrap().len();
            }
            // The read may have ended within the poll.
            while let Poll::Ready(chunk) = poll(&mut chunks, Waker::noop()) {
                seen += chunk.unwrap().map_or(0, |chunk| chunk.len());
                if seen > 5_000 {
                    break;
                }
            }
            let mut forgotten = Box::new(forgotten);
            let _any = poll(&mut forgotten, Waker::noop());
            forget(forgotten);
            db.close().unwrap();
            for mut chunks in [chunks, not_begun] {
                assert_eq!(next(&mut chunks).unwrap_err().kind(), ErrorKind::Closed, "{driver:?}");
                assert!(next(&mut chunks).unwrap().is_none());
            }
        }
    }
}

#[test]
fn chunks_keep_the_files_of_a_partition_that_is_dropped() {
    let (env, db) = machine(6);
    let gone = db.partition("gone").unwrap();
    for n in 0..KEYS / 2 {
        gone.put(key(n), [9; 700]).unwrap();
    }
    db.flush().unwrap();
    drop(gone);
    db.close().unwrap();
    let db = options(16 << 20).env(Arc::<SimEnv>::clone(&env)).open(DIR).unwrap();
    let gone = db.find_partition("gone").unwrap();
    let mut chunks = gone.iter().into_chunks(50);
    assert!(poll(&mut chunks, Waker::noop()).is_pending());
    let ssts = || env.file_names(Path::new(DIR)).iter().filter(|name| name.contains(".sst")).count();
    let before = ssts();
    db.drop_partition(gone).unwrap();
    env.run_jobs();
    assert_eq!(ssts(), before);
    let (entries, error) = all(&mut chunks);
    assert!(error.is_none());
    assert_eq!(entries.len() as u64, KEYS / 2);
    env.run_jobs();
    assert!(ssts() < before, "the end of the range releases its files");
}

/// On the machine whose reads are made by those who wait, so each reads for the other.
#[test]
fn a_task_that_panics_when_it_is_woken_keeps_no_other_from_its_chunks() {
    for walked in [0, 800] {
        let (_env, db) = machine(7);
        let partition = db.default_partition();
        let mut chunks: Vec<_> = (0..2).map(|_| partition.iter().into_chunks(100)).collect();
        for chunks in &mut chunks {
            let mut entries = 0;
            while entries < walked {
                entries += next(chunks).unwrap().unwrap().len();
            }
            while poll(chunks, Waker::noop()).is_ready() {}
        }
        let panics = Waker::from(Arc::new(Panics));
        let woken = Unpark::new();
        let waker = Waker::from(Arc::clone(&woken));
        let _pending = poll(&mut chunks[1], &waker);
        let _pending = poll(&mut chunks[0], &panics);
        let expected = of_range(partition.iter()).len();
        for mut chunks in chunks {
            let (entries, error) = all(&mut chunks);
            assert!(error.is_none());
            assert!(entries.len() > expected / 2 && entries.len() <= expected);
        }
        assert!(woken.wakes() > 0);
    }
}
