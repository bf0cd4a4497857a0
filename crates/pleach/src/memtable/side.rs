//! Inserts side by side: what a batch needs is claimed first, looked for while others insert, and done at its turn.
//!
//! [`MemtableWriter::claim`] takes the memory, under the lock of the write path. [`SideInserts::prepare`] does the part of an
//! insert that waits for memory: the probe of the index, the descent in the tree, and the record of a new key. (A key in order
//! needs neither lookup nor descent, see `in_order`.)
//! [`InsertsInTurn::insert`] is short: the place is known, unless another insert has changed its leaf meanwhile.
//!
//! # Concurrency
//! One insert at a time: the write path gives turns, in the order of sequence numbers.

#![expect(unsafe_code, reason = "claims and what they allocate belong to the arena of their memtable")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_log::SeqNo;
use pleach_table::ValueKind;
use smallvec::SmallVec;

use super::arena::{ArenaRef, ArenaWriter, Claim, Unshared};
use super::entry::{self, NewVersion};
use super::tree::LeafPlace;
use super::writer::MemtableWriter;
use super::{Footprint, Memtable, Place};

/// An insert, as far as it could be done before its turn.
enum Prepared {
    /// The key has a record, which stays.
    Overwrite(ArenaRef),
    /// The key had no record, and would have this place; another insert may add it. Its record, with the version.
    NewKey(LeafPlace, Unshared),
}

/// A put or a delete to insert.
#[derive(Clone, Copy)]
pub(crate) struct Insert<'a> {
    /// Of the user key under its partition.
    pub(crate) hash: u64,
    /// The partition key.
    pub(crate) key: &'a [u8],
    pub(crate) seq: SeqNo,
    pub(crate) kind: ValueKind,
    /// Given if the value is to be separated.
    pub(crate) place: Option<Place>,
    pub(crate) value: &'a [u8],
}

/// The inserts of a batch: their memory, and what is prepared so far.
#[must_use = "its turn comes, and later inserts wait for it"]
pub(crate) struct SideInserts<'m> {
    memtable: &'m Memtable,
    claim: Claim<'m>,
    prepared: SmallVec<[Prepared; 1]>,
}

/// The inserts of a batch at its turn.
pub(crate) struct InsertsInTurn<'m> {
    memtable: &'m Memtable,
    arena: ArenaWriter<'m>,
    prepared: smallvec::IntoIter<[Prepared; 1]>,
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
        if !std::ptr::eq(&raw const **memtable, &raw const ***self) {
            return None;
        }
        // SAFETY: as in `parts`: `self` is the only writer of this memtable, and is borrowed mutably; `arena` does not outlive
        // this function.
        let mut arena = unsafe { memtable.arena.writer() };
        if !memtable.tree.take_reserved(&mut arena, footprint.records) {
            return None;
        }
        let claim = arena.claim(footprint.bytes)?;
        Some(SideInserts { memtable, claim, prepared: SmallVec::new() })
    }

    /// Undoes the newest claim, of a batch that is not logged.
    ///
    /// Requires: `claim` returned it for this `footprint`, and nothing was prepared.
    #[cold]
    pub(crate) fn undo_claim(&mut self, inserts: SideInserts<'_>, footprint: Footprint) {
        let SideInserts { memtable, claim, prepared } = inserts;
        debug_assert!(prepared.is_empty() && std::ptr::eq(memtable, &raw const ***self));
        let (memtable, mut arena) = self.parts();
        memtable.tree.give_back_reserved(&mut arena, footprint.records);
        arena.undo_claim(claim);
    }
}

impl<'m> SideInserts<'m> {
    /// Prepares the next insert of the batch, while others insert.
    #[inline]
    pub(crate) fn prepare(&mut self, insert: &Insert<'_>) {
        let Memtable { index, tree, arena, .. } = self.memtable;
        let place = match self.memtable.place_in_order(insert.key) {
            Some(place) => Ok(place),
            None => index.find(arena, insert.hash, insert.key).map_or_else(
                || match tree.locate(arena, insert.key) {
                    (_, Some(record)) => Err(record),
                    (place, None) => Ok(place),
                },
                Err,
            ),
        };
        self.prepared.push(match place {
            Err(record) => Prepared::Overwrite(record),
            Ok(place) => {
                tree.prefetch_to_insert(place);
                let record = entry::prepare_key(&mut self.claim, insert.key, insert.version());
                Prepared::NewKey(place, record)
            }
        });
    }

    /// Begins the inserts.
    ///
    /// Requires: all inserts with smaller sequence numbers are done, and no other is under way. Either all inserts were
    /// prepared, in their order, or none.
    #[inline]
    pub(crate) fn begin(self) -> InsertsInTurn<'m> {
        InsertsInTurn {
            memtable: self.memtable,
            arena: self.claim.into_writer(),
            prepared: self.prepared.into_iter(),
        }
    }
}

impl InsertsInTurn<'_> {
    /// Does the next insert of the batch: the one that was prepared, if any was.
    #[inline]
    pub(crate) fn insert(&mut self, insert: &Insert<'_>) {
        let memtable = self.memtable;
        let &Insert { hash, key, seq, kind, .. } = insert;
        if insert.place.is_some() {
            memtable.is_separated.store(true, Ordering::Release);
        }
        match self.prepared.next() {
            Some(Prepared::Overwrite(record)) => {
                entry::add_version(&mut self.arena, record, insert.version());
                memtable.note_overwrite();
            }
            Some(Prepared::NewKey(place, record)) if memtable.tree.is_current(place) => {
                memtable.add_record_at(&mut self.arena, hash, (place, record.share()), key);
            }
            Some(Prepared::NewKey(_, record)) => {
                if let Some(place) = memtable.place_in_order(key) {
                    memtable.add_record_at(&mut self.arena, hash, (place, record.share()), key);
                } else if let Some(known) = memtable.find_record(hash, key) {
                    // SAFETY: `prepare` made the record with the claim of these inserts, whose arena this is.
                    unsafe { entry::add_prepared_version(&mut self.arena, known, record, key.len()) };
                } else {
                    memtable.add_record(&mut self.arena, hash, record.share(), key);
                }
            }
            None => memtable.insert_version(&mut self.arena, hash, key, insert.version()),
        }
        memtable.count_entry(seq, kind);
    }

    /// Ends the inserts; gives back the memory that they did not take.
    #[inline]
    pub(crate) fn end(self) {
        self.arena.give_back();
    }
}

impl<'a> Insert<'a> {
    #[inline]
    fn version(&self) -> NewVersion<'a> {
        NewVersion { seq: self.seq, kind: self.kind, place: self.place, value: self.value }
    }
}
