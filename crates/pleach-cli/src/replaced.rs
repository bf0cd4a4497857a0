//! Replaced files: a file that takes the place of an earlier one only when it is whole.
//!
//! The new file is written beside the old one as `FILE.part`, synced, and renamed at the end. Until then the old one stays as
//! it was. A drop without [`Replacement::commit`] removes the new file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::output::warn;

/// The new file in the making.
pub(crate) struct Replacement {
    file: File,
    part: PathBuf,
    path: PathBuf,
}

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
        let _was_not_there = fs::remove_file(&part);
        let file = File::create_new(&part).map_err(|e| refused(&part, e))?;
        let replacement = Self { file, part, path: target };
        if let Some(found) = found {
            let set = replacement.file.set_permissions(found.permissions());
            set.map_err(|e| refused(&replacement.part, e))?;
        }
        Ok(Some(replacement))
    }

    /// Puts the new file in its place, durably.
    pub(crate) fn commit(self) -> Result<()> {
        self.file.sync_all()?;
        if let Err(error) = fs::rename(&self.part, &self.path) {
            return Err(Failure::io("rename to the output", &self.part, &error));
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
        // After a commit, nothing has this name.
        let _renamed = fs::remove_file(&self.part);
    }
}

/// Makes the name of `path` durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}
