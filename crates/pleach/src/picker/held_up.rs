//! Shared flush files of which little is alive.

use super::forest::pick_stage;
use super::{Situation, WholePlan};
use crate::shape::STAGE_SECTIONS;
use crate::version::SubTree;

/// A shared flush file whose sections were merged away, but for less than one part in this many, is held up by them.
/// At 4, shared files take at most about four times what is alive in them (arbitrary).
const HELD_UP_SHARE: u64 = 4;

/// Whether a shared flush file of `raw_bytes` is held up by sections of `live_bytes`.
pub(crate) fn is_held_up(live_bytes: u64, raw_bytes: u64) -> bool {
    live_bytes < raw_bytes / HELD_UP_SHARE
}

/// The merge that takes the sections out of shared flush files: all of a sub-tree's sections become one run.
pub(crate) fn pick_held_up(tree: &SubTree) -> Option<WholePlan> {
    if tree.runs.is_empty() {
        return None;
    }
    let situation = Situation { tree, busy: &[], now: 0 };
    let plan = pick_stage(situation, 0, situation.stage_len(0), 1)?;
    // Merged into their own stage, sections would still be held up by the older ones.
    (plan.output_stage > STAGE_SECTIONS).then_some(plan)
}
