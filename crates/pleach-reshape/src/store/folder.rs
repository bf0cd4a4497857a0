//! A store's folder: its lock, and a main file that is there whole or not at all.
//!
//! Used by back ends whose store is one file. A new file is built under another name and renamed once it is durable, so
//! that a crash never leaves a file that the back end cannot open.

#![expect(
    clippy::disallowed_methods,
    reason = "the stores that lie here know no other file system than the real one"
)]
#![expect(clippy::disallowed_types, reason = "as above")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use super::Result;

const LOCK: &str = "LOCK";

/// A locked folder. The lock ends with this, or with the process.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    main: &'static str,
    lock: File,
}

impl Folder {
    /// Locks a folder, which is made if it is missing. `main` is the name of the store's file.
    ///
    /// # Errors
    /// If it holds something else, another process uses it, or it cannot be written to.
    pub(super) fn open(path: &Path, main: &'static str) -> Result<Self> {
        let shown = path.display();
        fs::create_dir_all(path).map_err(|error| format!("cannot make the folder {shown}: {error}"))?;
        if !is_ours(path, main).map_err(|error| format!("cannot read the folder {shown}: {error}"))? {
            return Err(format!("{shown} holds other files, and not the store {main}").into());
        }
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(path.join(LOCK));
        let lock = lock.map_err(|error| format!("cannot write to the folder {shown}: {error}"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), main, lock }),
            Err(TryLockError::WouldBlock) => Err(format!("the store in {shown} is in use").into()),
            Err(TryLockError::Error(error)) => Err(format!("cannot lock {shown}: {error}").into()),
        }
    }

    /// The path of the main file. If it is missing, `build` makes it, durable, at the path that it is given.
    pub(super) fn main_file(&self, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let file = self.path.join(self.main);
        if !fs::exists(&file)? {
            let unfinished = format!("{}.new", self.main);
            self.remove_all(&unfinished)?;
            build(&self.path.join(&unfinished))?;
            fs::rename(self.path.join(&unfinished), &file)?;
            File::open(&self.path)?.sync_all()?;
            self.remove_all(&unfinished)?;
        }
        Ok(file)
    }

    /// Removes files whose names begin like this.
    fn remove_all(&self, prefix: &str) -> Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A process that is forked at this moment holds the file open until it runs another program: closing would leave the
        // lock to it.
        let _ends_with_the_process = self.lock.unlock();
    }
}

/// Whether a folder is empty, or holds what a store leaves there.
fn is_ours(path: &Path, main: &str) -> std::io::Result<bool> {
    let mut others = false;
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name == main {
            return Ok(true);
        }
        others |= name != LOCK && !name.starts_with(main);
    }
    Ok(!others)
}
