//! Models: sources of Pleach in which threads meet, compiled with locks and atomics that try all orders of their steps.
//!
//! The modules below are the engine's own files. The names that they import from `pleach_env`, `pleach_table`, `parking_lot`
//! and `rustix` mean this crate here: [`sync`] has loom's locks and atomics, [`futex`] the system's call,
//! [`memory`] and [`store`] stand in for the rest.
//! The tests are the models: a few threads each, small enough to be run in every order.
//!
//! Loom also returns stale values where the memory orderings allow it. Counters that decide nothing use the standard
//! library's atomics and add no orders.

extern crate self as parking_lot;
extern crate self as pleach;
extern crate self as pleach_env;
extern crate self as pleach_table;
extern crate self as rustix;

use std::sync::Arc;

pub mod env;
pub mod frame;
pub mod futex;
/// The gate.
pub mod gates;
pub mod loads;
pub mod memory;
mod store;
pub mod sync;
pub mod values;
pub mod windows;

/// Only the size that the slab uses.
mod sizes {
    pub(crate) const PAGE: usize = 64;
}

#[path = "../../crates/pleach-env/src/read_queue/inbox.rs"]
mod inbox_source;

#[path = "../../crates/pleach-reshape/src/in_flight.rs"]
mod in_flight;

#[path = "../../crates/pleach-reshape/src/latches.rs"]
mod latches;

#[path = "../../crates/pleach-reshape/src/row_cache.rs"]
mod row_cache;

/// Only what the cache of rows stores.
mod ids {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Id(pub(crate) u64);
}

/// Rounds of spinning. One look more is all that a model needs.
pub(crate) const SPIN_ROUNDS: u32 = 1;
pub(crate) const TURN_ROUNDS: u32 = 1;

#[path = "../../crates/pleach-env/src/sync/quick.rs"]
mod quick;

#[path = "../../crates/pleach-env/src/sync/turnstile.rs"]
mod turnstile;

pub(crate) use sync::{Gate, OnceLock};
pub(crate) use turnstile::Turnstile;

/// Writers that log one after the other and insert in turn.
pub mod side_by_side;

// rustfmt would look for its tests in the wrong folder.
#[rustfmt::skip]
#[path = "../../crates/pleach-log/src/commit.rs"]
mod commit;

/// Writers that commit in groups.
pub mod group_commit;

#[rustfmt::skip]
#[path = "../../crates/pleach-env/src/sync/combiner.rs"]
mod combiner;

/// Threads whose requests are done together.
pub mod combiner_rounds;

/// Writers and checkpoints, writers and readers of a reshaped store.
pub mod reshape;

#[path = "../../crates/pleach-env/src/wakers.rs"]
mod wakers;

pub use store::*;
pub use sync::{Condvar, Mutex, MutexGuard, atomic};
pub use wakers::{WaitingTask, is_in_waker, run_waker, wake};

/// Where `rustix` has the call.
pub mod thread {
    pub use crate::futex;
}

/// Points of races, which loom finds by itself.
pub mod failpoint {
    pub fn reached(_site: &str) {}
}

/// The number of an SST.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u64);

/// The inbox of the thread with the ring, with an alarm as its ring has one.
pub mod inbox;

/// Runs a model in all orders with at most so many preemptions: switches from a thread that could go on.
pub fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// The same for a model in which a thread panics.
///
/// All threads of a model are one thread of the system. If one of them panics while another holds a lock, loom's lock is
/// poisoned. So the model runs in the drop of a value while its thread panics already: locks taken during a panic are not
/// poisoned by it.
pub fn explore_panics(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    struct OnDrop<F: FnOnce()>(Option<F>);

    impl<F: FnOnce()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            self.0.take().expect("a value is dropped once")();
        }
    }

    // Sets loom's hook for panics, which a thread that panics cannot do.
    explore(0, || loom::thread::spawn(|| ()).join().expect("it does nothing"));
    let explored = OnDrop(Some(|| explore(preemptions, model)));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _explored = explored;
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err(), "the panic went on");
}

/// Does each thread's work, that of the first one in the thread of the model. Returns the results.
pub fn in_threads<S, W, R>(shared: &Arc<S>, work: &[&'static [W]], each: fn(&S, &[W]) -> R) -> Vec<R>
where
    S: Send + Sync + 'static,
    W: Sync + 'static,
    R: Send + 'static,
{
    let others: Vec<_> = work[1..]
        .iter()
        .map(|&work| {
            let shared = Arc::clone(shared);
            loom::thread::spawn(move || each(&shared, work))
        })
        .collect();
    let mut results = vec![each(shared, work[0])];
    results.extend(others.into_iter().map(|thread| thread.join().expect("the work ends")));
    results
}
