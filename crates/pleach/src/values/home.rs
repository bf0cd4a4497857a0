//! Home: a file that holds the values of segments, shared by the versions that need it, and removed after the last one.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pleach_env::{Env, FileId, Result};
use pleach_log::segment_path;

use super::file::ValueFile;
use super::pointer::ValuePointer;
use crate::file_names::values_path;
use crate::keys::PartitionId;
use crate::trash::{Obsolete, Trash};

/// What a home is. The numbers are on disk: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HomeKind {
    /// The log segment itself.
    Segment = 0,
    /// A file of values that a flush or a conversion has copied. Pointers name the file.
    Values = 1,
    /// A file of values that were left of one or more other homes. A table leads from the old places to the new ones.
    Moved = 2,
    /// No file: entries that newer ones hide still refer to the segment, and no other ones do.
    Gone = 3,
}

impl HomeKind {
    /// The kind with this number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [Self::Segment, Self::Values, Self::Moved, Self::Gone].get(usize::from(number)).copied()
    }
}

/// See the module's text.
pub(crate) struct ValueHome {
    /// Number of the file.
    pub(crate) file: FileId,
    pub(crate) kind: HomeKind,
    /// Bytes of the file that are needed. A log segment may have space reserved behind them.
    pub(crate) len: u64,
    /// Opened by the first read.
    reader: OnceLock<ValueFile>,
    /// Set once the durable version does not have it.
    obsolete: AtomicBool,
    trash: Arc<Trash>,
}

impl ValueHome {
    pub(crate) fn new(file: FileId, kind: HomeKind, len: u64, trash: Arc<Trash>) -> Self {
        Self { file, kind, len, reader: OnceLock::new(), obsolete: AtomicBool::new(false), trash }
    }

    /// Its path in `dir`.
    pub(crate) fn path(&self, dir: &Path) -> PathBuf {
        match self.kind {
            HomeKind::Segment => segment_path(dir, self.file),
            HomeKind::Values | HomeKind::Moved | HomeKind::Gone => values_path(dir, self.file),
        }
    }

    /// The reader, which the first call opens.
    ///
    /// # Errors
    /// `Io` if the file cannot be opened, `Corruption` if it is not the file that the version names.
    pub(crate) fn reader(&self, env: &Arc<dyn Env>, dir: &Path, direct: bool) -> Result<&ValueFile> {
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        let opened = ValueFile::open(env, &self.path(dir), self, direct)?;
        Ok(self.reader.get_or_init(|| opened))
    }

    /// Reads the value of a key.
    ///
    /// # Errors
    /// `Io` if it cannot be read, `Corruption` if it is not there.
    pub(crate) fn read(
        &self,
        env: &Arc<dyn Env>,
        dir: &Path,
        pointer: ValuePointer,
        key: (PartitionId, &[u8]),
    ) -> Result<Arc<[u8]>> {
        let file = self.reader(env, dir, false)?;
        let span = file.span(pointer)?;
        Ok(file.take(pointer, key, &span, file.read(&span))?.bytes().into())
    }

    /// The segments whose values are in it.
    pub(crate) fn segments(&self, env: &Arc<dyn Env>, dir: &Path) -> Result<Vec<FileId>> {
        let moved = self.reader(env, dir, false)?.moved_segments();
        Ok(if self.kind == HomeKind::Moved { moved.collect() } else { vec![self.file] })
    }

    /// The reader, if it has been opened.
    pub(crate) fn opened(&self) -> Option<&ValueFile> {
        self.reader.get()
    }

    /// Memory of the table, if it has been read.
    pub(crate) fn memory(&self) -> usize {
        self.reader.get().map_or(0, ValueFile::memory)
    }

    /// Marks the file as obsolete: it is removed when its last reference is dropped.
    ///
    /// Requires: the edit that removed the last segment from it is durable.
    pub(crate) fn mark_obsolete(&self) {
        if !self.obsolete.swap(true, Ordering::AcqRel) {
            self.trash.pin(self.len);
        }
    }
}

impl Drop for ValueHome {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            let file = match self.kind {
                HomeKind::Segment => Obsolete::Segment(self.file),
                HomeKind::Values | HomeKind::Moved => Obsolete::Values(self.file),
                HomeKind::Gone => return,
            };
            self.trash.put(file, self.len);
        }
    }
}

impl std::fmt::Debug for ValueHome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueHome")
            .field("file", &self.file)
            .field("kind", &self.kind)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
