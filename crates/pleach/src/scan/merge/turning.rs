//! Turning: two merges of the same sources, one for each direction, that stand beside each other.
//!
//! The *active* merge walks; the *idle* one stays behind. They are *beside each other* if, in each source, the merge that goes
//! down stands on the entry directly before that of the merge that goes up. Either of them may be the active one, which stands on
//! the current key. The idle one then stands on the next key in its own direction, which is where a turn leads.
//!
//! Example, with one source of the keys `a b c d`: if the merge that goes up is active and stands on `c`, the one that goes down
//! stands on `b`. After two steps up they stand on nothing and on `b`; a turn moves the idle one by two steps, to `d`.
//!
//! The active merge counts the steps of each source. When the walk turns, the idle merge moves only the sources that have moved,
//! each by as many steps. A source that has moved far takes its position from the active merge, and makes one step.
//!
//! # Cost
//! A turn behind *n* steps moves at most *n* sources, however many there are. A source that has gone far, or all of them behind
//! a seek, costs one step, or a seek of its own if the active merge has left it at its end. No turn seeks all sources.

use pleach_env::Result;
use smallvec::SmallVec;

use super::{Merge, Noted, OrderedSource, Pending, SeekTo};
use crate::context::Context;
use crate::scan::seek_reads::finish_seek;

/// From this many steps of a source on, its place is taken over instead (arbitrary): that copies about 200 bytes, and makes one
/// step.
const STEPS_MAX: u8 = 4;

/// From this many moved sources on, the order is sorted anew (arbitrary).
const MOVED_MAX: usize = 3;

/// Which sources a merge has moved since another one stood beside it.
pub(super) struct Moves {
    /// Steps of each source; [`STEPS_MAX`] also if there were more.
    steps: Vec<u8>,
    /// The sources that have steps.
    moved: SmallVec<[u32; 8]>,
    /// Whether the merge has sought.
    sought: bool,
}

impl Moves {
    pub(super) fn note_seek(&mut self) {
        self.sought = true;
    }

    #[inline]
    pub(super) fn note_step(&mut self, source: u32) {
        let steps = &mut self.steps[source as usize];
        if *steps == 0 {
            self.moved.push(source);
        }
        *steps = (*steps + 1).min(STEPS_MAX);
    }

    fn clear(&mut self) {
        for source in self.moved.drain(..) {
            self.steps[source as usize] = 0;
        }
        self.sought = false;
    }
}

impl Merge {
    /// From now on counts the steps of each source, for [`Merge::stand_beside`].
    pub(crate) fn count_moves(&mut self) {
        let steps = vec![0; self.sources.len()];
        self.noted = Noted::Moves(Box::new(Moves { steps, moved: SmallVec::new(), sought: true }));
    }

    /// Moves to stand beside `active`, a merge of the same sources in the other direction that was active since the last call.
    /// Blocks that are not in memory are read by this thread.
    ///
    /// Requires: both count moves, and `active` does not wait.
    pub(crate) fn stand_beside(&mut self, active: &mut Self, ctx: &Context) -> Result<()> {
        let Noted::Moves(moves) = &mut active.noted else {
            unreachable!("merges that turn count moves");
        };
        let mut moves = std::mem::replace(
            &mut **moves,
            Moves { steps: Vec::new(), moved: SmallVec::new(), sought: true },
        );
        let moved = self.follow_moves(&moves, active, ctx);
        moves.clear();
        if let Noted::Moves(kept) = &mut active.noted {
            **kept = moves;
        }
        if let Noted::Moves(own) = &mut self.noted {
            own.clear();
        }
        moved
    }

    fn follow_moves(&mut self, moves: &Moves, active: &Self, ctx: &Context) -> Result<()> {
        self.pending = Pending::Nothing;
        self.unsought.clear();
        if moves.sought {
            for source in 0..self.sources.len() {
                self.take_place(source, active, ctx)?;
            }
        } else {
            for &source in &moves.moved {
                self.follow_source(source as usize, moves.steps[source as usize], active, ctx)?;
            }
        }
        if moves.sought || moves.moved.len() >= MOVED_MAX {
            self.sort_all();
            return Ok(());
        }
        for &source in &moves.moved {
            self.order.retain(|other| other.source != source);
        }
        moves.moved.iter().for_each(|&source| self.insert(source));
        Ok(())
    }

    /// Moves a source by as many steps as that of `active` has made.
    fn follow_source(&mut self, source: usize, steps: u8, active: &Self, ctx: &Context) -> Result<()> {
        if steps >= STEPS_MAX || self.sources[source].key().is_none() {
            return self.take_place(source, active, ctx);
        }
        for _ in 0..steps {
            self.sources[source].step(active.direction)?;
        }
        Ok(())
    }

    /// Moves a source to the entry that this merge's direction has behind that of `active`.
    fn take_place(&mut self, source: usize, active: &Self, ctx: &Context) -> Result<()> {
        let (own, other) = (&mut self.sources[source], &active.sources[source]);
        if other.key().is_some() {
            own.move_to(other);
            return own.step(self.direction);
        }
        // The active merge has passed all its entries.
        own.begin_seek(SeekTo::Start, self.direction);
        finish_seek(ctx, own)
    }

    /// Takes a source that has moved into the order, if it is on an entry.
    fn insert(&mut self, source: u32) {
        let Some(key) = self.sources[source as usize].key() else { return };
        let is_shared = key.starts_with(&self.shared);
        let moved = OrderedSource { head: self.head(key), source };
        // The head of an only source may be old.
        if !is_shared || self.order.len() < 2 {
            self.order.push(moved);
            self.sort();
            return;
        }
        let mut to = 0;
        while let Some(&other) = self.order.get(to)
            && self.is_before(other, moved)
        {
            to += 1;
        }
        self.order.insert(to, moved);
    }
}
