//! Background work: flush, compaction, removal of files. Each is a job that does one bounded step at a time.
//!
//! A shortage, such as a full disk, stops a job until it is woken again: by the next write that needs room, by the next
//! flush, or by the removal of files. Any other failure poisons the store: reads go on, writes are refused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use pleach_env::sync::Mutex;
use pleach_env::{Error, ErrorKind, Job, JobHandle, JobStep, JobWaker, Result};
use pleach_table::FrameCache;

use crate::context::Context;
use crate::keys::PartitionId;
use crate::memtable::Memtable;
use crate::picker;
use crate::status::Wakers;
use crate::trace;
use crate::version::Version;
use crate::version_set::VersionSet;
use crate::version_set::reserve::TAIL_BYTES_MAX;
use crate::write_path::WritePath;

mod compaction;
pub(crate) mod filters;
mod flush;
mod sst_output;

use compaction::worker::{Compactions, QUIET_AFTER, Worker};
use compaction::{Pacer, Requests};
pub(crate) use sst_output::{NewEntry, SstOutput};

/// Memtables that use less are left to the log when the store is closed: some milliseconds for the next open, which must
/// find room for them in the reserve when the disk is full.
const FLUSHED_AT_CLOSE_MIN: usize = TAIL_BYTES_MAX;

/// Starts the jobs of a store: all of them, or none where the system has no thread for one.
pub(crate) fn start_jobs(upkeep: &Arc<Upkeep>) -> Result<Vec<JobHandle>> {
    let flush = {
        let upkeep = Arc::clone(upkeep);
        move || upkeep.flush_step()
    };
    let flush = spawn(upkeep, "pleach-flush", flush)?;
    let compactions = Arc::new(Compactions::new(Arc::clone(upkeep)));
    let worker = |_| spawn(upkeep, "pleach-compact", Worker(Arc::clone(&compactions)));
    let workers =
        (0..upkeep.ctx.options.compaction_worker_count()).map(worker).collect::<Result<Vec<_>>>()?;
    let cleaner = {
        let upkeep = Arc::clone(upkeep);
        move || upkeep.clean_step()
    };
    let cleaner = spawn(upkeep, "pleach-clean", cleaner)?;
    let wakers = Wakers {
        flush: flush.waker(),
        compaction: workers.iter().map(JobHandle::waker).collect(),
        cleaner: cleaner.waker(),
    };
    upkeep.version_set.trash.set_cleaner(wakers.cleaner.clone());
    upkeep.ctx.status.set_wakers(wakers);
    upkeep.ctx.status.wake_jobs();
    let mut jobs = vec![flush, cleaner];
    jobs.extend(workers);
    Ok(jobs)
}

fn spawn(upkeep: &Arc<Upkeep>, name: &'static str, job: impl Job + 'static) -> Result<JobHandle> {
    let job = Guarded { upkeep: Arc::clone(upkeep), name, job };
    let failed = |e| Error::io("start a background thread (ulimit -u limits them)", &upkeep.ctx.dir, e);
    upkeep.ctx.env.spawn_job(name, Box::new(job)).map_err(failed)
}

/// A job whose panic poisons the store: otherwise writers would wait forever for what it will never do.
struct Guarded<J> {
    upkeep: Arc<Upkeep>,
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
            self.upkeep.ctx.status.set_poison(Error::new(ErrorKind::Poisoned, message));
            JobStep::Idle
        })
    }

    fn gives_way(&self) -> bool {
        self.job.gives_way()
    }
}

/// See the module's text.
pub(crate) struct Upkeep {
    pub(crate) ctx: Arc<Context>,
    pub(crate) version_set: Arc<VersionSet>,
    pub(crate) writes: Arc<WritePath>,
    pub(crate) cache: Arc<FrameCache>,
    /// Flushed memtables. Those that still exist are pinned by snapshots, ranges or values. Leaf lock.
    pub(crate) flushed_memtables: Mutex<Vec<Weak<Memtable>>>,
    /// The bytes that compactions may write in a second.
    pacer: Pacer,
    /// How many wait for the compactions to end.
    settling: AtomicUsize,
    /// Work that somebody waits for. Leaf lock.
    pub(crate) background: Mutex<Background>,
}

/// State of background work.
#[derive(Default)]
pub(crate) struct Background {
    /// Partitions whose runs somebody waits to see merged into one.
    pub(crate) to_compact: Requests,
    /// How many wait for each of them.
    pub(crate) asking: BTreeMap<PartitionId, usize>,
    /// Partial compactions in progress, which the version does not record.
    pub(crate) partial_jobs: usize,
}

impl Upkeep {
    /// The upkeep of a store just opened. Nothing is done before [`start_jobs`].
    pub(crate) fn new(
        ctx: &Arc<Context>,
        version_set: &Arc<VersionSet>,
        writes: &Arc<WritePath>,
        cache: &Arc<FrameCache>,
    ) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            version_set: Arc::clone(version_set),
            writes: Arc::clone(writes),
            cache: Arc::clone(cache),
            flushed_memtables: Mutex::new(Vec::new()),
            pacer: Pacer::new(ctx.options.compaction_bytes_per_second),
            settling: AtomicUsize::new(0),
            background: Mutex::new(Background::default()),
        }
    }

    fn flush_step(&self) -> JobStep {
        if self.ctx.status.poison().is_some() {
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

    /// Tells waiting writers, and the other jobs, that something has changed.
    pub(crate) fn note_progress(&self) {
        self.writes.measure_pressure();
        self.ctx.status.forget_shortage();
        self.ctx.status.notify();
        if let Some(wakers) = self.ctx.status.wakers() {
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
            if self.version_set.remove_obsolete() > 0
                && self.ctx.status.may_retry_in(&self.version_set.state.load().version)
            {
                self.ctx.status.notify(); // The failed job is off the list of those at work.
                return JobStep::Again;
            }
            self.ctx.status.report_shortage(error);
        } else {
            self.ctx.status.set_poison(error);
        }
        JobStep::Idle
    }

    /// Removes files that nothing needs any more, and then sees to the filters.
    fn clean_step(&self) -> JobStep {
        self.version_set.remove_obsolete();
        self.tend_filters()
    }

    /// Asks for the partition's runs to be merged into one, and waits until they are.
    pub(crate) fn compact_partition(&self, partition: PartitionId) -> Result<()> {
        self.background.lock().ask_for(partition);
        let result = self.ctx.status.wait_until(|| !self.background.lock().to_compact.contains(&partition));
        self.background.lock().ask_no_more(partition);
        result
    }

    /// Waits until the compactions have nothing left to do.
    pub(crate) fn wait_for_compactions(&self) -> Result<()> {
        self.settling.fetch_add(1, Ordering::AcqRel);
        self.version_set.refresh_ledger(self.compaction_clock());
        let settled = self.wait_until_settled();
        self.settling.fetch_sub(1, Ordering::AcqRel);
        settled
    }

    fn wait_until_settled(&self) -> Result<()> {
        self.ctx.status.forget_shortage();
        loop {
            // The pickers take their time: commit leaders, who need the lock, are not to wait for them.
            let version = Arc::clone(&self.version_set.state.load().version);
            let is_settled = self.is_settled(&version);
            let mut waiting = self.ctx.status.lock_waiting();
            if !Arc::ptr_eq(&version, &self.version_set.state.load().version) {
                continue;
            }
            if is_settled && self.background.lock().partial_jobs == 0 {
                return Ok(());
            }
            drop(version);
            self.ctx.status.wait_for_progress(&mut waiting)?;
        }
    }

    /// Whether, where nothing is written, no compaction is at work or due.
    fn is_settled(&self, version: &Version) -> bool {
        let (is_busy, sparse) = {
            let ledger = self.version_set.ledger.lock();
            (ledger.is_busy(), ledger.in_sparse_files())
        };
        let has_plan = |id| version.tree(id).is_some_and(|tree| picker::pick_sparse(tree).is_some());
        !is_busy && !sparse.into_iter().any(has_plan)
    }

    /// Whether nothing has been written for a while, or somebody waits for the compactions to end.
    pub(crate) fn is_quiet(&self) -> bool {
        let switched_at = Duration::from_nanos(self.writes.switched_at_ns.load(Ordering::Relaxed));
        self.settling.load(Ordering::Acquire) > 0 || self.ctx.env.now() >= switched_at + QUIET_AFTER
    }

    /// Sleeps as the budget of compactions demands after `bytes` of output, unless there is a hurry.
    pub(crate) fn keep_pace(&self, bytes: u64) {
        if !self.pacer.is_on() || self.is_hurried() {
            return;
        }
        self.ctx.sleep_unless(self.pacer.charge(bytes, self.ctx.env.now()), || self.is_hurried());
    }

    /// Whether somebody waits for compactions to end, or is slowed down by them.
    fn is_hurried(&self) -> bool {
        self.ctx.status.is_closed()
            || self.writes.pressure.is_on(0.0)
            || self.settling.load(Ordering::Acquire) > 0
            || !self.background.lock().to_compact.is_empty()
    }

    /// Seals the memtable and waits until all that has been written so far is flushed.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.ctx.status.check_writable()?;
        self.flush_memtables()
    }

    /// Flushes all memtables if the next open would take noticeably long to read their log again.
    pub(crate) fn flush_if_large(&self) -> Result<()> {
        let used: usize =
            self.version_set.state.load().memtables().map(|memtable| memtable.used_bytes()).sum();
        if used < FLUSHED_AT_CLOSE_MIN || self.ctx.status.poison().is_some() {
            return Ok(());
        }
        self.flush_memtables()
    }

    fn flush_memtables(&self) -> Result<()> {
        let last_seq = {
            let mut writer = self.writes.writer.lock();
            self.ctx.status.check_not_ended()?;
            if !writer.memtable.is_empty() {
                self.writes.wait_for_flush()?;
                self.writes.switch_memtable(&mut writer)?;
            }
            writer.next_seq - 1
        };
        // Later memtables are not waited for: other threads may go on writing.
        self.ctx.status.wait_until(|| {
            self.version_set.state.load().immutable.iter().all(|m| m.memtable.last_seq() > last_seq)
        })
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
