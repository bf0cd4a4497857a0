//! Sizes and numbers that are derived from the options of a store.

use super::{IMMUTABLE_MEMTABLES_MAX, Options};
use crate::filter_policy::StageFill;
use crate::shape::Policy;

/// Most compaction threads by default.
const COMPACTION_THREADS_MAX: usize = 4;

/// The default of [`Options::memory`] is a quarter of the process's memory between these bounds:
/// docs/design/0010-memory.md.
const MEMORY_DEFAULT_MIN: usize = 64 << 20;
const MEMORY_DEFAULT_MAX: usize = 1 << 30;
/// The default where the memory of the process is unknown.
const MEMORY_IF_UNKNOWN: usize = 512 << 20;

/// Largest memtable by default. Larger ones make fewer, larger flushes, but cost cache misses and recovery time.
const MEMTABLE_BYTES_MAX: usize = 64 << 20;

/// A compacted partition has at least this many SSTs, unless they would become very small.
const SSTS_MIN: u64 = 64;

impl Options {
    /// Bytes of memory that the store may use; see [`Options::memory`].
    pub(crate) fn memory_budget(&self) -> usize {
        self.memory.unwrap_or_else(|| {
            self.env.memory_limit().map_or(MEMORY_IF_UNKNOWN, |limit| {
                let quarter = usize::try_from(limit / 4).unwrap_or(usize::MAX);
                quarter.clamp(MEMORY_DEFAULT_MIN, MEMORY_DEFAULT_MAX)
            })
        })
    }

    /// Bytes at which the active memtable is full.
    pub(crate) fn memtable_budget(&self) -> usize {
        self.memtable_bytes.unwrap_or((self.memory_budget() / 8).min(MEMTABLE_BYTES_MAX))
    }

    /// Length of a log segment: one memtable's writes, so that a flush frees about one segment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.memtable_budget() as u64
    }

    /// Bytes for cached blocks in a store that has `index_filter_bytes` of indexes and filters, while memtables take all of
    /// their share: what these leave, and at least a quarter.
    pub(crate) fn cache_bytes(&self, index_filter_bytes: u64) -> usize {
        let used = usize::try_from(index_filter_bytes).unwrap_or(usize::MAX);
        let memory = self.memory_budget();
        (memory - self.memtables_share()).saturating_sub(used).max(memory / 4)
    }

    /// Bytes for filters beside `cache_bytes` and `index_bytes`: at least half of what the cache leaves.
    pub(crate) fn filter_bytes_max(&self, cache_bytes: u64, index_bytes: u64) -> u64 {
        let share = ((self.memory_budget() - self.memtables_share()) as u64).saturating_sub(cache_bytes);
        share.saturating_sub(index_bytes).max(share / 2).min(self.thresholds.filter_bytes)
    }

    /// Bytes for memtables of the default size. The excess of larger ones comes on top of the budget.
    pub(crate) fn memtables_share(&self) -> usize {
        (1 + IMMUTABLE_MEMTABLES_MAX) * self.memtable_budget().min(self.memory_budget() / 8)
    }

    /// Number of compaction threads.
    pub(crate) fn compaction_worker_count(&self) -> usize {
        self.compaction_threads.unwrap_or_else(|| self.env.parallelism().min(COMPACTION_THREADS_MAX))
    }

    /// The settings of the pickers, while data is written or while it is quiet.
    pub(crate) fn policy(&self, is_quiet: bool) -> Policy {
        Policy {
            shape: self.shape,
            k: self.runs_per_stage,
            is_quiet,
            memtable_bytes: self.memtable_budget() as u64,
            tombstone_age_max: self.tombstone_age_max.as_secs(),
            conversion: self.conversion,
            space_target: self.space_target,
        }
    }

    /// How the shape fills its stages, which decides about the bits of filters.
    pub(crate) fn stage_fill(&self) -> StageFill {
        StageFill::of(self.shape, self.runs_per_stage)
    }

    /// Size at which an SST of a flush is complete: small, because an input of a merge is removed when it is passed.
    pub(crate) fn flushed_sst_bytes(&self) -> u64 {
        self.sst_bytes.min(self.memtable_budget() as u64 / 8)
    }

    /// Size at which an SST of a compaction is complete, in a partition of `total` bytes. A merged part of an input file
    /// stays on the disk until the whole file is merged, so small stores have small SSTs.
    pub(crate) fn compacted_sst_bytes(&self, total: u64) -> u64 {
        (total / SSTS_MIN).clamp(self.flushed_sst_bytes(), self.sst_bytes)
    }

    /// Slices of a flush smaller than this become sections of a shared file; larger ones get SSTs of their own.
    pub(crate) fn section_bytes_max(&self) -> usize {
        self.memtable_budget() / 16
    }
}
