//! Applying edits: each makes the next version. Every reference is checked, because edits come from disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use pleach_env::FileId;
use pleach_log::SeqNo;

use super::edit::{Edit, EditItem, RunFileMeta, RunId, RunMeta};
use super::file_table::{ChangedFiles, FileChanges, FileTable};
use super::run::Run;
use super::sst_file::SstFile;
use super::{PartitionState, SubTree, Version};
use crate::keys::PartitionId;
use crate::values::{ValueHome, ValueRefs};

impl Version {
    /// The version after `edit`, and the edit's changes of the file table; an error message if the edit does not fit this
    /// version. `added` are the opened files that it names.
    pub(crate) fn apply(
        &self,
        edit: &Edit,
        files: &FileTable,
        added: &[Arc<SstFile>],
    ) -> Result<(Self, FileChanges), String> {
        let mut next = self.clone();
        let mut files = ChangedFiles::new(files, added);
        let (mut homes, mut by_file) = (BTreeMap::new(), BTreeMap::new());
        for item in &edit.items {
            if let EditItem::ValueHome { segment, file, kind, len } = *item {
                let new = || Arc::new(ValueHome::new(file, kind, len, Arc::clone(files.trash())));
                let home = by_file.entry((file, kind)).or_insert_with(new);
                homes.insert(segment, Arc::clone(home));
            } else {
                next.apply_item(item, &mut files)?;
            }
        }
        next.values = self.values.changed(&homes, files.uses())?;
        next.check_changed(edit)?;
        Ok((next, files.finish()))
    }

    /// The version with the filters that are in memory now, and with the present readers of its files.
    pub(crate) fn refreshed(&self) -> Self {
        let mut next = self.clone();
        for (id, partition) in self.partitions() {
            let runs: Vec<_> = partition.tree.runs.iter().map(|run| run.refreshed()).collect();
            if runs.iter().all(Option::is_none) {
                continue;
            }
            let runs = partition.tree.runs.iter().zip(runs);
            let runs = runs.map(|(old, new)| new.map_or_else(|| Arc::clone(old), Arc::new)).collect();
            let tree = Arc::new(SubTree { runs, ..SubTree::clone(&partition.tree) });
            next.partitions.set(id, Some(PartitionState { name: Arc::clone(&partition.name), tree }));
        }
        next
    }

    fn apply_item(&mut self, item: &EditItem, files: &mut ChangedFiles<'_>) -> Result<(), String> {
        match item {
            EditItem::NextId(id) => self.next_id = self.next_id.max(*id),
            EditItem::NextPartition(id) => self.next_partition = self.next_partition.max(*id),
            EditItem::LogFloor(floor) => self.log_floor = self.log_floor.max(*floor),
            EditItem::FlushedSeq(seq) => self.flushed_seq = self.flushed_seq.max(*seq),
            EditItem::AddFile { file, summary } => files.add_unopened(*file, summary.clone()),
            EditItem::CreatePartition { id, name } => self.create_partition(*id, name)?,
            EditItem::DropPartition { id } => self.drop_partition(*id, files)?,
            item => {
                let id = item.changed_tree().expect("every other item changes a sub-tree");
                let state =
                    self.partitions.get(id).ok_or_else(|| format!("partition {id} does not exist"))?;
                let mut tree = SubTree::clone(&state.tree);
                tree.apply_item(item, files)?;
                let state = PartitionState { name: Arc::clone(&state.name), tree: Arc::new(tree) };
                self.partitions.set(id, Some(state));
            }
        }
        Ok(())
    }

    fn create_partition(&mut self, id: PartitionId, name: &str) -> Result<(), String> {
        if self.is_live(id) {
            return Err(format!("partition {id} ({name:?}) exists already"));
        }
        // Numbers are given in order; a hostile one must not make the map grow without bound.
        if id.0 > self.next_partition {
            return Err(format!("partition number {id} is above the next free one"));
        }
        self.next_partition = self.next_partition.max(id.0 + 1);
        self.partitions.set(id, Some(PartitionState { name: name.into(), tree: Arc::default() }));
        Ok(())
    }

    fn drop_partition(&mut self, id: PartitionId, files: &mut ChangedFiles<'_>) -> Result<(), String> {
        let tree = Arc::clone(self.tree(id).ok_or_else(|| format!("partition {id} does not exist"))?);
        tree.runs.iter().flat_map(|run| &run.files).for_each(|file| files.release(file));
        self.partitions.set(id, None);
        Ok(())
    }
}

impl SubTree {
    fn apply_item(&mut self, item: &EditItem, files: &mut ChangedFiles<'_>) -> Result<(), String> {
        match item {
            EditItem::AddRun { run, .. } => self.add_run(run, files)?,
            EditItem::ExtendRun { run, newest_seq, files: added, .. } => {
                self.extend_run(*run, *newest_seq, added, files)?;
            }
            EditItem::SetClip { run, clip, .. } => {
                self.replace_run(*run, |run| Ok(run.with_clip(clip.clone())))?;
            }
            EditItem::RemoveRunFiles { run, files: removed, .. } => {
                self.remove_files(*run, removed, files)?;
            }
            EditItem::RemoveRun { run, .. } => self.remove_run(*run, files)?,
            EditItem::ValueRefs { run, file, refs, .. } => self.set_refs(*run, *file, refs, files)?,
            EditItem::StartJob { job, .. } => self.jobs.push(job.clone()),
            EditItem::EndJob { output, .. } => self.jobs.retain(|job| job.output != *output),
            _ => {}
        }
        Ok(())
    }

    fn add_run(&mut self, meta: &RunMeta, files: &mut ChangedFiles<'_>) -> Result<(), String> {
        if self.run(meta.id).is_some() {
            return Err(format!("run {} exists already", meta.id.0));
        }
        let run_files = meta.files.iter().map(|f| files.acquire(f)).collect::<Result<Vec<_>, _>>()?;
        Run::check_files(meta.id, meta.kind, &run_files)?;
        let run = Run::new(meta, run_files);
        let position = self.runs.partition_point(|r| (r.stage, meta.id) < (meta.stage, r.id));
        self.runs.insert(position, Arc::new(run));
        Ok(())
    }

    fn extend_run(
        &mut self,
        id: RunId,
        newest_seq: SeqNo,
        added: &[RunFileMeta],
        files: &mut ChangedFiles<'_>,
    ) -> Result<(), String> {
        let added: Vec<_> = added.iter().map(|f| files.acquire(f)).collect::<Result<_, _>>()?;
        self.replace_run(id, |run| {
            let mut files = [&run.files[..], &added].concat();
            files.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
            Run::check_files(id, run.kind, &files)?;
            Ok(run.with_files(files).with_newest(newest_seq))
        })
    }

    /// Removes all parts of some files.
    fn remove_files(
        &mut self,
        id: RunId,
        removed: &[FileId],
        files: &mut ChangedFiles<'_>,
    ) -> Result<(), String> {
        self.replace_run(id, |run| {
            let (gone, kept): (Vec<_>, Vec<_>) =
                run.files.iter().cloned().partition(|f| removed.contains(&f.file.id));
            if !removed.iter().all(|id| gone.iter().any(|f| f.file.id == *id)) {
                return Err(format!("run {} does not have the files to remove", id.0));
            }
            for file in &gone {
                files.release(file);
            }
            Ok(run.with_files(kept))
        })
    }

    /// Replaces what a file of a run refers to: its first part says it.
    fn set_refs(
        &mut self,
        id: RunId,
        file: FileId,
        refs: &ValueRefs,
        files: &mut ChangedFiles<'_>,
    ) -> Result<(), String> {
        self.replace_run(id, |run| {
            let at = run.files.iter().position(|f| f.file.id == file);
            let at = at.ok_or_else(|| format!("run {} does not have file {file}", id.0))?;
            let mut all = run.files.clone();
            files.restate(&mut all[at], refs);
            Ok(run.with_files(all))
        })
    }

    fn remove_run(&mut self, id: RunId, files: &mut ChangedFiles<'_>) -> Result<(), String> {
        let position = self.position(id)?;
        let run = self.runs.remove(position);
        run.files.iter().for_each(|file| files.release(file));
        Ok(())
    }

    fn replace_run(
        &mut self,
        id: RunId,
        change: impl FnOnce(&Run) -> Result<Run, String>,
    ) -> Result<(), String> {
        let position = self.position(id)?;
        self.runs[position] = Arc::new(change(&self.runs[position])?);
        Ok(())
    }

    fn position(&self, id: RunId) -> Result<usize, String> {
        self.runs.iter().position(|run| run.id == id).ok_or_else(|| format!("run {} does not exist", id.0))
    }
}
