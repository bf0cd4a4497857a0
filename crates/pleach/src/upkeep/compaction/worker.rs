//! Workers: threads that do compactions step by step, from one common list of jobs.
//!
//! A worker takes the most urgent job off the list, does one step and puts it back. So small jobs overtake large ones, and
//! jobs on different runs, or in different sub-trees, run side by side. The job with the uppermost output stage is the most
//! urgent, because every read and every later merge waits for it. Every fourth step goes to the job of the last
//! output stage, so that a long merge ends however busy the others are. While garbage exceeds its soft limit, every second
//! step does. Every eighth step goes to the job that has waited longest, whatever its stage is, so that none waits for ever.
//!
//! `starts` decides which jobs are started.
//!
//! # Invariants
//! 1. *No run twice*: at most one job works on a run. The version records the runs of whole jobs, the list those of partial
//!    ones.
//! 2. *Nothing forgotten*: a failed whole job leaves the list, but the version still records it; it is resumed.
//!
//! # Concurrency
//! The list's lock is held while jobs are chosen and entered into the manifest, never during a step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pleach_env::sync::Mutex;
use pleach_env::{Job, JobStep, Result};

use super::job::{CompactionJob, FailedConversion, Progress};
use super::room::Waiting;
use super::starts::Search;
use crate::keys::PartitionId;
use crate::upkeep::Upkeep;
use crate::version::edit::RunId;

/// State that the workers of a store share.
pub(crate) struct Compactions {
    pub(super) upkeep: Arc<Upkeep>,
    pub(super) list: Mutex<List>,
}

/// A worker.
pub(crate) struct Worker(pub(crate) Arc<Compactions>);

pub(super) struct List {
    /// Jobs that wait for their next step. The first one has waited longest.
    pub(super) waiting: Vec<CompactionJob>,
    /// Outputs of whole jobs that wait or are in a step.
    pub(super) whole_outputs: BTreeSet<(PartitionId, RunId)>,
    /// Outputs of conversions that have failed.
    pub(super) failed_conversions: BTreeMap<(PartitionId, RunId), FailedConversion>,
    /// Partitions whose conversion waits for room.
    pub(super) waiting_for_room: Waiting,
    /// Runs of partial jobs, and of those on key ranges, that wait or are in a step.
    pub(super) partial_runs: Vec<ClaimedRun>,
    /// The last search for jobs to start, if it found none.
    pub(super) empty_search: Option<Search>,
    /// Whether the version may record jobs that are not on the list.
    pub(super) resumes: bool,
    /// The partition for which a job was started last while the list was not full, and while it was.
    pub(super) last_started: PartitionId,
    pub(super) last_urgent: PartitionId,
    /// Jobs started so far.
    pub(super) started: u64,
    /// Jobs taken off the list so far.
    taken: u64,
}

/// A run that a job works on which the version does not record.
pub(super) struct ClaimedRun {
    pub(super) partition: PartitionId,
    pub(super) run: RunId,
    /// The output stage of the job.
    pub(super) output_stage: u8,
}

/// The store is quiet when nothing was written for this long.
pub(crate) const QUIET_AFTER: Duration = Duration::from_secs(2);

/// One step in this many goes to the job of the last stage, so that it ends however busy the others are.
const LAST_STAGE_SHARE: u64 = 4;
/// The same while garbage exceeds its soft limit.
const LAST_STAGE_SHARE_IN_DEBT: u64 = 2;
/// One step in this many goes to the job that has waited longest. While garbage exceeds its soft limit, it is one of the last
/// stage's steps: flushed runs must be merged as fast as otherwise.
pub(super) const LONGEST_WAIT_SHARE: u64 = 8;

/// How often an idle worker checks the age of tombstones and the cost of reads.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

impl Job for Worker {
    fn step(&mut self) -> JobStep {
        let compactions = &self.0;
        if compactions.upkeep.ctx.status.poison().is_some() || compactions.upkeep.ctx.status.is_closed() {
            return JobStep::Idle;
        }
        match compactions.step() {
            Ok(step) => step,
            Err(error) => compactions.upkeep.background_failed(error),
        }
    }

    fn gives_way(&self) -> bool {
        true
    }
}

impl Compactions {
    pub(crate) fn new(upkeep: Arc<Upkeep>) -> Self {
        let list = List {
            waiting: Vec::new(),
            whole_outputs: BTreeSet::new(),
            failed_conversions: BTreeMap::new(),
            waiting_for_room: Waiting::new(),
            partial_runs: Vec::new(),
            empty_search: None,
            resumes: true,
            last_started: PartitionId(0),
            last_urgent: PartitionId(0),
            started: 0,
            taken: 0,
        };
        Self { upkeep, list: Mutex::new(list) }
    }

    fn step(&self) -> Result<JobStep> {
        let Some(mut job) = self.take_job()? else { return Ok(self.idle_step()) };
        let progress = job.step(&self.upkeep);
        if progress.is_err() {
            // Uncommitted output is dropped. If the version already records the job, it is resumed from its clip.
            job.abandon();
        }
        self.put_back(job, progress.as_ref().ok().copied());
        progress?;
        self.upkeep.note_progress();
        Ok(JobStep::Again)
    }

    /// The result of a step without a job: how long to sleep if nothing wakes the worker.
    fn idle_step(&self) -> JobStep {
        if !self.upkeep.is_quiet() {
            return JobStep::IdleFor(QUIET_AFTER);
        }
        if self.upkeep.version_set.ledger.lock().needs_rechecks() {
            JobStep::IdleFor(RECHECK_INTERVAL)
        } else {
            JobStep::Idle
        }
    }

    /// Starts the jobs that are due, and takes the most urgent one off the list.
    pub(super) fn take_job(&self) -> Result<Option<CompactionJob>> {
        let mut list = self.list.lock();
        self.resume(&mut list);
        let started = self.start_new(&mut list);
        // When a start fails for lack of space, the steps of waiting jobs may free some.
        if list.waiting.is_empty() {
            started?;
        }
        let stages: Vec<_> = list.waiting.iter().map(|job| job.output_stage).collect();
        let Some(next) = next_of(&stages, list.taken, self.upkeep.writes.pressure.has_garbage_debt()) else {
            return Ok(None);
        };
        list.taken += 1;
        Ok(Some(list.waiting.remove(next)))
    }

    /// Puts a job back on the list after a step, unless it has ended or failed; `progress` is `None` after an error.
    pub(super) fn put_back(&self, job: CompactionJob, progress: Option<Progress>) {
        let mut list = self.list.lock();
        if progress == Some(Progress::More) {
            list.waiting.push(job);
            return;
        }
        if let Some(output) = job.output() {
            list.whole_outputs.remove(&(job.partition, output));
            if progress.is_none() {
                // The version still records it.
                list.resumes = true;
                if let Some(failed) = job.failed_conversion() {
                    list.failed_conversions.insert((job.partition, output), failed);
                }
            }
        } else {
            let is_its = |claimed: &ClaimedRun| {
                claimed.partition == job.partition && job.claimed().contains(&claimed.run)
            };
            list.partial_runs.retain(|claimed| !is_its(claimed));
        }
        list.empty_search = None;
        let mut background = self.upkeep.background.lock();
        background.partial_runs = list.partial_runs.len();
        match job.range_request() {
            Some(number) if progress.is_some() => background.ranges.remove(number),
            // What is left of it is tried again.
            Some(number) => background.ranges.set_started(number, false),
            None => {}
        }
    }
}

/// The job whose turn it is, by the jobs' output stages, the one that has waited longest first. `taken` jobs had a turn before.
pub(super) fn next_of(stages: &[u8], taken: u64, has_garbage_debt: bool) -> Option<usize> {
    if taken % LONGEST_WAIT_SHARE == if has_garbage_debt { 2 } else { 1 } {
        return (!stages.is_empty()).then_some(0);
    }
    let share = if has_garbage_debt { LAST_STAGE_SHARE_IN_DEBT } else { LAST_STAGE_SHARE };
    let jobs = stages.iter().enumerate();
    // Of several in the same stage, the first one.
    let next = if taken.is_multiple_of(share) {
        jobs.rev().max_by_key(|(_, stage)| **stage)
    } else {
        jobs.min_by_key(|(_, stage)| **stage)
    };
    next.map(|(at, _)| at)
}

impl Upkeep {
    /// Now, in seconds since 1970, by which the age of tombstones is judged. It rises in steps, so that searches for due
    /// merges are repeated only once a step.
    pub(crate) fn compaction_clock(&self) -> u64 {
        let step = RECHECK_INTERVAL.as_secs();
        self.ctx.env.wall_clock().as_secs() / step * step
    }
}
