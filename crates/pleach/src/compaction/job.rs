//! A compaction in progress: merges its inputs, writes SSTs, commits its progress.
//!
//! # Invariants
//! 1. *Order of durability*: the outputs' data, their names, then the edit; only then may inputs be removed.
//! 2. *Resumable*: all that a job needs to go on is in the version: inputs, output, clip.
//!
//! # Concurrency
//! One thread drives a job. Its inputs stay pinned by the merge until the step that leaves them.

use std::sync::Arc;

use pleach_env::{Result, failpoint};
use pleach_table::{CursorMode, ValueKind};

use super::picker::Plan;
use crate::db::{Inner, SstOutput};
use crate::keys::{PartitionId, successor};
use crate::scan::{Direction, Merge, SeekTo, SourceCursor};
use crate::state::State;
use crate::stats::add;
use crate::version::edit::{Edit, EditItem, JobMeta, RunFileMeta, RunId, RunKind, RunMeta};
use crate::version::{OlderRuns, Run, SstFile, SubTree};

/// The job. Dropping it abandons what it has not committed; the version still knows the job.
pub(crate) struct CompactionJob {
    partition: PartitionId,
    meta: JobMeta,
    output_stage: u8,
    merge: Merge,
    /// Outputs that no edit names yet.
    uncommitted: Vec<(Arc<SstFile>, RunFileMeta)>,
    /// Last key merged; empty before the first.
    last_key: Vec<u8>,
}

/// Whether a job has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    More,
    Done,
}

impl CompactionJob {
    /// Enters a planned job into the version; `None` when the partition was dropped meanwhile.
    pub(crate) fn start(inner: &Inner, partition: PartitionId, plan: Plan) -> Result<Option<Self>> {
        let output = inner.new_run_id();
        let meta = JobMeta { output, inputs: plan.inputs, drops_tombstones: plan.drops_tombstones };
        let mut edit = Edit::default();
        let stage = plan.output_stage;
        let run = RunMeta { id: output, stage, kind: RunKind::Ssts, clip: None, files: Vec::new() };
        edit.push(EditItem::AddRun { partition, run });
        edit.push(EditItem::StartJob { partition, job: meta.clone() });
        inner.commit_edit(edit, Vec::new(), State::with_version)?;
        Self::resume(inner, partition, meta)
    }

    /// Goes on with a job that the version knows; `None` when the partition was dropped meanwhile.
    pub(crate) fn resume(inner: &Inner, partition: PartitionId, meta: JobMeta) -> Result<Option<Self>> {
        let state = inner.state.load_full();
        let Some(tree) = state.version.tree(partition) else { return Ok(None) };
        let sources = meta
            .inputs
            .iter()
            .filter_map(|id| tree.run(*id))
            .filter(|run| !run.files.is_empty())
            .map(|run| {
                SourceCursor::over_run(partition, Arc::clone(run), CursorMode::Streaming { forget: false })
            })
            .collect();
        let mut merge = Merge::new(sources, Direction::Up);
        merge.seek(SeekTo::Start)?;
        let output_stage = tree.run(meta.output).map_or(0, |run| run.stage);
        Ok(Some(Self { partition, meta, output_stage, merge, uncommitted: Vec::new(), last_key: Vec::new() }))
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

    /// Writes one output SST, and commits when enough of them have gathered or nothing is left.
    ///
    /// After an error the job is to be dropped; it can be resumed from what was committed.
    pub(crate) fn step(&mut self, inner: &Inner) -> Result<Progress> {
        if !inner.state.load().version.is_live(self.partition) {
            self.abandon();
            return Ok(Progress::Done);
        }
        if let Some((file, meta)) = self.write_sst(inner)? {
            self.uncommitted.push((file, meta));
        }
        let done = self.merge.current().is_none();
        if done || self.uncommitted.len() >= inner.options.clean_every {
            self.commit(inner, done)?;
        }
        Ok(if done { Progress::Done } else { Progress::More })
    }

    /// Merges into one SST until it is full or the inputs are exhausted.
    fn write_sst(&mut self, inner: &Inner) -> Result<Option<(Arc<SstFile>, RunFileMeta)>> {
        let mut output: Option<SstOutput<'_>> = None;
        let merged = self.fill(inner, &mut output);
        match (merged, output) {
            (Ok(()), None) => Ok(None),
            (Ok(()), Some(output)) => {
                let file = output.finish()?;
                add(&inner.counters.compaction_written_bytes, file.summary.file_len);
                let meta = file.whole();
                Ok(Some((file, meta)))
            }
            (Err(error), output) => {
                if let Some(output) = output {
                    output.abandon();
                }
                Err(error)
            }
        }
    }

    fn fill<'i>(&mut self, inner: &'i Inner, output: &mut Option<SstOutput<'i>>) -> Result<()> {
        let mut read_bytes = 0;
        let older = self.older_runs(inner);
        while let Some(source) = self.merge.current() {
            if output.as_ref().is_some_and(|sst| sst.len() >= inner.options.sst_bytes) {
                break;
            }
            let key = source.key().expect("the current source is on an entry");
            if key <= self.last_key.as_slice() {
                return Err(source.disorder(&inner.dir));
            }
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            let (kind, value) = (source.kind(), source.value_bytes());
            read_bytes += (key.len() + value.len()) as u64;
            let hides_nothing = kind == ValueKind::Tombstone
                && (self.meta.drops_tombstones
                    || older.as_ref().is_some_and(|older| !older.may_hold(&self.last_key))
                    || failpoint::skipped("plant.tombstone_dropped"));
            if !hides_nothing {
                let sst = match output {
                    Some(sst) => sst,
                    None => output.insert(inner.new_sst_output()?),
                };
                sst.add(self.partition, &self.last_key, &self.last_key, kind, value)?;
            }
            self.merge.advance()?;
        }
        add(&inner.counters.compaction_read_bytes, read_bytes);
        Ok(())
    }

    /// The runs that a tombstone may have to hide something in; `None` when the partition was dropped meanwhile.
    fn older_runs(&self, inner: &Inner) -> Option<OlderRuns> {
        let state = inner.state.load();
        let tree = state.version.tree(self.partition)?;
        Some(OlderRuns::than_inputs(self.partition, tree, &self.meta.inputs, self.meta.output))
    }

    /// Makes the progress durable and shows it to readers.
    fn commit(&mut self, inner: &Inner, done: bool) -> Result<()> {
        let partition = self.partition;
        if !self.uncommitted.is_empty() {
            inner.sync_dir("compaction.dir_sync")?;
        }
        let state = inner.state.load_full();
        let Some(tree) = state.version.tree(partition) else {
            self.abandon();
            return Ok(());
        };
        let (files, metas): (Vec<_>, Vec<_>) = self.uncommitted.drain(..).unzip();
        let mut edit = Edit::default();
        for file in &files {
            edit.push(EditItem::AddFile { file: file.id, summary: file.summary.clone() });
        }
        let output = tree.run(self.meta.output);
        let output_stays_empty = metas.is_empty() && output.is_none_or(|run| run.files.is_empty());
        if !metas.is_empty() {
            edit.push(EditItem::ExtendRun { partition, run: self.meta.output, files: metas });
        }
        if done {
            self.push_end(&mut edit, output_stays_empty);
        } else {
            self.push_clip(inner, &mut edit, tree);
        }
        inner.commit_edit(edit, files, State::with_version)?;
        if done {
            add(&inner.counters.compactions, 1);
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
    fn push_clip(&self, inner: &Inner, edit: &mut Edit, tree: &SubTree) {
        let partition = self.partition;
        let clip = successor(&self.last_key);
        for run in self.meta.inputs.iter().filter_map(|id| tree.run(*id)) {
            if !failpoint::skipped("plant.clip_missing") {
                edit.push(EditItem::SetClip { partition, run: run.id, clip: clip.clone() });
            }
            let below: Vec<_> = files_below(run, &clip);
            if failpoint::skipped("plant.unlink_early") && run.kind == RunKind::Ssts {
                for id in &below {
                    inner.remove_sst(*id);
                }
            }
            if !below.is_empty() {
                edit.push(EditItem::RemoveRunFiles { partition, run: run.id, files: below });
            }
        }
    }

    /// Lets the files go that no edit names.
    pub(crate) fn abandon(&mut self) {
        for (file, _) in self.uncommitted.drain(..) {
            file.mark_obsolete();
        }
    }
}

fn files_below(run: &Run, clip: &[u8]) -> Vec<pleach_env::FileId> {
    run.files.iter().take_while(|f| &*f.meta.largest < clip).map(|f| f.meta.file).collect()
}
