//! A range of a partition as an iterator that can be walked from both ends.
//!
//! # Invariants
//! 1. *The end that gave an entry stands on it* until the range is walked again, from whichever end: so entries can be lent.
//!    Then it moves on, and its bound moves behind the entry when it is the other end's turn, so that they never cross.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use pleach_env::{Error, Result};
use pleach_table::{CursorMode, ValueKind};

use super::cursor::SourceCursor;
use super::merge::{Direction, Merge, SeekTo};
use crate::keys::{self, Key, PartitionId};
use crate::state::ReadView;
use crate::status::closed_error;
use crate::tombstone_spans::PassedTombstones;
use crate::value::Value;

/// Entries of a partition in key order: an owned iterator over one consistent view, from either end.
///
/// The view is that of the moment the range was made; writes since then are not seen. It pins memtables and files until
/// it is dropped. When the store is closed, the range answers `Closed`. After an error the iterator ends; it never skips what it could not read.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = pleach::Db::open(dir.path())?;
/// let users = db.default_partition();
/// for name in ["alice", "bob", "carol"] {
///     users.put(name.as_bytes(), b"1")?;
/// }
/// let keys: Result<Vec<_>, _> = users.range("b"..).map(|entry| entry.map(|(key, _)| key)).collect();
/// assert_eq!(keys?, ["bob", "carol"]);
/// let (last, _) = users.iter().next_back().expect("three entries")?;
/// assert_eq!(last, "carol");
/// # Ok::<(), pleach::Error>(())
/// ```
pub struct Range {
    partition: PartitionId,
    /// `None` once the range has ended or failed.
    view: Option<ReadView>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    front: Option<Merge>,
    back: Option<Merge>,
    /// Ends whose bound was moved by a seek: they seek before they are walked.
    must_seek: [bool; 2],
    /// The end that was walked last: it still stands on the entry that was given.
    given: Option<Direction>,
    /// The result of the first call instead of an entry.
    error: Option<Error>,
}

impl Range {
    pub(crate) fn new<K: AsRef<[u8]>>(
        view: ReadView,
        partition: PartitionId,
        bounds: impl RangeBounds<K>,
    ) -> Self {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        Self {
            partition,
            view: Some(view),
            lower: owned(bounds.start_bound()),
            upper: owned(bounds.end_bound()),
            front: None,
            back: None,
            must_seek: [false; 2],
            given: None,
            error: None,
        }
    }

    /// The keys that start with `prefix`.
    pub(crate) fn with_prefix(view: ReadView, partition: PartitionId, prefix: &[u8]) -> Self {
        let mut range = Self::new::<Vec<u8>>(view, partition, ..);
        range.lower = Bound::Included(prefix.to_vec());
        range.upper = keys::prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        range
    }

    /// A range that gives `error` and ends.
    pub(crate) fn failed(partition: PartitionId, error: Error) -> Self {
        Self {
            partition,
            view: None,
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            front: None,
            back: None,
            must_seek: [false; 2],
            given: None,
            error: Some(error),
        }
    }

    fn open(&self, direction: Direction) -> Result<Option<Merge>> {
        let Some(view) = &self.view else { return Ok(None) };
        let mut sources: Vec<_> = (view.state.memtables())
            .map(|memtable| SourceCursor::over_memtable(self.partition, memtable.cursor(view.visible)))
            .collect();
        if let Some(tree) = view.state.version.tree(self.partition) {
            tree.reads.note_seek(tree.runs.len());
            let runs = tree.runs.iter().filter(|run| !run.files.is_empty());
            sources.extend(
                runs.map(|run| SourceCursor::over_run(self.partition, Arc::clone(run), CursorMode::Cached)),
            );
        }
        let mut merge = Merge::new(sources, direction);
        self.seek_bound(&mut merge, direction)?;
        Ok(Some(merge))
    }

    /// Seeks the bound from which a direction starts.
    fn seek_bound(&self, merge: &mut Merge, direction: Direction) -> Result<()> {
        let successor;
        let seek = match (direction, &self.lower, &self.upper) {
            (Direction::Up, Bound::Included(key), _) | (Direction::Down, _, Bound::Excluded(key)) => {
                SeekTo::Key(key)
            }
            (Direction::Up, Bound::Excluded(key), _) | (Direction::Down, _, Bound::Included(key)) => {
                successor = keys::successor(key);
                SeekTo::Key(&successor)
            }
            (Direction::Up, Bound::Unbounded, _) | (Direction::Down, _, Bound::Unbounded) => SeekTo::Start,
        };
        merge.seek(seek)
    }

    /// Goes to the next live entry in a direction, within the bounds; returns whether there is one.
    #[inline]
    fn find(&mut self, direction: Direction) -> Result<bool> {
        match self.given.take() {
            // Each step of a long walk comes this way, with nothing to look up.
            Some(given) if given == direction && self.is_open() => {
                if let Some(merge) = self.end_mut(direction) {
                    merge.advance()?;
                }
            }
            given => self.begin(given, direction)?,
        }
        let mut found = self.entry(direction);
        if found.is_some_and(|(_, source)| source.kind() == ValueKind::Tombstone) {
            self.pass_tombstones(direction)?;
            found = self.entry(direction);
        }
        let is_found = found.is_some_and(|(key, _)| self.is_within(key, direction));
        self.given = is_found.then_some(direction);
        Ok(is_found)
    }

    /// Brings an end to its first entry, or behind the entry that the other end gave.
    #[cold]
    fn begin(&mut self, given: Option<Direction>, direction: Direction) -> Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.is_closed() {
            return Err(closed_error());
        }
        if let Some(given) = given {
            if given != direction {
                self.pass_given(given);
            }
            if let Some(merge) = self.end_mut(given) {
                merge.advance()?;
            }
        }
        if self.end(direction).is_none() {
            let merge = self.open(direction)?;
            *self.end_mut(direction) = merge;
        } else if self.must_seek[direction as usize]
            && let Some(mut merge) = self.end_mut(direction).take()
        {
            self.seek_bound(&mut merge, direction)?;
            *self.end_mut(direction) = Some(merge);
        }
        self.must_seek[direction as usize] = false;
        Ok(())
    }

    /// The entry that an end stands on.
    #[inline]
    fn entry(&self, direction: Direction) -> Option<(&[u8], &SourceCursor)> {
        let source = self.end(direction)?.current()?;
        source.key().map(|key| (key, source))
    }

    /// The key of the tombstone that a direction has come to, within the bounds.
    fn tombstone(&self, direction: Direction) -> Option<&[u8]> {
        let source = self.end(direction)?.current()?;
        let key = source.key().filter(|_| source.kind() == ValueKind::Tombstone)?;
        self.is_within(key, direction).then_some(key)
    }

    /// Steps over tombstones to the next living key, if one lies within the bounds, and leaps where it is known that
    /// nothing lives.
    #[cold]
    fn pass_tombstones(&mut self, direction: Direction) -> Result<()> {
        let Some(ReadView { state, visible }) = self.view.clone() else { return Ok(()) };
        let mut passed = PassedTombstones::default();
        while let Some(key) = self.tombstone(direction) {
            let must_ask = passed.add(key, direction == Direction::Up);
            let known =
                if must_ask { state.tombstone_spans.find(self.partition, key, visible) } else { None };
            if must_ask {
                passed.extend(known.as_ref());
            }
            let Some(merge) = self.end_mut(direction).as_mut() else { break };
            match (known, direction) {
                (Some(known), Direction::Up) => merge.seek(SeekTo::Key(&keys::successor(known.last())))?,
                (Some(known), Direction::Down) => merge.seek(SeekTo::Key(known.first()))?,
                (None, _) => merge.advance()?,
            }
        }
        passed.end(&state.tombstone_spans, self.partition, visible);
        Ok(())
    }

    #[inline]
    fn end(&self, direction: Direction) -> Option<&Merge> {
        match direction {
            Direction::Up => self.front.as_ref(),
            Direction::Down => self.back.as_ref(),
        }
    }

    #[inline]
    fn end_mut(&mut self, direction: Direction) -> &mut Option<Merge> {
        match direction {
            Direction::Up => &mut self.front,
            Direction::Down => &mut self.back,
        }
    }

    /// Whether the far bound has not been reached. The near one holds by the seek.
    #[inline]
    fn is_within(&self, key: &[u8], direction: Direction) -> bool {
        match direction {
            Direction::Up => match &self.upper {
                Bound::Included(upper) => key <= upper.as_slice(),
                Bound::Excluded(upper) => key < upper.as_slice(),
                Bound::Unbounded => true,
            },
            Direction::Down => match &self.lower {
                Bound::Included(lower) => key >= lower.as_slice(),
                Bound::Excluded(lower) => key > lower.as_slice(),
                Bound::Unbounded => true,
            },
        }
    }

    /// Moves an end's bound behind the entry it gave, for the other end to stop at.
    fn pass_given(&mut self, direction: Direction) {
        let Some(key) = self.entry(direction).map(|(key, _)| key.to_vec()) else { return };
        match direction {
            Direction::Up => self.lower = Bound::Excluded(key),
            Direction::Down => self.upper = Bound::Excluded(key),
        }
    }

    /// Moves the bound of this direction to `key`; see [`Range::seek`].
    fn narrow(&mut self, direction: Direction, key: &[u8]) {
        let given = if self.given == Some(direction) { self.entry(direction) } else { None };
        let passed = |other: &[u8]| match direction {
            Direction::Up => key <= other,
            Direction::Down => key >= other,
        };
        let bound = if direction == Direction::Up { &self.lower } else { &self.upper };
        let stays = match bound {
            Bound::Included(other) | Bound::Excluded(other) => passed(other),
            Bound::Unbounded => false,
        };
        if self.view.is_none() || stays || given.is_some_and(|(other, _)| passed(other)) {
            return;
        }
        let bound = if direction == Direction::Up { &mut self.lower } else { &mut self.upper };
        *bound = Bound::Included(key.to_vec());
        self.must_seek[direction as usize] = true;
        if self.given == Some(direction) {
            self.given = None;
        }
    }

    /// Passes over the entries below `key`: the next one from the start is the first at or above it that the range still
    /// holds. It is what calling `next` until then would do, at the cost of one seek, which is paid (and fails) with the
    /// next entry. A seek never goes back: a `key` at or below the entry returned last, or below the range, changes
    /// nothing, and a range that has ended stays so.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = pleach::Db::open(dir.path())?;
    /// let posts = db.default_partition();
    /// for key in ["alice/1", "alice/2", "bob/1", "bob/2", "carol/1"] {
    ///     posts.put(key, b"")?;
    /// }
    /// // The first post of each author: one seek an author.
    /// let mut range = posts.iter();
    /// let mut first = Vec::new();
    /// while let Some(entry) = range.next() {
    ///     let key = String::from_utf8(entry?.0.into_vec()).expect("we wrote text");
    ///     let author = key.split('/').next().unwrap_or_default();
    ///     range.seek(format!("{author}0")); // '0' follows '/'.
    ///     first.push(key);
    /// }
    /// assert_eq!(first, ["alice/1", "bob/1", "carol/1"]);
    /// # Ok::<(), pleach::Error>(())
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.narrow(Direction::Up, key.as_ref());
    }

    /// As [`Range::seek`] from the end: the next entry from there is the last at or below `key`.
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) {
        self.narrow(Direction::Down, key.as_ref());
    }

    /// As [`Range::find`]. When there is nothing more for one end, or an error, there is nothing more for either.
    #[inline]
    fn walk(&mut self, direction: Direction) -> Result<bool> {
        match self.find(direction) {
            Ok(true) => Ok(true),
            end => self.finish(end),
        }
    }

    /// Gives everything back at the end of the range.
    #[cold]
    fn finish(&mut self, mut end: Result<bool>) -> Result<bool> {
        if end.is_err() && self.is_closed() {
            // The file may have been removed by the next open of the directory.
            end = Err(closed_error());
        }
        self.view = None;
        (self.front, self.back, self.given) = (None, None, None);
        end
    }

    /// Whether there is a view, of a store that is open, and no error to tell.
    #[inline]
    fn is_open(&self) -> bool {
        self.error.is_none() && self.view.as_ref().is_some_and(|view| !view.state.is_closed())
    }

    /// Whether the store was closed under the range.
    fn is_closed(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.state.is_closed())
    }

    fn take_entry(&mut self, direction: Direction) -> Option<Result<(Key, Value)>> {
        match self.walk(direction) {
            Ok(true) => self.entry(direction).map(|(key, source)| Ok((Key::new(key), source.value()))),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn lend_entry(&mut self, direction: Direction) -> Result<Option<(&[u8], &[u8])>> {
        self.walk(direction)?;
        Ok(self.entry(direction).map(|(key, source)| (key, source.value_bytes())))
    }

    /// The next entry from the start, as [`Iterator::next`] has it, but lent: nothing is copied or pinned. It is the
    /// fastest way to see many entries.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = pleach::Db::open(dir.path())?;
    /// let users = db.default_partition();
    /// users.put(b"alice", b"1")?;
    /// let mut range = users.iter();
    /// while let Some((key, value)) = range.next_entry()? {
    ///     assert_eq!((key, value), (&b"alice"[..], &b"1"[..]));
    /// }
    /// # Ok::<(), pleach::Error>(())
    /// ```
    ///
    /// # Errors
    /// As the iterator's; the range has ended then.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.lend_entry(Direction::Up)
    }

    /// The next entry from the end, lent as by [`Range::next_entry`].
    ///
    /// # Errors
    /// As there.
    pub fn next_back_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.lend_entry(Direction::Down)
    }
}

impl Iterator for Range {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take_entry(Direction::Up)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take_entry(Direction::Down)
    }
}

impl std::iter::FusedIterator for Range {}

impl std::fmt::Debug for Range {
    /// Never prints data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").field("partition", &self.partition).finish_non_exhaustive()
    }
}
