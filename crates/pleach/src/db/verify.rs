//! Verification of every live file.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pleach_env::{Error, ErrorKind, FileId, Result};
use pleach_table::{ValueKind, key_hash};

use super::inner::Inner;
use crate::damage::{DamagedPlace, damage_of};
use crate::file_names::sst_path;
use crate::keys::{PartitionId, split_partition_key};
use crate::scan::{Direction, Merge, RunReads, SeekTo, SourceCursor};
use crate::value_reads::read_value;
use crate::values::ValuePointer;
use crate::version::edit::RunKind;
use crate::version::{SstFile, Version};

/// What [`Db::verify`](crate::Db::verify) has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// SSTs read.
    pub ssts: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
    /// Separated values read: all that a reader can see.
    pub values: u64,
}

/// Reads and checks every live SST and every separated value, up to the first damage.
pub(crate) fn verify(inner: &Inner, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<VerifyReport> {
    let version = Arc::clone(&inner.version_set.state.load().version);
    let report = check_files(inner, &version, progress, &mut |_, _, error| Err(error))?;
    check_values(inner, &version, report, progress, &mut |_, error| Err(error))
}

/// Reads and checks every live SST. Collects all damaged blocks of all files.
pub(crate) fn verify_all(
    inner: &Inner,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(VerifyReport, Vec<DamagedPlace>)> {
    let version = Arc::clone(&inner.version_set.state.load().version);
    let names: HashMap<_, _> =
        version.partitions().map(|(id, partition)| (id, partition.name.to_string())).collect();
    let mut damage = Vec::new();
    let report = check_files(inner, &version, progress, &mut |owner, file, error| {
        let path = sst_path(&inner.ctx.dir, file.id);
        let ends = (file.summary.smallest.as_slice(), file.summary.largest.as_slice());
        damage.extend(damage_of(&inner.ctx.env, &path, (file.id, ends), owner, &names, error));
        Ok(())
    })?;
    let mut lost = Vec::new();
    let report = check_values(inner, &version, report, progress, &mut |partition, error| {
        let path = error.path().map_or_else(|| inner.ctx.dir.clone(), std::path::Path::to_path_buf);
        let name = names.get(&partition).cloned();
        lost.push(DamagedPlace { partition: name, entries: Some(1), ..DamagedPlace::of(&path, error) });
        Ok(())
    })?;
    damage.extend(lost);
    Ok((report, damage))
}

/// Receives a damaged file and its partition, which is `None` for a file that sections share.
type Damaged<'d> = dyn FnMut(Option<PartitionId>, &SstFile, Error) -> Result<()> + 'd;

/// Checks the live SSTs one after the other. An error of `damaged` ends it.
fn check_files(
    inner: &Inner,
    version: &Version,
    progress: &mut dyn FnMut(u64, u64) -> bool,
    damaged: &mut Damaged<'_>,
) -> Result<VerifyReport> {
    inner.ctx.status.check_not_closed()?;
    version.check_invariants().map_err(|message| Error::new(ErrorKind::Corruption, message))?;
    let mut files: BTreeMap<FileId, (Option<PartitionId>, Arc<SstFile>)> = BTreeMap::new();
    for (id, partition) in version.partitions() {
        for run in &partition.tree.runs {
            let owner = (run.kind == RunKind::Ssts).then_some(id);
            for file in &run.files {
                files.insert(file.file.id, (owner, Arc::clone(&file.file)));
            }
        }
    }
    let total = total_bytes(version);
    let mut report = VerifyReport::default();
    for (owner, file) in files.into_values() {
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

/// Bytes of all SSTs and of all live values.
fn total_bytes(version: &Version) -> u64 {
    let ssts = version.live_files().iter().map(|file| file.summary.file_len).fold(0, u64::saturating_add);
    version.values.iter().map(|segment| segment.live.bytes).fold(ssts, u64::saturating_add)
}

/// Receives the partition of a value that cannot be read.
type LostValue<'d> = dyn FnMut(PartitionId, Error) -> Result<()> + 'd;

/// Reads every separated value that a reader can see, and proves it. A pointer that a newer entry hides is not followed,
/// because its value may be gone.
fn check_values(
    inner: &Inner,
    version: &Version,
    mut report: VerifyReport,
    progress: &mut dyn FnMut(u64, u64) -> bool,
    lost: &mut LostValue<'_>,
) -> Result<VerifyReport> {
    if version.values.is_empty() {
        return Ok(report);
    }
    let total = total_bytes(version);
    for (id, partition) in version.partitions() {
        let runs = partition.tree.runs.iter().filter(|run| !run.files.is_empty());
        let sources = runs.map(|run| SourceCursor::over_run(id, Arc::clone(run), RunReads::Stream)).collect();
        let mut merge = Merge::new(sources, Direction::Up);
        let mut step = merge.seek(SeekTo::Start);
        while step.is_ok()
            && let Some(source) = merge.current()
        {
            if source.kind() == ValueKind::ValuePointer
                && let Some(key) = source.key()
            {
                let pointer = source.value();
                match read_value(&inner.ctx, &version.values, (id, key), &pointer) {
                    // As the total counts it.
                    Ok(_) => report.bytes += pointer.as_pointer().map_or(0, ValuePointer::bytes),
                    Err(error) if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io) => {
                        lost(id, error)?;
                    }
                    Err(error) => return Err(error),
                }
                report.values += 1;
                if report.values.is_multiple_of(PROGRESS_EVERY) && !progress(report.bytes, total) {
                    return Ok(report);
                }
            }
            step = merge.advance();
        }
        // Damage of SSTs was reported before.
        if let Err(error) = step
            && error.kind() != ErrorKind::Corruption
        {
            return Err(inner.ctx.status.read_failed(error));
        }
    }
    progress(report.bytes, total);
    Ok(report)
}

/// Values between two calls of the caller's progress (arbitrary).
const PROGRESS_EVERY: u64 = 1024;
