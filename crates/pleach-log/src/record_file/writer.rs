//! Writer of a record file.
//!
//! `LogWriter` uses it for segments, and the engine for its manifest. It makes the file's bytes durable; the caller makes
//! the file's name durable with `Env::sync_dir`. Appends are in `append`; syncs and what follows a failed append are in `sync`.
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

use pleach_env::{Env, Error, ErrorKind, File, FileId, Result};

use super::claims::Claims;
use super::file_header::{FILE_HEADER_LEN, FileHeader, FileKind, ManifestHint};
use super::record_header::{EPOCH_MAX, SeqNo};

mod append;
mod sync;

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
    /// Zeros were written up to here ([`RecordWriter::fill_ahead`]).
    filled: u64,
    /// Syncs of few bytes since the last one of many.
    small_syncs: u32,
    /// Whether appends to the last bytes reserved are stores into the page cache.
    is_mapped: bool,
    /// Whether records have passed another step of small writes ([`File::prepare_small_writes`]).
    is_step_due: bool,
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
        let is_mapped = options.preallocate.is_some_and(|len| file.expect_small_writes(0..len));
        Ok(Self {
            file,
            is_mapped,
            is_step_due: false,
            path: path.to_path_buf(),
            id: options.id,
            name,
            preallocate: options.preallocate,
            reserved: options.preallocate.unwrap_or(0),
            filled: 0,
            small_syncs: 0,
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

    /// The file, if appends have passed a step of small writes since the last call.
    #[inline]
    pub(crate) fn file_to_prepare(&mut self) -> Option<Arc<dyn File>> {
        std::mem::take(&mut self.is_step_due).then(|| Arc::clone(&self.file))
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

    /// Whether appends are stores into the page cache, as long as nothing fails.
    pub(crate) fn is_mapped(&self) -> bool {
        self.is_mapped
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
