//! Choosing what to merge: pure functions from a sub-tree to a plan, one for each shape.
//!
//! - `forest`: [`Shape::Forest`], `k` runs a stage.
//! - `bottom`: [`Shape::ForestOverBottom`], a forest above a single large run.
//! - `leveled`: [`Shape::Leveled`], one run a stage, merged part by part.
//! - `sparse`: shared flush files of which little is alive.
//! - here, for any shape: everything on demand, old tombstones, the bottom run that another shape has left.
//!
//! Every picker takes a sub-tree of any other shape as it is and leads it, merge by merge, to its own.
//!
//! # Origin
//! `SifrDB`'s multi-stage tree, section 2.2: a stage that holds `k` runs is merged into one run of the next stage.

mod bottom;
mod forest;
mod leveled;
mod sparse;

use pleach_env::FileId;

use crate::shape::{Policy, STAGE_BOTTOM, STAGE_FIRST, Shape};
use crate::version::SubTree;
use crate::version::edit::RunId;

pub(crate) use sparse::{is_sparse, pick_sparse};

/// A merge to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Whole(WholePlan),
    Partial(PartialPlan),
}

impl Plan {
    /// The stage that it merges into.
    pub(crate) fn output_stage(&self) -> u8 {
        match self {
            Self::Whole(plan) => plan.output_stage,
            Self::Partial(plan) => plan.output_stage,
        }
    }
}

/// A merge of whole runs into a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WholePlan {
    /// Newest first.
    pub(crate) inputs: Vec<RunId>,
    pub(crate) output_stage: u8,
    /// Whether nothing older than the inputs lies below them.
    pub(crate) drops_tombstones: bool,
}

/// A merge of one file of a run into the run of the next stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartialPlan {
    pub(crate) upper: RunId,
    pub(crate) file: FileId,
    /// The run of the next stage and its files that overlap the one above; `None` where there is none yet.
    pub(crate) lower: Option<(RunId, Vec<FileId>)>,
    pub(crate) output_stage: u8,
    /// Whether nothing older lies below.
    pub(crate) drops_tombstones: bool,
}

/// A sub-tree and what else decides what is done with it.
#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub(crate) tree: &'a SubTree,
    /// Runs at work by jobs that the version does not know.
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
        Shape::ForestOverBottom => bottom::pick(policy, situation).map(Plan::Whole),
        Shape::Leveled => leveled::pick(policy, situation),
    };
    let of_any_shape = || pick_aged(policy, situation).or_else(|| pick_foreign_bottom(policy, situation));
    by_shape.or_else(|| of_any_shape().map(Plan::Whole))
}

/// The merge of everything into one run, unless that is what there is. Not while a job is at work.
pub(crate) fn pick_all(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    let tree = situation.tree;
    let [first, ..] = &tree.runs[..] else { return None };
    let is_busy = tree.runs.iter().any(|run| situation.is_busy(run.id));
    if is_busy || (tree.runs.len() == 1 && first.stage >= STAGE_FIRST) {
        return None;
    }
    Some(situation.merge_from(0, oldest_stage(policy, tree, 0)?))
}

/// The merge of a run with tombstones above the age that the policy bears, with all that is older.
fn pick_aged(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    let runs = &situation.tree.runs;
    let limit = situation.now.saturating_sub(policy.tombstone_age_max);
    let newest = runs.iter().position(|run| run.tombstones_since().is_some_and(|since| since < limit))?;
    let is_free = runs[newest..].iter().all(|run| !situation.is_busy(run.id));
    let stage = oldest_stage(policy, situation.tree, newest).filter(|_| is_free)?;
    Some(situation.merge_from(newest, stage))
}

/// The merge that gives the bottom run of another shape a stage of this one: most of its files are moved, not copied.
fn pick_foreign_bottom(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    let runs = &situation.tree.runs;
    let start = runs.iter().position(|run| run.stage == STAGE_BOTTOM)?;
    let is_free = runs[start..].iter().all(|run| !situation.is_busy(run.id));
    if policy.shape == Shape::ForestOverBottom || !is_free {
        return None;
    }
    Some(situation.merge_from(start, oldest_stage(policy, situation.tree, start)?))
}

/// The stage of a run that takes in the oldest ones, those from `start` on. It is above the stage of the next newer one,
/// or the new run would count as newer than that; `None` where there is no such stage.
fn oldest_stage(policy: &Policy, tree: &SubTree, start: usize) -> Option<u8> {
    let (newer, taken) = tree.runs.split_at(start);
    let least = newer.last().map_or(STAGE_FIRST, |run| run.stage.saturating_add(1).max(STAGE_FIRST));
    let fitting = || {
        let bytes = taken.iter().map(|run| run.bytes()).fold(0, u64::saturating_add);
        fitting_stage(policy, bytes).max(least)
    };
    match (policy.shape, tree.last_stage()) {
        (Shape::ForestOverBottom, _) => (least <= STAGE_BOTTOM).then_some(STAGE_BOTTOM),
        (_, STAGE_BOTTOM) => (least <= STAGE_MAX).then(fitting),
        // Where it is too large for its stage, files of it would go on to the next at once, and make another run.
        (Shape::Leveled, last) => (least <= STAGE_MAX).then(|| fitting().max(last)),
        (Shape::Forest, last) => (least <= STAGE_MAX).then(|| last.max(least)),
    }
}

/// The stage of a forest, or of levels, whose runs are about so large.
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

    /// How many runs, from `start` on, are of the same stage.
    fn stage_len(&self, start: usize) -> usize {
        let stage = self.tree.runs[start].stage;
        self.tree.runs[start..].iter().take_while(|run| run.stage == stage).count()
    }

    /// Where stages begin, newest first, and how many runs each has.
    fn stages(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut start = 0;
        std::iter::from_fn(move || {
            (start < self.tree.runs.len()).then(|| {
                let stage = (start, self.stage_len(start));
                start += stage.1;
                stage
            })
        })
    }

    /// The first of the oldest runs that no job is at work on.
    fn free_from(&self) -> usize {
        let runs = &self.tree.runs;
        runs.len() - runs.iter().rev().take_while(|run| !self.is_busy(run.id)).count()
    }

    /// The merge of all runs from `start` on.
    fn merge_from(&self, start: usize, output_stage: u8) -> WholePlan {
        let inputs = self.tree.runs[start..].iter().map(|run| run.id).collect();
        WholePlan { inputs, output_stage, drops_tombstones: true }
    }

    /// The merge of the `len` runs from `start` on.
    fn merge(&self, start: usize, len: usize, output_stage: u8) -> WholePlan {
        WholePlan {
            inputs: self.tree.runs[start..start + len].iter().map(|run| run.id).collect(),
            output_stage,
            drops_tombstones: start + len == self.tree.runs.len(),
        }
    }
}
