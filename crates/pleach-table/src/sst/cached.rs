//! Blocks read one after the other through the cache: for range scans.
//!
//! The first block of a walk counts as a use of the cache, unless a window brings it. A walk that goes on to a neighbouring
//! block that is not cached reads several at once ([`ReadAhead`]). The first step reads one block alone if the system has it in
//! memory. Blocks of a short walk are admitted cold when the walk reaches them. A long walk leaves the cache alone: it checks
//! each block once and uses it in the buffer that it was read into. Blocks that are in the cache are used there.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker, ready};

use pleach_env::Result;

use super::load::decompress;
use super::read_ahead::{ReadAhead, ReadWindow};
use super::reader::Sst;
use super::scan_hints::CursorHints;
use crate::codec::Codec;
use crate::frame::{AlignedBuffer, BlockRef, Warmth};
use crate::sizes::HEADER_LEN;

/// The current block of a walk, and those read ahead.
pub(super) struct CachedBlocks {
    current: Current,
    hints: Option<CursorHints>,
    /// Made when the walk goes on to a neighbouring block: most walks that begin with a seek need only one block.
    walk: Option<Box<Walk>>,
}

/// Where the current block is.
enum Current {
    Nowhere,
    Cached(BlockRef),
    /// In the walk's window.
    InWindow(Range<usize>),
    /// In the walk's memory for uncompressed blocks.
    Uncompressed,
}

/// What a walk over neighbouring blocks keeps.
struct Walk {
    ahead: ReadAhead,
    window: Option<ReadWindow>,
    /// The current block, if it was compressed in the window.
    uncompressed: Vec<u8>,
    /// A copy of the current block, made when a value of it is to outlive it. Empty if the current block is in the cache.
    pinned: OnceLock<BlockRef>,
}

impl Walk {
    fn new(ahead: ReadAhead) -> Box<Self> {
        Box::new(Self { ahead, window: None, uncompressed: Vec::new(), pinned: OnceLock::new() })
    }

    /// Whether the window has `block`. If not, the walk is done with it.
    fn has(&mut self, block: u32) -> bool {
        let has = self.window.as_ref().is_some_and(|read| read.window.span.covers(block));
        if !has && let Some(read) = self.window.take() {
            self.ahead.recycle(read.window);
        }
        has
    }

    /// Takes `block` from the window, and checks it.
    ///
    /// Requires: the window has it.
    fn take(&mut self, sst: &Arc<Sst>, block: u32) -> Result<Current> {
        let ReadWindow { window, admits } = self.window.as_ref().expect("the caller has looked");
        let place = window.place(sst, block);
        let stored = &window.bytes()[place.clone()];
        if *admits {
            return sst.admit(block, stored, Warmth::Cold).map(Current::Cached);
        }
        if sst.codec == Codec::None {
            sst.check_uncompressed(block, stored)?;
            return Ok(Current::InWindow(place));
        }
        let (header, payload) = sst.check_stored(block, stored)?;
        self.uncompressed.resize(HEADER_LEN + header.raw_len as usize, 0);
        let decompressed = decompress(&header, payload, &mut self.uncompressed);
        decompressed.map_err(|m| sst.damaged(sst.block_extent(block).0, m))?;
        Ok(Current::Uncompressed)
    }
}

impl CachedBlocks {
    pub(super) fn new(hints: Option<CursorHints>) -> Self {
        Self { current: Current::Nowhere, hints, walk: None }
    }

    /// Bytes of the current block; none before the first.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        if let Current::Cached(block) = &self.current { block } else { self.walk_bytes() }
    }

    /// Bytes of the current block, if it is not in the cache.
    fn walk_bytes(&self) -> &[u8] {
        match (&self.current, &self.walk) {
            (Current::InWindow(range), Some(walk)) => {
                walk.window.as_ref().map_or(&[], |read| &read.window.bytes()[range.clone()])
            }
            (Current::Uncompressed, Some(walk)) => &walk.uncompressed,
            _ => &[],
        }
    }

    /// The current block, pinned. Requires: there is one.
    #[inline]
    pub(super) fn pin(&self) -> BlockRef {
        if let Current::Cached(block) = &self.current { block.clone() } else { self.pin_copy() }
    }

    /// A copy of the current block, which is not in the cache.
    fn pin_copy(&self) -> BlockRef {
        let walk = self.walk.as_ref().expect("only a walk has blocks outside the cache");
        walk.pinned.get_or_init(|| BlockRef::heap(AlignedBuffer::copy_of(self.bytes()))).clone()
    }

    /// Makes `block`, which a seek looks for, the current one if it is in memory. Returns whether it is. A seek that `goes_on`
    /// from the neighbouring block keeps what was read with that.
    pub(super) fn seek_cached(
        &mut self,
        sst: &Arc<Sst>,
        block: u32,
        forward: bool,
        goes_on: bool,
    ) -> Result<bool> {
        if !goes_on {
            self.walk = None;
        }
        if let Some(found) = sst.cached_block(block) {
            self.seek_to(found);
            if self.walk.is_none()
                && let Some(hints) = self.hints.as_ref().filter(|hints| hints.entries > 0)
            {
                self.begin_walk(sst, ReadAhead::new(sst, Some(hints), block, forward), block);
            }
            return Ok(true);
        }
        self.current = Current::Nowhere;
        let Some(walk) = &mut self.walk else { return Ok(false) };
        if !walk.has(block) {
            return Ok(false);
        }
        self.current = walk.take(sst, block)?;
        walk.ahead.look_ahead(sst, block);
        Ok(true)
    }

    /// Begins to read what a walk wants behind `block`, which a seek looks for and which is not in memory.
    pub(super) fn read_ahead(&mut self, sst: &Arc<Sst>, block: u32, forward: bool) {
        if self.walk.is_none()
            && let Some(ahead) = self.ahead_of_seek(sst, block, forward)
        {
            self.begin_walk(sst, ahead, block);
        }
    }

    fn ahead_of_seek(&self, sst: &Sst, block: u32, forward: bool) -> Option<ReadAhead> {
        self.hints.as_ref().and_then(|hints| ReadAhead::of_seek(sst, hints, block, forward))
    }

    fn begin_walk(&mut self, sst: &Arc<Sst>, mut ahead: ReadAhead, block: u32) {
        ahead.look_ahead(sst, block);
        self.walk = Some(Walk::new(ahead));
    }

    /// Reads `block`, which a seek looks for and which is not in memory. What the walk wants behind it comes by the same
    /// request: a device takes less time for one than for two.
    pub(super) fn read_sought(&mut self, sst: &Arc<Sst>, block: u32, forward: bool) -> Result<()> {
        if self.walk.is_none() {
            self.walk = self.ahead_of_seek(sst, block, forward).map(Walk::new);
        }
        let Some(walk) = &mut self.walk else {
            self.seek_to(sst.load_block(block, Warmth::Warm)?);
            return Ok(());
        };
        let read = walk.ahead.window(sst, block)?;
        self.arrive(sst, block, read)
    }

    /// Makes `found`, the block that a seek looks for, the current one.
    pub(super) fn seek_to(&mut self, found: BlockRef) {
        self.current = Current::Cached(found);
    }

    /// Takes the current block of `other`, without what that has read ahead.
    ///
    /// Requires: `other` has a block.
    pub(super) fn share(&mut self, other: &Self) {
        self.walk = None;
        self.seek_to(other.pin());
    }

    /// Forgets the current block and what was read ahead.
    pub(super) fn forget(&mut self) {
        (self.current, self.walk) = (Current::Nowhere, None);
    }

    /// Goes on in the next file of the walk.
    pub(super) fn enter_next_file(&mut self, sst: &Arc<Sst>, forward: bool) {
        let block = if forward { 0 } else { sst.blocks() - 1 };
        self.current = Current::Nowhere;
        self.walk = self.walk.take().map(|walk| {
            let Walk { mut ahead, window, .. } = *walk;
            if let Some(read) = window {
                ahead.recycle(read.window);
            }
            Walk::new(ahead.in_next_file(sst, block))
        });
    }

    /// Makes `block`, the next one of the walk, the current one, if it is in memory. Returns whether it is; if not, the walk
    /// stays on no block until [`CachedBlocks::wait`] or [`CachedBlocks::poll`] has brought it.
    pub(super) fn step_to(&mut self, sst: &Arc<Sst>, block: u32, forward: bool) -> Result<bool> {
        self.current = Current::Nowhere;
        let begin = || ReadAhead::new(sst, self.hints.as_ref(), block, forward);
        let walk = self.walk.get_or_insert_with(|| Walk::new(begin()));
        if walk.ahead.is_forward() != forward {
            walk.ahead = begin();
        }
        walk.pinned.take();
        self.current = match sst.cache.lookup(&sst.words, block, false) {
            Some(block) => Current::Cached(block),
            None if walk.has(block) => walk.take(sst, block)?,
            None => return Ok(false),
        };
        walk.ahead.look_ahead(sst, block);
        Ok(true)
    }

    /// Reads `block`, to which a step leads, by a window, or waits for the window.
    ///
    /// Requires: the last call of [`CachedBlocks::step_to`] wanted the block and returned `false`.
    pub(super) fn wait(&mut self, sst: &Arc<Sst>, block: u32) -> Result<()> {
        if self.take_resident(sst, block)? {
            return Ok(());
        }
        let read = self.walk().ahead.window(sst, block)?;
        self.arrive(sst, block, read)
    }

    /// As [`CachedBlocks::wait`], for a task.
    pub(super) fn poll(&mut self, sst: &Arc<Sst>, block: u32, waker: &Waker) -> Poll<Result<()>> {
        if self.take_resident(sst, block)? {
            return Poll::Ready(Ok(()));
        }
        let read = ready!(self.walk().ahead.poll_window(sst, block, waker))?;
        Poll::Ready(self.arrive(sst, block, read))
    }

    /// Ends the first step of a walk that may be short, if the system has `block` in memory: reading one block is then cheaper
    /// than reading a window. Returns whether it has.
    fn take_resident(&mut self, sst: &Arc<Sst>, block: u32) -> Result<bool> {
        if !self.walk().ahead.begin_alone(block) {
            return Ok(false);
        }
        let Some(loaded) = sst.load_resident(block) else { return Ok(false) };
        self.current = Current::Cached(loaded?);
        Ok(true)
    }

    fn walk(&mut self) -> &mut Walk {
        self.walk.as_mut().expect("a step begins a walk")
    }

    /// Goes to `block`, which a window has brought.
    fn arrive(&mut self, sst: &Arc<Sst>, block: u32, read: ReadWindow) -> Result<()> {
        let walk = self.walk();
        walk.window = Some(read);
        let taken = walk.take(sst, block)?;
        walk.ahead.look_ahead(sst, block);
        self.current = taken;
        Ok(())
    }
}
