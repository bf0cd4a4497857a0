//! Sparse shared files: shared flush files of which little is live, because most of their sections were merged away.

use super::forest::pick_stage;
use super::{Situation, WholePlan};
use crate::shape::STAGE_SECTIONS;
use crate::version::SubTree;
use crate::version::edit::RunId;

/// A shared flush file is sparse when less than one part in this many is live. At 4, shared files take at most about four
/// times the space of their live sections (arbitrary).
const SPARSE_SHARE: u64 = 4;

/// Whether a shared flush file of `raw_bytes` with sections of `live_bytes` is sparse.
pub(crate) fn is_sparse(live_bytes: u64, raw_bytes: u64) -> bool {
    live_bytes < raw_bytes / SPARSE_SHARE
}

/// The merge that takes a sub-tree's sections out of sparse files: all its sections become one run. `busy` are runs of
/// jobs that the version does not record.
pub(crate) fn pick_sparse(tree: &SubTree, busy: &[RunId]) -> Option<WholePlan> {
    let situation = Situation { tree, busy, now: 0 };
    let (start, len) = situation.stages().next()?;
    let plan = pick_stage(situation, start, len, 1)?;
    // A merge into their own stage leaves the older sections in their files.
    (plan.output_stage > STAGE_SECTIONS).then_some(plan)
}
