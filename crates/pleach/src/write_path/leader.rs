//! Commit leader: the commit of one group of batches.
//!
//! The leader takes these steps. Each may refuse batches of the group; later steps skip those.
//! 1. Refuse batches that write to a dropped partition.
//! 2. If the memtable is full, switch it; if the immutable memtables are too many, wait for a flush first.
//! 3. Check the free space on the disk (`room`), and reserve the memory that the group takes in the memtable. The cache gives
//!    way (`memory_shares`).
//! 4. Append the batches to the log with one write, and sync it if one of them asks for that.
//! 5. Insert them into the memtable, and then let readers see them.
//! 6. Sleep if background work is behind (`pressure`).
//!
//! # Invariants
//! 1. *Only the device fails after the append*: all memory is reserved before it.
//! 2. *One order*: the log and the memtable take the batches of a group in the same order.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use pleach_env::{Error, ErrorKind, FileId, Result, failpoint};
use pleach_log::{Append, SEQ_MAX, SeqNo};
use pleach_table::ValueKind;

use super::pressure::SLEEP_FOR_OTHERS_NS;
use super::recent_writers::is_noted;
use super::request::{
    admit_to_memory, admitted, admitted_footprint, admitted_mut, refuse_to_wait, waiting_bytes,
};
use super::{WritePath, WriteRequest, Writer, dropped_error};
use crate::memtable::{Memtable, MemtableWriter, Place};
use crate::operations::{Operation, Operations};
use crate::trace;
use crate::values::CHECKSUM_LEN;

impl WritePath {
    /// Commits a group: sets the result of each request.
    pub(super) fn lead(&self, group: &mut [WriteRequest]) {
        failpoint::report("commit.group", group.len() as u64);
        let mut writer = self.lock();
        let led = catch_unwind(AssertUnwindSafe(|| self.lead_admitted(&mut writer, group)));
        let led = led.unwrap_or_else(|panic| {
            // Its batches may be in the log, and half of them in the memtable, so nothing may be logged or flushed any more. The
            // lock is still held: the next writer finds the store poisoned.
            self.break_inserts();
            resume_unwind(panic)
        });
        if let Err(error) = led {
            admitted_mut(group).for_each(|request| request.result = Some(Err(error.clone())));
        }
    }

    /// Takes the steps of the module's text. The error is that of all requests without a result.
    fn lead_admitted(&self, writer: &mut Writer, group: &mut [WriteRequest]) -> Result<()> {
        self.ctx.status.check_writable()?;
        if self.ctx.options.is_adaptive() && is_noted(group.len(), writer.next_seq) {
            let threads = group.iter().map(|request| request.thread);
            self.recent_writers.lock().note(self.ctx.env.now(), threads);
        }
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
            if admitted(group).next().is_none() {
                return Ok(());
            }
            self.wait_for_flush()?;
        }
        self.admit_to_room(writer, group, footprint);
        if is_full && admitted(group).next().is_some() {
            self.switch_memtable(writer)?;
        }
        let ratio = self.memtable_ratio(writer);
        let is_slowed = self.pressure.is_on(ratio);
        if is_slowed && self.pressure.must_sleep(waiting_bytes(group), ratio, self.ctx.env.now()) {
            refuse_to_wait(group, "background work is behind");
        }
        // The footprint still contains the requests that were refused meanwhile: a little too much is reserved.
        if !writer.memtable.reserve(footprint) {
            admit_to_memory(&mut writer.memtable, group);
        }
        self.shares.follow_memtables();
        self.log_group(writer, group)?;
        self.insert_group(writer, group);
        if is_slowed {
            self.pay(group, ratio);
        }
        Ok(())
    }

    /// Fill ratio of the memtables: 0 while the active one can be switched, otherwise that of the active one. At 1 writers
    /// wait.
    pub(super) fn memtable_ratio(&self, writer: &Writer) -> f64 {
        if !self.must_wait_for_flush() {
            return 0.0;
        }
        let kib = |bytes: usize| f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX));
        kib(writer.memtable.used_bytes()) / kib(self.ctx.options.memtable_budget())
    }

    /// Charges the group for the bytes that it wrote, and sleeps for the time that is due. If none of its requests may wait,
    /// the time stays owed.
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

    /// Appends the admitted batches to the log.
    fn log_group(&self, writer: &mut Writer, group: &mut [WriteRequest]) -> Result<()> {
        let bytes: usize = admitted(group).map(|r| r.operations.record_len()).sum();
        let count: u64 = admitted(group).map(|r| u64::from(r.operations.count())).sum();
        let syncs = admitted(group).any(WriteRequest::syncs);
        if count == 0 {
            return Ok(());
        }
        if writer.next_seq + count > SEQ_MAX {
            return Err(Error::new(ErrorKind::Unsupported, "the store has used up its sequence numbers"));
        }
        if writer.log.should_rotate(bytes) {
            self.rotate_log(writer)?;
        }
        admitted(group)
            .fold(PREFETCHED_MAX, |budget, request| prefetch(&writer.memtable, &request.operations, budget));
        let mut next_seq = writer.next_seq;
        let records = admitted_mut(group).map(|request| {
            let (first_seq, count) = (next_seq, request.operations.count());
            next_seq += u64::from(count);
            request.first_seq = first_seq;
            Append { record: request.operations.record_mut(), first_seq, count }
        });
        let start = writer.log.offset();
        let appended = writer.log.append(records);
        appended.map_err(|e| self.log_failed(&writer.log, e))?;
        self.version_set.state.shown().count(0, writer.log.offset() - start);
        if syncs {
            self.sync_writer(writer)?;
        }
        Ok(())
    }

    /// Inserts the logged batches into the memtable and shows them to readers.
    fn insert_group(&self, writer: &mut Writer, group: &mut [WriteRequest]) {
        let count: u64 = admitted(group).map(|r| u64::from(r.operations.count())).sum();
        if writer.tombstone_spans.announce(writer.next_seq + count - 1) {
            admitted(group).for_each(|request| {
                request.operations.for_each(&mut |op| {
                    if op.kind != ValueKind::Tombstone {
                        writer.tombstone_spans.invalidate(&op.partition_key());
                    }
                });
            });
        }
        let segment = writer.log.segment_id();
        let memtable = &mut writer.memtable;
        let deletes = memtable.deletes();
        for request in admitted_mut(group) {
            insert_batch(memtable, &mut request.operations, segment, &mut writer.next_seq);
            self.version_set.state.shown().count(request.operations.count(), 0);
            request.result = Some(Ok(()));
        }
        failpoint::reached("commit.inserted");
        self.version_set.state.show_up_to(writer.next_seq - 1);
        self.turns.notify();
        self.note_deletes(&writer.memtable, deletes);
    }
}

/// Lines of the index that are prefetched for a group at most: more would not stay in the processor's cache until they are
/// needed (arbitrary: 256 KiB).
pub(super) const PREFETCHED_MAX: u32 = 4096;

/// Prefetches the lines of the index that the inserts of a batch will read, before the batch goes to the log, unless they are
/// more than `budget`. Returns the rest of it. A single operation does not count.
#[inline]
pub(super) fn prefetch(memtable: &Memtable, operations: &Operations, budget: u32) -> u32 {
    if let Some(hash) = operations.only_hash() {
        memtable.prefetch(hash);
    } else if operations.count() <= budget && !memtable.is_empty() {
        operations.for_each_hash(&mut |hash| memtable.prefetch(hash));
        return budget - operations.count();
    }
    budget
}

/// Inserts a batch's operations, which were appended to `segment`, under consecutive sequence numbers from `next_seq` on.
#[inline]
fn insert_batch(
    memtable: &mut MemtableWriter,
    operations: &mut Operations,
    segment: FileId,
    next_seq: &mut u64,
) {
    let place = PayloadPlace { segment, offset: operations.payload_offset() };
    if operations.is_in_pieces() {
        return insert_in_pieces(memtable, operations, place, next_seq);
    }
    operations.for_each(&mut |op| insert(memtable, &op, Some(place), next_seq));
}

/// Where in the log a batch is.
#[derive(Clone, Copy)]
pub(crate) struct PayloadPlace {
    pub(crate) segment: FileId,
    /// Of the payload.
    pub(crate) offset: u64,
}

impl PayloadPlace {
    /// The place of an operation's value, if it is to be separated.
    #[inline]
    pub(super) fn of_value(self, op: &Operation<'_>) -> Option<Place> {
        let offset = || self.offset + (op.value_at - CHECKSUM_LEN) as u64;
        (op.kind == ValueKind::ValuePointer).then(|| Place {
            segment: self.segment,
            offset: u32::try_from(offset()).expect("a segment is shorter than 4 GiB"),
            len: u32::try_from(op.stored_len).expect("values are at most VALUE_LEN_MAX"),
        })
    }
}

/// The same for a batch with values that are large or packed. Large values become part of the memtable with the regions they
/// lie in.
#[cold]
fn insert_in_pieces(
    memtable: &mut MemtableWriter,
    operations: &mut Operations,
    place: PayloadPlace,
    next_seq: &mut u64,
) {
    operations.take_each(&mut |op, large| match large {
        None => insert(memtable, &op, Some(place), next_seq),
        Some(value) => {
            let place = place.of_value(&op);
            memtable.insert_large(op.hash(), &op.partition_key(), *next_seq, place, value);
            *next_seq += 1;
        }
    });
}

#[inline]
fn insert(
    memtable: &mut MemtableWriter,
    op: &Operation<'_>,
    place: Option<PayloadPlace>,
    next_seq: &mut u64,
) {
    if op.kind == ValueKind::ValuePointer {
        insert_separated(memtable, op, place, *next_seq);
    } else {
        memtable.insert(op.hash(), &op.partition_key(), *next_seq, op.kind, op.value);
    }
    *next_seq += 1;
}

/// Inserts a put whose value is to be separated. Without a place in the log, which a store has that is open for reading only,
/// it is an ordinary put.
#[cold]
fn insert_separated(
    memtable: &mut MemtableWriter,
    op: &Operation<'_>,
    place: Option<PayloadPlace>,
    seq: SeqNo,
) {
    let (hash, key) = (op.hash(), op.partition_key());
    match place.and_then(|place| place.of_value(op)) {
        Some(place) => memtable.insert_separated(hash, &key, seq, place, op.value),
        None => memtable.insert(hash, &key, seq, ValueKind::Put, op.value),
    }
}

/// Inserts the operations of a recovered record under consecutive sequence numbers from `next_seq` on. `place` is where it was
/// appended again, if it was.
pub(crate) fn insert_operations(
    memtable: &mut MemtableWriter,
    payload: &[u8],
    place: Option<PayloadPlace>,
    next_seq: &mut u64,
) {
    Operations::decode_raw(payload, &mut |op| insert(memtable, &op, place, next_seq))
        .expect("operations were checked by recovery");
}
