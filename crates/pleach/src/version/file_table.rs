//! The file table: the files of the newest version with their reference counts, and the changes of an edit.
//!
//! An edit is applied before it is written, and applying it can fail. So its changes of the table are collected in
//! [`FileChanges`]; [`FileTable::install`] makes them once the edit is durable.
//!
//! # Cost
//! The time of an edit depends on the files that it changes, not on the number of files.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pleach_env::FileId;
use pleach_table::{Sst, SstSummary};

use super::edit::RunFileMeta;
use super::run::RunFile;
use super::sst_file::SstFile;
use crate::trash::Trash;
use crate::values::{SegmentUse, ValueRefs};

/// A file and how many runs refer to it.
type Counted = (Arc<SstFile>, usize);

/// Files by number, with how many runs of the newest version refer to each.
#[derive(Default)]
pub(crate) struct FileTable {
    files: HashMap<FileId, Counted>,
    /// Files whose last reference has gone since the last call of [`FileTable::take_unreferenced`]. They may be referenced
    /// again.
    loose: Vec<FileId>,
    /// Bytes of all files' filters, and of their indexes.
    filter_bytes: u128,
    index_bytes: u128,
    /// Entries of all files.
    entries: u128,
    trash: Arc<Trash>,
}

/// The changes of one edit to the table: the files that it names, or whose references it changes, as they are after it.
#[derive(Default)]
pub(crate) struct FileChanges(HashMap<FileId, Counted>);

/// The table as an edit in progress sees it.
pub(super) struct ChangedFiles<'t> {
    table: &'t FileTable,
    changes: FileChanges,
    /// Changes of the values, and of their bytes, that runs refer to, by segment.
    uses: BTreeMap<FileId, (i64, i64)>,
}

impl FileTable {
    pub(crate) fn new(trash: Arc<Trash>) -> Self {
        Self { trash, ..Self::default() }
    }

    /// Bytes of all filters, whether or not in memory, and of all indexes.
    pub(crate) fn table_bytes(&self) -> (u64, u64) {
        let clamped = |bytes| u64::try_from(bytes).unwrap_or(u64::MAX);
        (clamped(self.filter_bytes), clamped(self.index_bytes))
    }

    /// Entries of all files.
    pub(crate) fn entries(&self) -> u64 {
        u64::try_from(self.entries).unwrap_or(u64::MAX)
    }

    /// Takes the true size of each index in place of its estimate. Called once, when the files of a store have been opened.
    pub(crate) fn count_open_indexes(&mut self) {
        self.index_bytes = self.files.values().map(|(file, _)| u128::from(file.index_bytes())).sum();
    }

    /// Replaces the reader of a file by `sst`, which `learn_index` made of it. A file that is no longer in the table keeps its
    /// own.
    pub(crate) fn replace_sst(&mut self, sst: Sst) {
        let Some((file, _)) = self.files.get(&sst.file_id()) else { return };
        self.index_bytes -= u128::from(file.index_bytes());
        file.replace_sst(sst);
        self.index_bytes += u128::from(file.index_bytes());
    }

    /// Makes the changes of an edit. The files that it adds are open.
    ///
    /// Requires: the table has not changed since the edit was applied.
    pub(crate) fn install(&mut self, changes: FileChanges) {
        for (id, counted) in changes.0 {
            if counted.1 == 0 {
                self.loose.push(id);
            }
            match self.files.entry(id) {
                Entry::Occupied(mut entry) => entry.get_mut().1 = counted.1,
                Entry::Vacant(entry) => {
                    self.filter_bytes += u128::from(counted.0.filter_bytes());
                    self.index_bytes += u128::from(counted.0.index_bytes());
                    self.entries += u128::from(counted.0.summary.entries);
                    entry.insert(counted);
                }
            }
        }
    }

    /// Removes the files that no run refers to from the table, and returns them.
    pub(crate) fn take_unreferenced(&mut self) -> Vec<Arc<SstFile>> {
        let mut taken = Vec::new();
        for id in std::mem::take(&mut self.loose) {
            if let Entry::Occupied(entry) = self.files.entry(id)
                && entry.get().1 == 0
            {
                let (file, _) = entry.remove();
                self.filter_bytes -= u128::from(file.filter_bytes());
                self.index_bytes -= u128::from(file.index_bytes());
                self.entries -= u128::from(file.summary.entries);
                taken.push(file);
            }
        }
        taken
    }

    /// Every file, with how many runs refer to it.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> BTreeMap<FileId, usize> {
        self.files.iter().map(|(id, (_, references))| (*id, *references)).collect()
    }
}

impl<'t> ChangedFiles<'t> {
    /// The table with `added`, opened files that the edit names.
    pub(super) fn new(table: &'t FileTable, added: &[Arc<SstFile>]) -> Self {
        let added = added.iter().filter(|file| !table.files.contains_key(&file.id));
        let changes = FileChanges(added.map(|file| (file.id, (Arc::clone(file), 0))).collect());
        Self { table, changes, uses: BTreeMap::new() }
    }

    pub(super) fn trash(&self) -> &Arc<Trash> {
        &self.table.trash
    }

    /// See the field.
    pub(super) fn uses(&self) -> &BTreeMap<FileId, (i64, i64)> {
        &self.uses
    }

    /// Adds references, or takes them away.
    fn count(&mut self, refs: &ValueRefs, sign: i64) {
        for (segment, SegmentUse { values, bytes }) in refs.iter() {
            let (all_values, all_bytes) = self.uses.entry(segment).or_default();
            // Numbers from disk are limited (`version::edit`), so a store has far too few files for an overflow.
            *all_values = all_values.saturating_add(sign.saturating_mul(values.cast_signed()));
            *all_bytes = all_bytes.saturating_add(sign.saturating_mul(bytes.cast_signed()));
        }
    }

    /// Replaces the references of a run's file.
    pub(super) fn restate(&mut self, file: &mut RunFile, refs: &ValueRefs) {
        self.count(&file.meta.values, -1);
        self.count(refs, 1);
        file.meta.values = refs.clone();
    }

    pub(super) fn finish(self) -> FileChanges {
        self.changes
    }

    /// Adds a file without references.
    pub(super) fn add_unopened(&mut self, id: FileId, summary: SstSummary) {
        if self.entry(id).is_none() {
            let file = Arc::new(SstFile::new(id, summary, Arc::clone(&self.table.trash)));
            self.changes.0.insert(id, (file, 0));
        }
    }

    pub(super) fn acquire(&mut self, meta: &RunFileMeta) -> Result<RunFile, String> {
        let (file, references) =
            self.entry(meta.file).ok_or_else(|| format!("file {} is unknown", meta.file))?;
        *references += 1;
        let file = RunFile::new(Arc::clone(file), meta.clone());
        self.count(&meta.values, 1);
        Ok(file)
    }

    pub(super) fn release(&mut self, file: &RunFile) {
        let (_, references) = self.entry(file.file.id).expect("a run's files are in the table");
        *references -= 1;
        self.count(&file.meta.values, -1);
    }

    /// The file as the edit has left it so far.
    fn entry(&mut self, id: FileId) -> Option<&mut Counted> {
        match self.changes.0.entry(id) {
            Entry::Occupied(entry) => Some(entry.into_mut()),
            Entry::Vacant(entry) => Some(entry.insert(self.table.files.get(&id)?.clone())),
        }
    }
}
