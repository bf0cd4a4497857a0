//! Salvage: reads every entry of a damaged SST that can still be read.
//!
//! For repair and for checks that go on behind damage. [`walk`] finds the blocks; this module turns them into entries and
//! gives each damaged place the keys around it.
//!
//! # Invariants
//! 1. *Nothing unproven*: an entry is shown only from a block whose checksum is right and whose lengths fit.
//! 2. *Bounded*: a length gets memory only after the bytes of that length have matched their checksum. A search spends at
//!    most `WORK_FACTOR` times the file's length on checksums that turn out wrong.
//!
//! # Cost
//! One pass over the file in reads of 1 MiB. The search looks at every offset behind a damaged block.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, File, FileId, OpenOptions, Result};

use super::open::{Tail, read_tail};
use crate::block::DataBlock;
use crate::sizes::TAIL_LEN_MAX;
use crate::summary::SstSummary;
use crate::value_kind::ValueKind;

use walk::{Found, Walk};

mod walk;
mod window;

/// What salvage finds in an SST, in the order of the file.
#[derive(Debug)]
pub enum Salvaged<'a> {
    /// An entry of a whole block.
    Entry {
        /// Its key as it is stored.
        key: &'a [u8],
        /// The kind.
        kind: ValueKind,
        /// Its value.
        value: &'a [u8],
    },
    /// Bytes that are not a whole block.
    Damage(SstDamage),
    /// So many bytes of the file have been read.
    Progress(u64),
}

/// Damaged bytes of an SST.
#[derive(Clone, Debug)]
pub struct SstDamage {
    /// Where they begin.
    pub offset: u64,
    /// How many there are.
    pub len: u64,
    /// The last key before them, if there is one that can be read.
    pub after: Option<Vec<u8>>,
    /// The first key behind them, if there is one that can be read.
    pub before: Option<Vec<u8>>,
    /// The error.
    pub error: Error,
}

/// An SST to be salvaged.
pub struct SalvageSst {
    path: PathBuf,
    file: Arc<dyn File>,
    file_id: FileId,
    len: u64,
    /// The decoded tail, or the error of reading it.
    tail: Result<Tail>,
}

impl SalvageSst {
    /// Opens the file `path`, which should be the SST `file_id`.
    ///
    /// # Errors
    /// `Io` when the file cannot be opened at all.
    pub fn open(env: &Arc<dyn Env>, path: &Path, file_id: FileId) -> Result<Self> {
        let failed = |e| Error::io("open the SST", path, e);
        let file = env.open_file(path, OpenOptions::default()).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        let tail = read_tail(&*file, path, file_id);
        Ok(Self { path: path.to_path_buf(), file, file_id, len, tail })
    }

    /// Length of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first error in index, filter, properties or footer; `None` if all are whole.
    pub fn tail_error(&self) -> Option<&Error> {
        self.tail.as_ref().err()
    }

    /// The file's summary, if its tail is whole.
    pub fn summary(&self) -> Option<&SstSummary> {
        self.tail.as_ref().ok().map(|tail| &tail.summary)
    }

    /// The note that the writer left, if it can be read.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn note(&self) -> Result<Option<Vec<u8>>> {
        if let Ok(tail) = &self.tail {
            return Ok(Some(tail.note.to_vec()));
        }
        let mut found = None;
        // The properties are in the tail; a search from the beginning would read the whole file.
        let start = self.len.saturating_sub(TAIL_LEN_MAX as u64);
        Walk::new(self).search(start, &mut |what| {
            if let Found::Properties(properties) = what {
                found = Some(properties.note);
            }
            Ok(true)
        })?;
        Ok(found)
    }

    /// Shows `visit` every entry that can be read, and all damage between; `visit` returns whether to go on.
    ///
    /// # Errors
    /// Those of `visit`. Bytes that cannot be read count as damage.
    pub fn read(&self, visit: &mut dyn FnMut(Salvaged<'_>) -> Result<bool>) -> Result<()> {
        let mut walk = Walk::new(self);
        let mut reporter = Reporter { visit, last_key: None, pending: None };
        let mut each = |found: Found<'_>| reporter.take(found);
        let go_on = match &self.tail {
            Ok(tail) => walk.follow(tail, &mut each)?,
            Err(_) => walk.search(0, &mut each)?,
        };
        if go_on {
            reporter.finish()?;
        }
        Ok(())
    }
}

/// Turns blocks into entries, and adds the keys around it to each damage.
struct Reporter<'v> {
    visit: &'v mut dyn FnMut(Salvaged<'_>) -> Result<bool>,
    last_key: Option<Vec<u8>>,
    /// Damage that is reported when the key behind it is known.
    pending: Option<SstDamage>,
}

impl Reporter<'_> {
    fn take(&mut self, found: Found<'_>) -> Result<bool> {
        match found {
            Found::Damage(offset, len, error) => self.note_damage(offset, len, error),
            Found::Properties(_) => Ok(true),
            Found::Block(bytes, end) => Ok(self.show(bytes)? && (self.visit)(Salvaged::Progress(end))?),
        }
    }

    fn note_damage(&mut self, offset: u64, len: u64, error: Error) -> Result<bool> {
        if let Some(pending) = self.pending.as_mut().filter(|pending| pending.offset + pending.len == offset)
        {
            pending.len += len;
            return Ok(true);
        }
        let go_on = self.finish()?;
        self.pending = Some(SstDamage { offset, len, after: self.last_key.clone(), before: None, error });
        Ok(go_on)
    }

    fn show(&mut self, bytes: &[u8]) -> Result<bool> {
        let block = DataBlock::new(bytes);
        let mut key = block.prefix().to_vec();
        let prefix_len = key.len();
        for i in 0..block.count() {
            let entry = block.entry(i);
            key.truncate(prefix_len);
            key.extend_from_slice(entry.suffix.bytes(bytes));
            if let Some(mut damage) = self.pending.take() {
                damage.before = Some(key.clone());
                if !(self.visit)(Salvaged::Damage(damage))? {
                    return Ok(false);
                }
            }
            let found = Salvaged::Entry { key: &key, kind: entry.kind, value: entry.value.bytes(bytes) };
            if !(self.visit)(found)? {
                return Ok(false);
            }
        }
        self.last_key = Some(key);
        Ok(true)
    }

    fn finish(&mut self) -> Result<bool> {
        match self.pending.take() {
            Some(damage) => (self.visit)(Salvaged::Damage(damage)),
            None => Ok(true),
        }
    }
}
