//! A lock that most holders hold for a fraction of a microsecond, and that some hold for long.
//!
//! Those of the first kind spin for it and do something else if it does not get free ([`QuickMutex::lock_soon`]). Those of the
//! second kind queue in an ordinary lock first ([`QuickMutex::lock`]), so that one of them at most spins, and the others sleep.
//!
//! Leaving it is a plain store. The atomic exchange with which other locks are left waits, on x86, until all stores before it
//! have reached the cache: with a log record just written to fresh memory that took as long as the rest of the put's wait.

#![expect(unsafe_code, reason = "a lock gives out references to what it guards")]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use parking_lot::MutexGuard;

use super::atomic::{AtomicBool, Ordering};
use super::{Mutex, SPIN_ROUNDS, Turnstile};

/// See the module's text.
#[derive(Default)]
pub struct QuickMutex<T> {
    /// Held by those that hold the lock for long, and by the one of them that spins for it.
    long: Mutex<()>,
    is_held: AtomicBool,
    /// Whether a holder of `long` waits: nobody takes the lock before it. Otherwise it would find the lock taken each time
    /// that it wakes up.
    is_wanted: AtomicBool,
    free: Turnstile,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has a guard, and only it has access to the value.
unsafe impl<T: Send> Sync for QuickMutex<T> {}

impl<T> QuickMutex<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self {
            long: Mutex::new(()),
            is_held: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            free: Turnstile::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock, maybe for long.
    #[cfg_attr(feature = "failpoints", track_caller)]
    pub fn lock(&self) -> QuickGuard<'_, T> {
        self.take_for_long(self.long.lock())
    }

    /// Takes the lock, maybe for long, unless somebody has it for long or waits for that.
    pub fn try_lock(&self) -> Option<QuickGuard<'_, T>> {
        self.long.try_lock().map(|long| self.take_for_long(long))
    }

    fn take_for_long<'a>(&'a self, long: MutexGuard<'a, ()>) -> QuickGuard<'a, T> {
        if !self.take() {
            self.is_wanted.store(true, Ordering::Relaxed);
            self.free.wait_until(|| self.take());
            self.is_wanted.store(false, Ordering::Relaxed);
        }
        QuickGuard { mutex: self, _long: Some(long), _value: PhantomData }
    }

    /// Takes the lock if it gets free within a few microseconds. The new holder keeps it for a fraction of a microsecond, and
    /// seldom longer: others spin meanwhile. I/O and waits are for the rare step, as the one that gets a log more space.
    #[inline]
    pub fn lock_soon(&self) -> Option<QuickGuard<'_, T>> {
        for _ in 0..SPIN_ROUNDS {
            if !self.is_wanted.load(Ordering::Relaxed) && self.take() {
                return Some(QuickGuard { mutex: self, _long: None, _value: PhantomData });
            }
            std::hint::spin_loop();
        }
        None
    }

    #[inline]
    fn take(&self) -> bool {
        !self.is_held.load(Ordering::Relaxed)
            && self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// The right to the value of a [`QuickMutex`].
pub struct QuickGuard<'a, T> {
    mutex: &'a QuickMutex<T>,
    _long: Option<MutexGuard<'a, ()>>,
    /// Threads may share a guard only if they may share the value.
    _value: PhantomData<&'a mut T>,
}

impl<T> Deref for QuickGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the only guard is borrowed.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for QuickGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the only guard is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for QuickGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Before `_long` is left, so that the next one there finds the lock free.
        self.mutex.is_held.store(false, Ordering::Release);
        self.mutex.free.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 100_000 };

    #[test]
    fn one_thread_at_a_time_has_the_lock() {
        let mutex = QuickMutex::new((0u64, 0u64));
        let add = |mut guard: QuickGuard<'_, (u64, u64)>| {
            let (first, second) = *guard;
            std::hint::spin_loop();
            *guard = (first + 1, second + 1);
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (mutex, add) = (&mutex, &add);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let soon = if (thread + round) % 16 == 0 { None } else { mutex.lock_soon() };
                        add(soon.unwrap_or_else(|| mutex.lock()));
                    }
                });
            }
        });
        assert_eq!(*mutex.lock(), (4 * ROUNDS, 4 * ROUNDS));
    }
}
