//! Background work: flush, compaction, removal of files. Each is a job that does one bounded step at a time.
//!
//! A full disk stops a job until it is woken again: by the next write that needs room, by the next flush, or by files
//! that were removed. Any other failure poisons the store: reads go on, writes are refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_env::{Error, JobHandle, JobStep, Result};
use pleach_log::segment_path;

use super::inner::{Background, Inner, Wakers};
use super::sst_output::sst_path;
use crate::compaction::{CompactionJob, Progress, picker};
use crate::keys::PartitionId;
use crate::manifest::manifest_path;
use crate::stats::add;
use crate::version::{SubTree, Version};

/// Memtables that use less are left to the log when the store is closed: some ten milliseconds for the next open.
const FLUSHED_AT_CLOSE_MIN: usize = 4 << 20;

/// Starts the jobs of a store.
pub(crate) fn start_jobs(inner: &Arc<Inner>) -> Vec<JobHandle> {
    let env = &inner.env;
    let flush = {
        let inner = Arc::clone(inner);
        env.spawn_job("pleach-flush", Box::new(move || inner.flush_step()))
    };
    let compaction = {
        let mut worker = CompactionWorker::new(Arc::clone(inner));
        env.spawn_job("pleach-compact", Box::new(move || worker.step()))
    };
    let cleaner = {
        let inner = Arc::clone(inner);
        env.spawn_job("pleach-clean", Box::new(move || inner.clean_step()))
    };
    let wakers = Wakers { flush: flush.waker(), compaction: compaction.waker(), cleaner: cleaner.waker() };
    inner.trash.set_cleaner(wakers.cleaner.clone());
    let _set_once = inner.wakers.set(wakers);
    inner.wake_jobs();
    vec![flush, compaction, cleaner]
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
    fn note_progress(&self) {
        self.background.lock().out_of_space = None;
        self.progress.notify_all();
        if let Some(wakers) = self.wakers.get() {
            wakers.compaction.wake();
            wakers.cleaner.wake();
        }
    }

    fn background_failed(&self, error: Error) -> JobStep {
        if error.is_out_of_space() {
            self.background.lock().out_of_space = Some(error);
            self.progress.notify_all();
        } else {
            self.set_poison(error);
        }
        JobStep::Idle
    }

    /// Removes files that nothing needs any more.
    fn clean_step(&self) -> JobStep {
        for id in self.trash.take() {
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
        }
        JobStep::Idle
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
        let k = self.options.runs_per_stage;
        let is_settled = || {
            let version = Arc::clone(&self.state.load().version);
            let idle = |tree: &SubTree| tree.jobs.is_empty() && picker::pick_forest(tree, k).is_none();
            version.partitions().all(|(_, p)| idle(&p.tree)) && picker::pick_held_up(&version).is_none()
        };
        self.wait_until(is_settled)
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

/// Drives the compactions of a store, one step at a time; those of upper stages first.
struct CompactionWorker {
    inner: Arc<Inner>,
    jobs: Vec<CompactionJob>,
    /// The version in which there was nothing more to start.
    settled: Option<Arc<Version>>,
    resumed: bool,
}

impl CompactionWorker {
    fn new(inner: Arc<Inner>) -> Self {
        Self { inner, jobs: Vec::new(), settled: None, resumed: false }
    }

    fn step(&mut self) -> JobStep {
        if self.inner.poison().is_some() {
            return JobStep::Idle;
        }
        match self.try_step() {
            Ok(step) => step,
            Err(error) => {
                // Uncommitted work is dropped; the version knows the jobs, and they are resumed from their clips.
                self.jobs.iter_mut().for_each(CompactionJob::abandon);
                self.jobs.clear();
                self.resumed = false;
                self.settled = None;
                self.inner.background_failed(error)
            }
        }
    }

    fn try_step(&mut self) -> Result<JobStep> {
        if !self.resumed {
            self.resume()?;
        }
        self.start_new()?;
        // Small jobs overtake large ones: the one whose output lies highest goes on.
        let Some(job) = self.jobs.iter_mut().min_by_key(|job| job.output_stage()) else {
            return Ok(JobStep::Idle);
        };
        if job.step(&self.inner)? == Progress::Done {
            let output = (job.partition(), job.output());
            self.jobs.retain(|job| (job.partition(), job.output()) != output);
            self.settled = None;
        }
        self.inner.note_progress();
        Ok(JobStep::Again)
    }

    /// Goes on with the jobs that an earlier life of the store has begun.
    fn resume(&mut self) -> Result<()> {
        let version = Arc::clone(&self.inner.state.load().version);
        for (partition, state) in version.partitions() {
            for meta in &state.tree.jobs {
                self.jobs.extend(CompactionJob::resume(&self.inner, partition, meta.clone())?);
            }
        }
        self.resumed = true;
        Ok(())
    }

    /// Starts what the picker asks for in the newest version.
    fn start_new(&mut self) -> Result<()> {
        loop {
            let version = Arc::clone(&self.inner.state.load().version);
            let requests_done = self.requests_done(&version);
            if requests_done && self.settled.as_ref().is_some_and(|settled| Arc::ptr_eq(settled, &version)) {
                return Ok(());
            }
            let Some((partition, plan)) = self.pick(&version) else {
                self.settled = Some(version);
                return Ok(());
            };
            self.jobs.extend(CompactionJob::start(&self.inner, partition, plan)?);
        }
    }

    fn pick(&self, version: &Version) -> Option<(PartitionId, picker::Plan)> {
        let requested = self.inner.background.lock().to_compact.clone();
        let all = requested.iter().find_map(|id| Some((*id, picker::pick_all(version.tree(*id)?)?)));
        let k = self.inner.options.runs_per_stage;
        all.or_else(|| {
            version
                .partitions()
                .filter(|(id, _)| !requested.contains(id))
                .find_map(|(id, partition)| Some((id, picker::pick_forest(&partition.tree, k)?)))
                .or_else(|| picker::pick_held_up(version))
        })
    }

    /// Takes the requests that are fulfilled off the list; `true` when none is left.
    fn requests_done(&self, version: &Version) -> bool {
        let mut background = self.inner.background.lock();
        let before = background.to_compact.len();
        background.to_compact.retain(|id| {
            version.tree(*id).is_some_and(|tree| !tree.jobs.is_empty() || picker::pick_all(tree).is_some())
        });
        if background.to_compact.len() < before {
            self.inner.progress.notify_all();
        }
        background.to_compact.is_empty()
    }
}

impl Inner {
    /// Last sequence number that readers may see.
    pub(crate) fn last_visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }
}
