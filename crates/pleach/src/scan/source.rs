//! Cursor over one source of a merge: the user keys of one partition in a memtable or a run.

use std::path::Path;
use std::sync::Arc;
use std::task::{Poll, Waker, ready};

use pleach_env::{Error, ErrorKind, Result};
use pleach_table::{SeekStep, SstCursor, ValueKind};

use super::merge::{Direction, PassedValues, SeekTo};
use super::run_cursor::{RunCursor, RunReads};
use crate::keys::{PartitionId, partition_key, split_partition_key};
use crate::memtable::MemtableCursor;
use crate::value::Value;
use crate::values::ValuePointer;
use crate::version::edit::RunFileMeta;
use crate::version::{Run, RunFile, SubTree};

/// See the module's text. It stands on no entry before a seek. After an error it must not be used.
pub(crate) struct SourceCursor {
    partition: PartitionId,
    source: Source,
}

#[expect(
    clippy::large_enum_variant,
    reason = "most sources are runs, and an allocation for each is measurable"
)]
enum Source {
    Memtable(Box<MemtableCursor>),
    Run(RunCursor),
}

impl SourceCursor {
    pub(crate) fn over_memtable(partition: PartitionId, cursor: MemtableCursor) -> Self {
        Self { partition, source: Source::Memtable(Box::new(cursor)) }
    }

    pub(crate) fn over_run(partition: PartitionId, run: Arc<Run>, reads: RunReads) -> Self {
        Self { partition, source: Source::Run(RunCursor::new(partition, run, reads)) }
    }

    /// Begins a seek, which [`SourceCursor::continue_seek`] completes.
    pub(super) fn begin_seek(&mut self, to: SeekTo<'_>, direction: Direction) {
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
            Source::Run(cursor) => cursor.begin_seek(to, direction),
        }
    }

    /// Whether the source may hold a key, by its hash. A no is certain.
    pub(super) fn may_hold(&self, key: &[u8], hash: u64) -> bool {
        match &self.source {
            Source::Memtable(cursor) => cursor.holds(hash, &partition_key(self.partition, key)),
            Source::Run(cursor) => cursor.run().may_hold(key, hash),
        }
    }

    /// Asks for the memory that [`SourceCursor::may_hold`] will probe first.
    pub(super) fn prefetch_filter(&self, key: &[u8], hash: u64) {
        match &self.source {
            Source::Memtable(cursor) => cursor.prefetch(hash),
            Source::Run(cursor) => {
                if let Some(file) = cursor.run().file_for(key) {
                    file.prefetch_filter(hash);
                }
            }
        }
    }

    /// Continues a seek until it has to wait. A read that it waits for is made by [`SourceCursor::sst_mut`].
    #[inline]
    pub(super) fn continue_seek(&mut self) -> Result<SeekStep> {
        match &mut self.source {
            Source::Memtable(_) => Ok(SeekStep::Done),
            Source::Run(cursor) => cursor.continue_seek(),
        }
    }

    /// The cursor over the run's current file. Requires: the source is a run.
    pub(super) fn sst_mut(&mut self) -> &mut SstCursor {
        match &mut self.source {
            Source::Memtable(_) => unreachable!("a memtable has no file"),
            Source::Run(cursor) => &mut cursor.sst,
        }
    }

    /// Moves to the next entry. If it is in a block that is not in memory, the source is on no entry and
    /// [`SourceCursor::is_waiting`].
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memtable(cursor) => cursor.next(),
            Source::Run(cursor) => return cursor.next(),
        }
        Ok(())
    }

    /// As [`SourceCursor::next`], to the previous entry.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memtable(cursor) => cursor.prev(),
            Source::Run(cursor) => return cursor.prev(),
        }
        Ok(())
    }

    /// Moves to the entry that `other`, a cursor over the same source, stands on. Nothing is read or searched.
    ///
    /// Requires: `other` is on an entry.
    pub(super) fn move_to(&mut self, other: &Self) {
        match (&mut self.source, &other.source) {
            (Source::Memtable(cursor), Source::Memtable(other)) => cursor.clone_from(other),
            (Source::Run(cursor), Source::Run(other)) => cursor.move_to(other),
            _ => unreachable!("both are of one source"),
        }
    }

    /// Moves one entry in a direction, and reads its block if that is not in memory.
    ///
    /// Requires: on an entry.
    pub(super) fn step(&mut self, direction: Direction) -> Result<()> {
        match direction {
            Direction::Up => self.next(),
            Direction::Down => self.prev(),
        }?;
        if self.is_waiting() { self.wait(direction) } else { Ok(()) }
    }

    /// Whether a step waits for a block. [`SourceCursor::wait`] or [`SourceCursor::poll_step`] complete it.
    pub(super) fn is_waiting(&self) -> bool {
        match &self.source {
            Source::Memtable(_) => false,
            Source::Run(cursor) => cursor.sst.is_waiting(),
        }
    }

    /// Completes a step that waits, in the direction of the walk.
    pub(super) fn wait(&mut self, direction: Direction) -> Result<()> {
        if let Source::Run(cursor) = &mut self.source {
            cursor.sst.wait()?;
            cursor.end_step(direction)?;
        }
        Ok(())
    }

    /// As [`SourceCursor::wait`], for a task.
    pub(super) fn poll_step(&mut self, direction: Direction, waker: &Waker) -> Poll<Result<()>> {
        if let Source::Run(cursor) = &mut self.source {
            ready!(cursor.sst.poll_step(waker))?;
            cursor.end_step(direction)?;
        }
        Poll::Ready(Ok(()))
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

    /// The file whose first entry the cursor stands on, if the whole file belongs to the run and none of it lies below the
    /// clip. A compaction may move such a file. Requires: the walk goes up.
    #[inline]
    pub(crate) fn whole_file_ahead(&self) -> Option<&RunFile> {
        match &self.source {
            Source::Run(cursor) => cursor.whole_file_ahead(),
            Source::Memtable(_) => None,
        }
    }

    /// Moves to the first entry behind the current file. Requires: the source is a run.
    pub(super) fn skip_file(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Memtable(_) => Ok(()),
            Source::Run(cursor) => cursor.enter_next(),
        }
    }

    /// The run's metadata of the current file. Requires: on an entry of a run.
    pub(crate) fn file_meta(&self) -> Option<&RunFileMeta> {
        match &self.source {
            Source::Memtable(_) => None,
            Source::Run(cursor) => Some(cursor.file_meta()),
        }
    }

    /// Continues over the run as `tree` has it now, so that files which the run no longer has are not pinned.
    pub(super) fn follow(&mut self, tree: &SubTree) {
        match &mut self.source {
            Source::Memtable(_) => {}
            Source::Run(cursor) => cursor.follow(tree),
        }
    }

    /// The error for an entry that cannot be, in a file whose checksums are right. Requires: on an entry.
    pub(crate) fn damaged(&self, dir: &Path, what: &str) -> Error {
        let error = Error::new(ErrorKind::Corruption, what);
        match &self.source {
            Source::Memtable(_) => error.at_path(dir),
            Source::Run(cursor) => error.at_path(cursor.path()),
        }
    }

    /// Adds what a value pointer refers to. Requires: on an entry.
    pub(super) fn note_value(&self, passed: &mut PassedValues) {
        if let Source::Run(cursor) = &self.source
            && cursor.sst.kind() == ValueKind::ValuePointer
            && let Some(pointer) = ValuePointer::decode(cursor.sst.value())
        {
            let uses = passed.entry(cursor.file_meta().file).or_default();
            uses.entry(pointer.segment).or_default().add(pointer.bytes());
        }
    }

    /// The kind of the entry. Memtables hold the values that are to be separated, so there they are puts.
    ///
    /// Requires: on an entry.
    #[inline]
    pub(crate) fn kind(&self) -> ValueKind {
        match &self.source {
            Source::Memtable(cursor) => match cursor.kind() {
                ValueKind::ValuePointer => ValueKind::Put,
                kind => kind,
            },
            Source::Run(cursor) => cursor.sst.kind(),
        }
    }

    /// The value, or the bytes of the pointer to it. Requires: on an entry.
    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        match &self.source {
            Source::Memtable(cursor) => cursor.value(),
            Source::Run(cursor) => cursor.sst.value(),
        }
    }

    /// Bytes of the value, which is not read if it is separated: the stored ones then. Requires: on an entry.
    pub(crate) fn value_len(&self) -> usize {
        let bytes = self.value_bytes();
        match self.kind() {
            // A malformed pointer fails when the value is read.
            ValueKind::ValuePointer => ValuePointer::decode(bytes).map_or(0, |pointer| pointer.len as usize),
            ValueKind::Put | ValueKind::Tombstone => bytes.len(),
        }
    }

    /// The value, pinned, or the pointer to it. Requires: on an entry.
    #[inline]
    pub(crate) fn value(&self) -> Value {
        match &self.source {
            Source::Memtable(cursor) => Value::in_memtable(cursor.pinned_value()),
            Source::Run(cursor) => {
                if cursor.sst.kind() == ValueKind::ValuePointer {
                    return Value::pointer(cursor.sst.value());
                }
                let (block, range) = cursor.sst.value_pin();
                Value::in_block(block, range)
            }
        }
    }
}
