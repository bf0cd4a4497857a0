//! Writers that commit in groups, and a log that counts what leaders have written to it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::commit::CommitQueue;
use crate::futex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// How a thread writes.
#[derive(Clone, Copy, Default)]
pub struct Write {
    /// Bytes of the batch.
    pub cost: usize,
    /// Whether it waits for the device.
    pub is_slow: bool,
    /// Whether the thread panics if it leads.
    pub panics: bool,
}

/// A batch. Its words are atomic in order that loom returns stale values if the queue allows it.
struct Request {
    write: Write,
    /// Set by the writer.
    is_ready: AtomicU64,
    /// Its place in the log, from 1 on, or 0. Set by the leader.
    place: AtomicU64,
}

/// A queue, and the log.
pub struct GroupCommit {
    queue: CommitQueue<Request>,
    /// Batches that were logged. Changed without an atomic step, so two leaders at a time lose some.
    log: AtomicU64,
    /// Whether a thread leads. Not loom's, so it adds no orders.
    leads: AtomicBool,
    /// Batches in the largest group of all orders.
    largest: Arc<AtomicUsize>,
}

impl GroupCommit {
    pub fn new(largest: &Arc<AtomicUsize>) -> Self {
        futex::begin();
        Self {
            queue: CommitQueue::new(|request: &Request| request.write.cost, |request| request.write.is_slow),
            log: AtomicU64::new(0),
            leads: AtomicBool::new(false),
            largest: Arc::clone(largest),
        }
    }

    /// Writes a batch. Returns its place in the log, or 0 if a leader has panicked.
    pub fn write(&self, write: Write) -> u64 {
        let request = Request { write, is_ready: AtomicU64::new(0), place: AtomicU64::new(0) };
        request.is_ready.store(1, Ordering::Relaxed);
        let done = catch_unwind(AssertUnwindSafe(|| {
            self.queue.submit(request, |group| self.lead(group, write.panics))
        }));
        let Ok(done) = done else {
            assert!(write.panics, "a panic reaches another thread");
            return 0;
        };
        let place = done.place.load(Ordering::Relaxed);
        if place == 0 {
            assert!(self.queue.is_poisoned(), "a batch was not written");
        } else {
            assert!(self.log.load(Ordering::Relaxed) >= place, "the writer misses what its leader has done");
        }
        place
    }

    fn lead(&self, group: &mut [Request], panics: bool) {
        assert!(!self.leads.swap(true, Ordering::SeqCst), "two leaders");
        self.largest.fetch_max(group.len(), Ordering::Relaxed);
        let mut end = self.log.load(Ordering::Relaxed);
        for request in &mut *group {
            assert_eq!(request.is_ready.load(Ordering::Relaxed), 1, "a batch is not ready");
            assert_eq!(request.place.load(Ordering::Relaxed), 0, "a batch is written twice");
            end += 1;
            request.place.store(end, Ordering::Relaxed);
        }
        self.log.store(end, Ordering::Relaxed);
        self.leads.store(false, Ordering::SeqCst);
        if panics {
            // Without the hook that prints a message.
            resume_unwind(Box::new("a leader panics"));
        }
    }

    /// When all have written: so many batches are in the log, and a thread can lead unless a leader has panicked.
    pub fn check_end(&self, batches: u64) {
        let is_poisoned = self.queue.is_poisoned();
        let place = self.write(Write::default());
        if is_poisoned {
            assert_eq!(place, 0, "a batch was written behind a panic");
        } else {
            assert_eq!(place, batches + 1, "batches are missing in the log");
        }
    }
}
