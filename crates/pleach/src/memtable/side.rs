//! Inserts side by side: what a batch needs is claimed first, looked for while others insert, and done at its turn.
//!
//! [`MemtableWriter::claim`] takes the memory, under the lock of the write path. [`SideInserts::locate`] does the part of an
//! insert that waits for memory, the probe of the index and the descent in the tree. [`InsertsInTurn::insert`] is short: the
//! place is known, unless another insert has changed its leaf meanwhile.
//!
//! # Concurrency
//! One insert at a time: the write path gives turns, in the order of sequence numbers.

#![expect(unsafe_code, reason = "a claim belongs to the arena of its memtable")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_log::SeqNo;
use pleach_table::ValueKind;
use smallvec::SmallVec;

use super::arena::{ArenaRef, ArenaWriter, Claim};
use super::entry::{self, NewVersion};
use super::tree::LeafPlace;
use super::writer::MemtableWriter;
use super::{Footprint, Memtable, Place};

/// Where a memtable has a key, or would have it.
#[derive(Clone, Copy)]
enum Located {
    /// It has a record, which stays.
    Record(ArenaRef),
    /// It had none; another insert may add the key.
    Absent(LeafPlace),
}

type Places = SmallVec<[Located; 1]>;

/// The inserts of a batch: their memory, and the places that were looked for so far.
#[must_use = "its turn comes, and later inserts wait for it"]
pub(crate) struct SideInserts<'m> {
    memtable: &'m Memtable,
    claim: Claim,
    places: Places,
}

/// The inserts of a batch at its turn.
pub(crate) struct InsertsInTurn<'m> {
    memtable: &'m Memtable,
    arena: ArenaWriter<'m>,
    places: smallvec::IntoIter<[Located; 1]>,
}

impl MemtableWriter {
    /// Claims the memory for inserts into `memtable`.
    ///
    /// `None`: it is not this memtable any more, or memory has to be reserved first.
    #[inline]
    pub(crate) fn claim<'m>(
        &mut self,
        memtable: &'m Arc<Memtable>,
        footprint: Footprint,
    ) -> Option<SideInserts<'m>> {
        let (own, mut arena) = self.parts();
        if !std::ptr::eq(own, &raw const **memtable) || !own.tree.take_reserved(&mut arena, footprint.records)
        {
            return None;
        }
        let claim = arena.claim(footprint.bytes)?;
        Some(SideInserts { memtable, claim, places: Places::new() })
    }
}

impl<'m> SideInserts<'m> {
    /// Looks for the place of the next key of the batch, while others insert.
    #[inline]
    pub(crate) fn locate(&mut self, hash: u64, key: &[u8]) {
        let Memtable { index, tree, arena, .. } = self.memtable;
        self.places.push(match index.find(arena, hash, key) {
            Some(record) => Located::Record(record),
            None => match tree.locate(arena, key) {
                (_, Some(record)) => Located::Record(record),
                (place, None) => Located::Absent(place),
            },
        });
    }

    /// Begins the inserts.
    ///
    /// Requires: all inserts with smaller sequence numbers are done, and no other is under way. Either all keys were looked for,
    /// in the order of the inserts, or none.
    #[inline]
    pub(crate) fn begin(self) -> InsertsInTurn<'m> {
        // SAFETY: `MemtableWriter::claim` took the claim from the arena of this memtable.
        let arena = unsafe { self.memtable.arena.writer_of(self.claim) };
        InsertsInTurn { memtable: self.memtable, arena, places: self.places.into_iter() }
    }
}

impl InsertsInTurn<'_> {
    /// Adds a version of the next key of the batch. `place` is given if the value is to be separated.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        (hash, key): (u64, &[u8]),
        seq: SeqNo,
        kind: ValueKind,
        place: Option<Place>,
        value: &[u8],
    ) {
        let memtable = self.memtable;
        if place.is_some() {
            memtable.is_separated.store(true, Ordering::Release);
        }
        let new = NewVersion { seq, kind, place, value };
        match self.places.next() {
            Some(Located::Record(record)) => entry::add_version(&mut self.arena, record, new),
            Some(Located::Absent(leaf)) if memtable.tree.is_current(leaf) => {
                let record = entry::add_key(&mut self.arena, key, new);
                memtable.tree.insert_at(&mut self.arena, leaf, record, key);
                memtable.index.insert(&mut self.arena, hash, record);
            }
            Some(Located::Absent(_)) | None => memtable.insert_version(&mut self.arena, hash, key, new),
        }
        memtable.count_entry(seq, kind);
    }

    /// Ends the inserts; gives back the memory that they did not take.
    #[inline]
    pub(crate) fn end(self) {
        self.arena.give_back();
    }
}
