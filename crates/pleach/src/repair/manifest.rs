//! The files of a damaged store, and the version that its manifest leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, FileId, Result};
use pleach_log::{
    LOG_SEGMENT, ManifestHint, Salvaged, SeqNo, parse_segment_name, salvage_records, segment_path,
};

use super::report::{Reporter, missing};
use crate::damage::DamagedPlace;
use crate::db::DEFAULT_PARTITION;
use crate::file_names::parse_sst_name;
use crate::file_names::parse_values_name;
use crate::keys::PartitionId;
use crate::manifest::{
    CURRENT, Closed, MANIFEST, manifest_path, parse_manifest_name, read_current, read_manifest,
};
use crate::version::edit::{Edit, EditItem};
use crate::version::{FileTable, Version};

/// The store's files, each with its length, in ascending order of their numbers.
#[derive(Default)]
pub(super) struct Files {
    pub(super) segments: BTreeMap<FileId, u64>,
    pub(super) ssts: BTreeMap<FileId, u64>,
    /// Files of copied or moved values.
    pub(super) values: BTreeMap<FileId, u64>,
    manifests: BTreeMap<FileId, u64>,
}

impl Files {
    /// Length of everything that may hold entries.
    pub(super) fn bytes_of_data(&self) -> u64 {
        self.segments.values().chain(self.ssts.values()).sum()
    }
}

/// The store's version and partitions, as far as its manifests give them.
pub(super) struct Catalog {
    /// Whether the manifest was read whole: then `version` is the truth.
    pub(super) is_exact: bool,
    pub(super) version: Version,
    /// Names of live partitions, as far as they are known.
    pub(super) names: BTreeMap<PartitionId, String>,
    dropped: BTreeSet<PartitionId>,
    /// Partitions below this are live only if they have a name.
    named_below: u32,
    /// The last write before the store was closed, if it was.
    pub(super) closed_seq: Option<SeqNo>,
}

impl Catalog {
    /// Whether the partition was dropped.
    pub(super) fn is_dropped(&self, id: PartitionId) -> bool {
        self.dropped.contains(&id) || (id.get() < self.named_below && !self.names.contains_key(&id))
    }
}

/// Lists the directory. A name of the store's that is no regular file is damage.
pub(super) fn list(env: &dyn Env, dir: &Path, report: &mut Reporter<'_>) -> Result<Files> {
    let mut files = Files::default();
    let (mut has_current, mut is_leveldb) = (false, false);
    for (name, metadata) in env.list_dir(dir).map_err(|e| Error::io("list the directory", dir, e))? {
        has_current |= name == CURRENT;
        is_leveldb |= Path::new(&name).extension().is_some_and(|ending| ending == "ldb");
        let (list, id) = if let Some(id) = parse_segment_name(&name) {
            (&mut files.segments, id)
        } else if let Some(id) = parse_sst_name(&name) {
            (&mut files.ssts, id)
        } else if let Some(id) = parse_values_name(&name) {
            (&mut files.values, id)
        } else if let Some(id) = parse_manifest_name(&name) {
            (&mut files.manifests, id)
        } else {
            continue;
        };
        if metadata.is_file {
            list.insert(id, metadata.len);
        } else {
            report.damage(missing(&dir.join(&name), "this name is the store's, but it is no regular file"));
        }
    }
    // Its log and manifest have the names of ours.
    if is_leveldb && files.ssts.is_empty() {
        let message =
            "this is a store of LevelDB's; repair it with libleveldb, then copy it (docs/leveldb.md)";
        return Err(Error::new(pleach_env::ErrorKind::Unsupported, message).at_path(dir));
    }
    if !has_current && files.segments.is_empty() && files.ssts.is_empty() && files.manifests.is_empty() {
        let message = "there is no store here, and no file of one";
        return Err(Error::new(pleach_env::ErrorKind::NotFound, message).at_path(dir));
    }
    Ok(files)
}

/// Reads the manifest, or what is left of manifests.
pub(super) fn read(env: &Arc<dyn Env>, dir: &Path, files: &Files, report: &mut Reporter<'_>) -> Catalog {
    let (candidates, closed) = match read_current(&**env, dir) {
        Ok(Some(current)) => (vec![current.manifest], current.closed),
        unusable => {
            let path = dir.join(CURRENT);
            report.damage(match unusable {
                Err(error) => DamagedPlace::of(&path, error),
                Ok(_) => missing(&path, "CURRENT is missing"),
            });
            // The newest whole manifest was in force, or holds the same version as the one that was.
            (files.manifests.keys().rev().copied().collect(), None)
        }
    };
    let hint = newest_hint(env, dir, files);
    let mut why = None;
    for id in &candidates {
        match read_exactly(env, dir, *id, hint, closed) {
            Ok(version) => return catalog_of(version, closed),
            Err(error) => {
                report.damage(DamagedPlace::of(&manifest_path(dir, *id), error.clone()));
                why.get_or_insert(error);
            }
        }
    }
    report.guess(why.unwrap_or_else(|| Error::corruption(&dir.join(CURRENT), 0, "there is no manifest")));
    salvage_catalog(env, dir, files, closed)
}

fn read_exactly(
    env: &Arc<dyn Env>,
    dir: &Path,
    id: FileId,
    hint: Option<ManifestHint>,
    closed: Option<Closed>,
) -> Result<Version> {
    let (version, end) = read_manifest(env, dir, id, &mut FileTable::default())?;
    let path = manifest_path(dir, id);
    let cut = |len: u64| {
        Err(Error::corruption(
            &path,
            end,
            format!("the manifest ends here; {len} bytes of it were durable once"),
        ))
    };
    match (hint, closed) {
        (Some(hint), _) if hint.file > id => {
            let message = format!("the log was written under the newer manifest {}", hint.file);
            Err(Error::corruption(&path, 0, message))
        }
        (Some(hint), _) if hint.file == id && hint.len > end => cut(hint.len),
        (_, Some(closed)) if closed.manifest_len > end => cut(closed.manifest_len),
        _ => Ok(version),
    }
}

fn catalog_of(version: Version, closed: Option<Closed>) -> Catalog {
    let names: BTreeMap<_, _> =
        version.partitions().map(|(id, partition)| (id, partition.name.to_string())).collect();
    let named_below = version.next_partition;
    let closed_seq = closed.map(|closed| closed.last_seq);
    Catalog { is_exact: true, version, names, dropped: BTreeSet::new(), named_below, closed_seq }
}

/// The largest hint in the headers of segments.
fn newest_hint(env: &Arc<dyn Env>, dir: &Path, files: &Files) -> Option<ManifestHint> {
    let hints = files.segments.keys().filter_map(|id| {
        let path = segment_path(dir, *id);
        salvage_records(env, &path, &LOG_SEGMENT, *id, &mut |_| Ok(false)).ok()?
    });
    hints.max()
}

/// Names and drops of partitions from every record of a manifest that can be read.
fn salvage_catalog(env: &Arc<dyn Env>, dir: &Path, files: &Files, closed: Option<Closed>) -> Catalog {
    let mut catalog = Catalog {
        is_exact: false,
        version: Version::empty(),
        names: BTreeMap::from([(PartitionId(0), DEFAULT_PARTITION.to_owned())]),
        dropped: BTreeSet::new(),
        named_below: 0,
        closed_seq: closed.map(|closed| closed.last_seq),
    };
    for id in files.manifests.keys() {
        let path: PathBuf = manifest_path(dir, *id);
        // The damage of the manifest has been reported.
        let _damaged = salvage_records(env, &path, &MANIFEST, *id, &mut |found| {
            if let Salvaged::Record(record) = found
                && let Some(edit) = Edit::decode(record.payload)
            {
                catalog.take_edit(&edit);
            }
            Ok(true)
        });
    }
    catalog
}

impl Catalog {
    fn take_edit(&mut self, edit: &Edit) {
        for item in &edit.items {
            match item {
                EditItem::CreatePartition { id, name } => {
                    // A name belongs to the newest partition that has it.
                    self.names.retain(|other, taken| other == id || taken != name);
                    self.names.insert(*id, name.clone());
                }
                EditItem::DropPartition { id } => {
                    self.names.remove(id);
                    self.dropped.insert(*id);
                }
                // It stands in first edits, which list all live partitions.
                EditItem::NextPartition(next) => self.named_below = self.named_below.max(*next),
                _ => {}
            }
        }
    }
}
