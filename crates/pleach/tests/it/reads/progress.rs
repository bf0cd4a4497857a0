//! Reads of many keys go on as far as they can: none waits for another key's reads, nor for reads that it does not need.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pleach::ReadPolicy;

use super::policies::{CANDIDATES, key, machine, uncached};

#[test]
fn all_keys_of_a_future_go_on_together() {
    for seed in 0..4 {
        let (env, db) = machine(seed);
        let partition = db.default_partition();
        // The key of a run needs the blocks of all newer runs too. The first is last to end.
        let keys: Vec<_> = (0..CANDIDATES).map(key).collect();
        let before = env.read_count();
        let mut future = pin!(partition.get_many_async_with(&keys, &uncached(ReadPolicy::Serial)));
        let mut polls = 0;
        let answers = loop {
            polls += 1;
            assert!(polls <= 4 * CANDIDATES, "{polls} polls");
            if let Poll::Ready(answers) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                break answers.unwrap();
            }
        };
        assert!(
            (0..).zip(answers).all(|(run, found): (u32, _)| *found.unwrap() == *run.to_string().as_bytes())
        );
        let reads = env.read_count() - before;
        assert!(reads >= u64::from(CANDIDATES), "keys share reads");
    }
}

#[test]
fn keys_that_are_found_wait_for_no_older_run() {
    let mut reads = 0;
    for seed in 0..20 {
        let (env, db) = machine(seed);
        let before = env.read_count();
        let newest = [key(CANDIDATES - 1)];
        let options = uncached(ReadPolicy::FixedCount(16));
        let answers = db.default_partition().get_many_with(&newest, &options).unwrap();
        assert_eq!(answers[0].as_deref(), Some((CANDIDATES - 1).to_string().as_bytes()));
        reads += env.read_count() - before;
    }
    assert!(reads < 20 * 16, "{reads} reads: the newest run has the answer");
}

/// A caller may keep a future that has answered. It keeps no memtable and no file.
#[test]
fn a_future_that_has_answered_pins_nothing() {
    let (_env, db) = machine(1);
    let partition = db.default_partition();
    let keys: Vec<_> = (0..CANDIDATES).map(key).collect();
    let mut future = pin!(partition.get_many_async(&keys));
    while future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
    partition.put(key(0), "new").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    db.settle().unwrap();
    let stats = db.stats();
    assert_eq!((stats.pinned_bytes, stats.pinned_memtable_bytes), (0, 0));
    drop(db);
}
