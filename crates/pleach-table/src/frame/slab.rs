//! The slab: the memory of the frames, and the only place that decides who may read or write it.
//!
//! Every frame has a state word. A *run* is one to four neighbouring frames. Only the first, the head, is ever unlocked.
//! [`LockedRun`] is a token for write access to a locked run: it is neither `Clone` nor `Copy`, and only this module makes one,
//! when it locks the head. A token is for the slab that made it; the cache has one slab. [`Pin`] is read access to an unlocked
//! run.
//!
//! # Invariants
//! 1. *Writers are alone*: while a `LockedRun` exists, its frames are locked and have no pins. A lock needs zero pins. A reader
//!    that finds the head locked takes its pin back and does not read the bytes.
//! 2. *Continuations stay locked*: in an unlocked run, every frame but the head is locked. All frames of a `LockedRun` are
//!    locked (1), and `unlock` unlocks the head alone.
//! 3. *Pins keep the memory*: after the drop of the owner, the drop of the last pin frees the slab.
//!
//! # Concurrency
//! All methods may be called from any thread. The state has the second chances in bits 0 and 1, *locked* in bit 2, *orphaned*
//! in bit 3, and the number of pins from bit 4 on. A locked frame may have pins for a moment (1), so an unlock subtracts and
//! does not store. `unlock` releases and `pin` acquires: a thread that pins a run sees the bytes written and the words
//! cleared before the unlock. `models/` checks this in all orders.

#![expect(clippy::needless_pass_by_value, reason = "tokens are used up")]
#![expect(
    unsafe_code,
    reason = "frames are shared between readers and reused by writers, as the states allow"
)]

use std::ops::Deref;
use std::ptr::NonNull;

use pleach_env::memory::{Region, discard, prefetch};
use pleach_env::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::states::{Frame, Frames};
use crate::sizes::PAGE;

/// Second chances, as bits: a run touched once has the lower one, a run touched again has both.
pub(super) const TOUCHED: u32 = 1;
pub(super) const WARM: u32 = 2;
const CHANCES: u32 = TOUCHED | WARM;
const LOCKED: u32 = 4;
const ORPHANED: u32 = 8;
const PIN: u32 = 16;
/// Too many pins for the state word: no further pin is given. Only a leak of pins comes so far.
const TOO_MANY: u32 = 1 << 31;
/// More than all pins together can be.
const OWNER_SHARE: i64 = 1 << 60;

/// Frames of a group (arbitrary). The drop of the owner skips groups that were never used.
const GROUP: usize = 1024;

/// See the module's text.
struct Slab {
    memory: Region,
    frames: Frames,
    /// For each [`GROUP`], whether one of its frames was ever used. Set before the first of them is unlocked.
    used_groups: Box<[AtomicBool]>,
    /// Pins that outlive the owner, plus `OWNER_SHARE` while the owner exists. The slab is freed at 0.
    outstanding: AtomicI64,
}

/// The owner of the slab, which gives out tokens and pins.
pub(super) struct SlabOwner(NonNull<Slab>);

/// Write access to a locked run of the slab that made it.
pub(super) struct LockedRun {
    first: u32,
    frames: u32,
}

impl LockedRun {
    /// Number of its first frame.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// How many frames it has.
    pub(super) fn frames(&self) -> u32 {
        self.frames
    }
}

impl SlabOwner {
    /// A slab of `frames` free frames, each a run of its own; `None` where the process may not have so many addresses.
    ///
    /// Requires: at least one frame.
    pub(super) fn try_new(frames: u32) -> Option<Self> {
        let len = frames as usize;
        let slab = Slab {
            memory: Region::try_new_lazy(len * PAGE)?,
            frames: Frames::try_new(len)?,
            used_groups: (0..len.div_ceil(GROUP)).map(|_| AtomicBool::new(false)).collect(),
            outstanding: AtomicI64::new(OWNER_SHARE),
        };
        Some(Self(NonNull::from(Box::leak(Box::new(slab)))))
    }

    /// Notes that a frame is in use from now on.
    pub(super) fn note_used(&self, frame: u32) {
        self.slab().used_groups[frame as usize / GROUP].store(true, Ordering::Relaxed);
    }

    fn slab(&self) -> &Slab {
        // SAFETY: the owner exists, so the slab has not been freed (invariant 3).
        unsafe { self.0.as_ref() }
    }

    /// Pins the run headed by `first`, which may hold another block by now; `None` while it is locked.
    #[inline]
    pub(super) fn pin(&self, first: u32) -> Option<Pin> {
        let slab = self.slab();
        let frame = slab.frames.get(first as usize)?;
        slab.prefetch_head(first);
        let state = frame.state.fetch_add(PIN, Ordering::Acquire);
        if state & (LOCKED | TOO_MANY) != 0 {
            frame.state.fetch_sub(PIN, Ordering::Release);
            return None;
        }
        Some(Pin::to(self.0, slab, first))
    }

    /// Prefetches the state and the first bytes of the run headed by `first`.
    #[inline]
    pub(super) fn prefetch(&self, first: u32) {
        let slab = self.slab();
        if let Some(frame) = slab.frames.get(first as usize) {
            prefetch(std::ptr::from_ref(frame).cast());
            slab.prefetch_head(first);
        }
    }

    /// Prefetches the bytes behind those of [`SlabOwner::prefetch`] that a point read in a block of small entries looks at.
    #[inline]
    pub(super) fn prefetch_more(&self, first: u32) {
        let start = self.slab().memory.start().as_ptr().wrapping_add(first as usize * PAGE);
        for line in (HEAD_BYTES..HEAD_BYTES_OF_MANY).step_by(64) {
            prefetch(start.wrapping_add(line));
        }
    }

    /// Prefetches the last bytes of the run headed by `first`.
    #[inline]
    pub(super) fn prefetch_end(&self, first: u32) {
        let slab = self.slab();
        if let Some(frame) = slab.frames.get(first as usize) {
            let len = (frame.extent.load(Ordering::Relaxed) & 0xffff) as usize;
            let end = slab.memory.start().as_ptr().wrapping_add(first as usize * PAGE + len);
            for line in 1..=END_LINES {
                prefetch(end.wrapping_sub(64 * line));
            }
        }
    }

    /// Frames of the run headed by `first`.
    pub(super) fn span(&self, first: u32) -> u32 {
        1 + (self.slab().frames[first as usize].extent.load(Ordering::Relaxed) >> 16)
    }

    /// The chances of the run headed by `first`; `None` when it cannot be locked.
    pub(super) fn chances(&self, first: u32) -> Option<u32> {
        let state = self.slab().frames[first as usize].state.load(Ordering::Relaxed);
        (state & !CHANCES == 0).then_some(state & CHANCES)
    }

    /// Takes one chance from a run.
    pub(super) fn take_chance(&self, first: u32, chance: u32) {
        self.slab().frames[first as usize].state.fetch_and(!(chance & CHANCES), Ordering::Relaxed);
    }

    /// Locks the run headed by `first`, whatever its chances; `None` when it is pinned or locked, or `first` is no head.
    pub(super) fn lock(&self, first: u32) -> Option<LockedRun> {
        let state = &self.slab().frames[first as usize].state;
        let seen = state.load(Ordering::Relaxed);
        if seen & !CHANCES != 0 {
            return None;
        }
        // Acquire: the reads under former pins happen before the bytes are overwritten.
        state.compare_exchange(seen, LOCKED, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(LockedRun { first, frames: self.span(first) })
    }

    /// Ends a lock: the run is free, or what it was before.
    pub(super) fn unlock(&self, run: LockedRun) {
        self.slab().frames[run.first as usize].state.fetch_sub(LOCKED, Ordering::Release);
    }

    /// Ends a lock with the first `len` bytes written, `chances` to stay, and a pin.
    pub(super) fn unlock_pinned(&self, run: LockedRun, len: usize, chances: u32) -> Pin {
        assert!(len <= run.frames as usize * PAGE, "a block fits its frames");
        let slab = self.slab();
        let frame = &slab.frames[run.first as usize];
        frame.extent.store(
            (run.frames - 1) << 16 | u32::try_from(len).expect("at most four pages"),
            Ordering::Relaxed,
        );
        frame.state.fetch_add((PIN | (chances & CHANCES)).wrapping_sub(LOCKED), Ordering::Release);
        Pin::to(self.0, slab, run.first)
    }

    /// The run cut in two before its frame `at`.
    pub(super) fn split(&self, run: LockedRun, at: u32) -> (LockedRun, LockedRun) {
        assert!(0 < at && at < run.frames, "both parts have frames");
        let (left, right) = (
            LockedRun { first: run.first, frames: at },
            LockedRun { first: run.first + at, frames: run.frames - at },
        );
        for part in [&left, &right] {
            self.slab().frames[part.first as usize].extent.store((part.frames - 1) << 16, Ordering::Relaxed);
        }
        (left, right)
    }

    /// Two neighbouring runs as one.
    pub(super) fn join(&self, left: LockedRun, right: LockedRun) -> LockedRun {
        assert_eq!(left.first + left.frames, right.first, "the runs are neighbours");
        let frames = left.frames + right.frames;
        self.slab().frames[left.first as usize].extent.store((frames - 1) << 16, Ordering::Relaxed);
        LockedRun { first: left.first, frames }
    }

    /// The bytes of a locked run.
    pub(super) fn bytes<'a>(&'a self, run: &'a LockedRun) -> &'a [u8] {
        let (start, len) = self.slab().place(run.first, run.frames);
        // SAFETY: `place` checked the bounds; the run is locked by the token, so no thread writes while it is borrowed.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// Gives the memory of locked runs, which are in the order of their places, back to the system until the runs are written
    /// again. Neighbours are given back by one call.
    pub(super) fn discard(&self, runs: &mut [LockedRun]) {
        for neighbours in runs.chunk_by_mut(|left, right| left.first + left.frames == right.first) {
            let (first, frames) = (neighbours[0].first, neighbours.iter().map(|run| run.frames).sum());
            let (start, len) = self.slab().place(first, frames);
            // SAFETY: `place` checked the bounds. The runs cover the range without a gap. They are locked by their tokens, which
            // are borrowed mutably, and no pin exists (invariant 1).
            discard(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) });
        }
    }

    /// The bytes of a locked run, to be written.
    pub(super) fn bytes_mut<'a>(&'a self, run: &'a mut LockedRun) -> &'a mut [u8] {
        let (start, len) = self.slab().place(run.first, run.frames);
        // SAFETY: `place` checked the bounds; the token is borrowed mutably and no pin exists (invariant 1).
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }
}

/// Bytes at a block's beginning that a point read looks at first: header, prefix, tags and offsets of a few dozen keys.
const HEAD_BYTES: usize = 192;

/// The same of a block with about 150 keys, as one of value pointers has.
const HEAD_BYTES_OF_MANY: usize = 512;

/// Lines at a block's end that a cursor on its way down looks at first: two small entries.
const END_LINES: usize = 3;

impl Slab {
    /// Prefetches the beginning of a frame, beside its state.
    #[inline]
    fn prefetch_head(&self, first: u32) {
        let start = self.memory.start().as_ptr().wrapping_add(first as usize * PAGE);
        for line in (0..HEAD_BYTES).step_by(64) {
            prefetch(start.wrapping_add(line));
        }
    }

    /// Address and length of `frames` frames.
    #[inline]
    fn place(&self, first: u32, frames: u32) -> (NonNull<u8>, usize) {
        let (start, len) = (first as usize * PAGE, frames as usize * PAGE);
        assert!(start + len <= self.memory.len(), "the run lies in the slab");
        // SAFETY: the offset is inside the region, by the check above.
        (unsafe { self.memory.start().add(start) }, len)
    }
}

impl Drop for SlabOwner {
    fn drop(&mut self) {
        let slab = self.slab();
        let mut pins = 0;
        for (frames, is_used) in slab.frames.chunks(GROUP).zip(&slab.used_groups) {
            if is_used.load(Ordering::Relaxed) {
                let orphan = |frame: &Frame| frame.state.fetch_or(ORPHANED, Ordering::AcqRel) / PIN;
                pins += frames.iter().map(orphan).map(i64::from).sum::<i64>();
            }
        }
        release(self.0, OWNER_SHARE - pins);
    }
}

/// Subtracts `share` from the outstanding shares of the slab, and frees it when none is left.
#[cold]
fn release(slab: NonNull<Slab>, share: i64) {
    // SAFETY: the caller still has its share, so the slab has not been freed.
    let left = unsafe { slab.as_ref() }.outstanding.fetch_sub(share, Ordering::AcqRel) - share;
    if left == 0 {
        // SAFETY: `try_new` leaked this box; no owner and no pin is left, so no other thread can reach it.
        drop(unsafe { Box::from_raw(slab.as_ptr()) });
    }
}

/// Read access to a run's bytes.
pub(super) struct Pin {
    slab: NonNull<Slab>,
    data: NonNull<u8>,
    len: u32,
    first: u32,
}

impl Pin {
    /// Requires: the head's pin count has been raised for this pin, and it is not locked.
    #[inline]
    fn to(pointer: NonNull<Slab>, slab: &Slab, first: u32) -> Self {
        let extent = slab.frames[first as usize].extent.load(Ordering::Relaxed);
        let (data, _) = slab.place(first, 1 + (extent >> 16));
        Self { slab: pointer, data, len: extent & 0xffff, first }
    }

    fn frame(&self) -> &Frame {
        // SAFETY: a pin exists, so the slab has not been freed (invariant 3).
        unsafe { &self.slab.as_ref().frames[self.first as usize] }
    }

    /// Notes that the run was used: it gets a second chance, then a third.
    #[inline]
    pub(super) fn touch(&self) {
        let state = self.frame().state.load(Ordering::Relaxed);
        if state & WARM == 0 {
            let chance = if state & TOUCHED == 0 { TOUCHED } else { WARM };
            self.frame().state.fetch_or(chance, Ordering::Relaxed);
        }
    }
}

impl Deref for Pin {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes at `data` are inside the slab (`place` checked the run, `unlock_pinned` the length), and
        // no thread writes them while this pin exists (invariant 1).
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len as usize) }
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        let state = self.frame().state.fetch_add(PIN, Ordering::Relaxed);
        assert!(state & TOO_MANY == 0, "fewer than 2^27 pins on a block");
        if state & ORPHANED != 0 {
            release(self.slab, -1);
        }
        Self { ..*self }
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        // Release: reads of the bytes happen before the next lock of the run.
        let state = self.frame().state.fetch_sub(PIN, Ordering::Release);
        if state & ORPHANED != 0 {
            release(self.slab, 1);
        }
    }
}

// SAFETY: the owner reaches the slab through shared references and atomics only.
unsafe impl Send for SlabOwner {}
// SAFETY: as above.
unsafe impl Sync for SlabOwner {}
// SAFETY: a pin gives shared access to bytes that do not change, and counts with atomics.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}
