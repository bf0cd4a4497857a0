//! A compaction of whole runs in progress: merges its inputs, writes SSTs, commits its progress.
//!
//! # Invariants
//! 1. *Order of durability*: the outputs' data, their names, then the edit; only then may inputs be removed.
//! 2. *Resumable*: all that a job needs to go on is in the version: inputs, output, clip.
//!
//! # Concurrency
//! One thread at a time drives a job. Its inputs stay pinned by the merge until the step that leaves them.

use pleach_env::{FileId, Result};

use super::merging::Merging;
use super::outputs::{Outputs, trace_made};
use crate::keys::{PartitionId, successor};
use crate::picker::WholePlan;
use crate::shape::STAGE_BOTTOM;
use crate::state::State;
use crate::stats::add;
use crate::trace;
use crate::upkeep::Upkeep;
use crate::version::edit::{Edit, EditItem, JobMeta, RunId, RunKind, RunMeta};
use crate::version::{OlderRuns, Run, SubTree};

/// The job. Dropping it abandons what it has not committed; the version still knows the job.
pub(crate) struct CompactionJob {
    partition: PartitionId,
    meta: JobMeta,
    output_stage: u8,
    merging: Merging,
    /// Outputs that no edit names yet.
    uncommitted: Outputs,
    /// Progress is committed when this much was written since the last time.
    commit_bytes: u64,
}

/// Whether a job has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    More,
    Done,
}

/// A job commits its progress at least whenever it has written this part of its inputs' bytes, so that a small job needs
/// little extra space too. Each commit costs two syncs.
const COMMIT_SHARE: u64 = 32;

impl CompactionJob {
    /// Enters a planned job into the version; `None` when the partition was dropped meanwhile. `output` is the number
    /// that came with the version in which it was planned: see
    /// [`VersionSet::plan_basis`](crate::version_set::VersionSet::plan_basis).
    pub(crate) fn start(
        upkeep: &Upkeep,
        partition: PartitionId,
        plan: WholePlan,
        output: RunId,
    ) -> Result<Option<Self>> {
        let meta = JobMeta { output, inputs: plan.inputs, drops_tombstones: plan.drops_tombstones };
        let mut edit = Edit::default();
        let (stage, kind) = (plan.output_stage, RunKind::Ssts);
        let newest_seq = upkeep.version_set.state.load().version.newest_seq(partition, &meta.inputs);
        let run = RunMeta { id: output, stage, kind, clip: None, newest_seq, files: Vec::new() };
        edit.push(EditItem::AddRun { partition, run });
        edit.push(EditItem::StartJob { partition, job: meta.clone() });
        upkeep.version_set.commit_edit(edit, Vec::new(), State::with_version)?;
        if stage == STAGE_BOTTOM
            && let Some(tree) = upkeep.version_set.state.load().version.tree(partition)
        {
            tree.reads.reset();
        }
        Ok(Self::resume(upkeep, partition, meta))
    }

    /// Goes on with a job that the version knows; `None` when the partition was dropped meanwhile.
    pub(crate) fn resume(upkeep: &Upkeep, partition: PartitionId, meta: JobMeta) -> Option<Self> {
        let state = upkeep.version_set.state.load_full();
        let tree = state.version.tree(partition)?;
        let inputs: Vec<_> = meta.inputs.iter().filter_map(|id| tree.run(*id)).cloned().collect();
        let bytes = inputs.iter().map(|run| run.bytes()).fold(0, u64::saturating_add);
        let commit_bytes = bytes / COMMIT_SHARE;
        let output_stage = tree.run(meta.output).map_or(0, |run| run.stage);
        let merged: Vec<_> = meta.inputs.iter().copied().chain([meta.output]).collect();
        let filter_bits = upkeep.filter_bits_of_merged(tree, &merged, output_stage);
        let sst_bytes = upkeep.ctx.options.compacted_sst_bytes(tree.sum(Run::bytes));
        let (inputs, drops_tombstones) = (inputs.into_iter(), meta.drops_tombstones);
        let merging = Merging::new(partition, inputs, output_stage, drops_tombstones, filter_bits, sst_bytes);
        Some(Self { partition, meta, output_stage, merging, uncommitted: Outputs::default(), commit_bytes })
    }

    pub(crate) fn partition(&self) -> PartitionId {
        self.partition
    }

    pub(crate) fn output_stage(&self) -> u8 {
        self.output_stage
    }

    pub(crate) fn output(&self) -> RunId {
        self.meta.output
    }

    /// Writes one output SST, or reads as much as that takes; commits when enough has gathered or nothing is left.
    ///
    /// After an error the job is to be dropped; it can be resumed from what was committed.
    pub(crate) fn step(&mut self, upkeep: &Upkeep) -> Result<Progress> {
        let Some(older) = self.older_runs(upkeep) else {
            self.abandon();
            return Ok(Progress::Done);
        };
        let span = trace::compaction(self.partition, self.output_stage, self.meta.inputs.len());
        let made = self.merging.next_file(upkeep, &older)?;
        drop(older);
        trace_made(&span, made.as_ref());
        let has_no_output = made.is_none();
        self.uncommitted.add(made);
        let done = self.merging.is_done();
        if done || has_no_output || self.should_commit(upkeep) {
            self.commit(upkeep, done)?;
        }
        Ok(if done { Progress::Done } else { Progress::More })
    }

    fn should_commit(&self, upkeep: &Upkeep) -> bool {
        let written = self.uncommitted.written_bytes();
        self.uncommitted.len() >= upkeep.ctx.options.clean_every
            || upkeep.ctx.status.is_closed()
            || (written > 0 && (written >= self.commit_bytes || upkeep.ctx.is_space_short(written)))
    }

    /// The runs that are older than the inputs, as they are now; `None` when the partition was dropped.
    fn older_runs(&self, upkeep: &Upkeep) -> Option<OlderRuns> {
        let state = upkeep.version_set.state.load();
        let tree = state.version.tree(self.partition)?;
        Some(OlderRuns::than_inputs(self.partition, tree, &self.meta.inputs, Some(self.meta.output)))
    }

    /// Makes the progress durable and shows it to readers.
    fn commit(&mut self, upkeep: &Upkeep, done: bool) -> Result<()> {
        let partition = self.partition;
        self.uncommitted.sync_names(upkeep)?;
        let state = upkeep.version_set.state.load_full();
        let Some(tree) = state.version.tree(partition) else {
            self.abandon();
            return Ok(());
        };
        let mut edit = Edit::default();
        let (files, metas) = self.uncommitted.name_in(&mut edit);
        let output = tree.run(self.meta.output);
        let output_stays_empty = metas.is_empty() && output.is_none_or(|run| run.files.is_empty());
        if !metas.is_empty() {
            let (run, newest_seq) = (self.meta.output, output.map_or(0, |run| run.newest_seq));
            edit.push(EditItem::ExtendRun { partition, run, newest_seq, files: metas });
        }
        if done {
            self.push_end(&mut edit, output_stays_empty);
        } else {
            self.push_clip(&mut edit, tree);
        }
        drop(state);
        upkeep.version_set.commit_edit(edit, files, State::with_version)?;
        if done {
            add(&upkeep.ctx.counters.compactions, 1);
        } else if let Some(tree) = upkeep.version_set.state.load().version.tree(partition) {
            self.merging.follow(tree);
        }
        if upkeep.ctx.is_space_short(upkeep.ctx.options.sst_bytes) {
            upkeep.version_set.remove_obsolete();
        }
        Ok(())
    }

    fn push_end(&self, edit: &mut Edit, output_stays_empty: bool) {
        let partition = self.partition;
        edit.push(EditItem::EndJob { partition, output: self.meta.output });
        for &run in &self.meta.inputs {
            edit.push(EditItem::RemoveRun { partition, run });
        }
        if output_stays_empty {
            edit.push(EditItem::RemoveRun { partition, run: self.meta.output });
        }
    }

    /// Raises the clip behind the last key merged and removes the inputs' files below it.
    fn push_clip(&self, edit: &mut Edit, tree: &SubTree) {
        let partition = self.partition;
        let clip = successor(self.merging.last_key());
        for run in self.meta.inputs.iter().filter_map(|id| tree.run(*id)) {
            edit.push(EditItem::SetClip { partition, run: run.id, clip: clip.clone() });
            let below: Vec<_> = files_below(run, &clip);
            if !below.is_empty() {
                edit.push(EditItem::RemoveRunFiles { partition, run: run.id, files: below });
            }
        }
    }

    /// Lets the files go that no edit names.
    pub(crate) fn abandon(&mut self) {
        self.uncommitted.abandon();
    }
}

fn files_below(run: &Run, clip: &[u8]) -> Vec<FileId> {
    run.files.iter().take_while(|f| &*f.meta.largest < clip).map(|f| f.meta.file).collect()
}
