//! The forest over a bottom: most of the data is one sorted run, new data a small forest above it.
//!
//! A stage that is full is merged as in the forest, until what lies above the bottom is twice as large as the bottom: then
//! all of it goes into the bottom, which so becomes three times as large. A load of new keys rewrites each entry in the
//! bottom half a time on average, a forest its last stage once.
//!
//! Flushed runs are small and many: while data is written, their stage takes `k` times `k` of them before they are merged.
//! When it is quiet, they are merged at `k`, for the reads. A later stage takes two and a half times `k`; then its oldest
//! twice `k` are merged, so that not all that has just been written is written again. Flushed runs never go into the bottom
//! directly. With `k` = 4 a load of new keys is written twice in all up to some 150 memtables, and about three times up to
//! some 1100 (`testdata/pickers/bottom-load.txt`); at most 9 runs of a stage are left to read.
//!
//! Runs that have been merged so far cost reads some time each. Once reads have spent as much as a merge of everything
//! takes (`version/reads`), everything goes into the bottom.
//!
//! Overwritten keys are another matter: they would double the space. Each file says about how many of its entries hide
//! older ones (sampled with the filters when it was written), so garbage is known before it is merged. When it exceeds a
//! share of what lives, everything goes into the bottom.

use std::sync::Arc;

use super::forest::pick_stage;
use super::{Policy, STAGE_BOTTOM, Situation, WholePlan};
use crate::shape::STAGE_FIRST;
use crate::version::Run;

/// Garbage that is borne, as a share of the live entries: 15 %. The rest of the space target, 1.6, is for what arrives
/// while the bottom is being merged.
const GARBAGE_MAX: (u128, u128) = (3, 20);

/// Garbage of so many memtables is borne in any case: a small store would merge itself with every flush.
const GARBAGE_MEMTABLES: u128 = 2;

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

/// The bottom takes in all that lies above it when that is so many times as large. More writes less: the bottom is rewritten
/// once for every growth by one more than this. It does not bound the space, garbage does.
const GROWTH: u128 = 2;

/// Whether the runs from `start` on are all free, and those above the bottom large enough to go into it.
fn reaches_bottom(situation: Situation<'_>, start: usize) -> bool {
    let runs = &situation.tree.runs[start..];
    let (bottom, forest): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.stage == STAGE_BOTTOM);
    let bytes = |runs: &[&Arc<Run>]| runs.iter().map(|run| u128::from(run.bytes())).sum::<u128>();
    situation.free_from() <= start && bytes(&forest) >= GROWTH * bytes(&bottom)
}

/// The merge of everything, if reads have paid for it.
fn pick_for_reads(situation: Situation<'_>) -> Option<WholePlan> {
    let tree = situation.tree;
    let is_due = tree.runs.len() > 1
        && situation.free_from() == 0
        && tree.reads.outweighs_merge_of(tree.sum(Run::bytes));
    is_due.then(|| situation.merge_from(0, STAGE_BOTTOM))
}

/// The merge of the free oldest runs, if they hold more garbage than is borne.
fn pick_garbage(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    let start = situation.free_from();
    let runs = &situation.tree.runs[start..];
    let sum = |of: fn(&Run) -> u64| runs.iter().map(|run| u128::from(of(run))).sum::<u128>();
    let entries = sum(Run::entries);
    let garbage = sum(Run::garbage).min(entries);
    let live = entries - garbage;
    let garbage_bytes = sum(Run::bytes) * garbage / entries.max(1);
    let is_due = garbage * GARBAGE_MAX.1 > live * GARBAGE_MAX.0
        && garbage_bytes > GARBAGE_MEMTABLES * u128::from(policy.memtable_bytes);
    (is_due && runs.len() > 1).then(|| situation.merge_from(start, STAGE_BOTTOM))
}
