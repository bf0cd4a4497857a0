//! Merge: one sorted sequence of user keys from several sources, with the newest version of each.
//!
//! Scans and compactions merge memtables and runs. Sources are ordered newest first: of equal keys the merge returns that of
//! the source with the smallest index and skips the others. It returns tombstones too; the caller decides what they mean.
//!
//! The sources that stand on an entry are sorted by key. Each has the *head* of its key: the eight bytes behind the prefix
//! that all current keys share, as a number. A step advances the first source and moves it back by insertion. An insertion
//! is cheaper than a heap here, because most entries come from the largest run, and its next key seldom passes more than
//! one or two other sources.
//!
//! # Invariants
//! 1. On the way up, each source stands on its first key at or above the current key; on the way down, on its last key at or
//!    below it.
//! 2. `order` is sorted by key in the direction of the walk, then by index, as long as the sources themselves are sorted.
//!
//! # Cost
//! A step compares one number for each source that the new key passes, plus one. It compares keys only if numbers are equal.
//! A seek waits for memory and for the device about as long as the slowest source alone: see [`seek_reads`](super::seek_reads).

use pleach_coding::{common_prefix_len, head};
use pleach_env::Result;
use smallvec::SmallVec;

use super::cursor::SourceCursor;
use super::seek_reads::finish_seeks;
use crate::context::Context;
use crate::version::SubTree;

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
    order: SmallVec<[OrderedSource; 8]>,
    /// The common prefix of all current keys.
    shared: SmallVec<[u8; 32]>,
    /// Comparisons with equal heads since `shared` was computed.
    ties: u32,
    /// At this many ties `shared` is computed again.
    ties_max: u32,
    /// Bytes of the shadowed entries that were skipped.
    shadowed_bytes: u64,
}

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
        }
    }

    /// Bytes of the shadowed entries that were skipped so far.
    pub(crate) fn shadowed_bytes(&self) -> u64 {
        self.shadowed_bytes
    }

    /// Seeks all sources.
    pub(crate) fn seek(&mut self, to: SeekTo<'_>, ctx: &Context) -> Result<()> {
        for source in &mut self.sources {
            source.begin_seek(to, self.direction);
        }
        finish_seeks(ctx, &mut self.sources)?;
        self.sort_all();
        Ok(())
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

    /// Moves to the next key.
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
        let source = self.order[at].source;
        let cursor = &mut self.sources[source as usize];
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
            self.order.remove(at);
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
