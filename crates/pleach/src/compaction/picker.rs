//! Choosing what to merge: a pure function from a sub-tree to a plan.
//!
//! # Origin
//! `SifrDB`'s multi-stage tree, section 2.2: a stage that holds `k` runs is merged into one run of the next stage.

use std::collections::HashMap;

use pleach_env::FileId;

use crate::flush::STAGE_FIRST;
use crate::keys::PartitionId;
use crate::version::edit::{RunId, RunKind};
use crate::version::{SubTree, Version};

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
        let plan = pick_stage(tree, start, k);
        if plan.is_some() {
            return plan;
        }
        start += stage_len(tree, start);
    }
    None
}

/// How many runs, from `start` on, are of the same stage.
fn stage_len(tree: &SubTree, start: usize) -> usize {
    let stage = tree.runs[start].stage;
    tree.runs[start..].iter().take_while(|run| run.stage == stage).count()
}

/// The merge of the stage that begins at `start`, if it has at least `k` runs and no job reads or writes any of them.
fn pick_stage(tree: &SubTree, start: usize, k: usize) -> Option<Plan> {
    let len = stage_len(tree, start);
    let runs = &tree.runs[start..start + len];
    (len >= k && runs.iter().all(|run| !tree.is_busy(run.id))).then(|| Plan {
        inputs: runs.iter().map(|run| run.id).collect(),
        output_stage: (runs[0].stage + 1).min(STAGE_MAX),
        drops_tombstones: start + len == tree.runs.len(),
    })
}

/// A shared flush file whose sections were merged away, but for less than one part in this many, is held up by them.
/// At 4, shared files take at most about four times what is alive in them (arbitrary).
const HELD_UP_SHARE: u64 = 4;

/// The merge that frees a shared flush file of which little is alive: of the sections of one partition in it, with all
/// others of its stage.
pub(crate) fn pick_held_up(version: &Version) -> Option<(PartitionId, Plan)> {
    let mut live_bytes = HashMap::<FileId, u64>::new();
    let sections = |tree: &SubTree| {
        let sections = tree.runs.iter().filter(|run| run.kind == RunKind::Section);
        sections.flat_map(|run| run.files.iter().cloned()).collect::<Vec<_>>()
    };
    for (_, partition) in version.partitions() {
        for section in sections(&partition.tree) {
            *live_bytes.entry(section.file.id).or_default() += section.meta.bytes;
        }
    }
    version.partitions().find_map(|(id, partition)| {
        let held_up = sections(&partition.tree)
            .iter()
            .any(|section| live_bytes[&section.file.id] < section.file.summary.raw_bytes / HELD_UP_SHARE);
        held_up.then(|| pick_stage(&partition.tree, 0, 1)).flatten().map(|plan| (id, plan))
    })
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::version::Run;
    use crate::version::edit::JobMeta;

    /// A sub-tree from words such as `1:7`, a run of stage 1 numbered 7, in age order; `busy` are inputs of a job.
    fn tree(runs: &str, busy: &[u64]) -> SubTree {
        let run = |word: &str| {
            let (stage, id) = word.split_once(':').unwrap();
            let (stage, id) = (stage.parse().unwrap(), RunId(id.parse().unwrap()));
            Arc::new(Run::new(id, stage, RunKind::Ssts, None, Vec::new()))
        };
        let mut tree = SubTree { runs: runs.split_whitespace().map(run).collect(), jobs: Vec::new() };
        if let [output, inputs @ ..] = busy {
            let inputs = inputs.iter().copied().map(RunId).collect();
            tree.jobs.push(JobMeta { output: RunId(*output), inputs, drops_tombstones: false });
        }
        tree.check_invariants().unwrap();
        tree
    }

    fn told(plan: Option<Plan>) -> String {
        let Some(plan) = plan else { return "nothing".to_owned() };
        let inputs: Vec<_> = plan.inputs.iter().map(|run| run.0.to_string()).collect();
        let tombstones = if plan.drops_tombstones { ", drop tombstones" } else { "" };
        format!("{} -> stage {}{tombstones}", inputs.join(" "), plan.output_stage)
    }

    #[test]
    fn a_stage_is_merged_when_it_is_full() {
        let pick = |runs| told(pick_forest(&tree(runs, &[]), 3));
        assert_eq!(pick(""), "nothing");
        assert_eq!(pick("0:9 0:8 1:4 1:3 2:1"), "nothing");
        assert_eq!(pick("0:9 0:8 0:7 1:4 1:3 2:1"), "9 8 7 -> stage 1");
        assert_eq!(pick("1:4 1:3 1:2 2:1"), "4 3 2 -> stage 2");
        assert_eq!(pick("1:4 1:3 1:2"), "4 3 2 -> stage 2, drop tombstones");
        assert_eq!(pick("0:9 1:4 1:3 1:2 2:1 2:0"), "4 3 2 -> stage 2");
    }

    #[test]
    fn a_stage_that_a_job_reads_or_writes_is_left_alone() {
        let pick = |runs, busy: &[u64]| told(pick_forest(&tree(runs, busy), 3));
        assert_eq!(pick("0:12 0:11 0:10 0:9 1:13 1:4", &[13, 11, 10, 9]), "nothing");
        assert_eq!(pick("0:14 0:12 1:13 1:4 1:3", &[13, 12]), "nothing", "the output is not whole yet");
        assert_eq!(pick("0:14 0:12 1:13 2:8 2:7 2:6", &[13, 12]), "8 7 6 -> stage 3, drop tombstones");
    }

    #[test]
    fn everything_is_merged_into_the_last_stage() {
        let pick = |runs, busy: &[u64]| told(pick_all(&tree(runs, busy)));
        assert_eq!(pick("", &[]), "nothing");
        assert_eq!(pick("2:5", &[]), "nothing");
        assert_eq!(pick("0:5", &[]), "5 -> stage 1, drop tombstones", "a section becomes a run");
        assert_eq!(pick("0:9 1:5 3:2", &[]), "9 5 2 -> stage 3, drop tombstones");
        assert_eq!(pick("0:9 1:5 3:2", &[5, 9]), "nothing", "one job at a time");
    }
}
