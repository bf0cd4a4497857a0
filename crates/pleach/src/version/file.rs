//! Files that versions refer to, and what becomes of them when the last reference goes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pleach_env::{FileId, JobWaker};
use pleach_table::{Sst, SstSummary};

/// An SST that some version refers to. Shared by versions, and through them by readers and snapshots.
pub(crate) struct SstFile {
    pub(crate) id: FileId,
    pub(crate) summary: SstSummary,
    sst: OnceLock<Arc<Sst>>,
    /// Set once the durable version no longer names the file.
    obsolete: AtomicBool,
    trash: Arc<Trash>,
}

impl SstFile {
    /// A file that is named by an edit and not opened yet.
    pub(crate) fn new(id: FileId, summary: SstSummary, trash: Arc<Trash>) -> Self {
        Self { id, summary, sst: OnceLock::new(), obsolete: AtomicBool::new(false), trash }
    }

    /// Gives the file its reader, once.
    pub(crate) fn opened(&self, sst: Arc<Sst>) {
        let _already_open = self.sst.set(sst);
    }

    /// The reader. Requires: the file has been opened; recovery and executors open files before a version shows them.
    #[inline]
    pub(crate) fn sst(&self) -> &Arc<Sst> {
        self.sst.get().expect("files are opened before a version shows them")
    }

    /// Lets the file be removed when nobody refers to it any more.
    ///
    /// Requires: the edit that removed the last reference is durable.
    pub(crate) fn mark_obsolete(&self) {
        if !self.obsolete.swap(true, Ordering::AcqRel) {
            self.trash.pinned_bytes.fetch_add(self.summary.file_len, Ordering::Relaxed);
        }
    }
}

impl Drop for SstFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.trash.pinned_bytes.fetch_sub(self.summary.file_len, Ordering::Relaxed);
            self.trash.put(self.id);
        }
    }
}

/// SSTs that nothing refers to, waiting for the cleaner to remove them.
#[derive(Default)]
pub(crate) struct Trash {
    files: Mutex<Vec<FileId>>,
    /// Length of the files that are obsolete, but that a reader, a range or a snapshot still needs.
    pinned_bytes: AtomicU64,
    cleaner: OnceLock<JobWaker>,
}

impl Trash {
    fn put(&self, file: FileId) {
        self.files.lock().push(file);
        if let Some(cleaner) = self.cleaner.get() {
            cleaner.wake();
        }
    }

    /// Whom to wake when there is something to remove.
    pub(crate) fn set_cleaner(&self, waker: JobWaker) {
        let _set_once = self.cleaner.set(waker);
    }

    /// Length of the obsolete files that somebody still reads.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// All that waits.
    pub(crate) fn take(&self) -> Vec<FileId> {
        std::mem::take(&mut self.files.lock())
    }
}
