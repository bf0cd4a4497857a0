//! Obsolete files: those that no version refers to any more, which the cleaner is to remove.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use pleach_env::sync::Mutex;
use pleach_env::{FileId, JobWaker};
use pleach_log::segment_path;

use crate::file_names::{sst_path, values_path};

/// A file that is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obsolete {
    Sst(FileId),
    /// A log segment that held values.
    Segment(FileId),
    /// A file of copied or moved values.
    Values(FileId),
}

impl Obsolete {
    /// Its path in `dir`.
    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        match self {
            Self::Sst(id) => sst_path(dir, id),
            Self::Segment(id) => segment_path(dir, id),
            Self::Values(id) => values_path(dir, id),
        }
    }
}

/// Obsolete files without references. Leaf lock.
#[derive(Default)]
pub(crate) struct Trash {
    files: Mutex<Vec<Obsolete>>,
    /// Length of the obsolete files that a reader, a range or a snapshot still holds.
    pinned_bytes: AtomicU64,
    cleaner: OnceLock<JobWaker>,
}

impl Trash {
    /// Notes that a file of `len` bytes is obsolete, but may still be referenced.
    pub(crate) fn pin(&self, len: u64) {
        self.pinned_bytes.fetch_add(len, Ordering::Relaxed);
    }

    /// Takes a file that [`Trash::pin`] has noted, and that nothing refers to any more.
    pub(crate) fn put(&self, file: Obsolete, len: u64) {
        self.pinned_bytes.fetch_sub(len, Ordering::Relaxed);
        self.files.lock().push(file);
        if let Some(cleaner) = self.cleaner.get() {
            cleaner.wake();
        }
    }

    /// Sets the job that is woken when there is something to remove.
    pub(crate) fn set_cleaner(&self, waker: JobWaker) {
        let _set_once = self.cleaner.set(waker);
    }

    /// Length of the obsolete files that are still referenced.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// Takes all files that are to be removed.
    pub(crate) fn take(&self) -> Vec<Obsolete> {
        std::mem::take(&mut self.files.lock())
    }
}
