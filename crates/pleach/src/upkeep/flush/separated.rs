//! The separated values of a memtable that is being flushed: which log segments live on, and what is copied out of the others.
//!
//! A segment lives on as a value segment if at least half of it is values that the flush keeps. The values of other segments
//! are copied, in key order, to a value file, and packed again if the option still says so. Their segments are removed with the
//! rest of the log.
//!
//! # Invariants
//! 1. *Durable before named*: segments and copies are synced before the edit that names them. The flush syncs their names with
//!    those of its SSTs.
//! 2. *No second sync*: if a segment cannot be synced, its writes may be lost; the store is poisoned, and a close says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use pleach_env::{File, FileId, Result};
use pleach_table::{ValueKind, key_hash};

use super::{on_partition, partition_of};
use crate::keys::PARTITION_PREFIX_LEN;
use crate::memtable::{Memtable, MemtableCursor, Place};
use crate::stats::add;
use crate::upkeep::Upkeep;
use crate::values::{HomeKind, SegmentUses, ValueFileBuilder, ValuePacker, ValuePointer};
use crate::version::Version;
use crate::version::edit::{Edit, EditItem};

/// Space is freed in pieces of this many bytes.
const PAGE: u64 = 4096;

/// A segment that lives on.
struct Kept {
    end: u64,
    handle: Arc<dyn File>,
}

/// See the module's text.
pub(super) struct SeparatedValues<'i> {
    upkeep: &'i Upkeep,
    kept: BTreeMap<FileId, Kept>,
    copies: Option<ValueFileBuilder>,
    /// Made for the first copy that may be packed.
    packer: Option<ValuePacker>,
    /// Finished files of copies, with their lengths.
    copied: Vec<(FileId, u64)>,
}

impl<'i> SeparatedValues<'i> {
    /// Decides for each segment of the memtable whether it lives on.
    pub(super) fn plan(upkeep: &'i Upkeep, version: &Version, memtable: &Arc<Memtable>) -> Self {
        let mut this = Self { upkeep, kept: BTreeMap::new(), copies: None, packer: None, copied: Vec::new() };
        if !memtable.has_separated() {
            return this;
        }
        // Before the lock is taken, for which commit leaders wait: this reads all keys.
        let uses = uses_of(version, memtable);
        let record_files = upkeep.version_set.record_files.lock();
        for (segment, used) in uses {
            if let Some(full) = record_files.full_segment(segment)
                && let Some(handle) = full.handle
                && used.bytes >= full.end / 2
            {
                this.kept.insert(segment, Kept { end: full.end, handle });
            }
        }
        this
    }

    /// The pointer to the value under `cursor`. Copies the value if its segment does not live on. If the cache has another value
    /// of the key, this one takes its place: gets of a hot key would have to read it once more after each flush.
    ///
    /// Requires: the value is to be separated.
    pub(super) fn pointer(&mut self, cursor: &MemtableCursor) -> Result<ValuePointer> {
        let pointer = self.place(cursor)?;
        let hash = key_hash(partition_of(cursor).get(), &cursor.key()[PARTITION_PREFIX_LEN..]);
        self.upkeep.ctx.value_cache.renew(hash, pointer, cursor.value());
        Ok(pointer)
    }

    fn place(&mut self, cursor: &MemtableCursor) -> Result<ValuePointer> {
        let (place, value) = (cursor.place(), cursor.value());
        if self.kept.contains_key(&place.segment) {
            return Ok(pointer_to(place));
        }
        if let Some(full) = self.copies.take_if(|copies| copies.is_full()) {
            self.finish_copies(full)?;
        }
        let copies = if let Some(copies) = &mut self.copies {
            copies
        } else {
            self.copies.insert(self.upkeep.new_value_file()?)
        };
        let key = (partition_of(cursor), &cursor.key()[PARTITION_PREFIX_LEN..]);
        let packs = self.upkeep.ctx.options.value_sizes().packs(value.len());
        let packer = packs.then(|| self.packer.get_or_insert_default());
        let (checksum, stored) = ValuePacker::store(packer, key, value);
        copies.add(&checksum, stored)
    }

    fn finish_copies(&mut self, copies: ValueFileBuilder) -> Result<()> {
        let id = copies.id();
        // Named first, so that it is removed if the sync fails.
        self.copied.push((id, 0));
        let len = copies.finish("values.sync")?;
        self.copied.retain(|(other, _)| *other != id);
        self.copied.push((id, len));
        add(&self.upkeep.ctx.counters.value_copied_bytes, len);
        Ok(())
    }

    /// Makes all values durable, except for the names of their files.
    pub(super) fn sync(&mut self) -> Result<()> {
        if let Some(copies) = self.copies.take() {
            self.finish_copies(copies)?;
        }
        for (segment, Kept { handle, .. }) in &self.kept {
            self.upkeep.writes.sync_full_segment(*segment, &**handle)?;
        }
        Ok(())
    }

    /// Names the files in `edit`.
    pub(super) fn name_in(&self, edit: &mut Edit) {
        for (&segment, Kept { end, .. }) in &self.kept {
            edit.push(EditItem::ValueHome { segment, file: segment, kind: HomeKind::Segment, len: *end });
        }
        for &(file, len) in &self.copied {
            edit.push(EditItem::ValueHome { segment: file, file, kind: HomeKind::Values, len });
        }
    }

    /// The segments that live on.
    pub(super) fn segments(&self) -> Vec<FileId> {
        self.kept.keys().copied().collect()
    }

    /// Frees the space that is reserved behind the records of segments that live on. Best effort. The files keep their length,
    /// because the stamp of a segment states it.
    pub(super) fn free_reserved(&self) {
        for Kept { end, handle } in self.kept.values() {
            let from = end.next_multiple_of(PAGE);
            if let Ok(len) = handle.len()
                && let Some(free) = (len / PAGE * PAGE).checked_sub(from).filter(|free| *free > 0)
            {
                let _only_space_is_lost = handle.punch(from, free);
            }
        }
    }

    /// Removes the copies of a failed flush.
    pub(super) fn abandon(self) {
        if let Some(copies) = self.copies {
            copies.abandon();
        }
        for (id, _) in self.copied {
            self.upkeep.remove_value_file(id);
        }
    }
}

/// The pointer to a value in the log.
fn pointer_to(Place { segment, offset, len }: Place) -> ValuePointer {
    ValuePointer { segment, offset: offset.into(), len }
}

/// What the newest versions of all keys refer to, by segment. Neither the memtable nor the version changes any more.
fn uses_of(version: &Version, memtable: &Arc<Memtable>) -> SegmentUses {
    let mut uses = SegmentUses::new();
    let mut cursor = memtable.cursor(u64::MAX);
    cursor.seek_first();
    while cursor.is_valid() {
        let partition = partition_of(&cursor);
        let is_live = version.is_live(partition);
        while on_partition(&cursor, partition) {
            if is_live && cursor.kind() == ValueKind::ValuePointer {
                let pointer = pointer_to(cursor.place());
                uses.entry(pointer.segment).or_default().add(pointer.bytes());
            }
            cursor.next();
        }
    }
    uses
}
