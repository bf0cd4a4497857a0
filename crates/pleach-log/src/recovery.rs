//! Recovery: the prefix of the records that may be trusted, or the finding that something durable is missing.
//!
//! [`recover`] reads the log's segments, [`read_records`] one record file such as the manifest. Both only read; what to
//! do with the result (write the tail into a fresh segment, move the floor, remove the old segments) is the engine's.
//!
//! # Invariants
//! 1. *Prefix.* Records are visited in the order of their sequence numbers, without gaps, each once.
//! 2. *Lower bound.* If any record found anywhere says that a sequence number was durable which the prefix does not
//!    reach, the result is an error. Otherwise what is missing was never acknowledged as durable.
//! 3. *No guess.* A read error is an error.
//!
//! # On disk
//! docs/format/log.md, "Recovery", has the argument by cases.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, FileId, Result};

use crate::record_file::{
    FileKind, Found, ManifestHint, Opened, RecordHeader, RecordKind, RecordReader, Remains, SeqNo,
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
    /// The records that were appended.
    pub payload: &'a [u8],
    /// The file it stands in.
    pub segment: FileId,
    /// Where its header starts.
    pub offset: u64,
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

/// The findings of [`recover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The sequence number that is due next.
    pub next_seq: SeqNo,
    /// Where a torn tail begins, if there is one: the first place after the prefix that holds anything but zeros.
    pub torn: Option<(FileId, u64)>,
    /// The largest manifest hint in the segments' headers.
    pub hint: Option<ManifestHint>,
    /// How many records were visited.
    pub records: u64,
    /// How many bytes of payload were visited.
    pub bytes: u64,
    /// How many whole records stand behind the end of the prefix and are not taken. A lower bound: behind a gap, only
    /// long records are found, and the short ones that follow one without a gap.
    pub dropped_records: u64,
    /// How many bytes stand there: in each file, from its first byte that was not taken to its last one that is not zero.
    pub dropped_bytes: u64,
    /// How many bytes were read, checksummed or compared: the work, linear in the length of the segments.
    pub examined_bytes: u64,
}

/// The findings of [`read_records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecovery {
    /// The sequence number that is due next.
    pub next_seq: SeqNo,
    /// Where the valid part of the file ends; 0 if not even the header is whole. Less than the length of the newest
    /// [`ManifestHint`] for this file means that durable bytes are missing: the caller compares.
    pub end: u64,
    /// Whether anything but zeros follows.
    pub torn: bool,
    /// How many records were visited.
    pub records: u64,
    /// How many bytes of payload were visited.
    pub bytes: u64,
}

/// Reads the log's `segments` (in ascending order, none below the floor) and visits the records from `next_seq` on.
///
/// Records wholly below `next_seq` are skipped. A later segment may repeat records of earlier ones, with the same
/// boundaries: recovery itself copies the tail into a fresh segment and may be interrupted. An error may come after
/// records have been visited; the caller then drops what it made of them.
pub fn recover(
    env: &Arc<dyn Env>,
    dir: &Path,
    segments: &[FileId],
    next_seq: SeqNo,
    visit: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<Recovery> {
    if !segments.is_sorted_by(|a, b| a < b) {
        return Err(Error::invalid("log segments are to be given in ascending order"));
    }
    let mut prefix = Prefix::new(next_seq, visit);
    for &id in segments {
        prefix.read_file(&**env, &segment_path(dir, id), &LOG_SEGMENT, id)?;
    }
    prefix.judge()?;
    Ok(Recovery {
        next_seq: prefix.next_seq,
        torn: prefix.torn.map(|place| (place.id, place.offset)),
        hint: prefix.hint,
        records: prefix.records,
        bytes: prefix.bytes,
        dropped_records: prefix.dropped.records(),
        dropped_bytes: prefix.dropped.bytes(),
        examined_bytes: prefix.examined,
    })
}

/// Reads the record file `id` at `path` and visits its records from `next_seq` on.
pub fn read_records(
    env: &Arc<dyn Env>,
    path: &Path,
    kind: &FileKind,
    id: FileId,
    next_seq: SeqNo,
    visit: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<FileRecovery> {
    let mut prefix = Prefix::new(next_seq, visit);
    prefix.read_file(&**env, path, kind, id)?;
    prefix.judge()?;
    let end = prefix.torn.as_ref().or(prefix.end.as_ref()).map_or(0, |place| place.offset);
    Ok(FileRecovery {
        next_seq: prefix.next_seq,
        end,
        torn: prefix.torn.is_some(),
        records: prefix.records,
        bytes: prefix.bytes,
    })
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

/// A record's statement about durability, and its place.
struct Evidence {
    durable_seq: SeqNo,
    place: Place,
}

/// The trusted prefix while the files are read one after the other.
struct Prefix<'v> {
    visit: &'v mut dyn FnMut(Record<'_>) -> Result<()>,
    next_seq: SeqNo,
    /// First place since the last visited record where something else than it or zeros was found.
    torn: Option<Place>,
    /// Where the last file read ended.
    end: Option<Place>,
    evidence: Option<Evidence>,
    hint: Option<ManifestHint>,
    records: u64,
    bytes: u64,
    dropped: Dropped,
    examined: u64,
}

impl<'v> Prefix<'v> {
    fn new(next_seq: SeqNo, visit: &'v mut dyn FnMut(Record<'_>) -> Result<()>) -> Self {
        Self {
            visit,
            next_seq,
            torn: None,
            end: None,
            evidence: None,
            hint: None,
            records: 0,
            bytes: 0,
            dropped: Dropped::default(),
            examined: 0,
        }
    }

    fn read_file(&mut self, env: &dyn Env, path: &Path, kind: &FileKind, id: FileId) -> Result<()> {
        let (mut reader, opened) = RecordReader::open(env, path, kind, id)?;
        match opened {
            Opened::Torn(found) => {
                self.tear(&reader, 0, found);
                self.search(&mut reader, 0)?;
            }
            Opened::Whole(header) => {
                self.hint = self.hint.max(Some(header.hint).filter(|&hint| hint != ManifestHint::NONE));
                self.walk(&mut reader)?;
            }
        }
        self.examined += reader.examined();
        Ok(())
    }

    /// Follows the chain of a file to its end, and searches what is behind.
    fn walk(&mut self, reader: &mut RecordReader) -> Result<()> {
        loop {
            match reader.advance()? {
                Found::Record(header, offset) => self.take(reader, &header, offset)?,
                Found::End { offset, found } => {
                    if !self.search(reader, offset)? {
                        self.tear(reader, offset, found);
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
        if header.kind == RecordKind::Marker || header.next_seq() <= self.next_seq {
            return Ok(());
        }
        if header.first_seq > self.next_seq {
            self.tear(reader, offset, "a record with a later sequence number");
            self.dropped.note_record(header, offset);
            return Ok(());
        }
        if header.first_seq < self.next_seq {
            let message = format!(
                "expected a record from sequence number {} on, found one from {} on",
                self.next_seq, header.first_seq
            );
            return Err(Error::corruption(reader.path(), offset, message));
        }
        let payload = reader.payload();
        (self.visit)(Record {
            first_seq: header.first_seq,
            count: header.count,
            payload,
            segment: reader.id(),
            offset,
        })?;
        self.next_seq = header.next_seq();
        self.torn = None;
        self.dropped = Dropped::default();
        self.records += 1;
        self.bytes += payload.len() as u64;
        Ok(())
    }

    /// Searches from `offset` to the end of the file for evidence, and counts what is dropped; `true` if there are only
    /// zeros.
    fn search(&mut self, reader: &mut RecordReader, offset: u64) -> Result<bool> {
        let mut claim: Option<(SeqNo, u64)> = None;
        let (due, dropped) = (self.next_seq, &mut self.dropped);
        let end = reader.search(offset, &mut |remains: Remains| {
            if remains.is_whole && remains.header.first_seq >= due {
                dropped.note_record(&remains.header, remains.offset);
            }
            let durable_seq = remains.header.durable_seq();
            if claim.map(|(seq, _)| seq) < durable_seq {
                claim = durable_seq.map(|seq| (seq, remains.offset));
            }
        })?;
        self.dropped.end_file(offset, end);
        if let Some((durable_seq, at)) = claim {
            self.note_evidence(reader, durable_seq, at);
        }
        Ok(end == offset)
    }

    fn note_evidence(&mut self, reader: &RecordReader, durable_seq: SeqNo, offset: u64) {
        // Only what reaches beyond the prefix can ever matter.
        let known = self.evidence.as_ref().map_or(0, |e| e.durable_seq);
        if durable_seq >= self.next_seq && durable_seq > known {
            self.evidence = Some(Evidence { durable_seq, place: Place::of(reader, offset, "a record") });
        }
    }

    fn tear(&mut self, reader: &RecordReader, offset: u64, found: &'static str) {
        self.torn.get_or_insert_with(|| Place::of(reader, offset, found));
    }

    /// Decides between a torn tail and damage: durable records must not be missing.
    fn judge(&self) -> Result<()> {
        let Some(evidence) = self.evidence.as_ref().filter(|e| e.durable_seq >= self.next_seq) else {
            return Ok(());
        };
        let place = self.torn.as_ref().or(self.end.as_ref()).unwrap_or(&evidence.place);
        let message = format!(
            "expected the record from sequence number {} on, durable according to {} at offset {}, found {}",
            self.next_seq,
            evidence.place.path.display(),
            evidence.place.offset,
            place.found,
        );
        Err(Error::corruption(&place.path, place.offset, message))
    }
}
