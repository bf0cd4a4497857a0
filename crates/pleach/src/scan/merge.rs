//! Merging sources into one sorted sequence of user keys, newest version of each.
//!
//! Sources come newest first, so of equal keys the one from the source with the smallest index wins; the others are
//! passed over. Tombstones are returned: whoever asks decides whether they hide or persist.
//!
//! The sources that are on an entry are kept in order, each with its key's *head*: the eight bytes behind what all their
//! keys share, as a number. The first source moves and goes back to its place. Most entries come from the largest run,
//! whose next key is rarely beyond more than one or two others.
//!
//! # Invariants
//! 1. While going up (down), every source stands on its first key at or above (last key at or below) the current one.
//! 2. `order` ascends by key (going down: descends), then by index of the source, as far as the sources themselves do.
//!
//! # Cost
//! A step compares numbers with as many sources as the new key passes, at least one; keys where numbers are equal. A
//! seek waits for memory about as long as the slowest source alone.

use pleach_coding::{common_prefix_len, head};
use pleach_env::Result;
use smallvec::SmallVec;

use super::cursor::SourceCursor;
use crate::version::SubTree;

/// Which way a merge walks.
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
    order: SmallVec<[OrderedSource; 16]>,
    /// The common prefix of all current keys.
    shared: SmallVec<[u8; 32]>,
    /// Heads that did not tell keys apart since `shared` was looked at.
    ties: u32,
    /// How many of them let it be looked at again.
    ties_max: u32,
    /// Bytes of the entries that newer ones hid.
    hidden_bytes: u64,
}

/// A source in the order.
#[derive(Clone, Copy)]
struct OrderedSource {
    /// Of the source's key, or its complement where the walk goes down.
    head: u64,
    source: u32,
}

/// After this many ties the shared beginning is looked for again; if it is no longer, after twice as many (arbitrary).
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
            hidden_bytes: 0,
        }
    }

    /// Bytes of the entries passed over so far because newer ones hide them.
    pub(crate) fn hidden_bytes(&self) -> u64 {
        self.hidden_bytes
    }

    /// Seeks all sources.
    pub(crate) fn seek(&mut self, to: SeekTo<'_>) -> Result<()> {
        let prefetch = self.sources.iter().filter(|source| source.is_run()).nth(1).is_some();
        for source in &mut self.sources {
            source.begin_seek(to, self.direction, prefetch);
        }
        // While one source waits for memory or the device the others ask for theirs.
        let mut done = false;
        while !done {
            done = true;
            for source in &mut self.sources {
                done &= source.continue_seek()?;
            }
        }
        self.enter_all();
        Ok(())
    }

    /// Puts every source that is on an entry into the order.
    fn enter_all(&mut self) {
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

    /// Whether every source but the current one stands behind `key`, or nowhere. Going up.
    pub(crate) fn others_are_behind(&self, key: &[u8]) -> bool {
        self.order.get(1).is_none_or(|second| self.key(*second) > key)
    }

    /// Leaves the rest of the current source's file out.
    ///
    /// Requires: on an entry of a run.
    pub(crate) fn skip_file(&mut self) -> Result<()> {
        let source = self.order[0].source;
        self.sources[source as usize].skip_file()?;
        self.reorder(0);
        Ok(())
    }

    /// Goes on over the runs as `tree` has them now, and lets go of sources that are exhausted.
    pub(crate) fn follow(&mut self, tree: &SubTree) {
        self.sources.retain(|source| source.key().is_some());
        self.sources.iter_mut().for_each(|source| source.follow(tree));
        self.enter_all();
    }

    /// Moves to the next key.
    ///
    /// Requires: on an entry.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        // First every other source that stands on the same key.
        while let [first, second, ..] = self.order[..]
            && first.head == second.head
            && self.key(first) == self.key(second)
        {
            let hidden = &self.sources[second.source as usize];
            self.hidden_bytes += (self.key(second).len() + hidden.value_bytes().len()) as u64;
            self.step(1)?;
        }
        self.step(0)
    }

    /// Moves the source at place `at` of the order.
    #[inline]
    fn step(&mut self, at: usize) -> Result<()> {
        let source = self.order[at].source;
        let cursor = &mut self.sources[source as usize];
        match self.direction {
            Direction::Up => cursor.next(),
            Direction::Down => cursor.prev(),
        }?;
        // Where it is alone and not at its end, nobody will look at its head.
        if self.order.len() > 1 || cursor.key().is_none() {
            self.reorder(at);
        }
        Ok(())
    }

    /// Puts the source at place `at` of the order, which has moved, where it belongs.
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

    /// Determines what the keys share, their heads and their order.
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

    /// By key, then by age.
    fn compare(&self, a: OrderedSource, b: OrderedSource) -> std::cmp::Ordering {
        self.direction.compare(self.key(a), self.key(b)).then(a.source.cmp(&b.source))
    }

    /// Requires: the source is on an entry, as all in the order are.
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
