//! Reader of a home: finds a value by its pointer, reads it, and proves it by its checksum.
//!
//! A log segment and a file of copied values hold a value where its pointer says. A file of moved values has a table of
//! *anchors*: one for each group of about 4 KiB, with the old place of the group's first value and the new one. A read brings
//! the whole group.
//!
//! # Cost
//! One read a value. The table of a file of moved values takes 8 bytes of memory for each group.
//!
//! # On disk
//! Layout: docs/format/values.md.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_coding::{Decoder, u32_at, u64_at};
use pleach_env::{Env, Error, ErrorKind, File, FileId, ReadRequest, Result};
use pleach_log::FILE_HEADER_LEN;
use pleach_table::AlignedBuffer;

use super::home::{HomeKind, ValueHome};
use super::pointer::ValuePointer;
use super::read_value::{ProvedValue, range_in};
use super::stored::{CHECKSUM_LEN, StoredValue};
use crate::keys::PartitionId;

/// First bytes of a value file.
pub(super) const MAGIC: [u8; 8] = *b"PLCHVAL1";
/// Last bytes of a file of moved values.
pub(super) const MOVED_MAGIC: [u8; 8] = *b"PLCHMOVD";
pub(super) const VERSION: u32 = 1;
/// Length of the header of a value file.
pub(super) const HEADER_LEN: usize = 64;
pub(super) const HEADER_LEN_U32: u32 = 64;
/// Bytes behind the table of a file of moved values: its length, its checksum, a magic.
pub(super) const TAIL_LEN: usize = 16;

/// Bytes between two values that share a read when values are moved, at most.
const MOVE_GAP_MAX: u64 = 32 << 10;
/// Bytes of such a read, at most.
const MOVE_SPAN_MAX: u64 = 1 << 20;

/// Reads of a device begin and end at multiples of this.
const PAGE: usize = 4096;

/// The header of value file `id`.
pub(super) fn encode_header(id: FileId, kind: HomeKind) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12] = kind as u8;
    header[16..24].copy_from_slice(&id.0.to_le_bytes());
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The checksum of a table.
pub(super) fn table_checksum(id: FileId, table: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&id.0.to_le_bytes()), table)
}

/// The first value of a group: where it was and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) old: u32,
    pub(super) new: u32,
}

/// The values of one segment in a file of moved values.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    segment: FileId,
    /// Ascending, at least one.
    anchors: Box<[Anchor]>,
    /// Where the last group ends.
    end: u32,
}

/// See the module's text.
pub(crate) struct ValueFile {
    file: Arc<dyn File>,
    path: PathBuf,
    kind: HomeKind,
    len: u64,
    direct: bool,
    /// By segment; empty unless values were moved.
    parts: Vec<Part>,
}

/// The bytes to read for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueSpan {
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// The old place of the first value, if the span is a group.
    group: Option<u64>,
}

impl ValueSpan {
    /// Bytes that are no group.
    fn plain(offset: u64, len: usize) -> Self {
        Self { offset, len, group: None }
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    /// Makes the span cover another one, which does not begin before it.
    pub(crate) fn extend(&mut self, other: &Self) {
        let end = self.end().max(other.end());
        self.len = usize::try_from(end - self.offset).expect("a read fits into memory");
        self.group = None;
    }
}

impl ValueFile {
    /// Opens `home` at `path`, and reads its header and its table, if it has them.
    pub(super) fn open(env: &Arc<dyn Env>, path: &Path, home: &ValueHome, direct: bool) -> Result<Self> {
        if home.kind == HomeKind::Gone {
            return Err(Error::corruption(path, 0, "an entry points to a value that is gone"));
        }
        let metadata = env.metadata(path).map_err(|e| Error::io("look for the file", path, e))?;
        let Some(metadata) = metadata else {
            return Err(Error::corruption(
                path,
                0,
                "the manifest names this file of values, but it is missing",
            ));
        };
        if metadata.len < home.len {
            let message = format!("the file has {} bytes; the manifest says {}", metadata.len, home.len);
            return Err(Error::corruption(path, metadata.len, message));
        }
        let open =
            |direct| env.open_stable_file(path, direct).map_err(|e| Error::io("open the values", path, e));
        let mut parts = Vec::new();
        if home.kind != HomeKind::Segment {
            let file = open(false)?;
            check_header(&*file, path, home)?;
            if home.kind == HomeKind::Moved {
                parts = read_table(&*file, path, home)?;
            }
        }
        let (kind, len) = (home.kind, home.len);
        Ok(Self { file: open(direct)?, path: path.to_path_buf(), kind, len, direct, parts })
    }

    /// The segments in a file of moved values.
    pub(super) fn moved_segments(&self) -> impl Iterator<Item = FileId> {
        self.parts.iter().map(|part| part.segment)
    }

    /// Memory of the table.
    pub(super) fn memory(&self) -> usize {
        self.parts.iter().map(|part| size_of::<Part>() + size_of_val(&*part.anchors)).sum()
    }

    /// Where the bytes of a value are.
    ///
    /// # Errors
    /// `Corruption` if the pointer leads out of the file, or to a value that the file does not have.
    pub(crate) fn span(&self, pointer: ValuePointer) -> Result<ValueSpan> {
        let (span, first) = match self.kind {
            HomeKind::Segment | HomeKind::Values => {
                let len = CHECKSUM_LEN + pointer.len as usize;
                let first = if self.kind == HomeKind::Segment { FILE_HEADER_LEN } else { HEADER_LEN };
                (ValueSpan::plain(pointer.offset, len), first)
            }
            HomeKind::Moved | HomeKind::Gone => (self.group(pointer)?, HEADER_LEN),
        };
        if span.offset < first as u64 || span.offset + span.len as u64 > self.len {
            return Err(self.damaged(pointer, span.offset, "the pointer leads out of the file"));
        }
        Ok(span)
    }

    /// The group of a value that was moved.
    fn group(&self, pointer: ValuePointer) -> Result<ValueSpan> {
        let missing = || {
            let message = self.expected(pointer, "the value was not moved with the others of its segment");
            Error::new(ErrorKind::Corruption, message).at_path(&self.path)
        };
        let part = self.parts.binary_search_by_key(&pointer.segment, |part| part.segment).ok();
        let part = part.and_then(|at| self.parts.get(at)).ok_or_else(missing)?;
        let behind = part.anchors.partition_point(|anchor| u64::from(anchor.old) <= pointer.offset);
        let anchor = behind.checked_sub(1).and_then(|at| part.anchors.get(at)).ok_or_else(missing)?;
        let end = part.anchors.get(behind).map_or(part.end, |next| next.new);
        let (offset, len) = (u64::from(anchor.new), end.saturating_sub(anchor.new) as usize);
        Ok(ValueSpan { offset, len, group: Some(anchor.old.into()) })
    }

    /// The read of a span.
    pub(crate) fn request(&self, span: &ValueSpan, tag: u64) -> ReadRequest<'_, AlignedBuffer> {
        self.request_into(span, tag, None)
    }

    /// The read of a span into the memory of `used`, a buffer of another read of this store, if it is long enough.
    pub(crate) fn request_into(
        &self,
        span: &ValueSpan,
        tag: u64,
        used: Option<AlignedBuffer>,
    ) -> ReadRequest<'_, AlignedBuffer> {
        let skip = self.skip(span);
        let needed = skip + span.len;
        let len = if self.direct { needed.next_multiple_of(PAGE) } else { needed };
        let buffer = used.and_then(|used| used.resized(len)).unwrap_or_else(|| {
            if self.direct { AlignedBuffer::zeroed(len) } else { AlignedBuffer::unaligned(len) }
        });
        ReadRequest { file: &self.file, offset: span.offset - skip as u64, buffer, needed, tag }
    }

    /// Bytes of the span's first page in front of it.
    fn skip(&self, span: &ValueSpan) -> usize {
        if self.direct { usize::try_from(span.offset % PAGE as u64).expect("less than a page") } else { 0 }
    }

    /// Reads a span.
    pub(crate) fn read(&self, span: &ValueSpan) -> io::Result<AlignedBuffer> {
        self.read_into(span, None)
    }

    /// Reads a span into the memory of `used`, as [`ValueFile::request_into`].
    pub(crate) fn read_into(
        &self,
        span: &ValueSpan,
        used: Option<AlignedBuffer>,
    ) -> io::Result<AlignedBuffer> {
        let ReadRequest { offset, mut buffer, needed, .. } = self.request_into(span, 0, used);
        let mut filled = 0;
        while filled < needed {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(buffer)
    }

    /// Reads a span, as [`ValueFile::read_into`], if the system has it in memory. Otherwise gives the memory back, at once; so
    /// for direct reads, which bypass the system's memory.
    pub(crate) fn read_resident(
        &self,
        span: &ValueSpan,
        used: Option<AlignedBuffer>,
    ) -> Result<AlignedBuffer, Option<AlignedBuffer>> {
        if self.direct {
            return Err(used);
        }
        let mut buffer = self.request_into(span, 0, used).buffer;
        if self.file.read_resident_at(&mut buffer, span.offset) { Ok(buffer) } else { Err(Some(buffer)) }
    }

    /// The value in the bytes that were read for its span.
    ///
    /// # Errors
    /// `Io` if the read failed, `Corruption` if the bytes are not the value of this key.
    pub(crate) fn take(
        &self,
        pointer: ValuePointer,
        key: (PartitionId, &[u8]),
        span: &ValueSpan,
        read: io::Result<AlignedBuffer>,
    ) -> Result<ProvedValue> {
        let buffer = read.map_err(|error| self.read_failed(pointer, span, error))?;
        let mut scratch = Vec::new();
        let found = self.prove(pointer, key, span, self.bytes_of(span, &buffer), &mut scratch)?;
        let (range, len) = (range_in(&buffer, found), found.len());
        scratch.truncate(len);
        Ok(match range {
            Some(range) => ProvedValue::InBuffer(buffer, range),
            None => ProvedValue::Unpacked(scratch),
        })
    }

    /// The bytes of a span in what was read for it.
    pub(crate) fn bytes_of<'b>(&self, span: &ValueSpan, buffer: &'b [u8]) -> &'b [u8] {
        &buffer[self.skip(span)..][..span.len]
    }

    /// As [`ValueFile::take`], of the bytes of the span. A packed value is unpacked in the memory of `scratch`.
    pub(crate) fn prove<'b>(
        &self,
        pointer: ValuePointer,
        key: (PartitionId, &[u8]),
        span: &ValueSpan,
        bytes: &'b [u8],
        scratch: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        let place = self.locate(pointer, span, bytes)?;
        let at = span.offset + place.start as u64;
        let found = StoredValue::prove(key, &bytes[place]).and_then(|stored| stored.raw(scratch));
        found.map_err(|what| self.damaged(pointer, at, what))
    }

    /// As [`ValueFile::prove`], but gives the stored value with its checksum.
    pub(crate) fn prove_stored<'b>(
        &self,
        pointer: ValuePointer,
        key: (PartitionId, &[u8]),
        span: &ValueSpan,
        bytes: &'b [u8],
    ) -> Result<&'b [u8]> {
        let place = self.locate(pointer, span, bytes)?;
        let (at, bytes) = (span.offset + place.start as u64, &bytes[place]);
        StoredValue::prove(key, bytes).map(|_| bytes).map_err(|what| self.damaged(pointer, at, what))
    }

    /// Reads the values of `pointers`, which ascend, and shows `visit` the checksum and the bytes of each, unproved. Values that
    /// are close to each other share a read.
    pub(crate) fn read_each(
        &self,
        pointers: impl Iterator<Item = ValuePointer>,
        visit: &mut dyn FnMut(ValuePointer, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut group: Vec<(ValuePointer, ValueSpan)> = Vec::new();
        let (mut all, mut used) = (ValueSpan::plain(0, 0), None);
        for pointer in pointers {
            let span = self.span(pointer)?;
            let is_close = span.offset <= all.end() + MOVE_GAP_MAX
                && span.end().saturating_sub(all.offset) <= MOVE_SPAN_MAX;
            if group.is_empty() || !is_close {
                used = self.visit_group(&all, &group, used, visit)?;
                group.clear();
                all = ValueSpan::plain(span.offset, span.len);
            } else {
                all.extend(&span);
            }
            group.push((pointer, span));
        }
        self.visit_group(&all, &group, used, visit).map(drop)
    }

    /// Reads a group into the memory of `used`. Returns the buffer for another one.
    fn visit_group(
        &self,
        all: &ValueSpan,
        group: &[(ValuePointer, ValueSpan)],
        used: Option<AlignedBuffer>,
        visit: &mut dyn FnMut(ValuePointer, &[u8]) -> Result<()>,
    ) -> Result<Option<AlignedBuffer>> {
        let Some((first, _)) = group.first() else { return Ok(used) };
        let buffer = self.read_into(all, used).map_err(|error| self.read_failed(*first, all, error))?;
        let bytes = self.bytes_of(all, &buffer);
        for (pointer, span) in group {
            let skip = usize::try_from(span.offset - all.offset).expect("inside of the read");
            let bytes = &bytes[skip..][..span.len];
            visit(*pointer, &bytes[self.locate(*pointer, span, bytes)?])?;
        }
        Ok(Some(buffer))
    }

    /// Where in the bytes of its span checksum and value are.
    fn locate(&self, pointer: ValuePointer, span: &ValueSpan, bytes: &[u8]) -> Result<Range<usize>> {
        let stored_len = CHECKSUM_LEN + pointer.len as usize;
        let Some(mut old) = span.group else { return Ok(0..stored_len) };
        let mut rest = Decoder(bytes);
        while let (Some(step), Some(len)) = (rest.varint(), rest.u32()) {
            old = old.saturating_add(step);
            let start = bytes.len() - rest.0.len();
            let Some(stored) = rest.take(CHECKSUM_LEN.saturating_add(len as usize)) else { break };
            if old == pointer.offset && stored.len() == stored_len {
                return Ok(start..start + stored_len);
            }
            if old >= pointer.offset {
                break;
            }
        }
        Err(self.damaged(pointer, span.offset, "the group of moved values does not hold this one"))
    }

    /// The error of a value the read of whose span failed.
    pub(crate) fn read_failed(&self, pointer: ValuePointer, span: &ValueSpan, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return self.damaged(pointer, span.offset, "the file ends before the value");
        }
        Error::io("read the value", &self.path, error).at_offset(span.offset)
    }

    /// The error of a value that is not at `at` of this file.
    fn damaged(&self, pointer: ValuePointer, at: u64, what: &str) -> Error {
        Error::corruption(&self.path, at, self.expected(pointer, what))
    }

    /// What was expected. Where this file is not the segment, the pointer's place says which value it is.
    fn expected(&self, pointer: ValuePointer, what: &str) -> String {
        let ValuePointer { segment, offset, len } = pointer;
        match self.kind {
            HomeKind::Segment | HomeKind::Values => format!("expected a value of {len} bytes: {what}"),
            HomeKind::Moved | HomeKind::Gone => {
                format!("expected a value of {len} bytes, moved from {offset} of segment {segment}: {what}")
            }
        }
    }
}

/// The kind of value file `id` at `path`, by its header.
pub(crate) fn kind_of(env: &dyn Env, path: &Path, id: FileId) -> Result<HomeKind> {
    let file = env.open_stable_file(path, false).map_err(|e| Error::io("open the values", path, e))?;
    let mut found = [0; HEADER_LEN];
    file.read_exact_at(&mut found, 0).map_err(|e| header_error(path, e))?;
    let kind = [HomeKind::Values, HomeKind::Moved].into_iter().find(|kind| found == encode_header(id, *kind));
    kind.ok_or_else(|| wrong_header(&found, path, id))
}

fn check_header(file: &dyn File, path: &Path, home: &ValueHome) -> Result<()> {
    let mut found = [0; HEADER_LEN];
    let expected = encode_header(home.file, home.kind);
    file.read_exact_at(&mut found, 0).map_err(|e| header_error(path, e))?;
    if found == expected { Ok(()) } else { Err(wrong_header(&found, path, home.file)) }
}

/// The error of a header that is not the one of value file `id`.
fn wrong_header(found: &[u8; HEADER_LEN], path: &Path, id: FileId) -> Error {
    let is_whole = found[..8] == MAGIC && u32_at(found, 60) == crc32c::crc32c(&found[..60]);
    let version = u32_at(found, 8);
    if is_whole && version != VERSION {
        let message = format!("the file of values has version {version}, this build knows {VERSION}");
        return Error::unsupported(path, message);
    }
    let what = if is_whole && u64_at(found, 16) != id.0 { "another file's" } else { "a damaged one" };
    Error::corruption(path, 0, format!("expected the header of value file {id}, found {what}"))
}

fn header_error(path: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Error::corruption(path, 0, "the file of values is too short");
    }
    Error::io("read the values", path, error)
}

/// Reads and checks the table of a file of moved values.
fn read_table(file: &dyn File, path: &Path, home: &ValueHome) -> Result<Vec<Part>> {
    let damaged = |offset: u64, what: &str| Err(Error::corruption(path, offset, what));
    let Some(tail_at) = home.len.checked_sub(TAIL_LEN as u64) else {
        return damaged(0, "the file of moved values is too short");
    };
    let mut tail = [0; TAIL_LEN];
    file.read_exact_at(&mut tail, tail_at).map_err(|e| header_error(path, e))?;
    let table_len = u32_at(&tail, 0);
    let Some(table_at) = tail_at.checked_sub(table_len.into()).filter(|at| *at >= HEADER_LEN as u64) else {
        return damaged(tail_at, "the table of moved values is longer than the file");
    };
    if tail[8..] != MOVED_MAGIC {
        return damaged(tail_at, "the file of moved values does not end as it should");
    }
    let mut table = vec![0; table_len as usize];
    file.read_exact_at(&mut table, table_at).map_err(|e| header_error(path, e))?;
    if table_checksum(home.file, &table) != u32_at(&tail, 4) {
        return damaged(table_at, "the table of moved values does not match its checksum");
    }
    match decode_table(&table, table_at) {
        Some(parts) => Ok(parts),
        None => damaged(table_at, "the table of moved values has a valid checksum but cannot be decoded"),
    }
}

/// Decodes a table that stands at `end`, where the last group ends.
fn decode_table(table: &[u8], end: u64) -> Option<Vec<Part>> {
    let (mut rest, end) = (Decoder(table), u32::try_from(end).ok()?);
    let mut parts: Vec<Part> = Vec::new();
    let mut new = HEADER_LEN_U32;
    while !rest.is_empty() {
        let segment = FileId(rest.varint()?);
        let count = rest.usize()?;
        // Each anchor takes two bytes at least, so a forged count takes no memory.
        (count > 0 && count <= rest.0.len() / 2).then_some(())?;
        let mut anchors = Vec::with_capacity(count);
        let mut old = 0u32;
        for number in 0..count {
            let (old_step, new_step) = (rest.u32()?, rest.u32()?);
            (number == 0 || (old_step > 0 && new_step > 0)).then_some(())?;
            (old, new) = (old.checked_add(old_step)?, new.checked_add(new_step)?);
            anchors.push(Anchor { old, new });
        }
        (new < end).then_some(())?;
        if let Some(last) = parts.last_mut() {
            (last.segment < segment && last.anchors.last()?.new < anchors.first()?.new).then_some(())?;
            last.end = anchors.first()?.new;
        }
        parts.push(Part { segment, anchors: anchors.into(), end });
    }
    (!parts.is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests;
