//! Versions: immutable lists of live files, and the edits that lead from one to the next.
//!
//! A [`Version`] maps each partition to its sub-tree: runs in age order and the compactions in progress. Readers pin
//! one by reference count; the manifest records the edits. Nothing here does I/O.
//!
//! # Invariants
//! 1. *Age order*: runs of a sub-tree are sorted by stage, then newest first; the first hit wins. No run has a higher
//!    `newest_seq` than the run before it. A compaction's inputs and its output lie next to each other and count as one run,
//!    so a compaction changes no age. Checked by [`Version::apply`] for every edit before it is written, and in
//!    [`SubTree::check_invariants`], together with the invariants of each run.
//! 2. *Immutable*: an edit makes a new version that shares what did not change.
//! 3. *Numbers*: every file and run number in a version is below `next_id`, every partition number below `next_partition`.

mod apply;
pub(crate) mod edit;
mod file_table;
mod map;
mod older;
mod origin;
mod parts;
pub(crate) mod reads;
mod run;
mod scan_length;
pub(crate) mod size;
mod sst_file;

use std::sync::Arc;

use pleach_env::FileId;
use pleach_log::SeqNo;

use crate::keys::PartitionId;
use crate::values::{LiveSegment, SegmentUses, ValueHome, ValueSegments};
use edit::{Edit, EditItem, JobMeta, RunId};
pub(crate) use file_table::{FileChanges, FileTable};
use map::PartitionMap;
pub(crate) use older::OlderRuns;
pub(crate) use origin::Origin;
pub(crate) use parts::Cuts;
use reads::ReadCost;
pub(crate) use run::{Run, RunFile};
pub(crate) use scan_length::ScanLength;
pub(crate) use sst_file::SstFile;

/// A partition's runs and compactions.
#[derive(Clone, Default)]
pub(crate) struct SubTree {
    /// In age order: stage ascending, within a stage newest first.
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) jobs: Vec<JobMeta>,
    pub(crate) reads: Arc<ReadCost>,
    pub(crate) scans: Arc<ScanLength>,
}

impl SubTree {
    /// The run numbered `id`.
    pub(crate) fn run(&self, id: RunId) -> Option<&Arc<Run>> {
        self.runs.iter().find(|run| run.id == id)
    }

    /// Whether a compaction reads or writes the run.
    pub(crate) fn is_busy(&self, id: RunId) -> bool {
        self.jobs.iter().any(|job| job.output == id || job.inputs.contains(&id))
    }

    /// The sum of `of` over all runs.
    pub(crate) fn sum(&self, of: impl Fn(&Run) -> u64) -> u64 {
        self.runs.iter().map(|run| of(run)).fold(0, u64::saturating_add)
    }

    /// Highest stage in use.
    pub(crate) fn last_stage(&self) -> u8 {
        self.runs.last().map_or(0, |run| run.stage)
    }

    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        self.runs.iter().try_for_each(|run| run.check_invariants())?;
        self.check_order()?;
        self.check_jobs()
    }

    /// An error message if the runs are not in age order.
    fn check_order(&self) -> Result<(), String> {
        let ordered = self.runs.is_sorted_by(|a, b| (a.stage, b.id) < (b.stage, a.id));
        if !ordered {
            return Err("runs of a sub-tree are out of order".to_owned());
        }
        let mut newest = SeqNo::MAX;
        for run in &self.runs {
            // The inputs of a compaction have the age of its output.
            let job = self.jobs.iter().find(|job| job.inputs.contains(&run.id));
            let age = job.and_then(|job| self.run(job.output)).unwrap_or(run).newest_seq;
            if age > newest {
                return Err(format!("run {} holds newer writes than the run before it", run.id.0));
            }
            newest = age;
        }
        Ok(())
    }

    fn check_jobs(&self) -> Result<(), String> {
        for job in &self.jobs {
            let mut runs = job.inputs.iter().chain([&job.output]);
            if let Some(missing) = runs.find(|id| self.run(**id).is_none()) {
                return Err(format!("a compaction refers to run {}, which does not exist", missing.0));
            }
            let is_part = |run: &Arc<Run>| run.id == job.output || job.inputs.contains(&run.id);
            let len = self.runs.iter().skip_while(|run| !is_part(run)).take_while(|run| is_part(run)).count();
            if len != job.inputs.len() + 1 {
                return Err(format!(
                    "a run lies between run {} and the inputs of its compaction",
                    job.output.0
                ));
            }
        }
        Ok(())
    }
}

/// A partition in a version.
#[derive(Clone)]
pub(crate) struct PartitionState {
    pub(crate) name: Arc<str>,
    pub(crate) tree: Arc<SubTree>,
}

/// An immutable list of everything that is live.
#[derive(Clone)]
pub(crate) struct Version {
    partitions: PartitionMap,
    /// The segments to which value pointers refer.
    pub(crate) values: ValueSegments,
    pub(crate) next_id: u64,
    pub(crate) next_partition: u32,
    pub(crate) log_floor: FileId,
    pub(crate) flushed_seq: SeqNo,
}

impl Version {
    /// A version without partitions.
    pub(crate) fn empty() -> Self {
        Self {
            partitions: PartitionMap::default(),
            values: ValueSegments::default(),
            next_id: 1,
            next_partition: 0,
            log_floor: FileId(0),
            flushed_seq: 0,
        }
    }

    /// The same numbers without partitions: the version that readers of a closed store see.
    pub(crate) fn without_partitions(&self) -> Self {
        Self { partitions: PartitionMap::default(), values: ValueSegments::default(), ..self.clone() }
    }

    /// The sub-tree of a partition; `None` when it was dropped.
    #[inline]
    pub(crate) fn tree(&self, partition: PartitionId) -> Option<&Arc<SubTree>> {
        self.partitions.get(partition).map(|p| &p.tree)
    }

    /// The highest `newest_seq` of some runs of a partition.
    pub(crate) fn newest_seq(&self, partition: PartitionId, runs: &[RunId]) -> SeqNo {
        let tree = self.tree(partition).into_iter();
        let runs = tree.flat_map(|tree| &tree.runs).filter(|run| runs.contains(&run.id));
        runs.map(|run| run.newest_seq).max().unwrap_or(0)
    }

    pub(crate) fn is_live(&self, partition: PartitionId) -> bool {
        self.partitions.get(partition).is_some()
    }

    /// All partitions by number.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (PartitionId, &PartitionState)> {
        self.partitions.iter()
    }

    /// One edit that leads from the empty version to this one: the head of a new manifest.
    pub(crate) fn as_edit(&self) -> Edit {
        let mut edit = Edit::default();
        edit.push(EditItem::NextId(self.next_id));
        edit.push(EditItem::NextPartition(self.next_partition));
        edit.push(EditItem::LogFloor(self.log_floor));
        edit.push(EditItem::FlushedSeq(self.flushed_seq));
        for file in self.live_files() {
            edit.push(EditItem::AddFile { file: file.id, summary: file.summary.clone() });
        }
        for LiveSegment { id, home, .. } in self.values.iter() {
            let ValueHome { file, kind, len, .. } = **home;
            edit.push(EditItem::ValueHome { segment: *id, file, kind, len });
        }
        for (id, partition) in self.partitions() {
            edit.push(EditItem::CreatePartition { id, name: partition.name.to_string() });
            for run in &partition.tree.runs {
                edit.push(EditItem::AddRun { partition: id, run: run.meta() });
            }
            for job in &partition.tree.jobs {
                edit.push(EditItem::StartJob { partition: id, job: job.clone() });
            }
        }
        edit
    }

    /// Whether a file that a run refers to has value pointers, also such as no reader sees: those of a dropped partition's
    /// section, and those below a clip.
    pub(crate) fn has_value_pointers(&self) -> bool {
        let runs = self.partitions().flat_map(|(_, partition)| partition.tree.runs.iter());
        runs.flat_map(|run| &run.files).any(|file| file.file.summary.value_pointers > 0)
    }

    /// Every file that a run refers to, once, by number.
    pub(crate) fn live_files(&self) -> Vec<Arc<SstFile>> {
        let mut files: Vec<_> = self
            .partitions()
            .flat_map(|(_, p)| p.tree.runs.iter())
            .flat_map(|run| run.files.iter().map(|f| Arc::clone(&f.file)))
            .collect();
        files.sort_unstable_by_key(|file| file.id);
        files.dedup_by_key(|file| file.id);
        files
    }

    /// Marks the homes of values as obsolete that `next` does not have.
    ///
    /// Requires: the edit that leads to `next` is durable.
    pub(crate) fn mark_homes_missing_in(&self, next: &Self) {
        if self.values.is_same(&next.values) {
            return;
        }
        let live = next.values.homes();
        for (file, (home, _)) in self.values.homes() {
            if live.get(&file).is_none_or(|(other, _)| other.kind != home.kind) {
                home.mark_obsolete();
            }
        }
    }

    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        for (id, partition) in self.partitions() {
            self.check_partition(id, partition)?;
        }
        self.check_values()
    }

    /// An error message unless what is live of each segment is what the files of all runs refer to.
    fn check_values(&self) -> Result<(), String> {
        let mut sums = SegmentUses::new();
        let runs = self.partitions().flat_map(|(_, partition)| partition.tree.runs.iter());
        for (segment, used) in runs.flat_map(|run| &run.files).flat_map(|file| file.meta.values.iter()) {
            let sum = sums.entry(segment).or_default();
            sum.values += used.values;
            sum.bytes += used.bytes;
        }
        let live: SegmentUses = self.values.iter().map(|segment| (segment.id, segment.live)).collect();
        if sums != live {
            return Err("the references to value segments do not add up".to_owned());
        }
        let is_numbered = |segment: &LiveSegment| segment.id.max(segment.home.file).0 < self.next_id;
        if !self.values.iter().all(is_numbered) {
            return Err("the number of a value segment is at or above the next free one".to_owned());
        }
        Ok(())
    }

    /// Checks what `edit` has changed: the order of runs always, the files in them in debug builds and under `paranoid`.
    pub(super) fn check_changed(&self, edit: &Edit) -> Result<(), String> {
        for id in edit.changed_partitions() {
            let Some(partition) = self.partitions.get(id) else { continue };
            if cfg!(any(debug_assertions, feature = "paranoid")) {
                self.check_partition(id, partition)?;
                continue;
            }
            let tree = &partition.tree;
            let checked = tree.check_order().and_then(|()| tree.check_jobs());
            checked.map_err(|message| format!("partition {id} ({:?}): {message}", partition.name))?;
        }
        if cfg!(any(debug_assertions, feature = "paranoid")) { self.check_values() } else { Ok(()) }
    }

    fn check_partition(&self, id: PartitionId, partition: &PartitionState) -> Result<(), String> {
        partition
            .tree
            .check_invariants()
            .map_err(|message| format!("partition {id} ({:?}): {message}", partition.name))?;
        let newest = partition.tree.runs.iter().map(|run| run.newest_seq).max();
        if newest.is_some_and(|newest| newest > self.flushed_seq) {
            return Err(format!("partition {id}: a run holds newer writes than were flushed"));
        }
        let numbers = partition
            .tree
            .runs
            .iter()
            .flat_map(|run| run.files.iter().map(|f| f.file.id.0).chain([run.id.0]));
        if id.0 >= self.next_partition || numbers.max().is_some_and(|n| n >= self.next_id) {
            return Err(format!("partition {id}: a number is at or above the next free one"));
        }
        Ok(())
    }
}
