//! Resynchronization: finding the next record behind damage, for salvage.
//!
//! A long header proves itself and the length of its record. So if only the payload is damaged, salvage takes nothing inside
//! it for a record: what looks like one can be a value copied from a log. The same holds for a stale record, whose payload is
//! not even checked. This keeps the work linear too, because no payload is checked twice.
//!
//! The header also says which number and epoch a short record behind it has. So salvage looks there first.

use std::path::Path;

use pleach_env::{Env, FileId};

use super::file_header::FileKind;
use super::reach::UNREADABLE_LEN;
use super::reader::{Found, RecordReader};
use super::record_header::{ChainStart, RecordHeader, RecordKind, SeqNo};

impl RecordReader {
    /// Opens the file for salvage and ignores its header.
    pub(crate) fn open_for_salvage(
        env: &dyn Env,
        path: &Path,
        kind: &FileKind,
        id: FileId,
    ) -> pleach_env::Result<Self> {
        let mut reader = Self::at_first_record(env, path, kind, id)?;
        reader.damaged_to = Some(0);
        Ok(reader)
    }

    /// Where the next record is due.
    pub(crate) fn position(&self) -> u64 {
        self.offset
    }

    /// Goes to the next record behind the one at `offset`, which `advance` did not find, so that `advance` reads it: the one
    /// that follows a long record with a damaged payload, or the next long one. Returns whether there is one, and the end of
    /// the last byte that is not zero before it, or of the damaged record.
    pub(crate) fn find_record(&mut self, offset: u64) -> (bool, u64) {
        if self.follow_damaged() {
            return (true, self.offset);
        }
        let (mut at, mut used_to) = (offset, offset);
        while at < self.len {
            let Ok(step) = self.find_tag(at) else {
                at = (at / UNREADABLE_LEN + 1) * UNREADABLE_LEN;
                used_to = at.min(self.len);
                continue;
            };
            if let Some(used) = step.used {
                used_to = at + used;
            }
            at += step.passed;
            if step.is_found {
                if at > offset && self.is_record(at, None) {
                    return (true, used_to);
                }
                if self.follow_damaged() {
                    return (true, self.offset);
                }
                used_to = at + 1;
                at += 1;
            }
        }
        (false, used_to)
    }

    /// Makes the record at `start` the next one.
    pub(crate) fn go_to(&mut self, start: ChainStart) {
        (self.offset, self.next_seq, self.epoch) = (start.offset, Some(start.first_seq), start.epoch);
    }

    /// Whether a record that is not stale stands at `offset`, with the number `next_seq` if it is given. The next record is the
    /// one at `offset`.
    fn is_record(&mut self, offset: u64, next_seq: Option<SeqNo>) -> bool {
        (self.offset, self.next_seq) = (offset, next_seq);
        let is_record = matches!(self.advance(), Ok(Found::Record(..)));
        (self.offset, self.next_seq) = (offset, next_seq);
        is_record
    }

    /// If the last record has a damaged payload, goes to the record behind it, or behind several such records in a row.
    /// Returns whether there is one.
    fn follow_damaged(&mut self) -> bool {
        while let Some(next) = self.after_damaged.take() {
            self.epoch = next.epoch;
            if self.is_record(next.offset, Some(next.first_seq)) {
                return true;
            }
        }
        false
    }

    /// Judges the record at `offset`, whose header is proven, before its payload is verified. An error if the payload does not
    /// matter. Recovery judges later.
    pub(super) fn doubt(&mut self, header: &RecordHeader, offset: u64) -> Result<(), &'static str> {
        let Some(damaged_to) = self.damaged_to else { return Ok(()) };
        if offset < damaged_to {
            return Err("a record inside the payload of a damaged one");
        }
        if header.kind == RecordKind::Short {
            return Ok(());
        }
        let due = header.due_behind(offset);
        self.damaged_to = Some(due.offset);
        if header.epoch < self.epoch {
            return Err("a stale record");
        }
        // Proven by the header alone: what has a lower epoch behind it is left from a failed append.
        self.epoch = header.epoch;
        self.after_damaged = Some(due);
        Ok(())
    }

    /// The payload of the record at `offset` is verified.
    pub(super) fn trust(&mut self, offset: u64) {
        self.damaged_to = self.damaged_to.map(|_| offset);
        self.after_damaged = None;
    }
}
