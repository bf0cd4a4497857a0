//! Files that versions refer to, and what becomes of them when the last reference goes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pleach_env::{FileId, JobWaker};
use pleach_table::{Sst, SstSummary};

use super::edit::RunFileMeta;

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

    /// All of the file as part of a run.
    pub(crate) fn whole(&self) -> RunFileMeta {
        RunFileMeta {
            file: self.id,
            smallest: self.summary.smallest.clone().into(),
            largest: self.summary.largest.clone().into(),
            entries: self.summary.entries,
            bytes: self.summary.file_len,
        }
    }

    /// Lets the file be removed when nobody refers to it any more.
    ///
    /// Requires: the edit that removed the last reference is durable.
    pub(crate) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for SstFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.trash.put(self.id);
        }
    }
}

/// SSTs that nothing refers to, waiting for the cleaner to remove them.
#[derive(Default)]
pub(crate) struct Trash {
    files: Mutex<Vec<FileId>>,
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

    /// All that waits.
    pub(crate) fn take(&self) -> Vec<FileId> {
        std::mem::take(&mut self.files.lock())
    }
}
