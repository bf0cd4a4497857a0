//! A compaction in progress: merges its inputs, writes SSTs, commits its progress.
//!
//! A job merges whole runs into a new one, one file of a run into the run of the next stage (a partial job, see
//! `partial`), or a key range of all runs into the oldest one (`range`). The version records a whole job, and each commit of
//! it raises the clip. It does not record a partial job: that is small, about one file and the ten that it overlaps, so its
//! single edit comes at the end and a crash loses no more.
//!
//! # Invariants
//! 1. *Order of durability*: the outputs' data, their names, then the edit; only then may inputs be removed.
//! 2. *Resumable*: all that a whole job needs to go on is in the version: inputs, output, clip.
//!
//! # Concurrency
//! One thread at a time drives a job. Its inputs stay pinned by the merge until the step that leaves them.

use std::sync::Arc;

use pleach_env::{Error, ErrorKind, FileId, Result, failpoint};

use super::merging::Merging;
use super::outputs::{Outputs, trace_output};
use super::partial;
use super::range::RangeJob;
use crate::keys::{PartitionId, successor};
use crate::picker::{PartialPlan, WholePlan, conversion_bytes};
use crate::scan::PassedValues;
use crate::shape::STAGE_BOTTOM;
use crate::stats::add;
use crate::trace::{self, Span};
use crate::upkeep::Upkeep;
use crate::version::edit::{Edit, EditItem, JobMeta, RunFileMeta, RunId, RunKind, RunMeta};
use crate::version::{OlderRuns, Run, SstFile, SubTree};

/// The job. Dropping it without [`CompactionJob::abandon`] leaves files that the next open removes; the version still
/// records a whole job.
pub(super) struct CompactionJob {
    pub(super) partition: PartitionId,
    pub(super) output_stage: u8,
    /// The runs that it reads.
    pub(super) inputs: Vec<RunId>,
    pub(super) kind: Kind,
    pub(super) merging: Merging,
    /// Outputs that no edit names yet.
    pub(super) outputs: Outputs,
    /// Whether it has gone on since it was resumed. True in a job that was not.
    pub(super) has_progress: bool,
}

/// What the job merges.
pub(super) enum Kind {
    Whole {
        output: RunId,
        /// Progress is committed when this much was written since the last commit.
        commit_bytes: u64,
    },
    Partial(PartialPlan),
    Range(RangeJob),
}

/// A conversion that has failed and will be resumed.
#[derive(Clone, Copy)]
pub(super) struct FailedConversion {
    /// Bytes of values that what is committed of it has left for want of room.
    pub(super) left: u64,
    /// Whether it is to copy values again, whoever asked for it. Not if it has failed twice at the same place: what is short
    /// may be what copies need more of than a merge of pointers.
    pub(super) goes_on: bool,
}

/// Whether a job has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    More,
    Done,
}

/// A whole job commits its progress at least whenever it has written this part of its inputs' bytes, so that a small job
/// needs little extra space too. Each commit costs two syncs.
const COMMIT_SHARE: u64 = 32;

impl CompactionJob {
    /// Enters a planned merge of whole runs into the version; `None` when the partition was dropped meanwhile. `output` is
    /// the number that came with the version in which it was planned: see
    /// [`VersionSet::plan_basis`](crate::version_set::VersionSet::plan_basis).
    pub(super) fn start(
        upkeep: &Upkeep,
        partition: PartitionId,
        plan: WholePlan,
        output: RunId,
    ) -> Result<Option<Self>> {
        let converts = plan.converts;
        let meta = JobMeta { output, inputs: plan.inputs, drops_tombstones: plan.drops_tombstones };
        let (stage, kind) = (plan.output_stage, RunKind::Ssts);
        // A merge of a range beside it may raise the age of runs, also of its inputs, until the lock is taken.
        let make = || {
            let newest_seq = upkeep.version_set.state.load().version.newest_seq(partition, &meta.inputs);
            let run = RunMeta { id: output, stage, kind, clip: None, newest_seq, files: Vec::new() };
            let mut edit = Edit::default();
            edit.push(EditItem::AddRun { partition, run });
            edit.push(EditItem::StartJob { partition, job: meta.clone() });
            Ok(Some((edit, Vec::new())))
        };
        upkeep.version_set.commit_made(make)?;
        if stage == STAGE_BOTTOM
            && let Some(tree) = upkeep.version_set.state.load().version.tree(partition)
        {
            tree.reads.reset();
        }
        let mut job = Self::resume(upkeep, partition, &meta);
        if let Some(job) = &mut job
            && converts
        {
            job.merging.convert(upkeep, partition, 0);
            job.has_progress = true;
            if let Some(tree) = upkeep.version_set.state.load().version.tree(partition) {
                tree.reads.pay_conversion_of(conversion_bytes(tree, upkeep.ctx.options.space_target));
            }
        }
        Ok(job)
    }

    /// Resumes a whole job that the version records; `None` when the partition was dropped meanwhile. It does not convert,
    /// because the version does not record that: unless the caller remembers it, values that it has still to merge stay where
    /// they are.
    pub(super) fn resume(upkeep: &Upkeep, partition: PartitionId, meta: &JobMeta) -> Option<Self> {
        let state = upkeep.version_set.state.load_full();
        let tree = state.version.tree(partition)?;
        let runs: Vec<_> = meta.inputs.iter().filter_map(|id| tree.run(*id)).cloned().collect();
        let bytes = runs.iter().map(|run| run.totals.bytes).fold(0, u64::saturating_add);
        let stage = tree.run(meta.output).map_or(0, |run| run.stage);
        let merged: Vec<_> = meta.inputs.iter().copied().chain([meta.output]).collect();
        Some(Self {
            partition,
            output_stage: stage,
            inputs: meta.inputs.clone(),
            kind: Kind::Whole { output: meta.output, commit_bytes: bytes / COMMIT_SHARE },
            merging: Merging::new(upkeep, partition, tree, runs, &merged, stage, meta.drops_tombstones),
            outputs: Outputs::default(),
            has_progress: false,
        })
    }

    /// The runs that no other job may merge meanwhile, if the version does not record the job.
    pub(super) fn claimed(&self) -> &[RunId] {
        match &self.kind {
            Kind::Range(job) => job.claimed(),
            Kind::Whole { .. } | Kind::Partial(_) => &self.inputs,
        }
    }

    /// What is remembered of a conversion that has failed.
    pub(super) fn failed_conversion(&self) -> Option<FailedConversion> {
        let left = self.merging.values_left_before()?;
        Some(FailedConversion { left, goes_on: self.has_progress })
    }

    /// The output of a whole job.
    pub(super) fn output(&self) -> Option<RunId> {
        match self.kind {
            Kind::Whole { output, .. } => Some(output),
            Kind::Partial(_) | Kind::Range(_) => None,
        }
    }

    /// Writes one output SST, or reads as much as that takes; commits when enough has gathered or nothing is left.
    ///
    /// After an error the job is to be abandoned; a whole job can be resumed from what was committed.
    pub(super) fn step(&mut self, upkeep: &Upkeep) -> Result<Progress> {
        let Some(older) = self.older_runs(upkeep) else {
            self.abandon();
            return Ok(Progress::Done);
        };
        if !self.prepare_range(upkeep)? {
            return Ok(Progress::Done);
        }
        let span = trace::compaction(self.partition, self.output_stage, self.inputs.len());
        let has_output = self.write_file(upkeep, &older, &span)?;
        drop(older);
        let is_done = self.merging.is_done();
        if is_done || self.should_commit(upkeep, has_output) {
            self.commit(upkeep, is_done)?;
        }
        Ok(if is_done { Progress::Done } else { Progress::More })
    }

    /// Writes one output SST, or moves a file; returns whether there is one.
    pub(super) fn write_file(&mut self, upkeep: &Upkeep, older: &OlderRuns, span: &Span) -> Result<bool> {
        let made = self.merging.next_file(upkeep, older)?;
        trace_output(span, made.as_ref());
        let has_output = made.is_some();
        self.outputs.add(made);
        Ok(has_output)
    }

    fn should_commit(&self, upkeep: &Upkeep, has_output: bool) -> bool {
        let commit_bytes = match &self.kind {
            Kind::Whole { commit_bytes, .. } => *commit_bytes,
            Kind::Range(job) if job.extends_a_run() => u64::MAX,
            Kind::Range(_) | Kind::Partial(_) => return false,
        };
        let written = self.outputs.written_bytes();
        !has_output
            || self.outputs.len() >= upkeep.ctx.options.clean_every
            || upkeep.ctx.status.is_closed()
            || (written > 0 && (written >= commit_bytes || upkeep.ctx.is_space_short(written)))
    }

    /// The runs that are older than the inputs, as they are now; `None` when the partition was dropped.
    pub(super) fn older_runs(&self, upkeep: &Upkeep) -> Option<OlderRuns> {
        let state = upkeep.version_set.state.load();
        let tree = state.version.tree(self.partition)?;
        Some(OlderRuns::than_inputs(self.partition, tree, &self.inputs, self.output()))
    }

    /// Makes the progress durable and shows it to readers.
    fn commit(&mut self, upkeep: &Upkeep, is_done: bool) -> Result<()> {
        self.outputs.sync_names(upkeep)?;
        let is_whole = matches!(self.kind, Kind::Whole { .. });
        let is_range = matches!(self.kind, Kind::Range(_));
        if is_range {
            failpoint::reached("compaction.range_commit");
        } else if !is_whole {
            failpoint::reached("compaction.partial_commit");
        }
        if is_done
            && let Some(left) = self.merging.values_left()
            && let Some(tree) = upkeep.version_set.state.load().version.tree(self.partition)
        {
            // Before the edit, which ends the wait of those who want to know.
            upkeep.background.lock().note_conversion(self.partition, left);
            if left == 0 {
                // Before the edit, with which the ledger looks at it.
                tree.reads.reset_values();
            }
        }
        let mut value_files = Vec::new();
        // The edit of a range or of a partial job also depends on runs that the job does not own: their ages. Another job may
        // replace them until the lock is taken.
        let make = || {
            let made = self.edit(upkeep, is_done)?;
            if let Some((edit, _)) = &made {
                value_files = value_files_in(edit);
            }
            Ok(made)
        };
        let committed = upkeep.version_set.commit_made(make).inspect_err(|_| {
            // In a poisoned store they stay, because the edit may be durable.
            if upkeep.ctx.status.poison().is_none() {
                for id in value_files {
                    upkeep.remove_value_file(id);
                }
            }
        })?;
        if !committed {
            self.abandon();
            return Ok(());
        }
        self.merging.note_committed(upkeep);
        if is_done {
            add(&upkeep.ctx.counters.compactions, 1);
            add(&upkeep.ctx.counters.partial_compactions, u64::from(!is_whole && !is_range));
            add(&upkeep.ctx.counters.range_compactions, u64::from(is_range));
        } else if is_range {
            self.follow_range();
        } else if let Some(tree) = upkeep.version_set.state.load().version.tree(self.partition) {
            self.merging.follow(tree);
        }
        self.has_progress = true;
        if (is_whole || is_range) && upkeep.ctx.is_space_short(upkeep.ctx.options.sst_bytes) {
            upkeep.version_set.remove_obsolete();
        }
        Ok(())
    }

    /// The edit that commits the progress, and the new files that it names; `None` when the partition was dropped.
    pub(super) fn edit(
        &mut self,
        upkeep: &Upkeep,
        is_done: bool,
    ) -> Result<Option<(Edit, Vec<Arc<SstFile>>)>> {
        let state = upkeep.version_set.state.load();
        let Some(tree) = state.version.tree(self.partition) else { return Ok(None) };
        if let Kind::Range(_) = self.kind {
            return self.range_edit(upkeep, tree, is_done).map(Some);
        }
        let mut edit = Edit::default();
        let (files, metas) = self.outputs.name_in(&mut edit);
        match &self.kind {
            &Kind::Whole { output, .. } => {
                let passed = self.merging.take_passed_values();
                self.push_progress(&mut edit, tree, output, metas);
                if is_done {
                    self.push_end(&mut edit, tree, output);
                } else {
                    self.push_clip(&mut edit, tree, &passed).map_err(|message| {
                        Error::new(ErrorKind::Corruption, message).at_path(&upkeep.ctx.dir)
                    })?;
                }
            }
            Kind::Partial(plan) => {
                let newest_seq = state.version.newest_seq(self.partition, &self.inputs);
                partial::push_changes(plan, self.partition, &mut edit, tree, newest_seq, metas);
            }
            Kind::Range(_) => unreachable!("done above"),
        }
        Ok(Some((edit, files)))
    }

    /// Adds `files` to the output.
    fn push_progress(&self, edit: &mut Edit, tree: &SubTree, output: RunId, files: Vec<RunFileMeta>) {
        if !files.is_empty() {
            let newest_seq = tree.run(output).map_or(0, |run| run.newest_seq);
            edit.push(EditItem::ExtendRun { partition: self.partition, run: output, newest_seq, files });
        }
    }

    /// Ends the job, and removes its inputs, and an output that stays empty.
    fn push_end(&self, edit: &mut Edit, tree: &SubTree, output: RunId) {
        let partition = self.partition;
        let is_extended = edit.items.iter().any(|item| matches!(item, EditItem::ExtendRun { .. }));
        let stays_empty = !is_extended && tree.run(output).is_none_or(|run| run.files.is_empty());
        edit.push(EditItem::EndJob { partition, output });
        for &run in self.inputs.iter().chain(stays_empty.then_some(&output)) {
            edit.push(EditItem::RemoveRun { partition, run });
        }
    }

    /// Raises the clip above the last key merged, and removes the inputs' files below it. Of the files that the clip cuts it
    /// states what they still refer to: `passed` is what was merged of each since the last commit.
    fn push_clip(&self, edit: &mut Edit, tree: &SubTree, passed: &PassedValues) -> Result<(), String> {
        let partition = self.partition;
        let Some(last_key) = self.merging.last_key() else { return Ok(()) };
        let clip = successor(last_key);
        for run in self.inputs.iter().filter_map(|id| tree.run(*id)) {
            edit.push(EditItem::SetClip { partition, run: run.id, clip: clip.clone() });
            let below: Vec<_> = files_below(run, &clip);
            let mut stated = below.clone();
            for part in &run.files {
                let Some(passed) = passed.get(&part.meta.file) else { continue };
                // Its first part states what all parts refer to.
                if stated.contains(&part.meta.file) {
                    continue;
                }
                stated.push(part.meta.file);
                let (file, refs) = (part.meta.file, part.meta.values.without(passed)?);
                edit.push(EditItem::ValueRefs { partition, run: run.id, file, refs });
            }
            if !below.is_empty() {
                edit.push(EditItem::RemoveRunFiles { partition, run: run.id, files: below });
            }
        }
        Ok(())
    }

    /// The request of a range that the job fulfils.
    pub(super) fn range_request(&self) -> Option<u64> {
        match &self.kind {
            Kind::Range(job) => Some(job.request),
            Kind::Whole { .. } | Kind::Partial(_) => None,
        }
    }

    /// Makes the files obsolete that no edit names.
    pub(super) fn abandon(&mut self) {
        self.outputs.abandon();
    }
}

/// The files of values that the edit adds.
fn value_files_in(edit: &Edit) -> Vec<FileId> {
    let file = |item: &EditItem| match item {
        EditItem::ValueHome { file, .. } => Some(*file),
        _ => None,
    };
    edit.items.iter().filter_map(file).collect()
}

/// The files of which no part reaches the clip.
fn files_below(run: &Run, clip: &[u8]) -> Vec<FileId> {
    let (below, rest) = run.files.split_at(run.files.partition_point(|part| &*part.meta.largest < clip));
    let mut files = Vec::new();
    for file in below.iter().map(|part| part.meta.file) {
        if !files.contains(&file) && !rest.iter().any(|part| part.meta.file == file) {
            files.push(file);
        }
    }
    files
}
