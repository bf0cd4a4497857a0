//! The write path: group commit, room in the memtable, the log, the memtable.
//!
//! The leader of a group makes room, gives the batches their sequence numbers, appends them to the log with one write,
//! syncs if any of them asks for it, inserts them into the memtable and only then lets readers see them.
//!
//! # Invariants
//! 1. *Logged before visible*: a batch is in the log, and on the medium where asked, before any reader sees it.
//! 2. *Segment per memtable*: a new memtable starts a new log segment, so that a flush frees whole segments.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pleach_env::memory::RegionPool;
use pleach_env::sync::Mutex;
use pleach_env::{Error, ErrorKind, FileId, Result, failpoint};
use pleach_log::{Append, CommitQueue, Durability, LogWriter, SEQ_MAX, SeqNo};
use pleach_table::ValueKind;

use crate::attached::Attached;
use crate::context::Context;
use crate::memtable::{Footprint, Memtable, MemtableWriter};
use crate::operations::{Operation, Operations};
use crate::options::IMMUTABLE_MEMTABLES_MAX;
use crate::state::{LoggedMemtable, State};
use crate::stats::add;
use crate::tombstone_spans::TombstoneSpans;
use crate::trace;
use crate::version_set::VersionSet;

mod pressure;
mod request;
mod room;
mod touched;

use pressure::{Pressure, SLEEP_FOR_OTHERS_NS};
pub(crate) use request::{WriteRequest, dropped_error};
use request::{admit_to_memory, admitted_footprint, refuse_to_wait, waiting_bytes, would_wait};
pub(crate) use touched::{LivePartition, TouchedPartitions};

/// See the module's text.
pub(crate) struct WritePath {
    ctx: Arc<Context>,
    version_set: Arc<VersionSet>,
    /// Memory of memtables.
    memtable_pool: Arc<RegionPool>,
    /// Group commit of writers.
    queue: CommitQueue<WriteRequest>,
    /// The log and what commit leaders decide. Held by one commit leader, or by the thread that switches the memtable.
    pub(crate) writer: Mutex<Writer>,
    /// Drops of partitions since the open. Raised, under `writer`, after the flag of the partition.
    pub(crate) drops: AtomicU64,
    /// When, in the environment's time, the memtable was last switched.
    pub(crate) switched_at_ns: AtomicU64,
    /// The charge of writers for the debts of background work.
    pub(crate) pressure: Pressure,
    /// A commit leader waits for a flush, or is slowed down: a request that comes now would wait too.
    writers_wait: AtomicBool,
}

/// State that commit leaders own.
pub(crate) struct Writer {
    pub(crate) log: Attached<LogWriter>,
    pub(crate) next_seq: SeqNo,
    /// How far the active memtable may fill up before room on the disk is looked for again.
    pub(crate) room_until: usize,
    /// Memtable bytes of the deletes that were accepted although less was free than `room` keeps free.
    pub(crate) scant_bytes: usize,
    /// The active memtable of the newest state.
    pub(crate) memtable: MemtableWriter,
    /// The same in all states of the store.
    pub(crate) tombstone_spans: Arc<TombstoneSpans>,
}

impl WritePath {
    /// The write path of a store just opened. `writer` has what recovery left.
    pub(crate) fn new(
        ctx: &Arc<Context>,
        version_set: &Arc<VersionSet>,
        writer: Writer,
        memtable_pool: Arc<RegionPool>,
    ) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            version_set: Arc::clone(version_set),
            memtable_pool,
            queue: CommitQueue::new(WriteRequest::cost),
            writer: Mutex::new(writer),
            drops: AtomicU64::new(0),
            switched_at_ns: AtomicU64::new(0),
            pressure: Pressure::default(),
            writers_wait: AtomicBool::new(false),
        }
    }

    /// An empty memtable; an error when there is no memory for it.
    pub(crate) fn new_memtable(&self) -> Result<MemtableWriter> {
        MemtableWriter::new(self.ctx.options.memtable_budget(), &self.memtable_pool)
    }

    /// Looks at the debts of the newest version.
    pub(crate) fn measure_pressure(&self) {
        self.pressure.measure(self.version_set.ledger.lock().debt_ratios());
    }

    /// Makes the log durable.
    pub(crate) fn sync_log(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.ctx.status.check_writable()?;
        self.sync_writer(&mut writer)
    }

    /// Commits a batch; returns its buffers for reuse, and the result.
    pub(crate) fn commit(&self, request: WriteRequest) -> (Operations, Result<()>) {
        if request.operations.count() == 0 {
            return (request.operations, self.ctx.status.check_writable());
        }
        if !request.may_wait && self.writers_wait.load(Ordering::Relaxed) {
            return (request.operations, Err(would_wait("writers are waiting for background work")));
        }
        let done = self.queue.submit(request, |group| {
            let _armed = PoisonOnPanic(self);
            self.lead(group);
        });
        failpoint::tell("commit.first_seq", done.first_seq);
        let result = done.result.unwrap_or_else(|| Err(self.ctx.status.set_poison(leader_panicked())));
        (done.operations, result)
    }

    /// Commits a group.
    fn lead(&self, group: &mut [WriteRequest]) {
        failpoint::tell("commit.group", group.len() as u64);
        let mut writer = self.writer.lock();
        if let Err(error) = self.lead_admitted(&mut writer, group) {
            for request in group.iter_mut().filter(|r| r.result.is_none()) {
                request.result = Some(Err(error.clone()));
            }
        }
    }

    fn lead_admitted(&self, writer: &mut Writer, group: &mut [WriteRequest]) -> Result<()> {
        self.ctx.status.check_writable()?;
        let drops = self.drops.load(Ordering::Relaxed);
        for request in group.iter_mut() {
            if let Some(gone) = request.partitions.dropped(drops) {
                request.result = Some(Err(dropped_error(&gone.name)));
            }
        }
        let footprint = admitted_footprint(group);
        let is_full = self.is_full_for(writer, footprint);
        if is_full {
            if self.must_wait_for_flush() {
                refuse_to_wait(group, "the memtables are full until a flush ends");
            }
            if group.iter().all(|request| request.result.is_some()) {
                return Ok(());
            }
            self.wait_for_flush()?;
        }
        self.admit_to_room(writer, group, footprint);
        if is_full && group.iter().any(|request| request.result.is_none()) {
            self.switch_memtable(writer)?;
        }
        let ratio = self.memtable_ratio(writer);
        let is_slowed = self.pressure.is_on(ratio);
        if is_slowed && self.pressure.must_sleep(waiting_bytes(group), ratio, self.ctx.env.now()) {
            refuse_to_wait(group, "background work is behind");
        }
        // After the log only the device may fail, so all memory is reserved here. Requests that were refused since the
        // footprint was summed up are still in it: a little too much is reserved.
        if !writer.memtable.reserve(footprint) {
            admit_to_memory(&mut writer.memtable, group);
        }
        self.log_group(writer, group)?;
        self.insert_group(writer, group);
        if is_slowed {
            self.pay(group, ratio);
        }
        Ok(())
    }

    /// Fill ratio of the memtables: 0 while the active one can be switched, then that of the active one; at 1 writers wait.
    fn memtable_ratio(&self, writer: &Writer) -> f64 {
        if !self.must_wait_for_flush() {
            return 0.0;
        }
        let kib = |bytes: usize| f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX));
        kib(writer.memtable.used_bytes()) / kib(self.ctx.options.memtable_budget())
    }

    /// Sleeps for what the group has written, if background work is behind. Those who are not to wait leave it owed.
    fn pay(&self, group: &[WriteRequest], ratio: f64) {
        let written = || group.iter().filter(|r| matches!(r.result, Some(Ok(()))));
        let bytes = written().map(|r| r.operations.record_len()).sum();
        if bytes == 0 {
            return;
        }
        let started = self.ctx.env.now();
        let due = self.pressure.charge(bytes, ratio, started);
        if let Some(due) = due.filter(|_| written().any(|r| r.may_wait)) {
            let ratio_now = || if self.must_wait_for_flush() { ratio } else { 0.0 };
            let is_over = || self.ctx.status.is_closed() || !self.pressure.is_on(ratio_now());
            let is_felt = due >= Duration::from_nanos(SLEEP_FOR_OTHERS_NS);
            self.writers_wait.store(is_felt, Ordering::Relaxed);
            if !self.ctx.sleep_unless(due, is_over) {
                self.pressure.forgive();
            }
            self.writers_wait.store(false, Ordering::Relaxed);
            trace::slowdown(self.add_stall(started));
        }
    }

    /// Counts the time since `started`, which is returned, as one in which writers were held up.
    fn add_stall(&self, started: Duration) -> Duration {
        let waited = self.ctx.env.now().saturating_sub(started);
        add(&self.ctx.counters.stall_ns, u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
        waited
    }

    /// Appends the admitted batches to the log.
    fn log_group(&self, writer: &mut Writer, group: &mut [WriteRequest]) -> Result<()> {
        let admitted = || group.iter().filter(|r| r.result.is_none());
        let bytes: usize = admitted().map(|r| r.operations.record_len()).sum();
        let count: u64 = admitted().map(|r| u64::from(r.operations.count())).sum();
        let syncs = admitted().any(|r| r.durability == Durability::Sync);
        if count == 0 {
            return Ok(());
        }
        if writer.next_seq + count > SEQ_MAX {
            return Err(Error::new(ErrorKind::Unsupported, "the store has used up its sequence numbers"));
        }
        if writer.log.should_rotate(bytes) {
            self.rotate_log(writer)?;
        }
        prefetch_small(&writer.memtable, group);
        let mut next_seq = writer.next_seq;
        let records = group.iter_mut().filter(|r| r.result.is_none()).map(|request| {
            let (first_seq, count) = (next_seq, request.operations.count());
            next_seq += u64::from(count);
            request.first_seq = first_seq;
            Append { record: request.operations.record_mut(), first_seq, count }
        });
        let start = writer.log.offset();
        let appended = writer.log.append(records);
        appended.map_err(|e| self.log_failed(&writer.log, e))?;
        add(&self.ctx.counters.log_bytes, writer.log.offset() - start);
        if syncs {
            self.sync_writer(writer)?;
        }
        Ok(())
    }

    /// Inserts the logged batches into the memtable and shows them to readers.
    fn insert_group(&self, writer: &mut Writer, group: &mut [WriteRequest]) {
        let admitted = || group.iter().filter(|r| r.result.is_none());
        let count: u64 = admitted().map(|r| u64::from(r.operations.count())).sum();
        if writer.tombstone_spans.announce(writer.next_seq + count - 1) {
            admitted().for_each(|request| invalidate_spans(&writer.tombstone_spans, request));
        }
        let memtable = &mut writer.memtable;
        for request in group.iter_mut().filter(|r| r.result.is_none()) {
            insert_batch(memtable, &mut request.operations, &mut writer.next_seq);
            add(&self.ctx.counters.operations, u64::from(request.operations.count()));
            request.result = Some(Ok(()));
        }
        failpoint::reached("commit.inserted");
        self.version_set.state.show_up_to(writer.next_seq - 1);
    }

    /// A failed append: a shortage leaves the store as it was, anything else ends writing. So does a full disk that
    /// a sync was the first to find.
    fn log_failed(&self, log: &LogWriter, error: Error) -> Error {
        let is_harmless = error.is_shortage() || error.kind() != ErrorKind::Io;
        if is_harmless && !log.is_poisoned() { error } else { self.ctx.status.set_poison(error) }
    }

    /// Lets the log forget what is in SSTs by now: it need not be synced any more, and its files can go.
    pub(crate) fn forget_flushed(&self, writer: &mut Writer) {
        let state = self.version_set.state.load();
        writer.log.mark_durable(state.version.flushed_seq);
        let retired = writer.log.forget_before(state.version.log_floor);
        if !retired.is_empty() {
            self.version_set.record_files.lock().retired.append(retired);
        }
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync_writer(&self, writer: &mut Writer) -> Result<()> {
        self.forget_flushed(writer);
        writer.log.sync().map_err(|e| self.ctx.status.set_poison(e))
    }

    /// Starts a new log segment.
    pub(crate) fn rotate_log(&self, writer: &mut Writer) -> Result<()> {
        self.forget_flushed(writer);
        let id = self.version_set.new_file_id();
        let rotated = writer.log.rotate(id, self.version_set.manifest_hint());
        rotated.map_err(|e| self.log_failed(&writer.log, e))?;
        self.version_set.record_files.lock().segments.push(id);
        Ok(())
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
            let mut immutable = Vec::with_capacity(state.immutable.len() + 1);
            immutable.push(Arc::clone(&state.active));
            immutable.extend(state.immutable.iter().cloned());
            State { active, immutable, ..state.clone() }
        });
    }
}

/// Has the index lines of the first operations fetched while the log is being written.
fn prefetch_small(memtable: &Memtable, group: &[WriteRequest]) {
    for request in group.iter().filter(|r| r.operations.count() == 1) {
        request.operations.for_each(&mut |op| memtable.prefetch(op.hash()));
    }
}

/// Removes the spans that contain a key which the request puts.
fn invalidate_spans(tombstone_spans: &TombstoneSpans, request: &WriteRequest) {
    request.operations.for_each(&mut |op| {
        if op.kind != ValueKind::Tombstone {
            tombstone_spans.invalidate(&op.partition_key());
        }
    });
}

/// Poisons the store when the leader panics. Its batches may be in the log and half of them in the memtable, so
/// nothing of them may be flushed, and `next_seq` may be ahead of what ever becomes visible.
struct PoisonOnPanic<'a>(&'a WritePath);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A subscriber of `tracing` may panic once more. The poison is set before it is called.
            let _second_panic =
                catch_unwind(AssertUnwindSafe(|| self.0.ctx.status.set_poison(leader_panicked())));
        }
    }
}

/// The error of a batch whose leader did not answer, and of every later one.
fn leader_panicked() -> Error {
    Error::new(ErrorKind::Poisoned, "a thread that was committing a batch panicked; open the store again")
}

/// Inserts a batch's operations under consecutive sequence numbers from `next_seq` on.
#[inline]
fn insert_batch(memtable: &mut MemtableWriter, operations: &mut Operations, next_seq: &mut u64) {
    if operations.has_large() {
        return insert_with_large(memtable, operations, next_seq);
    }
    operations.for_each(&mut |op| insert(memtable, &op, next_seq));
}

/// The same, where large values become part of the memtable with the regions they lie in.
#[cold]
fn insert_with_large(memtable: &mut MemtableWriter, operations: &mut Operations, next_seq: &mut u64) {
    operations.take_each(&mut |op, large| match large {
        None => insert(memtable, &op, next_seq),
        Some(value) => {
            memtable.insert_large(op.hash(), &op.partition_key(), *next_seq, value);
            *next_seq += 1;
        }
    });
}

#[inline]
fn insert(memtable: &mut MemtableWriter, op: &Operation<'_>, next_seq: &mut u64) {
    memtable.insert(op.hash(), &op.partition_key(), *next_seq, op.kind, op.value);
    *next_seq += 1;
}

/// Inserts the operations of a recovered record under consecutive sequence numbers from `next_seq` on.
pub(crate) fn insert_operations(memtable: &mut MemtableWriter, payload: &[u8], next_seq: &mut u64) {
    Operations::decode(payload, &mut |op| insert(memtable, &op, next_seq))
        .expect("operations were checked by recovery");
}

#[cfg(test)]
mod tests;
