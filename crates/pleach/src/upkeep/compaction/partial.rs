//! Partial compactions: one file of a run goes into the run of the next stage.
//!
//! # Invariants
//! 1. *One edit* takes the inputs' files out and puts the outputs in, so that each key is visible once.
//! 2. *No run twice*: the version does not record the job, so the worker that drives it keeps others off its runs.

use std::sync::Arc;

use pleach_env::FileId;
use pleach_log::SeqNo;

use super::job::{CompactionJob, Kind};
use super::merging::Merging;
use super::outputs::Outputs;
use crate::keys::PartitionId;
use crate::picker::PartialPlan;
use crate::upkeep::Upkeep;
use crate::version::edit::{Edit, EditItem, RunFileMeta, RunId, RunKind, RunMeta};
use crate::version::{Run, SubTree};

impl CompactionJob {
    /// Starts a planned partial job; `None` when the partition was dropped meanwhile.
    pub(super) fn start_partial(upkeep: &Upkeep, partition: PartitionId, plan: PartialPlan) -> Option<Self> {
        let state = upkeep.version_set.state.load();
        let tree = state.version.tree(partition)?;
        let parts = [Some((plan.upper, vec![plan.file])), plan.lower.clone()];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        let inputs: Vec<_> = parts.iter().map(|(run, _)| *run).collect();
        let runs = parts.iter().filter_map(|(run, files)| part_of(tree, *run, files)).collect();
        let (output_stage, drops_tombstones) = (plan.output_stage, plan.drops_tombstones);
        Some(Self {
            partition,
            output_stage,
            merging: Merging::new(upkeep, partition, tree, runs, &inputs, output_stage, drops_tombstones),
            inputs,
            kind: Kind::Partial(plan),
            outputs: Outputs::default(),
            has_progress: true,
        })
    }
}

/// Removes the inputs' files and adds the outputs.
pub(super) fn push_changes(
    plan: &PartialPlan,
    partition: PartitionId,
    edit: &mut Edit,
    tree: &SubTree,
    newest_seq: SeqNo,
    outputs: Vec<RunFileMeta>,
) {
    let PartialPlan { upper, file, lower, output_stage, .. } = plan;
    if tree.run(*upper).is_some_and(|run| run.files.iter().all(|part| part.meta.file == *file)) {
        edit.push(EditItem::RemoveRun { partition, run: *upper });
    } else {
        edit.push(EditItem::RemoveRunFiles { partition, run: *upper, files: vec![*file] });
    }
    match lower {
        Some((run, files)) => {
            let is_emptied = tree
                .run(*run)
                .is_some_and(|run| run.files.iter().all(|part| files.contains(&part.meta.file)));
            if is_emptied && outputs.is_empty() {
                edit.push(EditItem::RemoveRun { partition, run: *run });
                return;
            }
            if !files.is_empty() {
                edit.push(EditItem::RemoveRunFiles { partition, run: *run, files: files.clone() });
            }
            edit.push(EditItem::ExtendRun { partition, run: *run, newest_seq, files: outputs });
        }
        None if outputs.is_empty() => {}
        None => {
            // The number is given at the commit: runs that came into the stage since the plan are older than this one,
            // because nothing newer passes the run above, which is busy.
            let (id, stage, kind) = (RunId::NEXT, *output_stage, RunKind::Ssts);
            let run = RunMeta { id, stage, kind, clip: None, newest_seq, files: outputs };
            edit.push(EditItem::AddRun { partition, run });
        }
    }
}

/// A run of some files of another.
fn part_of(tree: &SubTree, run: RunId, files: &[FileId]) -> Option<Arc<Run>> {
    let run = tree.run(run)?;
    let files = run.files.iter().filter(|file| files.contains(&file.meta.file)).cloned().collect();
    Some(Arc::new(run.with_files(files)))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use pleach_env::SimEnv;

    use super::*;
    use crate::picker::{self, Plan, Situation};
    use crate::state::State;
    use crate::trace;
    use crate::upkeep::compaction::job::Progress;
    use crate::{Db, Options, Shape};

    const DEFAULT: PartitionId = PartitionId(0);
    const KEYS: u32 = 4000;

    fn open(env: &Arc<SimEnv>, shape: Shape, memtable_bytes: usize) -> Db {
        let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(64 << 20).shape(shape);
        let options = options.runs_per_stage(2).memtable_bytes(memtable_bytes).sst_bytes(16 << 10);
        options.open("/store").unwrap()
    }

    fn write(db: &Db, values: Range<u8>) {
        for value in values {
            (0..KEYS).for_each(|i| db.default_partition().put(format!("{i:08}"), [value; 50]).unwrap());
            db.flush().unwrap();
        }
    }

    fn pick(upkeep: &Upkeep, busy: &[RunId]) -> (Plan, RunId) {
        let (version, output) = upkeep.version_set.plan_basis();
        let situation = Situation { tree: version.tree(DEFAULT).unwrap(), busy, now: 0 };
        (picker::pick(&upkeep.ctx.options.policy(true), situation).unwrap(), output)
    }

    /// A forest over a bottom becomes levels. A worker has merged a file into a stage that was empty and is about to commit
    /// it; another one gives the bottom run, which is older, that stage.
    #[test]
    fn an_older_run_that_comes_into_the_stage_meanwhile_stays_the_older_one() {
        let env = SimEnv::new(1);
        let db = open(&env, Shape::ForestOverBottom, 2 << 20);
        write(&db, 0..2);
        db.compact().unwrap();
        write(&db, 2..4);
        db.settle().unwrap();
        db.close().unwrap();
        let db = open(&env, Shape::Leveled, 32 << 10);
        let upkeep = &db.inner().upkeep;
        let (Plan::Partial(plan), _) = pick(upkeep, &[]) else { panic!("the stage is above its size") };
        assert_eq!(plan.lower, None);
        let stage = plan.output_stage;
        let mut partial = CompactionJob::start_partial(upkeep, DEFAULT, plan).unwrap();
        while !partial.merging.is_done() {
            let older = partial.older_runs(upkeep).unwrap();
            partial.write_file(upkeep, &older, &trace::compaction(DEFAULT, stage, 1)).unwrap();
        }
        partial.outputs.sync_names(upkeep).unwrap();
        let (edit, files) = partial.edit(upkeep, true).unwrap().unwrap();

        let (Plan::Whole(plan), output) = pick(upkeep, &partial.inputs) else {
            panic!("the bottom is foreign")
        };
        assert_eq!(plan.output_stage, stage);
        let mut whole = CompactionJob::start(upkeep, DEFAULT, plan, output).unwrap().unwrap();
        while whole.step(upkeep).unwrap() == Progress::More {}

        upkeep.version_set.commit_edit(edit, files, State::with_version).unwrap();
        upkeep.version_set.state.load().version.check_invariants().unwrap();
        for i in 0..KEYS {
            let value = db.default_partition().get(format!("{i:08}")).unwrap().unwrap();
            assert_eq!(value[0], 3, "key {i}");
        }
    }
}
