//! Debt: the runs and the garbage by which background work on a sub-tree is behind.
//!
//! Runs cost reads, garbage takes space. Writers are slowed down in proportion to the debt above a soft limit.

use crate::shape::{Policy, STAGE_BOTTOM, STAGE_FIRST, Shape};
use crate::version::SubTree;

/// Lowest soft limit of runs. Arbitrary: during a long merge about so many gather above it, whatever the options.
const RUNS_MIN: usize = 40;

/// Soft and hard limit of garbage, as a share of the live entries.
const GARBAGE: (f64, f64) = (0.3, 0.5);

/// Garbage of less than so many memtables does not count.
const GARBAGE_MEMTABLES: u64 = 4;

/// The debt of a sub-tree as two ratios, of its runs and of its garbage: 0 at the soft limit, from which on writers are
/// slowed down, and 1 at the hard limit, at which they nearly stop. Debt counts only runs and garbage above the policy's limits.
pub(super) fn ratios(tree: &SubTree, policy: &Policy) -> (f64, f64) {
    let debt = Debt::of(tree, policy);
    (ratio_between(debt.runs, runs_limits(policy, tree)), ratio_between(debt.garbage_share, GARBAGE))
}

/// The debt of a sub-tree.
struct Debt {
    runs: f64,
    garbage_share: f64,
}

impl Debt {
    fn of(tree: &SubTree, policy: &Policy) -> Self {
        let (entries, bytes) = (tree.sum(|run| run.totals.entries), tree.sum(|run| run.totals.bytes));
        let garbage = tree.sum(|run| run.totals.garbage).min(entries);
        let garbage_bytes = as_f64(bytes) * as_f64(garbage) / as_f64(entries.max(1));
        let runs = tree.runs.iter().filter(|run| !run.files.is_empty()).count() as u64;
        // The other shapes do not merge for garbage, and a single run is not merged: a wait of the writers would not reduce it.
        let counts = policy.shape == Shape::ForestOverBottom
            && runs > 1
            && garbage_bytes > as_f64(GARBAGE_MEMTABLES * policy.memtable_bytes);
        let share = as_f64(garbage) / as_f64((entries - garbage).max(1));
        Self { runs: as_f64(runs), garbage_share: if counts { share } else { 0.0 } }
    }
}

/// Soft and hard limit of a sub-tree's runs. The soft one is a tenth above the runs for which no picker plans a merge while
/// data is written; the hard one is twice that.
fn runs_limits(policy: &Policy, tree: &SubTree) -> (f64, f64) {
    let k = policy.k;
    let stages = tree.runs.chunk_by(|a, b| a.stage == b.stage).map(|runs| runs[0].stage);
    let later = stages.filter(|stage| (STAGE_FIRST + 1..STAGE_BOTTOM).contains(stage)).count();
    let sections = k - 1;
    let unmerged = sections
        + match policy.shape {
            Shape::Forest => (1 + later) * (k - 1),
            // The bottom run, and at least two later stages, for the next merges bring them.
            Shape::ForestOverBottom => k * k + later.max(2) * (2 * k + k / 2 - 1),
            Shape::Leveled => k - 1 + later,
        };
    let soft = as_f64((unmerged + unmerged / 10).max(RUNS_MIN) as u64);
    (soft, 2.0 * soft)
}

/// Where `value` lies between the limits: 0 at or below the soft one, 1 at or above the hard one.
fn ratio_between(value: f64, (soft, hard): (f64, f64)) -> f64 {
    ((value - soft) / (hard - soft)).clamp(0.0, 1.0)
}

/// Bytes that a merge of all runs writes before it can remove a file of each input, plus one SST for each job.
pub(super) fn step_bytes(tree: &SubTree, sst_bytes: u64) -> u64 {
    let jobs = 1 + tree.jobs.len() as u64;
    tree.sum(|run| run.totals.file_bytes_max)
        .saturating_add(jobs * sst_bytes)
        .min(tree.sum(|run| run.totals.bytes))
}

#[expect(clippy::cast_precision_loss, reason = "debts are estimates")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picker::{self, Situation};
    use crate::tests::trees::{policy, tree};

    /// A sub-tree that has, of each stage, so many runs without garbage.
    fn tree_of(stages: &[(u8, usize)]) -> SubTree {
        let stages = stages.iter().flat_map(|&(stage, count)| std::iter::repeat_n(stage, count));
        let specs: Vec<_> = stages.rev().enumerate().map(|(id, stage)| format!("{stage}:{id}b9")).collect();
        let specs: Vec<_> = specs.into_iter().rev().collect();
        tree(&specs.join(" "))
    }

    fn slowed(policy: &Policy, tree: &SubTree) -> bool {
        Debt::of(tree, policy).runs > runs_limits(policy, tree).0
    }

    #[test]
    fn runs_that_no_picker_merges_are_no_debt() {
        for k in [2, 3, 4, 8, 16, 64] {
            let policy = |shape| Policy { k, is_quiet: false, ..policy(shape) };
            let later = 2 * k + k / 2 - 1;
            for (shape, full) in [
                (Shape::Forest, [(0, k - 1), (1, k - 1), (2, k - 1), (3, k - 1)]),
                (Shape::ForestOverBottom, [(1, k * k - 1), (2, later), (3, later), (60, 1)]),
                (Shape::Leveled, [(0, k - 1), (1, k - 1), (2, 1), (3, 1)]),
            ] {
                let (policy, tree) = (policy(shape), tree_of(&full));
                let situation = Situation { tree: &tree, busy: &[], now: 0 };
                assert_eq!(picker::pick(&policy, situation), None, "{shape:?}, k = {k}: the premise");
                assert!(!slowed(&policy, &tree), "{shape:?}, k = {k}");
                let twice = tree_of(&full.map(|(stage, count)| (stage, 2 * count)));
                assert!(
                    twice.runs.len() <= RUNS_MIN || slowed(&policy, &twice),
                    "{shape:?}, k = {k}: twice as many"
                );
            }
        }
        let policy = policy(Shape::ForestOverBottom);
        let policy = Policy { k: 4, ..policy };
        assert_eq!(runs_limits(&policy, &SubTree::default()), (40.0, 80.0));
    }

    #[test]
    fn garbage_is_a_debt_where_it_is_merged_for() {
        let tree = tree("1:2b100000o90000 60:1b100000");
        let share = |shape| Debt::of(&tree, &policy(shape)).garbage_share;
        assert!(share(Shape::ForestOverBottom) > GARBAGE.1);
        assert_eq!((share(Shape::Forest), share(Shape::Leveled)), (0.0, 0.0));
    }

    #[test]
    fn the_estimated_garbage_of_a_single_run_is_no_debt() {
        let (policy, tree) = (policy(Shape::ForestOverBottom), tree("1:1b100000o90000"));
        let situation = Situation { tree: &tree, busy: &[], now: 0 };
        assert_eq!(picker::pick(&policy, situation), None, "the premise");
        assert_eq!(ratios(&tree, &policy), (0.0, 0.0));
    }
}
