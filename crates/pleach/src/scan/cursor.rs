//! A cursor over one source of a merge: a memtable or a run, seen as user keys of one partition.

use std::path::Path;
use std::sync::Arc;

use pleach_env::{Error, ErrorKind, Result};
use pleach_table::{CursorMode, SstCursor, ValueKind};

use crate::keys::{PARTITION_PREFIX_LEN, PartitionId, partition_key, split_partition_key};
use crate::memtable::MemtableCursor;
use crate::value::Value;
use crate::version::edit::{RunFileMeta, RunKind};
use crate::version::{Run, RunFile, SubTree};

/// The cursor. Not on an entry until a seek finds one. After an error it is of no use.
pub(crate) struct SourceCursor {
    partition: PartitionId,
    source: Source,
}

enum Source {
    Memtable(Box<MemtableCursor>),
    Run(Box<RunCursor>),
}

impl SourceCursor {
    pub(crate) fn over_memtable(partition: PartitionId, cursor: MemtableCursor) -> Self {
        Self { partition, source: Source::Memtable(Box::new(cursor)) }
    }

    pub(crate) fn over_run(partition: PartitionId, run: Arc<Run>, mode: CursorMode) -> Self {
        Self { partition, source: Source::Run(Box::new(RunCursor::new(partition, run, mode))) }
    }

    pub(crate) fn seek_first(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memtable(cursor) => cursor.seek(&self.partition.prefix()),
            Source::Run(cursor) => return cursor.seek_first(),
        }
        Ok(())
    }

    pub(crate) fn seek_last(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memtable(cursor) => match self.partition.0.checked_add(1) {
                Some(next) => cursor.seek_before(&PartitionId(next).prefix()),
                None => cursor.seek_last(),
            },
            Source::Run(cursor) => return cursor.seek_last(),
        }
        Ok(())
    }

    /// To the first entry at or above `user_key`.
    pub(crate) fn seek(&mut self, user_key: &[u8]) -> Result<()> {
        match &mut self.source {
            Source::Memtable(cursor) => cursor.seek(&partition_key(self.partition, user_key)),
            Source::Run(cursor) => return cursor.seek(user_key),
        }
        Ok(())
    }

    /// To the last entry below `user_key`.
    pub(crate) fn seek_before(&mut self, user_key: &[u8]) -> Result<()> {
        match &mut self.source {
            Source::Memtable(cursor) => cursor.seek_before(&partition_key(self.partition, user_key)),
            Source::Run(cursor) => return cursor.seek_before(user_key),
        }
        Ok(())
    }

    pub(crate) fn next(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memtable(cursor) => cursor.next(),
            Source::Run(cursor) => return cursor.next(),
        }
        Ok(())
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memtable(cursor) => cursor.prev(),
            Source::Run(cursor) => return cursor.prev(),
        }
        Ok(())
    }

    /// The user key the cursor is on.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match &self.source {
            Source::Memtable(cursor) if cursor.is_valid() => match split_partition_key(cursor.key()) {
                Some((partition, user_key)) if partition == self.partition => Some(user_key),
                _ => None,
            },
            Source::Memtable(_) => None,
            Source::Run(cursor) => cursor.key(),
        }
    }

    /// The file at whose first entry the cursor stands, if all of the file belongs to the run and none of it is hidden by
    /// the clip: what a compaction may take over as it is. Only on the way up.
    #[inline]
    pub(crate) fn whole_file_ahead(&self) -> Option<&RunFile> {
        match &self.source {
            Source::Run(cursor) if cursor.at_file_start => cursor.whole_file_ahead(),
            _ => None,
        }
    }

    /// To the first entry behind the current file. Requires: over a run.
    pub(crate) fn skip_file(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memtable(_) => Ok(()),
            Source::Run(cursor) => cursor.enter_next(),
        }
    }

    /// What the current file says of its run's entries in it. Requires: on an entry of a run.
    pub(crate) fn file_meta(&self) -> Option<&RunFileMeta> {
        match &self.source {
            Source::Memtable(_) => None,
            Source::Run(cursor) => Some(&cursor.run.files[cursor.file].meta),
        }
    }

    /// Goes on over the run as `tree` has it now, so that files which it no longer has are not pinned.
    pub(crate) fn follow(&mut self, tree: &SubTree) {
        match &mut self.source {
            Source::Memtable(_) => {}
            Source::Run(cursor) => cursor.follow(tree),
        }
    }

    /// The error of an entry that does not come after the one before it: the file's checksums are right, its order is
    /// not. Requires: on an entry.
    pub(crate) fn disorder(&self, dir: &Path) -> Error {
        let error = Error::new(ErrorKind::Corruption, "expected keys in ascending order");
        match &self.source {
            Source::Memtable(_) => error.at_path(dir),
            Source::Run(cursor) => error.at_path(cursor.run.files[cursor.file].file.sst().path()),
        }
    }

    /// Requires: on an entry.
    pub(crate) fn kind(&self) -> ValueKind {
        match &self.source {
            Source::Memtable(cursor) => cursor.kind(),
            Source::Run(cursor) => cursor.sst.kind(),
        }
    }

    /// Requires: on an entry.
    pub(crate) fn value_bytes(&self) -> &[u8] {
        match &self.source {
            Source::Memtable(cursor) => cursor.value(),
            Source::Run(cursor) => cursor.sst.value(),
        }
    }

    /// The value, pinned. Requires: on an entry.
    pub(crate) fn value(&self) -> Value {
        match &self.source {
            Source::Memtable(cursor) => {
                let (memtable, at, len) = cursor.value_place();
                Value::in_memtable(memtable, at, len)
            }
            Source::Run(cursor) => {
                let (block, range) = cursor.sst.value_pin();
                Value::in_block(block, range)
            }
        }
    }
}

/// A cursor over the visible part of a run.
struct RunCursor {
    run: Arc<Run>,
    mode: CursorMode,
    /// In front of each key of the file: the partition's number in a section, nothing otherwise.
    prefix: Option<[u8; PARTITION_PREFIX_LEN]>,
    /// Index of the file that `sst` reads.
    file: usize,
    sst: SstCursor,
    /// Whether `sst` is on an entry of this run.
    valid: bool,
    /// Whether `sst` may be on the first entry of its file, reached on the way up.
    at_file_start: bool,
}

impl RunCursor {
    fn new(partition: PartitionId, run: Arc<Run>, mode: CursorMode) -> Self {
        let prefix = (run.kind == RunKind::Section).then(|| partition.prefix());
        let first = run.files.first().expect("only runs that have files are scanned");
        let sst = SstCursor::new(Arc::clone(first.file.sst()), mode);
        Self { run, mode, prefix, file: 0, sst, valid: false, at_file_start: false }
    }

    fn seek_first(&mut self) -> Result<()> {
        if let Some(clip) = self.run.clip.clone() {
            return self.seek(&clip);
        }
        self.enter(0);
        match self.prefix {
            Some(prefix) => self.sst.seek(&prefix)?,
            None => self.sst.seek_first()?,
        }
        self.settle();
        self.at_file_start = true;
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.enter(self.run.files.len() - 1);
        self.seek_last_in_file()?;
        self.settle();
        Ok(())
    }

    fn seek(&mut self, user_key: &[u8]) -> Result<()> {
        let clip = self.run.clip.clone();
        let user_key = clip.as_deref().filter(|clip| user_key < *clip).unwrap_or(user_key);
        let file = self.run.first_file_reaching(user_key);
        if file == self.run.files.len() {
            self.valid = false;
            return Ok(());
        }
        self.enter(file);
        match self.prefix {
            Some(prefix) => self.sst.seek(&[&prefix, user_key].concat())?,
            None => self.sst.seek(user_key)?,
        }
        self.settle();
        self.at_file_start = true;
        Ok(())
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<()> {
        let file = self.run.first_file_reaching(user_key).min(self.run.files.len() - 1);
        self.enter(file);
        match self.prefix {
            Some(prefix) => self.sst.seek_before(&[&prefix, user_key].concat())?,
            None => self.sst.seek_before(user_key)?,
        }
        self.settle_down()
    }

    fn next(&mut self) -> Result<()> {
        self.sst.next()?;
        self.at_file_start = false;
        if !self.sst.valid() && self.file + 1 < self.run.files.len() {
            return self.enter_next();
        }
        self.settle();
        Ok(())
    }

    /// To the first entry of the next file.
    fn enter_next(&mut self) -> Result<()> {
        if self.file + 1 == self.run.files.len() {
            self.valid = false;
            return Ok(());
        }
        self.enter(self.file + 1);
        self.sst.seek_first()?;
        self.settle();
        self.at_file_start = true;
        Ok(())
    }

    fn whole_file_ahead(&self) -> Option<&RunFile> {
        let file = &self.run.files[self.file];
        let is_whole =
            self.valid && self.run.kind == RunKind::Ssts && *file.meta.smallest == *self.user_key();
        is_whole.then_some(file)
    }

    fn follow(&mut self, tree: &SubTree) {
        let current = self.run.files[self.file].file.id;
        let Some(run) = tree.run(self.run.id) else { return };
        if let Some(file) = run.files.iter().position(|f| f.file.id == current) {
            (self.run, self.file) = (Arc::clone(run), file);
        }
    }

    fn prev(&mut self) -> Result<()> {
        self.sst.prev()?;
        self.settle_down()
    }

    /// Where nothing is left in this file, to the end of the one before.
    fn settle_down(&mut self) -> Result<()> {
        if !self.sst.valid() && self.file > 0 {
            self.enter(self.file - 1);
            self.seek_last_in_file()?;
        }
        self.settle();
        Ok(())
    }

    fn seek_last_in_file(&mut self) -> Result<()> {
        match self.prefix.map(next_prefix) {
            Some(Some(end)) => self.sst.seek_before(&end),
            Some(None) | None => self.sst.seek_last(),
        }
    }

    fn enter(&mut self, file: usize) {
        if file != self.file {
            self.file = file;
            self.sst = SstCursor::new(Arc::clone(self.run.files[file].file.sst()), self.mode);
        }
    }

    /// Decides whether the entry under `sst` belongs to the visible part of the run.
    fn settle(&mut self) {
        self.valid = self.sst.valid()
            && match self.prefix {
                Some(prefix) => self.sst.key().starts_with(&prefix),
                None => true,
            };
        if self.valid && self.run.clip.as_deref().is_some_and(|clip| self.user_key() < clip) {
            self.valid = false;
        }
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        let key = self.sst.key();
        if self.prefix.is_some() { &key[PARTITION_PREFIX_LEN..] } else { key }
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.valid.then(|| self.user_key())
    }
}

/// The first partition prefix after `prefix`.
#[expect(clippy::big_endian_bytes, reason = "byte order is key order")]
fn next_prefix(prefix: [u8; PARTITION_PREFIX_LEN]) -> Option<[u8; PARTITION_PREFIX_LEN]> {
    u32::from_be_bytes(prefix).checked_add(1).map(u32::to_be_bytes)
}
