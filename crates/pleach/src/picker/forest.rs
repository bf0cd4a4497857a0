//! The forest: up to `k` runs a stage; a full stage is merged into one run of the next.
//!
//! # Origin
//! `SifrDB`, section 2.2 and 3.1.

use super::{Policy, STAGE_BOTTOM, STAGE_MAX, Situation, WholePlan};

/// The merge of the uppermost stage that is full.
pub(super) fn pick(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    situation.stages().find_map(|(start, len)| pick_stage(situation, start, len, policy.k))
}

/// The merge of the `len` runs of the stage at `start`, if at least `k` of them are free.
///
/// If the older runs of the stage are at work, the newer ones cannot go to the next stage, where they would sort as older.
/// They become one run of their own stage, so that runs do not pile up above a long job.
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
