//! Cursor over a run: the user keys of one partition at or above the run's clip.
//!
//! It walks the run's files in order. Of a shared flush file it shows only the section of its partition, and of any file only
//! the parts that the run has.

use std::sync::Arc;

use pleach_env::Result;
use pleach_table::{CursorHints, CursorMode, ScanHints, SeekStep, Sst, SstCursor, Toward};

use super::merge::{Direction, SeekTo};
use crate::keys::{PARTITION_PREFIX_LEN, PartitionId, PartitionKey, successor};
use crate::version::edit::{RunFileMeta, RunKind};
use crate::version::{Cuts, Run, RunFile, SubTree};

/// How a cursor over a run reads.
pub(crate) enum RunReads {
    /// Through the cache, for a scan that wants about `entries` of the run, 0 if that is unknown; scans usually take `usual`.
    Scan { hints: Arc<ScanHints>, entries: u64, usual: u64 },
    /// Past the cache, for a compaction.
    Stream,
}

impl RunReads {
    /// A cursor over `sst`, in which all keys of the run begin with `prefix`.
    fn cursor(self, sst: &Arc<Sst>, prefix: Option<[u8; PARTITION_PREFIX_LEN]>) -> SstCursor {
        let sst = Arc::clone(sst);
        match self {
            Self::Scan { hints, entries, usual } => {
                SstCursor::for_scan(sst, CursorHints { scan: hints, prefix, entries, usual })
            }
            Self::Stream => SstCursor::new(sst, CursorMode::Streaming { forget: false }),
        }
    }
}

/// See the module's text. It stands on no entry before a seek.
pub(super) struct RunCursor {
    run: Arc<Run>,
    /// The prefix of the file's keys: the partition's number in a section, otherwise `None`.
    prefix: Option<[u8; PARTITION_PREFIX_LEN]>,
    /// Index of the file that `sst` reads.
    file: usize,
    /// The cuts of that file.
    cuts: Cuts,
    pub(super) sst: SstCursor,
    /// Whether `sst` is on an entry of this run.
    valid: bool,
    /// Whether `sst` may be on the first entry of its file, reached on the way up.
    at_file_start: bool,
    seek: Option<Seek>,
}

/// A seek that is not done yet.
struct Seek {
    direction: Direction,
    /// The key as the file stores it; `None` for the file's first or last entry.
    key: Option<PartitionKey>,
}

impl RunCursor {
    /// Requires: the run has files.
    pub(super) fn new(partition: PartitionId, run: Arc<Run>, reads: RunReads) -> Self {
        let prefix = (run.kind == RunKind::Section).then(|| partition.prefix());
        let first = run.files.first().expect("only runs that have files are scanned");
        let (sst, cuts) = (reads.cursor(first.sst(), prefix), run.cuts(0));
        Self { run, prefix, file: 0, cuts, sst, valid: false, at_file_start: false, seek: None }
    }

    /// The file that the entry is in.
    pub(super) fn path(&self) -> &std::path::Path {
        self.run.files[self.file].sst().path()
    }

    pub(super) fn run(&self) -> &Run {
        &self.run
    }

    /// Begins a seek, which [`RunCursor::continue_seek`] completes.
    pub(super) fn begin_seek(&mut self, to: SeekTo<'_>, direction: Direction) {
        self.valid = false;
        self.seek = None;
        let run = Arc::clone(&self.run);
        let last = run.files.len() - 1;
        let clip = run.clip.as_deref();
        let user_key = match (direction, to) {
            (Direction::Up, SeekTo::Start) => clip,
            (Direction::Up, SeekTo::Key(key)) => clip.max(Some(key)),
            (Direction::Down, SeekTo::Start) => None,
            (Direction::Down, SeekTo::Key(key)) => Some(key),
        };
        let file = match (user_key, direction) {
            (Some(key), _) => run.first_file_reaching(key),
            (None, Direction::Up) => 0,
            (None, Direction::Down) => last,
        };
        if file > last && direction == Direction::Up {
            return;
        }
        self.enter(file.min(last));
        if direction == Direction::Down
            && self.file > 0
            && self.cuts.low
            && user_key.is_some_and(|key| key <= self.smallest())
        {
            self.enter(self.file - 1);
        }
        self.seek = Some(self.seek_in_file(user_key, direction));
    }

    /// Begins a seek in the current file. Without a key it goes to the first or last entry of the run there.
    fn seek_in_file(&mut self, user_key: Option<&[u8]>, direction: Direction) -> Seek {
        let meta = &self.run.files[self.file].meta;
        let is_beyond = |end: &[u8]| user_key.is_none_or(|key| direction.compare(key, end).is_lt());
        let (mut key, toward) = match direction {
            Direction::Up if self.cuts.low && is_beyond(&meta.smallest) => {
                (Some(PartitionKey::from_slice(&meta.smallest)), Toward::NotBelow)
            }
            Direction::Down if self.cuts.high && is_beyond(&meta.largest) => {
                (Some(PartitionKey::from_slice(&successor(&meta.largest))), Toward::Below)
            }
            Direction::Up => (user_key.map(PartitionKey::from_slice), Toward::NotBelow),
            Direction::Down => (user_key.map(PartitionKey::from_slice), Toward::Below),
        };
        if let (Some(prefix), Some(key)) = (self.prefix, &mut key) {
            key.insert_from_slice(0, &prefix);
        }
        match (&key, direction) {
            (Some(key), _) => self.sst.begin_seek(key, toward),
            (None, Direction::Up) => self.sst.begin_seek_first(),
            (None, Direction::Down) => self.sst.begin_seek_last(),
        }
        Seek { direction, key }
    }

    /// Continues a seek until it has to wait for memory, or for a block of the file that `sst` wants.
    #[inline]
    pub(super) fn continue_seek(&mut self) -> Result<SeekStep> {
        let Some(Seek { key, .. }) = &self.seek else { return Ok(SeekStep::Done) };
        match self.sst.continue_seek(key.as_deref().unwrap_or_default())? {
            SeekStep::Done => Ok(self.end_seek_in_file()),
            waits => Ok(waits),
        }
    }

    /// Ends the seek where the seek in the current file has ended, or goes on in the file before it.
    fn end_seek_in_file(&mut self) -> SeekStep {
        let Some(Seek { direction, .. }) = self.seek else { return SeekStep::Done };
        match direction {
            Direction::Up => {
                self.settle();
                self.at_file_start = true;
            }
            Direction::Down if !self.sst.valid() && self.file > 0 => {
                self.enter(self.file - 1);
                self.seek = Some(self.seek_in_file(None, direction));
                return SeekStep::Memory;
            }
            Direction::Down => self.settle_at_clip(),
        }
        self.seek = None;
        SeekStep::Done
    }

    /// Moves to the next entry. If it is in a block that is not in memory, the cursor is on no entry and `sst` waits.
    #[inline]
    pub(super) fn next(&mut self) -> Result<()> {
        if self.cuts.high && self.user_key() >= self.largest() {
            return self.enter_next();
        }
        self.sst.try_next()?;
        self.at_file_start = false;
        if !self.sst.valid() && self.file + 1 < self.run.files.len() && !self.sst.is_waiting() {
            return self.enter_next();
        }
        self.settle();
        Ok(())
    }

    /// Completes a step for which `sst` has waited.
    pub(super) fn end_step(&mut self, direction: Direction) -> Result<()> {
        self.reach_part(direction)?;
        match direction {
            Direction::Up => self.settle(),
            Direction::Down => self.settle_at_clip(),
        }
        Ok(())
    }

    /// Passes the entries of the first block of a part that lie outside of the part.
    fn reach_part(&mut self, direction: Direction) -> Result<()> {
        let is_outside = |cursor: &Self| {
            let is_beyond = |key: &[u8], end: &[u8]| direction.compare(key, end).is_lt();
            let (is_cut, end) = match direction {
                Direction::Up => (cursor.cuts.low, cursor.smallest()),
                Direction::Down => (cursor.cuts.high, cursor.largest()),
            };
            is_cut
                && cursor.sst.valid()
                && match cursor.prefix {
                    // Of another partition's section.
                    Some(prefix) if !cursor.sst.key().starts_with(&prefix) => {
                        is_beyond(cursor.sst.key(), &prefix)
                    }
                    _ => is_beyond(cursor.user_key(), end),
                }
        };
        while is_outside(self) {
            match direction {
                Direction::Up => self.sst.try_next()?,
                Direction::Down => self.sst.try_prev()?,
            }
        }
        Ok(())
    }

    /// Moves to the first entry of the next file, as [`RunCursor::next`].
    pub(super) fn enter_next(&mut self) -> Result<()> {
        self.at_file_start = false;
        if self.file + 1 == self.run.files.len() {
            self.valid = false;
            return Ok(());
        }
        self.step_to_file(self.file + 1, Direction::Up)?;
        self.settle();
        self.at_file_start = true;
        Ok(())
    }

    /// See [`SourceCursor::whole_file_ahead`](super::SourceCursor::whole_file_ahead).
    #[inline]
    pub(super) fn whole_file_ahead(&self) -> Option<&RunFile> {
        if !self.at_file_start {
            return None;
        }
        let file = &self.run.files[self.file];
        let is_whole = self.valid && self.run.has_whole(self.file) && *file.meta.smallest == *self.user_key();
        is_whole.then_some(file)
    }

    /// The run's metadata of the current file.
    pub(super) fn file_meta(&self) -> &RunFileMeta {
        &self.run.files[self.file].meta
    }

    /// Continues over the run as `tree` has it now.
    pub(super) fn follow(&mut self, tree: &SubTree) {
        let current = &self.run.files[self.file].meta;
        let Some(run) = tree.run(self.run.id) else { return };
        let is_same =
            |part: &RunFile| part.meta.file == current.file && part.meta.smallest == current.smallest;
        if let Some(file) = run.files.iter().position(is_same) {
            (self.run, self.file) = (Arc::clone(run), file);
        }
    }

    /// As [`RunCursor::next`], to the previous entry.
    #[inline]
    pub(super) fn prev(&mut self) -> Result<()> {
        self.at_file_start = false;
        if self.cuts.low && self.user_key() <= self.smallest() {
            if self.file == 0 {
                self.valid = false;
                return Ok(());
            }
            self.step_to_file(self.file - 1, Direction::Down)?;
            self.settle_at_clip();
            return Ok(());
        }
        self.sst.try_prev()?;
        self.settle_down()
    }

    /// Completes a step down: moves to the end of the file before if this one is exhausted, and stops at the clip.
    #[inline]
    fn settle_down(&mut self) -> Result<()> {
        if !self.sst.valid() && self.file > 0 && !self.sst.is_waiting() {
            self.step_to_file(self.file - 1, Direction::Down)?;
        }
        self.settle_at_clip();
        Ok(())
    }

    /// Computes `valid` on the way down.
    #[inline]
    fn settle_at_clip(&mut self) {
        self.settle();
        if self.valid
            && (self.run.clip.as_deref().is_some_and(|clip| self.user_key() < clip)
                || (self.cuts.low && self.user_key() < self.smallest()))
        {
            self.valid = false;
        }
    }

    /// Moves to the entry that `other`, a cursor over the same run, stands on.
    ///
    /// Requires: `other` is on an entry.
    pub(super) fn move_to(&mut self, other: &Self) {
        (self.file, self.cuts) = (other.file, other.cuts);
        (self.valid, self.at_file_start, self.seek) = (true, false, None);
        self.sst.move_to(&other.sst);
    }

    fn enter(&mut self, file: usize) {
        if file != self.file {
            (self.file, self.cuts) = (file, self.run.cuts(file));
            self.sst.move_to_file(self.run.files[file].sst());
        }
    }

    /// Goes on in a neighbouring file, at the end of the run's part that comes first in the direction of the walk.
    fn step_to_file(&mut self, file: usize, direction: Direction) -> Result<()> {
        (self.file, self.cuts) = (file, self.run.cuts(file));
        let RunFile { meta, .. } = &self.run.files[file];
        let edge = match direction {
            Direction::Up => self.cuts.low.then_some(&meta.smallest),
            Direction::Down => self.cuts.high.then_some(&meta.largest),
        };
        let sst = self.run.files[file].sst();
        let block = edge.map(|user_key| match self.prefix {
            None => sst.block_for(user_key),
            Some(prefix) => sst.block_for(&[&prefix, &**user_key].concat()),
        });
        self.sst.step_to_file(sst, block, direction == Direction::Up)?;
        self.reach_part(direction)
    }

    /// The first key of the current file that is the run's, and the last one.
    #[inline]
    fn smallest(&self) -> &[u8] {
        &self.run.files[self.file].meta.smallest
    }

    #[inline]
    fn largest(&self) -> &[u8] {
        &self.run.files[self.file].meta.largest
    }

    /// Computes `valid`, except for the clip: on the way up the seek has passed it.
    #[inline]
    fn settle(&mut self) {
        self.valid = self.sst.valid()
            && match self.prefix {
                Some(prefix) => self.sst.key().starts_with(&prefix),
                None => true,
            };
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        let key = self.sst.key();
        if self.prefix.is_some() { &key[PARTITION_PREFIX_LEN..] } else { key }
    }

    /// The user key the cursor is on.
    #[inline]
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.valid.then(|| self.user_key())
    }
}
