//! Writer of a record file: appends records, one write call per group.
//!
//! `LogWriter` uses it for segments, and the engine for its manifest. It makes the file's bytes durable; the caller makes
//! the file's name durable with `Env::sync_dir`. Appends are here; syncs and what follows a failed append are in `sync`.
//!
//! # Invariants
//! 1. *Position.* A failed append leaves position and sequence numbers where they were.
//! 2. *Fence.* After a failed append a marker of the next epoch overwrites the place of the failed records and is made
//!    durable before anything else is written. So bytes of the failed append never follow, precede or replace later records.
//! 3. *Poison.* After a failed sync nothing more is written.
//!
//! # Cost
//! One write call per group. The payloads of a group are copied once, a single record is not copied. A record with regions
//! takes one call per piece. A recovered record is copied if it is small; otherwise it takes two calls.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, ErrorKind, File, FileId, Result, failpoint};

use super::buffer::Append;
use super::claims::Claims;
use super::file_header::{FILE_HEADER_LEN, FileHeader, FileKind, ManifestHint};
use super::record_header::{EPOCH_MAX, RECORD_HEADER_LEN, RecordHeader, SeqNo};

mod sync;

/// Memory kept for the next group: 1 MiB, the limit of a commit group. A larger group frees the excess.
const GROUP_KEPT: usize = 1 << 20;

/// Identity of a new record file, and its first number.
#[derive(Clone, Copy, Debug)]
pub struct RecordFileOptions {
    /// Kind of file.
    pub kind: FileKind,
    /// Its number, never used before.
    pub id: FileId,
    /// Where the manifest stands; [`ManifestHint::NONE`] in the manifest itself.
    pub hint: ManifestHint,
    /// Bytes to reserve at a time, so that most appends neither run out of space nor grow the file.
    pub preallocate: Option<u64>,
    /// Sequence number of the first record, at least 1.
    pub next_seq: SeqNo,
    /// All sequence numbers up to this one are durable elsewhere.
    pub durable_seq: SeqNo,
}

/// What is still to be done about a failed append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// Nothing: no append failed, or its fence is durable.
    None,
    /// The fence must be written at the position.
    Write,
    /// The fence is written at the position and must be made durable.
    Sync,
}

/// Where the next record goes, and what its header depends on.
#[derive(Clone, Copy, Debug)]
struct Position {
    offset: u64,
    next_seq: SeqNo,
    claims: Claims,
}

/// Appends to one record file. See the module's invariants for what happens after errors.
pub struct RecordWriter {
    // Immutable after construction.
    file: Arc<dyn File>,
    path: PathBuf,
    id: FileId,
    name: &'static str,
    /// Bytes to reserve at a time.
    preallocate: Option<u64>,

    /// Bytes reserved so far.
    reserved: u64,
    position: Position,
    /// End of the last record. Markers behind it need no sync.
    data_end: u64,
    /// Bytes known durable.
    durable_len: u64,
    /// The length that the file's stamp states; 0 for no stamp.
    stamped_len: u64,
    durable_seq: SeqNo,
    epoch: u8,
    fence: Fence,
    poisoned: bool,
    /// Scratch for groups; empty between calls.
    group: Vec<u8>,
}

impl RecordWriter {
    /// Creates the file with its header. On error it removes the file, if the operating system allows that.
    pub fn create(env: &dyn Env, path: &Path, options: &RecordFileOptions) -> Result<Self> {
        if options.next_seq == 0 {
            return Err(Error::invalid("sequence numbers start at 1"));
        }
        let name = options.kind.name;
        let failed = |e| Error::io(&format!("create the {name}"), path, e);
        let file = env.create_file(path).map_err(failed)?;
        if let Err(e) = start(&*file, options) {
            drop(file);
            // Best effort: the first error is the one to report, and recovery treats the leftover as empty.
            let _ = env.remove_file(path);
            return Err(failed(e));
        }
        let offset = FILE_HEADER_LEN as u64;
        Ok(Self {
            file,
            path: path.to_path_buf(),
            id: options.id,
            name,
            preallocate: options.preallocate,
            reserved: options.preallocate.unwrap_or(0),
            position: Position { offset, next_seq: options.next_seq, claims: Claims::default() },
            data_end: offset,
            durable_len: 0,
            stamped_len: 0,
            durable_seq: options.durable_seq,
            epoch: 0,
            fence: Fence::None,
            poisoned: false,
            group: Vec::new(),
        })
    }

    /// Appends the records in one write call, or a single record with regions in several. Readers find all of them or none.
    ///
    /// After an error the position is unchanged and the caller may try again. If the machine crashes before the next append
    /// succeeds, recovery may or may not find the failed records.
    pub fn append<'a>(&mut self, records: impl IntoIterator<Item = Append<'a>>) -> Result<()> {
        self.check_writable()?;
        let mut records = records.into_iter();
        let Some(first) = records.next() else { return Ok(()) };
        self.make_ready()?;
        match records.next() {
            None if first.record.is_contiguous() => self.append_one(first),
            None => self.append_pieces(first),
            Some(second) => self.append_group([first, second].into_iter().chain(records)),
        }
    }

    /// Appends one record whose payload is in memory of the caller's: a small one with one call, a large one with one call
    /// for the header and one for the payload. A crash between the two leaves a torn record. Errors are those of
    /// [`RecordWriter::append`].
    pub(crate) fn append_payload(&mut self, payload: &[u8], numbers: (SeqNo, u32)) -> Result<()> {
        self.check_writable()?;
        self.make_ready()?;
        let mut end = self.position;
        let header = self.next_header(&mut end, payload.len(), numbers)?;
        let encoded = header.encode(self.id, self.offset(), payload);
        let encoded = &encoded[RECORD_HEADER_LEN - header.len()..];
        self.reserve(end)?;
        let written = if payload.len() > GROUP_KEPT || failpoint::skipped("tune.large_values") {
            self.write_pieces([encoded, payload])
        } else {
            self.group.extend_from_slice(encoded);
            self.group.extend_from_slice(payload);
            let written = self.file.write_all_at(&self.group, self.offset());
            self.group.clear();
            written
        };
        self.finish_append(written, end)
    }

    /// Settles the fence of a failed append; an error when there were too many.
    fn make_ready(&mut self) -> Result<()> {
        self.settle_fence()?;
        if self.is_exhausted() {
            let message =
                format!("{EPOCH_MAX} appends to {} {} failed; it takes no more", self.name, self.id);
            return Err(Error::new(ErrorKind::Io, message).at_path(&self.path));
        }
        Ok(())
    }

    /// Makes the header of the record that goes to `end`, and moves `end` behind that record.
    fn next_header(
        &self,
        end: &mut Position,
        payload_len: usize,
        numbers: (SeqNo, u32),
    ) -> Result<RecordHeader> {
        let mut header = RecordHeader::of(payload_len, numbers, end.next_seq, self.durable_seq, self.epoch)?;
        end.claims = end.claims.choose(&mut header, end.offset, self.durable_seq);
        end.offset += header.record_len();
        end.next_seq = header.next_seq();
        Ok(header)
    }

    fn append_one(&mut self, Append { record, first_seq, count }: Append<'_>) -> Result<()> {
        let mut end = self.position;
        let header = self.next_header(&mut end, record.payload_len(), (first_seq, count))?;
        let bytes = record.seal(&header, self.id, self.offset());
        self.reserve(end)?;
        let written = self.file.write_all_at(bytes, self.offset());
        self.finish_append(written, end)
    }

    /// Appends a record with one call per piece. If a call fails, the file ends in a torn record.
    #[cold]
    fn append_pieces(&mut self, Append { record, first_seq, count }: Append<'_>) -> Result<()> {
        let mut end = self.position;
        let header = self.next_header(&mut end, record.payload_len(), (first_seq, count))?;
        self.reserve(end)?;
        failpoint::tell("log.pieces", header.record_len());
        let written = self.write_pieces(record.seal_pieces(&header, self.id, self.offset()));
        self.finish_append(written, end)
    }

    /// Writes the pieces one after the other, from the position on.
    fn write_pieces<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
        let mut at = self.offset();
        for piece in pieces {
            self.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn append_group<'a>(&mut self, records: impl Iterator<Item = Append<'a>>) -> Result<()> {
        let mut group = std::mem::take(&mut self.group);
        let result = self.build_group(&mut group, records).and_then(|end| {
            self.reserve(end)?;
            let written = self.file.write_all_at(&group, self.offset());
            self.finish_append(written, end)
        });
        group.clear();
        group.shrink_to(GROUP_KEPT);
        self.group = group;
        result
    }

    fn build_group<'a>(
        &self,
        group: &mut Vec<u8>,
        records: impl Iterator<Item = Append<'a>>,
    ) -> Result<Position> {
        let mut end = self.position;
        for Append { record, first_seq, count } in records {
            let offset = end.offset;
            let header = self.next_header(&mut end, record.payload_len(), (first_seq, count))?;
            if record.is_contiguous() {
                group.extend_from_slice(record.seal(&header, self.id, offset));
            } else {
                record.seal_pieces(&header, self.id, offset).for_each(|p| group.extend_from_slice(p));
            }
        }
        Ok(end)
    }

    /// Reserves the next step of space if records up to `end` exceed what is reserved. After an error nothing was written,
    /// so no fence is needed.
    #[inline]
    fn reserve(&mut self, end: Position) -> Result<()> {
        let Some(step) = self.preallocate else { return Ok(()) };
        if end.offset > self.reserved {
            let next = end.offset.max(self.reserved + step);
            self.file.allocate(next).map_err(|e| self.io_error("reserve space for", e))?;
            self.reserved = next;
        }
        Ok(())
    }

    fn finish_append(&mut self, written: io::Result<()>, end: Position) -> Result<()> {
        match written {
            Ok(()) => {
                self.position = end;
                self.data_end = end.offset;
                Ok(())
            }
            Err(e) => {
                self.raise_fence();
                Err(self.io_error("append to", e))
            }
        }
    }

    #[cold]
    fn io_error(&self, action: &str, error: io::Error) -> Error {
        Error::io(&format!("{action} the {}", self.name), &self.path, error)
    }

    fn check_writable(&self) -> Result<()> {
        if self.poisoned {
            return Err(Error::new(ErrorKind::Poisoned, "a sync failed earlier").at_path(&self.path));
        }
        Ok(())
    }

    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    pub(crate) fn holds_records(&self) -> bool {
        self.offset() > FILE_HEADER_LEN as u64
    }

    /// Whether so many appends failed that the file takes no more data.
    pub fn is_exhausted(&self) -> bool {
        self.epoch == EPOCH_MAX
    }

    /// Whether a sync failed: nothing more is written.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// The file's number.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next record will start.
    pub fn offset(&self) -> u64 {
        self.position.offset
    }

    /// How many of the file's bytes are known to be durable: the length for a [`ManifestHint`].
    pub fn durable_len(&self) -> u64 {
        self.durable_len
    }

    /// The last sequence number known to be durable.
    pub fn durable_seq(&self) -> SeqNo {
        self.durable_seq
    }

    /// The sequence number that is due next.
    pub fn next_seq(&self) -> SeqNo {
        self.position.next_seq
    }
}

fn start(file: &dyn File, options: &RecordFileOptions) -> io::Result<()> {
    if let Some(len) = options.preallocate {
        file.allocate(len)?;
    }
    let header = FileHeader { id: options.id, hint: options.hint };
    file.write_all_at(&header.encode(&options.kind), 0)
}

impl std::fmt::Debug for RecordWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordWriter")
            .field("path", &self.path)
            .field("position", &self.position)
            .field("durable_seq", &self.durable_seq)
            .field("epoch", &self.epoch)
            .field("fence", &self.fence)
            .field("poisoned", &self.poisoned)
            .finish_non_exhaustive()
    }
}
