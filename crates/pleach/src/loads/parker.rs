//! Parker: a thread that waits like a task.

use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use pleach_env::sync::Mutex;
use pleach_env::{Env, Waiter};

/// Puts a thread to sleep until it is woken.
struct Parker {
    /// A lock of its own; nothing else is locked meanwhile.
    is_woken: Mutex<bool>,
    changed: Waiter,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.is_woken.lock() = true;
        self.changed.notify_all();
    }
}

/// Polls until there is an answer, and sleeps in between. `None` after `deadline`, a time of the environment's clock.
pub(crate) fn block_on<T>(
    env: &dyn Env,
    deadline: Option<Duration>,
    mut poll: impl FnMut(&Waker) -> Poll<T>,
) -> Option<T> {
    let parker = Arc::new(Parker { is_woken: Mutex::new(false), changed: env.waiter() });
    let waker = Waker::from(Arc::clone(&parker));
    loop {
        if let Poll::Ready(answer) = poll(&waker) {
            return Some(answer);
        }
        let mut is_woken = parker.is_woken.lock();
        while !*is_woken {
            let Some(deadline) = deadline else {
                parker.changed.wait(&mut is_woken);
                continue;
            };
            let left = deadline.saturating_sub(env.now());
            if left.is_zero() {
                return None;
            }
            parker.changed.wait_for(&mut is_woken, left);
        }
        *is_woken = false;
    }
}
