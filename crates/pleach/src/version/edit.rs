//! Version edits: the difference of two versions, as the manifest records it.
//!
//! An edit is a list of items; all of them take effect or none.

use std::collections::BTreeSet;

use pleach_coding::Decoder;
use pleach_env::FileId;
use pleach_log::SeqNo;
use pleach_table::SstSummary;

use crate::keys::PartitionId;
use crate::values::{HomeKind, ValueRefs};

mod encoding;
use encoding::Field;

/// Number of a run. Within a stage, higher means newer. Drawn from the same counter as file numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(pub(crate) u64);

impl RunId {
    /// Stands for the number that the run gets when its edit is committed.
    ///
    /// A flushed run, the output of a partial compaction and the new run of a range compaction use it: no newer run can come into
    /// their stage before their edit. If they took a number earlier, a compaction begun meanwhile would get a higher number for
    /// older data. Newer runs can overtake a compaction of whole runs, so that takes its number when it is planned:
    /// `VersionSet::plan_basis`.
    pub(crate) const NEXT: Self = Self(0);
}

/// Whether a run has files of its own or a slice of a shared one. The numbers are on disk: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// A list of SSTs that hold user keys of one partition.
    Ssts = 0,
    /// A section: the partition's slice of one shared flush file, which holds partition keys.
    Section = 1,
}

/// A file of a run and the range of user keys in it, both ends inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunFileMeta {
    pub(crate) file: FileId,
    pub(crate) smallest: Box<[u8]>,
    pub(crate) largest: Box<[u8]>,
    /// Entries and bytes of this run in the file (of a section: its share).
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    /// Tombstones among the entries.
    pub(crate) tombstones: u64,
    /// Seconds since 1970 at which the oldest of the tombstones was flushed; 0 without tombstones.
    pub(crate) tombstones_since: u64,
    /// About how many of the entries shadow one of an older run. An estimate, made when the file was written.
    pub(crate) overwrites: u64,
    /// Separated values that this run's pointers in the file refer to, above the run's clip. In the manifest they are items of
    /// their own: [`EditItem::ValueRefs`].
    pub(crate) values: ValueRefs,
}

/// A run as the manifest records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunMeta {
    pub(crate) id: RunId,
    pub(crate) stage: u8,
    pub(crate) kind: RunKind,
    pub(crate) clip: Option<Box<[u8]>>,
    /// No write in the run has a higher sequence number.
    pub(crate) newest_seq: SeqNo,
    pub(crate) files: Vec<RunFileMeta>,
}

/// A compaction of whole runs in progress: with the runs' clips, all that is needed to resume it after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobMeta {
    pub(crate) output: RunId,
    pub(crate) inputs: Vec<RunId>,
    /// Whether no run is older than the inputs, so that tombstones can be dropped.
    pub(crate) drops_tombstones: bool,
}

/// One item of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EditItem {
    /// File and run numbers below this are taken.
    NextId(u64),
    /// Log segments below this are not needed any more.
    LogFloor(FileId),
    /// Writes up to this sequence number are in SSTs.
    FlushedSeq(SeqNo),
    CreatePartition {
        id: PartitionId,
        name: String,
    },
    DropPartition {
        id: PartitionId,
    },
    /// A file that runs of this edit or of later ones refer to.
    AddFile {
        file: FileId,
        summary: SstSummary,
    },
    AddRun {
        partition: PartitionId,
        run: RunMeta,
    },
    ExtendRun {
        partition: PartitionId,
        run: RunId,
        /// As in [`RunMeta`]; a lower one than the run's has no effect.
        newest_seq: SeqNo,
        files: Vec<RunFileMeta>,
    },
    SetClip {
        partition: PartitionId,
        run: RunId,
        clip: Box<[u8]>,
    },
    RemoveRunFiles {
        partition: PartitionId,
        run: RunId,
        files: Vec<FileId>,
    },
    RemoveRun {
        partition: PartitionId,
        run: RunId,
    },
    StartJob {
        partition: PartitionId,
        job: JobMeta,
    },
    EndJob {
        partition: PartitionId,
        output: RunId,
    },
    /// Partition numbers below this are taken.
    NextPartition(u32),
    /// The values of a segment are in this file from now on. A segment to which nothing refers after the edit is gone.
    ValueHome {
        segment: FileId,
        file: FileId,
        kind: HomeKind,
        len: u64,
    },
    /// What a file of a run refers to, in place of what was stated before.
    ValueRefs {
        partition: PartitionId,
        run: RunId,
        file: FileId,
        refs: ValueRefs,
    },
}

/// A version edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) items: Vec<EditItem>,
}

impl Edit {
    pub(crate) fn push(&mut self, item: EditItem) {
        self.items.push(item);
    }

    /// The partitions that it drops, or whose sub-trees it changes.
    pub(crate) fn changed_partitions(&self) -> BTreeSet<PartitionId> {
        let changed = |item: &EditItem| match item {
            EditItem::DropPartition { id } => Some(*id),
            item => item.changed_tree(),
        };
        self.items.iter().filter_map(changed).collect()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for item in &self.items {
            item.put(out);
            item.value_refs().for_each(|refs| refs.put(out));
        }
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut rest = Decoder(payload);
        let mut items = Vec::new();
        while !rest.is_empty() {
            items.push(EditItem::take(&mut rest)?);
        }
        Some(Self { items })
    }
}

impl EditItem {
    /// The partition whose sub-tree the item changes.
    pub(crate) fn changed_tree(&self) -> Option<PartitionId> {
        match self {
            Self::AddRun { partition, .. }
            | Self::ExtendRun { partition, .. }
            | Self::SetClip { partition, .. }
            | Self::RemoveRunFiles { partition, .. }
            | Self::RemoveRun { partition, .. }
            | Self::StartJob { partition, .. }
            | Self::EndJob { partition, .. }
            | Self::ValueRefs { partition, .. } => Some(*partition),
            _ => None,
        }
    }

    /// The items by which the manifest states what the files of the item refer to.
    fn value_refs(&self) -> impl Iterator<Item = EditItem> {
        let (of, files): (_, &[RunFileMeta]) = match self {
            Self::AddRun { partition, run } => (Some((*partition, run.id)), &run.files),
            Self::ExtendRun { partition, run, files, .. } => (Some((*partition, *run)), files),
            _ => (None, &[]),
        };
        files.iter().filter(|file| !file.values.is_empty()).filter_map(move |file| {
            let (partition, run) = of?;
            Some(Self::ValueRefs { partition, run, file: file.file, refs: file.values.clone() })
        })
    }
}

#[cfg(test)]
mod tests;
