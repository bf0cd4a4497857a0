//! Whoever waits at a gate is woken by the change of its state, and sees what was done before.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use pleach_models::explore;
use pleach_models::futex;
use pleach_models::gates::Gate;

/// Some threads wait for each of the states from 1 up to the last, and this thread sets them.
fn run(preemptions: usize, waiting: usize, rounds: u32, last: u32) {
    explore(preemptions, move || {
        futex::begin();
        let shared = Arc::new((Gate::new(0), AtomicU32::new(0)));
        let threads: Vec<_> = (0..waiting)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (gate, done) = &*shared;
                    let mut state = 0;
                    while state < last {
                        let next = gate.wait_while(state, rounds);
                        assert!(next > state, "the state goes back");
                        assert!(done.load(Ordering::Relaxed) >= next, "what was done before is not seen");
                        state = next;
                    }
                })
            })
            .collect();
        let (gate, done) = &*shared;
        for state in 1..=last {
            done.store(state, Ordering::Relaxed);
            gate.open(state);
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_thread_that_falls_asleep_is_woken() {
    run(6, 1, 0, 1);
}

#[test]
fn a_thread_that_spins_first_is_woken() {
    run(6, 1, 1, 1);
}

#[test]
fn a_thread_waits_for_one_state_after_the_other() {
    run(6, 1, 0, 2);
}

#[test]
fn all_threads_are_woken() {
    run(4, 2, 0, 1);
}
