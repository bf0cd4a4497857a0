//! Locks that work with the simulated scheduler.
//!
//! Without the `failpoints` feature these are `parking_lot`'s own types. With it, a thread that holds a simulated
//! machine's baton (see `baton.rs`) never blocks in a lock: it passes the baton on and tries again. So the scheduler can
//! run the lock's owner and detect deadlocks. All other threads take the lock as usual.
//!
//! Use these for every lock that may be held across a call of the environment, a wait, or another lock of this module.

/// The standard library's own. What imports them from here is also compiled with those of `models/`, which tries all orders of
/// threads.
pub use std::sync::{OnceLock, atomic};

#[cfg(not(feature = "failpoints"))]
pub use parking_lot::{Condvar, Mutex, RwLock};

#[cfg(feature = "failpoints")]
pub use simulated::{Condvar, Mutex, RwLock};

mod combiner;
mod gate;
mod own_line;
mod quick;
mod turnstile;

pub use combiner::{Combiner, Pace};
pub use gate::Gate;
pub use own_line::OwnLine;
pub use quick::{QuickGuard, QuickMutex};
pub use turnstile::Turnstile;

/// Rounds of spinning for what another thread is about to do. A round is one `pause`, 10 to 50 ns; all rounds take a few
/// microseconds, about as long as to sleep and to wake up.
pub const SPIN_ROUNDS: u32 = 100;

/// The same for a turn that is about to come: some 20 us, as long as to sleep and to be woken on a processor that has nothing
/// else to do. With a tenth of it two writers were half as fast, because each page fault of one put the other to sleep.
pub const TURN_ROUNDS: u32 = 1000;

/// A point where a simulated machine may switch threads.
#[inline]
#[cfg_attr(feature = "failpoints", track_caller)]
pub(crate) fn point() {
    #[cfg(feature = "failpoints")]
    crate::baton::pass();
}

#[cfg(feature = "failpoints")]
mod simulated {
    use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    use crate::baton;

    /// `parking_lot`'s mutex, known to the simulated scheduler.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        /// An unlocked mutex.
        pub const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        /// Takes the lock.
        #[track_caller]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            baton::take(|| self.0.try_lock()).unwrap_or_else(|| self.0.lock())
        }

        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock()
        }

        /// The value: no other thread can hold the lock.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }

        /// The value.
        pub fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    /// `parking_lot`'s readers-writer lock, known to the simulated scheduler.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(parking_lot::RwLock<T>);

    impl<T> RwLock<T> {
        /// An unlocked lock.
        pub const fn new(value: T) -> Self {
            Self(parking_lot::RwLock::new(value))
        }

        /// Takes the lock together with other readers.
        #[track_caller]
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            baton::take(|| self.0.try_read()).unwrap_or_else(|| self.0.read())
        }

        /// Takes the lock alone.
        #[track_caller]
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            baton::take(|| self.0.try_write()).unwrap_or_else(|| self.0.write())
        }
    }

    /// `parking_lot`'s condition variable, known to the simulated scheduler.
    #[derive(Debug, Default)]
    pub struct Condvar {
        real: parking_lot::Condvar,
        /// Gives the variable an address of its own.
        key: baton::Key,
    }

    impl Condvar {
        /// A variable without waiting threads.
        pub const fn new() -> Self {
            Self { real: parking_lot::Condvar::new(), key: baton::Key::new() }
        }

        /// Releases the lock, waits for a notification, takes the lock again.
        #[track_caller]
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            if !baton::wait(&self.key, guard, None) {
                self.real.wait(guard);
            }
        }

        /// Wakes one of the waiting threads.
        pub fn notify_one(&self) {
            baton::notify(&self.key, 1);
            self.real.notify_one();
        }

        /// Wakes all waiting threads.
        pub fn notify_all(&self) {
            baton::notify(&self.key, usize::MAX);
            self.real.notify_all();
        }
    }
}
