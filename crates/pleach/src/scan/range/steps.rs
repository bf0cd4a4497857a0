//! Steps of a range: how an end comes to its next entry.
//!
//! A step stands on an entry, is over, or waits for blocks that are not in memory. A thread reads them ([`Range::walk`]); a
//! task polls ([`Range::poll`]) and goes on when they have come.

use std::task::{Poll, Waker, ready};

use pleach_env::{Error, Result};
use pleach_table::ValueKind;

use super::{Bound, Direction, Merge, Range, ReadView, SeekTo, SourceCursor};
use crate::keys;
use crate::tombstone_spans::PassedTombstones;

impl Range {
    /// Moves to the next live entry in a direction, within the bounds. Returns whether it stands on one; if not, the end
    /// [waits](Range::is_waiting) or there is none.
    #[inline]
    pub(super) fn find(&mut self, direction: Direction) -> Result<bool> {
        match self.returned_by.take() {
            // The fast path of a long scan.
            Some(end) if end == direction && self.is_open() => {
                if let Some(merge) = self.merge_mut(direction) {
                    merge.advance()?;
                }
            }
            returned_by => self.begin(returned_by, direction)?,
        }
        self.settle(direction)
    }

    /// Completes a step of an end, which may have come to a tombstone.
    #[inline]
    pub(super) fn settle(&mut self, direction: Direction) -> Result<bool> {
        let mut found = self.entry(direction);
        if found.is_some_and(|(_, source)| source.kind() == ValueKind::Tombstone) {
            self.pass_tombstones(direction)?;
            found = self.entry(direction);
        }
        let is_found = found.is_some_and(|(key, _)| self.is_within(key, direction));
        self.returned_by = is_found.then_some(direction);
        self.ends[direction as usize].taken.entries += u64::from(is_found);
        Ok(is_found)
    }

    /// Moves the end that returned the last entry behind it, and then this direction's end to its first entry, if it
    /// has not begun or was sought.
    #[cold]
    fn begin(&mut self, returned_by: Option<Direction>, direction: Direction) -> Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.is_closed() {
            return Err(Error::closed());
        }
        if let Some(end) = returned_by {
            if end != direction {
                self.exclude_returned(end);
            }
            if let Some(merge) = self.merge_mut(end) {
                merge.advance()?;
            }
        }
        if self.merge(direction).is_none() {
            self.open(direction);
        }
        let end = &mut self.ends[direction as usize];
        if std::mem::take(&mut end.must_seek) { end.seek_bound(direction) } else { Ok(()) }
    }

    /// The entry that an end stands on.
    #[inline]
    pub(super) fn entry(&self, direction: Direction) -> Option<(&[u8], &SourceCursor)> {
        let source = self.merge(direction)?.current()?;
        source.key().map(|key| (key, source))
    }

    /// The key that an end stands on, if it is a tombstone within the bounds.
    fn tombstone(&self, direction: Direction) -> Option<&[u8]> {
        let (key, source) = self.entry(direction)?;
        (source.kind() == ValueKind::Tombstone && self.is_within(key, direction)).then_some(key)
    }

    /// Passes tombstones up to the next live key or the bound. Skips known spans of tombstones.
    #[cold]
    fn pass_tombstones(&mut self, direction: Direction) -> Result<()> {
        let Some(ReadView { state, visible }) = self.view.clone() else { return Ok(()) };
        let end = &mut self.ends[direction as usize];
        let mut passed = end.passed.take().map_or_else(PassedTombstones::default, |passed| *passed);
        while let Some(key) = self.tombstone(direction) {
            let must_find = passed.add(key, direction == Direction::Up);
            let known =
                if must_find { state.tombstone_spans.find(self.partition, key, visible) } else { None };
            if must_find {
                passed.extend(known.as_ref());
            }
            let Some(merge) = &mut self.ends[direction as usize].merge else { break };
            match (known, direction) {
                (Some(known), Direction::Up) => {
                    merge.seek(SeekTo::Key(&keys::successor(known.last())))?;
                }
                (Some(known), Direction::Down) => merge.seek(SeekTo::Key(known.first()))?,
                (None, _) => merge.advance()?,
            }
        }
        if self.is_waiting(direction) {
            self.ends[direction as usize].passed = Some(Box::new(passed));
        } else {
            passed.end(&state.tombstone_spans, self.partition, visible);
        }
        Ok(())
    }

    /// Whether an end waits for blocks. [`Range::wait`] or [`Range::poll`] go on.
    pub(super) fn is_waiting(&self, direction: Direction) -> bool {
        let end = &self.ends[direction as usize];
        !end.must_seek && end.merge.as_ref().is_some_and(Merge::is_waiting)
    }

    /// Reads the blocks that an end waits for, and goes on, as [`Range::find`].
    pub(super) fn wait(&mut self, direction: Direction) -> Result<bool> {
        if let Some(merge) = &mut self.ends[direction as usize].merge {
            merge.wait(&self.ctx)?;
        }
        self.resume(direction)
    }

    /// As [`Range::wait`], for a task.
    pub(super) fn poll(&mut self, direction: Direction, waker: &Waker) -> Poll<Result<bool>> {
        if self.is_closed() {
            return Poll::Ready(Err(Error::closed()));
        }
        if let Some(merge) = &mut self.ends[direction as usize].merge {
            ready!(merge.poll(&self.ctx, waker))?;
        }
        Poll::Ready(self.resume(direction))
    }

    /// Goes on with an end that has waited.
    fn resume(&mut self, direction: Direction) -> Result<bool> {
        if self.ends[direction as usize].passed.is_some() {
            self.pass_tombstones(direction)?;
        }
        self.settle(direction)
    }

    #[inline]
    pub(super) fn merge(&self, direction: Direction) -> Option<&Merge> {
        self.ends[direction as usize].merge.as_ref()
    }

    #[inline]
    pub(super) fn merge_mut(&mut self, direction: Direction) -> Option<&mut Merge> {
        self.ends[direction as usize].merge.as_mut()
    }

    /// Whether `key` lies before the other end's bound. This end's bound holds by the seek.
    #[inline]
    fn is_within(&self, key: &[u8], direction: Direction) -> bool {
        match &self.ends[direction.opposite() as usize].bound {
            Bound::Included(bound) => direction.compare(key, bound).is_le(),
            Bound::Excluded(bound) => direction.compare(key, bound).is_lt(),
            Bound::Unbounded => true,
        }
    }

    /// Moves an end's bound behind the entry that it returned, so that the other end stops there.
    fn exclude_returned(&mut self, direction: Direction) {
        if let Some(key) = self.entry(direction).map(|(key, _)| key.to_vec()) {
            self.ends[direction as usize].bound = Bound::Excluded(key);
        }
    }

    /// As [`Range::find`]. When one end has no further entry, or fails, both ends have ended.
    #[inline]
    pub(super) fn walk(&mut self, direction: Direction) -> Result<bool> {
        match self.find(direction) {
            Ok(true) => Ok(true),
            end => self.wait_or_finish(end, direction),
        }
    }

    #[cold]
    fn wait_or_finish(&mut self, mut found: Result<bool>, direction: Direction) -> Result<bool> {
        while matches!(found, Ok(false)) && self.is_waiting(direction) {
            found = self.wait(direction);
        }
        if matches!(found, Ok(true)) { found } else { self.finish(found) }
    }

    /// Releases the view at the end of the range.
    #[cold]
    pub(super) fn finish(&mut self, mut end: Result<bool>) -> Result<bool> {
        if end.is_err() && self.is_closed() {
            // The next open of the directory may have removed the file.
            end = Err(Error::closed());
        }
        self.view = None;
        self.ahead = None;
        self.ends.iter_mut().for_each(|end| end.merge = None);
        self.returned_by = None;
        end
    }

    /// Whether there is a view, of a store that is open.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.view.as_ref().is_some_and(|view| !view.state.is_closed())
    }

    /// Whether the store was closed while the range had a view.
    pub(super) fn is_closed(&self) -> bool {
        self.view.is_some() && !self.is_open()
    }
}
