//! Clients: one runs at a time, the seed repeats everything, and a deadlock fails with the places of the waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use crate::failpoint;
use crate::sync::{Condvar, Mutex};
use crate::{Clients, Env, JobStep, SimEnv};

/// Who made which call, in order.
fn trace_of(seed: u64) -> Vec<(u64, usize)> {
    let env = SimEnv::new(1);
    env.create_dir_all(Path::new("/d")).unwrap();
    let trace = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut clients = Clients::new();
    for name in 0..3 {
        let (env, trace) = (Arc::clone(&env), Arc::clone(&trace));
        clients.add("writer", move || {
            let file = env.create_file(Path::new(&format!("/d/{name}"))).unwrap();
            for at in 0..20 {
                file.write_all_at(b"x", at).unwrap();
                trace.lock().push((env.op_count(), name));
            }
        });
    }
    env.run_clients(seed, clients);
    Arc::try_unwrap(trace).expect("the clients have ended").into_inner()
}

#[test]
fn one_seed_gives_one_order_and_another_another() {
    assert_eq!(trace_of(3), trace_of(3));
    let orders: std::collections::BTreeSet<Vec<(u64, usize)>> = (0..20).map(trace_of).collect();
    assert!(orders.len() > 10);
}

#[test]
fn a_lock_held_across_calls_is_waited_for() {
    for seed in 0..50 {
        let env = SimEnv::new(seed);
        let counter = Arc::new(Mutex::new(0));
        let mut clients = Clients::new();
        for name in 0..4 {
            let (env, counter) = (Arc::clone(&env), Arc::clone(&counter));
            clients.add("counter", move || {
                let mut counter = counter.lock();
                let before = *counter;
                env.create_dir_all(Path::new(&format!("/{name}"))).unwrap();
                *counter = before + 1;
            });
        }
        env.run_clients(seed, clients);
        assert_eq!(*counter.lock(), 4);
    }
}

#[test]
fn jobs_step_beside_clients_and_wake_them() {
    for seed in 0..50 {
        let env = SimEnv::new(seed);
        let (done, waiter) = (Arc::new(Mutex::new(0)), Arc::new(env.waiter()));
        let (in_job, wakes) = (Arc::clone(&done), Arc::clone(&waiter));
        let job = move || {
            *in_job.lock() += 1;
            wakes.notify_all();
            JobStep::Again
        };
        let handle = env.spawn_job("worker", Box::new(job)).unwrap();
        handle.waker().wake();
        let mut clients = Clients::new();
        clients.add("waiting", move || {
            let mut done = done.lock();
            while *done < 5 {
                waiter.wait(&mut done);
            }
            drop(done); // The job may be waiting for it.
            drop(handle);
        });
        env.run_clients(seed, clients);
    }
}

#[test]
fn clients_see_what_is_switched_off() {
    let env = SimEnv::new(1);
    let seen = Arc::new(parking_lot::Mutex::new(false));
    let mut clients = Clients::new();
    let sees = Arc::clone(&seen);
    clients.add("looking", move || *sees.lock() = failpoint::skipped("test.off"));
    failpoint::with_skipped("test.off", || env.run_clients(1, clients));
    assert!(*seen.lock());
}

/// The message of the run's panic.
fn failure(seed: u64, clients: Clients) -> Option<String> {
    let env = SimEnv::new(seed);
    let result = catch_unwind(AssertUnwindSafe(|| env.run_clients(seed, clients)));
    result.err().map(|panic| panic.downcast_ref::<String>().expect("it has a text").clone())
}

#[test]
fn locks_taken_in_two_orders_are_a_deadlock_of_some_seed() {
    let run = |seed| {
        let locks = [Arc::new(Mutex::new(())), Arc::new(Mutex::new(()))];
        let mut clients = Clients::new();
        for (name, first, second) in [("there", 0, 1), ("back", 1, 0)] {
            let (first, second) = (Arc::clone(&locks[first]), Arc::clone(&locks[second]));
            clients.add(name, move || {
                let _first = first.lock();
                let _second = second.lock();
            });
        }
        failure(seed, clients)
    };
    let found = (0..100).find_map(run).expect("some seed finds the deadlock");
    assert!(found.contains("simulated deadlock: there wants the lock at"), "{found}");
}

#[test]
fn a_notification_that_nobody_sends_is_a_deadlock() {
    let mut clients = Clients::new();
    clients.add("waiting", || {
        let (mutex, changed) = (Mutex::new(()), Condvar::new());
        changed.wait(&mut mutex.lock());
    });
    let found = failure(1, clients).expect("nobody notifies");
    assert!(found.contains("simulated deadlock: waiting waits at"), "{found}");
}

#[test]
fn the_panic_of_a_client_is_told() {
    let mut clients = Clients::new();
    clients.add("unlucky", || panic!("for the test"));
    clients.add("other", || {});
    assert_eq!(failure(1, clients).as_deref(), Some("unlucky panicked: for the test"));
}
