//! Recovery: finds the longest trusted prefix of the records, or the fact that something durable is missing.
//!
//! [`recover`] reads the log's segments, [`read_records`] one record file such as the manifest. Both only read. The engine
//! then writes the tail into a fresh segment, moves the floor, and removes the old segments.
//!
//! # Invariants
//! 1. *Prefix.* Records are visited in the order of their sequence numbers, without gaps, each once.
//! 2. *Lower bound.* If any record claims that a sequence number beyond the prefix was durable, the result is an error.
//!    Otherwise no missing record was acknowledged as durable.
//! 3. *No guess.* A read error is returned; it never ends the prefix.
//!
//! # On disk
//! docs/format/log.md, "Recovery", has the argument by cases.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, FileId, Result};

use crate::record_file::{
    FileKind, Found, HeaderState, LaterRecord, ManifestHint, RecordHeader, RecordKind, RecordReader, SeqNo,
};
use crate::segment::{LOG_SEGMENT, segment_path};

use dropped::Dropped;

mod dropped;

/// A recovered record.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// Its first sequence number.
    pub first_seq: SeqNo,
    /// How many it takes.
    pub count: u32,
    /// The bytes that were appended.
    pub payload: &'a [u8],
    /// The file it stands in.
    pub segment: FileId,
    /// Where its header starts.
    pub offset: u64,
    pub(crate) epoch: u8,
}

impl<'a> Record<'a> {
    /// The record that `reader` read last.
    pub(crate) fn of(reader: &'a RecordReader, header: &RecordHeader, offset: u64) -> Self {
        let RecordHeader { first_seq, count, epoch, .. } = *header;
        Self { first_seq, count, payload: reader.payload(), segment: reader.id(), offset, epoch }
    }
}

impl std::fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("first_seq", &self.first_seq)
            .field("count", &self.count)
            .field("payload_len", &self.payload.len())
            .field("segment", &self.segment)
            .field("offset", &self.offset)
            .finish()
    }
}

/// What [`recover`] or [`read_records`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The sequence number that is due next.
    pub next_seq: SeqNo,
    /// Where the torn tail begins, if there is one: the first place behind the prefix that holds anything but zeros.
    pub torn: Option<(FileId, u64)>,
    /// Where the prefix ends in its last file; 0 if that file has no whole header. If it is less than the newest
    /// [`ManifestHint`] for this file, durable bytes are missing; the caller compares.
    pub end: u64,
    /// The largest manifest hint in the files' headers.
    pub hint: Option<ManifestHint>,
    /// How many records were visited.
    pub records: u64,
    /// How many bytes of payload were visited.
    pub bytes: u64,
    /// How many whole records behind the prefix were dropped. A lower bound: behind a gap, the search finds long records and
    /// the short records that follow one without a gap.
    pub dropped_records: u64,
    /// How many bytes behind the prefix were dropped: in each file, from the first one not taken to the last one that is not
    /// zero.
    pub dropped_bytes: u64,
    /// How many bytes were read, checksummed or compared. Linear in the length of the files.
    pub examined_bytes: u64,
}

/// Reads the log's `segments` (in ascending order, none below the floor) and visits the records from `next_seq` on.
///
/// Records wholly below `next_seq` are skipped. A later segment may repeat records of earlier ones, with the same
/// boundaries: an interrupted recovery leaves such copies. If an error comes after some records were visited, the caller
/// discards what it made of them.
pub fn recover(
    env: &Arc<dyn Env>,
    dir: &Path,
    segments: &[FileId],
    next_seq: SeqNo,
    visit: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<Recovery> {
    if !segments.is_sorted_by(|a, b| a < b) {
        return Err(Error::invalid("log segments must be given in ascending order"));
    }
    let mut prefix = Prefix::new(next_seq, visit);
    for &id in segments {
        prefix.read_file(&**env, &segment_path(dir, id), &LOG_SEGMENT, id)?;
    }
    prefix.finish()
}

/// Reads the record file `id` at `path` and visits its records from `next_seq` on.
pub fn read_records(
    env: &Arc<dyn Env>,
    path: &Path,
    kind: &FileKind,
    id: FileId,
    next_seq: SeqNo,
    visit: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<Recovery> {
    let mut prefix = Prefix::new(next_seq, visit);
    prefix.read_file(&**env, path, kind, id)?;
    prefix.finish()
}

/// A place in a file, and what was found there instead of the record that is due.
struct Place {
    path: PathBuf,
    id: FileId,
    offset: u64,
    found: &'static str,
}

impl Place {
    fn of(reader: &RecordReader, offset: u64, found: &'static str) -> Self {
        Self { path: reader.path().to_path_buf(), id: reader.id(), offset, found }
    }
}

/// A record's claim of what was durable, and the place of the record.
struct Evidence {
    durable_seq: SeqNo,
    place: Place,
}

/// The trusted prefix while the files are read one after the other.
struct Prefix<'v> {
    visit: &'v mut dyn FnMut(Record<'_>) -> Result<()>,
    /// What was found so far. `finish` fills in `torn`, `end` and what was dropped.
    found: Recovery,
    /// First place behind the last visited record that holds neither the due record nor zeros.
    torn: Option<Place>,
    /// Where the last file read ended.
    end: Option<Place>,
    evidence: Option<Evidence>,
    dropped: Dropped,
}

impl<'v> Prefix<'v> {
    fn new(next_seq: SeqNo, visit: &'v mut dyn FnMut(Record<'_>) -> Result<()>) -> Self {
        let found = Recovery {
            next_seq,
            torn: None,
            end: 0,
            hint: None,
            records: 0,
            bytes: 0,
            dropped_records: 0,
            dropped_bytes: 0,
            examined_bytes: 0,
        };
        Self { visit, found, torn: None, end: None, evidence: None, dropped: Dropped::default() }
    }

    fn finish(self) -> Result<Recovery> {
        self.check_durable()?;
        Ok(Recovery {
            torn: self.torn.as_ref().map(|place| (place.id, place.offset)),
            end: self.torn.as_ref().or(self.end.as_ref()).map_or(0, |place| place.offset),
            dropped_records: self.dropped.records,
            dropped_bytes: self.dropped.bytes,
            ..self.found
        })
    }

    fn read_file(&mut self, env: &dyn Env, path: &Path, kind: &FileKind, id: FileId) -> Result<()> {
        let (mut reader, header) = RecordReader::open(env, path, kind, id)?;
        match header {
            HeaderState::Torn(found) => {
                self.note_torn(&reader, 0, found);
                self.search(&mut reader, 0)?;
            }
            HeaderState::Whole(header) => {
                self.found.hint = self.found.hint.max(header.known_hint());
                self.walk(&mut reader)?;
            }
        }
        self.found.examined_bytes += reader.examined();
        Ok(())
    }

    /// Follows the chain of a file to its end, and searches the bytes behind it.
    fn walk(&mut self, reader: &mut RecordReader) -> Result<()> {
        loop {
            match reader.advance()? {
                Found::Record(header, offset) => self.take(reader, &header, offset)?,
                Found::End { offset, found } => {
                    if !self.search(reader, offset)? {
                        self.note_torn(reader, offset, found);
                    }
                    self.end = Some(Place::of(reader, offset, found));
                    return Ok(());
                }
            }
        }
    }

    fn take(&mut self, reader: &RecordReader, header: &RecordHeader, offset: u64) -> Result<()> {
        if let Some(durable_seq) = header.durable_seq() {
            self.note_evidence(reader, durable_seq, offset);
        }
        if header.kind == RecordKind::Marker || header.next_seq() <= self.found.next_seq {
            return Ok(());
        }
        if header.first_seq > self.found.next_seq {
            self.note_torn(reader, offset, "a record with a later sequence number");
            self.dropped.note_record(header, offset);
            return Ok(());
        }
        if header.first_seq < self.found.next_seq {
            let message = format!(
                "expected a record from sequence number {} on, found one from {} on",
                self.found.next_seq, header.first_seq
            );
            return Err(Error::corruption(reader.path(), offset, message));
        }
        let record = Record::of(reader, header, offset);
        (self.visit)(record)?;
        self.torn = None;
        self.dropped = Dropped::default();
        self.found.next_seq = header.next_seq();
        self.found.records += 1;
        self.found.bytes += record.payload.len() as u64;
        Ok(())
    }

    /// Searches from `offset` to the end of the file for evidence, and counts what is dropped. Returns whether it found only
    /// zeros.
    fn search(&mut self, reader: &mut RecordReader, offset: u64) -> Result<bool> {
        let mut claim: Option<(SeqNo, u64)> = None;
        let (due, dropped) = (self.found.next_seq, &mut self.dropped);
        let end = reader.search(offset, &mut |later: LaterRecord| {
            if later.is_whole && later.header.first_seq >= due {
                dropped.note_record(&later.header, later.offset);
            }
            let durable_seq = later.header.durable_seq();
            if claim.map(|(seq, _)| seq) < durable_seq {
                claim = durable_seq.map(|seq| (seq, later.offset));
            }
        })?;
        self.dropped.end_file(offset, end);
        if let Some((durable_seq, at)) = claim {
            self.note_evidence(reader, durable_seq, at);
        }
        Ok(end == offset)
    }

    fn note_evidence(&mut self, reader: &RecordReader, durable_seq: SeqNo, offset: u64) {
        // The prefix only grows, so evidence that it reaches already never matters.
        let known = self.evidence.as_ref().map_or(0, |e| e.durable_seq);
        if durable_seq >= self.found.next_seq && durable_seq > known {
            self.evidence = Some(Evidence { durable_seq, place: Place::of(reader, offset, "a record") });
        }
    }

    fn note_torn(&mut self, reader: &RecordReader, offset: u64, found: &'static str) {
        self.torn.get_or_insert_with(|| Place::of(reader, offset, found));
    }

    /// Tells a torn tail from damage: an error if a durable record is missing.
    fn check_durable(&self) -> Result<()> {
        let Some(evidence) = self.evidence.as_ref().filter(|e| e.durable_seq >= self.found.next_seq) else {
            return Ok(());
        };
        let place = self.torn.as_ref().or(self.end.as_ref()).unwrap_or(&evidence.place);
        let message = format!(
            "expected the record from sequence number {} on, durable according to {} at offset {}, found {}",
            self.found.next_seq,
            evidence.place.path.display(),
            evidence.place.offset,
            place.found,
        );
        Err(Error::corruption(&place.path, place.offset, message))
    }
}
