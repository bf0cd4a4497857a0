//! Estimates of the size of a key range, and of what is above clips, from the indexes in memory.
//!
//! A file inside the range counts as a whole, a file that contains a bound by its blocks inside the range. The block that
//! contains a bound counts half, so the error of each run is about one block at each end.

use super::SubTree;
use super::edit::{RunFileMeta, RunKind};
use super::run::{Run, RunFile, Totals};
use crate::keys::{PartitionId, partition_key};
use crate::stats::SizeEstimate;

/// The entries of `tree`, the sub-tree of `partition`, between two keys. The estimate ignores whether the bounds are inclusive.
pub(crate) fn estimate(
    tree: &SubTree,
    partition: PartitionId,
    (lower, upper): (Option<&[u8]>, Option<&[u8]>),
) -> SizeEstimate {
    let mut sum = SizeEstimate::default();
    if matches!((lower, upper), (Some(lower), Some(upper)) if lower > upper) {
        return sum;
    }
    for run in &tree.runs {
        // Keys below the clip no longer belong to the run.
        let lower = lower.max(run.clip.as_deref());
        for file in files_within(run, lower, upper) {
            let (part, of) = blocks_within(run, file, partition, lower, upper);
            let bytes = file.meta.bytes.saturating_add(file.meta.values.bytes());
            sum.entries = sum.entries.saturating_add(scaled(file.meta.entries, part, of));
            sum.bytes = sum.bytes.saturating_add(scaled(bytes, part, of));
        }
    }
    sum
}

/// About what a sub-tree has above the clips of its runs. A compaction has moved the rest to its output.
#[derive(Default)]
pub(crate) struct AboveClips {
    pub(crate) entries: u64,
    /// Bytes of the entries.
    pub(crate) bytes: u64,
    /// Entries of older runs that these entries shadow.
    pub(crate) overwrites: u64,
    /// Those, and tombstones.
    pub(crate) garbage: u64,
}

impl AboveClips {
    /// Looks at the files of runs with a clip only.
    pub(crate) fn of(tree: &SubTree, partition: PartitionId) -> Self {
        let mut sum = Self::default();
        for run in &tree.runs {
            let Some(clip) = run.clip.as_deref() else {
                let Totals { entries, bytes, overwrites, garbage, .. } = run.totals;
                sum.add([entries, bytes, overwrites, garbage]);
                continue;
            };
            for file in files_within(run, Some(clip), None) {
                let (part, of) = blocks_within(run, file, partition, Some(clip), None);
                let RunFileMeta { entries, bytes, overwrites, tombstones, .. } = file.meta;
                let garbage = tombstones.saturating_add(overwrites);
                sum.add([entries, bytes, overwrites, garbage].map(|whole| scaled(whole, part, of)));
            }
        }
        sum
    }

    fn add(&mut self, [entries, bytes, overwrites, garbage]: [u64; 4]) {
        self.entries = self.entries.saturating_add(entries);
        self.bytes = self.bytes.saturating_add(bytes);
        self.overwrites = self.overwrites.saturating_add(overwrites);
        self.garbage = self.garbage.saturating_add(garbage);
    }
}

fn files_within<'r>(run: &'r Run, lower: Option<&[u8]>, upper: Option<&[u8]>) -> &'r [RunFile] {
    let begin = lower.map_or(0, |key| run.first_file_reaching(key));
    let rest = &run.files[begin..];
    let count = upper.map_or(rest.len(), |key| rest.partition_point(|file| &*file.meta.smallest <= key));
    &rest[..count]
}

/// Half blocks of the run's part of a file: those within the bounds, and all.
pub(super) fn blocks_within(
    run: &Run,
    file: &RunFile,
    partition: PartitionId,
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> (u64, u64) {
    let block = |user_key: &[u8]| {
        let sst = file.sst();
        u64::from(match run.kind {
            RunKind::Section => sst.block_for(&partition_key(partition, user_key)),
            RunKind::Ssts => sst.block_for(user_key),
        })
    };
    let (smallest, largest) = (&*file.meta.smallest, &*file.meta.largest);
    let begin = 2 * block(smallest);
    let end = 2 * (block(largest) + 1);
    let from = lower.filter(|key| *key > smallest).map_or(begin, |key| 2 * block(key) + 1);
    let to = upper.filter(|key| *key <= largest).map_or(end, |key| 2 * block(key) + 1);
    (to.saturating_sub(from), end.saturating_sub(begin).max(1))
}

pub(super) fn scaled(whole: u64, part: u64, of: u64) -> u64 {
    let share = u128::from(whole) * u128::from(part.min(of)) / u128::from(of);
    u64::try_from(share).unwrap_or(whole)
}
