//! The forest: `k` runs a stage.
//!
//! # Origin
//! `SifrDB`, section 2.2 and 3.1.

use super::{Policy, STAGE_BOTTOM, STAGE_MAX, Situation, WholePlan};

/// The merge of the lowest stage that is full.
pub(super) fn pick(policy: &Policy, situation: Situation<'_>) -> Option<WholePlan> {
    situation.stages().find_map(|(start, len)| pick_stage(situation, start, len, policy.k))
}

/// The merge of the `len` runs of the stage at `start`, if at least `k` of them are free.
///
/// When the older ones of the stage are at work, the others cannot go to the next stage, which would make them the older
/// ones. They become one run of their own stage, so that a long job does not let runs pile up above it.
pub(super) fn pick_stage(situation: Situation<'_>, start: usize, len: usize, k: usize) -> Option<WholePlan> {
    let runs = &situation.tree.runs[start..start + len];
    let stage = runs[0].stage;
    let free = runs.iter().take_while(|run| !situation.is_busy(run.id)).count();
    if free < k || stage == STAGE_BOTTOM {
        return None;
    }
    let output_stage = if free == len { (stage + 1).min(STAGE_MAX) } else { stage };
    Some(situation.merge(start, free, output_stage))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{policy, told, tree};
    use super::super::{Plan, Situation};
    use crate::shape::Shape;

    fn pick(runs: &str, busy: &[u64]) -> String {
        let tree = tree(runs, busy);
        let situation = Situation { tree: &tree, busy: &[], now: 0 };
        told(super::pick(&policy(Shape::Forest), situation).map(Plan::Whole))
    }

    #[test]
    fn a_stage_is_merged_when_it_is_full() {
        assert_eq!(pick("", &[]), "nothing");
        assert_eq!(pick("0:9 0:8 1:4 1:3 2:1", &[]), "nothing");
        assert_eq!(pick("0:9 0:8 0:7 1:4 1:3 2:1", &[]), "9 8 7 -> stage 1");
        assert_eq!(pick("1:4 1:3 1:2 2:1", &[]), "4 3 2 -> stage 2");
        assert_eq!(pick("1:4 1:3 1:2", &[]), "4 3 2 -> stage 2, drop tombstones");
        assert_eq!(pick("0:9 1:4 1:3 1:2 2:1 2:0", &[]), "4 3 2 -> stage 2");
    }

    #[test]
    fn runs_at_work_are_left_alone() {
        assert_eq!(pick("0:12 0:11 0:10 0:9 1:13 1:4", &[13, 12, 11, 10, 9]), "nothing");
        assert_eq!(pick("0:14 0:12 1:13 1:4 1:3", &[13, 12]), "nothing", "the output is not whole yet");
        assert_eq!(pick("0:14 0:12 1:13 2:8 2:7 2:6", &[13, 12]), "8 7 6 -> stage 3, drop tombstones");
    }

    #[test]
    fn above_runs_at_work_a_stage_is_merged_into_itself() {
        assert_eq!(pick("1:14 1:13 1:9 1:8 2:10", &[10, 9, 8]), "nothing");
        assert_eq!(pick("1:15 1:14 1:13 1:9 1:8 2:10", &[10, 9, 8]), "15 14 13 -> stage 1");
    }

    #[test]
    fn a_bottom_run_of_another_shape_stays_the_oldest() {
        assert_eq!(pick("1:4 1:3 1:2 60:1", &[]), "4 3 2 -> stage 2");
        assert_eq!(pick("59:4 59:3 59:2 60:1", &[]), "4 3 2 -> stage 59");
    }
}
