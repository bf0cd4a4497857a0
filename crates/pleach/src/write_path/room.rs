//! Room on the disk: the space that writers keep free so that a nearly full disk can still be emptied.
//!
//! A flush writes SSTs before it frees log segments, and a compaction writes outputs before it removes inputs. So writers keep
//! space free for four things: the log of the next step of the memtable, the flush of all memtables, the output of a
//! compaction until its first input is removed, and a file of moved values until those that it replaces are removed. They
//! check at the memtable's first write and then at each step of its fill. Relocation leaves the first two free, too.
//! If less space is free, puts fail with the system's error for a full disk. Reads, drops, flushes and compactions go on,
//! and the space that they free lets writers go on too.
//!
//! Deletes go on longer, because they lead to free space: puts leave [`STEPS_FOR_DELETES`] steps to them. If other programs
//! have filled the disk, even that is missing. Then [`SCANT_BYTES_MAX`] of deletes are accepted, if the log has room.

use std::io;

use pleach_env::Error;
use pleach_table::ValueKind;

use super::{WritePath, WriteRequest, Writer};
use crate::memtable::Footprint;
use crate::options::Options;
use crate::state::State;

impl WritePath {
    /// Refuses the requests of a group that would leave flush and compaction without room. The group takes `footprint` of
    /// the memtable.
    pub(crate) fn admit_to_room(
        &self,
        writer: &mut Writer,
        group: &mut [WriteRequest],
        footprint: Footprint,
    ) {
        let memtable = &writer.memtable;
        let used = memtable.used_bytes_with(footprint);
        if used <= writer.room_until {
            return;
        }
        let step = room_step(&self.ctx.options);
        let upcoming = used - memtable.used_bytes() + step;
        let kept = {
            let (state, options) = (self.version_set.state.load(), &self.ctx.options);
            let compaction = self.version_set.ledger.lock().step_bytes();
            let upkeep = compaction.saturating_add(relocation_bytes(&state, options));
            kept_free(&state, options, upcoming).saturating_add(upkeep)
        };
        let for_puts = kept.saturating_add(STEPS_FOR_DELETES * step as u64);
        let free = || self.ctx.env.available_space(&self.ctx.dir).unwrap_or(u64::MAX);
        if free() < for_puts {
            self.version_set.remove_obsolete();
        }
        let free = free();
        if free >= for_puts {
            writer.room_until = used + step;
            return;
        }
        let is_scant = free < kept;
        for request in group.iter_mut().filter(|request| request.result.is_none()) {
            let bytes = request.operations.footprint().bytes;
            let is_admitted =
                request.is_of_deletes() && (!is_scant || writer.scant_bytes + bytes <= SCANT_BYTES_MAX);
            if is_admitted {
                writer.scant_bytes += if is_scant { bytes } else { 0 };
            } else {
                request.result = Some(Err(self.no_room(free, for_puts)));
            }
        }
    }

    /// About the bytes of values that relocation moves at once.
    pub(crate) fn moved_bytes(&self) -> u64 {
        moved_bytes(&self.ctx.options)
    }

    /// Bytes that relocation leaves free for the log and for flushes.
    pub(crate) fn kept_for_flushes(&self) -> u64 {
        let options = &self.ctx.options;
        kept_free(&self.version_set.state.load(), options, room_step(options))
    }

    #[cold]
    fn no_room(&self, free: u64, kept: u64) -> Error {
        let message = format!(
            "{} are free, {} are kept for flush and compaction; free some space, drop partitions, delete and compact, or \
             open the store with less memory",
            in_units(free),
            in_units(kept)
        );
        Error::io("write", &self.ctx.dir, io::Error::new(io::ErrorKind::StorageFull, message))
    }
}

/// `1.21 MiB`.
fn in_units(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    // In hundredths of the unit; the remainder is cut off.
    let (mut hundredths, mut unit) = (u128::from(bytes) * 100 / 1024, 0);
    while hundredths >= 100 * 1024 && unit + 1 < UNITS.len() {
        hundredths /= 1024;
        unit += 1;
    }
    format!("{}.{:02} {}", hundredths / 100, hundredths % 100, UNITS[unit])
}

impl WriteRequest {
    /// Whether it has no puts. Decodes all operations.
    #[cold]
    fn is_of_deletes(&self) -> bool {
        let mut puts = 0;
        self.operations.for_each(&mut |op| puts += u64::from(op.kind != ValueKind::Tombstone));
        puts == 0
    }
}

/// Steps of room that puts leave to deletes: for their log, their flush, and the compaction of its output.
const STEPS_FOR_DELETES: u64 = 3;

/// Bytes of deletes that are accepted while less is free, until the store is opened again (arbitrary).
const SCANT_BYTES_MAX: usize = 64 << 10;

/// Bytes of a memtable between two checks of the free space.
fn room_step(options: &Options) -> usize {
    (options.memtable_budget() / 16).clamp(4 << 10, 1 << 20)
}

/// Bytes that may be written before any are freed: by the log for `upcoming` bytes, and by the flush of all memtables.
fn kept_free(state: &State, options: &Options, upcoming: usize) -> u64 {
    let (upcoming, sst_bytes) = (upcoming as u64, options.sst_bytes);
    // The log's space is reserved in steps. One step is for the next segment, because a flush switches the memtable.
    let log = upcoming + 2 * options.segment_bytes().min(LOG_STEP_BYTES);
    let used = state.memtables().map(|memtable| memtable.used_bytes() as u64);
    let flush: u64 = used.chain([upcoming]).map(|bytes| bytes + bytes.min(sst_bytes)).sum();
    log + flush
}

/// About the bytes of values that relocation moves at once.
fn moved_bytes(options: &Options) -> u64 {
    options.sst_bytes.min(options.memtable_budget() as u64)
}

/// Bytes that a step of relocation writes before it can remove a file of values.
fn relocation_bytes(state: &State, options: &Options) -> u64 {
    let values = state.version.values.iter().map(|segment| segment.live.bytes);
    values.fold(0, u64::saturating_add).min(moved_bytes(options))
}

/// Largest step in which the log's space is reserved.
const LOG_STEP_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::in_units;

    #[test]
    fn bytes_are_told_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0.00 KiB"),
            (1_023, "0.99 KiB"),
            (100 << 10, "100.00 KiB"),
            ((1 << 20) - 1, "1023.99 KiB"),
            (1_268_777, "1.21 MiB"),
            (5 << 30, "5.00 GiB"),
            (u64::MAX, "16777215.99 TiB"),
        ] {
            assert_eq!(in_units(bytes), text);
        }
    }
}
