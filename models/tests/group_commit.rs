//! One thread at a time leads, every batch is written once, and every writer gets its own back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pleach_models::group_commit::{GroupCommit, Write};
use pleach_models::{explore, explore_panics, in_threads};

const QUICK: Write = Write { cost: 100, is_slow: false, panics: false };
const SLOW: Write = Write { is_slow: true, ..QUICK };
/// Too large to share a group with another one.
const LARGE: Write = Write { cost: 2 << 20, ..QUICK };
const PANICS: Write = Write { panics: true, ..QUICK };

/// Writes the batches of each thread, those of the first one in the thread of the model. The largest group of all orders has
/// `largest` batches.
fn run(explore: impl Fn(Box<dyn Fn() + Send + Sync>), threads: &'static [&'static [Write]], largest: usize) {
    let seen = Arc::new(AtomicUsize::new(0));
    let largest_seen = Arc::clone(&seen);
    explore(Box::new(move || write_in(threads, GroupCommit::new(&seen))));
    assert_eq!(largest_seen.load(Ordering::Relaxed), largest, "batches in a group");
}

fn write_in(threads: &[&'static [Write]], commit: GroupCommit) {
    let commit = Arc::new(commit);
    let write_all = |commit: &GroupCommit, writes: &[Write]| {
        let mut before = 0;
        for &write in writes {
            let place = commit.write(write);
            assert!(place == 0 || place > before, "a later batch is logged first");
            before = place;
        }
    };
    in_threads(&commit, threads, write_all);
    commit.check_end(threads.iter().map(|writes| writes.len() as u64).sum());
}

#[test]
fn two_writers() {
    run(|m| explore(5, m), &[&[QUICK], &[QUICK]], 1);
}

#[test]
fn two_writers_that_wait_for_the_device() {
    run(|m| explore(5, m), &[&[SLOW], &[SLOW]], 1);
}

#[test]
fn a_writer_comes_back() {
    run(|m| explore(4, m), &[&[QUICK, QUICK], &[QUICK]], 2);
}

#[test]
fn two_of_three_writers_share_a_group() {
    run(|m| explore(3, m), &[&[QUICK], &[QUICK], &[QUICK]], 2);
}

#[test]
fn two_of_three_writers_share_a_group_and_come_back() {
    run(|m| explore(2, m), &[&[QUICK, QUICK], &[QUICK, QUICK], &[QUICK]], 3);
}

#[test]
fn two_of_three_writers_wait_for_the_device_together() {
    run(|m| explore(3, m), &[&[SLOW], &[SLOW], &[SLOW]], 2);
}

#[test]
fn three_writers_in_groups_of_their_own() {
    run(|m| explore(3, m), &[&[LARGE], &[LARGE], &[LARGE]], 1);
}

#[test]
fn a_leader_panics_before_one_that_waits() {
    run(|m| explore_panics(4, m), &[&[PANICS], &[QUICK]], 1);
}

#[test]
fn a_leader_panics_beside_others() {
    run(|m| explore_panics(3, m), &[&[QUICK], &[PANICS], &[QUICK]], 2);
}
