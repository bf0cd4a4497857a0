//! Writer of a record file: appends records, one write call per group.
//!
//! Used by `LogWriter` for segments and by the engine for its manifest. It makes the file's bytes durable, never its
//! name: that is the caller's step, with `Env::sync_dir`.
//!
//! # Invariants
//! 1. *Position.* A failed append leaves position and sequence numbers where they were.
//! 2. *Fence.* After a failed append a marker of the next epoch overwrites the doubtful place and is made durable
//!    before anything else is written, so bytes of the failed append never follow, precede or replace later records.
//! 3. *Poison.* After a failed sync nothing more is written.
//!
//! # Cost
//! One write call per group; one copy of the payloads of a group, none for a single record. A record with pieces that lie
//! apart takes a call for each piece. Of recovered records the small ones are copied, the large ones take two calls.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, ErrorKind, File, FileId, Result, Site, failpoint};

use super::buffer::Append;
use super::claims::Claims;
use super::file_header::{FILE_HEADER_LEN, FileHeader, FileKind, ManifestHint};
use super::record_header::{EPOCH_MAX, RECORD_HEADER_LEN, RecordHeader, RecordKind, SeqNo};
use super::stamp::Stamp;

/// Memory kept for the next group (1 MiB, the most a commit group gathers); larger groups give theirs back.
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

/// The work left after a failed append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// Nothing: no append failed, or its fence is durable.
    None,
    /// The fence is to be written at the position.
    Write,
    /// The fence stands at the position and is to be made durable.
    Sync,
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
    /// Where the next record goes.
    offset: u64,
    /// End of the last thing that a sync is needed for: markers after a sync are not.
    data_end: u64,
    /// Bytes known durable.
    durable_len: u64,
    /// The length that the file's stamp states; 0 for no stamp.
    stamped_len: u64,
    next_seq: SeqNo,
    durable_seq: SeqNo,
    epoch: u8,
    claims: Claims,
    fence: Fence,
    poisoned: bool,
    /// Scratch for groups; empty between calls.
    group: Vec<u8>,
}

impl RecordWriter {
    /// Creates the file with its header; on error no file is left, as far as the operating system allows.
    pub fn create(env: &dyn Env, path: &Path, options: &RecordFileOptions) -> Result<Self> {
        if options.next_seq == 0 {
            return Err(Error::invalid("sequence numbers start at 1"));
        }
        let name = options.kind.name;
        let failed = |e| Error::io(&format!("create the {name}"), path, e);
        let file = env.create_file(path).map_err(failed)?;
        if let Err(e) = start(&*file, options) {
            drop(file);
            // Best effort: the error that counts is the first one, and recovery treats the leftover as empty.
            let _ = env.remove_file(path);
            return Err(failed(e));
        }
        Ok(Self {
            file,
            path: path.to_path_buf(),
            id: options.id,
            name,
            preallocate: options.preallocate,
            reserved: options.preallocate.unwrap_or(0),
            offset: FILE_HEADER_LEN as u64,
            data_end: FILE_HEADER_LEN as u64,
            durable_len: 0,
            stamped_len: 0,
            next_seq: options.next_seq,
            durable_seq: options.durable_seq,
            epoch: 0,
            claims: Claims::default(),
            fence: Fence::None,
            poisoned: false,
            group: Vec::new(),
        })
    }

    /// Appends the records in one write call, or a single one with pieces apart in several; all or none of them are then
    /// in the file, as far as readers can tell.
    ///
    /// After an error the position is unchanged and the caller may try again; the failed records may or may not be
    /// found if the machine crashes before the next append succeeds.
    pub fn append<'a>(&mut self, records: impl IntoIterator<Item = Append<'a>>) -> Result<()> {
        self.check_writable()?;
        let mut records = records.into_iter();
        let Some(mut first) = records.next() else { return Ok(()) };
        self.make_ready()?;
        match records.next() {
            None if first.record.is_contiguous() => self.append_one(first),
            None => self.append_pieces(&mut first),
            Some(second) => self.append_group([first, second].into_iter().chain(records)),
        }
    }

    /// Appends one record whose payload lies elsewhere. A large payload is written from there, after its header; a small
    /// one in one call with it. Otherwise as [`RecordWriter::append`]: what is there after the first of two calls is a torn
    /// record, as a write cut off leaves it.
    pub(crate) fn append_payload(&mut self, payload: &[u8], numbers: (SeqNo, u32)) -> Result<()> {
        self.check_writable()?;
        self.make_ready()?;
        let mut header =
            RecordHeader::of(payload.len(), numbers, self.next_seq, self.durable_seq, self.epoch)?;
        let claims = self.claims.choose(&mut header, self.offset, self.durable_seq);
        let encoded = header.encode(self.id, self.offset, payload);
        let encoded = &encoded[RECORD_HEADER_LEN - header.len()..];
        let len = encoded.len() + payload.len();
        reserve(&*self.file, self.preallocate, &mut self.reserved, self.offset, len)
            .map_err(|e| self.no_space(e))?;
        let written = self.write_behind(encoded, payload);
        self.finish_append(written, len, header.next_seq(), claims)
    }

    /// Writes a header at the position, and the payload behind it.
    fn write_behind(&mut self, header: &[u8], payload: &[u8]) -> io::Result<()> {
        if payload.len() > GROUP_KEPT || failpoint::skipped("tune.large_values") {
            self.file.write_all_at(header, self.offset)?;
            return self.file.write_all_at(payload, self.offset + header.len() as u64);
        }
        self.group.extend_from_slice(header);
        self.group.extend_from_slice(payload);
        let written = self.file.write_all_at(&self.group, self.offset);
        self.group.clear();
        written
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

    fn append_one(&mut self, append: Append<'_>) -> Result<()> {
        let mut header = append.header(self.next_seq, self.durable_seq, self.epoch)?;
        let claims = self.claims.choose(&mut header, self.offset, self.durable_seq);
        let record = append.record;
        let bytes = record.seal(&header, self.id, self.offset);
        reserve(&*self.file, self.preallocate, &mut self.reserved, self.offset, bytes.len())
            .map_err(|e| self.no_space(e))?;
        let written = self.file.write_all_at(bytes, self.offset);
        self.finish_append(written, bytes.len(), header.next_seq(), claims)
    }

    /// Appends a record in as many calls as it has pieces, each from where it lies. If one fails, the file
    /// ends in a torn record, as after a write that was cut off.
    #[cold]
    fn append_pieces(&mut self, append: &mut Append<'_>) -> Result<()> {
        let mut header = append.header(self.next_seq, self.durable_seq, self.epoch)?;
        let claims = self.claims.choose(&mut header, self.offset, self.durable_seq);
        let len = append.record.record_len() - RECORD_HEADER_LEN + header.len();
        reserve(&*self.file, self.preallocate, &mut self.reserved, self.offset, len)
            .map_err(|e| self.no_space(e))?;
        failpoint::tell("log.pieces", len as u64);
        let mut at = self.offset;
        let mut pieces = append.record.seal_pieces(&header, self.id, self.offset);
        let written = pieces.try_for_each(|piece| {
            self.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
            Ok(())
        });
        drop(pieces);
        self.finish_append(written, len, header.next_seq(), claims)
    }

    fn append_group<'a>(&mut self, records: impl Iterator<Item = Append<'a>>) -> Result<()> {
        let mut group = std::mem::take(&mut self.group);
        let result = self.build_group(&mut group, records).and_then(|(next_seq, claims)| {
            reserve(&*self.file, self.preallocate, &mut self.reserved, self.offset, group.len())
                .map_err(|e| self.no_space(e))?;
            let written = self.file.write_all_at(&group, self.offset);
            self.finish_append(written, group.len(), next_seq, claims)
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
    ) -> Result<(SeqNo, Claims)> {
        let (mut next_seq, mut claims) = (self.next_seq, self.claims);
        for append in records {
            let mut header = append.header(next_seq, self.durable_seq, self.epoch)?;
            let offset = self.offset + group.len() as u64;
            claims = claims.choose(&mut header, offset, self.durable_seq);
            if append.record.is_contiguous() {
                group.extend_from_slice(append.record.seal(&header, self.id, offset));
            } else {
                append.record.seal_pieces(&header, self.id, offset).for_each(|p| group.extend_from_slice(p));
            }
            next_seq = header.next_seq();
        }
        Ok((next_seq, claims))
    }

    /// The error of a failed reservation: nothing was written, so no fence is needed.
    #[cold]
    fn no_space(&self, error: io::Error) -> Error {
        Error::io(&format!("reserve space for the {}", self.name), &self.path, error)
    }

    fn finish_append(
        &mut self,
        written: io::Result<()>,
        len: usize,
        next_seq: SeqNo,
        claims: Claims,
    ) -> Result<()> {
        match written {
            Ok(()) => {
                self.claims = claims;
                self.offset += len as u64;
                self.data_end = self.offset;
                self.next_seq = next_seq;
                Ok(())
            }
            Err(e) => {
                self.raise_fence();
                Err(Error::io(&format!("append to the {}", self.name), &self.path, e))
            }
        }
    }

    /// Starts the next epoch, and tries at once to put its fence over the doubtful bytes.
    fn raise_fence(&mut self) {
        debug_assert!(self.epoch < EPOCH_MAX, "appends stop before the last epoch");
        self.epoch += 1;
        self.claims = Claims::default();
        self.fence = Fence::Write;
        // Best effort: the next append, or rotation, insists.
        let _ = self.write_fence();
    }

    fn write_fence(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.marker(), self.offset)?;
        self.fence = Fence::Sync;
        Ok(())
    }

    /// Makes the fence of a failed append durable, if there is one. Nothing may be written to this file, or to one
    /// that continues it, before; nor may anything be done that the failed append, if it were found after a crash, would
    /// contradict.
    pub fn settle_fence(&mut self) -> Result<()> {
        if self.fence == Fence::None {
            return Ok(());
        }
        if self.fence == Fence::Write {
            self.write_fence().map_err(|e| {
                Error::io(&format!("overwrite a failed append to the {}", self.name), &self.path, e)
            })?;
        }
        self.sync_file("log.fence_sync")?;
        self.fence = Fence::None;
        self.offset += RECORD_HEADER_LEN as u64;
        Ok(())
    }

    /// Makes all appended records durable, and then writes a marker that says so. Without anything new it does
    /// nothing.
    pub fn sync(&mut self, site: Site) -> Result<()> {
        self.check_writable()?;
        if !self.needs_sync() {
            return Ok(());
        }
        self.sync_file(site)?;
        self.note_durable_bytes(self.offset);
        self.note_durable_seq(self.next_seq - 1);
        self.write_marker();
        if let Some(stamp) = self.due_stamp() {
            self.write_stamp(stamp);
        }
        Ok(())
    }

    /// The stamp that a sync which begins now entitles to, if it would say more than the one the file has.
    pub(crate) fn due_stamp(&self) -> Option<Stamp> {
        (self.reserved > self.stamped_len).then_some(Stamp { durable_len: self.reserved })
    }

    /// Writes the stamp. Best effort: the next sync tries again. Requires: a sync that began after [`RecordWriter::due_stamp`]
    /// has succeeded.
    pub(crate) fn write_stamp(&mut self, stamp: Stamp) {
        if stamp.write(&*self.file, self.id).is_ok() {
            self.stamped_len = stamp.durable_len;
        }
    }

    fn sync_file(&mut self, site: Site) -> Result<()> {
        self.file.sync(site).map_err(|e| {
            self.poisoned = true;
            Error::io(&format!("sync the {}", self.name), &self.path, e)
        })
    }

    /// Writes a marker that tells readers what is durable. Best effort: without it, damage of the newest durable
    /// record looks like a torn tail.
    pub(crate) fn write_marker(&mut self) {
        if self.poisoned || self.fence != Fence::None || self.is_exhausted() {
            return;
        }
        match self.file.write_all_at(&self.marker(), self.offset) {
            Ok(()) => self.offset += RECORD_HEADER_LEN as u64,
            Err(_) => self.raise_fence(),
        }
    }

    fn marker(&self) -> [u8; RECORD_HEADER_LEN] {
        let header = RecordHeader {
            kind: RecordKind::Marker,
            epoch: self.epoch,
            payload_len: 0,
            first_seq: self.next_seq,
            count: 0,
            durable_lag: RecordHeader::lag(self.next_seq, self.durable_seq),
        };
        header.encode(self.id, self.offset, &[])
    }

    fn check_writable(&self) -> Result<()> {
        if self.poisoned {
            return Err(Error::new(ErrorKind::Poisoned, "a sync failed earlier").at_path(&self.path));
        }
        Ok(())
    }

    /// Whether there is anything that a sync would make durable.
    pub(crate) fn needs_sync(&self) -> bool {
        self.durable_len < self.data_end
    }

    pub(crate) fn note_durable_bytes(&mut self, len: u64) {
        self.durable_len = self.durable_len.max(len);
    }

    pub(crate) fn note_durable_seq(&mut self, seq: SeqNo) {
        self.durable_seq = self.durable_seq.max(seq);
    }

    pub(crate) fn poison(&mut self) {
        self.poisoned = true;
    }

    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    pub(crate) fn holds_records(&self) -> bool {
        self.offset > FILE_HEADER_LEN as u64
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
        self.offset
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
        self.next_seq
    }
}

/// Reserves the next step of space when `len` bytes at `offset` reach beyond what is reserved.
#[inline]
fn reserve(
    file: &dyn File,
    step: Option<u64>,
    reserved: &mut u64,
    offset: u64,
    len: usize,
) -> io::Result<()> {
    let (Some(step), end) = (step, offset + len as u64) else { return Ok(()) };
    if end > *reserved {
        let next = end.max(*reserved + step);
        file.allocate(next)?;
        *reserved = next;
    }
    Ok(())
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
            .field("offset", &self.offset)
            .field("next_seq", &self.next_seq)
            .field("durable_seq", &self.durable_seq)
            .field("epoch", &self.epoch)
            .field("fence", &self.fence)
            .field("poisoned", &self.poisoned)
            .finish_non_exhaustive()
    }
}
