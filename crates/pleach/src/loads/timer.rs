//! Timer: a job that wakes tasks whose time to wait is over. It starts when the first task waits with a limit.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use pleach_env::sync::Mutex;
use pleach_env::{Env, JobHandle, JobStep, wake};

/// When a task is to be woken, by the environment's clock, and a number that tells it from others.
type Key = (Duration, u64);

/// See the module's text.
#[derive(Default)]
pub(super) struct Timer {
    tasks: Arc<Mutex<BTreeMap<Key, Waker>>>,
    numbers: AtomicU64,
    /// Locked before `tasks`, and while the job is started.
    job: Mutex<State>,
}

#[derive(Default)]
enum State {
    #[default]
    NotStarted,
    Running(JobHandle),
    Closed,
}

/// A task that will be woken, unless this is dropped before.
pub(crate) struct Alarm {
    tasks: Arc<Mutex<BTreeMap<Key, Waker>>>,
    key: Key,
}

impl Timer {
    /// Wakes the task at the time `at`. `None` when there is no thread for the job, or no job any more.
    pub(super) fn set(&self, env: &Arc<dyn Env>, at: Duration, waker: &Waker) -> Option<Alarm> {
        let mut job = self.job.lock();
        if let State::NotStarted = &*job {
            let (tasks, clock) = (Arc::clone(&self.tasks), Arc::downgrade(env));
            let step = move || match clock.upgrade() {
                Some(env) => wake_due(&tasks, &*env),
                None => JobStep::Idle,
            };
            *job = State::Running(env.spawn_job("read-timer", Box::new(step)).ok()?);
        }
        let State::Running(handle) = &*job else { return None };
        let key = (at, self.numbers.fetch_add(1, Ordering::Relaxed));
        let mut tasks = self.tasks.lock();
        tasks.insert(key, waker.clone());
        if tasks.first_key_value().is_some_and(|(first, _)| *first == key) {
            handle.waker().wake();
        }
        Some(Alarm { tasks: Arc::clone(&self.tasks), key })
    }

    /// Ends the job.
    pub(super) fn close(&self) {
        let job = mem::replace(&mut *self.job.lock(), State::Closed);
        drop(job);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let waker = self.tasks.lock().remove(&self.key);
        // Only now, because it may drop a task.
        drop(waker);
    }
}

/// Wakes the tasks whose time has come.
fn wake_due(tasks: &Mutex<BTreeMap<Key, Waker>>, env: &dyn Env) -> JobStep {
    let now = env.now();
    let mut waiting = tasks.lock();
    let later = waiting.split_off(&(now, u64::MAX));
    let due = mem::replace(&mut *waiting, later);
    let next = waiting.first_key_value().map(|((at, _), _)| at.saturating_sub(now));
    drop(waiting);
    due.into_values().for_each(wake);
    next.map_or(JobStep::Idle, JobStep::IdleFor)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::task::Wake;

    use pleach_env::RealEnv;

    use super::*;

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn tasks_are_woken_when_their_time_is_over_unless_they_have_ended() {
        let env: Arc<dyn Env> = Arc::new(RealEnv::new());
        let timer = Timer::default();
        let flags: Vec<Arc<Flag>> = (0..3).map(|_| Arc::default()).collect();
        let alarm = |flag: usize, ms| {
            let at = env.now() + Duration::from_millis(ms);
            timer.set(&env, at, &Waker::from(Arc::clone(&flags[flag]))).unwrap()
        };
        let (_later, ended, _soon) = (alarm(0, 60), alarm(1, 3), alarm(2, 10));
        drop(ended);
        for flag in [2, 0] {
            while !flags[flag].0.load(Ordering::SeqCst) {
                env.sleep(Duration::from_millis(1));
            }
        }
        assert!(!flags[1].0.load(Ordering::SeqCst));
        let never = alarm(1, 1 << 20);
        assert!(!timer.tasks.lock().is_empty());
        drop(never);
        assert!(timer.tasks.lock().is_empty());
        timer.close();
        assert!(timer.set(&env, env.now(), Waker::noop()).is_none());
    }
}
