//! Verification of every live file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pleach_env::{Error, ErrorKind, FileId, Result};
use pleach_table::{ValueKind, key_hash};

use super::inner::Inner;
use crate::damage::{DamagedPlace, LostValues, damage_of};
use crate::file_names::sst_path;
use crate::keys::{PartitionId, split_partition_key};
use crate::scan::{Direction, Merge, PassedValues, RunReads, SeekTo, SourceCursor};
use crate::value_reads::read_value;
use crate::values::{SegmentUses, ValuePointer};
use crate::version::edit::RunKind;
use crate::version::{SstFile, SubTree, Version};

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
    /// Files in which separated values are.
    pub value_files: u64,
    /// Separated values read: all that a reader can see.
    pub values: u64,
    /// Their bytes.
    pub value_bytes: u64,
}

impl VerifyReport {
    /// Bytes of SSTs and values.
    fn all_bytes(&self) -> u64 {
        self.bytes + self.value_bytes
    }
}

/// Reads and checks every live SST and every separated value, up to the first damage.
pub(crate) fn verify(inner: &Inner, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<VerifyReport> {
    let version = Arc::clone(&inner.version_set.state.load().version);
    let progress = &mut until_stopped(progress);
    let report = check_files(inner, &version, progress, &mut |_, _, error| Err(error))?;
    check_values(inner, &version, report, progress, &mut |_, _, error| Err(error))
}

/// Reads and checks every live SST and every separated value. Collects all damage of all files.
pub(crate) fn verify_all(
    inner: &Inner,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(VerifyReport, Vec<DamagedPlace>)> {
    let version = Arc::clone(&inner.version_set.state.load().version);
    let names: HashMap<_, _> =
        version.partitions().map(|(id, partition)| (id, partition.name.to_string())).collect();
    let progress = &mut until_stopped(progress);
    let mut damage = Vec::new();
    let report = check_files(inner, &version, progress, &mut |owner, file, error| {
        let path = sst_path(&inner.ctx.dir, file.id);
        let ends = (file.summary.smallest.as_slice(), file.summary.largest.as_slice());
        damage.extend(damage_of(&inner.ctx.env, &path, (file.id, ends), owner, &names, error));
        Ok(())
    })?;
    let mut lost = LostValues::default();
    let report = check_values(inner, &version, report, progress, &mut |partition, key, error| {
        let (dir, name) = (&inner.ctx.dir, names.get(&partition).cloned());
        if let Some(key) = key {
            lost.add(dir, name, key, error);
        } else {
            let path = error.path().unwrap_or(dir).to_path_buf();
            damage.push(DamagedPlace { partition: name, ..DamagedPlace::of(&path, error) });
        }
        Ok(())
    })?;
    damage.extend(lost.into_places());
    Ok((report, damage))
}

/// Calls `progress` until it returns false, and then returns false without a call.
fn until_stopped(progress: &mut dyn FnMut(u64, u64) -> bool) -> impl FnMut(u64, u64) -> bool {
    let mut goes_on = true;
    move |done, total| {
        goes_on = goes_on && progress(done, total);
        goes_on
    }
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

/// Receives the partition and the key of a value that cannot be read, or no key for references that are wrong.
type LostValue<'d> = dyn FnMut(PartitionId, Option<&[u8]>, Error) -> Result<()> + 'd;

/// Reads every separated value that a reader can see, and proves it. A pointer that a newer entry hides is not followed,
/// because its value may be gone.
fn check_values(
    inner: &Inner,
    version: &Version,
    mut report: VerifyReport,
    progress: &mut dyn FnMut(u64, u64) -> bool,
    lost: &mut LostValue<'_>,
) -> Result<VerifyReport> {
    let total = total_bytes(version);
    if version.values.is_empty() || !progress(report.all_bytes(), total) {
        return Ok(report);
    }
    report.value_files = version.values.homes().len() as u64;
    for (id, partition) in version.partitions() {
        let runs = partition.tree.runs.iter().filter(|run| !run.files.is_empty());
        let sources = runs.map(|run| SourceCursor::over_run(id, Arc::clone(run), RunReads::Stream)).collect();
        let mut merge = Merge::new(sources, Direction::Up);
        merge.count_passed_values();
        let mut step = merge.seek(SeekTo::Start);
        while step.is_ok()
            && let Some(source) = merge.current()
        {
            if source.kind() == ValueKind::ValuePointer
                && let Some(key) = source.key()
            {
                let pointer = source.value();
                match read_value(&inner.ctx, &version.values, (id, key), &pointer) {
                    Ok(_) => {}
                    Err(error)
                        if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io)
                            && !error.is_out_of_files() =>
                    {
                        lost(id, Some(key), error)?;
                    }
                    Err(error) => return Err(error),
                }
                report.values += 1;
                // As the total counts it.
                report.value_bytes += pointer.as_pointer().map_or(0, ValuePointer::bytes);
                if report.values.is_multiple_of(PROGRESS_EVERY) && !progress(report.all_bytes(), total) {
                    return Ok(report);
                }
            }
            step = merge.advance();
        }
        match step {
            Ok(()) => check_references(inner, &partition.tree, &merge.take_passed_values(), &mut |error| {
                lost(id, None, error)
            })?,
            // Damage of SSTs was reported before.
            Err(error) if error.kind() == ErrorKind::Corruption => {}
            Err(error) => return Err(inner.ctx.status.read_failed(error)),
        }
    }
    progress(report.all_bytes(), total);
    Ok(report)
}

/// Checks what the manifest says of the references of each file, by which segments live or die. `found` are those that were
/// read, by file.
fn check_references(
    inner: &Inner,
    tree: &SubTree,
    found: &PassedValues,
    wrong: &mut dyn FnMut(Error) -> Result<()>,
) -> Result<()> {
    let none = SegmentUses::new();
    let mut files = BTreeMap::new();
    for part in tree.runs.iter().flat_map(|run| &run.files) {
        // The first part of a file states what all its parts refer to.
        files.entry(part.meta.file).or_insert(&part.meta.values);
    }
    for (file, stated) in files {
        let found = found.get(&file).unwrap_or(&none);
        let stated: SegmentUses = stated.iter().collect();
        let segments: BTreeSet<_> = found.keys().chain(stated.keys()).collect();
        for segment in segments {
            let use_in = |uses: &SegmentUses| uses.get(segment).copied().unwrap_or_default();
            let (found, stated) = (use_in(found), use_in(&stated));
            if found != stated {
                let message = format!(
                    "{} values, {} bytes, of segment {segment} are referred to, and {} values, {} bytes, according to the \
                     manifest",
                    found.values, found.bytes, stated.values, stated.bytes
                );
                wrong(Error::new(ErrorKind::Corruption, message).at_path(&sst_path(&inner.ctx.dir, file)))?;
            }
        }
    }
    Ok(())
}

/// Values between two calls of the caller's progress (arbitrary).
const PROGRESS_EVERY: u64 = 1024;

#[cfg(test)]
mod tests {
    use pleach_env::SimEnv;

    use super::*;
    use crate::Options;
    use crate::state::State;
    use crate::values::ValueRefs;
    use crate::version::edit::{Edit, EditItem};

    const DEFAULT_PARTITION: PartitionId = PartitionId(0);

    #[test]
    fn references_that_the_manifest_states_wrongly_are_found() {
        let env = SimEnv::new(1);
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(1 << 20).separate_at(100);
        let db = options.open("/store").unwrap();
        for number in 0..100u32 {
            db.default_partition().put(format!("{number:03}"), [7; 200]).unwrap();
        }
        db.compact().unwrap();
        assert_eq!(db.verify().unwrap().values, 100);
        let versions = &db.inner().version_set;
        let state = versions.state.load_full();
        let run =
            state.version.tree(DEFAULT_PARTITION).unwrap().runs.iter().find(|run| !run.files.is_empty());
        let (run, file) = (run.unwrap().id, run.unwrap().files[0].meta.clone());
        let mut stated: SegmentUses = file.values.iter().collect();
        stated.first_entry().unwrap().get_mut().values -= 1;
        let (mut edit, refs) = (Edit::default(), ValueRefs::new(&stated));
        let (partition, file) = (DEFAULT_PARTITION, file.file);
        edit.push(EditItem::ValueRefs { partition, run, file, refs });
        versions.commit_edit(edit, Vec::new(), State::with_version).unwrap();
        let error = db.verify().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert_eq!(error.path(), Some(&*sst_path(&db.inner().ctx.dir, file)));
        let (_, damage) = db.verify_all(&mut |_, _| true).unwrap();
        assert_eq!(damage.len(), 1, "{damage:?}");
    }
}
