//! Removal of a store's files.

use std::path::Path;
use std::sync::Arc;

use pleach_env::{Env, Error, ErrorKind, LockMode, Result};
use pleach_log::segment_path;

use super::directory::{LOCK, Listing, list};
use crate::file_names::{sst_path, values_path};
use crate::manifest::{self, CURRENT, CURRENT_TMP};
use crate::options::Options;
use crate::version_set::reserve::RESERVE;

/// Removes all files of the store in directory `path`. Files that are not the store's stay, and so does the directory.
///
/// Of `options` only [`Options::env`] counts. If it is killed, an open reports `Corruption`, and a
/// second call goes on. After a power cut any of the files may be there again.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// let db = pleach::Db::open(&path)?;
/// db.default_partition().put("key", "value")?;
/// db.close()?;
/// std::fs::write(path.join("notes.txt"), "mine").unwrap();
/// pleach::destroy(&path, &pleach::Options::new())?;
/// assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
/// # Ok::<(), pleach::Error>(())
/// ```
///
/// # Errors
/// `NotFound` when there is no store, `InvalidArgument` when `path` is a file, `Conflict` when the store is open,
/// `Corruption` when a name of a store's is no regular file, `Io` when the system refuses a call.
pub fn destroy(path: impl AsRef<Path>, options: &Options) -> Result<()> {
    let (dir, env) = (path.as_ref(), Arc::clone(&options.env));
    let env = &*env;
    let missing = || Error::new(ErrorKind::NotFound, "there is no store here").at_path(dir);
    let metadata = env.metadata(dir).map_err(|e| Error::io("look for the directory", dir, e))?;
    if metadata.ok_or_else(missing)?.is_file {
        return Err(Error::invalid(format!("{} is a file; a store is a directory", dir.display())));
    }
    if !is_there(env, dir, CURRENT)? && list(env, dir)?.is_fresh() {
        return Err(missing());
    }
    let lock_path = dir.join(LOCK);
    let lock = env
        .lock_file(&lock_path, LockMode::Exclusive)
        .map_err(|e| Error::io("lock the store", &lock_path, e))?;
    let open = "the store is open, in this process or in another; close it there first";
    let _lock = lock.ok_or_else(|| Error::new(ErrorKind::Conflict, open).at_path(dir))?;
    remove_files(env, dir, &list(env, dir)?)
}

/// `CURRENT` goes first: without it, nothing takes the rest for a whole store. No sync keeps this order in a power cut.
fn remove_files(env: &dyn Env, dir: &Path, listing: &Listing) -> Result<()> {
    remove_if_there(env, dir, CURRENT)?;
    for path in listing.paths(dir) {
        env.remove_file(&path).map_err(|e| Error::io("remove the file", &path, e))?;
    }
    for name in [CURRENT_TMP, RESERVE, LOCK] {
        remove_if_there(env, dir, name)?;
    }
    Ok(())
}

fn is_there(env: &dyn Env, dir: &Path, name: &str) -> Result<bool> {
    let path = dir.join(name);
    Ok(env.metadata(&path).map_err(|e| Error::io("look for the file", &path, e))?.is_some())
}

fn remove_if_there(env: &dyn Env, dir: &Path, name: &str) -> Result<()> {
    if !is_there(env, dir, name)? {
        return Ok(());
    }
    let path = dir.join(name);
    env.remove_file(&path).map_err(|e| Error::io("remove the file", &path, e))
}

impl Listing {
    /// The numbered files.
    fn paths(&self, dir: &Path) -> impl Iterator<Item = std::path::PathBuf> {
        (self.segments.iter().map(move |id| segment_path(dir, *id)))
            .chain(self.ssts.iter().map(move |id| sst_path(dir, *id)))
            .chain(self.values.iter().map(move |id| values_path(dir, *id)))
            .chain(self.manifests.iter().map(move |id| manifest::manifest_path(dir, *id)))
    }
}
