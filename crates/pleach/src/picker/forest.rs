//! The forest: `k` runs a stage.
//!
//! # Origin
//! `SifrDB`, section 2.2 and 3.1.

use super::{Policy, STAGE_BOTTOM, STAGE_MAX, Situation, WholePlan};

/// The merge of the lowest stage that is full.
pub(super) fn pick(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    situation.stages().find_map(|(start, len)| pick_stage(situation, start, len, policy.k))
}

/// The merge of the `len` runs of the stage at `start`, if at least `k` of them are free.
///
/// When the older ones of the stage are at work, the others cannot go to the next stage, which would make them the older
/// ones. They become one run of their own stage, so that a long job does not let runs pile up above it.
pub(super) fn pick_stage(situation: Situation<'_>, start: usize, len: usize, k: usize) -> Option<WholePlan> {
    let runs = &situation.tree.runs[start..start + len];
    let stage = runs[0].stage;
    let free = runs.iter().take_while(|run| !situation.is_busy(run.id)).count();
    if free < k || stage == STAGE_BOTTOM {
        return None;
    }
    let output_stage = if free == len { (stage + 1).min(STAGE_MAX) } else { stage };
    Some(situation.merge(start, free, output_stage))
}
