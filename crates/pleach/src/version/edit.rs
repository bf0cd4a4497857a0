//! Version edits: the delta between two versions, as the manifest records it.
//!
//! Layout: docs/format/manifest.md. An edit is a list of items; all of them take effect or none.

use pleach_env::FileId;
use pleach_log::SeqNo;
use pleach_table::SstSummary;

use super::summary;
use crate::coding::{Decoder, put_bytes, put_varint};
use crate::keys::PartitionId;
use crate::limits::{KEY_LEN_MAX, PARTITION_NAME_LEN_MAX};

/// Number of a run. Within a stage, higher means newer. Drawn from the same counter as file numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(pub(crate) u64);

impl RunId {
    /// Stands for the number that the run gets when its edit is committed. A flush must not choose earlier: a
    /// compaction begun meanwhile would get a higher number for older data.
    pub(crate) const NEXT: Self = Self(0);
}

/// Whether a run has files of its own or a slice of a shared one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// A list of SSTs that hold user keys of one partition.
    Ssts,
    /// A section: the partition's slice of one shared flush file, which holds partition keys.
    Section,
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
}

/// A run as the manifest states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunMeta {
    pub(crate) id: RunId,
    pub(crate) stage: u8,
    pub(crate) kind: RunKind,
    pub(crate) clip: Option<Box<[u8]>>,
    pub(crate) files: Vec<RunFileMeta>,
}

/// A compaction in progress: with the runs' clips, all that is needed to go on after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobMeta {
    pub(crate) output: RunId,
    pub(crate) inputs: Vec<RunId>,
    /// Whether nothing older than the inputs lies below them, so that tombstones can go.
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
    /// A file that runs of this edit, or later ones, refer to.
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
}

/// A version edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) items: Vec<EditItem>,
}

// On-disk tags. Never renumber.
const NEXT_ID: u8 = 1;
const LOG_FLOOR: u8 = 2;
const FLUSHED_SEQ: u8 = 3;
const CREATE_PARTITION: u8 = 4;
const DROP_PARTITION: u8 = 5;
const ADD_FILE: u8 = 6;
const ADD_RUN: u8 = 7;
const EXTEND_RUN: u8 = 8;
const SET_CLIP: u8 = 9;
const REMOVE_RUN_FILES: u8 = 10;
const REMOVE_RUN: u8 = 11;
const START_JOB: u8 = 12;
const END_JOB: u8 = 13;
const NEXT_PARTITION: u8 = 14;

// On-disk run kinds. Never renumber.
const KIND_SSTS: u8 = 0;
const KIND_SECTION: u8 = 1;

impl Edit {
    pub(crate) fn push(&mut self, item: EditItem) {
        self.items.push(item);
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for item in &self.items {
            item.encode(out);
        }
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut rest = Decoder(payload);
        let mut items = Vec::new();
        while !rest.is_empty() {
            items.push(EditItem::decode(&mut rest)?);
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
            | Self::EndJob { partition, .. } => Some(*partition),
            _ => None,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::NextId(id) => put(out, NEXT_ID, &[*id]),
            Self::LogFloor(FileId(id)) => put(out, LOG_FLOOR, &[*id]),
            Self::FlushedSeq(seq) => put(out, FLUSHED_SEQ, &[*seq]),
            Self::NextPartition(id) => put(out, NEXT_PARTITION, &[u64::from(*id)]),
            Self::CreatePartition { id, name } => {
                put(out, CREATE_PARTITION, &[u64::from(id.0)]);
                put_bytes(out, name.as_bytes());
            }
            Self::DropPartition { id } => put(out, DROP_PARTITION, &[u64::from(id.0)]),
            Self::AddFile { file, summary } => {
                put(out, ADD_FILE, &[file.0]);
                summary::encode(summary, out);
            }
            Self::AddRun { partition, run } => {
                put(out, ADD_RUN, &[u64::from(partition.0)]);
                run.encode(out);
            }
            Self::ExtendRun { partition, run, files } => {
                put(out, EXTEND_RUN, &[u64::from(partition.0), run.0]);
                encode_files(files, out);
            }
            Self::SetClip { partition, run, clip } => {
                put(out, SET_CLIP, &[u64::from(partition.0), run.0]);
                put_bytes(out, clip);
            }
            Self::RemoveRunFiles { partition, run, files } => {
                put(out, REMOVE_RUN_FILES, &[u64::from(partition.0), run.0, files.len() as u64]);
                for file in files {
                    put_varint(out, file.0);
                }
            }
            Self::RemoveRun { partition, run } => put(out, REMOVE_RUN, &[u64::from(partition.0), run.0]),
            Self::StartJob { partition, job } => {
                put(out, START_JOB, &[u64::from(partition.0), job.output.0, u64::from(job.drops_tombstones)]);
                put_varint(out, job.inputs.len() as u64);
                job.inputs.iter().for_each(|run| put_varint(out, run.0));
            }
            Self::EndJob { partition, output } => put(out, END_JOB, &[u64::from(partition.0), output.0]),
        }
    }

    fn decode(rest: &mut Decoder<'_>) -> Option<Self> {
        Some(match rest.u8()? {
            NEXT_ID => Self::NextId(rest.varint()?),
            LOG_FLOOR => Self::LogFloor(file_id(rest)?),
            FLUSHED_SEQ => Self::FlushedSeq(rest.varint()?),
            NEXT_PARTITION => Self::NextPartition(u32::try_from(rest.varint()?).ok()?),
            CREATE_PARTITION => {
                let id = partition(rest)?;
                let name = std::str::from_utf8(rest.bytes()?).ok()?;
                (name.len() <= PARTITION_NAME_LEN_MAX).then_some(())?;
                Self::CreatePartition { id, name: name.to_owned() }
            }
            DROP_PARTITION => Self::DropPartition { id: partition(rest)? },
            ADD_FILE => Self::AddFile { file: file_id(rest)?, summary: summary::decode(rest)? },
            ADD_RUN => Self::AddRun { partition: partition(rest)?, run: RunMeta::decode(rest)? },
            EXTEND_RUN => Self::ExtendRun {
                partition: partition(rest)?,
                run: run_id(rest)?,
                files: decode_list(rest, RunFileMeta::decode)?,
            },
            SET_CLIP => Self::SetClip {
                partition: partition(rest)?,
                run: run_id(rest)?,
                clip: key(rest, KEY_LEN_MAX + 1)?,
            },
            REMOVE_RUN_FILES => Self::RemoveRunFiles {
                partition: partition(rest)?,
                run: run_id(rest)?,
                files: decode_list(rest, file_id)?,
            },
            REMOVE_RUN => Self::RemoveRun { partition: partition(rest)?, run: run_id(rest)? },
            START_JOB => {
                let (partition, output) = (partition(rest)?, run_id(rest)?);
                let drops_tombstones = rest.varint()? != 0;
                let inputs = decode_list(rest, run_id)?;
                Self::StartJob { partition, job: JobMeta { output, inputs, drops_tombstones } }
            }
            END_JOB => Self::EndJob { partition: partition(rest)?, output: run_id(rest)? },
            _ => return None,
        })
    }
}

impl RunMeta {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.id.0);
        out.push(self.stage);
        out.push(match self.kind {
            RunKind::Ssts => KIND_SSTS,
            RunKind::Section => KIND_SECTION,
        });
        put_bytes(out, self.clip.as_deref().unwrap_or_default()); // No key is empty, so an empty clip means none.
        encode_files(&self.files, out);
    }

    fn decode(rest: &mut Decoder<'_>) -> Option<Self> {
        let id = run_id(rest)?;
        let stage = rest.u8()?;
        let kind = match rest.u8()? {
            KIND_SSTS => RunKind::Ssts,
            KIND_SECTION => RunKind::Section,
            _ => return None,
        };
        let clip = key(rest, KEY_LEN_MAX + 1)?;
        let files = decode_list(rest, RunFileMeta::decode)?;
        Some(Self { id, stage, kind, clip: (!clip.is_empty()).then_some(clip), files })
    }
}

impl RunFileMeta {
    fn decode(rest: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            file: file_id(rest)?,
            smallest: key(rest, KEY_LEN_MAX)?,
            largest: key(rest, KEY_LEN_MAX)?,
            entries: rest.varint()?,
            bytes: rest.varint()?,
        })
    }
}

fn encode_files(files: &[RunFileMeta], out: &mut Vec<u8>) {
    put_varint(out, files.len() as u64);
    for file in files {
        put_varint(out, file.file.0);
        put_bytes(out, &file.smallest);
        put_bytes(out, &file.largest);
        put_varint(out, file.entries);
        put_varint(out, file.bytes);
    }
}

fn put(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    out.push(tag);
    for &number in numbers {
        put_varint(out, number);
    }
}

fn decode_list<T>(rest: &mut Decoder<'_>, item: fn(&mut Decoder<'_>) -> Option<T>) -> Option<Vec<T>> {
    let count = rest.len()?;
    // Each element takes a byte at least, so a forged count cannot make the vector grow past the input.
    (count <= rest.0.len()).then_some(())?;
    (0..count).map(|_| item(rest)).collect()
}

fn partition(rest: &mut Decoder<'_>) -> Option<PartitionId> {
    u32::try_from(rest.varint()?).ok().map(PartitionId)
}

fn file_id(rest: &mut Decoder<'_>) -> Option<FileId> {
    rest.varint().map(FileId)
}

fn run_id(rest: &mut Decoder<'_>) -> Option<RunId> {
    rest.varint().map(RunId)
}

fn key(rest: &mut Decoder<'_>, len_max: usize) -> Option<Box<[u8]>> {
    rest.bytes().filter(|key| key.len() <= len_max).map(Box::from)
}
