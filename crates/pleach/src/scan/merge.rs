//! Merging sources into one sorted sequence of user keys, newest version of each.
//!
//! Sources come newest first, so of equal keys the one from the source with the smallest index wins; the others are
//! passed over. Tombstones are returned: whoever asks decides whether they hide or persist.
//!
//! # Invariants
//! 1. While going up (down), every source stands on its first key at or above (last key at or below) the current one.
//!
//! # Cost
//! A tournament tree: about log2(sources) key comparisons per step.

use pleach_env::Result;

use super::cursor::SourceCursor;
use crate::version::SubTree;

/// Which way a merge walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// The merge. Not on an entry until a seek finds one.
pub(crate) struct Merge {
    sources: Vec<SourceCursor>,
    direction: Direction,
    /// `losers[1..]` of a tournament tree over the sources; `losers[0]` is the winner.
    losers: Vec<u32>,
}

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
        let losers = vec![0; sources.len().max(1)];
        Self { sources, direction, losers }
    }

    /// Seeks all sources.
    pub(crate) fn seek(&mut self, to: SeekTo<'_>) -> Result<()> {
        for source in &mut self.sources {
            match (self.direction, to) {
                (Direction::Up, SeekTo::Start) => source.seek_first(),
                (Direction::Up, SeekTo::Key(key)) => source.seek(key),
                (Direction::Down, SeekTo::Start) => source.seek_last(),
                (Direction::Down, SeekTo::Key(key)) => source.seek_before(key),
            }?;
        }
        self.play_all();
        Ok(())
    }

    /// The source whose entry is current.
    #[inline]
    pub(crate) fn current(&self) -> Option<&SourceCursor> {
        let winner = self.sources.get(self.losers[0] as usize)?;
        winner.key().map(|_| winner)
    }

    /// Whether every source but the current one stands behind `key`, or nowhere. Going up; costs a comparison for each.
    pub(crate) fn others_are_behind(&self, key: &[u8]) -> bool {
        let winner = self.losers[0] as usize;
        let others = self.sources.iter().enumerate().filter(|(source, _)| *source != winner);
        others.filter_map(|(_, source)| source.key()).all(|other| other > key)
    }

    /// Leaves the rest of the current source's file out.
    pub(crate) fn skip_file(&mut self) -> Result<()> {
        let winner = self.losers[0] as usize;
        self.sources[winner].skip_file()?;
        self.replay(winner);
        Ok(())
    }

    /// Goes on over the runs as `tree` has them now, and lets go of sources that are exhausted.
    pub(crate) fn follow(&mut self, tree: &SubTree) {
        self.sources.retain(|source| source.key().is_some());
        self.sources.iter_mut().for_each(|source| source.follow(tree));
        self.losers = vec![0; self.sources.len().max(1)];
        self.play_all();
    }

    /// Moves to the next key. `key` is the current one, which the caller has copied.
    ///
    /// Requires: on an entry.
    pub(crate) fn advance(&mut self, key: &[u8]) -> Result<()> {
        // The winner moves, then every other source that stands on the same key, as it comes up.
        loop {
            let winner = self.losers[0] as usize;
            let source = &mut self.sources[winner];
            match self.direction {
                Direction::Up => source.next(),
                Direction::Down => source.prev(),
            }?;
            self.replay(winner);
            match self.current() {
                Some(source) if source.key() == Some(key) => {}
                _ => return Ok(()),
            }
        }
    }

    /// Plays the whole tournament.
    fn play_all(&mut self) {
        let count = self.sources.len();
        if count == 0 {
            return;
        }
        // Nodes count..2*count are the leaves; node i is played between 2i and 2i+1.
        let mut winners = vec![0u32; 2 * count];
        for (leaf, winner) in winners[count..].iter_mut().enumerate() {
            *winner = index_u32(leaf);
        }
        for node in (1..count).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = if self.beats(a, b) { (a, b) } else { (b, a) };
            winners[node] = winner;
            self.losers[node] = loser;
        }
        self.losers[0] = if count == 1 { 0 } else { winners[1] };
    }

    /// Plays the matches on the way from `source` to the root.
    fn replay(&mut self, source: usize) {
        let count = self.sources.len();
        let mut winner = index_u32(source);
        let mut node = usize::midpoint(source, count);
        if count == 1 {
            node = 0;
        }
        while node >= 1 {
            let rival = self.losers[node];
            if self.beats(rival, winner) {
                self.losers[node] = winner;
                winner = rival;
            }
            node /= 2;
        }
        self.losers[0] = winner;
    }

    /// Whether source `a` comes before source `b`: by key, then by age; exhausted sources come last.
    #[inline]
    fn beats(&self, a: u32, b: u32) -> bool {
        match (self.sources[a as usize].key(), self.sources[b as usize].key()) {
            (Some(x), Some(y)) => {
                let order = match self.direction {
                    Direction::Up => x.cmp(y),
                    Direction::Down => y.cmp(x),
                };
                order.is_lt() || (order.is_eq() && a < b)
            }
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => a < b,
        }
    }
}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("a merge has few sources")
}
