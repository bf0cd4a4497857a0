//! Writers in flight: who has an id or a version that the map may not have yet.
//!
//! A writer takes a slot before it takes a version and ids, and gives it back after it has published. A checkpoint that has
//! read all counters waits for the writers that were in flight then, and holds up none. `models/` runs this file in all orders.

use std::time::Duration;

use pleach::env::Env;
use pleach::env::sync::atomic::{AtomicU64, Ordering};

/// More than threads that write at the same time; further ones wait for a slot.
pub(crate) const SLOT_COUNT: usize = 256;
/// How often a checkpoint looks whether writers have ended: about the time of a commit.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(AtomicU64);

/// The slots of writers.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// 0 if free; otherwise a number that no other use of the slot has.
    slots: Box<[Slot]>,
}

impl InFlight {
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: (0..slots).map(|_| Slot::default()).collect() }
    }

    /// Takes a slot, if possible that of the thread with this number. `tickets` is the counter of uses.
    pub(crate) fn enter(&self, thread: usize, tickets: &AtomicU64) -> Entered<'_> {
        let ticket = tickets.fetch_add(1, Ordering::Relaxed) + 1;
        let mut at = thread;
        loop {
            let slot = &self.slots[at % self.slots.len()];
            // Sequentially consistent, with the counters of ids and versions: see `Allocator::take_from`.
            if slot.0.compare_exchange(0, ticket, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return Entered(slot);
            }
            at += 1;
            if at.is_multiple_of(self.slots.len()) {
                std::thread::yield_now();
            }
        }
    }

    /// Waits until all writers that are in flight now have ended. Others may begin.
    pub(crate) fn wait(&self, env: &dyn Env) {
        for slot in &self.slots {
            let ticket = slot.0.load(Ordering::SeqCst);
            while ticket != 0 && slot.0.load(Ordering::SeqCst) == ticket {
                env.sleep(LOOK_AGAIN);
            }
        }
    }
}

/// A slot in use.
pub(crate) struct Entered<'a>(&'a Slot);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::SeqCst);
    }
}
