//! A partial compaction in progress: one file of a run goes into the run of the next stage.
//!
//! It is small, about one file and the ten that it overlaps, so its single edit comes at the end and a crash loses no more
//! than that. The version does not know it: the runs at work are kept by whoever drives it.
//!
//! # Invariants
//! 1. *Order of durability*: as of every compaction; see the `job` module.
//! 2. *One edit* takes the inputs' files out and puts the outputs in, so that each key is visible once.

use std::sync::Arc;

use pleach_env::{FileId, Result};
use smallvec::SmallVec;

use super::job::Progress;
use super::merging::Merging;
use super::outputs::Outputs;
use super::picker::PartialPlan;
use crate::db::Inner;
use crate::keys::PartitionId;
use crate::state::State;
use crate::stats::add;
use crate::version::edit::{Edit, EditItem, RunFileMeta, RunId, RunKind, RunMeta};
use crate::version::{OlderRuns, Run, SubTree};

/// The job. Dropping it without [`PartialJob::abandon`] leaves files that the next open removes.
pub(crate) struct PartialJob {
    partition: PartitionId,
    plan: PartialPlan,
    merging: Merging,
    outputs: Outputs,
}

impl PartialJob {
    /// Starts a planned job; `None` when the partition was dropped meanwhile.
    pub(crate) fn start(inner: &Inner, partition: PartitionId, plan: PartialPlan) -> Option<Self> {
        let state = inner.state.load();
        let tree = state.version.tree(partition)?;
        let inputs = [Some((plan.upper, vec![plan.file])), plan.lower.clone()];
        let inputs = inputs.into_iter().flatten().filter_map(|(run, files)| part_of(tree, run, &files));
        let merged: Vec<_> =
            [Some(plan.upper), plan.lower.as_ref().map(|(run, _)| *run)].into_iter().flatten().collect();
        let filter_bits = inner.filter_bits_of_merged(tree, &merged, plan.output_stage);
        let sst_bytes = inner.options.compacted_sst_bytes(tree.sum(Run::bytes));
        let merging = Merging::new(partition, inputs, plan.drops_tombstones, filter_bits, sst_bytes);
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
    pub(crate) fn step(&mut self, inner: &Inner) -> Result<Progress> {
        let Some(older) = self.older_runs(inner) else {
            self.abandon();
            return Ok(Progress::Done);
        };
        let made = self.merging.next_file(inner, &older)?;
        drop(older);
        self.outputs.add(made);
        if !self.merging.is_done() {
            return Ok(Progress::More);
        }
        self.commit(inner)?;
        Ok(Progress::Done)
    }

    /// The runs below both inputs; `None` when the partition was dropped.
    fn older_runs(&self, inner: &Inner) -> Option<OlderRuns> {
        let state = inner.state.load();
        let tree = state.version.tree(self.partition)?;
        let inputs: SmallVec<[RunId; 2]> = self.runs().collect();
        Some(OlderRuns::than_inputs(self.partition, tree, &inputs, None))
    }

    fn commit(&mut self, inner: &Inner) -> Result<()> {
        let partition = self.partition;
        self.outputs.sync_names(inner)?;
        let state = inner.state.load_full();
        let Some(tree) = state.version.tree(partition) else {
            self.abandon();
            return Ok(());
        };
        let mut edit = Edit::default();
        let (files, metas) = self.outputs.name_in(&mut edit);
        self.push_changes(inner, &mut edit, tree, metas);
        drop(state);
        inner.commit_edit(edit, files, State::with_version)?;
        add(&inner.counters.compactions, 1);
        Ok(())
    }

    fn push_changes(&self, inner: &Inner, edit: &mut Edit, tree: &SubTree, outputs: Vec<RunFileMeta>) {
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
                edit.push(EditItem::ExtendRun { partition, run: *run, files: outputs });
            }
            None if outputs.is_empty() => {}
            None => {
                let (id, stage) = (inner.new_run_id(), *output_stage);
                let run = RunMeta { id, stage, kind: RunKind::Ssts, clip: None, files: outputs };
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
