//! Arena: the memory of a shard, tiled by items and holes.
//!
//! An *item* is a header and the bytes of a value. It takes whole lines of 64 bytes. A *hole* is a header and lines that no
//! value uses. The shard knows where tiles begin.
//!
//! # Concurrency
//! Tiles are changed by the thread that holds the lock of the shard. The bytes and the header of an item that has a slot are
//! written only while the slot is locked, and read by others only while it is pinned. A slot that was locked before the lock of
//! the shard was given back lets its thread write the bytes afterwards.

#![expect(
    unsafe_code,
    reason = "values are shared between readers and replaced by writers, as their slots allow"
)]

use std::ptr::NonNull;

use pleach_env::memory::{Region, discard, populate, prefetch};

/// Bytes of a line: the unit of an item's length, and a line of the processor's cache.
pub(super) const LINE: usize = 64;

const PAGE: usize = 4096;

/// Lines at the beginning of a value that are prefetched. The processor fetches those behind by itself.
const HEAD_LINES: usize = 2;

/// The slot of a hole.
const NO_SLOT: u32 = u32::MAX;

/// The beginning of a tile.
#[derive(Clone, Copy)]
#[repr(C)]
struct Header {
    /// Which value it is.
    place: u64,
    /// Number of the item's slot, or [`NO_SLOT`].
    slot: u32,
    /// Bytes of the value; of a hole, its lines.
    len: u32,
}

impl Header {
    #[inline]
    fn lines(self) -> u32 {
        if self.slot == NO_SLOT { self.len } else { lines_of(self.len as usize) }
    }
}

const HEADER: usize = size_of::<Header>();

/// Lines of an item with a value of `len` bytes.
#[inline]
pub(super) fn lines_of(len: usize) -> u32 {
    u32::try_from((HEADER + len).div_ceil(LINE)).expect("values are at most VALUE_LEN_MAX")
}

/// See the module's text.
pub(super) struct Arena {
    memory: Region,
}

impl Arena {
    /// An arena of `lines`; `None` if the process may not have so many addresses.
    ///
    /// Requires: `lines` is not zero.
    pub(super) fn try_new(lines: u32) -> Option<Self> {
        let bytes = (lines as usize * LINE).next_multiple_of(PAGE);
        Some(Self { memory: Region::try_new_lazy(bytes)? })
    }

    /// Lines that it has.
    pub(super) fn lines(&self) -> u32 {
        u32::try_from(self.memory.len() / LINE).expect("a shard has less than 256 GiB")
    }

    /// Asks the system for the memory of some lines. The bytes do not change.
    pub(super) fn populate(&self, lines: std::ops::Range<u32>) {
        populate(&self.memory, lines.start as usize * LINE..lines.end as usize * LINE);
    }

    /// Address of `lines` lines.
    #[inline]
    fn at(&self, line: u32, lines: u32) -> NonNull<u8> {
        let (start, len) = (line as usize * LINE, lines as usize * LINE);
        assert!(start + len <= self.memory.len(), "the tile is in the arena");
        // SAFETY: the offset is inside of the region, by the check above.
        unsafe { self.memory.start().add(start) }
    }

    #[inline]
    fn header(&self, line: u32) -> Header {
        // SAFETY: a whole line is there, aligned to 64. Any bytes are a header. Nobody writes it meanwhile: the caller holds the
        // lock of the shard or a pin.
        unsafe { self.at(line, 1).cast::<Header>().read() }
    }

    fn set_header(&self, line: u32, header: Header) {
        // SAFETY: as above. Nobody else reads or writes it meanwhile: the caller holds the lock of the shard, and the slot of the
        // item is locked or there is none.
        unsafe { self.at(line, 1).cast::<Header>().write(header) }
    }

    /// Lines of the tile at `line`, and the slot of its value unless it is a hole.
    ///
    /// Requires: the caller holds the lock of the shard, and a tile begins at `line`.
    pub(super) fn tile(&self, line: u32) -> (u32, Option<u32>) {
        let header = self.header(line);
        (header.lines(), (header.slot != NO_SLOT).then_some(header.slot))
    }

    /// Makes the lines a hole.
    ///
    /// Requires: the caller holds the lock of the shard, and no value uses the lines.
    pub(super) fn make_hole(&self, line: u32, lines: u32) {
        if lines > 0 {
            self.set_header(line, Header { place: 0, slot: NO_SLOT, len: lines });
        }
    }

    /// Begins the item of the value of this place and `len` bytes, without its bytes.
    ///
    /// Requires: as [`Arena::make_hole`]; the caller has locked the slot.
    pub(super) fn make_item(&self, line: u32, slot: u32, place: u64, len: u32) {
        self.set_header(line, Header { place, slot, len });
    }

    /// Changes the slot of an item.
    ///
    /// Requires: as [`Arena::make_item`].
    pub(super) fn set_slot(&self, line: u32, slot: u32) {
        self.set_header(line, Header { slot, ..self.header(line) });
    }

    /// Writes the bytes of an item.
    ///
    /// Requires: the caller has locked its slot and has begun it with the length of `bytes`.
    pub(super) fn write(&self, line: u32, bytes: &[u8]) {
        let item = self.at(line, lines_of(bytes.len()));
        // SAFETY: header and bytes are inside of the arena, by the check in `at`; `bytes` is no part of it, because it may be
        // read and nobody may read the item. Nobody else accesses the item: its slot is locked.
        unsafe { item.add(HEADER).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) }
    }

    /// Moves an item to lines in front of it, which it may overlap.
    ///
    /// Requires: as [`Arena::make_hole`] of the lines from `to` to the item; the caller has locked the slot.
    pub(super) fn move_down(&self, from: u32, to: u32) {
        let lines = self.header(from).lines();
        let (source, target) = (self.at(from, lines), self.at(to, lines));
        // SAFETY: both are inside of the arena, by the check in `at`. Nobody else accesses the item or the lines.
        unsafe { source.copy_to(target, lines as usize * LINE) }
    }

    /// Where the bytes of an item are, and how many, if it is the value of this place, which has `stored_len` bytes or, if it
    /// was packed, more.
    ///
    /// Requires: the caller has pinned its slot.
    #[inline]
    pub(super) fn bytes(&self, line: u32, place: u64, stored_len: u32) -> Option<(NonNull<u8>, u32)> {
        let header = self.header(line);
        // The length that is looked for may be any: a newer value of the key may be longer than the arena.
        (header.place == place && header.len >= stored_len).then(|| {
            let item = self.at(line, header.lines());
            // SAFETY: the item is inside of the arena, by the check in `at`, and begins with its header.
            (unsafe { item.add(HEADER) }, header.len)
        })
    }

    /// Prefetches the first lines of an item.
    #[inline]
    pub(super) fn prefetch(&self, line: u32) {
        let item = self.memory.start().as_ptr().wrapping_add(line as usize * LINE);
        (0..HEAD_LINES).for_each(|line| prefetch(item.wrapping_add(line * LINE)));
    }

    /// Prefetches the last line of an item with a value of `len` bytes.
    #[inline]
    pub(super) fn prefetch_end(&self, line: u32, len: u32) {
        let item = self.memory.start().as_ptr().wrapping_add(line as usize * LINE);
        prefetch(item.wrapping_add(HEADER + len as usize - 1));
    }

    /// Gives the memory of the whole pages among some lines back to the system.
    ///
    /// Requires: as [`Arena::make_hole`]; no header is in the pages.
    pub(super) fn discard(&self, lines: std::ops::Range<u32>) {
        let start = (lines.start as usize * LINE).next_multiple_of(PAGE);
        let end = lines.end as usize * LINE / PAGE * PAGE;
        assert!(end <= self.memory.len(), "the lines are in the arena");
        if start < end {
            // SAFETY: the pages are inside of the arena, by the check above. Nobody else accesses them: the caller holds the
            // lock of the shard, and no value uses them.
            discard(unsafe {
                std::slice::from_raw_parts_mut(self.memory.start().as_ptr().add(start), end - start)
            });
        }
    }
}
