//! Background work: flush, compaction, removal of files. Each is a job that does one bounded step at a time.
//!
//! A full disk stops a job until it is woken again: by the next write that needs room, by the next flush, or by files
//! that were removed. Any other failure poisons the store: reads go on, writes are refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pleach_env::{Error, JobHandle, JobStep, JobWaker, Result};
use pleach_log::segment_path;

use super::inner::{Background, Inner, Wakers};
use super::sst_output::sst_path;
use crate::compaction::picker::{self, Situation};
use crate::compaction::worker::{Compactions, QUIET_AFTER, Worker};
use crate::keys::PartitionId;
use crate::manifest::manifest_path;
use crate::stats::add;
use crate::version::SubTree;

/// Memtables that use less are left to the log when the store is closed: some ten milliseconds for the next open.
const FLUSHED_AT_CLOSE_MIN: usize = 4 << 20;

/// Longest sleep of a compaction before it looks whether there is a hurry.
const NAP_MAX: Duration = Duration::from_millis(20);

/// Starts the jobs of a store.
pub(crate) fn start_jobs(inner: &Arc<Inner>) -> Vec<JobHandle> {
    let env = &inner.env;
    let flush = {
        let inner = Arc::clone(inner);
        env.spawn_job("pleach-flush", Box::new(move || inner.flush_step()))
    };
    let compactions = Arc::new(Compactions::new(Arc::clone(inner)));
    let worker = |_| env.spawn_job("pleach-compact", Box::new(Worker(Arc::clone(&compactions))));
    let workers: Vec<_> = (0..inner.options.compaction_worker_count()).map(worker).collect();
    let cleaner = {
        let inner = Arc::clone(inner);
        env.spawn_job("pleach-clean", Box::new(move || inner.clean_step()))
    };
    let wakers = Wakers {
        flush: flush.waker(),
        compaction: workers.iter().map(JobHandle::waker).collect(),
        cleaner: cleaner.waker(),
    };
    inner.trash.set_cleaner(wakers.cleaner.clone());
    let _set_once = inner.wakers.set(wakers);
    inner.wake_jobs();
    let mut jobs = vec![flush, cleaner];
    jobs.extend(workers);
    jobs
}

impl Inner {
    fn flush_step(&self) -> JobStep {
        if self.poison().is_some() {
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
        self.pressure.measure(&self.state.load().version, self.options.memtable_budget() as u64);
        self.background.lock().out_of_space = None;
        self.progress.notify_all();
        if let Some(wakers) = self.wakers.get() {
            wakers.compaction.iter().for_each(JobWaker::wake);
            wakers.cleaner.wake();
        }
    }

    pub(crate) fn background_failed(&self, error: Error) -> JobStep {
        if error.is_out_of_space() {
            if self.remove_obsolete() > 0 {
                return JobStep::Again;
            }
            self.background.lock().out_of_space = Some(error);
            self.progress.notify_all();
        } else {
            self.set_poison(error);
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
        self.background.lock().to_compact.insert(partition);
        let result = self.wait_for_background(|background| !background.to_compact.contains(&partition));
        if result.is_err() {
            self.background.lock().to_compact.remove(&partition);
        }
        result
    }

    /// Waits until the compactions have nothing left to do.
    pub(crate) fn wait_for_compactions(&self) -> Result<()> {
        let policy = self.options.policy(true);
        self.settling.fetch_add(1, Ordering::AcqRel);
        let settled = self.wait_for_background(|background| {
            let version = Arc::clone(&self.state.load().version);
            let now = self.compaction_clock();
            let is_settled = |tree: &SubTree| {
                let situation = Situation { tree, busy: &[], now };
                tree.jobs.is_empty() && picker::pick(&policy, situation).is_none()
            };
            background.partial_jobs == 0
                && version.partitions().all(|(_, p)| is_settled(&p.tree))
                && picker::pick_held_up(&version).is_none()
        });
        self.settling.fetch_sub(1, Ordering::AcqRel);
        settled
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
        let mut left = self.pacer.charge(bytes, self.env.now());
        while !left.is_zero() && !self.is_hurried() {
            let nap = left.min(NAP_MAX);
            self.env.sleep(nap);
            left -= nap;
        }
    }

    /// Whether somebody waits for compactions to end, or is slowed down by them.
    fn is_hurried(&self) -> bool {
        self.is_closed()
            || self.pressure.is_on(0.0)
            || self.settling.load(Ordering::Acquire) > 0
            || !self.background.lock().to_compact.is_empty()
    }

    /// Makes the log durable.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.check_writable()?;
        self.sync_writer(&mut self.writer.lock())
    }

    /// Waits for background work until `done` says so, or until it fails.
    pub(crate) fn wait_until(&self, done: impl Fn() -> bool) -> Result<()> {
        self.wait_for_background(|_| done())
    }

    fn wait_for_background(&self, done: impl Fn(&Background) -> bool) -> Result<()> {
        let mut background = self.background.lock();
        // What failed before is tried again: by now there may be room.
        background.out_of_space = None;
        while !done(&background) {
            if self.poison().is_some() {
                drop(background);
                return self.check_not_poisoned();
            }
            if let Some(error) = background.out_of_space.take() {
                return Err(error);
            }
            self.wake_jobs();
            self.progress.wait(&mut background);
        }
        Ok(())
    }

    /// Seals the memtable and waits until all memtables are flushed.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.check_writable()?;
        self.flush_memtables()
    }

    /// Flushes all memtables if the next open would take noticeably long to read their log again.
    pub(crate) fn flush_if_large(&self) -> Result<()> {
        let used: usize = self.state.load().memtables().map(|memtable| memtable.used_bytes()).sum();
        if used < FLUSHED_AT_CLOSE_MIN || self.poison().is_some() {
            return Ok(());
        }
        self.flush_memtables()
    }

    fn flush_memtables(&self) -> Result<()> {
        {
            let mut writer = self.writer.lock();
            if !writer.active.memtable.is_empty() {
                self.wait_for_flush()?;
                self.seal(&mut writer)?;
            }
        }
        self.wait_until(|| self.state.load().sealed.is_empty())
    }
}

impl Inner {
    /// Last sequence number that readers may see.
    pub(crate) fn last_visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }
}
