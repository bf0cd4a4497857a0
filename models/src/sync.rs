//! Loom's locks with the interface of `parking_lot`.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub use loom::sync::atomic;

/// A mutex without poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// A locked mutex. It is empty while a condition variable has it.
pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>, &'a loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect("loom ends a model at the first panic")), &self.0)
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard(Some(self.0.try_lock().ok()?), &self.0))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("locked")
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let locked = guard.0.take().expect("locked");
        guard.0 = Some(self.0.wait(locked).expect("loom ends a model at the first panic"));
    }

    /// A wait whose time may be over at once, after what the others do next.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) {
        let MutexGuard(locked, mutex) = guard;
        drop(locked.take());
        loom::thread::yield_now();
        *locked = Some(mutex.lock().expect("loom ends a model at the first panic"));
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
