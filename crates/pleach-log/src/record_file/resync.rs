//! Reading on behind the end of a chain, for salvage.
//!
//! A long header proves itself, and with it how many bytes belong to its record. So where its payload is damaged, nothing
//! inside of it is taken for a record, although it may look like one: it is a value that was copied from a log. That
//! also keeps the work linear, for no payload is checked twice.

use std::path::Path;

use pleach_env::{Env, Error, FileId, OpenOptions, Result};

use super::file_header::FileKind;
use super::reader::{Found, RecordReader};

/// Bytes that are passed over where a read fails: a page.
const UNREADABLE_LEN: u64 = 4096;

impl RecordReader {
    /// Opens the file without a look at its header.
    pub(crate) fn blind(env: &dyn Env, path: &Path, kind: &FileKind, id: FileId) -> Result<Self> {
        let failed = |e| Error::io(&format!("open the {}", kind.name), path, e);
        let file = env.open_file(path, OpenOptions::default()).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        let mut reader = Self::over(file, path, id, len);
        reader.damaged_to = Some(0);
        Ok(reader)
    }

    /// Where the next record is due.
    pub(crate) fn position(&self) -> u64 {
        self.offset
    }

    /// Goes to the next long record behind `offset`, so that `advance` reads it. Returns whether there is one, and the end of
    /// the last byte before it that is not zero.
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

    /// Makes a record at `offset` the next one.
    pub(crate) fn go_to(&mut self, offset: u64) {
        (self.offset, self.next_seq) = (offset, None);
    }

    /// Whether a record that is not stale stands at `offset`; the chain goes on there.
    fn is_record(&mut self, offset: u64) -> bool {
        self.go_to(offset);
        let is_record = matches!(self.advance(), Ok(Found::Record(..)));
        self.go_to(offset);
        is_record
    }
}
