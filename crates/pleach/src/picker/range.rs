//! The merge of a key range of all runs, on demand.
//!
//! All runs with a file in the range take part, and the output becomes part of the oldest run. There may be runs without such a
//! file between them. The merged entries move below these runs, which is safe because they hold no key of the range.

use std::sync::Arc;

use super::{Policy, Situation, oldest_stage};
use crate::keys::KeyRange;
use crate::version::edit::{RunId, RunKind};
use crate::version::{Run, RunFile};

/// The merge of a key range into the oldest run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangePlan {
    pub(crate) range: KeyRange,
    /// The runs with files in the range, newest first.
    pub(crate) inputs: Vec<RunId>,
    /// The runs that no other compaction may merge meanwhile: the inputs and the output. If the output is a new run, all runs
    /// that are as old as the inputs, because a new run must not lie between another output and its inputs.
    pub(crate) claimed: Vec<RunId>,
    /// The oldest run of the partition; `None` if it is a section, and then the output is a new run.
    pub(crate) output: Option<RunId>,
    pub(crate) output_stage: u8,
}

/// What there is to do for a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RangeWork {
    /// The range is in one run and has no tombstones, as far as the ranges of files tell.
    Nothing,
    /// A compaction reads or writes one of the runs.
    Waits,
    Due(RangePlan),
}

/// What there is to do for `range`.
pub(crate) fn pick_range(policy: &Policy, situation: Situation<'_>, range: &KeyRange) -> RangeWork {
    let runs = &situation.tree.runs;
    let overlapping: Vec<_> = runs.iter().filter(|run| files_in(run, range).next().is_some()).collect();
    let has_tombstones = |run: &Run| files_in(run, range).any(|file| file.meta.tombstones > 0);
    match &overlapping[..] {
        [] => return RangeWork::Nothing,
        [only] if !has_tombstones(only) => return RangeWork::Nothing,
        _ => {}
    }
    let oldest = runs.last().filter(|run| run.kind == RunKind::Ssts);
    let newest = runs.iter().position(|run| run.id == overlapping[0].id).unwrap_or(0);
    let claimed = |run: &&Arc<Run>| match oldest {
        Some(oldest) => run.id == oldest.id || overlapping.iter().any(|other| other.id == run.id),
        None => true,
    };
    let claimed: Vec<_> = runs[newest..].iter().filter(claimed).map(|run| run.id).collect();
    if claimed.iter().any(|run| situation.is_busy(*run)) {
        return RangeWork::Waits;
    }
    let stage = || oldest_stage(policy, situation.tree, runs.len());
    let Some(output_stage) = oldest.map(|run| run.stage).or_else(stage) else { return RangeWork::Nothing };
    RangeWork::Due(RangePlan {
        range: range.clone(),
        inputs: overlapping.iter().map(|run| run.id).collect(),
        claimed,
        output: oldest.map(|run| run.id),
        output_stage,
    })
}

/// The files of `run` that readers see keys of in the range, as far as the ranges of files tell.
fn files_in<'r>(run: &'r Run, range: &'r KeyRange) -> impl Iterator<Item = &'r RunFile> {
    let lower = run.clip.as_deref().unwrap_or_default().max(&range.lower);
    let first = run.first_file_reaching(lower);
    run.files[first..].iter().take_while(|file| !range.ends_before(&file.meta.smallest))
}
