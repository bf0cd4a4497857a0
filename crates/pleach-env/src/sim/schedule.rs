//! The simulated scheduler: the test, or a foreground call that waits, steps the jobs.
//!
//! The seed decides which ready job steps. A job is out of the table while it steps, so it may call the environment, wake
//! itself and others, and drop handles, even its own.
//!
//! # Invariants
//! 1. No wake is lost: the flag is cleared before the step, so a wake during the step makes the job ready again.
//! 2. No lock is held while a job steps or is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::ThreadId;

use fastrand::Rng;

use super::SimEnv;
use crate::job::{Job, JobHandle, JobStep, JobWaker};
use crate::waiter::{Waited, Waiter};

/// Steps after which [`SimEnv::run_jobs`] gives up. Arbitrary, far above what a test's jobs need.
const STEPS_MAX: u64 = 1_000_000;

/// Steps that waits may take in the life of a machine. Arbitrary, about ten times what the longest tests need: a longer wait
/// is for jobs that make no progress.
const WAIT_STEPS_MAX: u64 = 100_000;

struct Slot {
    name: String,
    /// Absent while it steps.
    job: Option<Box<dyn Job>>,
    /// The thread in which it steps.
    steps_in: Option<ThreadId>,
    ready: bool,
}

/// The table of jobs, by number.
pub(super) struct Schedule {
    slots: BTreeMap<u64, Slot>,
    jobs_spawned: u64,
    wait_steps: u64,
    rng: Rng,
}

impl Schedule {
    pub(super) fn new(seed: u64) -> Self {
        Self { slots: BTreeMap::new(), jobs_spawned: 0, wait_steps: 0, rng: Rng::with_seed(seed) }
    }

    /// How many jobs there are.
    pub(super) fn job_count(&self) -> usize {
        self.slots.len()
    }

    fn add(&mut self, name: &str, job: Box<dyn Job>) -> u64 {
        self.jobs_spawned += 1;
        self.slots.insert(
            self.jobs_spawned,
            Slot { name: name.to_owned(), job: Some(job), steps_in: None, ready: false },
        );
        self.jobs_spawned
    }

    /// Takes a random one of the ready jobs out of the table.
    fn take_ready(&mut self) -> Option<(u64, Box<dyn Job>)> {
        let ready = self.slots.iter().filter(|(_, slot)| slot.ready && slot.job.is_some());
        let ready: Vec<u64> = ready.map(|(id, _)| *id).collect();
        let id = *self.rng.choice(&ready)?;
        let slot = self.slots.get_mut(&id)?;
        slot.ready = false;
        slot.steps_in = Some(std::thread::current().id());
        Some((id, slot.job.take()?))
    }

    /// Puts a job back after its step. Returns it if its handle was dropped during the step.
    fn put_back(&mut self, id: u64, job: Box<dyn Job>, step: JobStep) -> Option<Box<dyn Job>> {
        let Some(slot) = self.slots.get_mut(&id) else { return Some(job) };
        slot.job = Some(job);
        slot.steps_in = None;
        slot.ready |= step == JobStep::Again;
        None
    }

    fn wake(&mut self, id: u64) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.ready = true;
        }
    }

    /// Whether a job is ready for a step.
    #[cfg(feature = "failpoints")]
    pub(super) fn has_ready(&self) -> bool {
        self.slots.values().any(|slot| slot.ready && slot.job.is_some())
    }

    /// Whether the job is in a step in another thread than this one.
    #[cfg(feature = "failpoints")]
    pub(super) fn steps_elsewhere(&self, id: u64) -> bool {
        let thread = self.slots.get(&id).and_then(|slot| slot.steps_in);
        thread.is_some_and(|thread| thread != std::thread::current().id())
    }

    /// Whether a job is in a step in this thread.
    pub(super) fn steps_here(&self) -> bool {
        let here = std::thread::current().id();
        self.slots.values().any(|slot| slot.steps_in == Some(here))
    }

    /// For messages: each job's name and state.
    fn describe(&self) -> String {
        let state = |slot: &Slot| match (&slot.job, slot.ready) {
            (None, _) => "stepping",
            (_, true) => "ready",
            (_, false) => "asleep",
        };
        let jobs: Vec<_> = self.slots.values().map(|s| format!("{} is {}", s.name, state(s))).collect();
        if jobs.is_empty() { "there are no jobs".to_owned() } else { jobs.join(", ") }
    }
}

impl SimEnv {
    /// Steps one of the ready jobs, chosen by the seed; `false` if none is ready.
    pub fn step_job(&self) -> bool {
        let Some((id, mut job)) = self.schedule.lock().take_ready() else { return false };
        let step = job.step();
        let orphan = self.schedule.lock().put_back(id, job, step);
        drop(orphan);
        true
    }

    /// Steps jobs until none is ready.
    ///
    /// # Panics
    /// After a million steps: some job never becomes idle.
    pub fn run_jobs(&self) {
        for _ in 0..STEPS_MAX {
            if !self.step_job() {
                return;
            }
        }
        panic!("simulated jobs never rest: {STEPS_MAX} steps, and {}", self.schedule.lock().describe());
    }

    pub(super) fn add_job(&self, name: &str, job: Box<dyn Job>) -> JobHandle {
        let id = self.schedule.lock().add(name, job);
        let (waking, stopping) = (self.this.clone(), self.this.clone());
        let wake = move || {
            if let Some(env) = waking.upgrade() {
                env.schedule.lock().wake(id);
            }
        };
        let stop = move || {
            if let Some(env) = stopping.upgrade() {
                #[cfg(feature = "failpoints")]
                env.wait_for_step(id);
                let slot = env.schedule.lock().slots.remove(&id);
                drop(slot);
            }
        };
        JobHandle { waker: JobWaker(Arc::new(wake)), stop: Some(Box::new(stop)) }
    }

    /// A waiter whose wait steps one job. If no job is ready, a wait with a timeout advances the virtual time, and one without
    /// panics, because nothing could end it. Too many waits panic too.
    pub(super) fn add_waiter(&self) -> Waiter {
        let this = self.this.clone();
        Waiter::sim(Arc::new(move |waited| {
            let env = this.upgrade().expect("simulated deadlock: the environment waited in is gone");
            #[cfg_attr(
                not(feature = "failpoints"),
                expect(
                    clippy::infallible_destructuring_match,
                    reason = "the other variant needs the feature"
                )
            )]
            let timeout = match waited {
                Waited::Alone(timeout) => timeout,
                #[cfg(feature = "failpoints")]
                Waited::TimedOut(timeout) => {
                    env.machine.lock().clock += timeout;
                    return;
                }
            };
            env.count_wait();
            if !env.step_job() {
                match timeout {
                    Some(timeout) => env.machine.lock().clock += timeout,
                    None => panic!("simulated deadlock: no job is ready; {}", env.schedule.lock().describe()),
                }
            }
        }))
    }
}

impl SimEnv {
    fn count_wait(&self) {
        let mut schedule = self.schedule.lock();
        schedule.wait_steps += 1;
        let endless = schedule.wait_steps > WAIT_STEPS_MAX;
        assert!(!endless, "simulated livelock: waited for {WAIT_STEPS_MAX} steps; {}", schedule.describe());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;
    use crate::env::Env;

    fn counting(env: &Arc<SimEnv>, trace: &Arc<Mutex<Vec<(u8, u64)>>>, name: u8, steps: u64) -> JobHandle {
        let (env_in_job, trace) = (Arc::clone(env), Arc::clone(trace));
        let mut left = steps;
        let job = move || {
            left -= 1;
            trace.lock().push((name, env_in_job.random_u64() % 100));
            if left == 0 { JobStep::Idle } else { JobStep::Again }
        };
        env.spawn_job("test", Box::new(job)).unwrap()
    }

    fn trace_of(seed: u64) -> Vec<(u8, u64)> {
        let env = SimEnv::new(seed);
        let trace = Arc::default();
        let handles: Vec<_> = (0..4).map(|name| counting(&env, &trace, name, 10)).collect();
        assert!(!env.step_job(), "jobs start asleep");
        for handle in &handles {
            handle.waker().wake();
        }
        env.run_jobs();
        drop(handles);
        Arc::try_unwrap(trace).expect("dropping the handles dropped the jobs").into_inner()
    }

    #[test]
    fn the_same_seed_gives_the_same_trace() {
        assert_eq!(trace_of(7), trace_of(7));
        assert_ne!(trace_of(7), trace_of(8));
        assert_eq!(trace_of(7).len(), 40);
    }

    #[test]
    fn a_wake_during_the_step_makes_the_job_ready_again() {
        let env = SimEnv::new(1);
        let waker: Arc<Mutex<Option<JobWaker>>> = Arc::default();
        let own = Arc::clone(&waker);
        let mut steps = 0;
        let job = move || {
            steps += 1;
            if steps < 3 {
                own.lock().as_ref().expect("set below").wake();
            }
            JobStep::Idle
        };
        let handle = env.spawn_job("self-waking", Box::new(job)).unwrap();
        *waker.lock() = Some(handle.waker());
        handle.waker().wake();
        let mut stepped = 0;
        while env.step_job() {
            stepped += 1;
        }
        assert_eq!(stepped, 3);
    }

    #[test]
    fn a_job_may_drop_its_own_handle() {
        let env = SimEnv::new(1);
        let slot: Arc<Mutex<Option<JobHandle>>> = Arc::default();
        let own = Arc::clone(&slot);
        let alive = Arc::new(());
        let token = Arc::clone(&alive);
        let job = move || {
            let _ = &token;
            drop(own.lock().take());
            JobStep::Again
        };
        let handle = env.spawn_job("self-stopping", Box::new(job)).unwrap();
        handle.waker().wake();
        *slot.lock() = Some(handle);
        assert!(env.step_job());
        assert!(!env.step_job());
        assert_eq!(Arc::strong_count(&alive), 1, "the job was dropped");
    }

    #[test]
    fn waiting_steps_jobs_with_the_guard_released() {
        let env = SimEnv::new(1);
        let done = Arc::new(Mutex::new(0));
        let shared = Arc::clone(&done);
        let job = move || {
            *shared.lock() += 1;
            JobStep::Again
        };
        let handle = env.spawn_job("worker", Box::new(job)).unwrap();
        handle.waker().wake();
        let waiter = env.waiter();
        let mut guard = done.lock();
        while *guard < 5 {
            waiter.wait(&mut guard);
        }
        assert_eq!(*guard, 5);
    }

    #[test]
    fn a_timed_wait_without_jobs_lets_time_pass() {
        let env = SimEnv::new(1);
        let nothing = Mutex::new(());
        let before = env.now();
        env.waiter().wait_for(&mut nothing.lock(), Duration::from_secs(3));
        assert!(env.now() >= before + Duration::from_secs(3));
    }

    #[test]
    #[should_panic(expected = "simulated deadlock: no job is ready; sleeper is asleep")]
    fn a_wait_that_no_job_can_end_panics() {
        let env = SimEnv::new(1);
        let _handle = env.spawn_job("sleeper", Box::new(|| JobStep::Idle)).unwrap();
        let nothing = Mutex::new(());
        env.waiter().wait(&mut nothing.lock());
    }

    #[test]
    #[should_panic(expected = "simulated jobs never rest")]
    fn jobs_that_never_rest_are_noticed() {
        let env = SimEnv::new(1);
        let handle = env.spawn_job("restless", Box::new(|| JobStep::Again)).unwrap();
        handle.waker().wake();
        env.run_jobs();
    }

    #[test]
    #[should_panic(expected = "simulated livelock")]
    fn waits_without_end_are_noticed() {
        let env = SimEnv::new(1);
        let handle = env.spawn_job("restless", Box::new(|| JobStep::Again)).unwrap();
        handle.waker().wake();
        let nothing = Mutex::new(());
        let waiter = env.waiter();
        loop {
            waiter.wait(&mut nothing.lock());
        }
    }
}
