//! Background work: flush, compaction, removal of files. Each is a job that does one bounded step at a time.
//!
//! A shortage, such as a full disk, stops a job until it is woken again: by the next write that needs room, by the next
//! flush, or by the removal of files. Any other failure poisons the store: reads go on, writes are refused.

use std::collections::btree_map::Entry;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pleach_env::{Error, ErrorKind, Job, JobHandle, JobStep, JobWaker, Result};
use pleach_log::segment_path;

use super::inner::{Background, Inner};
use super::reserve::TAIL_BYTES_MAX;
use super::sst_output::sst_path;
use crate::compaction::picker;
use crate::compaction::worker::{Compactions, QUIET_AFTER, Worker};
use crate::keys::PartitionId;
use crate::manifest::manifest_path;
use crate::stats::add;
use crate::status::Wakers;
use crate::trace;
use crate::version::Version;

/// Memtables that use less are left to the log when the store is closed: some milliseconds for the next open, which must
/// find room for them in the reserve when the disk is full.
const FLUSHED_AT_CLOSE_MIN: usize = TAIL_BYTES_MAX;

/// Longest sleep of a compaction before it looks whether there is a hurry, and of a writer before it looks whether it is
/// still to be slowed down.
const NAP_MAX: Duration = Duration::from_millis(20);

/// Starts the jobs of a store: all of them, or none where the system has no thread for one.
pub(crate) fn start_jobs(inner: &Arc<Inner>) -> Result<Vec<JobHandle>> {
    let flush = {
        let inner = Arc::clone(inner);
        move || inner.flush_step()
    };
    let flush = spawn(inner, "pleach-flush", flush)?;
    let compactions = Arc::new(Compactions::new(Arc::clone(inner)));
    let worker = |_| spawn(inner, "pleach-compact", Worker(Arc::clone(&compactions)));
    let workers = (0..inner.options.compaction_worker_count()).map(worker).collect::<Result<Vec<_>>>()?;
    let cleaner = {
        let inner = Arc::clone(inner);
        move || inner.clean_step()
    };
    let cleaner = spawn(inner, "pleach-clean", cleaner)?;
    let wakers = Wakers {
        flush: flush.waker(),
        compaction: workers.iter().map(JobHandle::waker).collect(),
        cleaner: cleaner.waker(),
    };
    inner.trash.set_cleaner(wakers.cleaner.clone());
    inner.status.set_wakers(wakers);
    inner.status.wake_jobs();
    let mut jobs = vec![flush, cleaner];
    jobs.extend(workers);
    Ok(jobs)
}

fn spawn(inner: &Arc<Inner>, name: &'static str, job: impl Job + 'static) -> Result<JobHandle> {
    let job = Guarded { inner: Arc::clone(inner), name, job };
    let failed = |e| Error::io("start a background thread (ulimit -u limits them)", &inner.dir, e);
    inner.env.spawn_job(name, Box::new(job)).map_err(failed)
}

/// A job whose panic poisons the store: otherwise writers would wait forever for what it will never do.
struct Guarded<J> {
    inner: Arc<Inner>,
    name: &'static str,
    job: J,
}

impl<J: Job> Job for Guarded<J> {
    /// State that a panic left half changed is only read afterwards: a poisoned store writes nothing.
    fn step(&mut self) -> JobStep {
        let step = panic::catch_unwind(AssertUnwindSafe(|| self.job.step()));
        step.unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("no message");
            trace::job_panicked(self.name, text);
            let message = format!("the job {} panicked: {text}", self.name);
            self.inner.status.set_poison(Error::new(ErrorKind::Poisoned, message));
            JobStep::Idle
        })
    }

    fn gives_way(&self) -> bool {
        self.job.gives_way()
    }
}

/// Partitions that are looked at in a row for merges that time has made due: some 0.3 ms, for which edits wait. All of 20 000
/// take 20 ms.
const LOOKED_AT_ONCE: usize = 256;

impl Inner {
    fn flush_step(&self) -> JobStep {
        if self.status.poison().is_some() {
            return JobStep::Idle;
        }
        match self.flush_oldest() {
            Ok(false) => JobStep::Idle,
            Ok(true) => {
                self.note_progress();
                JobStep::Again
            }
            Err(error) => self.background_failed(error),
        }
    }

    /// Looks at the debts of the newest version.
    pub(crate) fn measure_pressure(&self) {
        self.pressure.measure(self.ledger.lock().ways());
    }

    /// Tells waiting writers, and the other jobs, that something has changed.
    pub(crate) fn note_progress(&self) {
        self.measure_pressure();
        self.status.forget_shortage();
        self.status.notify();
        if let Some(wakers) = self.status.wakers() {
            wakers.compaction.iter().for_each(JobWaker::wake);
            wakers.cleaner.wake();
        }
    }

    /// The course of a job after a failed step. On a full disk it is tried again if files could be removed, but once only
    /// for each version: what goes may be what the failed step itself has written.
    pub(crate) fn background_failed(&self, error: Error) -> JobStep {
        if error.kind() == ErrorKind::Closed {
            return JobStep::Idle;
        }
        if error.is_shortage() {
            if self.remove_obsolete() > 0 && self.status.may_retry_in(&self.state.load().version) {
                return JobStep::Again;
            }
            self.status.report_shortage(error);
        } else {
            self.status.set_poison(error);
        }
        JobStep::Idle
    }

    /// Removes files that nothing needs any more, and then sees to the filters.
    fn clean_step(&self) -> JobStep {
        self.remove_obsolete();
        self.tend_filters()
    }

    /// Removes files that nothing needs any more, and tells how many: what the cleaner does, for those who cannot wait
    /// for it.
    pub(crate) fn remove_obsolete(&self) -> usize {
        let obsolete = self.trash.take();
        let mut removed = obsolete.len();
        for id in obsolete {
            let _stays_for_the_next_open = self.env.remove_file(&sst_path(&self.dir, id));
            add(&self.counters.removed_files, 1);
        }
        let floor = self.state.load().version.log_floor;
        let (segments, manifests, retired) = {
            let mut files = self.framed_files.lock();
            let keep = files.segments.partition_point(|id| *id < floor);
            let segments: Vec<_> = files.segments.drain(..keep).collect();
            (segments, std::mem::take(&mut files.old_manifests), std::mem::take(&mut files.retired))
        };
        drop(retired);
        let paths = (segments.iter().map(|id| segment_path(&self.dir, *id)))
            .chain(manifests.iter().map(|id| manifest_path(&self.dir, *id)));
        for path in paths {
            let _stays_for_the_next_open = self.env.remove_file(&path);
            removed += 1;
        }
        removed
    }

    /// Asks for the partition's runs to be merged into one, and waits until they are.
    pub(crate) fn compact_partition(&self, partition: PartitionId) -> Result<()> {
        self.background.lock().ask_for(partition);
        let result = self.status.wait_until(|| !self.background.lock().to_compact.contains(&partition));
        self.background.lock().ask_no_more(partition);
        result
    }

    /// Waits until the compactions have nothing left to do.
    pub(crate) fn wait_for_compactions(&self) -> Result<()> {
        self.settling.fetch_add(1, Ordering::AcqRel);
        self.refresh_ledger();
        let settled = self.wait_until_settled();
        self.settling.fetch_sub(1, Ordering::AcqRel);
        settled
    }

    fn wait_until_settled(&self) -> Result<()> {
        self.status.forget_shortage();
        loop {
            // The pickers take their time: commit leaders, who need the lock, are not to wait for them.
            let version = Arc::clone(&self.state.load().version);
            let is_settled = self.is_settled(&version);
            let mut waiting = self.status.hold();
            if !Arc::ptr_eq(&version, &self.state.load().version) {
                continue;
            }
            if is_settled && self.background.lock().partial_jobs == 0 {
                return Ok(());
            }
            drop(version);
            self.status.wait_for_progress(&mut waiting)?;
        }
    }

    /// Whether, where nothing is written, no compaction is at work or due.
    fn is_settled(&self, version: &Version) -> bool {
        let (is_busy, held_up) = {
            let ledger = self.ledger.lock();
            (ledger.is_busy(), ledger.held_up())
        };
        let has_plan = |id| version.tree(id).is_some_and(|tree| picker::pick_held_up(tree).is_some());
        !is_busy && !held_up.into_iter().any(has_plan)
    }

    /// Looks for merges that time and reads have made due. The pickers run without the ledger's lock, which commit leaders
    /// take; `versions` keeps edits out, for a few partitions at a time.
    fn refresh_ledger(&self) {
        let now = self.compaction_clock();
        self.ledger.lock().start_refresh(now);
        let mut last = None;
        loop {
            let versions = self.versions.lock();
            let waiting = self.ledger.lock().waiting_after(last, LOOKED_AT_ONCE);
            if waiting.last().is_none() {
                break;
            }
            last = waiting.last();
            let due = waiting.due_at(&versions.version, now);
            self.ledger.lock().refresh(due);
        }
        self.ledger.lock().end_refresh(now);
    }

    /// The same, unless that was done for this time already.
    pub(crate) fn refresh_ledger_at(&self, clock: u64) {
        if self.ledger.lock().refreshed_at() != clock {
            self.refresh_ledger();
        }
    }

    /// Whether nothing has been written for a while, or somebody waits for the compactions to end.
    pub(crate) fn is_quiet(&self) -> bool {
        let sealed_at = Duration::from_nanos(self.sealed_at_ns.load(Ordering::Relaxed));
        self.settling.load(Ordering::Acquire) > 0 || self.env.now() >= sealed_at + QUIET_AFTER
    }

    /// Sleeps as the budget of compactions demands after `bytes` of output, unless there is a hurry.
    pub(crate) fn keep_pace(&self, bytes: u64) {
        if !self.pacer.is_on() || self.is_hurried() {
            return;
        }
        self.nap(self.pacer.charge(bytes, self.env.now()), || self.is_hurried());
    }

    /// Sleeps until it is over, or for `left`; `false` when it was over before.
    pub(crate) fn nap(&self, mut left: Duration, is_over: impl Fn() -> bool) -> bool {
        while !left.is_zero() {
            if is_over() {
                return false;
            }
            let nap = left.min(NAP_MAX);
            self.env.sleep(nap);
            left -= nap;
        }
        true
    }

    /// Whether somebody waits for compactions to end, or is slowed down by them.
    fn is_hurried(&self) -> bool {
        self.status.is_closed()
            || self.pressure.is_on(0.0)
            || self.settling.load(Ordering::Acquire) > 0
            || !self.background.lock().to_compact.is_empty()
    }

    /// Makes the log durable.
    pub(crate) fn sync_log(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.status.check_writable()?;
        self.sync_writer(&mut writer)
    }

    /// Seals the memtable and waits until all that has been written so far is flushed.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.status.check_writable()?;
        self.flush_memtables()
    }

    /// Flushes all memtables if the next open would take noticeably long to read their log again.
    pub(crate) fn flush_if_large(&self) -> Result<()> {
        let used: usize = self.state.load().memtables().map(|memtable| memtable.used_bytes()).sum();
        if used < FLUSHED_AT_CLOSE_MIN || self.status.poison().is_some() {
            return Ok(());
        }
        self.flush_memtables()
    }

    fn flush_memtables(&self) -> Result<()> {
        let last_seq = {
            let mut writer = self.writer.lock();
            self.status.check_not_ended()?;
            if !writer.active.memtable.is_empty() {
                self.wait_for_flush()?;
                self.seal(&mut writer)?;
            }
            writer.next_seq - 1
        };
        // Later ones are not waited for: others may go on writing for ever.
        self.status.wait_until(|| self.state.load().sealed.iter().all(|m| m.memtable.last_seq() > last_seq))
    }
}

impl Background {
    /// Asks for the partition's runs to be merged into one.
    fn ask_for(&mut self, partition: PartitionId) {
        self.to_compact.insert(partition);
        *self.asking.entry(partition).or_default() += 1;
    }

    /// Ends what [`Background::ask_for`] began. A request that failed goes with the last of those who asked, so that none
    /// of them takes it for fulfilled.
    fn ask_no_more(&mut self, partition: PartitionId) {
        if let Entry::Occupied(mut asking) = self.asking.entry(partition) {
            *asking.get_mut() -= 1;
            if *asking.get() == 0 {
                asking.remove();
                self.to_compact.remove(&partition);
            }
        }
    }
}

#[cfg(test)]
mod tests;
