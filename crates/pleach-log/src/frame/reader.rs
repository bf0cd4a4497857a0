//! Reader of a framed file: walks the chain of records, and searches what lies behind its end.
//!
//! Recovery calls [`FrameReader::advance`] until the chain ends, then [`FrameReader::search`] for records further on;
//! it decides what their absence or presence means. This module only says what is there.
//!
//! # Invariants
//! 1. *Bounded.* Nothing is allocated for a payload before its checksum has been verified; until then memory is two
//!    buffers of at most [`WINDOW_LEN`] and at most the file's length each.
//! 2. *Errors are not ends.* A read error is returned; only bytes that were read can end the chain.
//!
//! # Cost
//! One sequential pass; records longer than the window are read twice.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, File, FileId, OpenOptions, Result, failpoint};

use super::header::{FILE_HEADER_LEN, FileHeader, FileKind, HeaderState};
use super::record::{RECORD_HEADER_LEN, RecordHeader, SeqNo};

/// Bytes read at once. Large enough to make the cost of a call vanish.
const WINDOW_LEN: usize = 1 << 20;

/// How far ahead of the expected one a sequence number in a searched header may be. Far more than a store can have in
/// its log; it makes one random header in 2^16 pass the filter instead of every one.
const SEARCH_SEQ_WINDOW: u64 = 1 << 40;

/// Bytes a search may checksum, as a multiple of the file's length. Arbitrary; bytes made up to look like
/// nested headers could otherwise keep it busy for hours.
const SEARCH_WORK_FACTOR: u64 = 16;

/// A file that has been opened: walkable, or without a usable header.
pub(crate) enum Opened {
    Whole(FileHeader),
    Torn(&'static str),
}

/// What stands at the next place of the chain.
pub(crate) enum Found {
    /// A record at this offset; [`FrameReader::payload`] holds its payload.
    Record(RecordHeader, u64),
    /// No record: at `offset` there is `found`.
    End { offset: u64, found: &'static str },
}

/// A record further on that claims to know what was durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) durable_seq: SeqNo,
    pub(crate) offset: u64,
}

/// What a search behind the end of the chain found.
pub(crate) struct Searched {
    /// Whether all bytes are zero.
    pub(crate) zeros: bool,
    /// The furthest-reaching claim.
    pub(crate) claim: Option<Claim>,
}

/// Whether the bytes at an offset are a record, and if not, what they are.
type Checked = std::result::Result<RecordHeader, &'static str>;

pub(crate) struct FrameReader {
    // Immutable after construction.
    file: Arc<dyn File>,
    path: PathBuf,
    id: FileId,
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
    epoch: u8,
    pub(super) next_seq: Option<SeqNo>,
    /// Bytes that a search may still checksum.
    work_left: u64,
}

impl FrameReader {
    /// Opens the file and judges its header.
    pub(crate) fn open(env: &dyn Env, path: &Path, kind: &FileKind, id: FileId) -> Result<(Self, Opened)> {
        let failed = |e| Error::io(&format!("open the {}", kind.name), path, e);
        let file = env.open_file(path, OpenOptions::default()).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        let mut reader = Self::over(file, path, id, len);
        let header_len = usize::try_from(len).unwrap_or(usize::MAX).min(FILE_HEADER_LEN);
        let bytes = reader.bytes(0, header_len)?;
        let opened = match FileHeader::decode(bytes, kind, id, path)? {
            HeaderState::Whole(header) => Opened::Whole(header),
            HeaderState::Torn(found) => Opened::Torn(found),
        };
        Ok((reader, opened))
    }

    /// A reader that stands behind the header.
    pub(super) fn over(file: Arc<dyn File>, path: &Path, id: FileId, len: u64) -> Self {
        Self {
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
            work_left: len.saturating_mul(SEARCH_WORK_FACTOR),
        }
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
        let header = match self.check_record(offset)? {
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
        self.offset = offset + record_len(&header);
        Ok(Found::Record(header, offset))
    }

    /// Payload of the record that `advance` returned last.
    pub(crate) fn payload(&self) -> &[u8] {
        match &self.payload {
            Some(range) => &self.window[range.clone()],
            None => &self.large,
        }
    }

    /// Looks for records from `start` on, at any offset, that claim `next_seq` or a later number to be durable.
    pub(crate) fn search(&mut self, start: u64, next_seq: SeqNo) -> Result<Searched> {
        let mut searched = Searched { zeros: true, claim: None };
        let mut offset = start.min(self.len);
        while offset < self.len {
            let bytes = self.rest_of_window(offset)?;
            let blank = bytes.iter().all(|&b| b == 0);
            searched.zeros &= blank;
            let candidate = if blank { None } else { first_candidate(bytes, next_seq) };
            let Some((skip, header)) = candidate else {
                // The last bytes may begin a header that the next window completes.
                offset += (bytes.len().saturating_sub(RECORD_HEADER_LEN - 1)).max(1) as u64;
                continue;
            };
            offset += skip as u64;
            offset += self.try_candidate(offset, &header, &mut searched)?;
        }
        Ok(searched)
    }

    /// Verifies a header that passed the filter, and returns how far to go on.
    fn try_candidate(&mut self, offset: u64, header: &RecordHeader, searched: &mut Searched) -> Result<u64> {
        let len = record_len(header);
        if len > self.len - offset {
            return Ok(1);
        }
        self.work_left = self.work_left.checked_sub(len).ok_or_else(|| {
            let message =
                "expected records or the remains of a torn tail, found too many bytes that look like records";
            Error::corruption(&self.path, offset, message)
        })?;
        if self.check_record(offset)?.is_err() {
            return Ok(1);
        }
        if let Some(durable_seq) = header.durable_seq()
            && searched.claim.is_none_or(|c| c.durable_seq < durable_seq)
        {
            searched.claim = Some(Claim { durable_seq, offset });
        }
        Ok(len)
    }

    /// Reads and verifies what stands at `offset`, at most the file's length.
    fn check_record(&mut self, offset: u64) -> Result<Checked> {
        let left = self.len - offset;
        let due = self.next_seq.map(|seq| (seq, self.epoch));
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
        if record_len(&header) > left {
            return Ok(Err("a payload longer than the rest of the file"));
        }
        let crc = header.crc(head, self.id, offset);
        if self.load_payload(offset, &header, crc)? == RecordHeader::stored_crc(head)
            || failpoint::skipped("log.record.crc")
        {
            return Ok(Ok(header));
        }
        Ok(Err("a wrong checksum"))
    }

    /// Reads the payload that follows the header at `offset`, and returns `crc` continued over it.
    fn load_payload(&mut self, offset: u64, header: &RecordHeader, crc: u32) -> Result<u32> {
        let len = header.payload_len as usize;
        let start = offset + header.len() as u64;
        if header.len() + len <= WINDOW_LEN {
            // With its header, so that a record across the window's end moves the window to its start.
            let bytes = self.bytes(offset, header.len() + len)?;
            let crc = crc32c::crc32c_append(crc, &bytes[header.len()..]);
            let end = self.window_index(start) + len;
            self.payload = Some(end - len..end);
            return Ok(crc);
        }
        self.load_large(start, len, crc)
    }

    /// A payload longer than the window: verified chunk by chunk first, so that a damaged length costs no memory, and
    /// only then read as a whole.
    fn load_large(&mut self, start: u64, len: usize, crc: u32) -> Result<u32> {
        self.payload = None;
        let mut streamed = crc;
        let mut done = 0;
        while done < len {
            let chunk_len = (len - done).min(WINDOW_LEN);
            self.read_large(start + done as u64, chunk_len)?;
            streamed = crc32c::crc32c_append(streamed, &self.large);
            done += chunk_len;
        }
        let head_at = start - RECORD_HEADER_LEN as u64;
        if streamed != word(self.bytes(head_at, 4)?) {
            return Ok(streamed);
        }
        self.read_large(start, len)?;
        Ok(crc32c::crc32c_append(crc, &self.large))
    }

    fn read_large(&mut self, offset: u64, len: usize) -> Result<()> {
        self.large.clear();
        self.large.shrink_to(WINDOW_LEN);
        self.large.resize(len, 0);
        self.file.read_exact_at(&mut self.large, offset).map_err(|e| Error::io("read", &self.path, e))
    }

    /// `len` bytes, at most a window, from `offset`. Requires: the file holds them.
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        debug_assert!(len <= WINDOW_LEN && offset + len as u64 <= self.len, "requires bytes of the file");
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || offset + len as u64 > window_end {
            self.fill_window(offset)?;
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

    fn fill_window(&mut self, offset: u64) -> Result<()> {
        let left = usize::try_from(self.len - offset).unwrap_or(usize::MAX);
        // Empty while it is being read, so that an error leaves no bytes under a wrong offset.
        let mut window = std::mem::take(&mut self.window);
        window.resize(left.min(WINDOW_LEN), 0);
        self.file.read_exact_at(&mut window, offset).map_err(|e| Error::io("read", &self.path, e))?;
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

fn record_len(header: &RecordHeader) -> u64 {
    header.len() as u64 + u64::from(header.payload_len)
}

/// The first place in `bytes` that could hold the header of a record which claims `next_seq` to be durable. Short ones
/// claim nothing.
fn first_candidate(bytes: &[u8], next_seq: SeqNo) -> Option<(usize, RecordHeader)> {
    bytes.windows(RECORD_HEADER_LEN).enumerate().find_map(|(at, window)| {
        let header = RecordHeader::decode(window, None).ok()?;
        let near = header.first_seq.checked_sub(next_seq).is_some_and(|ahead| ahead < SEARCH_SEQ_WINDOW);
        let claims = header.durable_seq().is_some_and(|durable_seq| durable_seq >= next_seq);
        (near && claims).then_some((at, header))
    })
}

fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}
