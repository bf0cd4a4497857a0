//! Salvage: every record of a record file that proves itself, whatever lies between.
//!
//! For repair and for reports of damage. [`recover`](crate::recover) ends at the first missing record. Salvage goes on behind
//! it and reports what it skipped.
//!
//! # Invariants
//! 1. *Nothing unproven*: every record shown has right checksums, and none is the stale record of a failed append.
//! 2. *Read only*: nothing is written.
//! 3. *Errors do not end it*: bytes that cannot be read count as damage, and the search goes on behind them.

use std::path::Path;
use std::sync::Arc;

use pleach_env::{Env, Error, FileId, Result};

use crate::record_file::{
    ChainStart, FILE_HEADER_LEN, FileKind, Found, HeaderState, ManifestHint, RecordHeader, RecordKind,
    RecordReader,
};
use crate::recovery::Record;

/// What salvage finds in a record file, in the order of the file.
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

/// Shows `visit` every record of the record file `id` at `path`, and all damage between; `visit` returns whether to go on.
/// Returns the manifest hint, if the header is whole and has one.
///
/// # Errors
/// `Io` when the file cannot be opened at all, and those of `visit`.
pub fn salvage_records(
    env: &Arc<dyn Env>,
    path: &Path,
    kind: &FileKind,
    id: FileId,
    visit: &mut dyn FnMut(Salvaged<'_>) -> Result<bool>,
) -> Result<Option<ManifestHint>> {
    let mut hint = None;
    let mut reader = RecordReader::open_for_salvage(&**env, path, kind, id)?;
    let damage = match reader.header(kind) {
        Ok(HeaderState::Whole(header)) => {
            hint = header.known_hint();
            None
        }
        Ok(HeaderState::Torn(found)) => {
            let error = Error::corruption(path, 0, format!("expected a header, found {found}"));
            Some(Salvaged::Damage { offset: 0, len: FILE_HEADER_LEN as u64, error })
        }
        Err(error) => Some(Salvaged::Damage { offset: error.offset().unwrap_or(0), len: 0, error }),
    };
    if damage.map_or(Ok(true), &mut *visit)? {
        walk(&mut reader, visit)?;
    }
    Ok(hint)
}

fn walk(reader: &mut RecordReader, visit: &mut dyn FnMut(Salvaged<'_>) -> Result<bool>) -> Result<()> {
    loop {
        let goes_on = match next_record(reader) {
            Ok((header, offset)) => visit(Salvaged::Record(Record::of(reader, &header, offset)))?,
            Err((offset, error)) => {
                let (is_found, end) = reader.find_record(offset);
                let len = end.saturating_sub(offset);
                (len == 0 || visit(Salvaged::Damage { offset, len, error })?) && is_found
            }
        };
        if !goes_on {
            return Ok(());
        }
    }
}

/// Reads the next record that has a payload; an error and its place where the chain ends.
fn next_record(reader: &mut RecordReader) -> std::result::Result<(RecordHeader, u64), (u64, Error)> {
    loop {
        match reader.advance() {
            Ok(Found::Record(header, _)) if header.kind == RecordKind::Marker => {}
            Ok(Found::Record(header, offset)) => return Ok((header, offset)),
            Ok(Found::End { offset, found }) => {
                let message = format!("expected a record, found {found}");
                return Err((offset, Error::corruption(reader.path(), offset, message)));
            }
            Err(error) => return Err((reader.position(), error)),
        }
    }
}

impl From<&Record<'_>> for ChainStart {
    fn from(record: &Record<'_>) -> Self {
        Self { offset: record.offset, first_seq: record.first_seq, epoch: record.epoch }
    }
}

/// A reader of the records that [`salvage_records`] shows, from one of them on. It skips damage without a report. It reads
/// each record once, and the caller may stop at one and go on later.
pub struct SalvageReader {
    reader: RecordReader,
    found: Option<(RecordHeader, u64)>,
}

impl SalvageReader {
    /// Opens the record file `id` at `path`, to read from the record at `start` on.
    ///
    /// # Errors
    /// `Io` when the file cannot be opened.
    pub fn open(env: &dyn Env, path: &Path, kind: &FileKind, id: FileId, start: ChainStart) -> Result<Self> {
        let mut reader = RecordReader::open_for_salvage(env, path, kind, id)?;
        reader.go_to(start);
        let mut this = Self { reader, found: None };
        this.advance();
        Ok(this)
    }

    /// The current record; `None` behind the last one.
    pub fn record(&self) -> Option<Record<'_>> {
        let (header, offset) = self.found.as_ref()?;
        Some(Record::of(&self.reader, header, *offset))
    }

    /// Goes to the next record.
    pub fn advance(&mut self) {
        self.found = loop {
            match next_record(&mut self.reader) {
                Ok(found) => break Some(found),
                Err((offset, _)) if self.reader.find_record(offset).0 => {}
                Err(_) => break None,
            }
        };
    }
}

impl std::fmt::Debug for SalvageReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SalvageReader")
            .field("at", &self.found.as_ref().map(|found| found.1))
            .finish_non_exhaustive()
    }
}
