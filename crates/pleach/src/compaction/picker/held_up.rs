//! Shared flush files of which little is alive.

use std::collections::HashMap;

use pleach_env::FileId;

use super::forest::pick_stage;
use super::{Situation, WholePlan};
use crate::flush::STAGE_SECTIONS;
use crate::keys::PartitionId;
use crate::version::edit::RunKind;
use crate::version::{SubTree, Version};

/// A shared flush file whose sections were merged away, but for less than one part in this many, is held up by them.
/// At 4, shared files take at most about four times what is alive in them (arbitrary).
const HELD_UP_SHARE: u64 = 4;

/// The merge that frees a shared flush file of which little is alive: of the sections of one partition in it, with all
/// others of its stage.
pub(crate) fn pick_held_up(version: &Version) -> Option<(PartitionId, WholePlan)> {
    let mut live_bytes = HashMap::<FileId, u64>::new();
    let sections = |tree: &SubTree| {
        let sections = tree.runs.iter().filter(|run| run.kind == RunKind::Section);
        sections.flat_map(|run| run.files.iter().cloned()).collect::<Vec<_>>()
    };
    for (_, partition) in version.partitions() {
        for section in sections(&partition.tree) {
            let bytes = live_bytes.entry(section.file.id).or_default();
            *bytes = bytes.saturating_add(section.meta.bytes);
        }
    }
    version.partitions().find_map(|(id, partition)| {
        let held_up = sections(&partition.tree)
            .iter()
            .any(|section| live_bytes[&section.file.id] < section.file.summary.raw_bytes / HELD_UP_SHARE);
        let situation = Situation { tree: &partition.tree, busy: &[], now: 0 };
        // Merged into their own stage, sections would still be held up by the older ones.
        let plan = || {
            let plan = pick_stage(situation, 0, situation.stage_len(0), 1)?;
            (plan.output_stage > STAGE_SECTIONS).then_some(plan)
        };
        held_up.then(plan).flatten().map(|plan| (id, plan))
    })
}
