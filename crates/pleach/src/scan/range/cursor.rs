//! Cursor: a position among the entries of a partition that moves both ways.
//!
//! It is a range without bounds whose two ends stand beside each other ([`turning`](crate::scan::merge)), so that it turns
//! without a seek. The end that goes down is made when the cursor first turns down, or first seeks downwards; so is the other.

use std::ops::RangeFull;
use std::sync::{Arc, OnceLock};

use pleach_env::{Error, Result};
use pleach_table::{ValueKind, key_hash};

use super::{Direction, Merge, Range, SeekTo, SourceCursor};
use crate::context::Context;
use crate::keys::{self, PartitionId};
use crate::state::ReadView;
use crate::value::Value;
use crate::value_reads::get_value;

/// A position among the entries of a partition, in key order, at the moment when the cursor was made. It moves to an end, to a
/// key, or by one entry in either direction, and lends the entry that it is on.
///
/// It does not see later writes. It pins memtables and files until it is dropped, and owns all that it needs: it is `'static`
/// and `Send`. [`Range`] is the faster choice for a scan that wants to copy entries or read large values: a cursor reads a
/// separated value ([`Options::separate_at`](crate::Options::separate_at)) when it is asked for, one at a time.
///
/// # Errors
/// A move that fails leaves the cursor on no entry. A move to an end or to a key may be tried again.
///
/// # Complexity
/// A seek costs what that of a range costs; to a key that is there, what a get costs, if no step came behind the cursor's last
/// seek. A step, also one that turns, takes constant time and a number of comparisons that grows with the runs that have keys
/// nearby. The first step or turn behind a seek takes a seek or step of each run.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = pleach::Db::open(dir.path())?;
/// let users = db.default_partition();
/// for name in ["alice", "bob", "carol"] {
///     users.put(name, name.len().to_string())?;
/// }
/// let mut cursor = users.cursor()?;
/// assert!(cursor.seek("b")?);
/// assert_eq!(cursor.key(), Some(&b"bob"[..]));
/// assert!(cursor.prev()?);
/// assert_eq!(cursor.key(), Some(&b"alice"[..]));
/// assert_eq!(cursor.value()?, Some(&b"5"[..]));
/// assert!(!cursor.prev()?);
/// assert_eq!(cursor.key(), None);
/// assert!(cursor.seek_for_prev("bz")?);
/// assert_eq!(cursor.key(), Some(&b"bob"[..]));
/// # Ok::<(), pleach::Error>(())
/// ```
pub struct Cursor {
    range: Range,
    /// The end that stands on the entry; `None` if the cursor is on no entry.
    on: Option<Direction>,
    /// Whether only a part of the sources was sought ([`Merge::seek_exact`]): the others are when the cursor moves.
    is_exact: bool,
    /// The value of the entry, if it is separated and was asked for.
    value: OnceLock<Value>,
}

impl Cursor {
    pub(crate) fn new(ctx: &Arc<Context>, view: ReadView, partition: PartitionId) -> Self {
        let range = Range::new::<[u8]>(ctx, Ok(view), partition, RangeFull);
        Self { range, on: None, is_exact: false, value: OnceLock::new() }
    }

    /// As [`Range::fill_cache`]: what a long walk reads enters the caches too. Requires: nothing was read yet; otherwise it has
    /// no effect.
    #[must_use]
    pub fn fill_cache(mut self) -> Self {
        self.range = self.range.fill_cache();
        self
    }

    /// Moves to the first entry. Returns whether there is one.
    ///
    /// # Errors
    /// `Io` or `Corruption` of a file that is read; `Closed` if the store was closed.
    pub fn first(&mut self) -> Result<bool> {
        self.seek_from(Direction::Up, SeekTo::Start)
    }

    /// Moves to the last entry. Returns whether there is one.
    ///
    /// # Errors
    /// Those of [`Cursor::first`].
    pub fn last(&mut self) -> Result<bool> {
        self.seek_from(Direction::Down, SeekTo::Start)
    }

    /// Moves to the first entry at or above `key`. Returns whether there is one.
    ///
    /// # Errors
    /// Those of [`Cursor::first`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.seek_from(Direction::Up, SeekTo::Key(key.as_ref()))
    }

    /// Moves to the last entry at or below `key`. Returns whether there is one.
    ///
    /// # Errors
    /// Those of [`Cursor::first`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.seek_from(Direction::Down, SeekTo::Key(&keys::successor(key.as_ref())))
    }

    /// Moves to the next entry. Returns whether there is one; if not, the cursor is on no entry until it is sought again.
    /// A cursor on no entry stays there.
    ///
    /// # Errors
    /// Those of [`Cursor::first`].
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a move in one of two directions, not an iteration")]
    pub fn next(&mut self) -> Result<bool> {
        self.step(Direction::Up)
    }

    /// Moves to the previous entry, as [`Cursor::next`].
    ///
    /// # Errors
    /// Those of [`Cursor::first`].
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        self.step(Direction::Down)
    }

    /// Whether the cursor is on an entry.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.on.is_some()
    }

    /// The key of the entry, until the next move; `None` if the cursor is on no entry.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.range.entry(self.on?).map(|(key, _)| key)
    }

    /// The value of the entry, until the next move; `None` if the cursor is on no entry. A separated value is read by the
    /// first call.
    ///
    /// # Errors
    /// `Io` or `Corruption` of a separated value, also `Closed`. The cursor stays on the entry, and moves on.
    #[inline]
    pub fn value(&self) -> Result<Option<&[u8]>> {
        if self.source().is_some_and(|source| source.kind() == ValueKind::ValuePointer) {
            return self.read_value();
        }
        Ok(self.source().map(SourceCursor::value_bytes))
    }

    /// The source of the entry.
    #[inline]
    fn source(&self) -> Option<&SourceCursor> {
        self.range.merge(self.on?)?.current()
    }

    #[cold]
    fn read_value(&self) -> Result<Option<&[u8]>> {
        if self.value.get().is_none()
            && let Some((key, source)) = self.on.and_then(|on| self.range.entry(on))
            && let Some(view) = &self.range.view
        {
            if !self.range.is_open() {
                return Err(Error::closed());
            }
            let key = (self.range.partition, key);
            let segments = &view.state.version.values;
            let read = get_value(&self.range.ctx, segments, key, &source.value(), self.range.fills_cache)?;
            // Another thread may have been faster.
            let _it_is_the_same = self.value.set(read);
        }
        Ok(self.value.get().map(|value| &**value))
    }

    #[inline]
    fn forget_value(&mut self) {
        if self.value.get().is_some() {
            self.value = OnceLock::new();
        }
    }

    #[inline]
    fn step(&mut self, direction: Direction) -> Result<bool> {
        self.forget_value();
        match self.on {
            Some(on) if on == direction && !self.is_exact && self.range.is_open() => {
                let advanced = self.range.merge_mut(direction).map_or(Ok(()), Merge::advance);
                let settled = advanced.and_then(|()| self.range.settle(direction));
                match settled {
                    Ok(true) => Ok(true),
                    other => self.finish_move(direction, other),
                }
            }
            Some(on) => {
                let stepped = if on == direction { self.step_on(on) } else { self.turn(on, direction) };
                self.finish_move(direction, stepped)
            }
            None => Ok(false),
        }
    }

    /// Makes the first step behind an exact seek, in the same direction. Otherwise the store was closed.
    #[inline(never)]
    fn step_on(&mut self, on: Direction) -> Result<bool> {
        if !self.range.is_open() {
            return Err(Error::closed());
        }
        self.seek_rest(on)?;
        if let Some(merge) = self.range.merge_mut(on) {
            merge.advance()?;
        }
        self.range.settle(on)
    }

    /// Seeks the sources that an exact seek has left out.
    fn seek_rest(&mut self, on: Direction) -> Result<()> {
        if !std::mem::take(&mut self.is_exact) {
            return Ok(());
        }
        let Range { ctx, ends, .. } = &mut self.range;
        ends[on as usize].merge.as_mut().map_or(Ok(()), |merge| merge.seek_rest(ctx))
    }

    /// Moves to the entry in a direction, from the end that stands on the current one.
    #[inline(never)]
    fn turn(&mut self, on: Direction, direction: Direction) -> Result<bool> {
        self.open_end(direction)?;
        self.seek_rest(on)?;
        let [up, down] = &mut self.range.ends;
        let (active, idle) = if on == Direction::Up { (up, down) } else { (down, up) };
        if let (Some(active), Some(idle)) = (&mut active.merge, &mut idle.merge) {
            idle.stand_beside(active, &self.range.ctx)?;
        }
        self.range.settle(direction)
    }

    #[inline(never)]
    fn seek_from(&mut self, direction: Direction, to: SeekTo<'_>) -> Result<bool> {
        self.forget_value();
        let sought = self.open_end(direction).and_then(|()| self.seek_in_end(direction, to));
        self.finish_move(direction, sought)
    }

    fn seek_in_end(&mut self, direction: Direction, to: SeekTo<'_>) -> Result<bool> {
        let moves_seldom = self.moves_seldom();
        let Range { ctx, ends, partition, .. } = &mut self.range;
        for end in ends.iter_mut() {
            end.taken.stop();
            end.passed = None;
        }
        let end = &mut ends[direction as usize];
        self.is_exact = false;
        if let Some(merge) = &mut end.merge {
            match (direction, to) {
                (Direction::Up, SeekTo::Key(key)) if moves_seldom => {
                    merge.seek_exact(ctx, key, key_hash(partition.0, key))?;
                    self.is_exact = true;
                }
                _ => merge.seek(to)?,
            }
        }
        self.range.settle(direction)
    }

    /// Whether a step behind a seek is unlikely: there was none behind the last one of this cursor or, if this is its first,
    /// behind those of others in the partition.
    fn moves_seldom(&self) -> bool {
        let taken: u64 = self.range.ends.iter().map(|end| end.taken.entries).sum();
        if taken > 0 {
            return taken == 1;
        }
        let tree = self.range.view.as_ref().and_then(|view| view.state.version.tree(self.range.partition));
        tree.is_some_and(|tree| tree.scans.usual() == 1)
    }

    /// Makes the merge of an end, on no entry, if there is none.
    fn open_end(&mut self, direction: Direction) -> Result<()> {
        if !self.range.is_open() {
            return Err(Error::closed());
        }
        if self.range.merge(direction).is_none() {
            self.range.open(direction);
            self.range.ends[direction as usize].must_seek = false;
            if let Some(merge) = self.range.merge_mut(direction) {
                merge.count_moves();
            }
        }
        Ok(())
    }

    /// Reads the blocks that a move waits for, until it stands on an entry or there is none.
    fn finish_move(&mut self, direction: Direction, mut found: Result<bool>) -> Result<bool> {
        while matches!(found, Ok(false)) && self.range.is_waiting(direction) {
            found = self.range.wait(direction);
        }
        self.on = matches!(found, Ok(true)).then_some(direction);
        if found.is_err() {
            // A cursor of a file that has failed stays so; a seek makes new ones. It may go elsewhere, so tombstones that were
            // passed here are no part of those that it passes there.
            self.range.ends.iter_mut().for_each(|end| (end.merge, end.passed) = (None, None));
            if self.range.is_closed() {
                return Err(Error::closed());
            }
        }
        found
    }
}

impl std::fmt::Debug for Cursor {
    /// Never prints data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("partition", &self.range.partition).finish_non_exhaustive()
    }
}
