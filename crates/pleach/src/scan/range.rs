//! Range: a double-ended iterator over the entries of a partition.
//!
//! Each end has a merge of its own over the same sources.
//!
//! # Invariants
//! 1. *Entries can be lent*: the end that returned an entry stands on it until the next call, of either end, or has gathered
//!    it and those behind it ([`ahead`]).
//! 2. *The ends never cross*: when the other end is walked next, the bound of the end that returned an entry moves behind
//!    that entry.

mod ahead;
mod chunks;
mod cursor;
mod steps;

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use pleach_env::{Error, Result};
use pleach_table::{BackgroundReads, ScanHints, ValueKind};

use self::ahead::Ahead;
use super::merge::{Direction, Merge, SeekTo};
use super::run_cursor::RunReads;
use super::source::SourceCursor;
use crate::context::Context;
use crate::keys::{self, Key, PartitionId};
use crate::state::ReadView;
use crate::tombstone_spans::PassedTombstones;
use crate::value::Value;
use crate::version::ScanLength;

pub use chunks::{Chunk, ChunkFuture, RangeChunks};
pub use cursor::Cursor;

/// Entries of a partition in key order: an owned iterator over one consistent view, from either end.
///
/// The range does not see writes that come after its creation. It pins memtables and files until it ends or is dropped. Once the
/// store is closed, the range returns `Closed`. After an error the iterator ends; it never skips what it could not read.
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
    ctx: Arc<Context>,
    partition: PartitionId,
    /// `None` once the range has ended or failed.
    view: Option<ReadView>,
    /// The end that goes up from the lower bound and the one that goes down from the upper bound, by [`Direction`].
    ends: [End; 2],
    /// The end that stands on the entry returned last.
    returned_by: Option<Direction>,
    /// The result of the first call instead of an entry.
    error: Option<Error>,
    /// Once it has come to a separated value.
    ahead: Option<Box<Ahead>>,
    /// How many entries are wanted; 0 if unknown.
    expected_entries: u64,
    fills_cache: bool,
}

/// One of the two ends of a range.
struct End {
    /// Where it starts, and where the other end stops.
    bound: Bound<Vec<u8>>,
    /// `None` before the first call.
    merge: Option<Merge>,
    /// Whether to seek `bound` before the next step.
    must_seek: bool,
    /// The tombstones that it was passing when it had to wait.
    passed: Option<Box<PassedTombstones>>,
    taken: Taken,
}

/// The entries that an end has taken since its last seek. They teach the usual length of scans when the end stops.
#[derive(Default)]
struct Taken {
    entries: u64,
    /// `None` if the scan is not of the sample.
    learner: Option<Arc<ScanLength>>,
}

impl Taken {
    fn stop(&mut self) {
        if let Some(learner) = &self.learner
            && self.entries > 0
        {
            learner.note(self.entries);
        }
        self.entries = 0;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.stop();
    }
}

impl End {
    /// Seeks the bound. Afterwards the merge may wait.
    fn seek_bound(&mut self, direction: Direction) -> Result<()> {
        self.passed = None;
        self.taken.stop();
        let Some(merge) = &mut self.merge else { return Ok(()) };
        match (direction, &self.bound) {
            (_, Bound::Unbounded) => merge.seek(SeekTo::Start),
            (Direction::Up, Bound::Included(key)) | (Direction::Down, Bound::Excluded(key)) => {
                merge.seek(SeekTo::Key(key))
            }
            (Direction::Up, Bound::Excluded(key)) | (Direction::Down, Bound::Included(key)) => {
                merge.seek(SeekTo::Key(&keys::successor(key)))
            }
        }
    }
}

impl Range {
    /// The entries of `view` within `bounds`, or the error that the first call returns.
    pub(crate) fn new<K: AsRef<[u8]> + ?Sized>(
        ctx: &Arc<Context>,
        view: Result<ReadView>,
        partition: PartitionId,
        bounds: impl RangeBounds<K>,
    ) -> Self {
        let end = |bound: Bound<&K>| {
            let bound = bound.map(|key| key.as_ref().to_vec());
            End { bound, merge: None, must_seek: true, passed: None, taken: Taken::default() }
        };
        let ends = [end(bounds.start_bound()), end(bounds.end_bound())];
        let (view, error) = match view {
            Ok(view) => (Some(view), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            ctx: Arc::clone(ctx),
            partition,
            view,
            ends,
            returned_by: None,
            error,
            ahead: None,
            expected_entries: 0,
            fills_cache: false,
        }
    }

    /// The keys that start with `prefix`.
    pub(crate) fn with_prefix(
        ctx: &Arc<Context>,
        view: Result<ReadView>,
        partition: PartitionId,
        prefix: &[u8],
    ) -> Self {
        let end = pleach_coding::prefix_end(prefix);
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        Self::new::<[u8]>(ctx, view, partition, (Bound::Included(prefix), upper))
    }

    /// Makes the merge of an end: all sources, on no entry. There is none once the range has ended.
    fn open(&mut self, direction: Direction) {
        let Some(view) = &self.view else { return };
        let tree = view.state.version.tree(self.partition);
        let runs = tree.map_or(0, |tree| tree.runs.len());
        let mut sources = Vec::with_capacity(1 + view.state.immutable.len() + runs);
        for memtable in view.state.memtables() {
            sources.push(SourceCursor::over_memtable(self.partition, memtable.cursor(view.visible)));
        }
        if let Some(tree) = tree {
            if tree.reads.note_seek(tree.runs.len()) {
                self.ends[direction as usize].taken.learner = Some(Arc::clone(&tree.scans));
                self.ctx.look_at_reads(&tree.reads);
            }
            let hints = Arc::new(self.hints(direction));
            let all = tree.sum(|run| run.totals.entries).max(1);
            for run in tree.runs.iter().filter(|run| !run.files.is_empty()) {
                let share = |entries: u64| {
                    let of_run = u128::from(entries) * u128::from(run.totals.entries);
                    u64::try_from(of_run.div_ceil(u128::from(all))).unwrap_or(u64::MAX)
                };
                let (entries, usual) = (share(self.expected_entries), share(tree.scans.usual()));
                let reads = RunReads::Scan { hints: Arc::clone(&hints), entries, usual };
                sources.push(SourceCursor::over_run(self.partition, Arc::clone(run), reads));
            }
        }
        self.ends[direction as usize].merge = Some(Merge::new(sources, direction));
    }

    /// The hints for a walk in a direction.
    fn hints(&self, direction: Direction) -> ScanHints {
        let bound = match &self.ends[direction.opposite() as usize].bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(Arc::from(&key[..])),
            Bound::Unbounded => None,
        };
        let reads = Arc::clone(&self.ctx) as Arc<dyn BackgroundReads>;
        ScanHints { reads, fills_cache: self.fills_cache, bound }
    }

    /// Sets how many entries will be taken from an end, and after each seek, about. The seek then reads the blocks of these
    /// entries in all runs at once, and nothing behind them. A range that goes on behind them reads ahead as others do. By
    /// default a range expects what ranges of the partition have usually taken. The entries are the same. Requires: nothing
    /// was read yet; otherwise it has no effect.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = pleach::Db::open(dir.path())?;
    /// # let users = db.default_partition();
    /// # users.put("alice", "1")?;
    /// let page: Result<Vec<_>, _> = users.range("a"..).expect_entries(100).take(100).collect();
    /// assert_eq!(page?.len(), 1);
    /// # Ok::<(), pleach::Error>(())
    /// ```
    #[must_use]
    pub fn expect_entries(mut self, count: u64) -> Self {
        self.expected_entries = count;
        self
    }

    /// All blocks and separated values that the range reads enter the caches. By default those of a long scan do not: behind
    /// about 100 KiB of a run, it reads into buffers of its own, so that the blocks of point reads stay in the cache. For a
    /// scan that is repeated, or that prepares the cache for other reads. Requires: nothing was read yet; otherwise it has no
    /// effect.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = pleach::Db::open(dir.path())?;
    /// # let users = db.default_partition();
    /// let mut warm_up = users.iter().fill_cache();
    /// while warm_up.next_entry()?.is_some() {}
    /// # Ok::<(), pleach::Error>(())
    /// ```
    #[must_use]
    pub fn fill_cache(mut self) -> Self {
        self.fills_cache = true;
        self
    }

    /// Moves the bound of this direction to `key`; see [`Range::seek`].
    fn narrow(&mut self, direction: Direction, key: &[u8]) {
        let is_passed = |other: &[u8]| direction.compare(key, other).is_le();
        let is_outside = match &self.ends[direction as usize].bound {
            Bound::Included(bound) | Bound::Excluded(bound) => is_passed(bound),
            Bound::Unbounded => false,
        };
        let is_behind = self.returned_key(direction).is_some_and(is_passed);
        if self.view.is_none() || is_outside || is_behind {
            return;
        }
        self.discard_ahead();
        let end = &mut self.ends[direction as usize];
        (end.bound, end.must_seek) = (Bound::Included(key.to_vec()), true);
        if self.returned_by == Some(direction) {
            self.returned_by = None;
        }
    }

    /// Skips the entries below `key`: the next one from the start is the first at or above it that the range still holds.
    /// The result is that of repeated calls of `next`, at the cost of one seek. The next call performs the seek, and
    /// returns its error. A seek never goes back: a `key` at or below the entry returned last, or below the range, changes
    /// nothing. A range that has ended stays ended.
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

    /// As [`Range::seek`], from the end: the next entry from the end is the last at or below `key`.
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) {
        self.narrow(Direction::Down, key.as_ref());
    }

    /// The entry that an end stands on, pinned. A separated value is still to be read.
    fn copy_entry(&self, direction: Direction) -> Option<(Key, Value)> {
        self.entry(direction).map(|(key, source)| (Key::new(key), source.value()))
    }

    fn take_entry(&mut self, direction: Direction) -> Option<Result<(Key, Value)>> {
        if self.ahead.is_some() {
            return self.take_ahead(direction);
        }
        match self.walk(direction) {
            Ok(true) => {
                let (key, value) = self.copy_entry(direction)?;
                if value.is_pointer() { self.take_first_ahead(direction) } else { Some(Ok((key, value))) }
            }
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn lend_entry(&mut self, direction: Direction) -> Result<Option<(&[u8], &[u8])>> {
        if self.ahead.is_some() {
            return self.lend_ahead(direction);
        }
        self.walk(direction)?;
        if self.entry(direction).is_some_and(|(_, source)| source.kind() == ValueKind::ValuePointer) {
            return self.lend_first_ahead(direction);
        }
        Ok(self.entry(direction).map(|(key, source)| (key, source.value_bytes())))
    }

    fn lend_key(&mut self, direction: Direction) -> Result<Option<(&[u8], usize)>> {
        if self.ahead.is_some() {
            return self.lend_key_ahead(direction);
        }
        self.walk(direction)?;
        Ok(self.key_in_merge(direction))
    }

    /// The key that an end stands on, and the length of its value.
    fn key_in_merge(&self, direction: Direction) -> Option<(&[u8], usize)> {
        self.entry(direction).map(|(key, source)| (key, source.value_len()))
    }

    /// The next entry from the start, as by [`Iterator::next`], but lent: nothing is copied or pinned. This is the fastest
    /// way to read many entries.
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
    /// Those of the iterator. The range ends with the first error.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.lend_entry(Direction::Up)
    }

    /// The next entry from the end, lent as by [`Range::next_entry`].
    ///
    /// # Errors
    /// Those of [`Range::next_entry`].
    pub fn next_back_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.lend_entry(Direction::Down)
    }

    /// The key of the next entry from the start, lent, and the length of its value. The entry counts as returned. A separated
    /// value ([`Options::separate_at`](crate::Options::separate_at)) is not read, so counting and listing keys cost
    /// little, and no damage of a value ends them. Its length is the stored one: shorter than the value if that is compressed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = pleach::Options::new().separate_at(512).open(dir.path())?;
    /// let photos = db.partition("photos")?;
    /// photos.put("alice", [7; 1000])?;
    /// db.flush()?;
    /// let mut range = photos.iter();
    /// while let Some((key, value_len)) = range.next_key()? {
    ///     assert_eq!((key, value_len), (&b"alice"[..], 1000));
    /// }
    /// # Ok::<(), pleach::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Range::next_entry`], but for those of values.
    pub fn next_key(&mut self) -> Result<Option<(&[u8], usize)>> {
        self.lend_key(Direction::Up)
    }

    /// The key of the next entry from the end, as by [`Range::next_key`].
    ///
    /// # Errors
    /// Those of [`Range::next_key`].
    pub fn next_back_key(&mut self) -> Result<Option<(&[u8], usize)>> {
        self.lend_key(Direction::Down)
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
