//! Writer of the log: one current segment, and the older ones that are not yet durable.
//!
//! The leader of a commit group calls [`LogWriter::append`], and [`LogWriter::sync`] if someone in the group asked for
//! it. The engine decides when to rotate, because it hands out file ids.
//!
//! # Invariants
//! 1. *Order.* Sequence numbers run on without a gap from record to record and from segment to segment.
//! 2. *Durable prefix.* `durable_seq` is only raised after every byte up to it, in older segments too, and every
//!    segment's name are on the medium, or when the engine says that SSTs hold it.
//! 3. *One sync at a time.* Two syncs of one file could share a single error report of the kernel, and the one that
//!    did not get it would acknowledge lost bytes.
//!
//! # Concurrency
//! The caller's lock guards it. A sync can run outside that lock: [`LogWriter::prepare_sync`], [`PendingSync::run`],
//! [`LogWriter::finish_sync`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, ErrorKind, File, FileId, Result};

use crate::record_file::{
    Append, ManifestHint, RECORD_HEADER_LEN, RecordFileOptions, RecordWriter, SeqNo, Stamp,
};
use crate::recovery::Record;
use crate::segment::{LOG_SEGMENT, segment_path};

/// Appends to the log.
pub struct LogWriter {
    // Immutable after construction.
    env: Arc<dyn Env>,
    dir: PathBuf,
    segment_len: u64,

    current: RecordWriter,
    /// Segments before the current one with bytes that are not durable, oldest first.
    older: Vec<UnsyncedSegment>,
    /// The newest segment, if its name in the directory is not durable.
    unsynced_name: Option<FileId>,
    /// Between `prepare_sync` and `finish_sync`.
    sync_pending: bool,
}

/// A segment up to `end`, to be made durable.
#[derive(Clone)]
struct UnsyncedSegment {
    id: FileId,
    end: u64,
    /// Its stamp once a sync has succeeded.
    stamp: Option<Stamp>,
    path: PathBuf,
    file: Arc<dyn File>,
}

impl LogWriter {
    /// Creates segment `id` in `dir` and starts writing there with sequence number `durable_seq + 1`.
    ///
    /// `durable_seq` is the last sequence number that SSTs hold.
    ///
    /// Requires: the manifest that says so has been synced by this process. After a process was killed the manifest
    /// that was read may only be in the page cache, so it is written anew first; else a later crash could take it
    /// back, and this segment would accuse the disk of losing what never was durable.
    ///
    /// After recovery the caller appends the recovered records again ([`LogWriter::append_again`]), syncs, and moves the
    /// log's floor past the segments they came from, before it accepts new writes: docs/format/log.md, "Recovery".
    pub fn create(
        env: Arc<dyn Env>,
        dir: &Path,
        id: FileId,
        hint: ManifestHint,
        segment_len: u64,
        durable_seq: SeqNo,
    ) -> Result<Self> {
        let current = create_segment(&*env, dir, segment_len, id, hint, durable_seq + 1, durable_seq)?;
        Ok(Self {
            env,
            dir: dir.to_path_buf(),
            segment_len,
            current,
            older: Vec::new(),
            unsynced_name: Some(id),
            sync_pending: false,
        })
    }

    /// Appends the records in one write call. A single record is written from its own buffer, a group is copied
    /// together first.
    ///
    /// After an error nothing has changed as far as the writer is concerned: the same sequence numbers are due, and
    /// the next append overwrites what this one may have written.
    pub fn append<'a>(&mut self, records: impl IntoIterator<Item = Append<'a>>) -> Result<()> {
        self.current.append(records)
    }

    /// Appends a recovered record, with its boundaries and numbers as they were. Errors are as of [`LogWriter::append`].
    pub fn append_again(&mut self, record: &Record<'_>) -> Result<()> {
        self.current.append_payload(record.payload, (record.first_seq, record.count))
    }

    /// Whether `upcoming_bytes` (the sum of [`RecordBuf::record_len`](crate::RecordBuf::record_len)) should go to a
    /// segment of their own: this one is full, or takes no more after too many failed appends. Records longer than a
    /// whole segment get one to themselves.
    pub fn should_rotate(&self, upcoming_bytes: usize) -> bool {
        let end = self.current.offset().saturating_add((upcoming_bytes + RECORD_HEADER_LEN) as u64);
        self.current.is_exhausted() || (self.current.holds_records() && end > self.segment_len)
    }

    /// Starts segment `id`; the one before stays listed until it is durable. On error the writer goes on with the
    /// segment it has.
    pub fn rotate(&mut self, id: FileId, hint: ManifestHint) -> Result<()> {
        self.check_not_poisoned()?;
        if id <= self.current.id() {
            return Err(Error::invalid(format!("segment {id} after segment {}", self.current.id())));
        }
        // Of two records with one number, recovery takes the one in the older segment.
        self.current.settle_fence()?;
        let (next_seq, durable_seq) = (self.current.next_seq(), self.current.durable_seq());
        let next = create_segment(&*self.env, &self.dir, self.segment_len, id, hint, next_seq, durable_seq)?;
        let full = std::mem::replace(&mut self.current, next);
        if full.needs_sync() {
            self.older.push(UnsyncedSegment::of(&full));
        }
        self.unsynced_name = Some(id);
        Ok(())
    }

    /// Makes everything appended so far durable: older segments in order, the directory if a name in it is new, the
    /// current segment. Then writes a marker that says so, and stamps the files that have grown.
    ///
    /// After an error the log is poisoned.
    pub fn sync(&mut self) -> Result<()> {
        match self.prepare_sync()? {
            None => Ok(()),
            Some(pending) => {
                let result = pending.run();
                self.finish_sync(pending, result)
            }
        }
    }

    /// The work of a sync that starts now, `None` when everything is durable. Every `PendingSync` must come back through
    /// [`LogWriter::finish_sync`]; until then another one is refused with [`ErrorKind::Conflict`].
    pub fn prepare_sync(&mut self) -> Result<Option<PendingSync>> {
        self.check_not_poisoned()?;
        if self.sync_pending {
            return Err(Error::new(ErrorKind::Conflict, "a sync of the log is under way"));
        }
        // After a sync nothing may change what is there: no failed batch comes back. Where not even its fence finds room,
        // too little of the batch is there to be found.
        let _poisoned_if_not_durable = self.current.settle_fence();
        self.check_not_poisoned()?;
        let mut segments = self.older.clone();
        if self.current.needs_sync() {
            segments.push(UnsyncedSegment::of(&self.current));
        }
        if segments.is_empty() && self.unsynced_name.is_none() {
            return Ok(None);
        }
        self.sync_pending = true;
        Ok(Some(PendingSync {
            env: Arc::clone(&self.env),
            dir: self.dir.clone(),
            name: self.unsynced_name,
            segments,
            last_seq: self.last_seq(),
        }))
    }

    /// Takes note of what [`PendingSync::run`] returned. Appends, rotations and [`LogWriter::forget_before`] may have
    /// come in between.
    #[expect(clippy::needless_pass_by_value, reason = "a sync is finished once")]
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
        Ok(())
    }

    /// Stamps a segment that a sync has made durable. Best effort: without it, a cut of the file looks like a torn tail.
    fn write_stamp(&mut self, done: &UnsyncedSegment) {
        match done.stamp {
            Some(stamp) if done.id == self.current.id() => self.current.write_stamp(stamp),
            Some(stamp) => drop(stamp.write(&*done.file, done.id)),
            None => {}
        }
    }

    /// Takes note that SSTs hold everything up to `seq`. Requires: the manifest edit that says so is durable.
    pub fn mark_durable(&mut self, seq: SeqNo) {
        debug_assert!(seq <= self.last_seq(), "flushed what was never appended");
        self.current.note_durable_seq(seq);
    }

    /// Segments below `id` hold nothing that is needed any more: they need no sync. Requires: the manifest edit that
    /// moves the floor to `id` is durable, and [`LogWriter::mark_durable`] was told what they held.
    ///
    /// Their handles come back: closing the last handle of a removed segment takes milliseconds, for which no writer
    /// should wait.
    pub fn forget_before(&mut self, id: FileId) -> RetiredSegments {
        let (retired, kept) = std::mem::take(&mut self.older).into_iter().partition(|s| s.id < id);
        self.older = kept;
        RetiredSegments(retired)
    }

    fn check_not_poisoned(&self) -> Result<()> {
        if self.current.is_poisoned() {
            return Err(
                Error::new(ErrorKind::Poisoned, "a sync of the log failed earlier").at_path(&self.dir)
            );
        }
        Ok(())
    }

    /// The segment that the next record goes to.
    pub fn segment_id(&self) -> FileId {
        self.current.id()
    }

    /// Where in the segment the next record will start. After a failed append it moves by one marker first.
    pub fn offset(&self) -> u64 {
        self.current.offset()
    }

    /// The last sequence number known to be durable, here or in SSTs.
    pub fn durable_seq(&self) -> SeqNo {
        self.current.durable_seq()
    }

    /// The last sequence number appended.
    pub fn last_seq(&self) -> SeqNo {
        self.current.next_seq() - 1
    }

    /// Whether a sync failed: everything but reading is refused.
    pub fn is_poisoned(&self) -> bool {
        self.current.is_poisoned()
    }
}

/// Handles of segments that are not needed any more. Drop them where time does not matter.
#[derive(Default)]
pub struct RetiredSegments(Vec<UnsyncedSegment>);

impl RetiredSegments {
    /// Takes the handles of `other` too.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Space is reserved in steps of this many bytes: a small store stays small, and a reservation costs some ten
/// microseconds every thirty thousand small records.
const RESERVE_STEP: u64 = 4 << 20;

fn create_segment(
    env: &dyn Env,
    dir: &Path,
    segment_len: u64,
    id: FileId,
    hint: ManifestHint,
    next_seq: SeqNo,
    durable_seq: SeqNo,
) -> Result<RecordWriter> {
    let preallocate = Some(segment_len.min(RESERVE_STEP));
    let options = RecordFileOptions { kind: LOG_SEGMENT, id, hint, preallocate, next_seq, durable_seq };
    RecordWriter::create(env, &segment_path(dir, id), &options)
}

impl UnsyncedSegment {
    fn of(writer: &RecordWriter) -> Self {
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
    name: Option<FileId>,
    segments: Vec<UnsyncedSegment>,
    last_seq: SeqNo,
}

impl PendingSync {
    /// Does the work. The result goes to [`LogWriter::finish_sync`], whatever it is.
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

impl std::fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogWriter")
            .field("current", &self.current)
            .field("older", &self.older.iter().map(|s| s.id).collect::<Vec<_>>())
            .field("unsynced_name", &self.unsynced_name)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for PendingSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingSync").field("last_seq", &self.last_seq).finish_non_exhaustive()
    }
}
