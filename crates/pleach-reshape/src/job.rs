//! Background job: checkpoints that are due, removals of replaced rows, moves of the generation before, and newer states of the
//! map's store for its readers.
//!
//! # Concurrency
//! One thread, which writers wake. It may wait for who holds `maintenance`, never for who holds `moving`: that thread may wait
//! for its checkpoints.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pleach::env::{JobHandle, JobStep};
use pleach::{Error, ErrorKind, Result};

use crate::handle::Inner;

/// What the background job could not do when it last ran.
#[derive(Default)]
pub(crate) struct JobErrors {
    /// Checkpoints, and removals of replaced rows.
    pub(crate) room: Option<Error>,
    /// How often these have failed. Writers that wait for room fail with a failure of meanwhile.
    pub(crate) room_failures: u64,
    room_retry: Retry,
    /// Moves of what is left of the generation before.
    drain: Option<Error>,
    drain_retry: Retry,
}

/// When the job tries again what has failed.
#[derive(Default)]
struct Retry {
    /// By [`Env::now`](pleach::env::Env::now).
    at: Duration,
    /// How long after the failure. Zero: the last attempt did not fail.
    pause: Duration,
}

impl Retry {
    /// Returns the pause behind a failure of this time.
    fn after(&mut self, now: Duration) -> Duration {
        self.pause = (self.pause * 2).clamp(RETRY_PAUSE, RETRY_PAUSE_MAX);
        self.at = now + self.pause;
        self.pause
    }

    /// How long it is not to be tried again.
    fn left(&self, now: Duration) -> Duration {
        self.at.saturating_sub(now)
    }
}

/// The background job. Who drops it waits for its end.
pub(crate) struct Job {
    handle: JobHandle,
    inner: Arc<Inner>,
}

impl Job {
    pub(crate) fn start(inner: &Arc<Inner>) -> Result<Self> {
        let own = Arc::clone(inner);
        let step = move || {
            let ended = Ended(&own);
            let step = own.work();
            drop(ended);
            step
        };
        let handle = inner.env.spawn_job("reshape", Box::new(step));
        let handle =
            handle.map_err(|e| Error::io("start the job of checkpoints of", Path::new("the map"), e))?;
        Ok(Self { handle, inner: Arc::clone(inner) })
    }

    pub(crate) fn wake(&self) {
        self.handle.waker().wake();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.inner.is_closing.store(true, Ordering::SeqCst);
    }
}

/// The job tries again after so long, and waits twice as long after each further failure. Each attempt of moves reads, and
/// perhaps sorts, all rows that are left; each checkpoint that fails may leave one more sealed layer, which reads pass.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(3600);

/// Refuses writes if a panic of the job drops it: nobody would make checkpoints any more, and writers would wait for one.
struct Ended<'a>(&'a Inner);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(&Error::new(ErrorKind::Poisoned, "the background job has panicked"));
        }
    }
}

impl JobErrors {
    /// Why the job failed when it last ran.
    pub(crate) fn any(&self) -> Option<Error> {
        self.room.clone().or_else(|| self.drain.clone())
    }
}

impl Inner {
    /// What the job does when it is woken.
    fn work(&self) -> JobStep {
        let next = [self.make_room(), self.drain_if_due(), self.renew_base_if_due()];
        next.into_iter().flatten().min().map_or(JobStep::Idle, JobStep::IdleFor)
    }

    /// Makes a checkpoint, and removes replaced rows, if that is due, or if it has failed some time ago. Returns after how long
    /// to try again.
    fn make_room(&self) -> Option<Duration> {
        let is_due = self.is_checkpoint_due() || self.is_removal_due();
        let is_retry = {
            let errors = self.job_errors.lock();
            let left = errors.room_retry.left(self.env.now());
            if errors.room.is_some() && !is_due && !left.is_zero() {
                return Some(left);
            }
            errors.room.is_some() && left.is_zero()
        };
        let written = if is_retry || self.is_checkpoint_due() { self.checkpoint() } else { Ok(()) };
        let room = written.and_then(|()| self.remove_in_parts()).err();
        let mut errors = self.job_errors.lock();
        let Some(room) = room else {
            // What is sealed is that of a failed checkpoint, unless one was made now.
            if !self.map.has_sealed() {
                (errors.room, errors.room_retry) = (None, Retry::default());
            }
            return errors.room.is_some().then(|| errors.room_retry.left(self.env.now()));
        };
        errors.room_failures += 1;
        let is_first = errors.room.replace(room).is_none();
        let now = self.env.now();
        // Writers that wait for room make the job try again and again, which does not put off later attempts.
        let left =
            if is_first || is_retry { errors.room_retry.after(now) } else { errors.room_retry.left(now) };
        self.check_writable().is_ok().then_some(left)
    }

    /// Moves what is left of the generation before. Returns after how long to ask again, if it is to be asked again.
    fn drain_if_due(&self) -> Option<Duration> {
        if !self.is_drain_due.load(Ordering::SeqCst) {
            return None;
        }
        let left = self.job_errors.lock().drain_retry.left(self.env.now());
        if !left.is_zero() {
            return Some(left);
        }
        self.is_drain_due.store(false, Ordering::SeqCst);
        let drained = self.try_drain();
        let mut errors = self.job_errors.lock();
        match drained {
            Ok(true) => {
                (errors.drain, errors.drain_retry) = (None, Retry::default());
                None
            }
            // Another thread moves them, and may fail.
            Ok(false) => {
                self.is_drain_due.store(true, Ordering::SeqCst);
                Some(RETRY_PAUSE)
            }
            Err(error) => {
                self.is_drain_due.store(true, Ordering::SeqCst);
                errors.drain = Some(error);
                let pause = errors.drain_retry.after(self.env.now());
                self.check_writable().is_ok().then_some(pause)
            }
        }
    }

    /// Removes replaced rows, with checkpoints as they become due.
    fn remove_in_parts(&self) -> Result<()> {
        while self.is_removal_due() {
            self.check_writable()?;
            self.remove_if_due(&mut self.maintenance.lock())?;
            if self.is_checkpoint_due() {
                self.checkpoint()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pleach::env::{Env, SimEnv};

    use super::*;
    use crate::Options;
    use crate::handle::Reshaped;
    use crate::store::model::{Failure, ModelStore};

    fn open() -> (Reshaped, ModelStore, Arc<SimEnv>) {
        let (env, rows) = (SimEnv::new(1), ModelStore::new(false));
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).background(false).delta_bytes(64 << 10);
        (options.open(Box::new(rows.clone()), "/map").unwrap(), rows, env)
    }

    /// Puts keys from this number on until a checkpoint is due. Returns the number behind them.
    fn put_until_due(store: &Reshaped, mut number: u32) -> u32 {
        while !store.inner.is_checkpoint_due() {
            store.put(number.to_le_bytes(), "v").unwrap();
            number += 1;
        }
        number
    }

    #[test]
    fn a_failure_of_the_job_is_told_until_it_succeeds() {
        let (store, rows, _env) = open();
        let inner = &store.inner;
        let mut number = 0;
        // What was sealed stays, so that the active layer is nearly empty when the memory is full.
        while inner.map.delta_bytes() <= inner.delta_bytes_max() {
            number = put_until_due(&store, number);
            rows.fail(Some(Failure::Commit));
            inner.work();
            let error = store.background_error().unwrap();
            assert!(error.to_string().contains("planted"), "{error}");
        }
        inner.work();
        assert!(store.background_error().is_none());
        assert!(inner.map.delta_bytes() < inner.delta_bytes_max());
    }

    #[test]
    fn a_failed_checkpoint_is_made_again_when_nothing_else_is_due() {
        let (store, rows, env) = open();
        let inner = &store.inner;
        put_until_due(&store, 0);
        let mut pause = Duration::ZERO;
        for expected in [RETRY_PAUSE, RETRY_PAUSE * 2] {
            rows.fail(Some(Failure::Commit));
            // The job is awake earlier for a newer state of the map.
            env.sleep(pause);
            inner.work();
            pause = inner.job_errors.lock().room_retry.pause;
            assert_eq!(pause, expected);
            assert!(!inner.is_checkpoint_due() && inner.map.has_sealed());
            rows.fail(None);
            assert!(matches!(inner.work(), JobStep::IdleFor(left) if left <= pause), "it does not try again");
            assert!(store.background_error().is_some(), "it is too early");
        }
        env.sleep(pause);
        inner.work();
        assert!(store.background_error().is_none());
        assert_eq!(inner.map.delta_bytes(), 0);
        assert!(inner.job_errors.lock().room_retry.pause.is_zero());
    }
}
