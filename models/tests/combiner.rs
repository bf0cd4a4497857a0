//! One thread at a time leads, and every request is done once, or its thread is told that its leader panicked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pleach_models::combiner_rounds::{How, Rounds};
use pleach_models::{explore, explore_panics, in_threads};

use How::{Panics, Quick, Slow};

/// Submits the requests of each thread, those of the first one in the thread of the model. The largest group of all orders has
/// `largest` requests.
fn run(explore: impl Fn(Box<dyn Fn() + Send + Sync>), threads: &'static [&'static [How]], largest: usize) {
    let seen = Arc::new(AtomicUsize::new(0));
    let largest_seen = Arc::clone(&seen);
    explore(Box::new(move || submit_in(threads, Rounds::new(&seen))));
    assert_eq!(largest_seen.load(Ordering::Relaxed), largest, "requests in a group");
}

fn submit_in(threads: &[&'static [How]], rounds: Rounds) {
    let rounds = Arc::new(rounds);
    let submit_all =
        |rounds: &Rounds, requests: &[How]| requests.iter().filter(|how| rounds.submit(**how)).count() as u64;
    let done = in_threads(&rounds, threads, submit_all).into_iter().sum::<u64>();
    assert_eq!(rounds.done(), done, "requests that were done, and that threads know of");
    if !threads.iter().any(|requests| requests.contains(&Panics)) {
        assert_eq!(done, threads.iter().map(|requests| requests.len() as u64).sum::<u64>());
    }
}

#[test]
fn two_threads() {
    run(|m| explore(5, m), &[&[Quick], &[Quick]], 1);
}

#[test]
fn two_threads_slow() {
    run(|m| explore(5, m), &[&[Slow], &[Slow]], 1);
}

#[test]
fn a_thread_comes_back_before_the_next_one_is_awake() {
    run(|m| explore(4, m), &[&[Quick, Quick], &[Quick]], 2);
}

#[test]
fn a_thread_comes_back_and_joins_the_next_group() {
    run(|m| explore(4, m), &[&[Slow, Quick], &[Quick]], 2);
}

#[test]
fn three_threads() {
    run(|m| explore(3, m), &[&[Quick], &[Quick], &[Quick]], 2);
}

#[test]
fn three_threads_slow() {
    run(|m| explore(3, m), &[&[Slow], &[Slow], &[Slow]], 2);
}

#[test]
fn a_group_is_led_before_its_first_thread_is_awake_and_another_one_gathers() {
    run(|m| explore(3, m), &[&[Quick, Quick], &[Quick], &[Quick]], 3);
}

#[test]
fn three_threads_come_back() {
    run(|m| explore(2, m), &[&[Quick, Slow], &[Slow, Quick], &[Quick]], 3);
}

#[test]
fn a_leader_panics_before_one_that_waits() {
    run(|m| explore_panics(4, m), &[&[Panics], &[Quick]], 1);
}

#[test]
fn a_leader_panics_with_others() {
    run(|m| explore_panics(3, m), &[&[Slow], &[Panics], &[Quick]], 2);
}
