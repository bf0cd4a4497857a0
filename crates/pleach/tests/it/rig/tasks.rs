//! Tasks: what polls futures in tests, without a runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Wakes a thread, and counts the wakes.
pub(crate) struct Unpark(Thread, AtomicU64);

impl Unpark {
    /// Of the calling thread.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(thread::current(), AtomicU64::new(0)))
    }

    pub(crate) fn wakes(&self) -> u64 {
        self.1.load(Ordering::SeqCst)
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// Polls until the future is ready. The thread sleeps in between. Panics if nobody wakes it for 30 s.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unpark = Unpark::new();
    let waker = Waker::from(Arc::clone(&unpark));
    loop {
        let wakes = unpark.wakes();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let begin = Instant::now();
        while unpark.wakes() == wakes {
            assert!(begin.elapsed() < Duration::from_secs(30), "nobody wakes the task");
            thread::park_timeout(Duration::from_secs(1));
        }
    }
}

/// Panics when a read ends, not when the task itself asks to be polled again.
pub(crate) struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("planted by the test"));
    }

    fn wake_by_ref(self: &Arc<Self>) {}
}
