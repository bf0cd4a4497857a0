//! Salvage: every record of a record file that proves itself, whatever lies between.
//!
//! For repair and for reports of damage. [`recover`](crate::recover) ends at the first missing record, because what follows
//! is no prefix. Salvage goes on behind it and reports what it skipped.
//!
//! # Invariants
//! 1. *Nothing unproven*: a record is shown only with a right checksum, and no stale one of a failed append.
//! 2. *Read only*: nothing is written.
//! 3. *Errors do not end it*: bytes that cannot be read are damage, and the search goes on behind them.

use std::path::Path;
use std::sync::Arc;

use pleach_env::{Env, Error, FileId, Result};

use crate::record_file::{
    FILE_HEADER_LEN, FileKind, Found, ManifestHint, Opened, RecordHeader, RecordKind, RecordReader,
};
use crate::recovery::Record;

/// A finding of the salvage of a record file. Findings come in the order of the file.
#[derive(Debug)]
pub enum Salvaged<'a> {
    /// A record with a payload.
    Record(Record<'a>),
    /// `len` bytes at `offset` are no record, and not all of them are zero.
    Damage {
        /// Where they begin.
        offset: u64,
        /// How many there are.
        len: u64,
        /// The error.
        error: Error,
    },
}

/// The content of the header of a salvaged file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SalvagedHeader {
    /// The manifest hint, where the header is whole and has one.
    pub hint: Option<ManifestHint>,
}

/// Shows `visit` every record of the record file `id` at `path`, and all damage between; it returns whether to go on.
///
/// # Errors
/// `Io` when the file cannot be opened at all, and those of `visit`.
pub fn salvage_records(
    env: &Arc<dyn Env>,
    path: &Path,
    kind: &FileKind,
    id: FileId,
    visit: &mut dyn FnMut(Salvaged<'_>) -> Result<bool>,
) -> Result<SalvagedHeader> {
    let mut header = SalvagedHeader::default();
    match RecordReader::open(&**env, path, kind, id) {
        Ok((_, Opened::Whole(found))) => {
            header.hint = Some(found.hint).filter(|hint| *hint != ManifestHint::NONE);
        }
        Ok((_, Opened::Torn(found))) => {
            let error = Error::corruption(path, 0, format!("expected a header, found {found}"));
            if !visit(Salvaged::Damage { offset: 0, len: FILE_HEADER_LEN as u64, error })? {
                return Ok(header);
            }
        }
        Err(error) => {
            if !visit(Salvaged::Damage { offset: error.offset().unwrap_or(0), len: 0, error })? {
                return Ok(header);
            }
        }
    }
    walk(&mut RecordReader::blind(&**env, path, kind, id)?, visit)?;
    Ok(header)
}

fn walk(reader: &mut RecordReader, visit: &mut dyn FnMut(Salvaged<'_>) -> Result<bool>) -> Result<()> {
    loop {
        match reader.advance() {
            Ok(Found::Record(header, offset)) => {
                if header.kind == RecordKind::Marker {
                    continue;
                }
                let record = Record {
                    first_seq: header.first_seq,
                    count: header.count,
                    payload: reader.payload(),
                    segment: reader.id(),
                    offset,
                };
                if !visit(Salvaged::Record(record))? {
                    return Ok(());
                }
            }
            Ok(Found::End { offset, found }) => {
                let error =
                    Error::corruption(reader.path(), offset, format!("expected a record, found {found}"));
                if !pass_over(reader, offset, error, visit)? {
                    return Ok(());
                }
            }
            Err(error) => {
                let offset = reader.position();
                if !pass_over(reader, offset, error, visit)? {
                    return Ok(());
                }
            }
        }
    }
}

/// Goes to the next record behind `offset` and reports what was skipped; `false` at the end.
fn pass_over(
    reader: &mut RecordReader,
    offset: u64,
    error: Error,
    visit: &mut dyn FnMut(Salvaged<'_>) -> Result<bool>,
) -> Result<bool> {
    let (next, used_to) = reader.find_record(offset);
    let goes_on = match used_to.checked_sub(offset) {
        Some(len @ 1..) => visit(Salvaged::Damage { offset, len, error })?,
        _ => true,
    };
    Ok(goes_on && next)
}

/// A reader of the records that [`salvage_records`] shows, from one of them on: damage between them is passed over, since it
/// was reported before. Each record is read once, and the caller may stop at one and go on later.
pub struct SalvageReader {
    reader: RecordReader,
    found: Option<(RecordHeader, u64)>,
}

impl SalvageReader {
    /// Opens the record file `id` at `path`, to read from `offset` on. Requires: a record found behind a gap or at the
    /// file's beginning stands there.
    ///
    /// # Errors
    /// `Io` when the file cannot be opened.
    pub fn open(env: &dyn Env, path: &Path, kind: &FileKind, id: FileId, offset: u64) -> Result<Self> {
        let mut reader = RecordReader::blind(env, path, kind, id)?;
        reader.go_to(offset);
        let mut this = Self { reader, found: None };
        this.advance();
        Ok(this)
    }

    /// The record that the reader stands on; `None` behind the last one.
    pub fn record(&self) -> Option<Record<'_>> {
        let (header, offset) = self.found.as_ref()?;
        let (first_seq, count, segment) = (header.first_seq, header.count, self.reader.id());
        Some(Record { first_seq, count, payload: self.reader.payload(), segment, offset: *offset })
    }

    /// Goes to the next record.
    pub fn advance(&mut self) {
        loop {
            let offset = match self.reader.advance() {
                Ok(Found::Record(header, _)) if header.kind == RecordKind::Marker => continue,
                Ok(Found::Record(header, offset)) => {
                    self.found = Some((header, offset));
                    return;
                }
                Ok(Found::End { offset, .. }) => offset,
                Err(_) => self.reader.position(),
            };
            if !self.reader.find_record(offset).0 {
                self.found = None;
                return;
            }
        }
    }
}

impl std::fmt::Debug for SalvageReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SalvageReader")
            .field("at", &self.found.as_ref().map(|found| found.1))
            .finish_non_exhaustive()
    }
}
