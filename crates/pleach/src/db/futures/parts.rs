//! Parts of a task: several things that one task waits for, each with a waker of its own.
//!
//! The task learns which of its parts were woken, so a poll need not look at all of them.
//!
//! # Concurrency
//! `state` is locked for a moment, and not while a task is woken, because a waker is the caller's code.

use std::sync::Arc;
use std::task::{Wake, Waker};

use pleach_env::sync::Mutex;

/// Parts of one task at most: as many as a set of bits has.
pub(super) const PARTS_MAX: usize = u128::BITS as usize;

/// See the module's text.
#[derive(Default)]
pub(super) struct Parts {
    state: Arc<Mutex<State>>,
    wakers: Vec<Waker>,
}

#[derive(Default)]
struct State {
    /// One bit for each part that was woken since the last poll.
    woken: u128,
    /// Absent since the task was woken: until its next poll it need not be woken again.
    task: Option<Waker>,
}

struct Part {
    state: Arc<Mutex<State>>,
    bit: u128,
}

impl Parts {
    /// The parts that were woken since the last call. From now on those that are woken wake the task.
    pub(super) fn take_woken(&mut self, task: &Waker) -> impl Iterator<Item = usize> + use<> {
        let task = task.clone();
        let mut state = self.state.lock();
        let before = state.task.replace(task);
        let mut woken = std::mem::take(&mut state.woken);
        drop(state);
        drop(before);
        std::iter::from_fn(move || {
            let number = woken.trailing_zeros();
            woken &= woken.wrapping_sub(1);
            (number < u128::BITS).then_some(number as usize)
        })
    }

    /// The waker of a part.
    ///
    /// Requires: `number` is less than [`PARTS_MAX`].
    pub(super) fn waker(&mut self, number: usize) -> &Waker {
        for number in self.wakers.len()..=number {
            let part = Part { state: Arc::clone(&self.state), bit: 1 << number };
            self.wakers.push(Waker::from(Arc::new(part)));
        }
        &self.wakers[number]
    }
}

impl Wake for Part {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.woken |= self.bit;
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_is_woken_once_for_all_parts_that_are_woken_before_its_poll() {
        let count = Arc::new(Count::default());
        let wakes = || count.0.load(Ordering::Relaxed);
        let task = Waker::from(Arc::clone(&count));
        let mut parts = Parts::default();
        let kept: Vec<Waker> = (0..PARTS_MAX).map(|number| parts.waker(number).clone()).collect();
        assert_eq!(parts.take_woken(&task).count(), 0);
        for number in [127, 0, 5, 5] {
            kept[number].wake_by_ref();
        }
        assert_eq!(wakes(), 1);
        assert!(parts.take_woken(&task).eq([0, 5, 127]));
        assert_eq!(parts.take_woken(&task).count(), 0);
        kept[1].wake_by_ref();
        assert_eq!(wakes(), 2);
        assert!(parts.take_woken(Waker::noop()).eq([1]));
        kept[2].wake_by_ref();
        assert_eq!(wakes(), 2, "the task of the last poll is woken");
        drop((parts, kept, task));
        assert!(Arc::into_inner(count).is_some());
    }
}
