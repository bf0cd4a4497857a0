//! The loop of one thread: next operation, perform, record.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pleach_command::Interrupt;
use rustix::thread::set_current_timer_slack;

use super::execute::{Tally, execute, touch};
use super::schedule::{Pace, Schedule};
use crate::engine::{Direction, Result, Scan, Session};
use crate::measure::Recorder;
use crate::workload::{Op, OpKind, OpStream};

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
    /// The rate of a schedule; without one, each call starts when the last one has ended.
    pub(super) pace: Option<Pace>,
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

/// Tells others how many operations a thread has performed.
struct Teller<'a> {
    progress: &'a AtomicU64,
    told_ops: u64,
    told_ns: u64,
}

impl Teller<'_> {
    /// Adds the operations since the last time, if they are many or it was long ago.
    fn consider(&mut self, ops: u64, now_ns: u64) {
        if ops - self.told_ops >= OPS_PER_TELL || now_ns - self.told_ns >= TELL_NS {
            self.tell(ops);
            self.told_ns = now_ns;
        }
    }

    fn tell(&mut self, ops: u64) {
        self.progress.fetch_add(ops - self.told_ops, Ordering::Relaxed);
        self.told_ops = ops;
    }
}

/// Performs the stream's operations.
pub(super) fn drive(
    session: &mut dyn Session,
    stream: &mut dyn OpStream,
    recorder: &mut Recorder,
    bounds: Bounds<'_>,
) -> Result<Tally> {
    match bounds.pace {
        None => drive_at_once(session, stream, recorder, bounds),
        Some(pace) => drive_on_schedule(session, stream, recorder, bounds, pace),
    }
}

/// Performs each operation when it is due, or as soon as the ones before it have ended.
fn drive_on_schedule(
    session: &mut dyn Session,
    stream: &mut dyn OpStream,
    recorder: &mut Recorder,
    bounds: Bounds<'_>,
    pace: Pace,
) -> Result<Tally> {
    let (mut tally, mut op) = (Tally::default(), Op::new());
    // If the system refuses, sleepers wake up to 50 us late, which counts as latency.
    let _refused = set_current_timer_slack(NonZeroU64::new(1));
    recorder.begin();
    let start_ns = recorder.now_ns();
    let mut teller = Teller { progress: bounds.progress, told_ops: 0, told_ns: start_ns };
    let mut has_next = bounds.ops > 0 && stream.next(&mut op);
    let schedule = Schedule::new(pace, start_ns, &op);
    while has_next && let Some(due_ns) = schedule.wait(tally.ops, recorder, &bounds) {
        let begin_ns = recorder.now_ns();
        let ops = execute(session, &op, &mut tally)?;
        let end_ns = recorder.now_ns();
        recorder.called(end_ns.saturating_sub(begin_ns));
        recorder.timed(op.kind, due_ns, end_ns, ops);
        teller.consider(tally.ops, end_ns);
        has_next = tally.ops < bounds.ops && stream.next(&mut op);
    }
    if has_next {
        schedule.record_unbegun(tally.ops, &mut op, stream, recorder, &bounds);
    }
    recorder.group(op.kind, recorder.now_ns(), 0);
    teller.tell(tally.ops);
    Ok(tally)
}

/// Performs each operation when the one before has ended. Checks deadline and flags only at timed ones.
fn drive_at_once(
    session: &mut dyn Session,
    stream: &mut dyn OpStream,
    recorder: &mut Recorder,
    bounds: Bounds<'_>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut op = Op::new();
    let mut marked_ops = 0;
    recorder.begin();
    let mut teller = Teller { progress: bounds.progress, told_ops: 0, told_ns: recorder.now_ns() };
    while tally.ops < bounds.ops && stream.next(&mut op) {
        if recorder.is_timed() {
            let begin_ns = recorder.now_ns();
            execute(session, &op, &mut tally)?;
            let end_ns = recorder.now_ns();
            recorder.timed(op.kind, begin_ns, end_ns, tally.ops - marked_ops);
            marked_ops = tally.ops;
            teller.consider(tally.ops, end_ns);
            if bounds.are_over(end_ns) {
                break;
            }
        } else {
            execute(session, &op, &mut tally)?;
        }
    }
    recorder.group(op.kind, recorder.now_ns(), tally.ops - marked_ops);
    teller.tell(tally.ops);
    Ok(tally)
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
