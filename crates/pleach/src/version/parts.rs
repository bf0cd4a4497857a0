//! Parts of files: a run may have only some key ranges of a file.
//!
//! A range compaction takes a key range out of the runs above the bottom. A file that sticks out of the range is not written
//! again: the run keeps what lies outside as one or two parts of it. Each part is an element of the run's list with a key
//! range of its own.
//!
//! # Invariants
//! 1. *Ends are keys*: the smallest and the largest key of a part are keys in the file. So cursors find the ends of a part
//!    by comparison, and read no block beyond them.
//! 2. *One run*: all parts of a file that belong to a partition are in one run. Only whole files are moved to another.
//! 3. *One reference*: the first part of a file states the separated values that all its parts refer to.
//! 4. *Counts are estimates*: entries and bytes of a part follow from its share of the file's blocks.
//!
//! # Origin
//! Virtual SSTs, as Pebble has them.

use std::ops::Range;

use pleach_env::FileId;

use super::edit::{RunFileMeta, RunKind};
use super::size::{blocks_within, scaled};
use super::{Run, RunFile};
use crate::keys::PartitionId;
use crate::values::ValueRefs;

/// Which ends of a part may lie inside of its file: a cursor must not go on to the file's entries beyond them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cuts {
    pub(crate) low: bool,
    pub(crate) high: bool,
}

impl Run {
    /// The cuts of file `at`. A section always has neighbours.
    pub(crate) fn cuts(&self, at: usize) -> Cuts {
        let RunFile { file, meta, .. } = &self.files[at];
        let is_section = self.kind == RunKind::Section;
        Cuts {
            low: is_section || *meta.smallest != file.summary.smallest[..],
            high: is_section || *meta.largest != file.summary.largest[..],
        }
    }

    /// Whether file `at` belongs to the run as a whole.
    pub(crate) fn has_whole(&self, at: usize) -> bool {
        let Cuts { low, high } = self.cuts(at);
        !low && !high
    }

    /// All parts of a file that the run has.
    pub(crate) fn parts_of(&self, file: FileId) -> impl Iterator<Item = &RunFile> {
        self.files.iter().filter(move |part| part.meta.file == file)
    }

    /// The smallest range of elements that has those from `first` to `last`, and all parts of every file in it.
    pub(crate) fn with_all_parts(&self, mut range: Range<usize>) -> Range<usize> {
        let mut seen = range.start..range.start;
        while seen != range {
            seen = range.clone();
            for file in self.files[seen.clone()].iter().map(|part| part.meta.file) {
                let first = self.files.iter().position(|part| part.meta.file == file);
                let last = self.files.iter().rposition(|part| part.meta.file == file);
                range.start = range.start.min(first.unwrap_or(range.start));
                range.end = range.end.max(last.map_or(0, |last| last + 1));
            }
        }
        range
    }

    /// The description of the entries from `smallest` to `largest`, two keys of the part. It refers to no values.
    pub(crate) fn part_meta(
        &self,
        part: &RunFile,
        partition: PartitionId,
        (smallest, largest): (&[u8], &[u8]),
    ) -> RunFileMeta {
        let (share, of) = blocks_within(self, part, partition, Some(smallest), Some(largest));
        let meta = &part.meta;
        // A part has an entry; and if the file has tombstones, each part may have some.
        let at_least_one = |whole: u64| scaled(whole, share, of).max(1).min(whole);
        RunFileMeta {
            file: meta.file,
            smallest: smallest.into(),
            largest: largest.into(),
            entries: at_least_one(meta.entries),
            bytes: at_least_one(meta.bytes),
            tombstones: at_least_one(meta.tombstones),
            tombstones_since: meta.tombstones_since,
            overwrites: scaled(meta.overwrites, share, of),
            values: ValueRefs::default(),
        }
    }
}

impl RunFile {
    /// The same file with another part of it.
    pub(crate) fn with_part(&self, meta: RunFileMeta) -> Self {
        let mut part = self.clone();
        part.meta = meta;
        part
    }
}
