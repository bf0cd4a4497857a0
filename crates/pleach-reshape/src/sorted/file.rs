//! The temporary file of a sort: it has no name while it is in use, and vanishes with its handle.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach::env::{Env, File};
use pleach::{Error, Result};

/// Name of the file, between its creation and its removal.
const MOVES: &str = "MOVES";

/// The file, and where the next byte goes.
pub(super) struct TemporaryFile {
    file: Arc<dyn File>,
    /// For messages.
    path: PathBuf,
    end: u64,
}

impl TemporaryFile {
    pub(super) fn create(env: &dyn Env, dir: &Path) -> Result<Self> {
        remove_leftover(env, dir)?;
        let path = dir.join(MOVES);
        let file = env.create_file(&path).map_err(|e| Error::io("create a file of sorted rows", &path, e))?;
        remove(env, &path)?;
        Ok(Self { file, path, end: 0 })
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(bytes, self.end);
        written.map_err(|e| Error::io("write sorted rows", &self.path, e))?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let read = self.file.read_exact_at(buffer, offset);
        read.map_err(|e| Error::io("read sorted rows", &self.path, e))
    }

    pub(super) fn prefetch(&self, offset: u64, len: u64) {
        self.file.prefetch(offset, len);
    }

    /// Gives the space of a range back, if the file system can do it. Where it cannot, the space stays until the end.
    pub(super) fn punch(&self, offset: u64, len: u64) {
        let _stays = self.file.punch(offset, len);
    }

    pub(super) fn damaged(&self, offset: u64, what: &str) -> Error {
        Error::corruption(&self.path, offset, what)
    }
}

/// Removes what a crash may have left of a file.
pub(crate) fn remove_leftover(env: &dyn Env, dir: &Path) -> Result<()> {
    let path = dir.join(MOVES);
    let found = env.metadata(&path).map_err(|e| Error::io("look for a file of sorted rows", &path, e))?;
    if found.is_some() { remove(env, &path) } else { Ok(()) }
}

fn remove(env: &dyn Env, path: &Path) -> Result<()> {
    env.remove_file(path).map_err(|e| Error::io("remove a file of sorted rows", path, e))
}
