//! The loop of one thread: next operation, perform, record.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pleach_command::Interrupt;
use rustix::thread::set_current_timer_slack;

use super::execute::{Tally, execute, touch};
use crate::engine::{Direction, Result, Scan, Session};
use crate::measure::Recorder;
use crate::workload::{Op, OpKind, OpStream};

/// A shorter wait polls the clock: even with the smallest timer slack the system wakes sleepers about this late.
const SPIN_NS: u64 = 30_000;
/// How often a thread adds to the shared count of operations: rarely enough to avoid contention.
const OPS_PER_TELL: u64 = 1024;
const TELL_NS: u64 = 50_000_000;
/// Steps of a full scan between two checks of the clock.
const STEPS_PER_MARK: u64 = 64;

/// When a thread stops, and how fast it may go.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'a> {
    /// Operations after which it stops.
    pub(super) ops: u64,
    /// Time at which it stops.
    pub(super) deadline_ns: u64,
    /// Nanoseconds between two scheduled starts; none starts at once.
    pub(super) interval_ns: Option<f64>,
    /// Set by another thread to stop it.
    pub(super) stop: &'a AtomicBool,
    pub(super) interrupt: &'a Interrupt,
    /// Operations of all threads, for progress.
    pub(super) progress: &'a AtomicU64,
}

impl Bounds<'_> {
    /// Whether the thread must stop now.
    #[inline]
    pub(super) fn are_over(&self, now_ns: u64) -> bool {
        now_ns >= self.deadline_ns || self.stop.load(Ordering::Relaxed) || self.interrupt.is_asked()
    }
}

/// Performs the stream's operations. Checks deadline and flags only at timed ones.
pub(super) fn drive(
    session: &mut dyn Session,
    stream: &mut dyn OpStream,
    recorder: &mut Recorder,
    bounds: Bounds<'_>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut op = Op::new();
    let (mut calls, mut marked_ops) = (0_u64, 0);
    if bounds.interval_ns.is_some() {
        // If the system refuses, sleepers wake up to 50 us late, which counts as latency.
        let _refused = set_current_timer_slack(NonZeroU64::new(1));
    }
    recorder.begin();
    let start_ns = recorder.now_ns();
    let (mut told_ops, mut told_ns) = (0, start_ns);
    while tally.ops < bounds.ops && stream.next(&mut op) {
        if recorder.is_timed() {
            let begin_ns = match bounds.interval_ns {
                None => recorder.now_ns(),
                Some(interval_ns) => wait_until(recorder, start_ns + (calls as f64 * interval_ns) as u64),
            };
            let call_ns = bounds.interval_ns.map(|_| recorder.now_ns());
            execute(session, &op, &mut tally)?;
            let end_ns = recorder.now_ns();
            if let Some(call_ns) = call_ns {
                recorder.called(end_ns.saturating_sub(call_ns));
            }
            recorder.timed(op.kind, begin_ns, end_ns, tally.ops - marked_ops);
            marked_ops = tally.ops;
            if tally.ops - told_ops >= OPS_PER_TELL || end_ns - told_ns >= TELL_NS {
                bounds.progress.fetch_add(tally.ops - told_ops, Ordering::Relaxed);
                (told_ops, told_ns) = (tally.ops, end_ns);
            }
            if bounds.are_over(end_ns) {
                break;
            }
        } else {
            execute(session, &op, &mut tally)?;
        }
        calls += 1;
    }
    recorder.group(op.kind, recorder.now_ns(), tally.ops - marked_ops);
    bounds.progress.fetch_add(tally.ops - told_ops, Ordering::Relaxed);
    Ok(tally)
}

/// Waits for the scheduled start and returns it, also if it is late.
fn wait_until(recorder: &Recorder, due_ns: u64) -> u64 {
    loop {
        let left_ns = due_ns.saturating_sub(recorder.now_ns());
        if left_ns == 0 {
            return due_ns;
        }
        if left_ns > SPIN_NS {
            std::thread::sleep(Duration::from_nanos(left_ns - SPIN_NS));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Scans partition 0 from end to end, again and again. Each entry must lie beyond the one before.
pub(super) fn drive_scans(
    session: &mut dyn Session,
    direction: Direction,
    recorder: &mut Recorder,
    bounds: Bounds<'_>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut marked_ops = 0;
    let mut last: Vec<u8> = Vec::new();
    recorder.begin();
    while tally.ops < bounds.ops && !bounds.are_over(recorder.now_ns()) {
        let scan = Scan { partition: 0, from: None, direction, limit: usize::MAX };
        let ops_before = tally.ops;
        last.clear();
        session.scan(&scan, &mut |key, value| {
            let in_order = last.is_empty() || (direction == Direction::Forward) == (key > &last[..]);
            tally.wrong += u64::from(!in_order);
            last.clear();
            last.extend_from_slice(key);
            touch(value);
            tally.ops += 1;
            tally.found += 1;
            tally.read_bytes += (key.len() + value.len()) as u64;
            if tally.ops - marked_ops == STEPS_PER_MARK {
                let now_ns = recorder.now_ns();
                recorder.group(OpKind::Next, now_ns, STEPS_PER_MARK);
                bounds.progress.fetch_add(STEPS_PER_MARK, Ordering::Relaxed);
                marked_ops = tally.ops;
                return !bounds.are_over(now_ns) && tally.ops < bounds.ops;
            }
            tally.ops < bounds.ops
        })?;
        if tally.ops == ops_before {
            return Err("a scan through everything found nothing".into());
        }
    }
    recorder.group(OpKind::Next, recorder.now_ns(), tally.ops - marked_ops);
    Ok(tally)
}
