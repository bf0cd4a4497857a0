//! A condition variable that works in both environments.
//!
//! On a real machine it is a `parking_lot::Condvar`. In the simulator no other thread could notify it. So a wait releases the
//! lock, steps one background job, and returns; callers wait in a loop around their condition. If no job is ready, a wait
//! with a timeout advances the virtual time, and one without panics. A simulated client has a thread of its own and waits
//! until it is notified, as on a real machine.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, MutexGuard};

/// Waits for a condition guarded by a mutex. Spurious returns happen: always wait in a loop.
pub struct Waiter(Kind);

/// What a simulated wait does instead of waiting.
type SimWait = Arc<dyn Fn(Waited) + Send + Sync>;

/// How a simulated wait goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// On the only thread: step a job, or advance the time by the timeout.
    Alone(Option<Duration>),
    /// With other threads: the timeout is over.
    #[cfg(feature = "failpoints")]
    TimedOut(Duration),
}

enum Kind {
    Real(Condvar),
    Sim(Simulated),
}

struct Simulated {
    wait: SimWait,
    #[cfg(feature = "failpoints")]
    key: crate::baton::Key,
}

impl Simulated {
    #[cfg_attr(feature = "failpoints", track_caller)]
    fn wait<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<Duration>) {
        #[cfg(feature = "failpoints")]
        {
            let timed_out = timeout.map(|timeout| move || (self.wait)(Waited::TimedOut(timeout)));
            let timed_out = timed_out.as_ref().map(|timed_out| timed_out as &dyn Fn());
            if crate::baton::wait(&self.key, guard, timed_out) {
                return;
            }
        }
        MutexGuard::unlocked(guard, || (self.wait)(Waited::Alone(timeout)));
    }

    #[cfg_attr(
        not(feature = "failpoints"),
        expect(
            clippy::unused_self,
            reason = "without threads of its own the simulator has nobody to notify"
        )
    )]
    fn notify_all(&self) {
        #[cfg(feature = "failpoints")]
        crate::baton::notify(&self.key, usize::MAX);
    }
}

impl Waiter {
    pub(crate) fn real() -> Self {
        Self(Kind::Real(Condvar::new()))
    }

    /// `wait` runs one background job. When none is ready it lets the timeout pass or, without one, panics.
    pub(crate) fn sim(wait: SimWait) -> Self {
        Self(Kind::Sim(Simulated {
            wait,
            #[cfg(feature = "failpoints")]
            key: crate::baton::Key::new(),
        }))
    }

    /// Releases the lock, waits for a notification, takes the lock again.
    #[cfg_attr(feature = "failpoints", track_caller)]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match &self.0 {
            Kind::Real(condvar) => condvar.wait(guard),
            Kind::Sim(sim) => sim.wait(guard, None),
        }
    }

    /// As [`Waiter::wait`], but at most for `timeout`.
    #[cfg_attr(feature = "failpoints", track_caller)]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        match &self.0 {
            Kind::Real(condvar) => {
                condvar.wait_for(guard, timeout);
            }
            Kind::Sim(sim) => sim.wait(guard, Some(timeout)),
        }
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        match &self.0 {
            Kind::Real(condvar) => {
                condvar.notify_all();
            }
            Kind::Sim(sim) => sim.notify_all(),
        }
    }
}
