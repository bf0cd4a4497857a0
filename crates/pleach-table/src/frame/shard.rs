//! A shard of the frame cache: a range of the slab's frames, who owns them, and the clock that frees them.
//!
//! Frames are grouped in quads of four. A run of frames lies in one quad: two frames begin at an even frame, three and four at
//! the start of the quad. The clock's hand moves from place to place and takes second chances from the runs that it passes. It
//! clears the first place whose runs have no chance and no pin.
//!
//! Blocks admitted by a scan are *cold*: they have no second chance. When every frame has been used and scans have filled an
//! eighth of the shard, the next block of a scan replaces the oldest cold one. So a scan of any length evicts few blocks in
//! use, and scans fill a cache that has unused frames.
//!
//! # Concurrency
//! A mutex guards the shard. Readers do not use it; locks on runs exclude them and the clock from each other.

use std::collections::VecDeque;
use std::sync::Arc;

use pleach_env::memory::prefetch;
use smallvec::SmallVec;

use super::slab::{LockedRun, SlabOwner, TOUCHED, WARM};
use super::words::FrameWords;

/// Frames of a quad, and of the longest run.
pub(super) const QUAD: u32 = 4;
/// Places that the hand passes before it ignores second chances. It bounds the time of an admission.
const PATIENT_STEPS: u32 = 512;
/// Further places that it passes before it gives up.
const GREEDY_STEPS: u32 = 512;
/// So many frames ahead of the hand the owner's words are prefetched, and so many the block's word. (Arbitrary.)
const PREFETCHED: (u32, u32) = (6, 3);
/// The part of a shard that scans may fill before they reuse their own frames: one in this many frames.
const COLD_SHARE: u32 = 8;

/// Whose block a run of frames holds.
struct Owner {
    words: Arc<FrameWords>,
    block: u32,
}

/// See the module's text.
pub(super) struct Shard {
    /// First frame; a multiple of [`QUAD`].
    first: u32,
    /// How many frames; a multiple of [`QUAD`].
    frames: u32,
    /// The frames that may be used end here, at the end of a quad.
    end: u32,
    /// The first frame that is not in use; all after it are unused too, except for pinned runs behind `end`.
    fresh: u32,
    /// Frames behind `end` up to here may be in use by pinned runs.
    leftover_end: u32,
    hand: u32,
    /// Heads of freed runs, by length less one. They are hints: the clock may have taken a run since.
    free: [Vec<u32>; QUAD as usize],
    /// Heads of runs admitted cold, oldest first. They are hints too.
    cold: VecDeque<u32>,
    owners: Vec<Option<Owner>>,
    pub(super) evictions: u64,
}

impl Shard {
    pub(super) fn new(first: u32, frames: u32) -> Self {
        Self {
            first,
            frames,
            end: first + frames,
            fresh: first,
            leftover_end: first,
            hand: first,
            free: Default::default(),
            cold: VecDeque::new(),
            owners: Vec::new(),
            evictions: 0,
        }
    }

    /// A locked run of `frames` frames for a block; `None` when no place can be cleared, or when only frames in use are left and
    /// `may_evict` is false. Free frames where no such run fits are in use in this sense.
    pub(super) fn reserve(
        &mut self,
        slab: &SlabOwner,
        frames: u32,
        words: &Arc<FrameWords>,
        block: u32,
        cold: bool,
        may_evict: bool,
    ) -> Option<LockedRun> {
        let mut run = self.take_free(slab, frames).or_else(|| self.take_fresh(slab, frames));
        if run.is_none() && may_evict {
            run = self.take_cold(slab, frames, cold).or_else(|| self.sweep(slab, frames));
        }
        let run = run?;
        let slot = self.slot(run.first());
        if self.owners.len() <= slot {
            self.owners.resize_with(slot + 1, || None);
        }
        self.owners[slot] = Some(Owner { words: words.clone(), block });
        if cold {
            self.cold.push_back(run.first());
            if self.cold.len() > self.frames as usize {
                self.cold.pop_front();
            }
        }
        Some(run)
    }

    /// Lets the shard use its first `frames` frames, in whole quads. Evicts the blocks in the others and gives their memory
    /// back. A pinned block stays until a later call.
    pub(super) fn set_limit(&mut self, slab: &SlabOwner, frames: u32) {
        self.end = self.first + (frames / QUAD * QUAD).clamp(QUAD, self.frames);
        let used_end = self.leftover_end.max(self.fresh);
        self.leftover_end = self.end;
        let mut head = self.end;
        let mut evicted = Vec::new();
        while head < used_end {
            let next = head + slab.span(head);
            if let Some(run) = slab.lock(head) {
                self.evict(&run);
                evicted.push(run);
            } else {
                self.leftover_end = next;
            }
            head = next;
        }
        slab.discard(&mut evicted);
        for run in evicted {
            slab.unlock(run);
        }
        self.fresh = self.fresh.min(self.end);
    }

    /// Frames that may be used.
    pub(super) fn limit(&self) -> u32 {
        self.end - self.first
    }

    /// Gives back a reserved run that was not used.
    pub(super) fn cancel(&mut self, slab: &SlabOwner, run: LockedRun) {
        let slot = self.slot(run.first());
        self.owners[slot] = None;
        self.put_free(slab, run);
    }

    /// Frees the run headed by `first` if it belongs to `words`. A pinned run is left to the clock.
    pub(super) fn disown(&mut self, slab: &SlabOwner, first: u32, words: &Arc<FrameWords>) {
        let slot = self.slot(first);
        let Some(owner) = self.owners.get_mut(slot) else { return };
        if owner.as_ref().is_some_and(|owner| Arc::ptr_eq(&owner.words, words)) {
            *owner = None;
            slab.take_chance(first, TOUCHED | WARM);
            if let Some(run) = slab.lock(first) {
                self.put_free(slab, run);
            }
        }
    }

    /// Frames ever used.
    pub(super) fn used(&self) -> u32 {
        self.fresh - self.first
    }

    fn slot(&self, frame: u32) -> usize {
        (frame - self.first) as usize
    }

    fn put_free(&mut self, slab: &SlabOwner, run: LockedRun) {
        let list = &mut self.free[run.frames() as usize - 1];
        if list.len() < self.frames as usize {
            list.push(run.first());
        }
        slab.unlock(run);
    }

    fn take_free(&mut self, slab: &SlabOwner, frames: u32) -> Option<LockedRun> {
        while let Some(first) = self.free[frames as usize - 1].pop() {
            let owned = self.owners.get(self.slot(first)).is_some_and(Option::is_some);
            if owned || first >= self.end {
                continue; // The clock has taken it since, or the limit was lowered.
            }
            match slab.lock(first) {
                Some(run) if run.frames() == frames => return Some(run),
                Some(run) => slab.unlock(run),
                None => {}
            }
        }
        None
    }

    /// For a scan that has used its share: the place of the oldest cold block that has not been used again.
    fn take_cold(&mut self, slab: &SlabOwner, frames: u32, cold: bool) -> Option<LockedRun> {
        let share = (self.limit() / COLD_SHARE) as usize;
        if !cold || self.cold.len() < share.max(1) {
            return None;
        }
        for _ in 0..QUAD {
            let first = self.cold.pop_front()?;
            if first < self.end
                && slab.chances(first) == Some(0)
                && slab.span(first) == frames
                && let Some(run) = slab.lock(first)
            {
                self.evict(&run);
                return Some(run);
            }
        }
        None
    }

    /// Frames that were never used, at a place that runs of this length may have.
    fn take_fresh(&mut self, slab: &SlabOwner, frames: u32) -> Option<LockedRun> {
        let place = self.fresh.next_multiple_of(alignment(frames));
        if place + frames > self.end {
            return None;
        }
        for skipped in self.fresh..place {
            self.free[0].push(skipped);
        }
        self.fresh = place + frames;
        slab.note_used(place); // For all its frames: a quad lies in one group.
        self.clear(slab, place, frames)
    }

    /// The clock.
    fn sweep(&mut self, slab: &SlabOwner, frames: u32) -> Option<LockedRun> {
        for step in 0..PATIENT_STEPS + GREEDY_STEPS {
            let mut place = self.hand.next_multiple_of(alignment(frames));
            if place + frames > self.end {
                place = self.first;
            }
            self.hand = place + frames;
            self.prefetch_owners();
            if clearable(slab, place, frames, step < PATIENT_STEPS)
                && let Some(run) = self.clear(slab, place, frames)
            {
                return Some(run);
            }
        }
        None
    }

    /// Asks for the memory that evictions of the next places will change.
    fn prefetch_owners(&self) {
        let owner = |places| self.owners.get(self.slot(self.hand + places)).and_then(Option::as_ref);
        if let Some(owner) = owner(PREFETCHED.0) {
            prefetch(Arc::as_ptr(&owner.words).cast());
        }
        if let Some(owner) = owner(PREFETCHED.1) {
            owner.words.prefetch(owner.block);
        }
    }

    /// Locks and evicts all runs at a place and joins them. Frames outside of the place become free.
    fn clear(&mut self, slab: &SlabOwner, place: u32, frames: u32) -> Option<LockedRun> {
        let mut locked: SmallVec<[LockedRun; QUAD as usize]> = SmallVec::new();
        for (head, _) in overlapping(slab, place, frames) {
            let Some(run) = slab.lock(head) else {
                locked.into_iter().for_each(|run| slab.unlock(run));
                return None;
            };
            locked.push(run);
        }
        for run in &locked {
            self.evict(run);
        }
        let mut run = locked.into_iter().reduce(|left, right| slab.join(left, right))?;
        if run.first() < place {
            let sticking_out = place - run.first();
            let (before, rest) = slab.split(run, sticking_out);
            self.put_free(slab, before);
            run = rest;
        }
        if run.frames() > frames {
            let (rest, after) = slab.split(run, frames);
            self.put_free(slab, after);
            run = rest;
        }
        Some(run)
    }

    /// Takes a locked run from its owner: readers no longer find its block.
    fn evict(&mut self, run: &LockedRun) {
        let slot = self.slot(run.first());
        if let Some(owner) = self.owners.get_mut(slot).and_then(Option::take) {
            owner.words.clear(owner.block, run.first());
            self.evictions += 1;
        }
    }
}

/// Whether all runs at a place may be evicted. Takes one chance from each run that has one.
fn clearable(slab: &SlabOwner, place: u32, frames: u32, patient: bool) -> bool {
    let mut clearable = true;
    for (head, _) in overlapping(slab, place, frames) {
        match slab.chances(head) {
            None => clearable = false,
            Some(0) => {}
            Some(chances) => {
                slab.take_chance(head, if chances & WARM != 0 { WARM } else { TOUCHED });
                clearable &= !patient;
            }
        }
    }
    clearable
}

/// The alignment of a run's first frame.
fn alignment(frames: u32) -> u32 {
    if frames > 2 { QUAD } else { frames }
}

/// The runs that share frames with a place, as (head, frames).
fn overlapping(slab: &SlabOwner, place: u32, frames: u32) -> SmallVec<[(u32, u32); QUAD as usize]> {
    let mut runs = SmallVec::new();
    let mut head = place - place % QUAD;
    while head < place + frames {
        let span = slab.span(head);
        if head + span > place {
            runs.push((head, span));
        }
        head += span;
    }
    runs
}
