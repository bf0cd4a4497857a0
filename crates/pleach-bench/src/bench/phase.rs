//! A phase: several threads perform their streams at the same time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pleach_command::Interrupt;

use super::drive::{Bounds, drive, drive_scans};
use super::execute::Tally;
use super::in_flight::drive_futures;
use super::schedule::Pace;
use crate::engine::{Direction, Engine, Result};
use crate::measure::{Recorder, Stopwatch};
use crate::workload::OpStream;

/// What each thread does.
pub(super) enum Work {
    Ops(Box<dyn OpStream>),
    /// Gets and scans, so many in flight at a time.
    Futures(Box<dyn OpStream>, usize),
    ScanAll(Direction),
}

/// The work of a phase.
pub(super) struct Phase<'a> {
    pub(super) engine: &'a dyn Engine,
    /// One for each thread.
    pub(super) work: Vec<Work>,
    /// Operations of all threads together.
    pub(super) ops: u64,
    pub(super) duration_s: Option<f64>,
    /// Operations a second of all threads together.
    pub(super) rate: Option<f64>,
    /// One more thread, which goes on until the others have ended: at its own rate, or without a pause.
    pub(super) beside: Option<(Box<dyn OpStream>, Option<f64>)>,
    /// A task that is done over and over until the threads have ended.
    pub(super) meanwhile: Option<Repeated<'a>>,
    /// A task that begins with the threads. When it ends, they end.
    pub(super) until: Option<Task<'a>>,
    pub(super) timing_cost_ns: f64,
    pub(super) interrupt: &'a Interrupt,
    pub(super) progress: &'a AtomicU64,
}

/// A task that is neither a stream nor timed.
pub(super) type Task<'a> = Box<dyn FnOnce() -> Result<()> + Send + 'a>;

/// A task that is done more than once.
pub(super) type Repeated<'a> = Box<dyn FnMut() -> Result<()> + Send + 'a>;

/// The result of a phase.
pub(super) struct Outcome {
    pub(super) recorder: Recorder,
    pub(super) tally: Tally,
    pub(super) seconds: f64,
    /// Of the additional thread.
    pub(super) beside: Option<(Recorder, Tally)>,
    /// How often the repeated task has ended.
    pub(super) repeated: u64,
}

impl Outcome {
    /// Adds a phase that came after this one. Its operations over time begin where these end.
    pub(super) fn follow_with(&mut self, next: &Self) {
        self.recorder.follow_with(&next.recorder);
        self.tally.join(next.tally);
        self.seconds += next.seconds;
    }
}

struct ThreadOutcome {
    recorder: Recorder,
    tally: Tally,
    begin_ns: u64,
    end_ns: u64,
}

impl Phase<'_> {
    /// Runs all threads to their end. The first error stops them all, and so does an interrupt, which is an error.
    pub(super) fn run(self) -> Result<Outcome> {
        let stopwatch = Stopwatch::start();
        let stop_beside = AtomicBool::new(false);
        let stop = AtomicBool::new(false);
        let barrier = Barrier::new(
            self.work.len()
                + usize::from(self.beside.is_some())
                + usize::from(self.meanwhile.is_some())
                + usize::from(self.until.is_some()),
        );
        let threads = self.work.len() as u64;
        let unwatched = AtomicU64::new(0);
        let timing = Timing { stopwatch: &stopwatch, barrier: &barrier, cost_ns: self.timing_cost_ns };
        let deadline_ns = self.duration_s.map_or(u64::MAX, |seconds| (seconds * 1e9) as u64);
        std::thread::scope(|scope| {
            let beside = self.beside.map(|(stream, rate)| {
                let bounds = Bounds {
                    ops: u64::MAX,
                    deadline_ns: u64::MAX,
                    pace: rate.map(|rate| Pace::new(rate, 0, 1)),
                    stop: &stop_beside,
                    interrupt: self.interrupt,
                    progress: &unwatched,
                };
                let engine = self.engine;
                scope.spawn(move || timing.thread(engine, Work::Ops(stream), bounds))
            });
            let (barrier, stop, stop_beside) = (&barrier, &stop, &stop_beside);
            let meanwhile = self.meanwhile.map(|mut task| {
                scope.spawn(move || {
                    barrier.wait();
                    let mut repeated = 0;
                    while !stop_beside.load(Ordering::Relaxed) {
                        // An error ends the phase.
                        task().inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                        repeated += u64::from(!stop_beside.load(Ordering::Relaxed));
                    }
                    Ok(repeated)
                })
            });
            let until = self.until.map(|task| {
                scope.spawn(move || {
                    barrier.wait();
                    let done = task();
                    stop.store(true, Ordering::Relaxed);
                    done
                })
            });
            let numbered = (0..).zip(self.work);
            let workers: Vec<_> = numbered
                .map(|(number, work)| {
                    let bounds = Bounds {
                        ops: self.ops / threads + u64::from(number < self.ops % threads),
                        deadline_ns,
                        pace: self.rate.map(|rate| Pace::new(rate, number, threads)),
                        stop,
                        interrupt: self.interrupt,
                        progress: self.progress,
                    };
                    let engine = self.engine;
                    scope.spawn(move || timing.thread(engine, work, bounds))
                })
                .collect();
            let outcomes: Vec<Result<ThreadOutcome>> = workers.into_iter().map(joined).collect();
            stop_beside.store(true, Ordering::Relaxed);
            let beside = beside.map(joined).transpose()?;
            until.map(joined).transpose()?;
            let repeated = meanwhile.map(joined).transpose()?.unwrap_or(0);
            let outcomes: Vec<ThreadOutcome> = outcomes.into_iter().collect::<Result<_>>()?;
            self.interrupt.check()?;
            Ok(Outcome { repeated, ..together(outcomes, beside) })
        })
    }
}

/// The clock and flags that all threads share.
#[derive(Clone, Copy)]
struct Timing<'a> {
    stopwatch: &'a Stopwatch,
    barrier: &'a Barrier,
    cost_ns: f64,
}

impl Timing<'_> {
    fn thread(self, engine: &dyn Engine, work: Work, bounds: Bounds<'_>) -> Result<ThreadOutcome> {
        let scheduled = bounds.pace.is_some();
        let mut recorder = Recorder::new(self.stopwatch.clone(), self.cost_ns, scheduled);
        let session = engine.session();
        // Before anything that can fail: otherwise the other threads would wait forever.
        self.barrier.wait();
        let begin_ns = self.stopwatch.now_ns();
        let done = session.and_then(|mut session| match work {
            Work::Ops(mut stream) => drive(&mut *session, &mut *stream, &mut recorder, bounds),
            Work::Futures(mut stream, depth) => {
                drive_futures(engine, &mut *stream, depth, &mut recorder, bounds)
            }
            Work::ScanAll(direction) => drive_scans(&mut *session, direction, &mut recorder, bounds),
        });
        if done.is_err() {
            bounds.stop.store(true, Ordering::Relaxed);
        }
        Ok(ThreadOutcome { tally: done?, begin_ns, end_ns: self.stopwatch.now_ns(), recorder })
    }
}

fn joined<T>(handle: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn together(outcomes: Vec<ThreadOutcome>, beside: Option<ThreadOutcome>) -> Outcome {
    let begin_ns = outcomes.iter().map(|outcome| outcome.begin_ns).min().unwrap_or(0);
    let end_ns = outcomes.iter().map(|outcome| outcome.end_ns).max().unwrap_or(0);
    let mut outcomes = outcomes.into_iter();
    let first = outcomes.next().expect("there is at least one thread");
    let (mut recorder, mut tally) = (first.recorder, first.tally);
    for outcome in outcomes {
        recorder.join(&outcome.recorder);
        tally.join(outcome.tally);
    }
    Outcome {
        recorder,
        tally,
        seconds: (end_ns - begin_ns).max(1) as f64 / 1e9,
        beside: beside.map(|outcome| (outcome.recorder, outcome.tally)),
        repeated: 0,
    }
}
