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
    /// Moves of what is left of the generation before.
    drain: Option<Error>,
    /// When the moves are tried again, and how long they wait behind a further failure.
    drain_from: Duration,
    drain_pause: Duration,
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

/// After a checkpoint of the job has failed, it tries again after so long, or when a writer finds one due (arbitrary).
const ROOM_PAUSE: Duration = Duration::from_secs(10);
/// After moves of the job have failed, it waits for so long, twice as long after each further failure. Each attempt reads, and
/// perhaps sorts, all rows that are left.
const DRAIN_PAUSE: Duration = Duration::from_secs(10);
const DRAIN_PAUSE_MAX: Duration = Duration::from_secs(3600);

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

    /// Makes a checkpoint, and removes replaced rows, if that is due or has failed. Returns after how long to try again.
    fn make_room(&self) -> Option<Duration> {
        let has_failed = self.job_errors.lock().room.is_some();
        let written = if has_failed || self.is_checkpoint_due() { self.checkpoint() } else { Ok(()) };
        let room = written.and(self.remove_in_parts()).err();
        let mut errors = self.job_errors.lock();
        errors.room_failures += u64::from(room.is_some());
        errors.room = room;
        (errors.room.is_some() && self.check_writable().is_ok()).then_some(ROOM_PAUSE)
    }

    /// Moves what is left of the generation before. Returns after how long to ask again, if it is to be asked again.
    fn drain_if_due(&self) -> Option<Duration> {
        if !self.is_drain_due.load(Ordering::SeqCst) {
            return None;
        }
        let drain_from = self.job_errors.lock().drain_from;
        if let Some(left) = drain_from.checked_sub(self.env.now()).filter(|left| !left.is_zero()) {
            return Some(left);
        }
        self.is_drain_due.store(false, Ordering::SeqCst);
        let drained = self.try_drain();
        let mut errors = self.job_errors.lock();
        match drained {
            Ok(true) => {
                errors.drain = None;
                errors.drain_pause = Duration::ZERO;
                None
            }
            // Another thread moves them, and may fail.
            Ok(false) => {
                self.is_drain_due.store(true, Ordering::SeqCst);
                Some(DRAIN_PAUSE)
            }
            Err(error) => {
                self.is_drain_due.store(true, Ordering::SeqCst);
                errors.drain = Some(error);
                errors.drain_pause = (errors.drain_pause * 2).clamp(DRAIN_PAUSE, DRAIN_PAUSE_MAX);
                errors.drain_from = self.env.now() + errors.drain_pause;
                self.check_writable().is_ok().then_some(errors.drain_pause)
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
    use super::*;
    use crate::Options;
    use crate::store::model::{Failure, ModelStore};

    #[test]
    fn a_failure_of_the_job_is_told_until_it_succeeds() {
        let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
        let options = Options::new().background(false).delta_bytes(64 << 10);
        let store = options.open(Box::new(rows.clone()), dir.path()).unwrap();
        let inner = &store.inner;
        let mut number = 0_u32;
        // What was sealed stays, so that the active layer is nearly empty when the memory is full.
        while inner.map.delta_bytes() <= inner.delta_bytes_max() {
            store.put(number.to_le_bytes(), "v").unwrap();
            number += 1;
            if inner.is_checkpoint_due() {
                rows.fail(Some(Failure::Commit));
                inner.work();
                let error = store.background_error().unwrap();
                assert!(error.to_string().contains("planted"), "{error}");
            }
        }
        inner.work();
        assert!(store.background_error().is_none());
        assert!(inner.map.delta_bytes() < inner.delta_bytes_max());
    }

    #[test]
    fn a_failed_checkpoint_is_made_again_when_nothing_else_is_due() {
        let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
        let options = Options::new().background(false).delta_bytes(64 << 10);
        let store = options.open(Box::new(rows.clone()), dir.path()).unwrap();
        let inner = &store.inner;
        let mut number = 0_u32;
        while !inner.is_checkpoint_due() {
            store.put(number.to_le_bytes(), "v").unwrap();
            number += 1;
        }
        for _ in 0..2 {
            rows.fail(Some(Failure::Commit));
            let JobStep::IdleFor(pause) = inner.work() else { panic!("it does not try again") };
            assert!(pause <= ROOM_PAUSE);
            assert!(store.background_error().is_some());
            assert!(!inner.is_checkpoint_due() && inner.map.has_sealed());
        }
        inner.work();
        assert!(store.background_error().is_none());
        assert_eq!(inner.map.delta_bytes(), 0);
    }
}
