//! A condition variable that knows the environment it waits in.
//!
//! On a real machine it is a `parking_lot::Condvar`. In the simulator nobody else could ever signal it, so waiting
//! releases the lock, steps one background job, and returns: callers wait in a loop around their condition.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, MutexGuard};

/// Waits for a condition guarded by a mutex. Spurious returns happen: always wait in a loop.
pub struct Waiter(Kind);

enum Kind {
    Real(Condvar),
    Sim(Arc<dyn Fn() + Send + Sync>),
}

impl Waiter {
    pub(crate) fn real() -> Self {
        Self(Kind::Real(Condvar::new()))
    }

    /// `step` runs one background job; it panics when there is none, for then the wait would never end.
    pub(crate) fn sim(step: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self(Kind::Sim(step))
    }

    /// Releases the lock, waits for a notification, takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match &self.0 {
            Kind::Real(condvar) => condvar.wait(guard),
            Kind::Sim(step) => MutexGuard::unlocked(guard, || step()),
        }
    }

    /// As [`Waiter::wait`], for `timeout` at most.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        match &self.0 {
            Kind::Real(condvar) => {
                condvar.wait_for(guard, timeout);
            }
            Kind::Sim(step) => MutexGuard::unlocked(guard, || step()),
        }
    }

    /// Wakes everyone who waits.
    pub fn notify_all(&self) {
        if let Kind::Real(condvar) = &self.0 {
            condvar.notify_all();
        }
    }
}
