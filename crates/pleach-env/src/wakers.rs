//! Calls of wakers. A waker is the caller's code: it may panic, drop its task, or close the store.
//!
//! # Concurrency
//! A close waits for the threads that wake tasks. So a waker that closes the store must not wait for another close:
//! [`is_in_waker`] tells.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::sync::Mutex;

thread_local! {
    /// Calls of [`run_waker`] that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Wakes a task.
pub fn wake(waker: Waker) {
    run_waker(|| waker.wake());
}

/// Runs a call that wakes tasks or drops wakers, which may drop tasks. Its panic ends here, because other tasks wait too; the
/// panic hook has reported it.
pub fn run_waker(call: impl FnOnce()) {
    DEPTH.set(DEPTH.get() + 1);
    let _reported = catch_unwind(AssertUnwindSafe(call));
    DEPTH.set(DEPTH.get() - 1);
}

/// Whether the calling thread runs a waker.
pub fn is_in_waker() -> bool {
    DEPTH.get() > 0
}

/// The task that waits for a read: that of its last poll.
///
/// A poll sets the task before it looks whether the read has ended, and the end is noted before the task is woken. So a task
/// that does not see the end is woken.
///
/// # Concurrency
/// Its lock is not held while a task is woken or a waker is dropped, because a waker is the caller's code.
#[derive(Default)]
pub struct WaitingTask(Mutex<Option<Waker>>);

impl WaitingTask {
    /// Sets the task. Returns whether there was none.
    pub fn set(&self, waker: &Waker) -> bool {
        let mut task = self.0.lock();
        if task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            return false;
        }
        let before = task.replace(waker.clone());
        drop(task);
        before.is_none()
    }

    /// Wakes the task, if there is one.
    pub fn wake(&self) {
        let task = self.0.lock().take();
        if let Some(task) = task {
            wake(task);
        }
    }

    /// Forgets the task.
    pub fn forget(&self) {
        let task = self.0.lock().take();
        drop(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakers_are_nested_and_may_panic() {
        assert!(!is_in_waker());
        run_waker(|| {
            run_waker(|| std::panic::resume_unwind(Box::new("a waker")));
            assert!(is_in_waker());
        });
        assert!(!is_in_waker());
    }
}
