//! Status of an open store: whether it takes writes and reads, and how threads wait for background work.
//!
//! All parts of the store share it. It owns no files, no memtables and no work lists.
//!
//! # Invariants
//! 1. *The first failure counts*: a poisoned store stays poisoned, with the first error.
//! 2. *No wake-up is lost*: a thread that makes a waited-for condition true calls [`Status::notify`] afterwards. `notify` takes
//!    the lock under which waiting threads check their condition before they sleep.
//!
//! # Concurrency
//! The conditions of waiting threads run under `waiting` and may take leaf locks. Nothing else is locked under it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::MutexGuard;
use pleach_env::sync::Mutex;
use pleach_env::{Error, JobWaker, Result, Waiter};

use crate::trace;
use crate::version::Version;

/// See the module's text.
pub(crate) struct Status {
    /// Why writes are refused since the open: the store was opened for reading only, or on a full disk.
    read_only: Option<Error>,
    /// The first error after which writing would not be safe.
    poison: OnceLock<Error>,
    /// Whether the store has been closed, or is being closed. All states share this flag.
    closed: Arc<AtomicBool>,
    /// Whether the close has ended all writing to the store's files. Set under `WritePath::writer` and `VersionSet::lock`.
    ended: AtomicBool,
    /// Why background work cannot go on, for threads that wait for it.
    waiting: Mutex<Waiting>,
    /// Signalled after each change that a thread may be waiting for.
    progress: Waiter,
    wakers: OnceLock<Wakers>,
}

/// Why background work cannot go on.
#[derive(Default)]
pub(crate) struct Waiting {
    /// The error of the last flush or compaction that met a shortage, such as a full disk. Writers that wait for room return it.
    shortage: Option<Error>,
    /// The version in which a step was retried after a shortage.
    retried_in: Weak<Version>,
    /// The jobs have stopped, because the store is being closed.
    jobs_stopped: bool,
    /// Calls of [`Status::notify`].
    changes: u64,
}

impl Waiting {
    /// The number of changes so far, as [`Status::changes`].
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }
}

/// Wakers of the jobs.
pub(crate) struct Wakers {
    pub(crate) flush: JobWaker,
    /// One of each worker.
    pub(crate) compaction: Vec<JobWaker>,
    pub(crate) cleaner: JobWaker,
    /// Only if training is adaptive.
    pub(crate) trainer: Option<JobWaker>,
    /// Only if the store may have separated values.
    pub(crate) relocator: Option<JobWaker>,
}

impl Status {
    /// The status of a store just opened. `closed` is the flag that its states share.
    pub(crate) fn new(read_only: Option<Error>, closed: Arc<AtomicBool>, progress: Waiter) -> Self {
        Self {
            read_only,
            poison: OnceLock::new(),
            closed,
            ended: AtomicBool::new(false),
            waiting: Mutex::new(Waiting::default()),
            progress,
            wakers: OnceLock::new(),
        }
    }

    /// Why the store takes no writes since the open.
    pub(crate) fn read_only(&self) -> Option<&Error> {
        self.read_only.as_ref()
    }

    /// The error that poisoned the store.
    pub(crate) fn poison(&self) -> Option<&Error> {
        self.poison.get()
    }

    /// Refuses all later writes because of `error`, and returns it. In a store that has ended the error is `Closed`: a job that
    /// closed the store itself may go on, and finds the files closed.
    pub(crate) fn set_poison(&self, error: Error) -> Error {
        if self.ended.load(Ordering::Acquire) {
            return Error::closed();
        }
        let is_first = self.poison.set(error.clone()).is_ok();
        self.notify();
        if is_first {
            trace::poisoned(&error);
        }
        error
    }

    /// An error when the store is poisoned, closed, or open for reading only.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_not_closed()?;
        if let Some(why) = &self.read_only {
            return Err(why.clone());
        }
        self.check_not_poisoned()
    }

    /// An error when the store is poisoned.
    pub(crate) fn check_not_poisoned(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => Err(Error::poisoned(
                cause,
                format!("the store refuses writes after an earlier failure; open it again (cause: {cause})"),
            )),
        }
    }

    /// Refuses all later calls, because the store is being closed.
    pub(crate) fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether the store has been closed, or is being closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// An error when the store has been closed, or is being closed.
    pub(crate) fn check_not_closed(&self) -> Result<()> {
        if self.is_closed() { Err(Error::closed()) } else { Ok(()) }
    }

    /// Ends all writing to the store's files.
    ///
    /// Requires: `WritePath::writer` and `VersionSet::lock` are held.
    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// An error when [`Status::set_ended`] was called. Requires: `WritePath::writer` or `VersionSet::lock` is held.
    pub(crate) fn check_not_ended(&self) -> Result<()> {
        if self.ended.load(Ordering::Acquire) { Err(Error::closed()) } else { Ok(()) }
    }

    /// The error of a read that failed with `error`. In a closed store it is `Closed`: the file may have been removed.
    #[cold]
    pub(crate) fn read_failed(&self, error: Error) -> Error {
        if self.is_closed() { Error::closed() } else { error }
    }

    /// Sets the wakers, once.
    pub(crate) fn set_wakers(&self, wakers: Wakers) {
        let _set_once = self.wakers.set(wakers);
    }

    /// The wakers of the jobs, once these have been started.
    pub(crate) fn wakers(&self) -> Option<&Wakers> {
        self.wakers.get()
    }

    /// Wakes all jobs, so that they look for work.
    pub(crate) fn wake_jobs(&self) {
        if let Some(wakers) = self.wakers.get() {
            wakers.flush.wake();
            wakers.compaction.iter().for_each(JobWaker::wake);
            wakers.cleaner.wake();
            wakers.trainer.iter().chain(&wakers.relocator).for_each(JobWaker::wake);
        }
    }

    /// Wakes the threads that wait for background work. Call it after each change that they may be waiting for.
    pub(crate) fn notify(&self) {
        self.waiting.lock().changes += 1; // A waiting thread has either seen the change or will be woken.
        self.progress.notify_all();
    }

    /// The number of changes so far. Who looks at state without the lock compares it before waiting.
    pub(crate) fn changes(&self) -> u64 {
        self.waiting.lock().changes
    }

    /// Forgets a shortage, because there may be room now.
    pub(crate) fn forget_shortage(&self) {
        self.waiting.lock().shortage = None;
    }

    /// Whether to retry a step that met a shortage, because files were removed. Only once for each version: the removed files
    /// may be those that the failed step had written.
    pub(crate) fn may_retry_in(&self, version: &Arc<Version>) -> bool {
        let version = Arc::downgrade(version);
        let mut waiting = self.waiting.lock();
        let is_new = !waiting.retried_in.ptr_eq(&version);
        if is_new {
            waiting.retried_in = version;
        }
        is_new
    }

    /// Reports a shortage to the threads that wait for room.
    pub(crate) fn report_shortage(&self, error: Error) {
        trace::shortage(&error);
        self.waiting.lock().shortage = Some(error);
        self.progress.notify_all();
    }

    /// Notes that the jobs have stopped, and wakes the threads that wait for them.
    pub(crate) fn note_jobs_stopped(&self) {
        self.waiting.lock().jobs_stopped = true;
        self.progress.notify_all();
    }

    /// Waits until `done` returns true. It is called again after each change.
    ///
    /// # Errors
    /// When background work cannot go on: the store is poisoned, is being closed, or met a shortage.
    pub(crate) fn wait_until(&self, done: impl Fn() -> bool) -> Result<()> {
        let mut waiting = self.waiting.lock();
        waiting.shortage = None; // The failed step is retried.
        while !done() {
            self.wait_for_progress(&mut waiting)?;
        }
        Ok(())
    }

    /// Waits until there has been another change than the first `seen`, by [`Status::changes`]. Who looks at state without the
    /// lock asks for the number first.
    ///
    /// # Errors
    /// As [`Status::wait_until`].
    pub(crate) fn wait_for_change(&self, seen: u64) -> Result<()> {
        let mut waiting = self.waiting.lock();
        while waiting.changes == seen {
            self.wait_for_progress(&mut waiting)?;
        }
        Ok(())
    }

    /// Locks out reports of changes until the guard is passed to [`Status::wait_for_progress`] or dropped.
    pub(crate) fn lock_waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }

    /// Whether no thread holds the lock of those who wait.
    #[cfg(test)]
    pub(crate) fn is_unlocked(&self) -> bool {
        self.waiting.try_lock().is_some()
    }

    /// Waits for the next change. An error when background work cannot go on.
    pub(crate) fn wait_for_progress(&self, waiting: &mut MutexGuard<'_, Waiting>) -> Result<()> {
        self.check_not_poisoned()?;
        if waiting.jobs_stopped {
            return Err(Error::closed());
        }
        if let Some(error) = &waiting.shortage {
            return Err(error.clone());
        }
        self.wake_jobs();
        self.progress.wait(waiting);
        Ok(())
    }
}
