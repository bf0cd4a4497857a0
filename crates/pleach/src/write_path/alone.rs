//! A batch of one operation, committed without a leader: writers pass the two serial steps one behind the other, as in a
//! pipeline, and do the rest side by side.
//!
//! 1. Under `writer`: admission, memory, sequence number, and the record in the log. It fails as a group of one does.
//! 2. The key is looked for in the memtable, which takes most of the time, because it waits for memory.
//! 3. At its turn, when everything before it is in the memtable: the insert, and then readers may see it.
//!
//! Whatever is unusual goes to the commit queue: a sync, several operations, a memtable that is full, back-pressure, a log that
//! is not mapped (waiting writers then save calls by sharing one), a lock that is not free for long. So do writers that are more
//! than the processors: they would wait for a turn of a thread that has no processor, and waking them costs more than a leader
//! that does their work.
//!
//! # Invariants
//! 1. *One order*: log, sequence numbers and memtable have writes in the same order.
//! 2. *Every turn ends*: a number that was given is shown, or the inserts are marked as broken, which ends all waits.
//!
//! # Concurrency
//! [`CurrentState::visible`](crate::state::CurrentState::visible) is the turn: number `n` has it when `n - 1` is visible. Who holds `writer` and needs a memtable without writes on
//! their way waits for them ([`WritePath::lock`]). Nobody takes a lock that others hold during I/O while it has a turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_env::sync::spin_until;
use pleach_env::{Result, failpoint};
use pleach_log::{Append, Durability, SEQ_MAX, SeqNo};
use pleach_table::ValueKind;

use super::leader::PayloadPlace;
use super::recent_writers::is_noted;
use super::{WritePath, WriteRequest, Writer, leader_panicked};
use crate::memtable::{ClaimedInsert, Memtable};
use crate::stats::add_alone;

/// A write that is in the log and waits for its turn.
struct Logged<'m> {
    insert: ClaimedInsert<'m>,
    seq: SeqNo,
    place: PayloadPlace,
}

impl WritePath {
    /// Commits a batch of one operation; `None` if it has to go to the commit queue.
    pub(super) fn commit_alone(&self, request: &mut WriteRequest) -> Option<Result<()>> {
        if request.durability != Durability::Buffered {
            return None;
        }
        let op = request.operations.only()?;
        let (hash, key) = (request.operations.only_hash()?, op.partition_key());
        let state = self.version_set.state.load();
        let memtable = &state.active.memtable;
        memtable.prefetch(hash);
        let logged = {
            let mut writer = self.writer.lock_soon()?;
            match self.log_alone(&mut writer, request, memtable)? {
                Ok(logged) => logged,
                Err(error) => return Some(Err(error)),
            }
        };
        let Logged { insert, seq, place } = logged;
        let turn = Turn { path: self, seq };
        let insert = insert.locate(hash, &key);
        failpoint::reached("commit.alone");
        spin_until(|| turn.has_come() || self.is_broken());
        if !turn.has_come() {
            return Some(self.ctx.status.check_not_poisoned());
        }
        let op = request.operations.only().expect("it is the same");
        if state.tombstone_spans.announce(seq) && op.kind != ValueKind::Tombstone {
            state.tombstone_spans.invalidate(&key);
        }
        insert.insert((hash, &key), seq, op.kind, place.of_value(&op), op.value);
        add_alone(&self.ctx.counters.operations, 1);
        failpoint::reached("commit.inserted");
        turn.end();
        Some(Ok(()))
    }

    /// Admits the batch and appends it to the log; `None` if it has to go to the commit queue. After an error it is not in the
    /// log.
    #[inline]
    fn log_alone<'m>(
        &self,
        writer: &mut Writer,
        request: &mut WriteRequest,
        memtable: &'m Arc<Memtable>,
    ) -> Option<Result<Logged<'m>>> {
        let footprint = request.operations.footprint();
        let used = writer.memtable.used_bytes_with(footprint);
        let bytes = request.operations.record_len();
        let is_usual = self.ctx.status.check_writable().is_ok()
            && writer.log.is_mapped()
            && !self.is_full_for(writer, footprint)
            && used <= writer.room_until
            && !self.pressure.is_on(self.memtable_ratio(writer))
            && writer.next_seq < SEQ_MAX
            && writer.next_seq <= self.version_set.state.visible() + self.side_by_side
            && !writer.log.should_rotate(bytes)
            && request.partitions.dropped(self.drops.load(Ordering::Relaxed)).is_none();
        if !is_usual {
            return None;
        }
        if self.ctx.options.is_adaptive() && is_noted(1, writer.next_seq) {
            self.recent_writers.lock().note(self.ctx.env.now(), std::iter::once(request.thread));
        }
        let seq = writer.next_seq;
        let insert = writer.memtable.claim(memtable, footprint)?;
        request.first_seq = seq;
        let record = Append { record: request.operations.record_mut(), first_seq: seq, count: 1 };
        let start = writer.log.offset();
        if let Err(error) = writer.log.append([record]) {
            return Some(Err(self.log_failed(&writer.log, error)));
        }
        writer.next_seq += 1;
        add_alone(&self.ctx.counters.log_bytes, writer.log.offset() - start);
        let place =
            PayloadPlace { segment: writer.log.segment_id(), offset: request.operations.payload_offset() };
        Some(Ok(Logged { insert, seq, place }))
    }

    /// Waits until everything in the log is in the memtable. Requires: `writer` is locked, so nothing comes behind it.
    pub(super) fn settle(&self, writer: &Writer) {
        spin_until(|| self.version_set.state.visible() + 1 >= writer.next_seq || self.is_broken());
    }

    /// Whether a thread panicked between the log and the memtable: turns come no more.
    fn is_broken(&self) -> bool {
        self.inserts_broken.load(Ordering::Relaxed)
    }
}

/// The turn of one sequence number. Dropped in a panic, it breaks the inserts.
struct Turn<'a> {
    path: &'a WritePath,
    seq: SeqNo,
}

impl Turn<'_> {
    #[inline]
    fn has_come(&self) -> bool {
        self.path.version_set.state.visible() + 1 == self.seq
    }

    /// Shows the write to readers, and gives the turn to the next one.
    #[inline]
    fn end(self) {
        self.path.version_set.state.show_up_to(self.seq);
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
        self.inserts_broken.store(true, Ordering::Relaxed);
    }
}
