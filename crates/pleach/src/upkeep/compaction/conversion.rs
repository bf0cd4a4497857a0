//! Conversion: a compaction copies separated values to a file of its own, in the order of their keys, and writes pointers to
//! the copies.
//!
//! Without it values stay in the order in which they were written, and a scan reads each at another place. Entries wait here in
//! groups: the values of a group are read together, in the order of their places, and then written in the order of the keys.
//!
//! Left where they are:
//! - values that are in the order of keys already, so that a conversion of a run that was converted before copies only what
//!   has come since;
//! - large values, which gain nothing ([`ValuePointer::gains_by_order`]);
//! - all values, while the files of values have no room below [`Options::space_target`](crate::Options::space_target);
//! - values that cannot be proved. A newer entry may hide the pointer, and then the value may be gone;
//! - values of a file that cannot be read, which is told once ([`Upkeep::note_damaged`]). A file that fails stops no writes;
//! - all values, once the store is being closed.
//!
//! [`Conversion::Always`](crate::Conversion::Always) copies the first three kinds, too, as far as the disk has room.
//!
//! # Why nothing can come back, and nothing is lost
//! A conversion changes no entry but for its pointer, and the edit that adds the output takes the inputs' entries away. The
//! value file and its name are synced before that edit. A value is proved before it is copied.
//!
//! # Cost
//! Memory for the entries of a group and their values: 4 MiB of each, and a value more; and for the places of cached values, up
//! to 7 MiB. An SST ends when [`VALUES_PER_SST`] times its length of values has been copied.
//!
//! # Origin
//! `LearnedKV`, section 4.2 and Fig. 7, steps 2 and 3. Departure: it moves all values at each garbage collection, those in order
//! too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use pleach_env::{FileId, Result};
use pleach_table::{ValueKind, key_hash};

use crate::keys::PartitionId;
use crate::stats::add;
use crate::upkeep::{NewEntry, RoomClaim, SstOutput, Upkeep};
use crate::value::Value;
use crate::value_reads::read_movable_values;
use crate::values::{CHECKSUM_LEN, HomeKind, ValueFileBuilder, ValueHome, ValuePointer};
use crate::version::OlderRuns;

/// Entries of a group, and bytes of them or of the values to copy, at most. Many values make reads that a device can order;
/// beyond that more gain little (arbitrary).
const GROUP_ENTRIES: usize = 4096;
const GROUP_BYTES: u64 = 4 << 20;

/// Copies that are cached again, in a step, at most: they take 7 MiB until then (arbitrary). Gets read the others once more.
const CACHED_MAX: usize = 1 << 17;

/// Values in order are left in so many segments: a scan reads as many places in turn (arbitrary).
const STREAMS_MAX: usize = 8;

/// Bytes of copied values for each byte of an SST, at most: so a step is bounded, and SSTs are not too small.
const VALUES_PER_SST: u64 = 4;

/// See the module's text.
pub(super) struct ConversionOutput {
    partition: PartitionId,
    /// Whether values are copied that gain nothing.
    copies_all: bool,
    waiting: Vec<Waiting>,
    /// Keys and values of those that wait. Values of pointers are their bytes.
    bytes: Vec<u8>,
    /// Bytes of the values that may be copied.
    value_bytes: u64,
    file: Option<ValueFileBuilder>,
    /// Values in it.
    copied: u64,
    /// Bytes of it, and of the files before it that no version has yet.
    claim: RoomClaim,
    /// Bytes of values that were left because there was no room for copies, or no time in a close, and how many there were at
    /// the last commit.
    left: u64,
    left_before: u64,
    /// Copies that no version has yet, of values that were cached: they are cached again once gets are led to the copies.
    cached: Vec<CachedCopy>,
}

/// The copy of a value that was cached.
struct CachedCopy {
    /// The hash of the key.
    hash: u64,
    from: ValuePointer,
    to: ValuePointer,
}

/// An entry whose value is to be read.
struct Waiting {
    key: Range<usize>,
    kind: ValueKind,
    value: Range<usize>,
    since: u64,
    /// To be copied, or left.
    pointer: Option<ValuePointer>,
}

impl ConversionOutput {
    /// A conversion. What an earlier try has committed of it has `left` bytes of values for want of room.
    pub(super) fn new(partition: PartitionId, left: u64, copies_all: bool) -> Self {
        Self {
            partition,
            copies_all,
            waiting: Vec::new(),
            bytes: Vec::new(),
            value_bytes: 0,
            file: None,
            copied: 0,
            claim: RoomClaim::default(),
            left,
            left_before: left,
            cached: Vec::new(),
        }
    }

    /// Bytes of values that were left because there was no room for copies.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The same, of what a version has.
    pub(super) fn left_before(&self) -> u64 {
        self.left_before
    }

    /// Bytes of the file of values that is being written.
    fn file_len(&self) -> u64 {
        self.file.as_ref().map_or(0, ValueFileBuilder::len)
    }

    /// Whether the SST is to end, because enough values were copied for it, or their file is as long as offsets allow.
    pub(super) fn ends_sst(&self, sst_bytes: u64) -> bool {
        let is_enough = |len| len >= sst_bytes.saturating_mul(VALUES_PER_SST);
        self.file.as_ref().is_some_and(|file| file.is_full() || is_enough(file.len()))
    }

    /// Adds an entry to the group. Requires: keys ascend.
    pub(super) fn push(&mut self, key: &[u8], kind: ValueKind, value: &[u8], since: u64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let pointer = (kind == ValueKind::ValuePointer).then(|| ValuePointer::decode(value)).flatten();
        let copied = pointer.filter(|p| self.copies_all || p.gains_by_order());
        self.value_bytes += copied.map_or(0, ValuePointer::bytes);
        let (key, end) = (start..start + key.len(), self.bytes.len());
        let value = key.end..end;
        self.waiting.push(Waiting { key, kind, value, since, pointer });
    }

    /// Whether the group is to be written.
    pub(super) fn is_full(&self) -> bool {
        let bytes = self.value_bytes.max(self.bytes.len() as u64);
        self.waiting.len() >= GROUP_ENTRIES || bytes >= GROUP_BYTES
    }

    /// Whether entries wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Copies the group's values and writes its entries.
    pub(super) fn write(
        &mut self,
        upkeep: &Upkeep,
        sst: &mut SstOutput<'_>,
        older: &OlderRuns,
    ) -> Result<()> {
        let values = self.read(upkeep)?;
        let before = self.file_len();
        let mut pointer_bytes = Vec::new();
        for (entry, found) in self.waiting.iter().zip(values) {
            let user_key = &self.bytes[entry.key.clone()];
            let mut value = &self.bytes[entry.value.clone()];
            if let Some(found) = found.filter(|found| !found.is_pointer()) {
                let file = match &mut self.file {
                    Some(file) => file,
                    None => self.file.insert(upkeep.new_value_file()?),
                };
                pointer_bytes.clear();
                let (checksum, stored) = found.split_at(CHECKSUM_LEN);
                let to = file.add(checksum, stored)?;
                to.encode(&mut pointer_bytes);
                self.copied += 1;
                if let Some(from) = entry.pointer
                    && self.cached.len() < CACHED_MAX
                {
                    let hash = key_hash(self.partition.0, user_key);
                    let is_cached = upkeep.ctx.value_cache.get(hash, from, false).is_some();
                    self.cached.extend(is_cached.then_some(CachedCopy { hash, from, to }));
                }
                value = &pointer_bytes;
            }
            let (kind, stored_key, since) = (entry.kind, user_key, entry.since);
            sst.add(&NewEntry { user_key, stored_key, kind, value, since }, older)?;
        }
        self.waiting.clear();
        self.bytes.clear();
        self.value_bytes = 0;
        let copied = self.file_len() - before;
        self.claim.add(upkeep, copied);
        upkeep.keep_pace(copied);
        Ok(())
    }

    /// The stored values of the group that are to be copied, for each entry. Those that cannot be read or proved are left as
    /// pointers.
    fn read(&mut self, upkeep: &Upkeep) -> Result<Vec<Option<Value>>> {
        let chosen = self.choose(upkeep);
        let value_of = |(entry, is_chosen): (&Waiting, bool)| {
            is_chosen.then(|| Value::pointer(&self.bytes[entry.value.clone()]))
        };
        let mut values: Vec<_> = self.waiting.iter().zip(chosen).map(value_of).collect();
        let entries = self.waiting.iter().zip(&mut values);
        let entries =
            entries.filter_map(|(entry, value)| Some((&self.bytes[entry.key.clone()], value.as_mut()?)));
        let version = Arc::clone(&upkeep.version_set.state.load().version);
        for (file, error) in read_movable_values(&upkeep.ctx, &version.values, self.partition, entries)? {
            upkeep.note_damaged(file, &error);
        }
        Ok(values)
    }

    /// Which values of the group are copied: those that are in no order, as far as there is room. A close does not wait for
    /// copies that have not begun.
    fn choose(&mut self, upkeep: &Upkeep) -> Vec<bool> {
        let pointers: Vec<_> = self.waiting.iter().map(|entry| entry.pointer).collect();
        let mut chosen = if self.copies_all {
            pointers.iter().map(Option::is_some).collect()
        } else {
            chosen(&pointers, upkeep.ctx.options.thresholds.ordered_gap)
        };
        let is_closed = upkeep.ctx.status.is_closed();
        let mut room = if is_closed { 0 } else { upkeep.room_for_values(self.value_bytes) };
        for (is_chosen, pointer) in chosen.iter_mut().zip(pointers) {
            let bytes = pointer.filter(|_| *is_chosen).map_or(0, ValuePointer::bytes);
            if bytes <= room {
                room -= bytes;
            } else {
                *is_chosen = false;
                self.left += bytes;
            }
        }
        chosen
    }

    /// Ends the file of values, if there is one, and makes it durable, but for its name.
    pub(super) fn finish_file(&mut self, upkeep: &Upkeep) -> Result<Option<Arc<ValueHome>>> {
        let copied = mem::take(&mut self.copied);
        let Some(file) = self.file.take() else { return Ok(None) };
        let id = file.id();
        let len = file.finish("conversion.sync").inspect_err(|_| upkeep.remove_value_file(id))?;
        add(&upkeep.ctx.counters.value_converted_bytes, len);
        add(&upkeep.ctx.counters.values_converted, copied);
        let trash = Arc::clone(&upkeep.version_set.trash);
        Ok(Some(Arc::new(ValueHome::new(id, HomeKind::Values, len, trash))))
    }

    /// To be called when a version has the copies: those of cached values are cached. Before that, gets would cache the old ones
    /// again.
    pub(super) fn note_committed(&mut self, upkeep: &Upkeep) {
        self.claim.end();
        self.left_before = self.left;
        let cache = &upkeep.ctx.value_cache;
        for CachedCopy { hash, from, to } in self.cached.drain(..) {
            cache.note_copy(hash, from, to);
        }
    }

    /// Removes the file of values, and forgets the entries.
    pub(super) fn abandon(&mut self) {
        self.claim.end();
        self.cached.clear();
        self.waiting.clear();
        self.bytes.clear();
        (self.value_bytes, self.copied) = (0, 0);
        if let Some(file) = self.file.take() {
            file.abandon();
        }
    }
}

/// Which values of a group are copied.
fn chosen(pointers: &[Option<ValuePointer>], gap_max: u64) -> Vec<bool> {
    let ordered = ordered(pointers, gap_max);
    let mut streams: BTreeMap<FileId, usize> = BTreeMap::new();
    for pointer in pointers.iter().zip(&ordered).filter_map(|(pointer, is)| pointer.filter(|_| *is)) {
        *streams.entry(pointer.segment).or_default() += 1;
    }
    let mut streams: Vec<_> = streams.into_iter().collect();
    streams.sort_by_key(|(_, values)| Reverse(*values));
    streams.truncate(STREAMS_MAX);
    let is_left = |p: ValuePointer| streams.iter().any(|(segment, _)| *segment == p.segment);
    let is_chosen = |(pointer, is_ordered): (&Option<ValuePointer>, bool)| {
        pointer.is_some_and(|p| p.gains_by_order() && !(is_ordered && is_left(p)))
    };
    pointers.iter().zip(ordered).map(is_chosen).collect()
}

/// Which values of a group are in the order of keys: those that stand close behind, or before, the one before or after them in
/// their segment: at most `gap_max` bytes apart.
fn ordered(pointers: &[Option<ValuePointer>], gap_max: u64) -> Vec<bool> {
    let mut ordered = vec![false; pointers.len()];
    let mut last: HashMap<FileId, (usize, ValuePointer)> = HashMap::new();
    for (at, pointer) in pointers.iter().enumerate() {
        let Some(pointer) = *pointer else { continue };
        if let Some((before_at, before)) = last.insert(pointer.segment, (at, pointer)) {
            let gap = pointer.offset.checked_sub(before.offset + before.bytes());
            if gap.is_some_and(|gap| gap <= gap_max) {
                (ordered[before_at], ordered[at]) = (true, true);
            }
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: u64 = 16 << 10;

    fn pointers(places: &[(u64, u64)]) -> Vec<Option<ValuePointer>> {
        let pointer = |&(segment, offset)| ValuePointer { segment: FileId(segment), offset, len: 996 };
        places.iter().map(|place| Some(pointer(place))).collect()
    }

    #[test]
    fn values_in_order_are_left_and_others_are_copied() {
        let random: Vec<_> = (0..100).map(|i| (1 + i % 3, i * 7_919_000 % 60_000_000)).collect();
        assert!(chosen(&pointers(&random), GAP).iter().filter(|is| **is).count() >= 98);
        let in_order: Vec<_> = (0..100).map(|i| (1, i * 1000)).collect();
        assert_eq!(chosen(&pointers(&in_order), GAP), [false; 100]);
        let mut some = in_order.clone();
        some[50] = (2, 0);
        some[70] = (1, 5_000_000);
        let copied: Vec<_> = (0..100).filter(|at| chosen(&pointers(&some), GAP)[*at]).collect();
        // The value behind the one that is far off is in no order with it.
        assert_eq!(copied, [50, 70]);
        let two_streams: Vec<_> = (0..100).map(|i| (i % 2, i * 500)).collect();
        assert_eq!(chosen(&pointers(&two_streams), GAP), [false; 100]);
        let many: Vec<_> = (0..100).map(|i| (i % 20, i * 500)).collect();
        let copied = chosen(&pointers(&many), GAP).into_iter().filter(|is| *is).count();
        assert_eq!(copied, 100 - 5 * STREAMS_MAX, "too many places to read in turn");
    }

    #[test]
    fn inline_and_large_values_are_left() {
        let mut some = pointers(&[(1, 0), (2, 0), (3, 0)]);
        some[1] = None;
        if let Some(large) = &mut some[2] {
            large.len = 1 << 20;
        }
        assert_eq!(chosen(&some, GAP), [true, false, false]);
    }
}
