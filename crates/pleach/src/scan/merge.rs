//! Merge: one sorted sequence of user keys from several sources, with the newest version of each.
//!
//! Scans and compactions merge memtables and runs. Sources are ordered newest first: of equal keys the merge returns that
//! of the source with the smallest index and skips the others. It returns tombstones too; the caller decides what they
//! mean.
//!
//! The sources that stand on an entry are sorted by key. Each has the *head* of its key: the eight bytes behind the prefix
//! that all current keys share, as a number. A step advances the first source and moves it back by insertion. An insertion
//! is cheaper than a heap here, because most entries come from the largest run, and its next key seldom passes more than
//! one or two other sources.
//!
//! A seek or a step that needs a block which is not in memory leaves the merge waiting, on no entry. A thread completes it
//! by [`Merge::wait`], a task by [`Merge::poll`]. A step that moves several sources waits for one after the other: those
//! that have not moved are still on the key that the step leaves, so it continues where it was.
//!
//! # Invariants
//! 1. On the way up, each source stands on its first key at or above the current key; on the way down, on its last key at
//!    or below it.
//! 2. `order` is sorted by key in the direction of the walk, then by index, as long as the sources themselves are sorted.
//!    While a step waits, only the source at its index is out of place.
//! 3. Behind a seek that has sought some sources only ([`exact`]), `order` has the current source alone, and nothing moves before
//!    the others are sought.
//!
//! Two merges of the same sources in opposite directions can stand beside each other, so that a walk can turn at no seek: see
//! [`turning`].
//!
//! # Cost
//! A step compares one number for each source that the new key passes, plus one. It compares keys only if numbers are
//! equal. A seek waits for memory and for the device about as long as the slowest source alone: see
//! [`seek_reads`](super::seek_reads).

use std::collections::BTreeMap;
use std::task::{Poll, Waker, ready};

use pleach_coding::{common_prefix_len, head};
use pleach_env::{FileId, Result};
use smallvec::SmallVec;

use self::turning::Moves;
use super::seek_loads::SeekLoads;
use super::seek_reads::{Indices, finish_seeks, take_cached};
use super::source::SourceCursor;
use crate::context::Context;
use crate::values::SegmentUses;
use crate::version::SubTree;

mod exact;
mod turning;

/// The direction of a walk: ascending or descending keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

impl Direction {
    #[inline]
    pub(crate) fn opposite(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }

    /// Compares two keys in the order of the walk.
    #[inline]
    pub(crate) fn compare(self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        match self {
            Self::Up => a.cmp(b),
            Self::Down => b.cmp(a),
        }
    }
}

/// The merge. Not on an entry until a seek finds one.
pub(crate) struct Merge {
    sources: Vec<SourceCursor>,
    direction: Direction,
    /// The sources that are on an entry.
    order: Order,
    /// The common prefix of all current keys.
    shared: SmallVec<[u8; 32]>,
    /// Comparisons with equal heads since `shared` was computed.
    ties: u32,
    /// At this many ties `shared` is computed again.
    ties_max: u32,
    /// Bytes of the shadowed entries that were skipped.
    shadowed_bytes: u64,
    /// What keeps the merge from the next entry.
    pending: Pending,
    /// Sources that an exact seek has left where they were.
    unsought: Indices,
    noted: Noted,
}

/// See [`Merge::count_passed_values`].
pub(crate) type PassedValues = BTreeMap<FileId, SegmentUses>;

/// What a merge notes of each step.
enum Noted {
    Nothing,
    /// For a compaction: what the value pointers that it has passed refer to, by the file of the pointer.
    Values(Box<PassedValues>),
    /// For a walk that may turn: which sources have moved.
    Moves(Box<Moves>),
}

/// What a merge waits for. While it waits it is on no entry.
enum Pending {
    Nothing,
    /// Seeks. The first source that wants a block; no later one has been looked at as closely.
    Seek(usize),
    /// Seeks whose blocks are being read for a task.
    Loads(Box<SeekLoads>),
    /// A step of the source at this index of `held`, which is the order meanwhile.
    Step {
        at: usize,
        held: Box<Order>,
    },
}

/// Sources that are on an entry, sorted.
type Order = SmallVec<[OrderedSource; 8]>;

/// A source that stands on an entry.
#[derive(Clone, Copy)]
struct OrderedSource {
    /// Head of the source's key; its complement on the way down.
    head: u64,
    source: u32,
}

/// After this many ties the shared prefix is computed again. If it has not grown, the next time is after twice as many
/// (arbitrary).
const TIES_MIN: u32 = 32;

/// Where a seek starts.
#[derive(Clone, Copy)]
pub(crate) enum SeekTo<'a> {
    /// The end from which the direction starts.
    Start,
    /// Up: the first key at or above. Down: the last key below.
    Key(&'a [u8]),
}

impl Merge {
    /// A merge of `sources`, newest first.
    pub(crate) fn new(sources: Vec<SourceCursor>, direction: Direction) -> Self {
        Self {
            sources,
            direction,
            order: SmallVec::new(),
            shared: SmallVec::new(),
            ties: 0,
            ties_max: TIES_MIN,
            shadowed_bytes: 0,
            pending: Pending::Nothing,
            unsought: Indices::new(),
            noted: Noted::Nothing,
        }
    }

    /// From now on counts what the value pointers refer to that the merge passes, shadowed ones too.
    pub(crate) fn count_passed_values(&mut self) {
        self.noted = Noted::Values(Box::default());
    }

    /// What was counted since the last call, by the file of the pointer. Files that were skipped do not count.
    pub(crate) fn take_passed_values(&mut self) -> PassedValues {
        match &mut self.noted {
            Noted::Values(passed) => std::mem::take(&mut **passed),
            Noted::Nothing | Noted::Moves(_) => PassedValues::new(),
        }
    }

    /// Bytes of the shadowed entries that were skipped so far.
    pub(crate) fn shadowed_bytes(&self) -> u64 {
        self.shadowed_bytes
    }

    /// Seeks all sources. Afterwards the merge stands on the first entry, or waits.
    pub(crate) fn seek(&mut self, to: SeekTo<'_>) -> Result<()> {
        if let Noted::Moves(moves) = &mut self.noted {
            moves.note_seek();
        }
        self.order.clear();
        self.unsought.clear();
        for source in &mut self.sources {
            source.begin_seek(to, self.direction);
        }
        self.pending = match take_cached(&mut self.sources)? {
            Some(first) => Pending::Seek(first),
            None => Pending::Nothing,
        };
        if !self.is_waiting() {
            self.sort_all();
        }
        Ok(())
    }

    /// Whether a seek or a step waits for blocks. [`Merge::wait`] or [`Merge::poll`] complete it. Merges of sources that
    /// read past the cache never wait.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !matches!(self.pending, Pending::Nothing)
    }

    /// Reads the blocks that the merge waits for, on the calling thread. It may wait again afterwards.
    pub(super) fn wait(&mut self, ctx: &Context) -> Result<()> {
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => {}
            Pending::Seek(first) => {
                finish_seeks(ctx, &mut self.sources, first)?;
                self.sort_all();
            }
            Pending::Loads(_) => unreachable!("a task never waits as a thread"),
            Pending::Step { at, held } => {
                self.order = *held;
                self.sources[self.order[at].source as usize].wait(self.direction)?;
                self.end_step(at)?;
            }
        }
        Ok(())
    }

    /// As [`Merge::wait`], for a task: all blocks that the merge waits for are being read when this returns.
    pub(super) fn poll(&mut self, ctx: &Context, waker: &Waker) -> Poll<Result<()>> {
        if let Pending::Seek(first) = self.pending {
            self.pending = Pending::Loads(Box::new(SeekLoads::new(self.sources.len(), first)));
        }
        let polled = match &mut self.pending {
            Pending::Nothing | Pending::Seek(_) => Poll::Ready(Ok(())),
            Pending::Loads(loads) => loads.poll(ctx, &mut self.sources, waker),
            Pending::Step { at, held } => {
                self.sources[held[*at].source as usize].poll_step(self.direction, waker)
            }
        };
        ready!(polled)?;
        let Pending::Step { at, held } = std::mem::replace(&mut self.pending, Pending::Nothing) else {
            self.sort_all();
            return Poll::Ready(Ok(()));
        };
        self.order = *held;
        Poll::Ready(self.end_step(at))
    }

    /// Takes a source that has stepped into the order, and completes the step of the merge.
    fn end_step(&mut self, at: usize) -> Result<()> {
        self.reorder(at);
        // The first source steps last.
        if at > 0 { self.advance() } else { Ok(()) }
    }

    /// Sorts the sources that stand on an entry.
    fn sort_all(&mut self) {
        self.order.clear();
        for (index, source) in self.sources.iter().enumerate() {
            if source.key().is_some() {
                let source = u32::try_from(index).expect("a merge has few sources");
                self.order.push(OrderedSource { head: 0, source });
            }
        }
        self.ties_max = TIES_MIN;
        self.sort();
    }

    /// The source whose entry is current.
    #[inline]
    pub(crate) fn current(&self) -> Option<&SourceCursor> {
        self.order.first().map(|entry| &self.sources[entry.source as usize])
    }

    /// Whether every source but the current one stands above `key`, or is exhausted. Requires: the walk goes up.
    pub(crate) fn others_are_behind(&self, key: &[u8]) -> bool {
        self.order.get(1).is_none_or(|second| self.key(*second) > key)
    }

    /// Skips the rest of the current source's file.
    ///
    /// Requires: on an entry of a run.
    pub(crate) fn skip_file(&mut self) -> Result<()> {
        let source = self.order[0].source;
        self.sources[source as usize].skip_file()?;
        self.reorder(0);
        Ok(())
    }

    /// Continues over the runs as `tree` has them now, and drops exhausted sources.
    pub(crate) fn follow(&mut self, tree: &SubTree) {
        self.sources.retain(|source| source.key().is_some());
        self.sources.iter_mut().for_each(|source| source.follow(tree));
        self.sort_all();
    }

    /// Moves to the next key, or waits for it.
    ///
    /// Requires: on an entry.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        // First the other sources that stand on the same key.
        while let [first, second, ..] = self.order[..]
            && first.head == second.head
            && self.key(first) == self.key(second)
        {
            let shadowed = &self.sources[second.source as usize];
            self.shadowed_bytes += (self.key(second).len() + shadowed.value_bytes().len()) as u64;
            self.step(1)?;
        }
        self.step(0)
    }

    /// Advances the source at index `at` of the order.
    #[inline]
    fn step(&mut self, at: usize) -> Result<()> {
        // None while a source waits that stood on the same key.
        let Some(&OrderedSource { source, .. }) = self.order.get(at) else { return Ok(()) };
        let cursor = &mut self.sources[source as usize];
        match &mut self.noted {
            Noted::Nothing => {}
            Noted::Values(passed) => cursor.note_value(passed),
            Noted::Moves(moves) => moves.note_step(source),
        }
        match self.direction {
            Direction::Up => cursor.next(),
            Direction::Down => cursor.prev(),
        }?;
        // The head of the only source is never compared.
        if self.order.len() > 1 || cursor.key().is_none() {
            self.reorder(at);
        }
        Ok(())
    }

    /// Moves the source at index `at` of the order, which has advanced, to its place.
    fn reorder(&mut self, at: usize) {
        let source = self.order[at].source;
        let Some(key) = self.sources[source as usize].key() else {
            self.leave(at);
            return;
        };
        if !key.starts_with(&self.shared) || self.ties >= self.ties_max {
            self.sort();
            return;
        }
        let moved = OrderedSource { head: self.head(key), source };
        let mut to = at;
        while let Some(&next) = self.order.get(to + 1)
            && self.is_before(next, moved)
        {
            self.order[to] = next;
            to += 1;
        }
        self.order[to] = moved;
    }

    /// Takes the source at index `at` of the order, which is on no entry, out of the order; waits for it if it waits.
    #[cold]
    fn leave(&mut self, at: usize) {
        if self.sources[self.order[at].source as usize].is_waiting() {
            self.pending = Pending::Step { at, held: Box::new(std::mem::take(&mut self.order)) };
        } else {
            self.order.remove(at);
        }
    }

    /// Computes the shared prefix, the heads and the order.
    #[cold]
    fn sort(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        let before = self.shared.len();
        self.shared.clear();
        if let [first, rest @ ..] = &order[..] {
            let first = self.key(*first);
            let len = rest.iter().map(|other| common_prefix_len(first, self.key(*other))).min();
            self.shared = SmallVec::from_slice(&first[..len.unwrap_or(0)]);
        }
        if self.ties >= self.ties_max && self.shared.len() <= before {
            self.ties_max = self.ties_max.saturating_mul(2);
        }
        self.ties = 0;
        for entry in &mut order {
            entry.head = self.head(self.key(*entry));
        }
        order.sort_unstable_by(|a, b| self.compare(*a, *b));
        self.order = order;
    }

    /// Whether `a` comes before `b`.
    #[inline]
    fn is_before(&mut self, a: OrderedSource, b: OrderedSource) -> bool {
        if a.head != b.head {
            return a.head < b.head;
        }
        self.ties += 1;
        self.compare(a, b).is_lt()
    }

    /// Compares by key, then by age.
    fn compare(&self, a: OrderedSource, b: OrderedSource) -> std::cmp::Ordering {
        self.direction.compare(self.key(a), self.key(b)).then(a.source.cmp(&b.source))
    }

    /// The source's key. Requires: the source stands on an entry, as all sources in the order do.
    #[inline]
    fn key(&self, entry: OrderedSource) -> &[u8] {
        self.sources[entry.source as usize].key().unwrap_or_default()
    }

    /// The eight bytes behind the shared ones, padded with zeros, as a number that compares like them.
    #[inline]
    fn head(&self, key: &[u8]) -> u64 {
        let head = head(key.get(self.shared.len()..).unwrap_or_default());
        if self.direction == Direction::Up { head } else { !head }
    }
}
