//! Writer of the log: one current segment, and the older ones that are not yet durable.
//!
//! The leader of a commit group calls [`LogWriter::append`], and [`LogWriter::sync`] if a request of the group asks for it.
//! The engine decides when to rotate, because it hands out file ids.
//!
//! # Invariants
//! 1. *Order.* Sequence numbers have no gap, from record to record and from segment to segment.
//! 2. *Durable prefix.* `durable_seq` rises to a number only after one of two events. Either all segments up to that number
//!    and their names were synced, or the engine said that SSTs hold everything up to it.
//! 3. *One sync at a time.* The kernel may report a write error to only one of two concurrent syncs of a file. The other would
//!    acknowledge lost bytes.
//!
//! # Concurrency
//! The caller's lock guards it. A sync can run outside that lock: [`LogWriter::prepare_sync`], [`PendingSync::run`],
//! [`LogWriter::finish_sync`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, ErrorKind, File, FileId, Result};

use crate::record_file::{Append, ManifestHint, RECORD_HEADER_LEN, RecordFileOptions, RecordWriter, SeqNo};
use crate::recovery::Record;
use crate::segment::{LOG_SEGMENT, segment_path};

pub use sync::PendingSync;
use sync::UnsyncedSegment;

mod sync;

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

impl LogWriter {
    /// Creates segment `id` in `dir` and starts writing there with sequence number `durable_seq + 1`.
    ///
    /// `durable_seq` is the last sequence number that SSTs hold.
    ///
    /// Requires: this process has synced the manifest that says so. A manifest that was only read may be in the page cache
    /// alone, if the process that wrote it was killed; so the caller writes it again first. Otherwise a later crash could
    /// take the manifest back, and recovery would report a loss although nothing durable was lost.
    ///
    /// After recovery the caller appends the recovered records again ([`LogWriter::append_recovered`]), syncs, and moves the
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
    /// After an error the same sequence numbers are due, and the next append overwrites what this one may have written.
    pub fn append<'a>(&mut self, records: impl IntoIterator<Item = Append<'a>>) -> Result<()> {
        self.current.append(records)
    }

    /// The file for which [`File::prepare_small_writes`] is due, once for each step that appends have passed.
    pub fn file_to_prepare(&mut self) -> Option<Arc<dyn File>> {
        self.current.file_to_prepare()
    }

    /// Appends a recovered record, with its boundaries and numbers as they were. Errors are as of [`LogWriter::append`].
    /// A payload of `large_len` bytes or more is written with a call of its own, from where it lies. Returns where the payload
    /// begins in the current segment.
    pub fn append_recovered(&mut self, record: &Record<'_>, large_len: usize) -> Result<u64> {
        self.current.append_payload(record.payload, (record.first_seq, record.count), large_len)
    }

    /// Whether `upcoming_bytes` (the sum of [`RecordBuf::record_len`](crate::RecordBuf::record_len)) should go to a
    /// segment of their own: this one is full, or takes no more after too many failed appends. Records longer than a
    /// whole segment get one to themselves.
    pub fn should_rotate(&self, upcoming_bytes: usize) -> bool {
        let end = self.current.offset().saturating_add((upcoming_bytes + RECORD_HEADER_LEN) as u64);
        self.current.is_exhausted() || (self.current.holds_records() && end > self.segment_len)
    }

    /// Starts segment `id`; the one before stays listed until it is durable. On error the writer goes on with the
    /// segment it has. Returns where the records of the segment before end.
    pub fn rotate(&mut self, id: FileId, hint: ManifestHint) -> Result<u64> {
        self.check_not_poisoned()?;
        if id <= self.current.id() {
            return Err(Error::invalid(format!("segment {id} after segment {}", self.current.id())));
        }
        // Of two records with one number, recovery takes the one in the older segment.
        self.current.settle_fence()?;
        let (next_seq, durable_seq) = (self.current.next_seq(), self.current.durable_seq());
        let next = create_segment(&*self.env, &self.dir, self.segment_len, id, hint, next_seq, durable_seq)?;
        let full = std::mem::replace(&mut self.current, next);
        let end = full.offset();
        full.file().expect_small_writes(0..0);
        if full.needs_sync() {
            self.older.push(UnsyncedSegment::of(&full));
        }
        self.unsynced_name = Some(id);
        Ok(end)
    }

    /// Notes that SSTs hold everything up to `seq`. Requires: the manifest edit that says so is durable.
    pub fn mark_durable(&mut self, seq: SeqNo) {
        debug_assert!(seq <= self.last_seq(), "flushed what was never appended");
        self.current.note_durable_seq(seq);
    }

    /// Forgets the segments below `id`, which need no sync any more. Requires: the manifest edit that moves the floor to `id`
    /// is durable, and [`LogWriter::mark_durable`] was called for their records.
    ///
    /// Returns their handles: closing the last handle of a removed segment takes milliseconds, which no writer should wait
    /// for.
    pub fn forget_before(&mut self, id: FileId) -> RetiredSegments {
        let (retired, kept) = std::mem::take(&mut self.older).into_iter().partition(|s| s.id < id);
        self.older = kept;
        RetiredSegments(retired)
    }

    /// Whether the next sync includes segments before the current one.
    pub fn has_unsynced_full_segments(&self) -> bool {
        !self.older.is_empty()
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

    /// Whether appends are stores into the page cache, not calls.
    pub fn is_mapped(&self) -> bool {
        self.current.is_mapped()
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

/// Handles of segments that are not needed any more. Drop them where no writer waits.
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

impl std::fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogWriter")
            .field("current", &self.current)
            .field("older", &self.older.iter().map(|s| s.id).collect::<Vec<_>>())
            .field("unsynced_name", &self.unsynced_name)
            .finish_non_exhaustive()
    }
}
