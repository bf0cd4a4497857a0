//! Verification of every live file.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pleach_env::{Error, ErrorKind, FileId, Result};
use pleach_table::key_hash;

use super::inner::Inner;
use crate::damage::{DamagedPlace, damage_of};
use crate::keys::{PartitionId, split_partition_key};
use crate::version::SstFile;
use crate::version::edit::RunKind;
use crate::version_set::sst_path;

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
}

/// Reads and checks every live SST, up to the first damage.
pub(crate) fn verify(inner: &Inner, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<VerifyReport> {
    check_files(inner, progress, &mut |_, _, error| Err(error))
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
    let report = check_files(inner, progress, &mut |owner, file, error| {
        let path = sst_path(&inner.ctx.dir, file.id);
        let ends = (file.summary.smallest.as_slice(), file.summary.largest.as_slice());
        damage.extend(damage_of(&inner.ctx.env, &path, (file.id, ends), owner, &names, error));
        Ok(())
    })?;
    Ok((report, damage))
}

/// Receives a damaged file and its partition, which is `None` for a file that sections share.
type Damaged<'d> = dyn FnMut(Option<PartitionId>, &SstFile, Error) -> Result<()> + 'd;

/// Checks the live SSTs one after the other. An error of `damaged` ends it.
fn check_files(
    inner: &Inner,
    progress: &mut dyn FnMut(u64, u64) -> bool,
    damaged: &mut Damaged<'_>,
) -> Result<VerifyReport> {
    inner.ctx.status.check_not_closed()?;
    let version = Arc::clone(&inner.version_set.state.load().version);
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
    let total = files.values().map(|(_, file)| file.summary.file_len).sum();
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
