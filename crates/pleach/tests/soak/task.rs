//! Tasks: reads by futures whose answers are checked, and the wakers that they are polled with.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use fastrand::Rng;
use pleach::{Db, Error, ErrorKind, GetFuture, GetManyFuture, RangeChunks, ReadOptions, ReadPolicy};

use crate::history::{History, KEYS, key, number};
use crate::met::{Met, note};

/// A read by a future.
pub(crate) struct Task {
    history: Arc<History>,
    work: Work,
    alarm: Arc<Alarm>,
    polled_by: Option<ThreadId>,
}

/// Keys stand with the version that a read sees at least.
#[expect(clippy::large_enum_variant, reason = "tasks are few")]
enum Work {
    Get(usize, u32, GetFuture),
    Many(Vec<(usize, u32)>, GetManyFuture),
    Chunks(Walk),
}

/// A range that is read by chunks.
struct Walk {
    chunks: RangeChunks,
    is_back: bool,
    entries_max: usize,
    oldest: Vec<u32>,
    /// Keys that were not passed yet.
    left: std::ops::Range<usize>,
}

/// What a task is woken by.
pub(crate) struct Alarm {
    pub(crate) is_rung: AtomicBool,
    met: Arc<Met>,
    habit: Habit,
}

/// What a waker does beside.
#[expect(clippy::large_enum_variant, reason = "tasks are few")]
pub(crate) enum Habit {
    None,
    Panic,
    /// Drops a task, once.
    DropTask(Mutex<Option<Task>>),
    /// Drops its own task, the others, and the last handle of the store.
    DropStore(Mutex<Option<(Vec<Task>, Db)>>),
}

/// What a poll has brought.
pub(crate) enum Polled {
    Pending,
    Ended,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_rung.store(true, Ordering::SeqCst);
        match &self.habit {
            Habit::None => {}
            Habit::Panic => {
                note(&self.met.wakers_that_panicked);
                // Without the panic hook, which would fill the output.
                resume_unwind(Box::new("a waker of the soak"));
            }
            Habit::DropTask(task) => {
                let task = task.lock().unwrap().take();
                if task.is_some() {
                    note(&self.met.wakers_that_dropped_a_task);
                }
            }
            Habit::DropStore(store) => {
                let store = store.lock().unwrap().take();
                if let Some((tasks, db)) = store {
                    drop(tasks);
                    drop(db);
                    note(&self.met.stores_closed_by_a_waker);
                }
            }
        }
    }
}

fn read_options(rng: &mut Rng) -> ReadOptions {
    let policies =
        [ReadPolicy::Auto, ReadPolicy::Serial, ReadPolicy::FixedCount(3), ReadPolicy::PriorityAware];
    let options = ReadOptions::new().policy(policies[rng.usize(..4)]).fill_cache(rng.bool());
    match rng.u8(..8) {
        0 => options.timeout(Duration::ZERO),
        1 => options.timeout(Duration::from_micros(rng.u64(..1_000))),
        2 => options.timeout(Duration::MAX),
        _ => options,
    }
}

impl Task {
    /// A read of any kind.
    pub(crate) fn new(history: &Arc<History>, db: Option<&Db>, met: &Arc<Met>, rng: &mut Rng) -> Self {
        let partition = &history.partition;
        let work = match rng.u8(..4) {
            0 | 1 => {
                let n = rng.usize(..KEYS);
                Work::Get(n, history.oldest(n), partition.get_async_with(key(n), &read_options(rng)))
            }
            2 => {
                let keys = (0..rng.usize(..40)).map(|_| rng.usize(..KEYS));
                let keys: Vec<_> = keys.map(|n| (n, history.oldest(n))).collect();
                let names = keys.iter().map(|(n, _)| key(*n));
                let future = partition.get_many_async_with(names, &read_options(rng));
                Work::Many(keys, future)
            }
            _ => Work::Chunks(Walk::new(history, db, met, rng)),
        };
        let alarm = Arc::new(Alarm::new(Habit::None, met));
        Self { history: Arc::clone(history), work, alarm, polled_by: None }
    }

    /// Polls with a new waker, whose habit is `habit`.
    pub(crate) fn poll(&mut self, habit: Habit, met: &Arc<Met>) -> Polled {
        let thread = thread::current().id();
        if self.polled_by.replace(thread).is_some_and(|before| before != thread) {
            note(&met.moved_to_another_thread);
        }
        self.alarm = Arc::new(Alarm::new(habit, met));
        let waker = Waker::from(Arc::clone(&self.alarm));
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_work(&mut Context::from_waker(&waker), met)));
        match polled {
            Ok(Poll::Pending) => {
                note(&met.waits);
                Polled::Pending
            }
            Ok(Poll::Ready(())) => Polled::Ended,
            // The task's own waker, in the poll: a driver that reads in polls.
            Err(panic) if panic.downcast_ref() == Some(&"a waker of the soak") => Polled::Ended,
            Err(violation) => resume_unwind(violation),
        }
    }

    fn poll_work(&mut self, cx: &mut Context<'_>, met: &Met) -> Poll<()> {
        let history = &self.history;
        let ended = match &mut self.work {
            Work::Get(n, oldest, future) => match Pin::new(future).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer.map(|found| history.check(*n, *oldest, found.as_deref())),
            },
            Work::Many(keys, future) => match Pin::new(future).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answers) => answers.map(|found| {
                    assert_eq!(found.len(), keys.len());
                    for ((n, oldest), found) in keys.iter().zip(found) {
                        history.check(*n, *oldest, found.as_deref());
                    }
                }),
            },
            Work::Chunks(walk) => match walk.poll(history, cx, met) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(ended) => ended,
            },
        };
        match ended {
            Ok(()) => note(&met.answers),
            Err(error) => check_error(history, &error, met),
        }
        Poll::Ready(())
    }

    /// Has a waker drop all tasks of a store and `db`, its last handle.
    pub(crate) fn close_store(mut tasks: Vec<Self>, db: Db, met: &Arc<Met>) {
        while let Some(mut task) = tasks.pop() {
            if let Polled::Ended = task.poll(Habit::DropStore(Mutex::new(None)), met) {
                continue;
            }
            let alarm = Arc::clone(&task.alarm);
            let Habit::DropStore(store) = &alarm.habit else { unreachable!("see above") };
            tasks.push(task);
            *store.lock().unwrap() = Some((tasks, db));
            // When it was woken before, nobody else drops them.
            let left = store.lock().unwrap().take_if(|_| alarm.is_rung.load(Ordering::SeqCst));
            return drop(left);
        }
    }

    /// Whether it is to be polled: it is new, or was woken.
    pub(crate) fn is_due(&self) -> bool {
        self.polled_by.is_none() || self.alarm.is_rung.load(Ordering::SeqCst)
    }
}

/// Reads may fail as the soak lets them.
pub(crate) fn check_error(history: &History, error: &Error, met: &Met) {
    match error.kind() {
        ErrorKind::Closed => {
            let may_be_closed =
                history.is_dropped.load(Ordering::SeqCst) || history.is_closing.load(Ordering::SeqCst);
            assert!(may_be_closed, "{error}");
            note(&met.answers_closed);
        }
        ErrorKind::TimedOut => note(&met.answers_timed_out),
        ErrorKind::Io if error.path().is_some_and(|path| path.extension().is_some_and(|e| e == "sst")) => {
            note(&met.answers_failed);
        }
        _ => panic!("{error:?}"),
    }
}

impl Alarm {
    fn new(habit: Habit, met: &Arc<Met>) -> Self {
        Self { is_rung: AtomicBool::new(false), met: Arc::clone(met), habit }
    }
}

impl Walk {
    fn new(history: &History, db: Option<&Db>, met: &Met, rng: &mut Rng) -> Self {
        let oldest = history.all_oldest();
        let from = rng.usize(..KEYS);
        let to = rng.usize(from..=KEYS);
        let bounds = key(from)..key(to);
        let mut range = match db {
            Some(db) if rng.bool() => {
                note(&met.snapshots_held);
                db.snapshot().range(&history.partition, bounds)
            }
            _ => history.partition.range(bounds),
        };
        if rng.bool() {
            range = range.fill_cache();
        }
        if rng.bool() {
            range = range.expect_entries(rng.u64(..1_000));
        }
        let entries_max = [0, 1, 7, 100, usize::MAX][rng.usize(..5)];
        let is_back = rng.bool();
        let chunks =
            if is_back { range.into_chunks_back(entries_max) } else { range.into_chunks(entries_max) };
        Self { chunks, is_back, entries_max, oldest, left: from..to }
    }

    /// Takes one chunk after the other.
    fn poll(&mut self, history: &History, cx: &mut Context<'_>, met: &Met) -> Poll<Result<(), Error>> {
        loop {
            // The future is dropped after each poll.
            let chunk = match Pin::new(&mut self.chunks.next_chunk()).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(None)) => {
                    self.left.clone().for_each(|n| history.check(n, self.oldest[n], None));
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(Some(chunk))) => chunk,
            };
            note(&met.chunks);
            assert!((1..=self.entries_max.max(1)).contains(&chunk.len()));
            for (key, value) in chunk {
                let n = number(&key);
                assert!(self.left.contains(&n), "{n} is not one of the keys left, {:?}", self.left);
                let passed = if self.is_back { n + 1..self.left.end } else { self.left.start..n };
                passed.for_each(|absent| history.check(absent, self.oldest[absent], None));
                history.check(n, self.oldest[n], Some(&value));
                self.left = if self.is_back { self.left.start..n } else { n + 1..self.left.end };
            }
        }
    }
}
