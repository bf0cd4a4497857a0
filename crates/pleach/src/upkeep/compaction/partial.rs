//! A partial compaction in progress: one file of a run goes into the run of the next stage.
//!
//! It is small, about one file and the ten that it overlaps, so its single edit comes at the end and a crash loses no more
//! than that. The version does not know it: the runs at work are kept by whoever drives it.
//!
//! # Invariants
//! 1. *Order of durability*: as of every compaction; see the `job` module.
//! 2. *One edit* takes the inputs' files out and puts the outputs in, so that each key is visible once.

use std::sync::Arc;

use pleach_env::{FileId, Result, failpoint};
use pleach_log::SeqNo;
use smallvec::SmallVec;

use super::job::Progress;
use super::merging::Merging;
use super::outputs::{Outputs, trace_made};
use crate::keys::PartitionId;
use crate::picker::PartialPlan;
use crate::state::State;
use crate::stats::add;
use crate::trace::{self, Span};
use crate::upkeep::Upkeep;
use crate::version::edit::{Edit, EditItem, RunFileMeta, RunId, RunKind, RunMeta};
use crate::version::{OlderRuns, Run, SstFile, SubTree};

/// The job. Dropping it without [`PartialJob::abandon`] leaves files that the next open removes.
pub(crate) struct PartialJob {
    partition: PartitionId,
    plan: PartialPlan,
    merging: Merging,
    outputs: Outputs,
}

impl PartialJob {
    /// Starts a planned job; `None` when the partition was dropped meanwhile.
    pub(crate) fn start(upkeep: &Upkeep, partition: PartitionId, plan: PartialPlan) -> Option<Self> {
        let state = upkeep.version_set.state.load();
        let tree = state.version.tree(partition)?;
        let inputs = [Some((plan.upper, vec![plan.file])), plan.lower.clone()];
        let inputs = inputs.into_iter().flatten().filter_map(|(run, files)| part_of(tree, run, &files));
        let merged: Vec<_> =
            [Some(plan.upper), plan.lower.as_ref().map(|(run, _)| *run)].into_iter().flatten().collect();
        let filter_bits = upkeep.filter_bits_of_merged(tree, &merged, plan.output_stage);
        let sst_bytes = upkeep.ctx.options.compacted_sst_bytes(tree.sum(Run::bytes));
        let (stage, drops_tombstones) = (plan.output_stage, plan.drops_tombstones);
        let merging = Merging::new(partition, inputs, stage, drops_tombstones, filter_bits, sst_bytes);
        Some(Self { partition, plan, merging, outputs: Outputs::default() })
    }

    pub(crate) fn partition(&self) -> PartitionId {
        self.partition
    }

    pub(crate) fn output_stage(&self) -> u8 {
        self.plan.output_stage
    }

    /// The runs that nobody else may work on.
    pub(crate) fn runs(&self) -> impl Iterator<Item = RunId> {
        [Some(self.plan.upper), self.plan.lower.as_ref().map(|(run, _)| *run)].into_iter().flatten()
    }

    /// Writes one output SST, or reads as much as that takes; commits when nothing is left.
    ///
    /// After an error the job is to be abandoned.
    pub(crate) fn step(&mut self, upkeep: &Upkeep) -> Result<Progress> {
        let Some(older) = self.older_runs(upkeep) else {
            self.abandon();
            return Ok(Progress::Done);
        };
        let span = trace::compaction(self.partition, self.plan.output_stage, self.runs().count());
        self.write_file(upkeep, &older, &span)?;
        if !self.merging.is_done() {
            return Ok(Progress::More);
        }
        self.commit(upkeep)?;
        Ok(Progress::Done)
    }

    fn write_file(&mut self, upkeep: &Upkeep, older: &OlderRuns, span: &Span) -> Result<()> {
        let made = self.merging.next_file(upkeep, older)?;
        trace_made(span, made.as_ref());
        self.outputs.add(made);
        Ok(())
    }

    /// The runs below both inputs; `None` when the partition was dropped.
    fn older_runs(&self, upkeep: &Upkeep) -> Option<OlderRuns> {
        let state = upkeep.version_set.state.load();
        let tree = state.version.tree(self.partition)?;
        let inputs: SmallVec<[RunId; 2]> = self.runs().collect();
        Some(OlderRuns::than_inputs(self.partition, tree, &inputs, None))
    }

    fn commit(&mut self, upkeep: &Upkeep) -> Result<()> {
        self.outputs.sync_names(upkeep)?;
        let Some((edit, files)) = self.edit(upkeep) else {
            self.abandon();
            return Ok(());
        };
        failpoint::reached("compaction.partial_commit");
        upkeep.version_set.commit_edit(edit, files, State::with_version)?;
        add(&upkeep.ctx.counters.compactions, 1);
        add(&upkeep.ctx.counters.partial_compactions, 1);
        Ok(())
    }

    /// The edit, and the new files that it names; `None` when the partition was dropped.
    fn edit(&mut self, upkeep: &Upkeep) -> Option<(Edit, Vec<Arc<SstFile>>)> {
        let state = upkeep.version_set.state.load();
        let tree = state.version.tree(self.partition)?;
        let runs: SmallVec<[RunId; 2]> = self.runs().collect();
        let newest_seq = state.version.newest_seq(self.partition, &runs);
        let mut edit = Edit::default();
        let (files, metas) = self.outputs.name_in(&mut edit);
        self.push_changes(&mut edit, tree, newest_seq, metas);
        Some((edit, files))
    }

    fn push_changes(&self, edit: &mut Edit, tree: &SubTree, newest_seq: SeqNo, outputs: Vec<RunFileMeta>) {
        let partition = self.partition;
        let PartialPlan { upper, file, lower, output_stage, .. } = &self.plan;
        if tree.run(*upper).is_some_and(|run| run.files.len() == 1) {
            edit.push(EditItem::RemoveRun { partition, run: *upper });
        } else {
            edit.push(EditItem::RemoveRunFiles { partition, run: *upper, files: vec![*file] });
        }
        match lower {
            Some((run, files)) => {
                let is_emptied = tree.run(*run).is_some_and(|run| run.files.len() == files.len());
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
                // A number given at the commit is right: what came into the stage since the plan is older than this,
                // because nothing newer can pass the run above, which is busy.
                let (id, stage, kind) = (RunId::NEXT, *output_stage, RunKind::Ssts);
                let run = RunMeta { id, stage, kind, clip: None, newest_seq, files: outputs };
                edit.push(EditItem::AddRun { partition, run });
            }
        }
    }

    /// Lets the files go that no edit names.
    pub(crate) fn abandon(&mut self) {
        self.outputs.abandon();
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

    use pleach_env::SimEnv;

    use super::*;
    use crate::picker::{self, Plan, Situation};
    use crate::upkeep::compaction::job::CompactionJob;
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
        let mut partial = PartialJob::start(upkeep, DEFAULT, plan).unwrap();
        while !partial.merging.is_done() {
            let older = partial.older_runs(upkeep).unwrap();
            partial.write_file(upkeep, &older, &trace::compaction(DEFAULT, stage, 1)).unwrap();
        }
        partial.outputs.sync_names(upkeep).unwrap();
        let (edit, files) = partial.edit(upkeep).unwrap();

        let busy: Vec<_> = partial.runs().collect();
        let (Plan::Whole(plan), output) = pick(upkeep, &busy) else { panic!("the bottom is foreign") };
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
