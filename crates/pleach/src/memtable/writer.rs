//! The writer of a memtable: the only handle that changes it, so two concurrent writers do not compile.
//!
//! The write path keeps it under its lock. Readers share the memtable.

#![expect(unsafe_code, reason = "it guarantees to the arena that there is one writer")]

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_env::Result;
use pleach_env::memory::RegionBytes;
use pleach_log::SeqNo;
use pleach_table::ValueKind;

use super::arena::{ArenaRef, ArenaWriter, Footprint};
use super::entry::{NewVersion, Place};
use super::tree::LeafPlace;
use super::{Memtable, MemtableMemory, entry};

/// A memtable and the right to write to it. It is made with the memtable, and is neither `Clone` nor `Copy`.
pub(crate) struct MemtableWriter(Arc<Memtable>);

impl MemtableWriter {
    /// A new memtable that is meant to become immutable at about `budget` bytes, with `memory`'s regions; an error when the
    /// system gives no memory for its tree, its index and its table of chunks.
    pub(crate) fn new(budget: usize, memory: &Arc<MemtableMemory>) -> Result<Self> {
        Ok(Self(Arc::new(Memtable::new(budget, memory)?)))
    }

    #[inline]
    pub(super) fn parts(&mut self) -> (&Memtable, ArenaWriter<'_>) {
        // SAFETY: only this and `claim` make writers at the position of memtables' arenas. `new` makes the only
        // `MemtableWriter` of a memtable, which is borrowed mutably for as long as the arena's writer exists.
        (&self.0, unsafe { self.0.arena.writer() })
    }

    /// Takes from the system the memory of arena and tree for inserts of `footprint`. Returns whether the system gave it.
    ///
    /// A batch is logged only after its reservation, so that no insert fails.
    #[inline]
    pub(crate) fn reserve(&mut self, footprint: Footprint) -> bool {
        let (memtable, mut arena) = self.parts();
        let is_given = arena.reserve(footprint) && memtable.tree.reserve(&mut arena, footprint.records);
        memtable.holding.grow_to(memtable.bytes());
        is_given
    }

    /// Adds a version. `hash` is that of the user key under its partition.
    ///
    /// Requires: a reservation that covers it.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, key: &[u8], seq: SeqNo, kind: ValueKind, value: &[u8]) {
        self.insert_version(hash, key, NewVersion { seq, kind, place: None, value });
    }

    /// Adds a put whose value is to be separated, and is at `place` in the log.
    ///
    /// Requires: a reservation that covers it.
    pub(crate) fn insert_separated(&mut self, hash: u64, key: &[u8], seq: SeqNo, place: Place, value: &[u8]) {
        self.0.is_separated.store(true, Ordering::Release);
        let (kind, place) = (ValueKind::ValuePointer, Some(place));
        self.insert_version(hash, key, NewVersion { seq, kind, place, value });
    }

    #[inline]
    fn insert_version(&mut self, hash: u64, key: &[u8], new: NewVersion<'_>) {
        let (seq, kind) = (new.seq, new.kind);
        debug_assert!(seq >= self.last_seq(), "sequence numbers never go down");
        let (memtable, mut arena) = self.parts();
        memtable.insert_version(&mut arena, hash, key, new);
        memtable.count_entry(seq, kind);
    }

    /// Adds a version whose value lies in a region of its own, after a front of [`super::LARGE_FRONT`] bytes. The region
    /// becomes part of the memtable. `place` is given if the value is to be separated.
    ///
    /// Requires: a reservation that covers it.
    #[cold]
    pub(crate) fn insert_large(
        &mut self,
        hash: u64,
        key: &[u8],
        seq: SeqNo,
        place: Option<Place>,
        value: RegionBytes,
    ) {
        if place.is_some() {
            self.0.is_separated.store(true, Ordering::Release);
        }
        let (memtable, mut arena) = self.parts();
        if let Some(record) = memtable.find_record(hash, key) {
            entry::add_large_version(&mut arena, record, seq, place, value);
        } else {
            let record = entry::add_large_key(&mut arena, key, seq, place, value);
            memtable.add_record(&mut arena, hash, record, key);
        }
        memtable.count_entry(seq, ValueKind::Put);
    }
}

impl Memtable {
    #[inline]
    pub(super) fn insert_version(
        &self,
        arena: &mut ArenaWriter<'_>,
        hash: u64,
        key: &[u8],
        new: NewVersion<'_>,
    ) {
        if let Some(place) = self.place_in_order(key) {
            let record = entry::add_key(arena, key, new);
            self.add_record_at(arena, hash, (place, record), key);
        } else if let Some(record) = self.find_record(hash, key) {
            entry::add_version(arena, record, new);
            self.note_overwrite();
        } else {
            let record = entry::add_key(arena, key, new);
            self.add_record(arena, hash, record, key);
        }
    }

    #[inline]
    pub(super) fn count_entry(&self, seq: SeqNo, kind: ValueKind) {
        let counts = &*self.counts;
        if kind == ValueKind::Tombstone {
            counts.deletes.store(self.deletes() + 1, Ordering::Relaxed);
        }
        counts.last_seq.store(seq, Ordering::Release);
        if self.is_empty() {
            self.is_empty.store(false, Ordering::Release);
        }
    }

    #[inline]
    pub(super) fn add_record(&self, arena: &mut ArenaWriter<'_>, hash: u64, record: ArenaRef, key: &[u8]) {
        self.note(self.tree.insert(arena, record, key));
        self.index.insert(arena, hash, record);
    }

    /// The same, at a place in the tree that is current.
    #[inline]
    pub(super) fn add_record_at(
        &self,
        arena: &mut ArenaWriter<'_>,
        hash: u64,
        (place, record): (LeafPlace, ArenaRef),
        key: &[u8],
    ) {
        self.note(self.tree.insert_at(arena, place, record, key));
        self.index.insert(arena, hash, record);
    }
}

impl Deref for MemtableWriter {
    type Target = Arc<Memtable>;

    #[inline]
    fn deref(&self) -> &Arc<Memtable> {
        &self.0
    }
}

/// Does not compile if the writer is `Clone`: then both implementations apply.
const _: () = {
    trait NotClone<A> {
        const CHECKED: () = ();
    }
    impl<T> NotClone<()> for T {}
    impl<T: Clone> NotClone<u8> for T {}
    let () = <MemtableWriter as NotClone<_>>::CHECKED;
};
