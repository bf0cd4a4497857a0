//! Starting compactions: which jobs join the workers' list.
//!
//! A job holds a file's buffer for each of its inputs, so it is started only when there is a worker for it. While as many
//! jobs wait as there are workers, only a job that is more urgent than all of them is started: one that goes to the uppermost
//! stage, and each eighth time one that goes to the lowest stage of those. Partitions take turns.
//!
//! # Requests
//! A requested merge needs all runs, or those of its range, so it may have to wait for jobs in progress. Until it starts, the
//! policy starts only *smaller* merges of the partition: those whose output stage comes before the output stages of all
//! its jobs in progress. Flushed runs are merged meanwhile, however long a merge into the last stage lasts. And the request
//! starts: each time that the largest job ends, the next one has a smaller output stage, so at most one merge of each stage
//! comes before the request. A range waits for a whole merge of its partition that was requested, and for older ranges that
//! wait.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use pleach_env::Result;

use super::job::CompactionJob;
use super::requests::{RangeRequests, Requests};
use super::worker::{ClaimedRun, Compactions, LONGEST_WAIT_SHARE, List};
use crate::keys::PartitionId;
use crate::picker::{self, Plan, RangeWork, Situation, WholePlan};
use crate::shape::{Conversion, Policy, STAGE_FIRST};
use crate::version::edit::RunId;
use crate::version::{SubTree, Version};
use crate::version_set::{DUE_MAX, StageOrder};

/// All that the result of a search for jobs to start depends on.
pub(super) struct Search {
    version: Weak<Version>,
    is_quiet: bool,
    /// The time by which tombstones are judged.
    clock: u64,
    /// If given, only jobs whose output stage comes before this one are started.
    before: Option<u8>,
}

impl Search {
    fn is_same(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.version, &other.version)
            && (self.is_quiet, self.clock, self.before) == (other.is_quiet, other.clock, other.before)
    }
}

/// Partitions that a search for a plan looks at, at most (arbitrary): some milliseconds.
const LOOKED_AT_MAX: usize = 1 << 14;

/// The requests as they were at one moment.
struct Pending {
    whole: Requests,
    ranges: RangeRequests,
}

impl Pending {
    /// Whether a requested merge of the partition has yet to be started.
    fn is_open(&self, partition: PartitionId) -> bool {
        self.whole.is_open(partition) || self.ranges.is_open(partition)
    }

    fn has_open(&self) -> bool {
        self.whole.open().next().is_some() || self.ranges.open().next().is_some()
    }
}

/// A job to start.
struct Picked {
    partition: PartitionId,
    plan: Plan,
    /// The request that it fulfils.
    request: Option<u64>,
}

impl Picked {
    /// It, if its output stage comes before `before`.
    fn if_urgent(self, before: Option<u8>) -> Option<Self> {
        before.is_none_or(|before| self.plan.output_stage() < before).then_some(self)
    }
}

impl List {
    /// The uppermost output stage of the waiting jobs.
    fn first_stage(&self) -> u8 {
        self.waiting.iter().map(|job| job.output_stage).min().unwrap_or(u8::MAX)
    }

    /// The order of stages in which the next job to start is looked for while the list is full: as for the steps, each stage has
    /// its share.
    fn stage_order(&self) -> StageOrder {
        if self.started % LONGEST_WAIT_SHARE == LONGEST_WAIT_SHARE - 1 {
            StageOrder::LowestFirst
        } else {
            StageOrder::UppermostFirst
        }
    }

    /// Runs of the partition that jobs work on which the version does not record.
    pub(super) fn busy(&self, partition: PartitionId) -> Vec<RunId> {
        self.partial_runs
            .iter()
            .filter(|claimed| claimed.partition == partition)
            .map(|claimed| claimed.run)
            .collect()
    }

    /// The uppermost output stage of the jobs in progress on the partition.
    fn first_stage_of(&self, partition: PartitionId, tree: &SubTree) -> Option<u8> {
        let recorded = tree.jobs.iter().filter_map(|job| tree.run(job.output)).map(|run| run.stage);
        let claimed = self.partial_runs.iter().filter(|claimed| claimed.partition == partition);
        recorded.chain(claimed.map(|claimed| claimed.output_stage)).min()
    }
}

impl Compactions {
    /// Whether as many jobs wait as there are workers.
    fn is_full(&self, list: &List) -> bool {
        list.waiting.len() >= self.upkeep.ctx.options.compaction_worker_count()
    }

    /// Resumes the jobs that the version records and the list lacks: those of an earlier open, and failed ones.
    pub(super) fn resume(&self, list: &mut List) {
        if !list.resumes || self.is_full(list) {
            return;
        }
        let version = Arc::clone(&self.upkeep.version_set.state.load().version);
        let at_work = self.upkeep.version_set.ledger.lock().at_work();
        for partition in at_work {
            for meta in version.tree(partition).into_iter().flat_map(|tree| &tree.jobs) {
                if list.whole_outputs.contains(&(partition, meta.output)) {
                    continue;
                }
                if self.is_full(list) {
                    return;
                }
                let is_requested =
                    self.upkeep.background.lock().to_compact.converts_into(partition, meta.output);
                let failed = list.failed_conversions.remove(&(partition, meta.output));
                if let Some(mut job) = CompactionJob::resume(&self.upkeep, partition, meta) {
                    if is_requested || failed.is_some_and(|failed| failed.goes_on) {
                        job.merging.convert(&self.upkeep, partition, failed.map_or(0, |failed| failed.left));
                    }
                    list.whole_outputs.insert((partition, meta.output));
                    list.waiting.push(job);
                }
            }
        }
        list.resumes = false;
    }

    /// Starts what the pickers ask for in the newest version, as far as there are workers for it.
    pub(super) fn start_new(&self, list: &mut List) -> Result<()> {
        loop {
            let (version, requests) = self.fulfil_requests(list);
            let (version, is_quiet) = (Arc::downgrade(&version), self.upkeep.is_quiet());
            let clock = self.upkeep.compaction_clock();
            if self.upkeep.ctx.reads_cost_more.swap(false, Ordering::Acquire) {
                self.upkeep.version_set.refresh_ledger(clock);
                list.empty_search = None;
            } else {
                self.upkeep.version_set.refresh_ledger_once(clock);
            }
            let before = self.is_full(list).then(|| list.first_stage());
            let search = Search { version, is_quiet, clock, before };
            // Reads may have made a merge due since the empty search. A thread that waits for compactions to end must not
            // wait for the next refresh.
            let is_empty = self.upkeep.settle_waiters.load(Ordering::Acquire) == 0
                && list.empty_search.as_ref().is_some_and(|empty| empty.is_same(&search));
            let has_requests = requests.has_open();
            let with_room = self.conversion_with_room(list, &self.upkeep.version_set.state.load().version);
            if (is_empty && !has_requests && with_room.is_none())
                || before.is_some_and(|before| before <= STAGE_FIRST)
            {
                return Ok(());
            }
            let (version, output) = self.upkeep.version_set.plan_basis();
            let Some(picked) = self.pick(list, &version, &requests, (with_room, before)) else {
                list.empty_search = Some(Search { version: Arc::downgrade(&version), ..search });
                return Ok(());
            };
            self.start(list, picked, output)?;
        }
    }

    fn start(&self, list: &mut List, picked: Picked, output: RunId) -> Result<()> {
        let Picked { partition, plan, request } = picked;
        if self.is_full(list) {
            list.last_urgent = partition;
        } else {
            list.last_started = partition;
        }
        list.started += 1;
        match plan {
            Plan::Whole(plan) => {
                if plan.converts && request.is_none() {
                    self.end_wait_for_room(list, partition);
                }
                if let Some(job) = CompactionJob::start(&self.upkeep, partition, plan, output)? {
                    list.whole_outputs.insert((partition, output));
                    list.waiting.push(job);
                }
                if let Some(number) = request {
                    self.upkeep.background.lock().to_compact.started(partition, number, output);
                }
            }
            Plan::Partial(plan) => {
                if let Some(job) = CompactionJob::start_partial(&self.upkeep, partition, plan) {
                    self.claim(list, job);
                }
            }
            Plan::Range(plan) => {
                let number = request.expect("a merge of a range is requested");
                if let Some(job) = CompactionJob::start_range(&self.upkeep, partition, plan, number) {
                    self.claim(list, job);
                    self.upkeep.background.lock().ranges.set_started(number, true);
                }
            }
        }
        Ok(())
    }

    /// Puts a job on the list that the version does not record, and keeps others off its runs.
    fn claim(&self, list: &mut List, job: CompactionJob) {
        let partition = job.partition;
        let output_stage = job.output_stage;
        let claimed = job.claimed().iter().map(|&run| ClaimedRun { partition, run, output_stage });
        list.partial_runs.extend(claimed);
        list.waiting.push(job);
        self.upkeep.background.lock().partial_runs = list.partial_runs.len();
    }

    /// The next job to start: requests first, then each partition in its turn, then a conversion that has waited for room, then
    /// sparse files. If `before` is given, only a job whose output stage comes before it. For partitions with open requests, see
    /// the module's text.
    ///
    /// Requires: the requests were looked at before the version, so that it has all that was to be merged.
    fn pick(
        &self,
        list: &mut List,
        version: &Version,
        requests: &Pending,
        (with_room, before): (Option<PartitionId>, Option<u8>),
    ) -> Option<Picked> {
        let is_quiet = self.upkeep.is_quiet();
        let policy = self.upkeep.ctx.options.policy(is_quiet);
        let now = self.upkeep.compaction_clock();
        let picked = |partition, plan, request| Picked { partition, plan, request }.if_urgent(before);
        let requested = self.pick_open_request(list, version, requests, before);
        if requested.is_some() {
            return requested;
        }
        let order = list.stage_order();
        let last_of_its_kind = if before.is_some() { list.last_urgent } else { list.last_started };
        let (mut last, mut looked_at) = (last_of_its_kind, 0);
        let mut by_policy = |id| {
            let busy = list.busy(id);
            let tree = version.tree(id)?;
            let situation = Situation { tree, busy: &busy, now };
            if requests.is_open(id) {
                // A conversion needs all runs.
                let policy = Policy { conversion: Conversion::Never, ..policy };
                let plan = picker::pick(&policy, situation)?;
                let may_start = match list.first_stage_of(id, tree) {
                    Some(first) => plan.output_stage() < first,
                    // The request waits for jobs of other partitions. `before` keeps the merge smaller than those.
                    None => before.is_some(),
                };
                return if may_start { picked(id, plan, None) } else { None };
            }
            let mut plan = picker::pick(&policy, situation)?;
            let converts = matches!(&plan, Plan::Whole(plan) if plan.converts);
            if converts && with_room != Some(id) && !self.has_room_or_waits(list, id, tree) {
                let policy = Policy { conversion: Conversion::Never, ..policy };
                plan = picker::pick(&policy, situation)?;
            }
            picked(id, plan, None)
        };
        let by_policy = loop {
            let due = {
                let ledger = self.upkeep.version_set.ledger.lock();
                match before {
                    Some(before) => ledger.due_before(is_quiet, last, (before, order)),
                    None => ledger.due(is_quiet, last),
                }
            };
            let found = due.iter().find_map(|id| by_policy(*id));
            looked_at += due.len();
            // Conversions that wait for room have no plan. Behind them may be partitions that have one.
            let next =
                due.last().filter(|_| due.len() == DUE_MAX && before.is_none() && looked_at < LOOKED_AT_MAX);
            match next {
                Some(next) if found.is_none() => last = *next,
                _ => break found,
            }
        };
        let conversion = || {
            let id = with_room.filter(|id| !requests.is_open(*id))?;
            let busy = list.busy(id);
            let situation = Situation { tree: version.tree(id)?, busy: &busy, now };
            picked(id, Plan::Whole(picker::pick_conversion(&policy, situation)?), None)
        };
        let sparse = || {
            let sparse = self.upkeep.version_set.ledger.lock().in_sparse_files();
            sparse.into_iter().find_map(|id| {
                let plan = picker::pick_sparse(version.tree(id)?, &list.busy(id))?;
                picked(id, Plan::Whole(plan), None)
            })
        };
        by_policy.or_else(conversion).or_else(sparse)
    }

    /// The first open request whose merge can start.
    fn pick_open_request(
        &self,
        list: &List,
        version: &Version,
        requests: &Pending,
        before: Option<u8>,
    ) -> Option<Picked> {
        let policy = self.upkeep.ctx.options.policy(self.upkeep.is_quiet());
        let now = self.upkeep.compaction_clock();
        let picked = |partition, plan, request| Picked { partition, plan, request }.if_urgent(before);
        let whole = requests.whole.open().find_map(|(id, number, converts)| {
            let busy = list.busy(id);
            let tree = version.tree(id)?;
            let situation = Situation { tree, busy: &busy, now };
            let mut plan = pick_requested(&policy, situation, converts)?;
            plan.converts = plan.converts && (converts || self.has_room(tree));
            picked(id, Plan::Whole(plan), Some(number))
        });
        // Who waits for a whole merge waits for its ranges, too, and an older range comes before younger ones. Otherwise a stream
        // of ranges could have the policy's merges in progress each time, and the older request would never start.
        let mut waiting: BTreeSet<_> = requests.whole.open().map(|(id, ..)| id).collect();
        whole.or_else(|| {
            requests.ranges.open().find_map(|request| {
                if waiting.contains(&request.partition) {
                    return None;
                }
                let busy = list.busy(request.partition);
                let tree = version.tree(request.partition)?;
                let situation = Situation { tree, busy: &busy, now };
                match picker::pick_range(&policy, situation, &request.range) {
                    RangeWork::Due(plan) => {
                        picked(request.partition, Plan::Range(plan), Some(request.number))
                    }
                    RangeWork::Nothing => None,
                    RangeWork::Waits => {
                        waiting.insert(request.partition);
                        None
                    }
                }
            })
        })
    }

    /// Removes the requests that are fulfilled and wakes those who made them. Returns the newest version and the pending
    /// requests.
    fn fulfil_requests(&self, list: &List) -> (Arc<Version>, Pending) {
        let policy = self.upkeep.ctx.options.policy(true);
        let mut background = self.upkeep.background.lock();
        // Loaded after the requests are seen: it has what was flushed before they were made.
        let version = Arc::clone(&self.upkeep.version_set.state.load().version);
        let any_merged = background.to_compact.retain(|id, merge, converts| {
            let Some(tree) = version.tree(id) else { return false };
            if let Some(output) = merge {
                return tree.jobs.iter().any(|job| job.output == output);
            }
            let busy = list.busy(id);
            let situation = Situation { tree, busy: &busy, now: 0 };
            !tree.jobs.is_empty()
                || !busy.is_empty()
                || pick_requested(&policy, situation, converts).is_some()
        });
        let any_fulfilled = background.ranges.retain(|request| {
            let Some(tree) = version.tree(request.partition) else { return false };
            let situation = Situation { tree, busy: &[], now: 0 };
            picker::pick_range(&policy, situation, &request.range) != RangeWork::Nothing
        });
        let requests = Pending { whole: background.to_compact.clone(), ranges: background.ranges.clone() };
        drop(background);
        if any_merged || any_fulfilled {
            self.upkeep.ctx.status.notify();
            // It may have made the requests.
            if let Some(relocator) =
                self.upkeep.ctx.status.wakers().and_then(|wakers| wakers.relocator.as_ref())
            {
                relocator.wake();
            }
        }
        (version, requests)
    }
}

/// The merge of everything that was requested.
fn pick_requested(policy: &Policy, situation: Situation<'_>, converts: bool) -> Option<WholePlan> {
    let conversion = if converts { picker::pick_conversion(policy, situation) } else { None };
    conversion.or_else(|| picker::pick_all(policy, situation))
}
