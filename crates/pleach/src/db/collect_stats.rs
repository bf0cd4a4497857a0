//! Collection of the statistics that a store and its partitions report.

use std::sync::Weak;

use pleach_table::IndexKind;

use super::inner::Inner;
use crate::stats::{PartitionStats, Stats};
use crate::values::LiveSegment;
use crate::version::SubTree;
use crate::version::edit::RunKind;

impl Inner {
    pub(crate) fn stats(&self) -> Stats {
        let state = self.version_set.state.load_full();
        let mut stats = Stats {
            last_sequence_number: self.version_set.state.visible(),
            operations: self.version_set.state.shown().operations(),
            log_bytes: self.version_set.state.shown().log_bytes(),
            ..Stats::default()
        };
        self.ctx.counters.report(&mut stats);
        for (_, partition) in state.version.partitions() {
            let runs = partition.tree.runs.len() as u64;
            stats.partitions += 1;
            stats.runs += runs;
            stats.runs_max = stats.runs_max.max(runs);
            stats.compactions_running += partition.tree.jobs.len() as u64;
            stats.sst_garbage += partition.tree.sum(|run| run.totals.garbage);
        }
        for file in state.version.live_files() {
            stats.ssts += 1;
            stats.sst_bytes += file.summary.file_len;
            stats.sst_entries += file.summary.entries;
            let (filter_bytes, is_missing) = file.filter_memory();
            let sst = file.sst();
            stats.ssts_learned += u64::from(sst.index_kind() == IndexKind::Learned);
            stats.data_blocks += u64::from(sst.blocks());
            stats.residual_bytes += sst.residual_bytes() as u64;
            stats.index_error_max = stats.index_error_max.max(u64::from(sst.index_error()));
            stats.index_bytes += sst.index_memory() as u64;
            stats.index_filter_bytes += sst.memory() as u64 + filter_bytes;
            stats.filter_bytes += filter_bytes;
            stats.filters_missing += u64::from(is_missing);
        }
        for (home, _) in state.version.values.homes().into_values() {
            stats.value_files += 1;
            stats.value_file_bytes += home.len;
            stats.value_table_bytes += home.memory() as u64;
        }
        stats.value_files_damaged = self.upkeep.damaged_value_files(&state.version) as u64;
        for LiveSegment { live, .. } in state.version.values.iter() {
            stats.values += live.values;
            stats.value_bytes += live.bytes;
        }
        stats.tombstones_passed = self.version_set.state.load().tombstone_spans.passed();
        stats.pinned_bytes = self.version_set.trash.pinned_bytes();
        stats.memtables = state.memtables().count() as u64;
        stats.memtable_bytes = state.memtables().map(|m| m.bytes() as u64).sum::<u64>()
            + self.writes.shares.memtables.kept_bytes() as u64;
        let pinned = self.upkeep.flushed_memtables.lock();
        stats.pinned_memtable_bytes = pinned.iter().filter_map(Weak::upgrade).map(|m| m.bytes() as u64).sum();
        drop(pinned);
        let open_files = self.ctx.env.open_files();
        (stats.open_files, stats.open_files_max) = (open_files.len() as u64, open_files.limit() as u64);
        stats.read_driver = self.ctx.read_driver();
        (stats.lookup_reads, stats.wasted_reads) = self.ctx.loads.counts();
        let cache = self.cache.stats();
        stats.memory_bytes = self.ctx.options.memory_budget() as u64;
        stats.cache_bytes = cache.used;
        stats.cache_capacity_bytes = cache.capacity;
        stats.cache_locked_bytes = cache.locked;
        stats.value_cache_bytes = self.ctx.value_cache.bytes();
        stats.value_reads = self.ctx.value_cache.reads();
        stats.log_was_torn = self.recovery.torn.is_some();
        stats.log_dropped_records = self.recovery.dropped_records;
        stats.log_dropped_bytes = self.recovery.dropped_bytes;
        stats.poisoned = self.ctx.status.poison().map(ToString::to_string);
        stats
    }
}

/// The statistics of a partition.
pub(super) fn tree_stats(tree: &SubTree) -> PartitionStats {
    let mut stages: Vec<_> = tree.runs.iter().map(|run| run.stage).collect();
    stages.dedup();
    PartitionStats {
        entries: tree.sum(|run| run.totals.entries),
        bytes: tree.sum(|run| run.totals.bytes),
        value_bytes: tree.sum(|run| run.totals.value_bytes),
        runs: tree.runs.len() as u64,
        sections: tree.runs.iter().filter(|run| run.kind == RunKind::Section).count() as u64,
        stages: stages.len() as u64,
        clipped: tree.runs.iter().filter(|run| run.clip.is_some()).count() as u64,
    }
}
