//! Version edits: the delta between two versions, as the manifest records it.
//!
//! Layout: docs/format/manifest.md. An edit is a list of items; all of them take effect or none.

use std::collections::BTreeSet;

use pleach_coding::{Decoder, put_bytes, put_varint};
use pleach_env::FileId;
use pleach_log::{SEQ_MAX, SeqNo};
use pleach_table::SstSummary;

use super::summary;
use crate::keys::PartitionId;
use crate::limits::{KEY_LEN_MAX, NEXT_ID_MAX, PARTITION_NAME_LEN_MAX, PARTITIONS_MAX, STAGE_MAX};

/// Number of a run. Within a stage, higher means newer. Drawn from the same counter as file numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(pub(crate) u64);

impl RunId {
    /// Stands for the number that the run gets when its edit is committed.
    ///
    /// A run gets it when nothing newer can come into its stage before its edit: a flushed run, and the output of a
    /// partial compaction. Neither must choose its number earlier: a compaction begun meanwhile would get a higher
    /// number for older data. A compaction of whole runs is overtaken by newer runs of its stage, and takes its number
    /// when it is planned: `VersionSet::plan_basis`.
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
    /// Tombstones among the entries.
    pub(crate) tombstones: u64,
    /// Seconds since 1970 at which the oldest of the tombstones was flushed; 0 where there is none.
    pub(crate) tombstones_since: u64,
    /// About how many of the entries hide one of an older run. An estimate, made when the file was written.
    pub(crate) overwrites: u64,
}

/// A run as the manifest states it.
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
        /// As of a run; it never falls.
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

    /// The partitions whose sub-trees it changes, or that it drops.
    pub(crate) fn changed_partitions(&self) -> BTreeSet<PartitionId> {
        let changed = |item: &EditItem| match item {
            EditItem::DropPartition { id } => Some(*id),
            item => item.changed_tree(),
        };
        self.items.iter().filter_map(changed).collect()
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
            Self::ExtendRun { partition, run, newest_seq, files } => {
                put(out, EXTEND_RUN, &[u64::from(partition.0), run.0, *newest_seq]);
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
            NEXT_ID => Self::NextId(rest.varint().filter(|id| *id <= NEXT_ID_MAX)?),
            LOG_FLOOR => Self::LogFloor(file_id(rest)?),
            FLUSHED_SEQ => Self::FlushedSeq(seq(rest)?),
            NEXT_PARTITION => Self::NextPartition(rest.u32().filter(|next| *next <= PARTITIONS_MAX)?),
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
                newest_seq: seq(rest)?,
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
        put_varint(out, self.newest_seq);
        encode_files(&self.files, out);
    }

    fn decode(rest: &mut Decoder<'_>) -> Option<Self> {
        let id = run_id(rest)?;
        let stage = rest.u8().filter(|stage| *stage <= STAGE_MAX)?;
        let kind = match rest.u8()? {
            KIND_SSTS => RunKind::Ssts,
            KIND_SECTION => RunKind::Section,
            _ => return None,
        };
        let clip = key(rest, KEY_LEN_MAX + 1)?;
        let newest_seq = seq(rest)?;
        let files = decode_list(rest, RunFileMeta::decode)?;
        Some(Self { id, stage, kind, clip: (!clip.is_empty()).then_some(clip), newest_seq, files })
    }
}

impl RunFileMeta {
    fn decode(rest: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            file: file_id(rest)?,
            smallest: key(rest, KEY_LEN_MAX).filter(|key| !key.is_empty())?,
            largest: key(rest, KEY_LEN_MAX).filter(|key| !key.is_empty())?,
            entries: rest.varint()?,
            bytes: rest.varint()?,
            tombstones: rest.varint()?,
            tombstones_since: rest.varint()?,
            overwrites: rest.varint()?,
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
        put_varint(out, file.tombstones);
        put_varint(out, file.tombstones_since);
        put_varint(out, file.overwrites);
    }
}

fn put(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    out.push(tag);
    for &number in numbers {
        put_varint(out, number);
    }
}

fn decode_list<T>(rest: &mut Decoder<'_>, item: fn(&mut Decoder<'_>) -> Option<T>) -> Option<Vec<T>> {
    let count = rest.usize()?;
    // Each element takes a byte at least, so a forged count cannot make the vector grow past the input.
    (count <= rest.0.len()).then_some(())?;
    (0..count).map(|_| item(rest)).collect()
}

fn partition(rest: &mut Decoder<'_>) -> Option<PartitionId> {
    rest.u32().filter(|id| *id < PARTITIONS_MAX).map(PartitionId)
}

fn file_id(rest: &mut Decoder<'_>) -> Option<FileId> {
    rest.varint().map(FileId)
}

fn seq(rest: &mut Decoder<'_>) -> Option<SeqNo> {
    rest.varint().filter(|seq| *seq <= SEQ_MAX)
}

fn run_id(rest: &mut Decoder<'_>) -> Option<RunId> {
    rest.varint().map(RunId)
}

fn key(rest: &mut Decoder<'_>, len_max: usize) -> Option<Box<[u8]>> {
    rest.bytes().filter(|key| key.len() <= len_max).map(Box::from)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Box<[u8]>> {
        vec(any::<u8>(), 1..20).prop_map(Vec::into_boxed_slice)
    }

    fn file() -> impl Strategy<Value = RunFileMeta> {
        (any::<u64>(), key(), key(), any::<[u64; 5]>()).prop_map(|(id, smallest, largest, numbers)| {
            let [entries, bytes, tombstones, tombstones_since, overwrites] = numbers;
            let file = FileId(id);
            RunFileMeta { file, smallest, largest, entries, bytes, tombstones, tombstones_since, overwrites }
        })
    }

    fn summary() -> impl Strategy<Value = SstSummary> {
        (any::<[u64; 6]>(), any::<[u32; 3]>(), key(), key()).prop_map(|(long, short, smallest, largest)| {
            SstSummary {
                file_len: long[0],
                tail_len: short[0],
                footer_crc: short[1],
                data_blocks: short[2],
                entries: long[1],
                tombstones: long[2],
                value_pointers: long[3],
                raw_bytes: long[4],
                filter_bits: long[5],
                smallest: smallest.into(),
                largest: largest.into(),
            }
        })
    }

    fn run() -> impl Strategy<Value = RunMeta> {
        let kind = prop_oneof![Just(RunKind::Ssts), Just(RunKind::Section)];
        (any::<u64>(), 0..=STAGE_MAX, kind, proptest::option::of(key()), 0..=SEQ_MAX, vec(file(), 0..4))
            .prop_map(|(id, stage, kind, clip, newest_seq, files)| RunMeta {
                id: RunId(id),
                stage,
                kind,
                clip,
                newest_seq,
                files,
            })
    }

    fn item() -> impl Strategy<Value = EditItem> {
        let partition = || (0..PARTITIONS_MAX).prop_map(PartitionId);
        let run_id = || any::<u64>().prop_map(RunId);
        prop_oneof![
            (0..=NEXT_ID_MAX).prop_map(EditItem::NextId),
            any::<u64>().prop_map(|id| EditItem::LogFloor(FileId(id))),
            (0..=SEQ_MAX).prop_map(EditItem::FlushedSeq),
            (0..=PARTITIONS_MAX).prop_map(EditItem::NextPartition),
            (partition(), ".{0,20}").prop_map(|(id, name)| EditItem::CreatePartition { id, name }),
            partition().prop_map(|id| EditItem::DropPartition { id }),
            (any::<u64>(), summary())
                .prop_map(|(id, summary)| EditItem::AddFile { file: FileId(id), summary }),
            (partition(), run()).prop_map(|(partition, run)| EditItem::AddRun { partition, run }),
            (partition(), run_id(), 0..=SEQ_MAX, vec(file(), 0..4)).prop_map(
                |(partition, run, newest_seq, files)| EditItem::ExtendRun {
                    partition,
                    run,
                    newest_seq,
                    files
                }
            ),
            (partition(), run_id(), key()).prop_map(|(partition, run, clip)| EditItem::SetClip {
                partition,
                run,
                clip
            }),
            (partition(), run_id(), vec(any::<u64>().prop_map(FileId), 0..5))
                .prop_map(|(partition, run, files)| EditItem::RemoveRunFiles { partition, run, files }),
            (partition(), run_id()).prop_map(|(partition, run)| EditItem::RemoveRun { partition, run }),
            (partition(), run_id(), vec(run_id(), 0..5), any::<bool>()).prop_map(
                |(partition, output, inputs, drops_tombstones)| EditItem::StartJob {
                    partition,
                    job: JobMeta { output, inputs, drops_tombstones }
                }
            ),
            (partition(), run_id()).prop_map(|(partition, output)| EditItem::EndJob { partition, output }),
        ]
    }

    fn encoded(edit: &Edit) -> Vec<u8> {
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        bytes
    }

    /// The worked example of docs/format/manifest.md: a flush.
    fn example() -> Edit {
        let summary = SstSummary {
            file_len: 4411,
            tail_len: 315,
            footer_crc: 0x1234_5678,
            data_blocks: 1,
            entries: 3,
            tombstones: 1,
            value_pointers: 0,
            raw_bytes: 20,
            filter_bits: 512,
            smallest: b"ab".to_vec(),
            largest: b"xy".to_vec(),
        };
        let file = RunFileMeta {
            file: FileId(9),
            smallest: Box::from(*b"ab"),
            largest: Box::from(*b"xy"),
            entries: 3,
            bytes: 4411,
            tombstones: 1,
            tombstones_since: 1000,
            overwrites: 2,
        };
        let run = RunMeta {
            id: RunId(10),
            stage: 1,
            kind: RunKind::Ssts,
            clip: None,
            newest_seq: 300,
            files: vec![file],
        };
        let items = vec![
            EditItem::AddFile { file: FileId(9), summary },
            EditItem::AddRun { partition: PartitionId(1), run },
            EditItem::FlushedSeq(300),
            EditItem::LogFloor(FileId(8)),
            EditItem::NextId(11),
        ];
        Edit { items }
    }

    const EXAMPLE: &[u8] =
        b"\x06\x09\xbb\x22\xbb\x02\xf8\xac\xd1\x91\x01\x01\x03\x01\x00\x14\x80\x04\x02ab\x02xy\
        \x07\x01\x0a\x01\x00\x00\xac\x02\x01\x09\x02ab\x02xy\x03\xbb\x22\x01\xe8\x07\x02\
        \x03\xac\x02\
        \x02\x08\
        \x01\x0b";

    #[test]
    fn stored_bytes_are_fixed() {
        assert_eq!(encoded(&example()).escape_ascii().to_string(), EXAMPLE.escape_ascii().to_string());
        let small = Edit {
            items: vec![
                EditItem::NextPartition(3),
                EditItem::CreatePartition { id: PartitionId(2), name: "users".to_owned() },
                EditItem::DropPartition { id: PartitionId(1) },
                EditItem::ExtendRun {
                    partition: PartitionId(2),
                    run: RunId(5),
                    newest_seq: 9,
                    files: vec![],
                },
                EditItem::SetClip { partition: PartitionId(2), run: RunId(5), clip: Box::from(*b"m") },
                EditItem::RemoveRunFiles { partition: PartitionId(2), run: RunId(5), files: vec![FileId(4)] },
                EditItem::RemoveRun { partition: PartitionId(2), run: RunId(5) },
                EditItem::StartJob {
                    partition: PartitionId(2),
                    job: JobMeta {
                        output: RunId(7),
                        inputs: vec![RunId(6), RunId(5)],
                        drops_tombstones: true,
                    },
                },
                EditItem::EndJob { partition: PartitionId(2), output: RunId(7) },
            ],
        };
        let bytes: &[u8] = b"\x0e\x03\x04\x02\x05users\x05\x01\x08\x02\x05\x09\x00\x09\x02\x05\x01m\x0a\x02\x05\x01\x04\x0b\x02\x05\
            \x0c\x02\x07\x01\x02\x06\x05\x0d\x02\x07";
        assert_eq!(encoded(&small).escape_ascii().to_string(), bytes.escape_ascii().to_string());
    }

    #[test]
    fn what_is_no_edit_is_refused() {
        for (bytes, why) in [
            (&b"\0"[..], "no tag"),
            (b"\x0f\x01", "an unknown tag"),
            (b"\x01", "a tag alone"),
            (b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a number near overflow"),
            (b"\x03\x80\x80\x80\x80\x80\x80\x80\x80\x01", "a sequence number above the limit"),
            (b"\x04\xff\xff\xff\xff\x0f\x01a", "a partition above the limit"),
            (b"\x04\x01\x02\xff\xfe", "a name that is no text"),
            (b"\x07\x01\x0a\x01\x02\x00\x00\x00", "a run of an unknown kind"),
            (b"\x07\x01\x0a\x3d\x00\x00\x00\x00", "a stage above the bottom"),
            (b"\x0a\x01\x05\xff\xff\xff\xff\x0f\x01", "more files than bytes"),
        ] {
            assert_eq!(Edit::decode(bytes), None, "{why}");
        }
    }

    proptest! {
        #[test]
        fn edits_come_back(items in vec(item(), 0..8)) {
            let edit = Edit { items };
            let bytes = encoded(&edit);
            prop_assert_eq!(Edit::decode(&bytes), Some(edit.clone()));
            for len in 0..bytes.len() {
                // A shorter edit may still be one, never the same.
                prop_assert!(Edit::decode(&bytes[..len]).is_none_or(|short| short.items.len() < edit.items.len()));
            }
        }

        #[test]
        fn any_bytes_give_nothing_or_an_edit_that_comes_back(bytes in vec(any::<u8>(), 0..300)) {
            if let Some(edit) = Edit::decode(&bytes) {
                let again = Edit::decode(&encoded(&edit));
                prop_assert_eq!(again.as_ref(), Some(&edit));
            }
        }
    }
}
