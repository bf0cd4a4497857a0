//! Edits: what is encoded is decoded, and any bytes give an error or an edit.

use proptest::collection::vec;
use proptest::prelude::*;

use pleach_log::SEQ_MAX;

use super::*;
use crate::limits::{NEXT_ID_MAX, PARTITIONS_MAX, STAGE_MAX};
use crate::values::{SegmentUse, SegmentUses};

fn key() -> impl Strategy<Value = Box<[u8]>> {
    vec(any::<u8>(), 1..20).prop_map(Vec::into_boxed_slice)
}

fn file() -> impl Strategy<Value = RunFileMeta> {
    (any::<u64>(), key(), key(), any::<[u64; 5]>()).prop_map(|(id, smallest, largest, numbers)| {
        let [entries, bytes, tombstones, tombstones_since, overwrites] = numbers;
        let file = FileId(id);
        RunFileMeta {
            file,
            smallest,
            largest,
            entries,
            bytes,
            tombstones,
            tombstones_since,
            overwrites,
            values: ValueRefs::default(),
        }
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
    (any::<u64>(), 0..=STAGE_MAX, kind, proptest::option::of(key()), 0..=SEQ_MAX, vec(file(), 0..4)).prop_map(
        |(id, stage, kind, clip, newest_seq, files)| RunMeta {
            id: RunId(id),
            stage,
            kind,
            clip,
            newest_seq,
            files,
        },
    )
}

fn uses() -> impl Strategy<Value = SegmentUses> {
    let used = (1..1u64 << 48, 0..1u64 << 48).prop_map(|(values, bytes)| SegmentUse { values, bytes });
    proptest::collection::btree_map(any::<u64>().prop_map(FileId), used, 0..5)
}

fn home_kind() -> impl Strategy<Value = HomeKind> {
    use HomeKind::{Gone, Moved, Segment, Values};
    proptest::sample::select(vec![Segment, Values, Moved, Gone])
}

fn value_item() -> impl Strategy<Value = EditItem> {
    let id = || (0..NEXT_ID_MAX).prop_map(FileId);
    let partition = (0..PARTITIONS_MAX).prop_map(PartitionId);
    prop_oneof![
        (id(), id(), home_kind(), 0..=u64::from(u32::MAX))
            .prop_map(|(segment, file, kind, len)| EditItem::ValueHome { segment, file, kind, len }),
        (partition, any::<u64>(), any::<u64>(), uses()).prop_map(|(partition, run, file, uses)| {
            EditItem::ValueRefs {
                partition,
                run: RunId(run),
                file: FileId(file),
                refs: ValueRefs::new(&uses),
            }
        }),
    ]
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
        (any::<u64>(), summary()).prop_map(|(id, summary)| EditItem::AddFile { file: FileId(id), summary }),
        (partition(), run()).prop_map(|(partition, run)| EditItem::AddRun { partition, run }),
        (partition(), run_id(), 0..=SEQ_MAX, vec(file(), 0..4)).prop_map(
            |(partition, run, newest_seq, files)| EditItem::ExtendRun { partition, run, newest_seq, files }
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
        value_item(),
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
        values: ValueRefs::default(),
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
            EditItem::ExtendRun { partition: PartitionId(2), run: RunId(5), newest_seq: 9, files: vec![] },
            EditItem::SetClip { partition: PartitionId(2), run: RunId(5), clip: Box::from(*b"m") },
            EditItem::RemoveRunFiles { partition: PartitionId(2), run: RunId(5), files: vec![FileId(4)] },
            EditItem::RemoveRun { partition: PartitionId(2), run: RunId(5) },
            EditItem::StartJob {
                partition: PartitionId(2),
                job: JobMeta { output: RunId(7), inputs: vec![RunId(6), RunId(5)], drops_tombstones: true },
            },
            EditItem::EndJob { partition: PartitionId(2), output: RunId(7) },
        ],
    };
    let bytes: &[u8] = b"\x0e\x03\x04\x02\x05users\x05\x01\x08\x02\x05\x09\x00\x09\x02\x05\x01m\x0a\x02\x05\x01\x04\x0b\x02\x05\
        \x0c\x02\x07\x01\x02\x06\x05\x0d\x02\x07";
    assert_eq!(encoded(&small).escape_ascii().to_string(), bytes.escape_ascii().to_string());
}

fn refs(uses: &[(u64, u64, u64)]) -> ValueRefs {
    let used = |&(id, values, bytes)| (FileId(id), SegmentUse { values, bytes });
    ValueRefs::from_sorted(uses.iter().map(used).collect())
}

/// The worked examples of docs/format/manifest.md with separated values.
#[test]
fn stored_bytes_of_value_items_are_fixed() {
    let home = |id, kind, len| EditItem::ValueHome { segment: FileId(id), file: FileId(id), kind, len };
    let refers =
        |refs| EditItem::ValueRefs { partition: PartitionId(1), run: RunId(10), file: FileId(9), refs };
    let items = vec![
        home(7, HomeKind::Segment, 3000),
        home(12, HomeKind::Values, 75),
        refers(refs(&[(7, 2, 1952), (12, 1, 11)])),
    ];
    let bytes = encoded(&Edit { items });
    assert_eq!(
        bytes,
        b"\x0f\x07\x07\0\xb8\x17\x0f\x0c\x0c\x01K\x10\x01\x0a\x09\x02\x07\x02\xa0\x0f\x0c\x01\x0b"
    );
    assert_eq!(encoded(&Edit { items: vec![refers(refs(&[]))] }), b"\x10\x01\x0a\x09\0");
}

#[test]
fn an_added_file_is_followed_by_its_references() {
    let mut file_meta = match &example().items[1] {
        EditItem::AddRun { run, .. } => run.files[0].clone(),
        other => panic!("{other:?}"),
    };
    file_meta.values = refs(&[(7, 2, 1952)]);
    let (partition, run) = (PartitionId(1), RunId(10));
    let edit = Edit {
        items: vec![EditItem::ExtendRun { partition, run, newest_seq: 300, files: vec![file_meta.clone()] }],
    };
    let decoded = Edit::decode(&encoded(&edit)).expect("it is an edit");
    let expected = EditItem::ValueRefs { partition, run, file: FileId(9), refs: file_meta.values.clone() };
    assert_eq!(decoded.items[1..], [expected]);
}

#[test]
fn what_is_no_edit_is_refused() {
    for (bytes, why) in [
        (&b"\0"[..], "no tag"),
        (b"\x11\x01", "an unknown tag"),
        (b"\x0f\x07\x07\x04\x01", "an unknown kind of home"),
        (b"\x0f\x07\x07\0\x80\x80\x80\x80\x10", "a home of 4 GiB"),
        (b"\x0f\x80\x80\x80\x80\x80\x80\x80\x80\x10\x07\0\x01", "a segment above the limit"),
        (b"\x10\x01\x0a\x09\x02\x07\x01\x08\x07\x01\x08", "a segment twice"),
        (b"\x10\x01\x0a\x09\x02\x08\x01\x08\x07\x01\x08", "segments that descend"),
        (b"\x10\x01\x0a\x09\x01\x07\0\x08", "a segment without values"),
        (b"\x10\x01\x0a\x09\x01\x07\x01\x80\x80\x80\x80\x80\x80\x40", "bytes of 2^48"),
        (b"\x10\x01\x0a\x09\xff\xff\xff\xff\x0f\x07\x01\x08", "more segments than bytes"),
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
    /// What is subtracted comes back by addition, and more than there is cannot be subtracted.
    #[test]
    fn references_are_subtracted_exactly(all in uses(), picks in vec((any::<bool>(), any::<u64>(), any::<u64>()), 5)) {
        let mut gone = SegmentUses::new();
        for ((id, used), (is_whole, values, bytes)) in all.iter().zip(picks) {
            let part = SegmentUse { values: values % used.values, bytes: bytes % (used.bytes + 1) };
            gone.insert(*id, if is_whole { *used } else { part });
        }
        let left = ValueRefs::new(&all).without(&gone).unwrap();
        for (id, used) in &all {
            let left = left.iter().find(|(other, _)| other == id).map_or_else(SegmentUse::default, |(_, left)| left);
            let gone = gone[id];
            prop_assert_eq!(left.values + gone.values, used.values);
            prop_assert!(left.values == 0 || left.bytes + gone.bytes == used.bytes);
        }
        prop_assert!(left.iter().all(|(_, left)| left.values > 0));
        for (id, used) in &all {
            let more = SegmentUses::from([(*id, SegmentUse { values: used.values + 1, bytes: 0 })]);
            prop_assert!(ValueRefs::new(&all).without(&more).is_err());
        }
    }

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
