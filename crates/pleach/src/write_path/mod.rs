//! Write path: from a batch in the commit queue to entries in the memtable that readers see.
//!
//! [`WritePath::commit`] commits a batch side by side with others (`side_by_side`), or puts it into the queue. One thread at a
//! time is the commit leader: it takes all waiting batches as a group and commits them (`leader`). This module holds the state
//! of the path, and the steps that jobs and the open also take: syncing the log, starting a log segment, and switching the
//! memtable.
//!
//! # Invariants
//! 1. *Logged before visible*: a batch is in the log before any reader sees it, and synced if it asked for that.
//! 2. *Segment per memtable*: a new memtable starts a new log segment, so that a flush frees whole segments.
//!
//! # Concurrency
//! `writer` serialises admissions to the log, switches of the memtable, and creations and drops of partitions. Inserts follow
//! in the order of the log, some of them after the lock was released (`side_by_side`). Syncs of full segments, by a commit
//! leader or a flush, take turns (`full_segment_syncs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pleach_env::sync::{Mutex, QuickGuard, QuickMutex, Turnstile};
use pleach_env::{Error, ErrorKind, File, FileId, OpenOptions, Result, failpoint};
use pleach_log::{CommitQueue, Durability, LogWriter, SeqNo, segment_path};

use crate::attached::Attached;
use crate::context::Context;
use crate::memory_shares::MemoryShares;
use crate::memtable::{DELETES_WORTH_FLUSH, Footprint, Memtable, MemtableWriter};
use crate::operations::Operations;
use crate::options::IMMUTABLE_MEMTABLES_MAX;
use crate::state::{LoggedMemtable, State};
use crate::stats::add;
use crate::tombstone_spans::TombstoneSpans;
use crate::trace;
use crate::version_set::{FullSegment, VersionSet};

mod leader;
mod pressure;
mod recent_writers;
mod request;
mod room;
mod side_by_side;
mod touched;

pub(crate) use leader::{PayloadPlace, insert_operations};
use pressure::Pressure;
use recent_writers::RecentWriters;
use request::would_wait;
pub(crate) use request::{WriteRequest, dropped_error};
pub(crate) use touched::{LivePartition, TouchedPartitions};

/// See the module's text.
pub(crate) struct WritePath {
    ctx: Arc<Context>,
    version_set: Arc<VersionSet>,
    /// The memory of memtables, and what the cache may use of it.
    pub(crate) shares: MemoryShares,
    /// Group commit of writers.
    queue: CommitQueue<WriteRequest>,
    /// The log and what commit leaders decide. Held by a commit leader, by a writer side by side, or by the thread that switches
    /// the memtable.
    writer: QuickMutex<Writer>,
    /// Drops of partitions since the open. Raised, under `writer`, after the flag of the partition.
    pub(crate) drops: AtomicU64,
    /// When, in the environment's time, the memtable was last switched.
    pub(crate) switched_at_ns: AtomicU64,
    /// What writers are charged while background work is behind.
    pub(crate) pressure: Pressure,
    /// For adaptive training. Leaf lock.
    recent_writers: Mutex<RecentWriters>,
    /// Whether the sync of a segment failed that a flush has made a value segment: its writes may be lost. Set before the store
    /// is poisoned.
    lost_values: AtomicBool,
    /// Held for a sync of a full segment, until a failure has poisoned the store: [`WritePath::sync_full_segment`].
    full_segment_syncs: Mutex<()>,
    /// Whether a commit leader waits for a flush or sleeps. A request that comes now would wait too.
    writers_wait: AtomicBool,
    /// Where batches wait for their turn.
    turns: Turnstile,
    /// Held while pages of the log are asked for outside of `writer`, so that a close can wait for that.
    preparing: Mutex<()>,
    /// Most batches that are between the log and the memtable at a time: as many as there are processors.
    side_by_side_max: u64,
    /// Whether a thread panicked between the log and the memtable. Set after the store is poisoned.
    inserts_broken: AtomicBool,
}

/// The state that commit leaders change.
pub(crate) struct Writer {
    pub(crate) log: Attached<LogWriter>,
    pub(crate) next_seq: SeqNo,
    /// Fill of the active memtable, in bytes, up to which the free space on the disk need not be checked again.
    pub(crate) room_until: usize,
    /// Memtable bytes of the deletes that were accepted while less was free than `room` keeps free.
    pub(crate) scant_bytes: usize,
    /// The active memtable of the newest state.
    pub(crate) memtable: MemtableWriter,
    /// The same in all states of the store.
    pub(crate) tombstone_spans: Arc<TombstoneSpans>,
    /// Batches that were logged to be inserted side by side. Never below the number of those that were shown: a batch is shown
    /// after it has left this lock.
    pub(crate) side_by_side: u64,
}

impl WritePath {
    /// The write path of a store that was just opened.
    pub(crate) fn new(
        ctx: &Arc<Context>,
        version_set: &Arc<VersionSet>,
        writer: Writer,
        shares: MemoryShares,
    ) -> Self {
        let is_mapped = writer.log.as_ref().is_some_and(LogWriter::is_mapped);
        ctx.counters.log_is_mapped.store(is_mapped, Ordering::Relaxed);
        Self {
            ctx: Arc::clone(ctx),
            version_set: Arc::clone(version_set),
            shares,
            queue: CommitQueue::new(WriteRequest::cost, WriteRequest::syncs),
            writer: QuickMutex::new(writer),
            drops: AtomicU64::new(0),
            switched_at_ns: AtomicU64::new(0),
            pressure: Pressure::default(),
            recent_writers: Mutex::default(),
            lost_values: AtomicBool::new(false),
            full_segment_syncs: Mutex::new(()),
            writers_wait: AtomicBool::new(false),
            turns: Turnstile::new(),
            preparing: Mutex::new(()),
            side_by_side_max: ctx.env.parallelism() as u64,
            inserts_broken: AtomicBool::new(false),
        }
    }

    /// Locks the write path when everything that is in the log is in the memtable as well, unless the store is poisoned: who
    /// switches the memtable looks for that.
    pub(crate) fn lock(&self) -> QuickGuard<'_, Writer> {
        let writer = self.writer.lock();
        self.settle(&writer);
        writer
    }

    /// Number of threads whose batches were committed in the last 100 ms. Counted only if training is adaptive.
    pub(crate) fn recent_writers(&self) -> usize {
        self.recent_writers.lock().count(self.ctx.env.now())
    }

    /// An empty memtable; an error when there is no memory for it.
    pub(crate) fn new_memtable(&self) -> Result<MemtableWriter> {
        MemtableWriter::new(self.ctx.options.memtable_budget(), &self.shares.memtables)
    }

    /// Sets the charge of writers by the debt of the newest version, and by that of separated values when it was last measured.
    pub(crate) fn measure_pressure(&self) {
        let debts = self.version_set.ledger.lock().debt_ratios();
        let value_debt = f64::from_bits(self.ctx.value_debt.load(Ordering::Relaxed));
        self.pressure.measure(debts, value_debt);
    }

    /// Makes the log durable.
    pub(crate) fn sync_log(&self) -> Result<()> {
        let mut writer = self.lock();
        self.ctx.status.check_writable()?;
        self.sync_writer(&mut writer)
    }

    /// Commits a batch. Returns its buffers for reuse, and the result.
    pub(crate) fn commit(&self, mut request: WriteRequest) -> (Operations, Result<()>) {
        if request.operations.count() == 0 {
            // It has nothing to log, but it promises that the writes before it are durable.
            let is_synced = matches!(request.durability, Durability::Sync);
            let result = if is_synced { self.sync_log() } else { self.ctx.status.check_writable() };
            return (request.operations, result);
        }
        if !request.may_wait && self.writers_wait.load(Ordering::Relaxed) {
            return (request.operations, Err(would_wait("writers are waiting for background work")));
        }
        if let Some(result) = self.commit_side_by_side(&mut request) {
            failpoint::report("commit.first_seq", request.first_seq);
            return (request.operations, result);
        }
        let done = self.queue.submit(request, |group| self.lead(group));
        failpoint::report("commit.first_seq", done.first_seq);
        let result = done.result.unwrap_or_else(|| Err(self.ctx.status.set_poison(leader_panicked())));
        (done.operations, result)
    }

    /// Asks for pages of the log, unless another thread does or the store was closed.
    #[cold]
    fn prepare_log(&self, file: &dyn File) {
        if let Some(_close_waits) = self.preparing.try_lock()
            && self.ctx.status.check_not_closed().is_ok()
        {
            file.prepare_small_writes();
        }
    }

    /// Waits until no thread asks for pages of the log. Requires: the store is marked as closed.
    pub(crate) fn end_preparing(&self) {
        drop(self.preparing.lock());
    }

    /// Adds the time since `started` to the time that writers were stalled, and returns it.
    fn add_stall(&self, started: Duration) -> Duration {
        let waited = self.ctx.env.now().saturating_sub(started);
        add(&self.ctx.counters.stall_ns, u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
        waited
    }

    /// The error of a failed append or rotation. A shortage leaves the store as it was. Any other I/O error poisons it, as
    /// does a full disk that only a sync noticed.
    fn log_failed(&self, log: &LogWriter, error: Error) -> Error {
        let is_harmless = error.is_shortage() || error.kind() != ErrorKind::Io;
        if is_harmless && !log.is_poisoned() { error } else { self.ctx.status.set_poison(error) }
    }

    /// Wakes the cleaner if the memtable, which had `before` deletes, has now enough to be flushed for.
    #[inline]
    fn note_deletes(&self, memtable: &Memtable, before: u64) {
        if before < DELETES_WORTH_FLUSH
            && memtable.deletes() >= DELETES_WORTH_FLUSH
            && let Some(wakers) = self.ctx.status.wakers()
        {
            wakers.cleaner.wake();
        }
    }

    /// Lets the log forget the writes that are in SSTs: they need no sync, and their segments are obsolete.
    pub(crate) fn forget_flushed(&self, writer: &mut Writer) {
        let state = self.version_set.state.load();
        writer.log.mark_durable(state.version.flushed_seq);
        let retired = writer.log.forget_before(state.version.log_floor);
        if !retired.is_empty() {
            self.version_set.record_files.lock().retired.append(retired);
        }
    }

    /// Makes everything written so far durable. After an error what was appended may be there at the next open, or not.
    pub(crate) fn sync_writer(&self, writer: &mut Writer) -> Result<()> {
        self.forget_flushed(writer);
        let mut others_wait = None;
        if writer.log.has_unsynced_full_segments() {
            others_wait = Some(self.full_segment_syncs.lock());
            self.ctx.status.check_not_poisoned()?;
        }
        let synced = writer.log.sync().map_err(|error| {
            // Otherwise a failed append could not be overwritten, and the next sync tries again. A group that is being committed
            // meets no such error: its append has settled that.
            let is_lost = writer.log.is_poisoned();
            if is_lost { self.sync_failed(error) } else { self.log_failed(&writer.log, error) }
        });
        drop(others_wait);
        synced
    }

    /// Syncs a full segment of the log, whose values a flush keeps where they are.
    ///
    /// A commit leader may sync the same segment by the handle of the log. A failed sync can be the only one that tells of lost
    /// bytes. So the two take turns, and who comes second finds the store poisoned. Does not take `writer`.
    pub(crate) fn sync_full_segment(&self, segment: FileId, handle: &dyn File) -> Result<()> {
        failpoint::reached("flush.segment_sync");
        let _others_wait = self.full_segment_syncs.lock();
        self.ctx.status.check_not_poisoned()?;
        handle.sync("value_segment.sync").map_err(|e| {
            self.lost_values.store(true, Ordering::Release);
            self.sync_failed(Error::io("sync the log segment", &segment_path(&self.ctx.dir, segment), e))
        })
    }

    fn sync_failed(&self, error: Error) -> Error {
        failpoint::reached("log.sync_failed");
        self.ctx.status.set_poison(error)
    }

    /// Whether writes may be lost because a full segment could not be synced.
    pub(crate) fn may_have_lost_values(&self) -> bool {
        self.lost_values.load(Ordering::Acquire)
    }

    /// Starts a new log segment.
    pub(crate) fn rotate_log(&self, writer: &mut Writer) -> Result<()> {
        self.forget_flushed(writer);
        let id = self.version_set.new_file_id();
        let full = writer.log.segment_id();
        let handle = writer.memtable.has_separated().then(|| self.open_again(full)).flatten();
        let rotated = writer.log.rotate(id, self.version_set.manifest_hint());
        let end = rotated.map_err(|e| self.log_failed(&writer.log, e))?;
        self.ctx.counters.log_is_mapped.store(writer.log.is_mapped(), Ordering::Relaxed);
        self.version_set.record_files.lock().began_segment(id, full, FullSegment { end, handle });
        Ok(())
    }

    /// Opens a segment once more, so that a flush can sync it and learns of every failed write. The system reports a failure to
    /// each handle that was open then, but only once to each, and the log's own handle may be synced at the same time. No sync
    /// runs now, because that takes `writer`; so a failure of before is reported to the new handle, or has poisoned the store.
    ///
    /// `None` if that fails: then the flush copies the values of the segment.
    fn open_again(&self, segment: FileId) -> Option<Arc<dyn File>> {
        let options = OpenOptions { write: true, direct: false };
        self.ctx.env.open_file(&segment_path(&self.ctx.dir, segment), options).ok()
    }

    /// Whether the active memtable should be switched rather than take `footprint` bytes more.
    pub(crate) fn is_full_for(&self, writer: &Writer, footprint: Footprint) -> bool {
        let memtable = &writer.memtable;
        !memtable.is_empty() && memtable.is_full_for(footprint, self.ctx.options.memtable_budget())
    }

    #[inline]
    fn must_wait_for_flush(&self) -> bool {
        self.version_set.state.immutable_count() >= IMMUTABLE_MEMTABLES_MAX
    }

    /// Waits until the memtable can be switched.
    pub(crate) fn wait_for_flush(&self) -> Result<()> {
        if !self.must_wait_for_flush() {
            return Ok(());
        }
        let started = self.ctx.env.now();
        self.writers_wait.store(true, Ordering::Relaxed);
        let waited = self.ctx.status.wait_until(|| !self.must_wait_for_flush());
        self.writers_wait.store(false, Ordering::Relaxed);
        trace::stall(self.add_stall(started));
        waited
    }

    /// Makes the active memtable immutable and starts a new one with a new log segment. If there is no memory for the new
    /// one, nothing changes.
    pub(crate) fn switch_memtable(&self, writer: &mut Writer) -> Result<()> {
        if writer.memtable.is_empty() {
            return Ok(());
        }
        let memtable = self.new_memtable()?;
        self.rotate_log(writer)?;
        let now = u64::try_from(self.ctx.env.now().as_nanos()).unwrap_or(u64::MAX);
        self.switched_at_ns.store(now, Ordering::Relaxed);
        let first_segment = writer.log.segment_id();
        self.start_memtable(writer, memtable, first_segment);
        if let Some(wakers) = self.ctx.status.wakers() {
            wakers.flush.wake();
        }
        Ok(())
    }

    /// Switches the memtable, unless that would wait for a lock or a flush. Returns whether it did.
    ///
    /// Jobs never wait for `writer`: a commit leader may hold it while it waits for them.
    pub(crate) fn switch_if_free(&self) -> Result<bool> {
        let Some(mut writer) = self.writer.try_lock() else { return Ok(false) };
        self.settle(&writer);
        if self.ctx.status.check_writable().is_err() || self.must_wait_for_flush() {
            return Ok(false);
        }
        self.switch_memtable(&mut writer).map(|()| true)
    }

    /// Makes the active memtable immutable and starts `memtable`, whose writes go to log segment `first_segment` and later ones.
    pub(crate) fn start_memtable(
        &self,
        writer: &mut Writer,
        memtable: MemtableWriter,
        first_segment: FileId,
    ) {
        writer.room_until = 0;
        let active = Arc::new(LoggedMemtable { memtable: Arc::clone(&memtable), first_segment });
        writer.memtable = memtable;
        self.version_set.state.swap(|state| {
            let immutable = std::iter::once(&state.active).chain(&state.immutable).cloned().collect();
            State { active, immutable, ..state.clone() }
        });
    }
}

/// The error of a batch whose leader panicked, and of every later one.
fn leader_panicked() -> Error {
    Error::new(ErrorKind::Poisoned, "a thread that was committing a batch panicked; open the store again")
}

#[cfg(test)]
mod tests;
