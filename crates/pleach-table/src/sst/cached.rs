//! Blocks read one after the other through the cache: for range scans.
//!
//! The first block of a walk counts as a use of the cache. A walk that goes on to a neighbouring block that is not cached reads
//! several at once ([`ReadAhead`]). Those of a short walk are admitted cold when the walk reaches them. A long walk leaves the cache alone: it
//! checks each block once and uses it in the buffer that it was read into. Blocks that are in the cache are used there.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use pleach_env::Result;

use super::load::decompress;
use super::read_ahead::{ReadAhead, ReadWindow};
use super::reader::Sst;
use super::scan_hints::CursorHints;
use crate::codec::Codec;
use crate::frame::{AlignedBuffer, BlockRef, Warmth};
use crate::sizes::HEADER_LEN;

/// The current block of a walk, and those read ahead.
#[derive(Default)]
pub(super) struct CachedBlocks {
    current: Current,
    /// A copy of the current block, made when a value of it is to outlive it. Empty if the current block is one by itself.
    pinned: OnceLock<BlockRef>,
    window: Option<ReadWindow>,
    /// The current block, if it was compressed in the window.
    uncompressed: Vec<u8>,
    hints: Option<CursorHints>,
    /// Made when the walk goes on to a neighbouring block.
    ahead: Option<Box<ReadAhead>>,
}

/// Where the current block is.
#[derive(Default)]
enum Current {
    #[default]
    Nowhere,
    Cached(BlockRef),
    InWindow(Range<usize>),
    Uncompressed,
}

impl CachedBlocks {
    pub(super) fn new(hints: Option<CursorHints>) -> Self {
        Self { hints, ..Self::default() }
    }

    /// Bytes of the current block; none before the first.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match (&self.current, &self.window) {
            (Current::Cached(block), _) => block,
            (Current::InWindow(range), Some(read)) => &read.window.bytes()[range.clone()],
            (Current::Uncompressed, _) => &self.uncompressed,
            _ => &[],
        }
    }

    /// The current block, pinned.
    #[inline]
    pub(super) fn pin(&self) -> BlockRef {
        match &self.current {
            Current::Cached(block) => block.clone(),
            _ => self.pinned.get_or_init(|| BlockRef::heap(AlignedBuffer::copy_of(self.bytes()))).clone(),
        }
    }

    /// Makes `block`, which a seek looks for, the current one if it is in the cache. Returns whether it is. A walk that wants
    /// more entries than the block has begins to read ahead.
    pub(super) fn seek_cached(&mut self, sst: &Arc<Sst>, block: u32, forward: bool) -> bool {
        (self.window, self.ahead) = (None, None);
        if let Some(hints) = self.hints.as_ref().filter(|hints| hints.entries > 0) {
            let mut ahead = ReadAhead::new(sst, Some(hints), block, forward);
            ahead.look_ahead(sst, block);
            self.ahead = Some(Box::new(ahead));
        }
        let Some(found) = sst.cached_block(block) else { return false };
        self.seek_to(found);
        true
    }

    /// Makes `found`, the block that a seek looks for, the current one.
    pub(super) fn seek_to(&mut self, found: BlockRef) {
        self.set(Current::Cached(found));
    }

    fn set(&mut self, current: Current) {
        self.current = current;
        if self.pinned.get().is_some() {
            self.pinned = OnceLock::new();
        }
    }

    /// Goes on in the next file of the walk, of which `block` is the first that it comes to.
    pub(super) fn step_to_file(&mut self, sst: &Arc<Sst>, block: u32, forward: bool) -> Result<()> {
        self.set(Current::Nowhere);
        let window = self.window.take();
        self.ahead = self.ahead.take().map(|mut ahead| {
            if let Some(read) = window {
                ahead.recycle(read.window);
            }
            Box::new(ahead.in_next_file(sst, block))
        });
        self.step_to(sst, block, forward)
    }

    /// Makes `block`, the next one of the walk, the current one.
    pub(super) fn step_to(&mut self, sst: &Arc<Sst>, block: u32, forward: bool) -> Result<()> {
        self.set(Current::Nowhere);
        if self.ahead.as_ref().is_none_or(|ahead| ahead.is_forward() != forward) {
            self.ahead = Some(Box::new(ReadAhead::new(sst, self.hints.as_ref(), block, forward)));
        }
        self.current = match sst.cache.lookup(&sst.words, block, false) {
            Some(block) => Current::Cached(block),
            None => self.read(sst, block)?,
        };
        if let Some(ahead) = &mut self.ahead {
            ahead.look_ahead(sst, block);
        }
        Ok(())
    }

    /// The block, from a window.
    fn read(&mut self, sst: &Arc<Sst>, block: u32) -> Result<Current> {
        let ahead = self.ahead.as_mut().expect("a step has made it");
        if self.window.as_ref().is_none_or(|read| !read.window.span.covers(block)) {
            if let Some(read) = self.window.take() {
                ahead.recycle(read.window);
            }
            self.window = Some(ahead.window(sst, block)?);
        }
        let ReadWindow { window, admits } = self.window.as_ref().expect("just read");
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
