//! Syncs of the log: which segments are not durable, and the sync that runs while others append.

use std::path::PathBuf;
use std::sync::Arc;

use pleach_env::{Env, Error, ErrorKind, File, FileId, Result};

use super::LogWriter;
use crate::record_file::{RecordWriter, SeqNo, Stamp};

/// A segment whose bytes up to `end` must be made durable.
#[derive(Clone)]
pub(super) struct UnsyncedSegment {
    pub(super) id: FileId,
    end: u64,
    /// The stamp to write after the sync.
    stamp: Option<Stamp>,
    path: PathBuf,
    file: Arc<dyn File>,
}

impl UnsyncedSegment {
    pub(super) fn of(writer: &RecordWriter) -> Self {
        Self {
            id: writer.id(),
            end: writer.offset(),
            stamp: writer.due_stamp(),
            path: writer.path().to_path_buf(),
            file: Arc::clone(writer.file()),
        }
    }
}

/// A sync of the log that can run while others append.
#[must_use = "the log refuses further syncs until this one is finished"]
pub struct PendingSync {
    env: Arc<dyn Env>,
    dir: PathBuf,
    /// The segment whose name the sync makes durable.
    name: Option<FileId>,
    segments: Vec<UnsyncedSegment>,
    last_seq: SeqNo,
    /// Why a failed append could not be ruled out.
    unfenced: Option<Error>,
}

impl PendingSync {
    /// Syncs segments and directory. Pass the result to [`LogWriter::finish_sync`], whatever it is.
    pub fn run(&self) -> Result<()> {
        for segment in &self.segments {
            segment.file.sync("log.sync").map_err(|e| Error::io("sync the log segment", &segment.path, e))?;
        }
        if self.name.is_some() {
            self.env
                .sync_dir(&self.dir, "log.dir_sync")
                .map_err(|e| Error::io("sync the directory of the log", &self.dir, e))?;
        }
        Ok(())
    }
}

impl LogWriter {
    /// Makes everything appended so far durable: older segments in order, the current segment, and then the directory if a name
    /// in it is new. Then writes a marker that says so, and stamps the files that have grown.
    ///
    /// After an error the log is poisoned, with one exception: if a failed append cannot be overwritten, because there is no
    /// space or the device fails, recovery may find records of it. What was appended is synced even so. The next sync or append
    /// tries again to overwrite it.
    pub fn sync(&mut self) -> Result<()> {
        match self.prepare_sync()? {
            None => Ok(()),
            Some(pending) => {
                let result = pending.run();
                self.finish_sync(pending, result)
            }
        }
    }

    /// Begins a sync; `None` if everything is durable. Every `PendingSync` must be passed to [`LogWriter::finish_sync`]; until
    /// then another sync is refused with [`ErrorKind::Conflict`].
    pub fn prepare_sync(&mut self) -> Result<Option<PendingSync>> {
        self.check_not_poisoned()?;
        if self.sync_pending {
            return Err(Error::new(ErrorKind::Conflict, "a sync of the log is under way"));
        }
        // After a sync that succeeds no failed batch may come back, so its fence is made durable first.
        let unfenced = self.current.rule_out_failed_append().err();
        if self.is_poisoned()
            && let Some(error) = unfenced
        {
            return Err(error);
        }
        let mut segments = self.older.clone();
        if self.current.needs_sync() {
            self.current.fill_ahead();
            segments.push(UnsyncedSegment::of(&self.current));
        }
        if segments.is_empty() && self.unsynced_name.is_none() {
            return unfenced.map_or(Ok(None), Err);
        }
        self.sync_pending = true;
        Ok(Some(PendingSync {
            env: Arc::clone(&self.env),
            dir: self.dir.clone(),
            name: self.unsynced_name,
            segments,
            last_seq: self.last_seq(),
            unfenced,
        }))
    }

    /// Ends a sync with the result of [`PendingSync::run`]. Appends, rotations and [`LogWriter::forget_before`] may have
    /// happened since it began. The error is that of [`LogWriter::sync`].
    pub fn finish_sync(&mut self, pending: PendingSync, result: Result<()>) -> Result<()> {
        self.sync_pending = false;
        if result.is_err() {
            self.current.poison();
        }
        result?;
        self.check_not_poisoned()?;
        for done in &pending.segments {
            if done.id == self.current.id() {
                self.current.note_durable_bytes(done.end);
            }
            self.older.retain(|s| s.id != done.id || s.end > done.end);
        }
        if self.unsynced_name == pending.name {
            self.unsynced_name = None;
        }
        self.current.note_durable_seq(pending.last_seq);
        self.current.write_marker();
        pending.segments.iter().for_each(|done| self.write_stamp(done));
        pending.unfenced.map_or(Ok(()), Err)
    }

    /// Stamps a segment that a sync has made durable. Best effort: without the stamp, a file that was cut looks like a torn tail.
    fn write_stamp(&mut self, done: &UnsyncedSegment) {
        match done.stamp {
            Some(stamp) if done.id == self.current.id() => self.current.write_stamp(stamp),
            Some(stamp) => drop(stamp.write(&*done.file, done.id)),
            None => {}
        }
    }
}

impl std::fmt::Debug for PendingSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingSync").field("last_seq", &self.last_seq).finish_non_exhaustive()
    }
}
