//! Clients: concurrent threads of a test that use one simulated machine.
//!
//! They take turns by seed, with each other and with the background jobs, at the points that `baton.rs` lists. A test without
//! clients runs on its one thread.

use std::sync::Arc;

use super::SimEnv;
use crate::baton::{Baton, Body, pass_until, run_jobs};
use crate::failpoint::inherited;

/// Threads that run steps of jobs while clients run: at most this many steps overlap.
const RUNNERS: usize = 3;

/// The clients of one run.
#[derive(Default)]
pub struct Clients(Vec<(String, Body)>);

impl Clients {
    /// No clients.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a client. Its name is for messages.
    pub fn add(&mut self, name: &str, body: impl FnOnce() + Send + 'static) {
        self.0.push((name.to_owned(), Box::new(body)));
    }
}

impl SimEnv {
    /// Runs the clients concurrently with ready jobs until all clients have ended. The seed decides which thread goes on.
    /// The failpoint that is switched off on this thread is switched off for them too.
    ///
    /// # Panics
    /// With the message of a client or job that panicked; if no thread can go on; if one blocks for a minute outside the
    /// scheduler's points. Waiting threads then stay asleep.
    pub fn run_clients(self: &Arc<Self>, seed: u64, clients: Clients) {
        let env = Arc::clone(self);
        let baton = Baton::new(seed, Box::new(move || env.schedule.lock().has_ready()));
        for (name, body) in clients.0 {
            baton.add(name, true, inherited(body));
        }
        for number in 0..RUNNERS {
            let env = Arc::clone(self);
            let steps = move || {
                run_jobs(|| {
                    env.step_job();
                });
            };
            baton.add(format!("jobs {number}"), false, inherited(Box::new(steps)));
        }
        baton.run();
    }

    /// Waits until the job is not in a step in another thread.
    pub(super) fn wait_for_step(&self, id: u64) {
        pass_until(|| !self.schedule.lock().steps_elsewhere(id));
    }
}
