//! Shard: a part of the cached values, with a table, an arena, and the lock of those who change them.
//!
//! A hand walks over the arena and frees what is needed for the next value. A value that was found since the hand last passed it
//! loses a chance and stays. The hand moves such values together, so free memory is never in pieces that nobody can use.
//!
//! # Invariants
//! 1. *Tiles*: items and holes tile the arena from 0 to `fresh` without gaps.
//! 2. *Backward*: an item's header names a slot whose item it is.
//! 3. *Budget*: table and lines ever used take no more than the capacity, but for what pins hold after it fell.
//!
//! Checked in `check_invariants`.
//!
//! # Concurrency
//! Readers take no lock ([`slot`](super::slot)). `state` is locked by those who admit or evict. The bytes of a new value are
//! copied after that, under the lock of its slot.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use pleach_env::sync::Mutex;

use super::arena::{Arena, LINE, lines_of};
use super::slot::{NOTHING, Slot};
use super::table::Table;

/// A value takes at most this part of a shard (arbitrary): one in so many.
const VALUE_SHARE: u32 = 4;

/// The table takes at most this part of the capacity: a slot for 128 bytes. Smaller values evict each other earlier.
const TABLE_SHARE: usize = 8;

/// The table doubles when so many sixteenths of its slots are in use. Of 100 further values, four would then find their bucket
/// full.
const FULL_SIXTEENTHS: u64 = 9;

/// The hand passes so many lines for a value (1 MiB, arbitrary), and so many times the value's, and the rest of the last tile.
/// If it frees too little, the value is not admitted.
const SWEEP_LINES: u32 = 1 << 14;
const SWEEP_FACTOR: u32 = 16;

/// Memory is asked for so many lines ahead (4 MiB), or as many as are used, by whole huge pages, when less than half of that is
/// left. A fault for a huge page takes 0.1 ms, and under some virtual machines several ms, for which a reader would wait.
const AHEAD_LINES: u32 = 1 << 16;
const HUGE_PAGE_LINES: u32 = 1 << 15;

/// See the module's text.
#[repr(align(64))]
pub(super) struct Shard {
    table: Table,
    arena: Arena,
    /// Whether memory is to be asked for.
    wants_memory: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// Bytes of table and arena.
    capacity: usize,
    /// The first line behind all tiles.
    fresh: u32,
    /// The first line that was never used, or not since its memory was given back.
    used: u32,
    /// The first line for which no memory was asked.
    populated: u32,
    /// Where a tile begins, at most `fresh`.
    hand: u32,
    /// Values in the table.
    values: u32,
}

/// A value that a reader has pinned.
pub(super) struct Pinned<'s> {
    pub(super) slot: &'s Slot,
    pub(super) bytes: NonNull<u8>,
    pub(super) len: u32,
}

/// Which value is meant.
#[derive(Clone, Copy)]
pub(super) struct Name {
    /// Of the key; not [`NOTHING`].
    pub(super) hash: u64,
    /// Segment and offset.
    pub(super) place: u64,
    /// Bytes of the stored value. A value that was packed is longer.
    pub(super) stored_len: u32,
}

/// What the hand found.
enum Passed {
    Free,
    /// A value that stays. It can be moved if it `is_loose`.
    Kept {
        is_loose: bool,
    },
}

impl Shard {
    /// A shard of at most so many bytes, with a capacity of 0; `None` if the process may not have so many addresses.
    pub(super) fn try_new(bytes_max: usize) -> Option<Self> {
        let lines = u32::try_from(bytes_max.div_ceil(LINE)).unwrap_or(u32::MAX / 2).max(1);
        Some(Self {
            table: Table::try_new(bytes_max / TABLE_SHARE)?,
            arena: Arena::try_new(lines)?,
            wants_memory: AtomicBool::new(false),
            state: Mutex::new(State { capacity: 0, fresh: 0, used: 0, populated: 0, hand: 0, values: 0 }),
        })
    }

    /// Prefetches where a value would be found.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// Prefetches the beginning of a value, if one with this hash seems to be there. Returns whether it does.
    #[inline]
    pub(super) fn prefetch_value(&self, hash: u64) -> bool {
        self.table.peek(hash).inspect(|item| self.arena.prefetch(*item)).is_some()
    }

    /// Whether a value with this hash seems to be there.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.table.peek(hash).is_some()
    }

    /// Finds and pins a value.
    #[inline]
    pub(super) fn get(&self, name: Name, counts: bool) -> Option<Pinned<'_>> {
        let Name { hash, place, stored_len } = name;
        let slot = self.table.pin(hash, counts, |slot| {
            self.arena.prefetch_end(slot.item(), stored_len);
            self.arena.bytes(slot.item(), place, stored_len).is_some()
        })?;
        let (bytes, len) = self.arena.bytes(slot.item(), place, stored_len)?;
        Some(Pinned { slot, bytes, len })
    }

    /// Admits and pins a value, unless it is too large or pins hold too much. If another thread has admitted it, that value is
    /// pinned. Another value of the key is evicted.
    pub(super) fn admit(&self, name: Name, bytes: &[u8]) -> Option<Pinned<'_>> {
        let Name { hash, place, stored_len } = name;
        let (lines, len) = (lines_of(bytes.len()), u32::try_from(bytes.len()).ok()?);
        let mut state = self.state.lock();
        if lines > self.limit(&state) / VALUE_SHARE {
            return None;
        }
        if let Some(found) = self.get(name, true) {
            return Some(found);
        }
        self.grow_if_full(&mut state);
        let number = self.empty_slot(&mut state, hash)?;
        let slot = self.table.slot(number);
        let Some(item) = self.make_room(&mut state, lines) else {
            slot.unlock(0);
            return None;
        };
        self.arena.make_item(item, number, place, len);
        slot.set(hash, item);
        state.values += 1;
        if state.used + state.ahead() / 2 > state.populated && state.populated < self.whole_pages(&state) {
            self.wants_memory.store(true, Ordering::Relaxed);
        }
        drop(state);
        self.arena.write(item, bytes);
        slot.unlock_pinned();
        let (bytes, len) = self.arena.bytes(item, place, stored_len)?;
        Some(Pinned { slot, bytes, len })
    }

    /// Gives a value another place, unless it is not there or pinned.
    pub(super) fn replace(&self, name: Name, place: u64) {
        let _locked_for_the_header = self.state.lock();
        for number in self.table.bucket(name.hash) {
            let slot = self.table.slot(number);
            if slot.hash() == name.hash
                && let Some(chances) = slot.lock()
            {
                let item = slot.item();
                if let Some((_, len)) = self.arena.bytes(item, name.place, name.stored_len) {
                    self.arena.make_item(item, number, place, len);
                }
                slot.unlock(chances);
            }
        }
    }

    /// Whether [`Shard::populate`] is to be called, once for each time.
    pub(super) fn wants_memory(&self) -> bool {
        self.wants_memory.load(Ordering::Relaxed) && self.wants_memory.swap(false, Ordering::Relaxed)
    }

    /// Asks the system for memory ahead of the values. Without that, readers wait for it.
    pub(super) fn populate(&self) {
        let mut state = self.state.lock();
        let wanted = (state.used + state.ahead()).next_multiple_of(HUGE_PAGE_LINES);
        let (from, to) = (state.populated.max(state.used), wanted.min(self.whole_pages(&state)));
        if from < to {
            state.populated = to;
            drop(state);
            self.arena.populate(from..to);
            // The capacity may have fallen meanwhile.
            let state = self.state.lock();
            self.arena.discard(state.used.max(state.populated).min(to)..to);
        }
    }

    /// The lines of the huge pages of which all lines may be used.
    fn whole_pages(&self, state: &State) -> u32 {
        self.limit(state) / HUGE_PAGE_LINES * HUGE_PAGE_LINES
    }

    /// Sets the bytes of table and arena. When they fall, values are evicted and their memory is given back. A pinned value keeps
    /// its memory until a later call.
    pub(super) fn set_capacity(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.capacity = bytes;
        self.trim(&mut state);
    }

    /// Bytes of the table and of all lines that were ever used.
    pub(super) fn used_bytes(&self) -> usize {
        self.state.lock().used as usize * LINE + self.table.bytes()
    }

    /// Notes that the cache is gone. Returns the pins.
    ///
    /// Requires: no other thread uses the shard.
    pub(super) fn orphan(&self) -> i64 {
        (0..self.table.slots()).map(|number| i64::from(self.table.slot(number).orphan())).sum()
    }

    /// Lines that may be used.
    fn limit(&self, state: &State) -> u32 {
        let lines = state.capacity.saturating_sub(self.table.bytes()) / LINE;
        u32::try_from(lines).unwrap_or(u32::MAX).min(self.arena.lines())
    }

    /// Doubles the table if it is full. Pinned values stay where they are, cannot be found any more, and are evicted later.
    fn grow_if_full(&self, state: &mut State) {
        let is_full = u64::from(state.values) * 16 >= u64::from(self.table.slots()) * FULL_SIXTEENTHS;
        if !is_full || !self.table.may_grow() || self.table.bytes() * 2 > state.capacity / TABLE_SHARE {
            return;
        }
        for number in 0..self.table.slots() {
            let slot = self.table.slot(number);
            let hash = slot.hash();
            if hash != NOTHING
                && let Some(grown) = self.table.grown(number, hash)
                && let Some(chances) = slot.lock()
            {
                let target = self.table.slot(grown);
                let _nobody_knows_it = target.lock().expect("no value was ever in it");
                self.arena.set_slot(slot.item(), grown);
                target.set(hash, slot.item());
                slot.set(NOTHING, 0);
                target.unlock(chances);
                slot.unlock(0);
            }
        }
        self.table.grow();
        self.trim(state);
    }

    /// Locks an empty slot for a value with this hash. Another value with the hash is evicted: it is an older one of the key.
    /// If no slot is empty, the value in the bucket with the fewest chances is evicted.
    fn empty_slot(&self, state: &mut State, hash: u64) -> Option<u32> {
        let bucket = || self.table.bucket(hash);
        for number in bucket().filter(|number| self.table.slot(*number).hash() == hash) {
            self.evict(state, number);
        }
        let is_empty = |number: &u32| {
            let slot = self.table.slot(*number);
            slot.hash() == NOTHING && slot.lock().is_some()
        };
        if let Some(number) = bucket().find(is_empty) {
            return Some(number);
        }
        // A slot that a reader pins for a moment may be empty, although it was not found so.
        let full = bucket().filter(|number| self.table.slot(*number).hash() != NOTHING);
        let loose = full.filter_map(|number| Some((self.table.slot(number).chances()?, number)));
        let (_, number) = loose.min()?;
        self.evict(state, number).then_some(())?;
        self.table.slot(number).lock().map(|_| number)
    }

    /// Evicts the value of a slot, unless it is pinned. Its item becomes a hole.
    ///
    /// Requires: the slot has a value. An empty slot names an item of another one.
    fn evict(&self, state: &mut State, number: u32) -> bool {
        let slot = self.table.slot(number);
        if slot.lock().is_none() {
            return false;
        }
        let (lines, _) = self.arena.tile(slot.item());
        self.arena.make_hole(slot.item(), lines);
        slot.set(NOTHING, 0);
        slot.unlock(0);
        state.values -= 1;
        true
    }

    /// Frees so many lines, and returns the first; `None` if they cannot be freed soon.
    fn make_room(&self, state: &mut State, lines: u32) -> Option<u32> {
        let limit = self.limit(state);
        if let Some(first) = state.take_fresh(lines, limit) {
            return Some(first);
        }
        let mut left = SWEEP_LINES.saturating_add(lines.saturating_mul(SWEEP_FACTOR));
        let mut hole = state.hand..state.hand;
        loop {
            if hole.end >= state.fresh || hole.start >= limit {
                if hole.end >= state.fresh {
                    state.fresh = hole.start;
                } else {
                    self.arena.make_hole(hole.start, hole.end - hole.start);
                }
                hole = 0..0;
                state.hand = 0;
                if let Some(first) = state.take_fresh(lines, limit) {
                    return Some(first);
                }
            }
            let (passed, slot) = self.arena.tile(hole.end);
            if left == 0 {
                self.arena.make_hole(hole.start, hole.end - hole.start);
                state.hand = hole.start;
                return None;
            }
            // A tile may be longer than all that is left. The hand must get past it nevertheless.
            left = left.saturating_sub(passed);
            match slot.map_or(Passed::Free, |slot| self.pass(state, slot)) {
                Passed::Free => hole.end += passed,
                Passed::Kept { is_loose } => hole = self.keep(hole, passed, slot.filter(|_| is_loose)),
            }
            if hole.end - hole.start >= lines && hole.start + lines <= limit {
                state.hand = hole.start + lines;
                self.arena.make_hole(state.hand, hole.end - state.hand);
                return Some(hole.start);
            }
        }
    }

    /// Evicts a value that has no chance left, or takes one.
    fn pass(&self, state: &mut State, number: u32) -> Passed {
        let slot = self.table.slot(number);
        match slot.chances() {
            Some(0) if self.evict(state, number) => Passed::Free,
            None | Some(0) => Passed::Kept { is_loose: false },
            Some(chances) => {
                slot.take_chance(chances);
                Passed::Kept { is_loose: true }
            }
        }
    }

    /// Goes on behind the item of `lines` lines behind a hole. If the item's slot is given, and nobody uses the value, the item
    /// moves to the other end of the hole.
    fn keep(&self, hole: Range<u32>, lines: u32, loose: Option<u32>) -> Range<u32> {
        let behind = hole.end + lines;
        if hole.is_empty() {
            return behind..behind;
        }
        let slot = loose.map(|number| self.table.slot(number));
        let Some((slot, chances)) = slot.and_then(|slot| Some((slot, slot.lock()?))) else {
            self.arena.make_hole(hole.start, hole.end - hole.start);
            return behind..behind;
        };
        self.arena.move_down(hole.end, hole.start);
        slot.set(slot.hash(), hole.start);
        slot.unlock(chances);
        hole.start + lines..behind
    }

    /// Evicts the values behind the lines that may be used, and gives their memory back, and memory that was asked for ahead.
    fn trim(&self, state: &mut State) {
        let limit = self.limit(state);
        if state.used <= limit {
            let populated = state.populated.min(self.whole_pages(state).max(state.used));
            self.arena.discard(populated..state.populated);
            state.populated = populated;
            return;
        }
        // The last item that begins within the limit, and the items behind it that stay.
        let (mut last, mut kept) = (None, Vec::new());
        for number in 0..self.table.slots() {
            let slot = self.table.slot(number);
            let item = slot.item();
            if slot.hash() == NOTHING {
            } else if item < limit {
                last = last.max(Some((item, number)));
            } else if !self.evict(state, number) {
                kept.push((item, self.arena.tile(item).0));
            }
        }
        let mut end = 0;
        if let Some((item, number)) = last {
            end = item + self.arena.tile(item).0;
            if end > limit && self.evict(state, number) {
                end = item;
            }
        }
        if state.hand > end {
            state.hand = 0;
        }
        kept.sort_unstable();
        for (item, lines) in kept {
            self.arena.make_hole(end, item - end);
            self.arena.discard(end + 1..item);
            end = item + lines;
        }
        self.arena.discard(end..state.used.max(state.populated));
        (state.fresh, state.used) = (end, end);
        state.populated = state.populated.min(end);
    }

    /// Bytes of the arena up to the last for which memory was asked.
    #[cfg(test)]
    pub(super) fn populated_bytes(&self) -> usize {
        self.state.lock().populated as usize * LINE
    }

    /// Checks the invariants. No thread may admit or evict meanwhile, so it takes the lock.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let state = self.state.lock();
        let (mut line, mut values, mut is_hand) = (0, 0, state.hand == state.fresh);
        while line < state.fresh {
            is_hand |= line == state.hand;
            let (lines, slot) = self.arena.tile(line);
            assert!(lines > 0, "a tile has lines");
            if let Some(slot) = slot {
                assert_eq!(self.table.slot(slot).item(), line, "the slot has the item");
                assert_ne!(self.table.slot(slot).hash(), NOTHING, "the slot has a value");
                values += 1;
            }
            line += lines;
        }
        assert!(is_hand, "the hand is at a tile");
        assert_eq!(line, state.fresh, "tiles end where fresh lines begin");
        assert!(state.fresh <= state.used && state.used <= self.arena.lines());
        assert_eq!(values, state.values);
        let full = (0..self.table.slots()).filter(|n| self.table.slot(*n).hash() != NOTHING).count();
        assert_eq!(full, values as usize);
    }
}

impl State {
    /// Lines for which memory is asked ahead.
    fn ahead(&self) -> u32 {
        self.used.min(AHEAD_LINES)
    }

    /// Takes lines behind all tiles, if so many may be used.
    fn take_fresh(&mut self, lines: u32, limit: u32) -> Option<u32> {
        let first = self.fresh;
        let end = first.checked_add(lines).filter(|end| *end <= limit)?;
        self.fresh = end;
        self.used = self.used.max(end);
        Some(first)
    }
}
