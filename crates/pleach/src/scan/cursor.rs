//! A cursor over one source of a merge: a memtable or a run, seen as user keys of one partition.

use std::path::Path;
use std::sync::Arc;

use pleach_env::{Error, ErrorKind, Result};
use pleach_table::{CursorMode, ValueKind};

use super::merge::{Direction, SeekTo};
use super::run_cursor::RunCursor;
use crate::keys::{PartitionId, partition_key, split_partition_key};
use crate::memtable::MemtableCursor;
use crate::value::Value;
use crate::version::edit::RunFileMeta;
use crate::version::{Run, RunFile, SubTree};

/// The cursor. Not on an entry until a seek finds one. After an error it is of no use.
pub(crate) struct SourceCursor {
    partition: PartitionId,
    source: Source,
}

#[expect(clippy::large_enum_variant, reason = "most sources are runs, and an allocation for each is felt")]
enum Source {
    Memtable(Box<MemtableCursor>),
    Run(RunCursor),
}

impl SourceCursor {
    pub(crate) fn over_memtable(partition: PartitionId, cursor: MemtableCursor) -> Self {
        Self { partition, source: Source::Memtable(Box::new(cursor)) }
    }

    pub(crate) fn over_run(partition: PartitionId, run: Arc<Run>, mode: CursorMode) -> Self {
        Self { partition, source: Source::Run(RunCursor::new(partition, run, mode)) }
    }

    /// Begins a seek, with `prefetch` if other runs are sought too; [`SourceCursor::continue_seek`] ends it.
    pub(super) fn begin_seek(&mut self, to: SeekTo<'_>, direction: Direction, prefetch: bool) {
        match &mut self.source {
            Source::Memtable(cursor) => match (direction, to) {
                (Direction::Up, SeekTo::Start) => cursor.seek(&self.partition.prefix()),
                (Direction::Up, SeekTo::Key(key)) => cursor.seek(&partition_key(self.partition, key)),
                (Direction::Down, SeekTo::Key(key)) => {
                    cursor.seek_before(&partition_key(self.partition, key));
                }
                (Direction::Down, SeekTo::Start) => match self.partition.0.checked_add(1) {
                    Some(next) => cursor.seek_before(&PartitionId(next).prefix()),
                    None => cursor.seek_last(),
                },
            },
            Source::Run(cursor) => cursor.begin_seek(to, direction, prefetch),
        }
    }

    /// Whether it is over a run.
    pub(super) fn is_run(&self) -> bool {
        matches!(self.source, Source::Run(_))
    }

    /// Goes on with a seek until it has to wait for memory; returns whether it is done.
    pub(super) fn continue_seek(&mut self) -> Result<bool> {
        match &mut self.source {
            Source::Memtable(_) => Ok(true),
            Source::Run(cursor) => cursor.continue_seek(),
        }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memtable(cursor) => cursor.next(),
            Source::Run(cursor) => return cursor.next(),
        }
        Ok(())
    }

    #[inline]
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
            Source::Run(cursor) => cursor.whole_file_ahead(),
            Source::Memtable(_) => None,
        }
    }

    /// To the first entry behind the current file. Requires: over a run.
    pub(super) fn skip_file(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memtable(_) => Ok(()),
            Source::Run(cursor) => cursor.enter_next(),
        }
    }

    /// The current file's record of its run's entries in it. Requires: on an entry of a run.
    pub(crate) fn file_meta(&self) -> Option<&RunFileMeta> {
        match &self.source {
            Source::Memtable(_) => None,
            Source::Run(cursor) => Some(cursor.file_meta()),
        }
    }

    /// Goes on over the run as `tree` has it now, so that files which it no longer has are not pinned.
    pub(super) fn follow(&mut self, tree: &SubTree) {
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
            Source::Run(cursor) => error.at_path(cursor.path()),
        }
    }

    /// Requires: on an entry.
    #[inline]
    pub(crate) fn kind(&self) -> ValueKind {
        match &self.source {
            Source::Memtable(cursor) => cursor.kind(),
            Source::Run(cursor) => cursor.sst.kind(),
        }
    }

    /// Requires: on an entry.
    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        match &self.source {
            Source::Memtable(cursor) => cursor.value(),
            Source::Run(cursor) => cursor.sst.value(),
        }
    }

    /// The value, pinned. Requires: on an entry.
    #[inline]
    pub(crate) fn value(&self) -> Value {
        match &self.source {
            Source::Memtable(cursor) => Value::in_memtable(cursor.pinned_value()),
            Source::Run(cursor) => {
                let (block, range) = cursor.sst.value_pin();
                Value::in_block(block, range)
            }
        }
    }
}
