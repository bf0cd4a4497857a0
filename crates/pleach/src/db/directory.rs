//! A store's directory: its lock, its names, the creation of an empty store, and the removal of leftover files.
//!
//! An open looks at the directory before it locks it, so that a refused open leaves nothing in a stranger's directory.
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
use crate::keys::PartitionId;
use crate::limits::NEXT_ID_MAX;
use crate::manifest::{self, CURRENT_TMP, Manifest};
use crate::options::Options;
use crate::version::edit::{Edit, EditItem};
use crate::version::{FileTable, Version};
use crate::version_set::reserve::RESERVE;
use crate::version_set::{parse_sst_name, sst_path};

/// Name of the lock file. It is never removed.
pub(crate) const LOCK: &str = "LOCK";

/// The number of the first manifest of a store.
const FIRST_MANIFEST: FileId = FileId(1);

/// The files of ours in a directory.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) segments: Vec<FileId>,
    ssts: Vec<FileId>,
    manifests: Vec<FileId>,
    has_current_tmp: bool,
    /// A name that is not ours and not hidden.
    foreign: Option<String>,
}

/// Makes sure that the directory is there, and takes its lock. Refuses, before it creates anything, a directory that is
/// not to become a store.
pub(super) fn enter(env: &Arc<dyn Env>, dir: &Path, options: &Options) -> Result<Box<dyn FileLock>> {
    let metadata = env.metadata(dir).map_err(|e| Error::io("look for the directory", dir, e))?;
    match metadata {
        Some(metadata) if metadata.is_file => {
            return Err(Error::invalid(format!("{} is a file; a store is a directory", dir.display())));
        }
        Some(_) => look_before_locking(&**env, dir, options)?,
        None if options.may_create() => {
            env.create_dir_all(dir).map_err(|e| Error::io("create the directory", dir, e))?;
        }
        None => return Err(no_store(dir)),
    }
    let path = dir.join(LOCK);
    let (mode, why_not) = if options.read_only {
        (
            LockMode::Shared,
            "the store is open for writing, in this process or in another; close it there first",
        )
    } else {
        (
            LockMode::Exclusive,
            "the store is open already, in this process or in another; close it there first",
        )
    };
    match env.lock_file(&path, mode).map_err(|e| Error::io("lock the store", &path, e))? {
        Some(lock) => Ok(lock),
        None => Err(Error::new(ErrorKind::Conflict, why_not).at_path(dir)),
    }
}

/// An error for a directory that is no store and cannot become one: no lock file is created there. Everything else is
/// checked under the lock.
fn look_before_locking(env: &dyn Env, dir: &Path, options: &Options) -> Result<()> {
    let path = dir.join(manifest::CURRENT);
    if env.metadata(&path).map_err(|e| Error::io("look for", &path, e))?.is_some() {
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
        let id = if let Some(id) = parse_segment_name(&name) {
            listing.segments.push(id);
            id
        } else if let Some(id) = parse_sst_name(&name) {
            listing.ssts.push(id);
            id
        } else if let Some(id) = manifest::parse_manifest_name(&name) {
            listing.manifests.push(id);
            id
        } else if name == CURRENT_TMP {
            listing.has_current_tmp = true;
            FileId(0)
        } else if ![LOCK, RESERVE, manifest::CURRENT].contains(&&*name)
            && !name.starts_with('.')
            && name != "lost+found"
        {
            listing.foreign = listing.foreign.or(Some(name));
            continue;
        } else {
            continue;
        };
        if id.0 >= NEXT_ID_MAX {
            let message =
                "no store has counted this far; if the file is not the store's, give it another name";
            return Err(Error::corruption(&dir.join(&name), 0, message));
        }
        if !metadata.is_file {
            return Err(Error::corruption(
                &dir.join(&name),
                0,
                "this name is the store's, but it is no regular file",
            ));
        }
    }
    listing.segments.sort_unstable();
    Ok(listing)
}

impl Listing {
    /// Whether no store was ever created here completely.
    fn is_fresh(&self) -> bool {
        self.segments.is_empty()
            && self.ssts.is_empty()
            && self.manifests.iter().all(|id| *id == FIRST_MANIFEST)
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
        self.segments.iter().chain(&self.ssts).chain(&self.manifests).map(|id| id.0).max().unwrap_or(0)
    }
}

/// Creates an empty store; an interrupted creation is done over.
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
    Manifest::create(env, dir, FIRST_MANIFEST, &version)?;
    Ok(FIRST_MANIFEST)
}

/// Removes files that earlier opens left and that nothing names, except for the log's. The new manifest is in force, and
/// recovery may need the space.
pub(super) fn remove_leftovers(inner: &Inner, found: &Found) {
    let dir = &inner.ctx.dir;
    let live = inner.version_set.lock().version.live_files();
    let is_live = |id: &FileId| live.binary_search_by_key(id, |file| file.id).is_ok();
    let manifests = found.listing.manifests.iter().chain([&found.manifest_id]);
    let gone = (found.listing.ssts.iter().filter(|id| !is_live(id)).map(|id| sst_path(dir, *id)))
        .chain(manifests.map(|id| manifest::manifest_path(dir, *id)))
        .chain(found.listing.has_current_tmp.then(|| dir.join(CURRENT_TMP)));
    remove_all(inner, gone);
}

/// Removes the segments whose batches were copied to fresh ones.
pub(super) fn remove_old_segments(inner: &Inner, found: &Found) {
    remove_all(inner, found.listing.segments.iter().map(|id| segment_path(&inner.ctx.dir, *id)));
}

/// Best effort: what stays is found by the next open.
pub(super) fn remove_all(inner: &Inner, paths: impl Iterator<Item = PathBuf>) {
    for path in paths {
        let _stays_for_the_next_open = inner.ctx.env.remove_file(&path);
    }
}
