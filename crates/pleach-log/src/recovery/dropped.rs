//! Counts the records and bytes behind the end of the prefix, which recovery drops.

use crate::record_file::{RecordHeader, RecordKind, SeqNo};

/// The counts, file by file.
#[derive(Default)]
pub(super) struct Dropped {
    records: u64,
    bytes: u64,
    /// Records below this number have been counted: the copy that an interrupted recovery left behind is no second loss.
    counted_to: SeqNo,
    /// Where the first one of the current file is.
    first_at: Option<u64>,
}

impl Dropped {
    /// Counts a whole record that is not taken. Markers are no loss.
    pub(super) fn note_record(&mut self, header: &RecordHeader, offset: u64) {
        self.first_at.get_or_insert(offset);
        if header.kind != RecordKind::Marker && header.first_seq >= self.counted_to {
            self.records += 1;
            self.counted_to = header.next_seq();
        }
    }

    /// Ends a file whose chain of records ends at `chain_end`, and whose last byte that is not zero is before `end`.
    pub(super) fn end_file(&mut self, chain_end: u64, end: u64) {
        let start = self.first_at.take().map_or(chain_end, |first| first.min(chain_end));
        self.bytes += end - start;
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
