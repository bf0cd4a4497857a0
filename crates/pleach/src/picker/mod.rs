//! Pickers: pure functions from a sub-tree to the plan of the next merge, one for each shape.
//!
//! - `forest`: [`Shape::Forest`], `k` runs a stage.
//! - `forest_over_bottom`: [`Shape::ForestOverBottom`], a forest above a single large run.
//! - `leveled`: [`Shape::Leveled`], one run a stage, merged file by file.
//! - `range`: a key range of all runs, on demand, for any shape.
//! - `sparse`: shared flush files of which little is live.
//! - `value_files`: which files of separated values are cleaned.
//! - here, for any shape: everything on demand, old tombstones, the bottom run of another shape, conversions for scans.
//!
//! Every picker accepts a sub-tree of any shape; its merges turn the sub-tree into its own shape.
//!
//! # Origin
//! `SifrDB`'s multi-stage tree, section 2.2: a stage that holds `k` runs is merged into one run of the next stage.

mod forest;
mod forest_over_bottom;
mod leveled;
mod range;
mod sparse;
pub(crate) mod value_files;

use std::ops::Range;

use pleach_env::FileId;

use crate::shape::{Conversion, Policy, STAGE_BOTTOM, STAGE_FIRST, Shape};
use crate::version::SubTree;
use crate::version::edit::RunId;

pub(crate) use range::{RangePlan, RangeWork, pick_range};
pub(crate) use sparse::{is_sparse, pick_sparse};

/// A merge to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Whole(WholePlan),
    Partial(PartialPlan),
    Range(RangePlan),
}

impl Plan {
    /// The stage that it merges into.
    pub(crate) fn output_stage(&self) -> u8 {
        match self {
            Self::Whole(plan) => plan.output_stage,
            Self::Partial(plan) => plan.output_stage,
            Self::Range(plan) => plan.output_stage,
        }
    }
}

/// A merge of whole runs into a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WholePlan {
    /// Newest first.
    pub(crate) inputs: Vec<RunId>,
    pub(crate) output_stage: u8,
    /// Whether no run is older than the inputs.
    pub(crate) drops_tombstones: bool,
    /// Whether separated values are copied in the order of keys.
    pub(crate) converts: bool,
}

/// A merge of one file of a run into the run of the next stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartialPlan {
    pub(crate) upper: RunId,
    pub(crate) file: FileId,
    /// The run of the next stage and its files that overlap `file`; `None` if the stage is empty.
    pub(crate) lower: Option<(RunId, Vec<FileId>)>,
    pub(crate) output_stage: u8,
    /// Whether no run is older than the inputs.
    pub(crate) drops_tombstones: bool,
}

/// The input of a picker besides the policy.
#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub(crate) tree: &'a SubTree,
    /// Runs of jobs that the version does not record.
    pub(crate) busy: &'a [RunId],
    /// Seconds since 1970.
    pub(crate) now: u64,
}

/// The last stage of a forest.
const STAGE_MAX: u8 = STAGE_BOTTOM - 1;

/// The merge that the policy asks for next.
pub(crate) fn pick(policy: &Policy, situation: Situation<'_>) -> Option<Plan> {
    let by_shape = match policy.shape {
        Shape::Forest => forest::pick(policy, situation).map(Plan::Whole),
        Shape::ForestOverBottom => forest_over_bottom::pick(policy, situation).map(Plan::Whole),
        Shape::Leveled => leveled::pick(policy, situation),
    };
    let of_any_shape = || {
        let aged = pick_aged(policy, situation).or_else(|| pick_foreign_bottom(policy, situation));
        aged.or_else(|| pick_for_scans(policy, situation))
    };
    let mut plan = by_shape.or_else(|| of_any_shape().map(Plan::Whole))?;
    if let Plan::Whole(plan) = &mut plan {
        plan.converts = plan.inputs.len() == situation.tree.runs.len() && situation.is_order_worth_it(policy);
    }
    Some(plan)
}

/// The merge of everything into one run; `None` if there is one run already, or a job is at work.
pub(crate) fn pick_all(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    let tree = situation.tree;
    let [first, ..] = &tree.runs[..] else { return None };
    if !situation.are_free(0..tree.runs.len()) || (tree.runs.len() == 1 && first.stage >= STAGE_FIRST) {
        return None;
    }
    let plan = situation.merge_from(0, oldest_stage(policy, tree, 0)?);
    Some(WholePlan { converts: situation.is_order_worth_it(policy), ..plan })
}

/// The merge of everything into one run, with separated values in the order of keys; `None` if there are none, or a job is at
/// work.
pub(crate) fn pick_conversion(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    let tree = situation.tree;
    if tree.sum(|run| run.totals.value_bytes) == 0 || !situation.are_free(0..tree.runs.len()) {
        return None;
    }
    let plan = situation.merge_from(0, oldest_stage(policy, tree, 0)?);
    Some(WholePlan { converts: true, ..plan })
}

/// Below this space target, values are moved to make room for copies: 1.6 bytes for each byte of the copies (measured at a
/// target of 1.3).
const ROOMY_TARGET: f64 = 2.0;
const CLEANED_TENTHS: u64 = 16;

/// Bytes that a conversion copies at once, of `bytes` of values: half of what garbage may take. What is left is for the next
/// ones. So each is paid for by itself, and a large store is put in order while it is being scanned.
pub(crate) fn copied_at_once(bytes: u64, space_target: f64) -> u64 {
    let percents = ((space_target - 1.0) * 50.0).clamp(1.0, 100.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 100")]
    let percents = percents as u64;
    bytes / 100 * percents
}

/// Bytes that a conversion of [`copied_at_once`] writes, with cleaning for it.
pub(crate) fn conversion_bytes(tree: &SubTree, space_target: f64) -> u64 {
    let copied = copied_at_once(tree.sum(|run| run.totals.value_bytes), space_target);
    let cleaned = if space_target < ROOMY_TARGET { copied / 10 * CLEANED_TENTHS } else { 0 };
    tree.sum(|run| run.totals.bytes).saturating_add(copied).saturating_add(cleaned)
}

/// The conversion, if scans have spent as much time on values in disorder as it takes.
fn pick_for_scans(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    let is_due = policy.conversion == Conversion::ForScans && situation.is_order_worth_it(policy);
    if is_due { pick_conversion(policy, situation) } else { None }
}

/// The merge of the newest run with tombstones above the maximal age, and all older runs.
fn pick_aged(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    let runs = &situation.tree.runs;
    let limit = situation.now.saturating_sub(policy.tombstone_age_max);
    let newest =
        runs.iter().position(|run| run.totals.tombstones_since.is_some_and(|since| since < limit))?;
    let stage = oldest_stage(policy, situation.tree, newest)?;
    situation.are_free(newest..runs.len()).then(|| situation.merge_from(newest, stage))
}

/// The merge that gives the bottom run of another shape a stage of this shape. Most of its files are moved, not copied.
fn pick_foreign_bottom(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    let runs = &situation.tree.runs;
    let start = runs.iter().position(|run| run.stage == STAGE_BOTTOM)?;
    let is_due = policy.shape != Shape::ForestOverBottom && situation.are_free(start..runs.len());
    let stage = oldest_stage(policy, situation.tree, start).filter(|_| is_due)?;
    Some(situation.merge_from(start, stage))
}

/// The stage of a run that replaces the oldest ones, those from `start` on. Its number is above that of the next newer run:
/// otherwise the new run would sort as newer. `None` if no stage is left.
fn oldest_stage(policy: &Policy, tree: &SubTree, start: usize) -> Option<u8> {
    let (newer, taken) = tree.runs.split_at(start);
    let least = newer.last().map_or(STAGE_FIRST, |run| run.stage.saturating_add(1).max(STAGE_FIRST));
    let fitting = || {
        let bytes = taken.iter().map(|run| run.totals.bytes).fold(0, u64::saturating_add);
        fitting_stage(policy, bytes).max(least)
    };
    match (policy.shape, tree.last_stage()) {
        (Shape::ForestOverBottom, _) => (least <= STAGE_BOTTOM).then_some(STAGE_BOTTOM),
        (_, STAGE_BOTTOM) => (least <= STAGE_MAX).then(fitting),
        // If the run were too large for its stage, its files would move to the next stage at once, as another run.
        (Shape::Leveled, last) => (least <= STAGE_MAX).then(|| fitting().max(last)),
        (Shape::Forest, last) => (least <= STAGE_MAX).then(|| last.max(least)),
    }
}

/// The stage of a forest, or of levels, whose runs have about `bytes`.
fn fitting_stage(policy: &Policy, bytes: u64) -> u8 {
    let k = policy.k as u64;
    let (mut stage, mut size, factor) = match policy.shape {
        Shape::Leveled => (STAGE_FIRST + 1, policy.memtable_bytes.saturating_mul(k), leveled::FANOUT),
        Shape::Forest | Shape::ForestOverBottom => (STAGE_FIRST, policy.memtable_bytes, k),
    };
    while size < bytes && stage < STAGE_MAX {
        size = size.saturating_mul(factor);
        stage += 1;
    }
    stage
}

impl Situation<'_> {
    /// Whether a compaction reads or writes the run.
    fn is_busy(&self, run: RunId) -> bool {
        self.tree.is_busy(run) || self.busy.contains(&run)
    }

    /// Whether no compaction reads or writes the runs.
    fn are_free(&self, runs: Range<usize>) -> bool {
        self.tree.runs[runs].iter().all(|run| !self.is_busy(run.id))
    }

    /// Whether a merge of everything should put separated values in order.
    fn is_order_worth_it(&self, policy: &Policy) -> bool {
        match policy.conversion {
            _ if self.tree.sum(|run| run.totals.value_bytes) == 0 => false,
            Conversion::Never => false,
            Conversion::Always => true,
            Conversion::ForScans => {
                self.tree.reads.outweighs_conversion_of(conversion_bytes(self.tree, policy.space_target))
            }
        }
    }

    /// The first run and the number of runs of each stage, newest first.
    fn stages(&self) -> impl Iterator<Item = (usize, usize)> {
        self.tree.runs.chunk_by(|a, b| a.stage == b.stage).scan(0, |start, runs| {
            let stage = (*start, runs.len());
            *start += runs.len();
            Some(stage)
        })
    }

    /// The first of the oldest runs, up to the last one, that are all free.
    fn free_from(&self) -> usize {
        let runs = &self.tree.runs;
        runs.len() - runs.iter().rev().take_while(|run| !self.is_busy(run.id)).count()
    }

    /// The merge of all runs from `start` on.
    fn merge_from(&self, start: usize, output_stage: u8) -> WholePlan {
        self.merge(start, self.tree.runs.len() - start, output_stage)
    }

    /// The merge of the `len` runs from `start` on.
    fn merge(&self, start: usize, len: usize, output_stage: u8) -> WholePlan {
        WholePlan {
            inputs: self.tree.runs[start..start + len].iter().map(|run| run.id).collect(),
            output_stage,
            drops_tombstones: start + len == self.tree.runs.len(),
            converts: false,
        }
    }
}
