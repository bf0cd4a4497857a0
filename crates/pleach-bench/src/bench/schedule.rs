//! Schedule: when the operations of a thread are due at a fixed rate, whether the engine keeps up or not.
//!
//! Latencies count from the time at which an operation was due. So an operation that the end of the time has cut off counts
//! too, with its wait until then: otherwise a stall at the end would be missing from the figures.

use std::time::Duration;

use super::drive::Bounds;
use crate::measure::Recorder;
use crate::workload::{Op, OpStream};

/// A shorter wait polls the clock: even with the smallest timer slack the system wakes sleepers about this late.
const SPIN_NS: u64 = 30_000;
/// Longest sleep between two looks at the flags that stop a thread (arbitrary).
const SLEEP_MAX_NS: u64 = 50_000_000;
/// Most operations that are drawn only to tell how long they have waited (arbitrary, below a second). If there are more,
/// each stands for several.
const UNBEGUN_MAX: u64 = 1 << 20;

/// The rate of a thread.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Nanoseconds between two operations. A call on many keys is as many operations.
    pub(super) interval_ns: f64,
    /// When the first call is due, as a share of the time between two calls. Threads with different shares do not call at the
    /// same time.
    pub(super) offset: f64,
}

impl Pace {
    /// The pace of one of `threads` threads that together perform `rate` operations a second.
    pub(super) fn new(rate: f64, thread: u64, threads: u64) -> Self {
        Self { interval_ns: 1e9 * threads as f64 / rate, offset: thread as f64 / threads as f64 }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Schedule {
    first_ns: f64,
    interval_ns: f64,
}

impl Schedule {
    /// The schedule of a thread that starts now, with `first` as its first call.
    pub(super) fn new(pace: Pace, now_ns: u64, first: &Op) -> Self {
        let Pace { interval_ns, offset } = pace;
        Self { first_ns: now_ns as f64 + offset * interval_ns * first.ops() as f64, interval_ns }
    }

    /// When the call is due that follows `ops` operations.
    pub(super) fn due_ns(&self, ops: u64) -> u64 {
        (self.first_ns + ops as f64 * self.interval_ns) as u64
    }

    /// Waits for that time and returns it, also if it is past. `None` if the thread has to stop before.
    pub(super) fn wait(&self, ops: u64, recorder: &Recorder, bounds: &Bounds<'_>) -> Option<u64> {
        let due_ns = self.due_ns(ops);
        loop {
            let now_ns = recorder.now_ns();
            if bounds.are_over(now_ns) {
                return None;
            }
            let left_ns = due_ns.min(bounds.deadline_ns).saturating_sub(now_ns);
            if left_ns == 0 {
                return Some(due_ns);
            }
            if left_ns > SPIN_NS {
                std::thread::sleep(Duration::from_nanos((left_ns - SPIN_NS).min(SLEEP_MAX_NS)));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// The thread stops: records how long those calls have waited that were due and have not begun. `op` is the next one, and
    /// follows `ops` operations.
    pub(super) fn record_unbegun(
        &self,
        mut ops: u64,
        op: &mut Op,
        stream: &mut dyn OpStream,
        recorder: &mut Recorder,
        bounds: &Bounds<'_>,
    ) {
        let now_ns = recorder.now_ns();
        let over_ns = now_ns.min(bounds.deadline_ns) as f64;
        let due_ops = ((over_ns - self.first_ns) / self.interval_ns).ceil().max(0.0) as u64;
        let due_ops = due_ops.min(bounds.ops);
        let calls = due_ops.saturating_sub(ops).div_ceil(op.ops());
        let stands_for = calls.div_ceil(UNBEGUN_MAX).max(1);
        while ops < due_ops {
            recorder.waited(op.kind, now_ns.saturating_sub(self.due_ns(ops)), stands_for);
            ops += op.ops() * stands_for;
            if !stream.next(op) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
