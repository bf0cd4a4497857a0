//! Reader of a record file: follows the chain of records.
//!
//! Recovery calls [`RecordReader::advance`] until the chain ends. Then it calls `RecordReader::search` (module `search`) for
//! records behind the end. The reader reports what it finds; recovery decides what that means.
//!
//! # Invariants
//! 1. *Bounded memory.* A payload gets memory only after its checksum was verified. Until then the reader holds two buffers,
//!    each at most [`WINDOW_LEN`] and at most the file's length.
//! 2. *Errors are not ends.* A read error is returned; only bytes that were read can end the chain.
//!
//! # Cost
//! One sequential pass; records longer than the window are read twice. [`RecordReader::examined`] counts the bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, File, FileId, OpenOptions, Result, failpoint};

use super::file_header::{FILE_HEADER_LEN, FileHeader, FileKind, HeaderState};
use super::reach::{Reach, page_end};
use super::record_header::{ChainStart, RECORD_HEADER_LEN, RecordHeader, SeqNo};
use super::stamp::Stamp;

/// Bytes read at once: at 1 MiB the cost of the call does not count.
pub(super) const WINDOW_LEN: usize = 1 << 20;

/// What stands at the next place of the chain.
pub(crate) enum Found {
    /// A record at this offset; [`RecordReader::payload`] holds its payload.
    Record(RecordHeader, u64),
    /// No record: at `offset` there is `found`.
    End { offset: u64, found: &'static str },
}

/// The record at an offset, or what stands there instead.
pub(super) type Checked = std::result::Result<RecordHeader, &'static str>;

pub(crate) struct RecordReader {
    // Immutable after construction.
    file: Arc<dyn File>,
    path: PathBuf,
    pub(super) id: FileId,
    pub(super) len: u64,

    /// Bytes of the file from `window_start` on.
    window: Vec<u8>,
    window_start: u64,
    /// Payload of a record longer than the window, or a chunk of it while it is being verified.
    large: Vec<u8>,
    /// Where the current payload is: in the window at this range, or `None` for all of `large`.
    payload: Option<std::ops::Range<usize>>,

    // Chain state.
    pub(super) offset: u64,
    pub(super) epoch: u8,
    pub(super) next_seq: Option<SeqNo>,
    /// Used by salvage: the end of the last long record that is stale or has a damaged payload. No record starts before it.
    pub(super) damaged_to: Option<u64>,
    /// Used by salvage: the record that is due behind a damaged one, until `find_record` has looked for it.
    pub(super) after_damaged: Option<ChainStart>,
    /// Used by salvage: how much is read at once.
    reach: Reach,

    /// Bytes read, checksummed or compared.
    pub(super) examined: u64,
}

impl RecordReader {
    /// Opens the file and judges its header.
    pub(crate) fn open(
        env: &dyn Env,
        path: &Path,
        kind: &FileKind,
        id: FileId,
    ) -> Result<(Self, HeaderState)> {
        let mut reader = Self::at_first_record(env, path, kind, id)?;
        let header = reader.header(kind)?;
        Ok((reader, header))
    }

    /// Judges the file's header.
    pub(crate) fn header(&mut self, kind: &FileKind) -> Result<HeaderState> {
        let (len, id, path) = (self.len, self.id, &self.path.clone());
        let header_len = usize::try_from(len).unwrap_or(usize::MAX).min(FILE_HEADER_LEN);
        let bytes = self.bytes(0, header_len)?;
        let (state, stamp) = (FileHeader::decode(bytes, kind, id, path)?, Stamp::decode(bytes, id));
        if let Some(stamp) = stamp.filter(|stamp| stamp.durable_len > len) {
            let message = format!(
                "the {} was durable with {} bytes, and now it has {len}: it was cut",
                kind.name, stamp.durable_len
            );
            return Err(Error::corruption(path, len, message));
        }
        if let (HeaderState::Torn(found), Some(_)) = (&state, stamp) {
            let message =
                format!("expected the header of the {}, which was durable, found {found}", kind.name);
            return Err(Error::corruption(path, 0, message));
        }
        Ok(state)
    }

    /// Opens the file and ignores its header.
    pub(super) fn at_first_record(env: &dyn Env, path: &Path, kind: &FileKind, id: FileId) -> Result<Self> {
        let failed = |e| Error::io(&format!("open the {}", kind.name), path, e);
        let file = env.open_file(path, OpenOptions::default()).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        Ok(Self {
            file,
            path: path.to_path_buf(),
            id,
            len,
            window: Vec::new(),
            window_start: 0,
            large: Vec::new(),
            payload: Some(0..0),
            offset: FILE_HEADER_LEN as u64,
            epoch: 0,
            next_seq: None,
            damaged_to: None,
            after_damaged: None,
            reach: Reach::WHOLE,
            examined: 0,
        })
    }

    /// How many bytes were read, checksummed or compared. Linear in the file's length for any bytes.
    pub(crate) fn examined(&self) -> u64 {
        self.examined
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Reads the next record of the chain.
    pub(crate) fn advance(&mut self) -> Result<Found> {
        let offset = self.offset;
        let due = self.next_seq.map(|seq| (seq, self.epoch));
        let header = match self.check_record(offset, due)? {
            Ok(header) => header,
            Err(found) => return Ok(Found::End { offset, found }),
        };
        if header.epoch < self.epoch {
            return Ok(Found::End { offset, found: "a stale record" });
        }
        if let Some(due) = self.next_seq.filter(|&due| due != header.first_seq) {
            let message = format!("expected sequence number {due}, found {}", header.first_seq);
            return Err(Error::corruption(&self.path, offset, message));
        }
        self.epoch = header.epoch;
        self.next_seq = Some(header.next_seq());
        self.offset = offset + header.record_len();
        Ok(Found::Record(header, offset))
    }

    /// Payload of the record that `advance` returned last.
    pub(crate) fn payload(&self) -> &[u8] {
        match &self.payload {
            Some(range) => &self.window[range.clone()],
            None => &self.large,
        }
    }

    /// Reads and verifies the bytes at `offset`, which is at most the file's length. `due` is the number and the epoch of a
    /// short record at that place.
    pub(super) fn check_record(&mut self, offset: u64, due: Option<(SeqNo, u8)>) -> Result<Checked> {
        let Some(left @ 1..) = self.len.checked_sub(offset) else { return Ok(Err("the end of the file")) };
        let mut head = [0; RECORD_HEADER_LEN];
        let head_len = usize::try_from(left).unwrap_or(usize::MAX).min(RECORD_HEADER_LEN);
        let head = &mut head[..head_len];
        head.copy_from_slice(self.bytes(offset, head_len)?);
        if head.iter().all(|&b| b == 0) {
            return Ok(Err(if left < RECORD_HEADER_LEN as u64 { "the end of the file" } else { "zeros" }));
        }
        let header = match RecordHeader::decode(head, due) {
            Ok(header) => header,
            Err(found) => return Ok(Err(found)),
        };
        if !header.is_proven(head, self.id, offset) && !failpoint::skipped("log.record.crc") {
            return Ok(Err("a header with a wrong checksum"));
        }
        if header.record_len() > left {
            return Ok(Err("a payload longer than the rest of the file"));
        }
        if let Err(found) = self.doubt(&header, offset) {
            return Ok(Err(found));
        }
        let (seed, stored) =
            (header.payload_crc_seed(head, self.id, offset), header.stored_payload_crc(head));
        if self.load_payload(offset, &header, seed, stored)? == stored || failpoint::skipped("log.record.crc")
        {
            self.trust(offset);
            return Ok(Ok(header));
        }
        Ok(Err("a payload with a wrong checksum"))
    }

    /// Reads the payload that follows the header at `offset`, and returns its checksum, continued from `seed`. The payload is
    /// kept if that is the `stored` one.
    fn load_payload(&mut self, offset: u64, header: &RecordHeader, seed: u32, stored: u32) -> Result<u32> {
        let len = header.payload_len as usize;
        let start = offset + header.len() as u64;
        if header.len() + len <= WINDOW_LEN {
            // Read with the header: a record across the window's end then moves the window to its own start.
            let bytes = self.bytes(offset, header.len() + len)?;
            let crc = crc32c::crc32c_append(seed, &bytes[header.len()..]);
            self.examined += len as u64;
            let end = self.window_index(start) + len;
            self.payload = Some(end - len..end);
            return Ok(crc);
        }
        self.payload = None;
        // Verified piece by piece before it is read as a whole, so that a damaged length costs no memory.
        let streamed = self.payload_crc(start, len as u64, seed)?;
        if streamed != stored {
            return Ok(streamed);
        }
        self.read_large(start, len)?;
        Ok(crc32c::crc32c_append(seed, &self.large))
    }

    /// Checksum, continued from `seed`, of the `len` bytes from `start` on. Requires: the file holds them.
    pub(super) fn payload_crc(&mut self, start: u64, len: u64, seed: u32) -> Result<u32> {
        let (mut crc, mut at, end) = (seed, start, start + len);
        while at < end {
            let chunk = (end - at).min(WINDOW_LEN as u64);
            // Bytes in the window are not read again.
            let held = (self.window_start + self.window.len() as u64).saturating_sub(at);
            let chunk = if at >= self.window_start && held > 0 { chunk.min(held) } else { chunk };
            let bytes = self.bytes(at, usize::try_from(chunk).expect("at most a window"))?;
            crc = crc32c::crc32c_append(crc, bytes);
            at += chunk;
        }
        self.examined += len;
        Ok(crc)
    }

    fn read_large(&mut self, offset: u64, len: usize) -> Result<()> {
        self.large.clear();
        self.large.shrink_to(WINDOW_LEN);
        self.large.resize(len, 0);
        self.examined += len as u64;
        self.file.read_exact_at(&mut self.large, offset).map_err(|e| Error::io("read", &self.path, e))
    }

    /// `len` bytes, at most a window, from `offset`. Requires: the file holds them.
    pub(super) fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        debug_assert!(len <= WINDOW_LEN && offset + len as u64 <= self.len, "requires bytes of the file");
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || offset + len as u64 > window_end {
            self.fill_window(offset, len as u64)?;
        }
        let at = self.window_index(offset);
        Ok(&self.window[at..at + len])
    }

    /// The window's bytes from `offset` on: enough for a record header, unless the file ends before.
    pub(super) fn rest_of_window(&mut self, offset: u64) -> Result<&[u8]> {
        let left = usize::try_from(self.len - offset).unwrap_or(usize::MAX);
        self.bytes(offset, left.min(RECORD_HEADER_LEN))?;
        let at = self.window_index(offset);
        Ok(&self.window[at..])
    }

    /// Reads the window from `offset` on. If that fails, salvage reads less of it: the pages of `needed` bytes at least.
    fn fill_window(&mut self, offset: u64, needed: u64) -> Result<()> {
        let longest = (offset + WINDOW_LEN as u64).min(self.len);
        if self.damaged_to.is_none() {
            return self.read_window(offset, longest);
        }
        let shortest = page_end(offset + needed).min(longest);
        let mut end = self.reach.end(offset, shortest, longest);
        while let Err(error) = self.read_window(offset, end) {
            end = self.reach.note_failed(offset, shortest, end).ok_or(error)?;
        }
        self.reach.note_read(offset);
        Ok(())
    }

    fn read_window(&mut self, offset: u64, end: u64) -> Result<()> {
        // Empty while it is being read, so that an error leaves no bytes under a wrong offset.
        let mut window = std::mem::take(&mut self.window);
        window.resize(usize::try_from(end - offset).expect("at most a window"), 0);
        self.file.read_exact_at(&mut window, offset).map_err(|e| Error::io("read", &self.path, e))?;
        self.examined += window.len() as u64;
        self.window = window;
        self.window_start = offset;
        Ok(())
    }

    /// Bytes of memory held.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.window.capacity() + self.large.capacity()
    }

    /// Index in the window of `offset`. Requires: the window holds it.
    fn window_index(&self, offset: u64) -> usize {
        usize::try_from(offset - self.window_start).expect("the window is shorter than usize")
    }
}
