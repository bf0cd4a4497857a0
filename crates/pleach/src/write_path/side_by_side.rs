//! Commits side by side, without a leader: writers pass two short steps one behind the other, as in a pipeline, and do the rest
//! at the same time.
//!
//! 1. Under `writer`: admission, memory, sequence numbers, and the record in the log. It fails as a group of one does.
//! 2. The inserts are prepared: their keys are looked for in the memtable, and the records of new keys are written. It takes
//!    most of the time, because it waits for memory.
//! 3. At its turn, when everything before it is in the memtable: the inserts, and then readers may see them.
//!
//! Whatever is unusual goes to the commit queue: a sync, large or packed values, a memtable that is full, back-pressure, a log
//! that is not mapped (waiting writers then save calls by sharing one), a lock that is not free soon. So do writers
//! beyond the number of processors: they would wait for the turn of a thread that has no processor, and waking them costs more
//! than a leader that does their work.
//!
//! # Invariants
//! 1. *One order*: log, sequence numbers and memtable have writes in the same order.
//! 2. *Every turn ends*: a number that was given is shown, or the inserts are marked as broken, which ends all waits.
//!
//! # Concurrency
//! [`CurrentState::visible`](crate::state::CurrentState::visible) is the turn: number `n` has it when `n - 1` is visible. A
//! thread that needs a memtable without pending inserts calls [`WritePath::lock`], which waits for them. A thread whose turn
//! comes takes no lock that others hold during I/O.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_env::{File, Result, failpoint};
use pleach_log::{Append, Durability, SEQ_MAX, SeqNo};
use pleach_table::ValueKind;

use super::leader::{PREFETCHED_MAX, PayloadPlace, prefetch};
use super::recent_writers::is_noted;
use super::{WritePath, WriteRequest, Writer, leader_panicked};
use crate::memtable::{Footprint, Insert, Memtable, SideInserts};

/// A batch that is in the log and waits for its turn.
pub(super) struct Logged<'p, 'm> {
    inserts: SideInserts<'m>,
    turn: Turn<'p>,
    place: PayloadPlace,
    log_bytes: u64,
    /// The log's file, if the system is to be asked for pages that the next records need.
    to_prepare: Option<Arc<dyn File>>,
}

impl WritePath {
    /// Commits a batch; `None` if it has to go to the commit queue.
    pub(super) fn commit_side_by_side(&self, request: &mut WriteRequest) -> Option<Result<()>> {
        if request.durability != Durability::Buffered || request.operations.is_in_pieces() {
            return None;
        }
        let state = self.version_set.state.load();
        let memtable = &state.active.memtable;
        prefetch(memtable, &request.operations, PREFETCHED_MAX);
        let logged = {
            let mut writer = self.writer.lock_soon()?;
            match self.log_side_by_side(&mut writer, request, memtable)? {
                Ok(logged) => logged,
                Err(error) => return Some(Err(error)),
            }
        };
        let Logged { mut inserts, turn, place, log_bytes, to_prepare } = logged;
        let count = request.operations.count();
        let for_each_insert = |visit: &mut dyn FnMut(&Insert<'_>)| {
            let mut seq = turn.first_seq;
            request.operations.for_each(&mut |op| {
                let (hash, key, place) = (op.hash(), op.partition_key(), place.of_value(&op));
                visit(&Insert { hash, key: &key, seq, kind: op.kind, place, value: op.value });
                seq += 1;
            });
        };
        // Neighbours in a batch change each other's leaves, so their places are worth looking for only while it has to wait.
        if count == 1 || !turn.has_come() {
            for_each_insert(&mut |insert| inserts.prepare(insert));
        }
        failpoint::reached("commit.side_by_side");
        self.turns.wait_until(|| turn.has_come() || self.is_broken());
        if !turn.has_come() {
            return Some(self.ctx.status.check_not_poisoned());
        }
        let deletes = memtable.deletes();
        let has_spans = state.tombstone_spans.announce(turn.last_seq);
        let mut inserts = inserts.begin();
        for_each_insert(&mut |insert| {
            if has_spans && insert.kind != ValueKind::Tombstone {
                state.tombstone_spans.invalidate(insert.key);
            }
            inserts.insert(insert);
        });
        inserts.end();
        self.version_set.state.shown().count(count, log_bytes);
        failpoint::reached("commit.inserted");
        turn.end();
        self.note_deletes(memtable, deletes);
        // Nobody waits for this batch any more.
        if let Some(file) = to_prepare {
            self.prepare_log(&*file);
        }
        Some(Ok(()))
    }

    /// Admits the batch and appends it to the log; `None` if it has to go to the commit queue. After an error it is not in the
    /// log.
    #[inline]
    pub(super) fn log_side_by_side<'p, 'm>(
        &'p self,
        writer: &mut Writer,
        request: &mut WriteRequest,
        memtable: &'m Arc<Memtable>,
    ) -> Option<Result<Logged<'p, 'm>>> {
        let footprint = request.operations.footprint();
        let (first_seq, count) = (writer.next_seq, request.operations.count());
        let under_way = writer.side_by_side - self.version_set.state.shown().side_by_side();
        let is_usual = self.ctx.status.check_writable().is_ok()
            && writer.log.is_mapped()
            && !self.is_full_for(writer, footprint)
            && writer.memtable.used_bytes_with(footprint) <= writer.room_until
            && !self.pressure.is_on(self.memtable_ratio(writer))
            && first_seq + u64::from(count) <= SEQ_MAX
            && under_way < self.side_by_side_max
            && !writer.log.should_rotate(request.operations.record_len())
            && request.partitions.dropped(self.drops.load(Ordering::Relaxed)).is_none();
        if !is_usual {
            return None;
        }
        if self.ctx.options.is_adaptive() && is_noted(1, first_seq) {
            self.recent_writers.lock().note(self.ctx.env.now(), std::iter::once(request.thread));
        }
        let inserts = match writer.memtable.claim(memtable, footprint) {
            Some(inserts) => inserts,
            None => self.reserve_and_claim(writer, memtable, footprint)?,
        };
        request.first_seq = first_seq;
        let record = Append { record: request.operations.record_mut(), first_seq, count };
        let start = writer.log.offset();
        // From here on a panic leaves a number that is never shown.
        let turn = Turn { path: self, first_seq, last_seq: first_seq + u64::from(count) - 1 };
        if let Err(error) = writer.log.append([record]) {
            std::mem::forget(turn);
            writer.memtable.undo_claim(inserts, footprint);
            return Some(Err(self.log_failed(&writer.log, error)));
        }
        writer.next_seq += u64::from(count);
        writer.side_by_side += 1;
        failpoint::report("commit.under_way", under_way);
        let place =
            PayloadPlace { segment: writer.log.segment_id(), offset: request.operations.payload_offset() };
        let (log_bytes, to_prepare) = (writer.log.offset() - start, writer.log.file_to_prepare());
        Some(Ok(Logged { inserts, turn, place, log_bytes, to_prepare }))
    }

    /// Reserves memory first, which needs a memtable without inserts under way.
    #[cold]
    fn reserve_and_claim<'m>(
        &self,
        writer: &mut Writer,
        memtable: &'m Arc<Memtable>,
        footprint: Footprint,
    ) -> Option<SideInserts<'m>> {
        self.settle(writer);
        if self.is_broken() || !writer.memtable.reserve(footprint) {
            return None;
        }
        self.shares.follow_memtables();
        writer.memtable.claim(memtable, footprint)
    }

    /// Waits until everything in the log is in the memtable. Requires: `writer` is locked, so nothing comes behind it.
    pub(super) fn settle(&self, writer: &Writer) {
        self.turns.wait_until(|| self.version_set.state.visible() + 1 >= writer.next_seq || self.is_broken());
    }

    /// Whether a thread panicked between the log and the memtable: turns come no more.
    fn is_broken(&self) -> bool {
        self.inserts_broken.load(Ordering::Acquire)
    }
}

/// The turn of a batch. Dropped in a panic, it breaks the inserts.
pub(super) struct Turn<'a> {
    path: &'a WritePath,
    first_seq: SeqNo,
    last_seq: SeqNo,
}

impl Turn<'_> {
    #[inline]
    fn has_come(&self) -> bool {
        self.path.version_set.state.visible() + 1 == self.first_seq
    }

    /// Shows the writes to readers, and gives the turn to the next batch.
    #[inline]
    fn end(self) {
        self.path.version_set.state.shown().show_side_by_side(self.last_seq);
        self.path.turns.notify();
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.path.break_inserts();
    }
}

impl WritePath {
    /// After a panic between log and memtable: the number that is due never comes. The store is poisoned first.
    pub(super) fn break_inserts(&self) {
        self.ctx.status.set_poison(leader_panicked());
        self.inserts_broken.store(true, Ordering::Release);
        self.turns.notify();
    }
}
