//! The forest over a bottom: most of the data is one sorted run, new data a small forest above it.
//!
//! A stage that is full is merged as in the forest, until what lies above the bottom is twice as large as the bottom: then
//! all of it goes into the bottom, which so becomes three times as large. A load of new keys rewrites each entry in the
//! bottom half a time on average, a forest its last stage once.
//!
//! Flushed runs are small and many: while data is written, their stage takes `k` times `k` of them before they are merged.
//! When it is quiet, they are merged at `k`, for the reads. A later stage takes two and a half times `k`; then its oldest
//! twice `k` are merged, so that not all that has just been written is written again. Flushed runs never go into the bottom
//! directly. With `k` = 4 a load of new keys is written twice in all up to some 150 memtables, and three times up to some
//! 600; at most 9 runs of a stage are left to read.
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

#[cfg(test)]
mod tests {
    use super::super::testing::{policy, told, tree};
    use super::super::{Plan, Policy, Situation};
    use crate::shape::Shape;
    use crate::version::reads::{MERGE_NS_PER_BYTE, SEEK_NS};

    fn pick(runs: &str, busy: &[u64]) -> String {
        let tree = tree(runs, busy);
        let situation = Situation { tree: &tree, busy: &[], now: 0 };
        told(super::pick(&policy(Shape::ForestOverBottom), situation).map(Plan::Whole))
    }

    #[test]
    fn the_first_full_stage_of_merged_runs_becomes_the_bottom() {
        assert_eq!(pick("1:4b100 1:3b100", &[]), "nothing");
        assert_eq!(pick("1:4b100 1:3b100 1:2b100", &[]), "4 3 2 -> stage 2, drop tombstones");
        assert_eq!(pick("2:7b9 2:6b9 2:5b9 2:4b9 2:3b9 2:2b9", &[]), "nothing");
        let full = "2:8b9 2:7b9 2:6b9 2:5b9 2:4b9 2:3b9 2:2b9";
        assert_eq!(pick(full, &[]), "7 6 5 4 3 2 -> stage 60, drop tombstones", "the youngest stays");
    }

    #[test]
    fn flushed_runs_wait_while_data_is_written() {
        let busy_policy = Policy { is_quiet: false, ..policy(Shape::ForestOverBottom) };
        let pick = |runs: &str| {
            let tree = tree(runs, &[]);
            let situation = Situation { tree: &tree, busy: &[], now: 0 };
            told(super::pick(&busy_policy, situation).map(Plan::Whole))
        };
        assert_eq!(pick("1:9b9 1:8b9 1:7b9 1:6b9 1:5b9 1:4b9 1:3b9 1:2b9 60:1b99"), "nothing");
        let full = pick("1:10b9 1:9b9 1:8b9 1:7b9 1:6b9 1:5b9 1:4b9 1:3b9 1:2b9 60:1b99");
        assert_eq!(full, "10 9 8 7 6 5 4 3 2 -> stage 2");
        let full = "2:8b9 2:7b9 2:6b9 2:5b9 2:4b9 2:3b9 2:2b9 60:1b99";
        assert_eq!(pick(full), "7 6 5 4 3 2 -> stage 3", "other stages do not wait");
    }

    #[test]
    fn the_bottom_is_merged_when_the_forest_is_twice_as_large() {
        let stage = "2:8b9 2:7b100 2:6b100 2:5b100 2:4b100 2:3b100 2:2b100";
        assert_eq!(pick(&format!("{stage} 60:1b301"), &[]), "7 6 5 4 3 2 -> stage 3");
        assert_eq!(pick(&format!("{stage} 60:1b300"), &[]), "7 6 5 4 3 2 1 -> stage 60, drop tombstones");
        let below = "2:9b9 2:8b100 2:7b100 2:6b100 2:5b100 2:4b100 2:3b100 3:2b600 60:1b600";
        assert_eq!(pick(below, &[]), "8 7 6 5 4 3 2 1 -> stage 60, drop tombstones");
    }

    #[test]
    fn reads_bring_everything_down_when_they_have_paid_for_it() {
        let tree = tree("1:4b1000 2:3b1000 60:1b4000", &[]);
        let situation = Situation { tree: &tree, busy: &[], now: 0 };
        let policy = policy(Shape::ForestOverBottom);
        let pick = |policy: &Policy| told(super::pick(policy, situation).map(Plan::Whole));
        let due = 6000 * MERGE_NS_PER_BYTE / (2 * SEEK_NS);
        for _ in 0..due {
            assert_eq!(pick(&policy), "nothing");
            tree.reads.note(tree.runs.len(), SEEK_NS);
        }
        assert_eq!(pick(&policy), "4 3 1 -> stage 60, drop tombstones");
        tree.reads.reset();
        assert_eq!(pick(&policy), "nothing");
    }

    #[test]
    fn garbage_brings_everything_down() {
        assert_eq!(pick("1:4b1000o650 60:1b4000", &[]), "nothing", "less than 15 %");
        assert_eq!(pick("1:4b1000o660 60:1b4000", &[]), "4 1 -> stage 60, drop tombstones");
        assert_eq!(pick("1:4b100o100 60:1b100", &[]), "nothing", "a small store bears more");
        assert_eq!(pick("1:9b1000o999 1:4b1000o950 60:8b9 60:1b3000", &[8, 4, 1]), "nothing");
    }

    #[test]
    fn a_bottom_at_work_does_not_stop_the_forest() {
        let busy = &[10, 3, 2, 1];
        assert_eq!(pick("1:6b9 1:5b9 1:4b9 2:3b9 2:2b9 60:10 60:1b9", busy), "6 5 4 -> stage 2");
        let full = "2:11b9 2:9b9 2:8b9 2:7b9 2:6b9 2:5b9 2:4b9 2:3b9 2:2b9 60:10 60:1b9";
        assert_eq!(pick(full, busy), "11 9 8 7 6 5 4 -> stage 2");
    }
}
