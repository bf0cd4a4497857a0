//! Estimates of the size of a key range, from the indexes in memory.
//!
//! A file inside the range counts as a whole, a file that contains a bound by its blocks inside the range. The block that
//! contains a bound counts half, so the error of each run is about one block at each end.

use std::ops::Bound;

use super::SubTree;
use super::edit::RunKind;
use super::run::{Run, RunFile};
use crate::keys::{PartitionId, partition_key};
use crate::stats::SizeEstimate;

/// The bounds of a range. An estimate ignores whether they are inclusive.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
}

impl<'a> Bounds<'a> {
    pub(crate) fn new(lower: Bound<&'a [u8]>, upper: Bound<&'a [u8]>) -> Self {
        let key = |bound| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        };
        Self { lower: key(lower), upper: key(upper) }
    }

    fn is_empty(&self) -> bool {
        matches!((self.lower, self.upper), (Some(lower), Some(upper)) if lower > upper)
    }
}

/// The entries of `tree`, the sub-tree of `partition`, within `bounds`.
pub(crate) fn estimate(tree: &SubTree, partition: PartitionId, bounds: Bounds<'_>) -> SizeEstimate {
    let mut sum = SizeEstimate::default();
    if bounds.is_empty() {
        return sum;
    }
    for run in &tree.runs {
        // Keys below the clip no longer belong to the run.
        let lower = bounds.lower.max(run.clip.as_deref());
        for file in files_within(run, lower, bounds.upper) {
            let (part, of) = blocks_within(run, file, partition, lower, bounds.upper);
            sum.entries += scaled(file.meta.entries, part, of);
            sum.bytes += scaled(file.meta.bytes, part, of);
        }
    }
    sum
}

fn files_within<'r>(run: &'r Run, lower: Option<&[u8]>, upper: Option<&[u8]>) -> &'r [RunFile] {
    let begin = lower.map_or(0, |key| run.first_file_reaching(key));
    let rest = &run.files[begin..];
    let count = upper.map_or(rest.len(), |key| rest.partition_point(|file| &*file.meta.smallest <= key));
    &rest[..count]
}

/// Half blocks of the run's part of a file: those within the bounds, and all.
fn blocks_within(
    run: &Run,
    file: &RunFile,
    partition: PartitionId,
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> (u64, u64) {
    let block = |user_key: &[u8]| {
        let sst = file.file.sst();
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

fn scaled(whole: u64, part: u64, of: u64) -> u64 {
    let share = u128::from(whole) * u128::from(part.min(of)) / u128::from(of);
    u64::try_from(share).unwrap_or(whole)
}
