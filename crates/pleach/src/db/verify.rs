//! Verification of every live file, and statistics.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use pleach_env::{Error, ErrorKind, FileId, Result};
use pleach_table::key_hash;

use super::inner::Inner;
use crate::damage::{DamagedPlace, damage_of};
use crate::keys::{PartitionId, split_partition_key};
use crate::stats::{PartitionStats, Stats};
use crate::version::edit::RunKind;
use crate::version::{Run, SstFile, SubTree};
use crate::version_set::sst_path;

/// The amount that [`Db::verify`](crate::Db::verify) has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// SSTs read.
    pub ssts: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
}

/// Reads and checks every live SST. The first damage ends it.
pub(crate) fn verify(inner: &Inner, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<VerifyReport> {
    check_files(inner, progress, &mut |_, _, error| Err(error))
}

/// The same, but it collects all damage, with every damaged block of each file.
pub(crate) fn verify_all(
    inner: &Inner,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(VerifyReport, Vec<DamagedPlace>)> {
    let version = Arc::clone(&inner.version_set.state.load().version);
    let names: HashMap<_, _> =
        version.partitions().map(|(id, partition)| (id, partition.name.to_string())).collect();
    let mut damage = Vec::new();
    let report = check_files(inner, progress, &mut |owner, file, error| {
        let path = sst_path(&inner.ctx.dir, file.id);
        let ends = (file.summary.smallest.as_slice(), file.summary.largest.as_slice());
        damage.extend(damage_of(&inner.ctx.env, &path, (file.id, ends), owner, &names, error));
        Ok(())
    })?;
    Ok((report, damage))
}

/// Called with a damaged file and its owner, which is `None` for a file that sections share.
type Damaged<'d> = dyn FnMut(Option<PartitionId>, &SstFile, Error) -> Result<()> + 'd;

/// Checks the live SSTs one after the other; `damaged` decides whether an error ends it.
fn check_files(
    inner: &Inner,
    progress: &mut dyn FnMut(u64, u64) -> bool,
    damaged: &mut Damaged<'_>,
) -> Result<VerifyReport> {
    inner.ctx.status.check_not_closed()?;
    let version = Arc::clone(&inner.version_set.state.load().version);
    version.check_invariants().map_err(|message| Error::new(ErrorKind::Corruption, message))?;
    let mut owners: HashMap<FileId, (Option<PartitionId>, Arc<SstFile>)> = HashMap::new();
    for (id, partition) in version.partitions() {
        for run in &partition.tree.runs {
            let owner = (run.kind == RunKind::Ssts).then_some(id);
            for file in &run.files {
                owners.insert(file.file.id, (owner, Arc::clone(&file.file)));
            }
        }
    }
    let mut files: Vec<_> = owners.into_values().collect();
    files.sort_unstable_by_key(|(_, file)| file.id);
    let total = files.iter().map(|(_, file)| file.summary.file_len).sum();
    let mut report = VerifyReport::default();
    for (owner, file) in files {
        let checked = file
            .sst()
            .verify(|key| match owner {
                Some(partition) => key_hash(partition.get(), key),
                None => split_partition_key(key)
                    .map_or(0, |(partition, user_key)| key_hash(partition.get(), user_key)),
            })
            .map_err(|error| inner.ctx.status.read_failed(error));
        if let Err(error) = checked {
            let is_local = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io);
            if !is_local || error.is_out_of_files() {
                return Err(error);
            }
            damaged(owner, &file, error)?;
        }
        report.ssts += 1;
        report.bytes += file.summary.file_len;
        report.entries += file.summary.entries;
        if !progress(report.bytes, total) {
            break;
        }
    }
    Ok(report)
}

impl Inner {
    pub(crate) fn stats(&self) -> Stats {
        let state = self.version_set.state.load_full();
        let mut stats = Stats { last_sequence_number: self.version_set.state.visible(), ..Stats::default() };
        self.ctx.counters.report(&mut stats);
        for (_, partition) in state.version.partitions() {
            let runs = partition.tree.runs.len() as u64;
            stats.partitions += 1;
            stats.runs += runs;
            stats.runs_max = stats.runs_max.max(runs);
            stats.compactions_running += partition.tree.jobs.len() as u64;
            stats.sst_garbage += partition.tree.sum(Run::garbage);
        }
        for file in state.version.live_files() {
            stats.ssts += 1;
            stats.sst_bytes += file.summary.file_len;
            stats.sst_entries += file.summary.entries;
            let (filter_bytes, is_missing) = file.filter_memory();
            stats.index_filter_bytes += file.sst().memory() as u64 + filter_bytes;
            stats.filter_bytes += filter_bytes;
            stats.filters_missing += u64::from(is_missing);
        }
        stats.tombstones_passed = self.version_set.state.load().tombstone_spans.passed();
        stats.pinned_bytes = self.version_set.trash.pinned_bytes();
        stats.memtables = state.memtables().count() as u64;
        stats.memtable_bytes = state.memtables().map(|m| m.bytes() as u64).sum();
        let pinned = self.upkeep.flushed_memtables.lock();
        stats.pinned_memtable_bytes = pinned.iter().filter_map(Weak::upgrade).map(|m| m.bytes() as u64).sum();
        drop(pinned);
        let open_files = self.ctx.env.open_files();
        (stats.open_files, stats.open_files_max) = (open_files.len() as u64, open_files.limit() as u64);
        let cache = self.cache.stats();
        stats.cache_bytes = cache.used;
        stats.cache_capacity_bytes = cache.capacity;
        stats.log_was_torn = self.recovery.torn.is_some();
        stats.log_dropped_records = self.recovery.dropped_records;
        stats.log_dropped_bytes = self.recovery.dropped_bytes;
        stats.poisoned = self.ctx.status.poison().map(ToString::to_string);
        stats
    }

    pub(crate) fn partition_stats(&self, id: PartitionId) -> Option<PartitionStats> {
        let state = self.version_set.state.load();
        state.version.tree(id).map(|tree| tree_stats(tree))
    }
}

fn tree_stats(tree: &SubTree) -> PartitionStats {
    let mut stages: Vec<_> = tree.runs.iter().map(|run| run.stage).collect();
    stages.dedup();
    PartitionStats {
        entries: tree.sum(Run::entries),
        bytes: tree.sum(Run::bytes),
        runs: tree.runs.len() as u64,
        sections: tree.runs.iter().filter(|run| run.kind == RunKind::Section).count() as u64,
        stages: stages.len() as u64,
        clipped: tree.runs.iter().filter(|run| run.clip.is_some()).count() as u64,
    }
}
