//! An insert in three steps, of which two need no lock, and one may run beside other inserts.
//!
//! [`MemtableWriter::claim`] takes the memory, under the lock of the write path. [`ClaimedInsert::locate`] does the part of an
//! insert that waits for memory, the probe of the index and the descent in the tree, while others insert.
//! [`LocatedInsert::insert`] is short: the place is known, unless another insert has changed its leaf meanwhile.
//!
//! # Concurrency
//! One insert at a time: the write path gives turns, in the order of sequence numbers.

#![expect(unsafe_code, reason = "a claim belongs to the arena of its memtable")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::arena::{ArenaRef, Claim};
use super::entry::{self, NewVersion};
use super::tree::LeafPlace;
use super::writer::MemtableWriter;
use super::{Footprint, Memtable, Place};
use pleach_log::SeqNo;
use pleach_table::ValueKind;

/// Where a memtable has a key, or would have it.
#[derive(Clone, Copy)]
enum Located {
    /// It has a record, which stays.
    Record(ArenaRef),
    /// It had none; another insert may add the key.
    Absent(LeafPlace),
}

/// The memory of an insert.
#[must_use = "its turn comes, and later inserts wait for it"]
pub(crate) struct ClaimedInsert<'m> {
    memtable: &'m Memtable,
    claim: Claim,
}

/// An insert whose place is known.
pub(crate) struct LocatedInsert<'m> {
    claimed: ClaimedInsert<'m>,
    located: Located,
}

impl MemtableWriter {
    /// Claims the memory for an insert into `memtable`.
    ///
    /// `None`: it is not this memtable any more, or memory has to be reserved first.
    #[inline]
    pub(crate) fn claim<'m>(
        &mut self,
        memtable: &'m Arc<Memtable>,
        footprint: Footprint,
    ) -> Option<ClaimedInsert<'m>> {
        let (own, mut arena) = self.parts();
        if !std::ptr::eq(own, &raw const **memtable) || !own.tree.take_reserved(&mut arena) {
            return None;
        }
        let claim = arena.claim(footprint.bytes)?;
        Some(ClaimedInsert { memtable, claim })
    }
}

impl<'m> ClaimedInsert<'m> {
    /// Looks for the place of `key`, while others insert.
    #[inline]
    pub(crate) fn locate(self, hash: u64, key: &[u8]) -> LocatedInsert<'m> {
        let Memtable { index, tree, arena, .. } = self.memtable;
        let located = match index.find(arena, hash, key) {
            Some(record) => Located::Record(record),
            None => match tree.locate(arena, key) {
                (_, Some(record)) => Located::Record(record),
                (place, None) => Located::Absent(place),
            },
        };
        LocatedInsert { claimed: self, located }
    }
}

impl LocatedInsert<'_> {
    /// Adds a version. `place` is given if the value is to be separated.
    ///
    /// Requires: all inserts with smaller sequence numbers are done, and no other is under way. Key and lengths are those of the
    /// claim.
    #[inline]
    pub(crate) fn insert(
        self,
        (hash, key): (u64, &[u8]),
        seq: SeqNo,
        kind: ValueKind,
        place: Option<Place>,
        value: &[u8],
    ) {
        let memtable = self.claimed.memtable;
        if place.is_some() {
            memtable.is_separated.store(true, Ordering::Release);
        }
        let new = NewVersion { seq, kind, place, value };
        // SAFETY: `MemtableWriter::claim` took the claim from the arena of this memtable.
        let mut arena = unsafe { memtable.arena.writer_of(self.claimed.claim) };
        match self.located {
            Located::Record(record) => entry::add_version(&mut arena, record, new),
            Located::Absent(leaf) if memtable.tree.is_current(leaf) => {
                let record = entry::add_key(&mut arena, key, new);
                memtable.tree.insert_at(&mut arena, leaf, record, key);
                memtable.index.insert(&mut arena, hash, record);
            }
            Located::Absent(_) => memtable.insert_version(&mut arena, hash, key, new),
        }
        arena.give_back();
        memtable.count_entry(seq);
    }
}
