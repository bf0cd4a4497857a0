//! Directory of a store: its lock, its file names, the creation of an empty store, and the removal of leftover files.
//!
//! An open inspects the directory before it creates the lock file, so that a refused open leaves no file in a directory that
//! is not a store.
//!
//! # On disk
//! docs/format/directory.md.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, ErrorKind, FileId, FileLock, LockMode, Result};
use pleach_log::{parse_segment_name, segment_path};

use super::inner::Inner;
use super::open::DEFAULT_PARTITION;
use super::recovery::Found;
use crate::file_names::{parse_sst_name, sst_path};
use crate::file_names::{parse_values_name, values_path};
use crate::keys::PartitionId;
use crate::limits::NEXT_ID_MAX;
use crate::manifest::{self, CURRENT_TMP, Layout, Manifest};
use crate::options::Options;
use crate::values::HomeKind;
use crate::version::edit::{Edit, EditItem};
use crate::version::{FileTable, Version};
use crate::version_set::reserve::RESERVE;

/// Name of the lock file. Only the removal of the whole store (`destroy`) removes it.
pub(crate) const LOCK: &str = "LOCK";

/// The number of the first manifest of a store.
const FIRST_MANIFEST: FileId = FileId(1);

/// The store's files in a directory.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) segments: Vec<FileId>,
    pub(super) ssts: Vec<FileId>,
    /// Files of copied or moved values.
    pub(super) values: Vec<FileId>,
    pub(super) manifests: Vec<FileId>,
    has_current_tmp: bool,
    /// A name that is not the store's and not hidden.
    foreign: Option<String>,
}

/// Creates the directory if it is missing, and takes its lock. Before it creates anything, it refuses a directory that may
/// not become a store.
pub(super) fn enter(env: &Arc<dyn Env>, dir: &Path, options: &Options) -> Result<Box<dyn FileLock>> {
    let metadata = env.metadata(dir).map_err(|e| Error::io("look for the directory", dir, e))?;
    match metadata {
        Some(metadata) if metadata.is_file => {
            return Err(Error::invalid(format!("{} is a file; a store is a directory", dir.display())));
        }
        Some(_) => check_before_locking(&**env, dir, options)?,
        None if options.may_create() => {
            env.create_dir_all(dir).map_err(|e| Error::io("create the directory", dir, e))?;
        }
        None => return Err(no_store(dir)),
    }
    let path = dir.join(LOCK);
    let (mode, how) =
        if options.read_only { (LockMode::Shared, "for writing") } else { (LockMode::Exclusive, "already") };
    let action = match mode {
        LockMode::Shared => "lock the store",
        LockMode::Exclusive => "lock the store for writing; `read_only` opens one that may only be read",
    };
    let lock = env.lock_file(&path, mode).map_err(|e| Error::io(action, &path, e))?;
    lock.ok_or_else(|| {
        let message = format!("the store is open {how}, in this process or in another; close it there first");
        Error::new(ErrorKind::Conflict, message).at_path(dir)
    })
}

/// An error if there is a store and there must be none. Requires: the lock. Without it another open may create a store behind
/// this look.
pub(super) fn check_absent(env: &dyn Env, dir: &Path, options: &Options) -> Result<()> {
    if options.may_exist() || !has_current(env, dir)? {
        return Ok(());
    }
    let message = "the store exists, and error_if_exists is set";
    Err(Error::invalid(message).at_path(dir))
}

fn has_current(env: &dyn Env, dir: &Path) -> Result<bool> {
    let path = dir.join(manifest::CURRENT);
    Ok(env.metadata(&path).map_err(|e| Error::io("look for the file", &path, e))?.is_some())
}

/// An error for a directory that is no store and may not become one. Everything else is checked under the lock.
fn check_before_locking(env: &dyn Env, dir: &Path, options: &Options) -> Result<()> {
    if has_current(env, dir)? {
        return Ok(());
    }
    let listing = list(env, dir)?;
    if listing.is_fresh() { listing.check_creatable(dir, options) } else { Ok(()) }
}

pub(super) fn no_store(dir: &Path) -> Error {
    let message =
        "there is no store here, and creating one was not asked for; look at the path, or create it";
    Error::new(ErrorKind::NotFound, message).at_path(dir)
}

pub(super) fn list(env: &dyn Env, dir: &Path) -> Result<Listing> {
    let names = env.list_dir(dir).map_err(|e| Error::io("list the directory", dir, e))?;
    let mut listing = Listing::default();
    for (name, metadata) in names {
        let numbered = [
            (parse_segment_name(&name), &mut listing.segments),
            (parse_sst_name(&name), &mut listing.ssts),
            (parse_values_name(&name), &mut listing.values),
            (manifest::parse_manifest_name(&name), &mut listing.manifests),
        ];
        let numbered = numbered.into_iter().find_map(|(id, list)| id.map(|id| (id, list)));
        let damaged = |message: &str| Err(Error::corruption(&dir.join(&name), 0, message));
        if let Some((id, list)) = numbered {
            if id.0 >= NEXT_ID_MAX {
                return damaged(
                    "no store has counted this far; if the file is not the store's, give it another name",
                );
            }
            list.push(id);
        } else if name == CURRENT_TMP {
            listing.has_current_tmp = true;
        } else {
            let is_known = [LOCK, RESERVE, manifest::CURRENT, "lost+found"].contains(&&*name);
            if !is_known && !name.starts_with('.') {
                listing.foreign.get_or_insert(name);
            }
            continue;
        }
        if !metadata.is_file {
            return damaged("this name is the store's, but it is no regular file");
        }
    }
    listing.segments.sort_unstable();
    Ok(listing)
}

impl Listing {
    /// Whether the creation of a store was never completed here.
    pub(super) fn is_fresh(&self) -> bool {
        self.segments.is_empty()
            && self.ssts.is_empty()
            && self.values.is_empty()
            && self.manifests.iter().all(|id| *id == FIRST_MANIFEST)
    }

    /// An error when a file is missing in which the version has separated values.
    pub(super) fn check_values(&self, dir: &Path, version: &Version) -> Result<()> {
        for (id, (home, _)) in version.values.homes() {
            let list = if home.kind == HomeKind::Segment { &self.segments } else { &self.values };
            if !list.contains(&id) {
                let message = "the manifest names this file of values, but it is missing";
                return Err(Error::corruption(&home.path(dir), 0, message));
            }
        }
        Ok(())
    }

    /// An error when there are files of a store, but no `CURRENT`.
    pub(super) fn check_fresh(&self, dir: &Path) -> Result<()> {
        if self.is_fresh() {
            return Ok(());
        }
        let message = "CURRENT is missing, but the directory holds files of a store; restore CURRENT, or repair the store";
        Err(Error::corruption(&dir.join(manifest::CURRENT), 0, message))
    }

    /// An error when no store may be created in the directory.
    fn check_creatable(&self, dir: &Path, options: &Options) -> Result<()> {
        match &self.foreign {
            _ if !options.may_create() => Err(no_store(dir)),
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!(
                "{} is no store: it holds other files ({name:?}); give an empty or a new directory",
                dir.display()
            ))),
        }
    }

    pub(super) fn last_id(&self) -> u64 {
        self.segments
            .iter()
            .chain(&self.ssts)
            .chain(&self.values)
            .chain(&self.manifests)
            .map(|id| id.0)
            .max()
            .unwrap_or(0)
    }
}

/// Creates an empty store. Starts over if an earlier creation was interrupted.
pub(super) fn create_store(
    env: &dyn Env,
    dir: &Path,
    options: &Options,
    listing: &Listing,
) -> Result<FileId> {
    listing.check_fresh(dir)?;
    listing.check_creatable(dir, options)?;
    for id in &listing.manifests {
        let path = manifest::manifest_path(dir, *id);
        env.remove_file(&path).map_err(|e| Error::io("remove a half-made manifest", &path, e))?;
    }
    let files = FileTable::default();
    let mut edit = Edit::default();
    edit.push(EditItem::NextId(FIRST_MANIFEST.0 + 1));
    edit.push(EditItem::CreatePartition { id: PartitionId(0), name: DEFAULT_PARTITION.to_owned() });
    let applied = Version::empty().apply(&edit, &files, &[]);
    let (version, _no_files) = applied.expect("the first edit fits an empty version");
    Manifest::create(env, dir, (FIRST_MANIFEST, Layout::Plain), &version)?;
    Ok(FIRST_MANIFEST)
}

/// Removes the files that the version does not name, except for log segments: recovery may need the space. Requires:
/// `CURRENT` names the new manifest.
pub(super) fn remove_leftovers(inner: &Inner, found: &Found) {
    let dir = &inner.ctx.dir;
    let version = Arc::clone(&inner.version_set.lock().version);
    let (live, homes) = (version.live_files(), version.values.homes());
    let is_live = |id: &FileId| live.binary_search_by_key(id, |file| file.id).is_ok();
    let values = found.listing.values.iter().filter(|id| !homes.contains_key(id));
    let manifests = found.listing.manifests.iter().chain([&found.manifest_id]);
    let gone = (found.listing.ssts.iter().filter(|id| !is_live(id)).map(|id| sst_path(dir, *id)))
        .chain(values.map(|id| values_path(dir, *id)))
        .chain(manifests.map(|id| manifest::manifest_path(dir, *id)))
        .chain(found.listing.has_current_tmp.then(|| dir.join(CURRENT_TMP)));
    remove_all(inner, gone);
}

/// Removes the segments whose batches are in fresh segments, except for value segments.
pub(super) fn remove_old_segments(inner: &Inner, found: &Found) {
    let homes = inner.version_set.lock().version.values.homes();
    let old = found.listing.segments.iter().filter(|id| !homes.contains_key(id));
    remove_all(inner, old.map(|id| segment_path(&inner.ctx.dir, *id)));
}

/// Removes files, as far as possible. The next open removes the others.
fn remove_all(inner: &Inner, paths: impl Iterator<Item = PathBuf>) {
    for path in paths {
        let _stays_for_the_next_open = inner.ctx.env.remove_file(&path);
    }
}
