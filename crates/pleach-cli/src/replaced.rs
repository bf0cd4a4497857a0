//! Replaced files: a file that takes the place of an earlier one only when it is whole.
//!
//! The new file is written beside the old one as `FILE.part`, synced, and renamed at the end. Until then the old one stays as
//! it was. A drop without [`Replacement::commit`] removes the new file. A killed command leaves it, and the next one writes it
//! again.
//!
//! # Concurrency
//! The new file is locked, so that two commands do not write it at the same time.

use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::failure::{Exit, Failure, Result};
use crate::output::warn;

/// The new file in the making.
pub(crate) struct Replacement {
    file: File,
    part: PathBuf,
    path: PathBuf,
    /// Whether the new file stays after a drop.
    stays: bool,
}

const BESIDE: &str = "the output is written beside the file first, so its directory must be writable; or redirect standard output";

impl Replacement {
    /// Begins to replace the file at `path`, or to create one. `None` if a rename would not do what a write does: at `path` is
    /// a device, a pipe, or a symbolic link that leads nowhere.
    pub(crate) fn begin(path: &Path) -> Result<Option<Self>> {
        let found = fs::metadata(path).ok();
        if found.as_ref().map_or_else(|| fs::symlink_metadata(path).is_ok(), |found| !found.is_file()) {
            return Ok(None);
        }
        let refused = |path: &Path, error: io::Error| Failure::io("create the output", path, &error);
        let mut target = path.to_owned();
        if found.is_some() {
            // A file that the user must not write is not replaced either.
            File::options().write(true).open(path).map_err(|e| refused(path, e))?;
            // A link goes on leading to the file.
            target = path.canonicalize().map_err(|e| refused(path, e))?;
        }
        let mut part = target.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = create_locked(&part, found.is_some())?;
        let replacement = Self { file, part, path: target, stays: false };
        if let Some(found) = found {
            let set = set_owner_and_mode(&replacement.file, &found);
            set.map_err(|e| refused(&replacement.part, e))?;
        }
        Ok(Some(replacement))
    }

    /// Puts the new file in its place, durably.
    pub(crate) fn commit(mut self) -> Result<()> {
        self.file.sync_all()?;
        // The other name is now that of a whole file, or leads to the output.
        self.stays = true;
        if let Err(error) = fs::rename(&self.part, &self.path) {
            let failure = Failure::io("rename to the output", &self.part, &error);
            return Err(failure.hint("the file that is named is whole: move it yourself"));
        }
        // The new file is there, so the command has done its work.
        if let Err(error) = sync_folder_of(&self.path) {
            let path = self.path.display();
            warn(format!(
                "a power cut may undo the replacement of {path}: cannot sync its directory: {error}"
            ));
        }
        Ok(())
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.stays {
            let _was_not_there = fs::remove_file(&self.part);
        }
    }
}

/// Creates and locks an empty file, or empties one that a killed command has left. If it `is_private`, nobody else may read it
/// yet.
fn create_locked(part: &Path, is_private: bool) -> Result<File> {
    let refused = |error: io::Error| Failure::io("create the output", part, &error).hint(BESIDE);
    loop {
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(if is_private { 0o600 } else { 0o666 });
        let file = options.open(part).map_err(refused)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("another command is writing {}", part.display());
                return Err(Failure::new(Exit::Busy, message).hint("wait for it, or give another output"));
            }
            Err(TryLockError::Error(error)) => return Err(refused(error)),
        }
        // Another command may have renamed or removed the file before it was locked.
        let (locked, named) = (file.metadata().map_err(refused)?, fs::metadata(part).ok());
        if named.is_some_and(|named| (named.dev(), named.ino()) == (locked.dev(), locked.ino())) {
            file.set_len(0).map_err(refused)?;
            return Ok(file);
        }
    }
}

/// Gives a file the owner, the group and the mode of an earlier one. If the owner may not be given away, nobody gains access.
fn set_owner_and_mode(file: &File, earlier: &Metadata) -> io::Result<()> {
    let mut mode = earlier.permissions().mode();
    let is_same = |now: &Metadata| (now.uid(), now.gid()) == (earlier.uid(), earlier.gid());
    if !is_same(&file.metadata()?) && fchown(file, Some(earlier.uid()), Some(earlier.gid())).is_err() {
        mode &= !0o070;
    }
    file.set_permissions(Permissions::from_mode(mode))
}

/// Makes the name of `path` durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_has_one_writer_and_replaces_what_a_killed_one_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let (path, part) = (dir.path().join("out"), dir.path().join("out.part"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        fs::write(&part, "left by a killed command").unwrap();
        let mut first = Replacement::begin(&path).unwrap().unwrap();
        let second = Replacement::begin(&path).err().unwrap();
        assert_eq!(second.exit, Exit::Busy, "{second:?}");
        first.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        first.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(!part.exists());
        drop(Replacement::begin(&path).unwrap());
        assert_eq!((fs::read(&path).unwrap(), part.exists()), (b"new".to_vec(), false));
    }
}
