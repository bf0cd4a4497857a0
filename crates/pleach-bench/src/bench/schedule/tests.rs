//! Threads at a fixed rate on a session that stalls.

use std::sync::atomic::{AtomicBool, AtomicU64};

use pleach_command::Interrupt;

use super::super::drive::drive;
use super::super::execute::Tally;
use super::*;
use crate::engine::{Result, Scan, Session};
use crate::measure::Stopwatch;
use crate::workload::OpKind;

/// Gets without an end.
struct Gets;

impl OpStream for Gets {
    fn next(&mut self, op: &mut Op) -> bool {
        op.kind = OpKind::Get;
        true
    }
}

/// Finds nothing, and needs so long for the get with a certain number.
struct Stalling {
    gets: u64,
    slow: u64,
    stall: Duration,
}

impl Session for Stalling {
    fn put(&mut self, _partition: usize, _key: &[u8], _value: &[u8]) -> Result<()> {
        Ok(())
    }

    fn delete(&mut self, _partition: usize, _key: &[u8]) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, _partition: usize, _key: &[u8], _read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.gets += 1;
        if self.gets == self.slow {
            std::thread::sleep(self.stall);
        }
        Ok(false)
    }

    fn scan(&mut self, _scan: &Scan<'_>, _visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        Ok(())
    }
}

const MS: u64 = 1_000_000;

/// Performs at most `ops` gets, one in each interval, until the deadline.
fn paced(interval_ms: u64, deadline_ms: u64, ops: u64, session: &mut Stalling) -> (Recorder, Tally) {
    let mut recorder = Recorder::new(Stopwatch::start(), 0.0, true);
    let bounds = Bounds {
        ops,
        deadline_ns: deadline_ms * MS,
        pace: Some(Pace { interval_ns: (interval_ms * MS) as f64, offset: 0.0 }),
        stop: &AtomicBool::new(false),
        interrupt: &Interrupt::default(),
        progress: &AtomicU64::new(0),
    };
    let tally = drive(session, &mut Gets, &mut recorder, bounds).expect("the session never fails");
    (recorder, tally)
}

#[test]
fn operations_that_a_stall_at_the_end_cuts_off_count_with_their_wait() {
    let mut session = Stalling { gets: 0, slow: 100, stall: Duration::from_millis(300) };
    let (recorder, tally) = paced(1, 300, u64::MAX, &mut session);
    let all = recorder.all_kinds();
    assert_eq!(tally.ops, 100);
    assert!((290..=300).contains(&all.len()), "{}", all.len());
    // The stall ends at 400 ms or later: what was due at 300 ms has waited for 100 ms.
    assert!(all.count_between(90 * MS, u64::MAX) >= 190, "{}", all.count_between(90 * MS, u64::MAX));
    // None is missing where the number of operations is the limit.
    let mut session = Stalling { gets: 0, slow: 10, stall: Duration::from_millis(100) };
    let (recorder, tally) = paced(1, 60_000, 120, &mut session);
    assert_eq!((tally.ops, recorder.all_kinds().len()), (120, 120));
    // Nor more than that number.
    let mut session = Stalling { gets: 0, slow: 10, stall: Duration::from_millis(100) };
    let (recorder, tally) = paced(1, 90, 50, &mut session);
    assert_eq!((tally.ops, recorder.all_kinds().len()), (10, 50));
}

#[test]
fn a_wait_ends_with_the_time() {
    let mut session = Stalling { gets: 0, slow: 0, stall: Duration::ZERO };
    let stopwatch = Stopwatch::start();
    let (recorder, tally) = paced(20_000, 200, u64::MAX, &mut session);
    assert_eq!((tally.ops, recorder.all_kinds().len()), (1, 1));
    assert!((200 * MS..10_000 * MS).contains(&stopwatch.now_ns()), "{}", stopwatch.now_ns());
}

#[test]
fn many_unbegun_operations_are_counted_in_little_time() {
    let mut recorder = Recorder::new(Stopwatch::start(), 0.0, true);
    let bounds = Bounds {
        ops: 1 << 40,
        deadline_ns: 1,
        pace: None,
        stop: &AtomicBool::new(false),
        interrupt: &Interrupt::default(),
        progress: &AtomicU64::new(0),
    };
    let schedule = Schedule { first_ns: 0.0, interval_ns: 1.0 / (1_u64 << 32) as f64 };
    schedule.record_unbegun(0, &mut Op::new(), &mut Gets, &mut recorder, &bounds);
    let counted = recorder.all_kinds().len();
    assert_eq!(counted, 1 << 32);
}

#[test]
fn calls_on_many_keys_are_due_by_their_operations() {
    let mut op = Op::new();
    op.entries_mut(32);
    op.kind = OpKind::GetMany;
    let pace = |offset| Pace { interval_ns: 100.0, offset };
    let dues = |schedule: Schedule| [0, 32, 64].map(|ops| schedule.due_ns(ops));
    assert_eq!(dues(Schedule::new(pace(0.0), 1000, &op)), [1000, 4200, 7400]);
    // Threads take turns between two calls of one.
    assert_eq!(dues(Schedule::new(pace(0.5), 1000, &op)), [2600, 5800, 9000]);
}
