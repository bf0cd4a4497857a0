//! Levels: one run a stage, each about ten times the one above, merged one file at a time.
//!
//! Flushed runs gather in the first stage; `k` of them are merged with the run of the second. When the run of a later stage
//! exceeds its size, one of its files is merged into the next stage: the one with the fewest overlapping bytes below it, for
//! each of its own.
//!
//! # Origin
//! `LevelDB` and its descendants. Departure: the levels are stages of the forest, not a different engine.

use std::sync::Arc;

use super::forest::pick_stage;
use super::{PartialPlan, Plan, Policy, STAGE_MAX, Situation};
use crate::shape::STAGE_FIRST;
use crate::version::{Run, RunFile};

/// How many times larger a stage is than the one above it.
pub(super) const FANOUT: u64 = 10;

/// The merge of the uppermost stage that needs one.
pub(super) fn pick(policy: &Policy, situation: Situation<'_>) -> Option<Plan> {
    situation.stages().find_map(|(start, len)| {
        let stage = situation.tree.runs[start].stage;
        if stage < STAGE_FIRST {
            pick_stage(situation, start, len, policy.k).map(Plan::Whole)
        } else if stage == STAGE_FIRST {
            pick_first(policy, situation, start, len)
        } else if len > 1 {
            // Another shape has left several runs in the stage.
            situation.are_free(start..start + len).then(|| Plan::Whole(situation.merge(start, len, stage)))
        } else {
            pick_file(policy, situation, start).map(Plan::Partial)
        }
    })
}

/// The merge of the flushed runs with the run of the next stage.
fn pick_first(policy: &Policy, situation: Situation<'_>, start: usize, len: usize) -> Option<Plan> {
    let runs = &situation.tree.runs[start..];
    let below = runs[len..].iter().take_while(|run| run.stage == STAGE_FIRST + 1).count();
    (len >= policy.k && situation.are_free(start..start + len + below))
        .then(|| Plan::Whole(situation.merge(start, len + below, STAGE_FIRST + 1)))
}

/// The merge of one file of the run at `at`, if it is above its size, into the run of the next stage.
fn pick_file(policy: &Policy, situation: Situation<'_>, at: usize) -> Option<PartialPlan> {
    let runs = &situation.tree.runs;
    let (upper, lower) = (&runs[at], runs.get(at + 1));
    let depth = u32::from(upper.stage - STAGE_FIRST - 1);
    let size =
        policy.memtable_bytes.saturating_mul(policy.k as u64).saturating_mul(FANOUT.saturating_pow(depth));
    let output_stage = upper.stage + 1;
    if upper.totals.bytes <= size || output_stage > STAGE_MAX || situation.is_busy(upper.id) {
        return None;
    }
    // If the next stage has several runs, they are merged first.
    let lower = lower.filter(|run| run.stage == output_stage);
    let is_single = runs.get(at + 2).is_none_or(|run| run.stage != output_stage);
    if !is_single || lower.is_some_and(|run| situation.is_busy(run.id)) {
        return None;
    }
    let cost = |file: &&RunFile| {
        let below = lower.map_or(&[][..], |run| overlapping(run, upper, file));
        let below = below.iter().map(|f| f.meta.bytes).fold(0, u64::saturating_add);
        below.saturating_mul(1000) / file.meta.bytes.max(1)
    };
    let file = upper.files.iter().min_by_key(cost)?;
    Some(PartialPlan {
        upper: upper.id,
        file: file.meta.file,
        lower: lower.map(|run| {
            let mut files: Vec<_> = overlapping(run, upper, file).iter().map(|f| f.meta.file).collect();
            files.sort_unstable();
            files.dedup();
            (run.id, files)
        }),
        output_stage,
        drops_tombstones: at + 1 + usize::from(lower.is_some()) == runs.len(),
    })
}

/// The files of `run` whose range meets that of `file`, with all their parts and between all parts of `file` in `upper`.
fn overlapping<'r>(run: &'r Arc<Run>, upper: &Run, file: &RunFile) -> &'r [RunFile] {
    let parts = || upper.parts_of(file.meta.file).map(|part| &part.meta);
    let smallest = parts().next().map_or(&file.meta.smallest, |meta| &meta.smallest);
    let largest = parts().last().map_or(&file.meta.largest, |meta| &meta.largest);
    let first = run.first_file_reaching(smallest);
    let count = run.files[first..].iter().take_while(|below| below.meta.smallest <= *largest).count();
    &run.files[run.with_all_parts(first..first + count)]
}
