//! Upkeep: the background jobs for flush, compaction and removal of files. Each does one bounded step at a time.
//!
//! After a shortage, such as a full disk, a job sleeps until it is woken: by a write that waits for memory, by the next flush,
//! or by the drop of a partition. Any other failure poisons the store: reads work, writes are refused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use pleach_env::sync::Mutex;
use pleach_env::{Error, ErrorKind, Job, JobHandle, JobStep, JobWaker, Result};
use pleach_table::{Encoders, FrameCache};

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

mod cleaner;
mod compaction;
pub(crate) mod filters;
mod flush;
mod relocation;
mod requested;
mod sst_output;
mod trainer;
mod value_files;

use cleaner::Cleaner;
use compaction::worker::{Compactions, QUIET_AFTER, Worker};
use compaction::{Pacer, RangeRequests, Requests};
use relocation::{RelocationState, Relocator};
use trainer::Trainer;

pub(crate) use sst_output::{NewEntry, SstOutput};
use value_files::RoomClaim;

/// A close does not flush memtables of less than this. The next open replays them from the log in some milliseconds; on a
/// full disk it writes them to the space of the reserve.
const FLUSHED_AT_CLOSE_MIN: usize = TAIL_BYTES_MAX;

/// A conversion is repeated only if a pass has left less than the one before by this part (arbitrary).
const PASS_MIN_PART: u64 = 64;

/// Starts the jobs of a store: all of them, or none if the system has no thread for one. Without a thread that trains while
/// reading, SSTs keep the index with which they were written.
pub(crate) fn start_jobs(upkeep: &Arc<Upkeep>) -> Result<Vec<JobHandle>> {
    let step_of = |step: fn(&Upkeep) -> JobStep| {
        let upkeep = Arc::clone(upkeep);
        move || step(&upkeep)
    };
    let flush = spawn(upkeep, "pleach-flush", step_of(Upkeep::flush_step))?;
    let compactions = Arc::new(Compactions::new(Arc::clone(upkeep)));
    let worker = |_| spawn(upkeep, "pleach-compact", Worker(Arc::clone(&compactions)));
    let workers =
        (0..upkeep.ctx.options.compaction_worker_count()).map(worker).collect::<Result<Vec<_>>>()?;
    let cleaner = spawn(upkeep, "pleach-clean", Cleaner::new(upkeep))?;
    let relocator = upkeep
        .may_have_values()
        .then(|| spawn(upkeep, "pleach-values", Relocator::new(upkeep)))
        .transpose()?;
    // The last one, because it may be without a thread.
    let is_adaptive = upkeep.ctx.options.is_adaptive();
    let trainer = is_adaptive.then(|| spawn(upkeep, "pleach-train", Trainer::new(upkeep)));
    let trainer = trainer.and_then(Result::ok);
    let wakers = Wakers {
        flush: flush.waker(),
        compaction: workers.iter().map(JobHandle::waker).collect(),
        cleaner: cleaner.waker(),
        trainer: trainer.as_ref().map(JobHandle::waker),
        relocator: relocator.as_ref().map(JobHandle::waker),
    };
    upkeep.version_set.trash.set_cleaner(wakers.cleaner.clone());
    upkeep.ctx.value_cache.set_populator(wakers.cleaner.clone());
    upkeep.ctx.status.set_wakers(wakers);
    upkeep.ctx.status.wake_jobs();
    let mut jobs = vec![flush, cleaner];
    jobs.extend(workers);
    jobs.extend(trainer);
    jobs.extend(relocator);
    Ok(jobs)
}

fn spawn(upkeep: &Arc<Upkeep>, name: &'static str, job: impl Job + 'static) -> Result<JobHandle> {
    let job = Guarded { upkeep: Arc::clone(upkeep), name, job };
    let failed = |e| Error::io("start a background thread (ulimit -u limits them)", &upkeep.ctx.dir, e);
    upkeep.ctx.env.spawn_job(name, Box::new(job)).map_err(failed)
}

/// A job whose panic poisons the store: otherwise writers would wait forever for its work.
struct Guarded<J> {
    upkeep: Arc<Upkeep>,
    name: &'static str,
    job: J,
}

impl<J: Job> Job for Guarded<J> {
    /// A panic may leave state half changed. Nothing writes that to disk, because a poisoned store writes nothing.
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

/// The state that the jobs share.
pub(crate) struct Upkeep {
    pub(crate) ctx: Arc<Context>,
    pub(crate) version_set: Arc<VersionSet>,
    pub(crate) writes: Arc<WritePath>,
    pub(crate) cache: Arc<FrameCache>,
    /// Shared by the learned indexes of the SSTs.
    pub(crate) encoders: Encoders,
    /// SSTs in progress that will be trained when they are finished.
    trained_while_writing: AtomicUsize,
    /// Flushed memtables that snapshots, ranges or values may still pin. Leaf lock.
    pub(crate) flushed_memtables: Mutex<Vec<Weak<Memtable>>>,
    /// Leaf lock.
    relocation: Mutex<RelocationState>,
    /// Bytes of copies of values that no version has yet.
    copies: Arc<AtomicU64>,
    /// The bytes that compactions may write in a second.
    pacer: Pacer,
    /// Threads that wait for all compactions to end.
    settle_waiters: AtomicUsize,
    /// Leaf lock.
    pub(crate) background: Mutex<Background>,
}

/// State of background work.
#[derive(Default)]
pub(crate) struct Background {
    /// Partitions whose runs are to be merged into one.
    pub(crate) to_compact: Requests,
    /// Key ranges that are to be merged.
    pub(crate) ranges: RangeRequests,
    /// Threads that wait for each of the partitions to compact.
    pub(crate) waiters: BTreeMap<PartitionId, usize>,
    /// Threads that convert each of them, in one pass or several.
    pub(crate) converters: BTreeMap<PartitionId, usize>,
    /// Bytes of values that the last conversion of each of them has left for want of room.
    values_left: BTreeMap<PartitionId, u64>,
    /// Number of runs in partial compactions, which the version does not record.
    pub(crate) partial_runs: usize,
}

impl Upkeep {
    /// The upkeep of a store just opened. It does nothing before [`start_jobs`].
    pub(crate) fn new(
        ctx: &Arc<Context>,
        version_set: &Arc<VersionSet>,
        writes: &Arc<WritePath>,
        cache: &Arc<FrameCache>,
        encoders: Encoders,
    ) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            version_set: Arc::clone(version_set),
            writes: Arc::clone(writes),
            cache: Arc::clone(cache),
            encoders,
            trained_while_writing: AtomicUsize::new(0),
            flushed_memtables: Mutex::new(Vec::new()),
            relocation: Mutex::default(),
            copies: Arc::default(),
            pacer: Pacer::new(ctx.options.compaction_bytes_per_second),
            settle_waiters: AtomicUsize::new(0),
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

    /// Wakes waiting writers and the other jobs after a flush or a step.
    pub(crate) fn note_progress(&self) {
        self.writes.measure_pressure();
        self.ctx.status.forget_shortage();
        self.ctx.status.notify();
        if let Some(wakers) = self.ctx.status.wakers() {
            wakers.compaction.iter().for_each(JobWaker::wake);
            wakers.cleaner.wake();
            wakers.trainer.iter().for_each(JobWaker::wake);
            wakers.relocator.iter().for_each(JobWaker::wake);
        }
    }

    /// What a job does after a failed step. On a full disk it tries again if files could be removed, but only once for each
    /// version: the removed files may be those of the failed step itself.
    pub(crate) fn background_failed(&self, error: Error) -> JobStep {
        if error.kind() == ErrorKind::Closed {
            return JobStep::Idle;
        }
        if error.is_shortage() {
            if self.version_set.remove_obsolete() > 0
                && self.ctx.status.may_retry_in(&self.version_set.state.load().version)
            {
                self.ctx.status.notify(); // The failed job does not work any more.
                return JobStep::Again;
            }
            self.ctx.status.report_shortage(error);
        } else {
            self.ctx.status.set_poison(error);
        }
        JobStep::Idle
    }

    /// Requests that the partition's runs are merged into one, with separated values in the order of keys, and waits until they
    /// are. If the space target leaves no room for all copies, it is done in several passes, and space is freed between them.
    ///
    /// Calls `progress` with the bytes of the values that this pass has passed, and those of all, and stops waiting if that
    /// returns false. Returns the bytes of values that were left for want of room.
    pub(crate) fn convert_partition(
        &self,
        partition: PartitionId,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<u64> {
        *self.background.lock().converters.entry(partition).or_default() += 1;
        let done = self.convert_in_passes(partition, progress);
        if self.background.lock().end_converter(partition) {
            self.want_space(partition, 0);
        }
        done
    }

    fn convert_in_passes(
        &self,
        partition: PartitionId,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<u64> {
        let mut goes_on = true;
        let mut tell = |passed, all| {
            goes_on = goes_on && progress(passed, all);
            goes_on
        };
        let now = || self.passed_values(partition);
        // What the last pass that was not stopped has left.
        let mut left_before = None;
        loop {
            let mut watch = || {
                let (passed, all) = now();
                tell(passed, all)
            };
            let left = self.request(partition, true, &mut watch)?.or(left_before).unwrap_or(0);
            // Every pass writes all pointers, so each has to leave noticeably less than the one before.
            let is_last =
                left == 0 || left_before.is_some_and(|before| left >= before - before / PASS_MIN_PART);
            // A pass may have been so short that nothing was told of it.
            let (_, all) = now();
            if !tell(all, all) || is_last || !tell(0, all) {
                return Ok(left);
            }
            left_before = Some(left);
            self.make_room_for_values(partition, left, &mut || tell(0, all))?;
            if !tell(0, all) {
                return Ok(left);
            }
        }
    }

    /// Bytes of the values that the requested merge of a partition has passed, and those of all values.
    fn passed_values(&self, partition: PartitionId) -> (u64, u64) {
        let output = self.background.lock().to_compact.output(partition);
        let state = self.version_set.state.load();
        let Some(tree) = state.version.tree(partition) else { return (0, 0) };
        let passed = output.and_then(|output| tree.run(output)).map_or(0, |run| run.totals.value_bytes);
        (passed, tree.sum(|run| run.totals.value_bytes))
    }

    /// Waits until `is_done`, or until `watch` returns false. That is called whenever the version has changed. Both are called
    /// without a lock: they may call the system.
    fn wait_watched(&self, is_done: impl Fn() -> bool, watch: &mut dyn FnMut() -> bool) -> Result<()> {
        // A strong reference would pin the inputs of compactions.
        let newest = || Arc::downgrade(&self.version_set.state.load().version);
        loop {
            let version = newest();
            self.ctx.status.forget_shortage(); // The failed step is retried.
            loop {
                let seen = self.ctx.status.changes();
                if is_done() {
                    return Ok(());
                }
                if !Weak::ptr_eq(&version, &newest()) {
                    break;
                }
                self.ctx.status.wait_for_change(seen)?;
            }
            if !watch() {
                return Ok(());
            }
        }
    }

    /// Waits until no compaction is at work or due.
    pub(crate) fn wait_for_compactions(&self) -> Result<()> {
        self.settle_waiters.fetch_add(1, Ordering::AcqRel);
        self.version_set.refresh_ledger(self.compaction_clock());
        let settled = self.wait_until_settled();
        self.settle_waiters.fetch_sub(1, Ordering::AcqRel);
        settled
    }

    fn wait_until_settled(&self) -> Result<()> {
        self.ctx.status.forget_shortage();
        loop {
            // The pickers run without the lock, because commit leaders take it and must not wait for them.
            let seen = self.ctx.status.changes();
            let version = Arc::clone(&self.version_set.state.load().version);
            let is_settled = self.is_settled(&version);
            let mut waiting = self.ctx.status.lock_waiting();
            if waiting.changes() != seen || !Arc::ptr_eq(&version, &self.version_set.state.load().version) {
                continue;
            }
            if is_settled && self.background.lock().partial_runs == 0 {
                return Ok(());
            }
            drop(version);
            self.ctx.status.wait_for_progress(&mut waiting)?;
        }
    }

    /// Whether no compaction is at work, or due when it is quiet, and no file of values is to be cleaned.
    fn is_settled(&self, version: &Version) -> bool {
        let (is_busy, sparse) = {
            let ledger = self.version_set.ledger.lock();
            (ledger.is_busy(), ledger.in_sparse_files())
        };
        if !self.is_relocation_settled(version) {
            return false;
        }
        let has_plan = |id| version.tree(id).is_some_and(|tree| picker::pick_sparse(tree, &[]).is_some());
        !is_busy && !sparse.into_iter().any(has_plan)
    }

    /// Whether the store has separated values, in SSTs or in the log, or makes them.
    fn may_have_values(&self) -> bool {
        let state = self.version_set.state.load();
        self.ctx.options.separates()
            || !state.version.values.is_empty()
            || state.memtables().any(|memtable| memtable.has_separated())
    }

    /// Whether nothing has been written for a while, or a thread waits for the compactions to end.
    pub(crate) fn is_quiet(&self) -> bool {
        self.has_settle_waiters() || self.is_idle()
    }

    /// Whether a thread waits for the compactions to end.
    fn has_settle_waiters(&self) -> bool {
        self.settle_waiters.load(Ordering::Acquire) > 0
    }

    /// Whether no memtable has been switched for a while.
    fn is_idle(&self) -> bool {
        let switched_at = Duration::from_nanos(self.writes.switched_at_ns.load(Ordering::Relaxed));
        self.ctx.env.now() >= switched_at + QUIET_AFTER
    }

    /// Sleeps as the compactions' budget demands after `bytes` of output, unless a thread waits for compactions.
    pub(crate) fn keep_pace(&self, bytes: u64) {
        if !self.pacer.is_on() || self.is_hurried() {
            return;
        }
        self.ctx.sleep_unless(self.pacer.charge(bytes, self.ctx.env.now()), || self.is_hurried());
    }

    /// Whether a thread waits for compactions to end, or writers are slowed down.
    fn is_hurried(&self) -> bool {
        self.ctx.status.is_closed()
            || self.writes.pressure.is_on(0.0)
            || self.settle_waiters.load(Ordering::Acquire) > 0
            || self.background.lock().has_requests()
    }

    /// Switches the memtable and waits until all that has been written so far is flushed.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.ctx.status.check_writable()?;
        self.flush_memtables()
    }

    /// Flushes all memtables if the next open would take noticeably long to replay them.
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
            let mut writer = self.writes.lock();
            self.ctx.status.check_not_ended()?;
            self.ctx.status.check_not_poisoned()?;
            if !writer.memtable.is_empty() {
                self.writes.wait_for_flush()?;
                self.writes.switch_memtable(&mut writer)?;
            }
            writer.next_seq - 1
        };
        // Do not wait for later memtables: other threads may keep writing.
        self.ctx.status.wait_until(|| {
            self.version_set.state.load().immutable.iter().all(|m| m.memtable.last_seq() > last_seq)
        })
    }
}

impl Background {
    /// Whether a thread waits for a merge that it has requested.
    fn has_requests(&self) -> bool {
        !self.to_compact.is_empty() || !self.ranges.is_empty()
    }

    /// Requests that the partition's runs are merged into one.
    fn begin_wait(&mut self, partition: PartitionId, converts: bool) {
        self.to_compact.insert(partition, converts);
        *self.waiters.entry(partition).or_default() += 1;
    }

    /// Ends what [`Background::begin_wait`] began. A failed request stays until its last waiter has seen the failure, so that
    /// no waiter takes it for fulfilled. Returns the bytes of values that a conversion has left since then.
    fn end_wait(&mut self, partition: PartitionId) -> Option<u64> {
        let left = self.values_left.get(&partition).copied();
        if let Entry::Occupied(mut waiters) = self.waiters.entry(partition) {
            *waiters.get_mut() -= 1;
            if *waiters.get() == 0 {
                waiters.remove();
                self.to_compact.remove(partition);
                self.values_left.remove(&partition);
            }
        }
        left
    }

    /// Notes that a thread no longer converts a partition. Returns whether it was the last one.
    fn end_converter(&mut self, partition: PartitionId) -> bool {
        let Entry::Occupied(mut converters) = self.converters.entry(partition) else { return true };
        *converters.get_mut() -= 1;
        let is_last = *converters.get() == 0;
        if is_last {
            converters.remove();
        }
        is_last
    }

    /// Notes the bytes of values that a conversion has left, for those who wait for it.
    fn note_conversion(&mut self, partition: PartitionId, left: u64) {
        if self.waiters.contains_key(&partition) {
            self.values_left.insert(partition, left);
        }
    }
}

#[cfg(test)]
mod tests;
