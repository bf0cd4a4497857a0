//! Threads that share a combiner, and a sum that its leaders add to.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::combiner::{Combiner, Pace};
use crate::futex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// How a thread's request is done if the thread leads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum How {
    Quick,
    Slow,
    Panics,
}

/// A request. Its words are atomic in order that loom returns stale values if the combiner allows it.
struct Request {
    /// Set by the thread.
    is_ready: AtomicU64,
    /// Set by the leader.
    is_done: AtomicU64,
}

/// A combiner, and what its leaders have done.
pub struct Rounds {
    combiner: Combiner<Request, u64>,
    /// Requests that were done. Changed without an atomic step, so two leaders at a time lose some.
    done: AtomicU64,
    /// Whether a thread leads. Not loom's, so it adds no orders.
    leads: AtomicBool,
    /// Requests in the largest group of all orders.
    largest: Arc<AtomicUsize>,
}

impl Rounds {
    pub fn new(largest: &Arc<AtomicUsize>) -> Self {
        futex::begin();
        Self {
            combiner: Combiner::default(),
            done: AtomicU64::new(0),
            leads: AtomicBool::new(false),
            largest: Arc::clone(largest),
        }
    }

    /// Has a request done. Returns whether it was; not behind a panic.
    pub fn submit(&self, how: How) -> bool {
        let request = Request { is_ready: AtomicU64::new(0), is_done: AtomicU64::new(0) };
        request.is_ready.store(1, Ordering::Relaxed);
        let submitted =
            catch_unwind(AssertUnwindSafe(|| self.combiner.submit(request, |group| self.lead(group, how))));
        let Ok((request, outcome)) = submitted else {
            assert!(how == How::Panics, "a panic reaches another thread");
            return false;
        };
        let Some(done) = outcome else { return false };
        assert_eq!(request.is_done.load(Ordering::Relaxed), 1, "a request was not done");
        assert!(self.done.load(Ordering::Relaxed) >= done, "the thread misses what its leader has done");
        true
    }

    fn lead(&self, group: &[&Request], how: How) -> (u64, Pace) {
        assert!(!self.leads.swap(true, Ordering::SeqCst), "two leaders");
        self.largest.fetch_max(group.len(), Ordering::Relaxed);
        if how == How::Panics {
            self.leads.store(false, Ordering::SeqCst);
            // Without the hook that prints a message.
            resume_unwind(Box::new("a leader panics"));
        }
        for request in group {
            assert_eq!(request.is_ready.load(Ordering::Relaxed), 1, "a request is not ready");
            assert_eq!(request.is_done.load(Ordering::Relaxed), 0, "a request is done twice");
            request.is_done.store(1, Ordering::Relaxed);
        }
        let done = self.done.load(Ordering::Relaxed) + group.len() as u64;
        self.done.store(done, Ordering::Relaxed);
        self.leads.store(false, Ordering::SeqCst);
        (done, if how == How::Slow { Pace::Slow } else { Pace::Quick })
    }

    /// Requests that were done. Requires: no other thread submits.
    pub fn done(&self) -> u64 {
        assert!(self.submit(How::Quick), "no thread can lead any more");
        self.done.load(Ordering::Relaxed) - 1
    }
}
