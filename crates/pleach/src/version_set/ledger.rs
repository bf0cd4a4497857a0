//! The ledger: sums and work lists over all partitions, updated by difference.
//!
//! For each sub-tree the ledger knows its debt, the bytes that a step of its compaction takes, and the stage of the merge
//! that is due. An edit updates the partitions that it changes, so a flush, a step or a drop does not visit all partitions.
//! Workers ask the ledger which partitions have a merge due; the picker finds the plan in the version.
//!
//! # Invariants
//! 1. *No miss*: a merge that is due in a version is due here, once the version's edit is committed. Time and reads can make
//!    a merge due without an edit: [`VersionSet::refresh_ledger`] checks the partitions in which they can.
//! 2. *Hints only*: plans come from the version. If the ledger is ahead of the version, or a run is busy, there is no plan.
//!
//! # Concurrency
//! One leaf lock. The ledger changes under [`VersionSet::lock`], before readers see the version. An edit runs the pickers for
//! the sub-trees that it changes under the leaf lock; a refresh, which may check all partitions, runs them without it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::{VersionSet, debt};
use crate::keys::PartitionId;
use crate::options::Options;
use crate::picker::{self, Situation};
use crate::shape::Policy;
use crate::version::{Run, SubTree, Version};

mod shared_files;
use shared_files::SharedFiles;

/// The ledger.
pub(crate) struct Ledger {
    sst_bytes: u64,
    policies: Policies,
    /// For each policy, the stages that due merges go to.
    due: [Ranking<u8>; 2],
    /// Partitions with a compaction in progress.
    at_work: BTreeSet<PartitionId>,
    /// Partitions in which time or reads may make a merge due.
    recheck: BTreeSet<PartitionId>,
    /// The ratios of [`debt::ratios`] that are above 0, as bits, which sort like the numbers.
    run_debts: Ranking<u64>,
    garbage_debts: Ranking<u64>,
    /// Bytes that a step of the partition's compaction takes.
    steps: Ranking<u64>,
    shared_files: SharedFiles,
    /// The time for which changes are judged, in seconds since 1970.
    now: u64,
    /// The time for which all partitions were last checked.
    refreshed_at: u64,
    /// Sub-trees looked at so far.
    looked_at: u64,
}

/// The policy while data is written, and the one while it is quiet.
type Policies = [Policy; 2];

/// For each policy, the stage of the merge that is due in a sub-tree.
type DueStages = [Option<u8>; 2];

/// Values of some partitions, by partition and by value.
#[derive(Debug, Default, PartialEq)]
struct Ranking<V> {
    values: BTreeMap<PartitionId, V>,
    ranked: BTreeSet<(V, PartitionId)>,
}

impl<V: Copy + Ord> Ranking<V> {
    fn set(&mut self, id: PartitionId, value: Option<V>) {
        let old = match value {
            Some(value) => self.values.insert(id, value),
            None => self.values.remove(&id),
        };
        old.map(|old| self.ranked.remove(&(old, id)));
        value.map(|value| self.ranked.insert((value, id)));
    }

    /// The largest value.
    fn max(&self) -> Option<V> {
        self.ranked.last().map(|(value, _)| *value)
    }
}

impl Ledger {
    /// The ledger of a version.
    pub(crate) fn new(options: &Options, version: &Version, now: u64) -> Self {
        let mut ledger = Self {
            sst_bytes: options.sst_bytes,
            policies: [options.policy(false), options.policy(true)],
            due: Default::default(),
            at_work: BTreeSet::new(),
            recheck: BTreeSet::new(),
            run_debts: Ranking::default(),
            garbage_debts: Ranking::default(),
            steps: Ranking::default(),
            shared_files: SharedFiles::default(),
            now,
            refreshed_at: now,
            looked_at: 0,
        };
        for (id, partition) in version.partitions() {
            ledger.update(id, Some(&partition.tree));
        }
        ledger
    }

    /// Takes over a changed sub-tree; `None` when the partition was dropped.
    pub(crate) fn update(&mut self, id: PartitionId, tree: Option<&SubTree>) {
        self.looked_at += 1;
        let tree = tree.filter(|tree| !tree.runs.is_empty());
        let debts = tree.map(|tree| debt::ratios(tree, &self.policies[0]));
        let bits = |ratio: f64| Some(ratio.to_bits()).filter(|bits| *bits > 0);
        self.run_debts.set(id, debts.and_then(|(runs, _)| bits(runs)));
        self.garbage_debts.set(id, debts.and_then(|(_, garbage)| bits(garbage)));
        self.steps.set(id, tree.map(|tree| debt::step_bytes(tree, self.sst_bytes)));
        self.set_due(id, tree.map_or([None; 2], |tree| due_stages(&self.policies, tree, self.now)));
        set_member(&mut self.at_work, id, tree.is_some_and(|tree| !tree.jobs.is_empty()));
        set_member(&mut self.recheck, id, tree.is_some_and(may_come_due));
        self.shared_files.update(id, tree);
    }

    fn set_due(&mut self, id: PartitionId, stages: DueStages) {
        for (due, stage) in self.due.iter_mut().zip(stages) {
            due.set(id, stage);
        }
    }

    /// The first `count` partitions after `last` in which time or reads may have made a merge due.
    fn recheck_after(&self, last: Bound<PartitionId>, count: usize) -> Vec<PartitionId> {
        self.recheck.range((last, Bound::Unbounded)).take(count).copied().collect()
    }

    /// The partitions with a merge that is due, those after `last` first.
    pub(crate) fn due(&self, is_quiet: bool, last: PartitionId) -> Vec<PartitionId> {
        let due = &self.due[usize::from(is_quiet)];
        let later = due.values.range(PartitionId(last.0.saturating_add(1))..);
        let earlier = due.values.range(..=last);
        later.chain(earlier).map(|(id, _)| *id).take(DUE_MAX).collect()
    }

    /// Those with a merge that goes to a stage before `before`, by stage, and in each stage those after `last` first.
    pub(crate) fn due_before(
        &self,
        is_quiet: bool,
        last: PartitionId,
        (before, order): (u8, StageOrder),
    ) -> Vec<PartitionId> {
        let ranked = &self.due[usize::from(is_quiet)].ranked;
        let (first_id, last_id) = (PartitionId(0), PartitionId(u32::MAX));
        let mut stages = Vec::new();
        let mut from = 0;
        while let Some((stage, _)) =
            ranked.range((from, first_id)..).next().filter(|(stage, _)| *stage < before)
        {
            stages.push(*stage);
            from = stage + 1;
        }
        if order == StageOrder::LowestFirst {
            stages.reverse();
        }
        let in_turn = |stage| {
            let later = ranked.range((Bound::Excluded((stage, last)), Bound::Included((stage, last_id))));
            later.chain(ranked.range((stage, first_id)..=(stage, last)))
        };
        stages.into_iter().flat_map(in_turn).map(|(_, id)| *id).take(DUE_MAX).collect()
    }

    /// Partitions with sections in sparse shared files.
    pub(crate) fn in_sparse_files(&self) -> Vec<PartitionId> {
        self.shared_files.in_sparse().iter().copied().collect()
    }

    /// Partitions with compactions in progress.
    pub(crate) fn at_work(&self) -> Vec<PartitionId> {
        self.at_work.iter().copied().collect()
    }

    /// Whether a compaction runs, or is due when it is quiet. Sparse files do not count.
    pub(crate) fn is_busy(&self) -> bool {
        !self.at_work.is_empty() || !self.due[1].values.is_empty()
    }

    /// Whether time or reads may make a merge due.
    pub(crate) fn needs_rechecks(&self) -> bool {
        !self.recheck.is_empty()
    }

    /// The largest debt ratios of all partitions, of runs and of garbage. See [`debt::ratios`].
    pub(crate) fn debt_ratios(&self) -> (f64, f64) {
        let max = |debts: &Ranking<u64>| f64::from_bits(debts.max().unwrap_or(0));
        (max(&self.run_debts), max(&self.garbage_debts))
    }

    /// Bytes that the largest step takes.
    pub(crate) fn step_bytes(&self) -> u64 {
        self.steps.max().unwrap_or(0)
    }
}

/// In which order a worker looks at the stages of merges that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageOrder {
    UppermostFirst,
    LowestFirst,
}

/// Most partitions that a worker is given to choose from (arbitrary): more than can be busy at a time.
pub(crate) const DUE_MAX: usize = 256;

/// Partitions that a refresh of the ledger checks under one lock: some 0.3 ms, for which edits wait. 20 000 partitions take
/// 20 ms.
const CHECKED_AT_ONCE: usize = 256;

impl VersionSet {
    /// Finds the merges that time and reads have made due, and judges changes for the time `now` from now on. The pickers run
    /// without the ledger's lock, which commit leaders take; [`VersionSet::lock`] keeps edits out, for a few partitions at a
    /// time.
    pub(crate) fn refresh_ledger(&self, now: u64) {
        self.ledger.lock().now = now;
        let mut last = Bound::Unbounded;
        loop {
            let versions = self.lock();
            let (partitions, policies) = {
                let ledger = self.ledger.lock();
                (ledger.recheck_after(last, CHECKED_AT_ONCE), ledger.policies)
            };
            let Some(id) = partitions.last() else { break };
            last = Bound::Excluded(*id);
            let due = |id| Some((id, due_stages(&policies, versions.version.tree(id)?, now)));
            let due: Vec<_> = partitions.into_iter().filter_map(due).collect();
            let mut ledger = self.ledger.lock();
            for (id, stages) in due {
                ledger.looked_at += 1;
                ledger.set_due(id, stages);
            }
        }
        self.ledger.lock().refreshed_at = now;
    }

    /// The same, unless that was done for the time `now` already.
    pub(crate) fn refresh_ledger_once(&self, now: u64) {
        if self.ledger.lock().refreshed_at != now {
            self.refresh_ledger(now);
        }
    }
}

/// For each policy, the stage of the merge that is due in a sub-tree at the time `now`.
fn due_stages(policies: &Policies, tree: &SubTree, now: u64) -> DueStages {
    let situation = Situation { tree, busy: &[], now };
    let stage = |policy| picker::pick(policy, situation).map(|plan| plan.output_stage());
    // A merge that is due while data is written is also due when it is quiet.
    let quiet = stage(&policies[1]);
    [quiet.and_then(|_| stage(&policies[0])), quiet]
}

/// Whether time or reads may make a merge due: tombstones grow old, reads of several runs may pay for a merge, and scans of
/// separated values for a conversion.
fn may_come_due(tree: &SubTree) -> bool {
    let may_run = |run: &Run| run.totals.tombstones_since.is_some() || run.totals.value_bytes > 0;
    tree.runs.len() > 1 || tree.runs.iter().any(|run| may_run(run))
}

fn set_member(set: &mut BTreeSet<PartitionId>, id: PartitionId, is_member: bool) {
    if is_member {
        set.insert(id);
    } else {
        set.remove(&id);
    }
}

#[cfg(test)]
mod tests;
