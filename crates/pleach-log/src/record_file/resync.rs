//! Resynchronization: finding the next record behind damage, for salvage.
//!
//! A long header proves itself and the length of its record. So if only the payload is damaged, salvage takes nothing inside
//! it for a record: what looks like one can be a value copied from a log. This keeps the work linear too, because no
//! payload is checked twice.

use std::path::Path;

use pleach_env::{Env, FileId, Result};

use super::file_header::FileKind;
use super::reader::{Found, RecordReader};

/// Bytes that are passed over where a read fails: a page.
const UNREADABLE_LEN: u64 = 4096;

impl RecordReader {
    /// Opens the file for salvage and ignores its header.
    pub(crate) fn open_for_salvage(env: &dyn Env, path: &Path, kind: &FileKind, id: FileId) -> Result<Self> {
        let mut reader = Self::at_first_record(env, path, kind, id)?;
        reader.damaged_to = Some(0);
        Ok(reader)
    }

    /// Where the next record is due.
    pub(crate) fn position(&self) -> u64 {
        self.offset
    }

    /// Goes to the next long record behind `offset`, so that `advance` reads it. Returns whether there is one, and the end of
    /// the last byte that is not zero before it.
    pub(crate) fn find_record(&mut self, offset: u64) -> (bool, u64) {
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
                if at > offset && self.is_record(at) {
                    return (true, used_to);
                }
                used_to = at + 1;
                at += 1;
            }
        }
        (false, used_to)
    }

    /// Makes the record at `offset` the next one.
    pub(crate) fn go_to(&mut self, offset: u64) {
        (self.offset, self.next_seq) = (offset, None);
    }

    /// Whether a record that is not stale stands at `offset`. The next record is the one at `offset`.
    fn is_record(&mut self, offset: u64) -> bool {
        self.go_to(offset);
        let is_record = matches!(self.advance(), Ok(Found::Record(..)));
        self.go_to(offset);
        is_record
    }
}
