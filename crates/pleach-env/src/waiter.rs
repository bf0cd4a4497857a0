//! A condition variable that knows the environment it waits in.
//!
//! On a real machine it is a `parking_lot::Condvar`. In the simulator nobody else could ever signal it, so waiting
//! releases the lock, steps one background job, and returns: callers wait in a loop around their condition. Where no job
//! is ready, a wait with a timeout lets the virtual time pass instead, and one without would never end.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, MutexGuard};

/// Waits for a condition guarded by a mutex. Spurious returns happen: always wait in a loop.
pub struct Waiter(Kind);

/// What a simulated wait does instead of waiting; the timeout, where there is one.
type SimWait = Arc<dyn Fn(Option<Duration>) + Send + Sync>;

enum Kind {
    Real(Condvar),
    Sim(SimWait),
}

impl Waiter {
    pub(crate) fn real() -> Self {
        Self(Kind::Real(Condvar::new()))
    }

    /// `wait` runs one background job. When none is ready it lets the timeout pass or, without one, panics.
    pub(crate) fn sim(wait: SimWait) -> Self {
        Self(Kind::Sim(wait))
    }

    /// Releases the lock, waits for a notification, takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match &self.0 {
            Kind::Real(condvar) => condvar.wait(guard),
            Kind::Sim(wait) => MutexGuard::unlocked(guard, || wait(None)),
        }
    }

    /// As [`Waiter::wait`], for `timeout` at most.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        match &self.0 {
            Kind::Real(condvar) => {
                condvar.wait_for(guard, timeout);
            }
            Kind::Sim(wait) => MutexGuard::unlocked(guard, || wait(Some(timeout))),
        }
    }

    /// Wakes everyone who waits.
    pub fn notify_all(&self) {
        if let Kind::Real(condvar) = &self.0 {
            condvar.notify_all();
        }
    }
}
