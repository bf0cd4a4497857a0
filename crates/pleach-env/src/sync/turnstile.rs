//! Waits for what another thread does in less than a microsecond, unless that thread has lost its processor.
//!
//! A waiting thread spins, and then sleeps, so that its processor can run the other one. Who ends the wait pays one load: no
//! fence, so it may overlook a thread that is about to sleep; that one looks again by itself after [`LOOK_AGAIN`].

use std::time::Duration;

use super::TURN_ROUNDS;
use super::atomic::{AtomicBool, Ordering};

/// How long a sleeping thread stays asleep if it was overlooked.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// See the module's text.
#[derive(Debug, Default)]
pub struct Turnstile {
    /// Whether a thread sleeps that nobody has woken.
    has_sleeper: AtomicBool,
    lock: parking_lot::Mutex<()>,
    changed: parking_lot::Condvar,
}

impl Turnstile {
    /// A turnstile that nobody waits at.
    pub fn new() -> Self {
        Self {
            has_sleeper: AtomicBool::new(false),
            lock: parking_lot::Mutex::new(()),
            changed: parking_lot::Condvar::new(),
        }
    }

    /// Waits until `is_over`. Whoever makes that true calls [`Turnstile::notify`] afterwards.
    #[inline]
    #[cfg_attr(feature = "failpoints", track_caller)]
    pub fn wait_until(&self, is_over: impl Fn() -> bool) {
        if !is_over() {
            self.wait(&is_over);
        }
    }

    #[cold]
    #[cfg_attr(feature = "failpoints", track_caller)]
    fn wait(&self, is_over: &dyn Fn() -> bool) {
        #[cfg(feature = "failpoints")]
        if crate::baton::take(|| is_over().then_some(())).is_some() {
            return;
        }
        for _ in 0..TURN_ROUNDS {
            std::hint::spin_loop();
            if is_over() {
                return;
            }
        }
        let mut lock = self.lock.lock();
        loop {
            self.has_sleeper.swap(true, Ordering::SeqCst);
            if is_over() {
                return;
            }
            self.changed.wait_for(&mut lock, LOOK_AGAIN);
        }
    }

    /// Wakes the threads that sleep.
    #[inline]
    pub fn notify(&self) {
        if self.has_sleeper.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let _no_thread_is_between_look_and_sleep = self.lock.lock();
        self.has_sleeper.store(false, Ordering::Relaxed);
        self.changed.notify_all();
    }
}
