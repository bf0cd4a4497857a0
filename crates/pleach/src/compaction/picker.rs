//! Choosing what to merge: a pure function from a sub-tree to a plan.
//!
//! # Origin
//! SifrDB's multi-stage tree, section 2.2: a stage that holds `k` runs is merged into one run of the next stage.

use crate::flush::STAGE_FIRST;
use crate::version::SubTree;
use crate::version::edit::RunId;

/// A merge to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Newest first.
    pub(crate) inputs: Vec<RunId>,
    pub(crate) output_stage: u8,
    /// Whether nothing older than the inputs lies below them.
    pub(crate) drops_tombstones: bool,
}

/// The last stage there can be.
pub(crate) const STAGE_MAX: u8 = 60;

/// The merge that the forest shape asks for: the lowest stage that holds at least `k` runs, none of them busy.
pub(crate) fn pick_forest(tree: &SubTree, k: usize) -> Option<Plan> {
    let mut start = 0;
    while start < tree.runs.len() {
        let stage = tree.runs[start].stage;
        let len = tree.runs[start..].iter().take_while(|run| run.stage == stage).count();
        let runs = &tree.runs[start..start + len];
        // Runs that a job writes or reads are left alone; those newer than all of them may go ahead only if they are
        // the stage's oldest that are free, which a busy older run rules out.
        if len >= k && runs.iter().all(|run| !tree.is_busy(run.id)) {
            return Some(Plan {
                inputs: runs.iter().map(|run| run.id).collect(),
                output_stage: (stage + 1).min(STAGE_MAX),
                drops_tombstones: start + len == tree.runs.len(),
            });
        }
        start += len;
    }
    None
}

/// The merge of everything into one run, unless that is what there is. Not while a job is at work.
pub(crate) fn pick_all(tree: &SubTree) -> Option<Plan> {
    let [first, ..] = &tree.runs[..] else { return None };
    if !tree.jobs.is_empty() || (tree.runs.len() == 1 && first.stage >= STAGE_FIRST) {
        return None;
    }
    Some(Plan {
        inputs: tree.runs.iter().map(|run| run.id).collect(),
        output_stage: tree.last_stage().max(STAGE_FIRST),
        drops_tombstones: true,
    })
}
