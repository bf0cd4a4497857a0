//! One round: a store, threads that read by futures, and a thread that changes what they read.

use std::mem::take;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use pleach::{Db, Error, ErrorKind, Options, ReadDriver, ReadOptions, Shape};

use crate::drivers::ReadBy;
use crate::history::{History, KEYS, Versions, key};
use crate::met::{Met, note};
use crate::struck::StruckEnv;
use crate::task::{Habit, Polled, Task, check_error};
use crate::{PATIENCE, wait_until};

/// Threads that poll.
const EXECUTORS: u64 = 3;

/// Tasks that wait at the same time at most.
const TASKS_MAX: usize = 300;

/// Rounds whose stores futures keep for ever: each takes a few mebibytes.
const FORGOTTEN_MAX: usize = 40;

/// How a round ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Drained,
    Closed,
    ClosedByWaker,
}

/// Ends the executors, also when the thread that made them panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// See the module's text.
pub(crate) struct Round {
    env: Arc<StruckEnv>,
    db: Db,
    seed: u64,
    met: Arc<Met>,
    /// The default partition, and others, which come and go.
    histories: Mutex<Vec<Arc<History>>>,
    tasks: Mutex<Vec<Task>>,
    /// Tasks that nobody polls or drops before the store is closed.
    forgotten: Mutex<Vec<Task>>,
    is_over: AtomicBool,
}

impl Round {
    pub(crate) fn open(
        dir: &Path,
        driver: ReadDriver,
        seed: u64,
        met: &Arc<Met>,
        versions: &Arc<Versions>,
    ) -> Self {
        let env = Arc::new(StruckEnv::new());
        let options = Options::new()
            .memory(1 << 20)
            .memtable_bytes(256 << 10)
            .shape(Shape::Forest)
            .runs_per_stage(4)
            .filter_bits_per_key(if seed.is_multiple_of(4) { 0.0 } else { 10.0 })
            .direct_reads(Rng::with_seed(seed).bool())
            .read_by(driver)
            .env(Arc::<StruckEnv>::clone(&env));
        let mut db = None;
        wait_until("the store of the round before is open", || {
            match options.clone().open(dir) {
                Ok(opened) => db = Some(opened),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
            }
            db.is_some()
        });
        let db = db.unwrap();
        if db.stats().read_driver == ReadDriver::Ring {
            note(&met.ring_rounds);
        }
        let default = Arc::new(History::new(db.default_partition(), versions));
        for n in 0..KEYS {
            default.check(n, default.oldest(n), db.default_partition().get(key(n)).unwrap().as_deref());
        }
        Self {
            env,
            db,
            seed,
            met: Arc::clone(met),
            histories: Mutex::new(vec![default]),
            tasks: Mutex::default(),
            forgotten: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn run(self, ending: Ending) {
        thread::scope(|scope| {
            for number in 0..EXECUTORS {
                let rng = Rng::with_seed(self.seed.wrapping_mul(EXECUTORS).wrapping_add(number));
                let this = &self;
                scope.spawn(move || this.execute(rng));
            }
            let _over = Over(&self.is_over);
            self.change(&mut Rng::with_seed(!self.seed));
            if let Ending::Closed = ending {
                self.histories
                    .lock()
                    .unwrap()
                    .iter()
                    .for_each(|h| h.is_closing.store(true, Ordering::SeqCst));
                if !self.tasks.lock().unwrap().is_empty() {
                    note(&self.met.closes_with_tasks);
                }
                self.db.clone().close().unwrap_or_else(|error| self.check_struck(&error));
                thread::sleep(Duration::from_millis(5));
            }
        });
        self.met.reads_struck.fetch_add(self.env.struck(), Ordering::Relaxed);
        match ending {
            Ending::Drained => {
                self.drain();
                self.db.clone().close().unwrap_or_else(|error| self.check_struck(&error));
                self.check_idle();
                self.forget_tasks();
            }
            Ending::Closed => {
                self.drain();
                self.check_idle();
                self.forget_tasks();
            }
            Ending::ClosedByWaker => {
                self.tasks.lock().unwrap().clear();
                self.forgotten.lock().unwrap().clear();
                self.close_by_waker();
            }
        }
    }

    /// Leaves tasks for ever, as `mem::forget` does, but where a search for leaks finds them.
    fn forget_tasks(&self) {
        static FORGOTTEN: Mutex<Vec<Vec<Task>>> = Mutex::new(Vec::new());
        let tasks = take(&mut *self.forgotten.lock().unwrap());
        let mut forgotten = FORGOTTEN.lock().unwrap();
        if !tasks.is_empty() && forgotten.len() < FORGOTTEN_MAX {
            note(&self.met.stores_forgotten);
            forgotten.push(tasks);
        }
    }

    /// Nothing is in flight after a close.
    fn check_idle(&self) {
        wait_until("reads in flight", || self.env.running() == 0);
        wait_until("locked frames", || self.db.stats().cache_locked_bytes == 0);
    }
}

/// The thread that changes what others read.
impl Round {
    fn change(&self, rng: &mut Rng) {
        for step in 0..rng.u32(40..120) {
            let histories = self.histories.lock().unwrap().clone();
            let result = match rng.u8(..20) {
                0 => self.db.flush().inspect(|()| note(&self.met.flushes)),
                1 if step % 4 == 0 => self.db.compact().inspect(|()| note(&self.met.compactions)),
                2 if histories.len() < 3 => {
                    let name = format!("round {} step {step}", self.seed);
                    self.db.partition(&name).map(|partition| {
                        let history = Arc::new(History::new(partition, &Arc::new(Versions::new())));
                        self.histories.lock().unwrap().push(history);
                    })
                }
                3 if histories.len() > 1 => {
                    let history = self.histories.lock().unwrap().pop().unwrap();
                    history.is_dropped.store(true, Ordering::SeqCst);
                    note(&self.met.partitions_dropped);
                    self.db.drop_partition(history.partition.clone())
                }
                4 => {
                    self.env.set_failing(rng.bool());
                    Ok(())
                }
                5..8 => {
                    thread::sleep(Duration::from_millis(rng.u64(..4)));
                    Ok(())
                }
                _ => rng.choice(&histories).unwrap().write(&self.db, rng),
            };
            if let Err(error) = result {
                self.check_struck(&error);
            }
        }
        self.env.set_failing(false);
        while self.histories.lock().unwrap().len() > 1 {
            let history = self.histories.lock().unwrap().pop().unwrap();
            history.is_dropped.store(true, Ordering::SeqCst);
            self.db
                .drop_partition(history.partition.clone())
                .unwrap_or_else(|error| self.check_struck(&error));
        }
    }

    /// A background job that met a struck read stops the store's writes.
    fn check_struck(&self, error: &Error) {
        let is_expected =
            matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned) && self.env.struck() > 0;
        assert!(is_expected, "{error:?}");
    }
}

/// The threads that poll.
impl Round {
    fn execute(&self, mut rng: Rng) {
        while !self.is_over.load(Ordering::SeqCst) {
            match rng.u8(..100) {
                0..20 => self.begin(&mut rng),
                20..90 => self.poll_one(&mut rng),
                90..94 => self.read_blocking(&mut rng),
                94..97 => {
                    let task = self.take_task(&mut rng);
                    if task.is_some() {
                        note(&self.met.futures_dropped);
                    }
                }
                _ if rng.u8(..20) == 0 => {
                    if let Some(task) = self.take_task(&mut rng) {
                        note(&self.met.futures_forgotten);
                        self.forgotten.lock().unwrap().push(task);
                    }
                }
                _ => thread::yield_now(),
            }
        }
    }

    fn history(&self, rng: &mut Rng) -> Arc<History> {
        Arc::clone(rng.choice(&*self.histories.lock().unwrap()).unwrap())
    }

    fn begin(&self, rng: &mut Rng) {
        let task = Task::new(&self.history(rng), Some(&self.db), &self.met, rng);
        let mut tasks = self.tasks.lock().unwrap();
        if tasks.len() < TASKS_MAX {
            tasks.push(task);
        } else {
            drop(tasks);
        }
    }

    fn take_task(&self, rng: &mut Rng) -> Option<Task> {
        let mut tasks = self.tasks.lock().unwrap();
        let place = (!tasks.is_empty()).then(|| rng.usize(..tasks.len()))?;
        Some(tasks.swap_remove(place))
    }

    fn poll_one(&self, rng: &mut Rng) {
        let Some(mut task) = self.take_task(rng) else { return };
        if !task.is_due() {
            if rng.u8(..8) > 0 {
                self.tasks.lock().unwrap().push(task);
                return thread::yield_now();
            }
            note(&self.met.polled_without_a_wake);
        }
        let habit = match rng.u8(..30) {
            0 => Habit::Panic,
            1 => Habit::DropTask(Mutex::new(self.take_task(rng))),
            _ => Habit::None,
        };
        if let Polled::Pending = task.poll(habit, &self.met) {
            self.tasks.lock().unwrap().push(task);
        }
    }

    fn read_blocking(&self, rng: &mut Rng) {
        let history = self.history(rng);
        let n = rng.usize(..KEYS);
        let oldest = history.oldest(n);
        let partition = &history.partition;
        let timeout = ReadOptions::new().timeout(Duration::from_micros(rng.u64(..2_000)));
        let found = match rng.u8(..4) {
            0 => partition.get(key(n)),
            1 => partition.get_with(key(n), &timeout),
            2 => partition.get_many([key(n), key(n / 2), key(n)]).map(|mut found| found.pop().unwrap()),
            _ => {
                partition.get_many_with([key(n / 2), key(n)], &timeout).map(|mut found| found.pop().unwrap())
            }
        };
        note(&self.met.blocking_reads);
        match found {
            Ok(found) => history.check(n, oldest, found.as_deref()),
            Err(error) => check_error(&history, &error, &self.met),
        }
    }
}

/// The ends of a round.
impl Round {
    /// Polls each task when it is woken, until all have ended.
    fn drain(&self) {
        let mut tasks = take(&mut *self.tasks.lock().unwrap());
        let mut moved = Instant::now();
        while !tasks.is_empty() {
            let before = tasks.len();
            let mut any_due = false;
            tasks.retain_mut(|task| {
                any_due |= task.is_due();
                !task.is_due() || matches!(task.poll(Habit::None, &self.met), Polled::Pending)
            });
            if any_due || tasks.len() < before {
                moved = Instant::now();
            } else {
                assert!(moved.elapsed() < PATIENCE, "{before} tasks were never woken");
                thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// A task that waits closes the store when it is woken.
    fn close_by_waker(self) {
        let Self { env, db, seed, met, histories, .. } = self;
        env.slow_down();
        let mut rng = Rng::with_seed(seed);
        let history = histories.into_inner().unwrap().pop().unwrap();
        let tasks = (0..200).map(|_| Task::new(&history, None, &met, &mut rng)).collect();
        drop(history);
        Task::close_store(tasks, db, &met);
    }
}
