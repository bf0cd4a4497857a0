//! Workers: threads that do compactions step by step, from one common list of jobs.
//!
//! A worker takes the most urgent job off the list, does one step and puts it back, so that small jobs overtake large
//! ones and jobs on different runs, or in different sub-trees, go on side by side. Urgent is what lies in the upper
//! stages, because every read and every later merge waits for it. Every fourth step goes to the last stage, so that a long
//! merge ends however busy the others are; every other one, when garbage has outgrown the space target.
//!
//! Jobs are started no sooner than there is a worker for them, each partition in its turn: a job holds a file's buffer for
//! each of its inputs. Only one that is more urgent than all that wait is started beside them.
//!
//! # Invariants
//! 1. *No run twice*: a run is at work by one job at most. The version tells of whole-run jobs, the list of partial ones.
//! 2. *Nothing forgotten*: a job that failed is not on the list, but the version still has it; it is resumed.
//!
//! # Concurrency
//! The list's lock is held while jobs are chosen and entered into the manifest, never during a step.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use pleach_env::sync::Mutex;
use pleach_env::{Job, JobStep, Result};

use super::job::{CompactionJob, Progress};
use super::partial::PartialJob;
use super::requests::Requests;
use crate::keys::PartitionId;
use crate::picker::{self, Plan, Situation};
use crate::shape::STAGE_FIRST;
use crate::upkeep::Upkeep;
use crate::version::Version;
use crate::version::edit::RunId;

/// State that the workers of a store share.
pub(crate) struct Compactions {
    upkeep: Arc<Upkeep>,
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
    /// The version in which there was nothing more to start, the moment, and the stage from which on nothing was looked
    /// for.
    settled: (Weak<Version>, Moment, Option<u8>),
    /// Whether the version may know jobs that are not `known`.
    resumes: bool,
    /// The partition whose turn was the last.
    last: PartitionId,
    /// Jobs taken off the list so far.
    taken: u64,
}

/// Whether it is quiet, and the time by which tombstones are judged.
type Moment = (bool, u64);

/// A job to start.
struct Picked {
    partition: PartitionId,
    plan: Plan,
    /// The request that it fulfils.
    request: Option<u64>,
}

/// How long nothing must have been written until it is quiet.
pub(crate) const QUIET_AFTER: Duration = Duration::from_secs(2);

/// One step in so many goes to the job of the last stage, so that it ends however busy the others are.
const LAST_STAGE_SHARE: u64 = 4;

/// How often the age of tombstones, and what reads have cost, is looked at when nothing else happens.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(60);

enum AnyJob {
    Whole(CompactionJob),
    Partial(PartialJob),
}

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
            known: BTreeSet::new(),
            partial: Vec::new(),
            settled: Default::default(),
            resumes: true,
            last: PartitionId(0),
            taken: 0,
        };
        Self { upkeep, list: Mutex::new(list) }
    }

    fn step(&self) -> Result<JobStep> {
        let Some(mut job) = self.take_job()? else { return Ok(self.rest()) };
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

    /// Nothing to do: until when, if nobody wakes the worker.
    fn rest(&self) -> JobStep {
        if !self.upkeep.is_quiet() {
            return JobStep::IdleFor(QUIET_AFTER);
        }
        // Tombstones grow old, and reads of several runs may come to be worth a merge.
        if self.upkeep.version_set.ledger.lock().needs_rechecks() {
            JobStep::IdleFor(LOOKED_AT_EVERY)
        } else {
            JobStep::Idle
        }
    }

    /// The most urgent job, off the list; jobs that are due are started first.
    fn take_job(&self) -> Result<Option<AnyJob>> {
        let mut list = self.list.lock();
        self.resume(&mut list);
        let started = self.start_new(&mut list);
        if list.waiting.is_empty() {
            started?;
        }
        // What cannot be started for lack of space may be, once a job that waits has gone on.
        list.taken += 1;
        let share = if self.upkeep.writes.pressure.is_space_short() { 2 } else { LAST_STAGE_SHARE };
        let oldest_first = list.taken.is_multiple_of(share);
        let stages = list.waiting.iter().map(AnyJob::output_stage).enumerate();
        let urgent = if oldest_first {
            stages.max_by_key(|(_, stage)| *stage)
        } else {
            stages.min_by_key(|(_, stage)| *stage)
        };
        Ok(urgent.map(|(at, _)| list.waiting.swap_remove(at)))
    }

    /// The fate of a job after a step; `progress` is `None` after an error.
    fn put_back(&self, job: AnyJob, progress: Option<Progress>) {
        let mut list = self.list.lock();
        if progress == Some(Progress::More) {
            list.waiting.push(job);
            return;
        }
        let partition = job.partition();
        match &job {
            AnyJob::Whole(job) => {
                list.known.remove(&(partition, job.output()));
                // After a failure the version still has it.
                list.resumes |= progress.is_none();
            }
            AnyJob::Partial(job) => {
                let runs: Vec<_> = job.runs().collect();
                list.partial.retain(|(of, run)| *of != partition || !runs.contains(run));
            }
        }
        list.settled = Default::default();
        self.upkeep.background.lock().partial_jobs = list.partial.len();
    }

    /// Whether as many jobs wait as there are workers.
    fn is_full(&self, list: &List) -> bool {
        list.waiting.len() >= self.upkeep.ctx.options.compaction_worker_count()
    }

    /// Goes on with the jobs that the version knows and the list does not: of an earlier life of the store, or failed.
    fn resume(&self, list: &mut List) {
        if !list.resumes || self.is_full(list) {
            return;
        }
        let version = Arc::clone(&self.upkeep.version_set.state.load().version);
        let at_work = self.upkeep.version_set.ledger.lock().at_work();
        for partition in at_work {
            for meta in version.tree(partition).into_iter().flat_map(|tree| &tree.jobs) {
                if list.known.contains(&(partition, meta.output)) {
                    continue;
                }
                if self.is_full(list) {
                    return;
                }
                if let Some(job) = CompactionJob::resume(&self.upkeep, partition, meta.clone()) {
                    list.known.insert((partition, meta.output));
                    list.waiting.push(AnyJob::Whole(job));
                }
            }
        }
        list.resumes = false;
    }

    /// Starts what the pickers ask for in the newest version, as far as there are workers for it.
    fn start_new(&self, list: &mut List) -> Result<()> {
        loop {
            let (version, requests) = self.tend_requests(list);
            let moment = self.moment();
            self.upkeep.version_set.refresh_ledger_once(moment.1);
            let below = self.is_full(list).then(|| list.first_stage());
            // Reads may have made something due meanwhile: who waits for the end must not wait for the next look.
            let is_settled = self.upkeep.settling.load(Ordering::Acquire) == 0
                && std::ptr::eq(list.settled.0.as_ptr(), Arc::as_ptr(&version))
                && (list.settled.1, list.settled.2) == (moment, below);
            let is_answered = requests.open().next().is_none();
            if (is_settled && is_answered) || below.is_some_and(|below| below <= STAGE_FIRST) {
                return Ok(());
            }
            let (version, output) = self.upkeep.version_set.plan_basis();
            let Some(picked) = self.pick(list, &version, &requests, below) else {
                list.settled = (Arc::downgrade(&version), moment, below);
                return Ok(());
            };
            self.start(list, picked, output)?;
        }
    }

    /// What, besides the version, decides what there is to start.
    fn moment(&self) -> Moment {
        (self.upkeep.is_quiet(), self.upkeep.compaction_clock())
    }

    fn start(&self, list: &mut List, picked: Picked, output: RunId) -> Result<()> {
        let Picked { partition, plan, request } = picked;
        list.last = partition;
        match plan {
            Plan::Whole(plan) => {
                if let Some(job) = CompactionJob::start(&self.upkeep, partition, plan, output)? {
                    list.known.insert((partition, output));
                    list.waiting.push(AnyJob::Whole(job));
                }
                if let Some(number) = request {
                    self.upkeep.background.lock().to_compact.started(partition, number, output);
                }
            }
            Plan::Partial(plan) => {
                if let Some(job) = PartialJob::start(&self.upkeep, partition, plan) {
                    list.partial.extend(job.runs().map(|run| (partition, run)));
                    list.waiting.push(AnyJob::Partial(job));
                    self.upkeep.background.lock().partial_jobs = list.partial.len();
                }
            }
        }
        Ok(())
    }

    /// The next job to start: what was asked for first, then each partition in its turn. Only what goes into a stage below
    /// `below`, if that is given.
    ///
    /// Requires: the requests were looked at before the version, so that it has all that was to be merged.
    fn pick(&self, list: &List, version: &Version, requests: &Requests, below: Option<u8>) -> Option<Picked> {
        let is_quiet = self.upkeep.is_quiet();
        let policy = self.upkeep.ctx.options.policy(is_quiet);
        let now = self.upkeep.compaction_clock();
        let picked = |partition, plan: Plan, request| {
            let is_urgent = below.is_none_or(|below| plan.output_stage() < below);
            is_urgent.then_some(Picked { partition, plan, request })
        };
        let all = requests.open().find_map(|(id, number)| {
            let busy = list.busy(id);
            let situation = Situation { tree: version.tree(id)?, busy: &busy, now };
            picked(id, Plan::Whole(picker::pick_all(&policy, situation)?), Some(number))
        });
        let by_policy = || {
            let due = self.upkeep.version_set.ledger.lock().due(is_quiet, list.last, below);
            due.into_iter().filter(|id| !requests.is_open(*id)).find_map(|id| {
                let busy = list.busy(id);
                let situation = Situation { tree: version.tree(id)?, busy: &busy, now };
                picked(id, picker::pick(&policy, situation)?, None)
            })
        };
        let sparse = || {
            let sparse = self.upkeep.version_set.ledger.lock().in_sparse_files();
            sparse.into_iter().find_map(|id| {
                let plan = picker::pick_sparse(version.tree(id)?)?;
                picked(id, Plan::Whole(plan), None)
            })
        };
        all.or_else(by_policy).or_else(sparse)
    }

    /// Takes the requests that are fulfilled off their list. The newest version, and what is left of the requests.
    fn tend_requests(&self, list: &List) -> (Arc<Version>, Requests) {
        let policy = self.upkeep.ctx.options.policy(true);
        let mut background = self.upkeep.background.lock();
        // Loaded after the requests are seen: it has what was flushed before they were made.
        let version = Arc::clone(&self.upkeep.version_set.state.load().version);
        let any_went = background.to_compact.retain(|id, merge| {
            let Some(tree) = version.tree(id) else { return false };
            if let Some(output) = merge {
                return tree.jobs.iter().any(|job| job.output == output);
            }
            let busy = list.busy(id);
            let situation = Situation { tree, busy: &busy, now: 0 };
            !tree.jobs.is_empty() || !busy.is_empty() || picker::pick_all(&policy, situation).is_some()
        });
        let requests = background.to_compact.clone();
        drop(background);
        if any_went {
            self.upkeep.ctx.status.notify();
        }
        (version, requests)
    }
}

impl Upkeep {
    /// Now, in seconds since 1970, by which the age of tombstones is judged. It goes by steps, so that there is not
    /// something new to look at all the time.
    pub(crate) fn compaction_clock(&self) -> u64 {
        let step = LOOKED_AT_EVERY.as_secs();
        self.ctx.env.wall_clock().as_secs() / step * step
    }
}

impl List {
    /// The first stage into which a waiting job goes.
    fn first_stage(&self) -> u8 {
        self.waiting.iter().map(AnyJob::output_stage).min().unwrap_or(u8::MAX)
    }

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

    fn step(&mut self, upkeep: &Upkeep) -> Result<Progress> {
        match self {
            Self::Whole(job) => job.step(upkeep),
            Self::Partial(job) => job.step(upkeep),
        }
    }

    fn abandon(&mut self) {
        match self {
            Self::Whole(job) => job.abandon(),
            Self::Partial(job) => job.abandon(),
        }
    }
}
