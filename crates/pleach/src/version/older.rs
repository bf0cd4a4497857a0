//! The runs older than an output: whether one of them may hold a key.
//!
//! A flush or a compaction asks for each tombstone whether it still shadows anything. Clip, key ranges and filters answer
//! from memory, and their "no" is certain; if all older runs say no, the tombstone is not written. Other keys are sampled for
//! an estimate of garbage (`upkeep::sst_output`).
//!
//! # Why a tombstone can be dropped
//! The invariant: when the output is shown to readers, and ever after, no run that is older than it holds the key.
//! 1. *Nothing is added below.* The runs that are asked are all older ones of a version. Below the inputs, later versions
//!    differ only by compactions of older runs, which move entries and add none. A flush adds newer runs. One job flushes the
//!    memtables, oldest first, so all entries older than a memtable being flushed are in runs.
//! 2. *A clip hides only what its output holds*: one edit sets both, so every entry is in one run of a version. The output of
//!    the asking job holds only entries of its inputs, which are as new as the tombstone or newer.
//! 3. *Inputs are not asked*: the merge skips the older entries of a key.
//! 4. *Snapshots* pin the version and the memtables that they read; they never see the output.
//! 5. *Crashes.* An output counts from the edit that names it. A resumed job asks the version it finds, which below the
//!    inputs differs only as in 1. A recovered memtable holds the tombstone again.
//! 6. *Shared files* have one filter over hashes of partition and key. Another partition's keys can make it say maybe,
//!    never no.
//! 7. *Without a filter in memory* only clip and key ranges say no.
//!
//! # Cost
//! A hash per tombstone, and per older run a search for the file and a cache line of its filter.

use std::sync::Arc;

use pleach_table::key_hash;

use super::edit::RunId;
use super::{Run, SubTree};
use crate::keys::PartitionId;

/// Filters are asked for an estimate only while their false-positive rate, taken together, is at most this (arbitrary): more
/// noise would hide the overwrites.
const ERROR_RATE_MAX: f64 = 0.5;

/// The runs of a partition that are older than an output.
pub(crate) struct OlderRuns {
    partition: PartitionId,
    runs: Vec<Arc<Run>>,
}

impl OlderRuns {
    /// All runs of the sub-tree: they are older than every memtable.
    pub(crate) fn than_memtable(partition: PartitionId, tree: &SubTree) -> Self {
        Self::new(partition, &tree.runs)
    }

    /// The runs older than the runs `inputs`, without `output`, into which these are merged: it holds no key that is yet to
    /// be merged.
    pub(crate) fn than_inputs(
        partition: PartitionId,
        tree: &SubTree,
        inputs: &[RunId],
        output: Option<RunId>,
    ) -> Self {
        let below = tree.runs.iter().rposition(|run| inputs.contains(&run.id)).map_or(0, |last| last + 1);
        let mut older = Self::new(partition, &tree.runs[below..]);
        older.runs.retain(|run| Some(run.id) != output);
        older
    }

    fn new(partition: PartitionId, runs: &[Arc<Run>]) -> Self {
        Self { partition, runs: runs.to_vec() }
    }

    /// The partition.
    pub(crate) fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Whether all keys of the runs are below `user_key`.
    pub(crate) fn all_end_before(&self, user_key: &[u8]) -> bool {
        let last = |run: &Arc<Run>| run.files.last().is_none_or(|file| &*file.meta.largest < user_key);
        self.runs.iter().all(last)
    }

    /// Entries of each run.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().map(|run| run.totals.entries)
    }

    /// Hash of a key of the partition.
    pub(crate) fn hash(&self, user_key: &[u8]) -> u64 {
        key_hash(self.partition.0, user_key)
    }

    /// Whether a run may hold `user_key`, as a value or as a tombstone. A no is certain.
    pub(crate) fn may_hold(&self, user_key: &[u8]) -> bool {
        !self.runs.is_empty() && {
            let hash = self.hash(user_key);
            self.runs.iter().any(|run| run.may_hold(user_key, hash))
        }
    }

    /// Whether a run seems to hold `user_key`, and how likely a yes is if none does. For estimates: neither yes nor no is
    /// certain. If filters are small not all runs are asked; the oldest, which has the most keys, is asked first.
    pub(crate) fn seem_to_hold(&self, user_key: &[u8], hash: u64) -> (bool, f64) {
        let (mut is_seen, mut all_deny) = (false, 1.0);
        for (filter, error_rate) in self.runs.iter().rev().filter_map(|run| run.filter_for(user_key)) {
            if 1.0 - all_deny * (1.0 - error_rate) <= ERROR_RATE_MAX {
                is_seen |= filter.may_contain(hash);
                all_deny *= 1.0 - error_rate;
            }
        }
        (is_seen, 1.0 - all_deny)
    }
}
