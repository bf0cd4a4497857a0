//! The forest over a bottom: most data is in one sorted run, newer data in a small forest above it.
//!
//! Three things start a merge:
//! 1. *A full stage.* It is merged into the next stage, as in the forest. If the runs above the bottom have reached twice its
//!    size, they are all merged into the bottom, which then has three times its size. So a load of new keys rewrites each
//!    entry of the bottom half a time on average; a forest rewrites its last stage once.
//! 2. *Reads.* Once reads have spent as much time on further runs as a merge of everything takes (`version::reads`), all
//!    runs are merged into the bottom.
//! 3. *Garbage*, which would double the space. When it exceeds a share of the live entries, all runs are merged into the
//!    bottom. Each file has an estimate of its garbage, sampled with the filters when it was written. Where deletes are
//!    among it, and it is quiet, less is enough, and the separated values that it refers to count as well: only a merge finds
//!    which they are.
//!
//! The first stage, of small flushed runs, is full at `k * k` runs while data is written. When it is quiet, it is full at
//! `k` runs, so that reads search fewer. A later stage is full at `2.5 * k` runs. Only its oldest `2 * k` are merged, so
//! that the newest are not written again immediately. Flushed runs never go into the bottom directly. With `k` = 4 a load of
//! new keys is written twice in all up to some 150 memtables, and about three times up to some 1100
//! (`testdata/pickers/bottom-load.txt`); at most 9 runs of a stage are left to read.

use std::sync::Arc;

use super::forest::pick_stage;
use super::{Policy, STAGE_BOTTOM, Situation, WholePlan};
use crate::shape::STAGE_FIRST;
use crate::version::Run;

/// Garbage above which everything is merged, as a share of the live entries: 15 %. The rest of the space target, 1.6, is for
/// garbage that arrives during the merge.
const GARBAGE_MAX: (u128, u128) = (3, 20);

/// Garbage of less than so many quarters of a memtable starts no merge while data is written: otherwise a small store would be
/// merged after every flush.
const GARBAGE_QUARTERS: u128 = 8;

/// The same when it is quiet and deletes are among the garbage: their space is to come back without further writes.
const GARBAGE_QUARTERS_DELETED: u128 = 1;

/// The merge that is due.
pub(super) fn pick(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    pick_garbage(policy, situation)
        .or_else(|| pick_for_reads(situation))
        .or_else(|| situation.stages().find_map(|(start, len)| pick_full(policy, situation, start, len)))
}

/// The merge of the stage of `len` runs at `start`, if it is full.
fn pick_full(policy: &Policy, situation: Situation<'_>, start: usize, len: usize) -> Option<WholePlan> {
    let stage = situation.tree.runs[start].stage;
    let plan = pick_stage(situation, start, len, capacity(policy, stage))?;
    if stage <= STAGE_FIRST || plan.output_stage == stage {
        return Some(plan);
    }
    let taken = len.min(2 * policy.k);
    let oldest = start + len - taken;
    Some(if reaches_bottom(situation, oldest) {
        situation.merge_from(oldest, STAGE_BOTTOM)
    } else {
        situation.merge(oldest, taken, plan.output_stage)
    })
}

/// Runs at which a stage is merged.
fn capacity(policy: &Policy, stage: u8) -> usize {
    match (stage, policy.is_quiet) {
        (STAGE_FIRST, false) => policy.k * policy.k,
        (..=STAGE_FIRST, _) => policy.k,
        _ => 2 * policy.k + policy.k / 2,
    }
}

/// The runs above the bottom are merged into it when they are so many times as large. A larger number writes less: the bottom
/// is rewritten once whenever it grows by this factor plus one. The space is bounded by the rule for garbage.
const GROWTH: u128 = 2;

/// Whether the runs from `start` on are all free, and those above the bottom large enough to be merged into it.
fn reaches_bottom(situation: Situation<'_>, start: usize) -> bool {
    let runs = &situation.tree.runs[start..];
    let (bottom, forest): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.stage == STAGE_BOTTOM);
    let bytes = |runs: &[&Arc<Run>]| runs.iter().map(|run| u128::from(run.totals.bytes)).sum::<u128>();
    situation.free_from() <= start && bytes(&forest) >= GROWTH * bytes(&bottom)
}

/// The merge of everything, if reads have spent as much time as it takes.
fn pick_for_reads(situation: Situation<'_>) -> Option<WholePlan> {
    let tree = situation.tree;
    let is_due = tree.runs.len() > 1
        && situation.are_free(0..tree.runs.len())
        && tree.reads.outweighs_merge_of(tree.sum(|run| run.totals.bytes));
    is_due.then(|| situation.merge_from(0, STAGE_BOTTOM))
}

/// The merge of the free oldest runs, if they hold more garbage than [`GARBAGE_MAX`].
fn pick_garbage(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    let start = situation.free_from();
    let runs = &situation.tree.runs[start..];
    let sum = |of: fn(&Run) -> u64| runs.iter().map(|run| u128::from(of(run))).sum::<u128>();
    let entries = sum(|run| run.totals.entries);
    let garbage = sum(|run| run.totals.garbage).min(entries);
    let live = entries - garbage;
    let has_deletes = runs.iter().any(|run| run.totals.tombstones_since.is_some());
    let (quarters, value_bytes) = if policy.is_quiet && has_deletes {
        (GARBAGE_QUARTERS_DELETED, sum(|run| run.totals.value_bytes))
    } else {
        (GARBAGE_QUARTERS, 0)
    };
    let garbage_bytes = (sum(|run| run.totals.bytes) + value_bytes) * garbage / entries.max(1);
    let is_due = garbage * GARBAGE_MAX.1 > live * GARBAGE_MAX.0
        && 4 * garbage_bytes > quarters * u128::from(policy.memtable_bytes);
    (is_due && runs.len() > 1).then(|| situation.merge_from(start, STAGE_BOTTOM))
}
