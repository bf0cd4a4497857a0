//! The bytes of an edit: its items one after the other, each a tag and then its fields.
//!
//! Tables list the fields in the order of the bytes. Each type of field has one encoding: most numbers are varints; a key,
//! a name or a list is its length and then its elements.
//!
//! # On disk
//! Layout: docs/format/manifest.md. Tags and run kinds are never renumbered.

use pleach_coding::{Decoder, put_bytes, put_varint};
use pleach_env::FileId;
use pleach_log::SEQ_MAX;
use pleach_table::SstSummary;

use super::{EditItem, JobMeta, RunFileMeta, RunId, RunKind, RunMeta};
use crate::keys::PartitionId;
use crate::limits::{
    KEY_LEN_MAX, NEXT_ID_MAX, PARTITION_KEY_LEN_MAX, PARTITION_NAME_LEN_MAX, PARTITIONS_MAX, STAGE_MAX,
};
use crate::values::{HomeKind, SegmentUse, ValueRefs};

/// A part of an edit that has bytes.
pub(super) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// Takes the field from the front of `rest`; `None` when its bytes are malformed or it exceeds a limit.
    fn take(rest: &mut Decoder<'_>) -> Option<Self>;
}

/// A struct: its fields in the order of the bytes, a field without bytes, and what must hold of them.
macro_rules! record {
    ($type:ident { $($field:ident),* } $(and $apart:ident)? if $is_valid:expr) => {
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(rest: &mut Decoder<'_>) -> Option<Self> {
                let record = Self { $($field: Field::take(rest)?,)* $($apart: Default::default())? };
                let is_valid: fn(&Self) -> bool = $is_valid;
                is_valid(&record).then_some(record)
            }
        }
    };
}

record!(RunMeta { id, stage, kind, clip, newest_seq, files } if |run| {
    run.stage <= STAGE_MAX
        && run.newest_seq <= SEQ_MAX
        && run.clip.as_ref().is_none_or(|clip| clip.len() <= CLIP_LEN_MAX)
});
record!(
    RunFileMeta { file, smallest, largest, entries, bytes, tombstones, tombstones_since, overwrites } and values
    if |file| [&file.smallest, &file.largest].iter().all(|key| key.len() <= KEY_LEN_MAX)
);
record!(JobMeta { output, drops_tombstones, inputs } if |_| true);
record!(
    SstSummary {
        file_len, tail_len, footer_crc, data_blocks, entries, tombstones, value_pointers, raw_bytes, filter_bits,
        smallest, largest
    }
    if |sst| sst.smallest.len().max(sst.largest.len()) <= PARTITION_KEY_LEN_MAX
);

/// The items: the tag of each, and its fields in the order of the bytes.
macro_rules! items {
    ($($tag:literal $item:ident $(($single:ident))? $({ $($field:ident),* })?;)*) => {
        impl Field for EditItem {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$item $(($single))? $({ $($field),* })? => {
                        out.push($tag);
                        $($single.put(out);)?
                        $($($field.put(out);)*)?
                    })*
                }
            }

            fn take(rest: &mut Decoder<'_>) -> Option<Self> {
                let item = match rest.u8()? {
                    $($tag => {
                        $(let $single = Field::take(rest)?;)?
                        $($(let $field = Field::take(rest)?;)*)?
                        Self::$item $(($single))? $({ $($field),* })?
                    })*
                    _ => return None,
                };
                item.is_valid().then_some(item)
            }
        }
    };
}

items! {
    1 NextId(id);
    2 LogFloor(segment);
    3 FlushedSeq(seq);
    4 CreatePartition { id, name };
    5 DropPartition { id };
    6 AddFile { file, summary };
    7 AddRun { partition, run };
    8 ExtendRun { partition, run, newest_seq, files };
    9 SetClip { partition, run, clip };
    10 RemoveRunFiles { partition, run, files };
    11 RemoveRun { partition, run };
    12 StartJob { partition, job };
    13 EndJob { partition, output };
    14 NextPartition(id);
    15 ValueHome { segment, file, kind, len };
    16 ValueRefs { partition, run, file, refs };
}

/// A clip may be the successor of a key.
const CLIP_LEN_MAX: usize = KEY_LEN_MAX + 1;

impl EditItem {
    fn is_valid(&self) -> bool {
        match self {
            Self::NextId(id) => *id <= NEXT_ID_MAX,
            Self::FlushedSeq(seq) | Self::ExtendRun { newest_seq: seq, .. } => *seq <= SEQ_MAX,
            Self::NextPartition(id) => *id <= PARTITIONS_MAX,
            Self::CreatePartition { name, .. } => name.len() <= PARTITION_NAME_LEN_MAX,
            Self::SetClip { clip, .. } => clip.len() <= CLIP_LEN_MAX,
            Self::ValueHome { segment, file, len, .. } => {
                segment.0 < NEXT_ID_MAX && file.0 < NEXT_ID_MAX && *len <= u32::MAX.into()
            }
            _ => true,
        }
    }
}

/// Types of fields: how one is put, and how it is taken.
macro_rules! fields {
    ($($type:ty: |$value:ident, $out:ident| $put:expr, |$rest:ident| $take:expr;)*) => {
        $(impl Field for $type {
            fn put(&self, $out: &mut Vec<u8>) {
                let $value = self;
                $put;
            }

            fn take($rest: &mut Decoder<'_>) -> Option<Self> {
                $take
            }
        })*
    };
}

fields! {
    u8: |number, out| out.push(*number), |rest| rest.u8();
    u32: |number, out| put_varint(out, (*number).into()), |rest| rest.u32();
    u64: |number, out| put_varint(out, *number), |rest| rest.varint();
    bool: |is_set, out| put_varint(out, (*is_set).into()), |rest| Some(rest.varint()? != 0);
    FileId: |id, out| put_varint(out, id.0), |rest| rest.varint().map(Self);
    RunId: |id, out| put_varint(out, id.0), |rest| rest.varint().map(Self);
    PartitionId: |id, out| id.0.put(out), |rest| rest.u32().filter(|id| *id < PARTITIONS_MAX).map(Self);
    RunKind: |kind, out| out.push(*kind as u8),
        |rest| [Self::Ssts, Self::Section].get(usize::from(rest.u8()?)).copied();
    HomeKind: |kind, out| out.push(*kind as u8), |rest| Self::from_number(rest.u8()?);
    Box<[u8]>: |key, out| put_bytes(out, key), |rest| rest.bytes().map(Box::from);
    // A clip. None is empty, so no bytes stand for none.
    Option<Box<[u8]>>: |clip, out| put_bytes(out, clip.as_deref().unwrap_or_default()),
        |rest| rest.bytes().map(|clip| (!clip.is_empty()).then(|| clip.into()));
    String: |name, out| put_bytes(out, name.as_bytes()),
        |rest| std::str::from_utf8(rest.bytes()?).ok().map(str::to_owned);
}

impl Field for ValueRefs {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.iter().count() as u64);
        for (segment, SegmentUse { values, bytes }) in self.iter() {
            segment.put(out);
            values.put(out);
            bytes.put(out);
        }
    }

    /// Segments ascend, and each is referred to.
    fn take(rest: &mut Decoder<'_>) -> Option<Self> {
        let count = rest.usize()?;
        // Each element takes three bytes at least, so a forged count takes no memory.
        (count <= rest.0.len() / 3).then_some(())?;
        let mut uses: Vec<(FileId, SegmentUse)> = Vec::with_capacity(count);
        for _ in 0..count {
            let (segment, values, bytes) = (FileId::take(rest)?, rest.varint()?, rest.varint()?);
            let is_next = uses.last().is_none_or(|(last, _)| *last < segment);
            // Sums over files stay far below the limits of their types.
            (is_next && values > 0 && values.max(bytes) < 1 << 48).then_some(())?;
            uses.push((segment, SegmentUse { values, bytes }));
        }
        Some(Self::from_sorted(uses))
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for element in self {
            element.put(out);
        }
    }

    fn take(rest: &mut Decoder<'_>) -> Option<Self> {
        let count = rest.usize()?;
        // Each element takes a byte at least, so a forged count cannot make the vector grow past the input.
        (count <= rest.0.len()).then_some(())?;
        (0..count).map(|_| T::take(rest)).collect()
    }
}
