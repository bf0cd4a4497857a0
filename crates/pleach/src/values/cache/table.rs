//! Table: the slots of a shard, found by the hash of a key.
//!
//! A line of the processor's cache has four slots. Two neighbouring lines are a *bucket*, where a value can be in any slot. A
//! search begins in the line that the hash says, so it usually reads one line. The table doubles by adding buckets behind
//! the others; it never shrinks, because a reader may still look at any slot.

#![expect(
    unsafe_code,
    reason = "the memory is the system's, so that a large table costs nothing before it is used"
)]

use pleach_env::memory::{Region, prefetch};
use pleach_env::sync::atomic::{AtomicU32, Ordering};

use super::slot::Slot;

/// Slots of a line.
const LINE_SLOTS: u32 = 4;
/// Bytes of a line.
const LINE_BYTES: usize = size_of::<Slot>() * LINE_SLOTS as usize;
const _: () = assert!(LINE_BYTES == 64, "a line of slots is a line of the processor's cache");

/// Lines of a table without values: one bucket.
const LINES_MIN: u32 = 2;

/// See the module's text.
pub(super) struct Table {
    /// Zeroed; the system gives it at its first use.
    memory: Region,
    lines_max: u32,
    /// Lines in use, less one; the number of lines is a power of two. Relaxed: a reader with an older number misses values that
    /// have moved, and all slots always exist.
    mask: AtomicU32,
}

impl Table {
    /// A table that may grow to about `bytes`; `None` if the process may not have so many addresses.
    pub(super) fn try_new(bytes: usize) -> Option<Self> {
        let lines = u32::try_from(bytes / LINE_BYTES).unwrap_or(u32::MAX / LINE_SLOTS);
        let lines_max = (1 << lines.max(LINES_MIN).ilog2()).min(1 << 28);
        let memory = Region::try_new_lazy(lines_max as usize * LINE_BYTES)?;
        Some(Self { memory, lines_max, mask: AtomicU32::new(LINES_MIN - 1) })
    }

    fn lines(&self) -> u32 {
        self.mask.load(Ordering::Relaxed) + 1
    }

    /// Slots in use.
    pub(super) fn slots(&self) -> u32 {
        self.lines() * LINE_SLOTS
    }

    /// Bytes of the slots in use.
    pub(super) fn bytes(&self) -> usize {
        self.lines() as usize * LINE_BYTES
    }

    /// Whether it may have twice as many slots.
    pub(super) fn may_grow(&self) -> bool {
        self.lines() < self.lines_max
    }

    /// Slot `number`.
    #[inline]
    pub(super) fn slot(&self, number: u32) -> &Slot {
        assert!(number < self.lines_max * LINE_SLOTS, "a slot of the table");
        // SAFETY: the region is ours, aligned to 4096, zeroed (any bytes are a valid slot), and it has `lines_max` lines.
        unsafe { self.memory.start().cast::<Slot>().add(number as usize).as_ref() }
    }

    /// The first slots of the two lines of a bucket, the likelier one first.
    #[inline]
    fn lines_of(&self, hash: u64) -> [u32; 2] {
        let line = u32::try_from(hash & u64::from(self.mask.load(Ordering::Relaxed))).expect("masked");
        [line * LINE_SLOTS, (line ^ 1) * LINE_SLOTS]
    }

    /// The slots where a value with this hash can be, the likelier ones first.
    pub(super) fn bucket(&self, hash: u64) -> impl Iterator<Item = u32> + use<> {
        self.lines_of(hash).into_iter().flat_map(|first| first..first + LINE_SLOTS)
    }

    /// Prefetches a bucket.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        for first in self.lines_of(hash) {
            prefetch(std::ptr::from_ref(self.slot(first)).cast());
        }
    }

    /// The first line of the item that a slot seems to have for this hash.
    #[inline]
    pub(super) fn peek(&self, hash: u64) -> Option<u32> {
        self.bucket(hash).map(|number| self.slot(number)).find(|slot| slot.hash() == hash).map(Slot::item)
    }

    /// Finds and pins the slot with this hash that `is_right`.
    #[inline]
    pub(super) fn pin(&self, hash: u64, counts: bool, is_right: impl Fn(&Slot) -> bool) -> Option<&Slot> {
        for number in self.bucket(hash) {
            let slot = self.slot(number);
            if slot.pin(hash, counts) {
                if is_right(slot) {
                    return Some(slot);
                }
                let _the_cache_exists = slot.unpin();
            }
        }
        None
    }

    /// Doubles the slots in use: from now on values whose hash has this bit are in the slots behind the others, as far as they
    /// were before.
    ///
    /// Requires: [`Table::may_grow`]; the values have been moved.
    pub(super) fn grow(&self) {
        self.mask.store(self.lines() * 2 - 1, Ordering::Relaxed);
    }

    /// The slot to which slot `number` moves when the table grows, if it moves.
    pub(super) fn grown(&self, number: u32, hash: u64) -> Option<u32> {
        (hash & u64::from(self.lines()) != 0).then(|| number + self.slots())
    }
}
