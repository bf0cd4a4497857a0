//! Loom's locks with the interface of `parking_lot`, and what else the engine's files import from `pleach_env::sync`.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

use atomic::{AtomicBool, Ordering};
pub use loom::sync::atomic;

pub(crate) use crate::SPIN_ROUNDS;
pub use crate::gates::Gate;

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
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)), &self.0)
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
        guard.0 = Some(self.0.wait(locked).unwrap_or_else(PoisonError::into_inner));
    }

    /// A wait whose time may be over at once, after what the others do next.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) {
        let MutexGuard(locked, mutex) = guard;
        drop(locked.take());
        loom::thread::yield_now();
        *locked = Some(mutex.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A cell that one thread sets. A thread that is not ordered behind it may still find the cell empty.
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: AtomicBool,
}

impl<T> OnceLock<T> {
    #[expect(clippy::new_without_default, reason = "as the engine's files make it")]
    pub fn new() -> Self {
        Self { value: std::sync::OnceLock::new(), is_set: AtomicBool::new(false) }
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }

    pub fn get(&self) -> Option<&T> {
        self.is_set.load(Ordering::Acquire).then(|| self.value.get())?
    }
}
