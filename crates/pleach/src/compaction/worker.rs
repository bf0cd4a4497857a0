//! Workers: threads that do compactions step by step, from one common list of jobs.
//!
//! A worker takes the most urgent job off the list, does one step and puts it back, so that small jobs overtake large
//! ones and jobs on different runs, or in different sub-trees, go on side by side. Urgent is what lies in the upper
//! stages, because every read and every later merge waits for it; but when garbage has outgrown the space target, the
//! merges of the oldest runs go first.
//!
//! # Invariants
//! 1. *No run twice*: a run is at work by one job at most. The version tells of whole-run jobs, the list of partial ones.
//! 2. *Nothing forgotten*: a job that failed is not on the list, but the version still has it; it is resumed.
//!
//! # Concurrency
//! The list's lock is held while jobs are chosen and entered into the manifest, never during a step.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pleach_env::{Job, JobStep, Result};

use super::job::{CompactionJob, Progress};
use super::partial::PartialJob;
use super::picker::{self, Plan, Situation};
use crate::db::Inner;
use crate::keys::PartitionId;
use crate::version::Version;
use crate::version::edit::RunId;

/// What the workers of a store share.
pub(crate) struct Compactions {
    inner: Arc<Inner>,
    list: Mutex<List>,
}

/// A worker.
pub(crate) struct Worker(pub(crate) Arc<Compactions>);

struct List {
    /// Jobs that wait for their next step.
    waiting: Vec<AnyJob>,
    /// Outputs of whole-run jobs that wait or are in a step.
    known: BTreeSet<(PartitionId, RunId)>,
    /// Runs at work by partial jobs that wait or are in a step.
    partial: Vec<(PartitionId, RunId)>,
    /// The version in which there was nothing more to start, and the moment.
    settled: (Weak<Version>, Moment),
    /// Whether the version may know jobs that are not `known`.
    resumes: bool,
}

/// Whether it is quiet, and the minute.
type Moment = (bool, u64);

/// How long nothing must have been written until it is quiet.
pub(crate) const QUIET_AFTER: Duration = Duration::from_secs(2);

/// How often the age of tombstones is looked at when nothing else happens.
const TOMBSTONES_CHECKED_EVERY: Duration = Duration::from_secs(60);

enum AnyJob {
    Whole(CompactionJob),
    Partial(PartialJob),
}

impl Job for Worker {
    fn step(&mut self) -> JobStep {
        let compactions = &self.0;
        if compactions.inner.poison().is_some() {
            return JobStep::Idle;
        }
        match compactions.step() {
            Ok(step) => step,
            Err(error) => compactions.inner.background_failed(error),
        }
    }

    fn gives_way(&self) -> bool {
        true
    }
}

impl Compactions {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        let list = List {
            waiting: Vec::new(),
            known: BTreeSet::new(),
            partial: Vec::new(),
            settled: Default::default(),
            resumes: true,
        };
        Self { inner, list: Mutex::new(list) }
    }

    fn step(&self) -> Result<JobStep> {
        let Some(mut job) = self.take_job()? else { return Ok(self.rest()) };
        let progress = job.step(&self.inner);
        if progress.is_err() {
            // What it has not committed is dropped. Is it known to the version, then it is resumed from its clip.
            job.abandon();
        }
        self.put_back(job, matches!(progress, Ok(Progress::More)));
        progress?;
        self.inner.note_progress();
        Ok(JobStep::Again)
    }

    /// Nothing to do: until when, if nobody wakes the worker.
    fn rest(&self) -> JobStep {
        if !self.inner.is_quiet() {
            return JobStep::IdleFor(QUIET_AFTER);
        }
        let version = &self.inner.state.load().version;
        // Tombstones grow old, and reads of several runs may come to be worth a merge.
        let waits = version.partitions().any(|(_, partition)| {
            let runs = &partition.tree.runs;
            runs.len() > 1 || runs.iter().any(|run| run.tombstones_since().is_some())
        });
        if waits { JobStep::IdleFor(TOMBSTONES_CHECKED_EVERY) } else { JobStep::Idle }
    }

    /// The most urgent job, off the list; jobs that are due are started first.
    fn take_job(&self) -> Result<Option<AnyJob>> {
        let mut list = self.list.lock();
        if list.resumes {
            self.resume(&mut list)?;
        }
        self.start_new(&mut list)?;
        let stages = list.waiting.iter().map(AnyJob::output_stage).enumerate();
        let urgent = if self.inner.pressure.is_space_short() {
            stages.max_by_key(|(_, stage)| *stage)
        } else {
            stages.min_by_key(|(_, stage)| *stage)
        };
        Ok(urgent.map(|(at, _)| list.waiting.swap_remove(at)))
    }

    fn put_back(&self, job: AnyJob, has_more: bool) {
        let mut list = self.list.lock();
        if has_more {
            list.waiting.push(job);
            return;
        }
        let partition = job.partition();
        match &job {
            AnyJob::Whole(job) => {
                list.known.remove(&(partition, job.output()));
                // After a failure the version still has it.
                list.resumes = true;
            }
            AnyJob::Partial(job) => {
                let runs: Vec<_> = job.runs().collect();
                list.partial.retain(|(of, run)| *of != partition || !runs.contains(run));
            }
        }
        list.settled = Default::default();
        self.inner.background.lock().partial_jobs = list.partial.len();
    }

    /// Goes on with the jobs that the version knows and the list does not: of an earlier life of the store, or failed.
    fn resume(&self, list: &mut List) -> Result<()> {
        let version = Arc::clone(&self.inner.state.load().version);
        for (partition, state) in version.partitions() {
            for meta in &state.tree.jobs {
                if list.known.contains(&(partition, meta.output)) {
                    continue;
                }
                if let Some(job) = CompactionJob::resume(&self.inner, partition, meta.clone())? {
                    list.known.insert((partition, meta.output));
                    list.waiting.push(AnyJob::Whole(job));
                }
            }
        }
        list.resumes = false;
        Ok(())
    }

    /// Starts what the pickers ask for in the newest version.
    fn start_new(&self, list: &mut List) -> Result<()> {
        loop {
            let version = Arc::clone(&self.inner.state.load().version);
            let requests_done = self.requests_done(list, &version);
            let moment = self.moment();
            let is_settled =
                std::ptr::eq(list.settled.0.as_ptr(), Arc::as_ptr(&version)) && list.settled.1 == moment;
            if requests_done && is_settled {
                return Ok(());
            }
            let (version, output) = self.inner.plan_basis();
            let Some((partition, plan)) = self.pick(list, &version) else {
                list.settled = (Arc::downgrade(&version), moment);
                return Ok(());
            };
            self.start(list, partition, plan, output)?;
        }
    }

    /// What, besides the version, decides what there is to start.
    fn moment(&self) -> Moment {
        let now = self.inner.env.wall_clock();
        (self.inner.is_quiet(), now.as_secs() / TOMBSTONES_CHECKED_EVERY.as_secs())
    }

    fn start(&self, list: &mut List, partition: PartitionId, plan: Plan, output: RunId) -> Result<()> {
        match plan {
            Plan::Whole(plan) => {
                // If it fails halfway, the version may have it.
                list.resumes = true;
                if let Some(job) = CompactionJob::start(&self.inner, partition, plan, output)? {
                    list.known.insert((partition, job.output()));
                    list.waiting.push(AnyJob::Whole(job));
                }
            }
            Plan::Partial(plan) => {
                if let Some(job) = PartialJob::start(&self.inner, partition, plan)? {
                    list.partial.extend(job.runs().map(|run| (partition, run)));
                    list.waiting.push(AnyJob::Partial(job));
                    self.inner.background.lock().partial_jobs = list.partial.len();
                }
            }
        }
        Ok(())
    }

    fn pick(&self, list: &List, version: &Version) -> Option<(PartitionId, Plan)> {
        let requested = self.inner.background.lock().to_compact.clone();
        let policy = self.inner.options.policy(self.inner.is_quiet());
        let now = self.inner.env.wall_clock().as_secs();
        let all = requested.iter().find_map(|&id| {
            let busy = list.busy(id);
            let situation = Situation { tree: version.tree(id)?, busy: &busy, now };
            Some((id, Plan::Whole(picker::pick_all(&policy, situation)?)))
        });
        let by_policy = || {
            version.partitions().filter(|(id, _)| !requested.contains(id)).find_map(|(id, partition)| {
                let busy = list.busy(id);
                let situation = Situation { tree: &partition.tree, busy: &busy, now };
                Some((id, picker::pick(&policy, situation)?))
            })
        };
        let held_up = || picker::pick_held_up(version).map(|(id, plan)| (id, Plan::Whole(plan)));
        all.or_else(by_policy).or_else(held_up)
    }

    /// Takes the requests that are fulfilled off their list; `true` when none is left.
    fn requests_done(&self, list: &List, version: &Version) -> bool {
        let policy = self.inner.options.policy(true);
        let mut background = self.inner.background.lock();
        let before = background.to_compact.len();
        background.to_compact.retain(|id| {
            version.tree(*id).is_some_and(|tree| {
                let busy = list.busy(*id);
                let situation = Situation { tree, busy: &busy, now: 0 };
                !tree.jobs.is_empty() || !busy.is_empty() || picker::pick_all(&policy, situation).is_some()
            })
        });
        if background.to_compact.len() < before {
            self.inner.progress.notify_all();
        }
        background.to_compact.is_empty()
    }
}

impl List {
    /// Runs of the partition that partial jobs are at work on.
    fn busy(&self, partition: PartitionId) -> Vec<RunId> {
        self.partial.iter().filter(|(of, _)| *of == partition).map(|(_, run)| *run).collect()
    }
}

impl AnyJob {
    fn partition(&self) -> PartitionId {
        match self {
            Self::Whole(job) => job.partition(),
            Self::Partial(job) => job.partition(),
        }
    }

    fn output_stage(&self) -> u8 {
        match self {
            Self::Whole(job) => job.output_stage(),
            Self::Partial(job) => job.output_stage(),
        }
    }

    fn step(&mut self, inner: &Inner) -> Result<Progress> {
        match self {
            Self::Whole(job) => job.step(inner),
            Self::Partial(job) => job.step(inner),
        }
    }

    fn abandon(&mut self) {
        match self {
            Self::Whole(job) => job.abandon(),
            Self::Partial(job) => job.abandon(),
        }
    }
}
