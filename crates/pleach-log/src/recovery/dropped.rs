//! Counts the records and bytes behind the end of the prefix, which recovery drops.

use crate::record_file::{RecordHeader, RecordKind, SeqNo};

/// The counts, file by file.
#[derive(Default)]
pub(super) struct Dropped {
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Records below this number have been counted. A copy left by an interrupted recovery is not counted again.
    counted_to: SeqNo,
    /// Offset of the first one in the current file.
    first_at: Option<u64>,
}

impl Dropped {
    /// Counts a whole record that is not taken. Markers do not count.
    pub(super) fn note_record(&mut self, header: &RecordHeader, offset: u64) {
        self.first_at.get_or_insert(offset);
        if header.kind != RecordKind::Marker && header.first_seq >= self.counted_to {
            self.records += 1;
            self.counted_to = header.next_seq();
        }
    }

    /// Counts the bytes of a file: its chain of records ends at `chain_end`, its last byte that is not zero before `end`.
    pub(super) fn end_file(&mut self, chain_end: u64, end: u64) {
        let start = self.first_at.take().map_or(chain_end, |first| first.min(chain_end));
        self.bytes += end - start;
    }
}
