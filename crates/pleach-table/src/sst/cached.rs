//! Blocks read one after the other through the cache: for range scans.
//!
//! The first block of a walk counts as a use of the cache; the following blocks are admitted cold. A walk that goes on to a
//! neighbouring block reads several blocks at once, and more with each read. They stay pinned until the walk has passed them.
//! Once the walk is long, the next blocks are prefetched.

use pleach_env::Result;

use super::reader::Sst;
use crate::frame::{BlockRef, Warmth};

/// Bytes of the first read ahead: a device takes hardly longer for them than for one block.
const AHEAD_LEN_MIN: u64 = 16 << 10;
/// Bytes of a read ahead at most. A walk that reads so much prefetches the next bytes too.
const AHEAD_LEN_MAX: u64 = 256 << 10;

/// The current block of a walk and those read ahead.
#[derive(Default)]
pub(super) struct CachedBlocks {
    current: Option<BlockRef>,
    number: u32,
    ahead: Vec<(u32, BlockRef)>,
    ahead_len: u64,
}

impl CachedBlocks {
    /// Bytes of the current block; none before the first.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.current.as_deref().unwrap_or_default()
    }

    /// The current block, pinned.
    #[inline]
    pub(super) fn current(&self) -> BlockRef {
        self.current.clone().expect("only a valid cursor has a block")
    }

    /// Makes `block`, which a seek looks for, the current one if it is in the cache. Returns whether it is.
    pub(super) fn seek_cached(&mut self, sst: &Sst, block: u32) -> bool {
        let Some(found) = sst.cached_block(block) else { return false };
        self.seek_to(block, found);
        true
    }

    /// Makes `block`, which a seek looks for, the current one.
    pub(super) fn seek_to(&mut self, block: u32, found: BlockRef) {
        self.number = block;
        self.ahead_len = AHEAD_LEN_MIN;
        self.current = Some(found);
    }

    /// Makes `block` the current one. `adjacent`: it is a neighbour of the one before.
    #[inline]
    pub(super) fn load(&mut self, sst: &Sst, block: u32, adjacent: bool) -> Result<()> {
        let forward = block >= self.number;
        self.number = block;
        self.current = None;
        self.current = Some(if adjacent {
            self.find(sst, block, forward)?
        } else {
            self.ahead_len = AHEAD_LEN_MIN;
            sst.read_block(block)?
        });
        Ok(())
    }

    /// The next block of a walk.
    fn find(&mut self, sst: &Sst, block: u32, forward: bool) -> Result<BlockRef> {
        if let Some(at) = self.ahead.iter().position(|(no, _)| *no == block) {
            return Ok(self.ahead.swap_remove(at).1);
        }
        match sst.cache.lookup(&sst.words, block, false) {
            Some(block) => Ok(block),
            None => self.read_ahead(sst, block, forward),
        }
    }

    /// Reads the block and uncached neighbours in the walk's direction at once.
    fn read_ahead(&mut self, sst: &Sst, block: u32, forward: bool) -> Result<BlockRef> {
        self.ahead.clear();
        let (mut first, mut last) = (block, block);
        let (mut start, len) = sst.block_extent(block);
        let mut end = start + u64::from(len);
        loop {
            let next = if forward {
                last.checked_add(1).filter(|&no| no < sst.blocks())
            } else {
                first.checked_sub(1)
            };
            let Some(next) = next else { break };
            let (offset, len) = sst.block_extent(next);
            let (new_start, new_end) = (start.min(offset), end.max(offset + u64::from(len)));
            if new_end - new_start > self.ahead_len || sst.cache.lookup(&sst.words, next, false).is_some() {
                break;
            }
            (start, end, first, last) = (new_start, new_end, first.min(next), last.max(next));
        }
        let is_long = self.ahead_len == AHEAD_LEN_MAX;
        self.ahead_len = (self.ahead_len * 2).min(AHEAD_LEN_MAX);
        if first == last {
            return sst.load_block(block, Warmth::Cold);
        }
        let bytes =
            sst.read(start, usize::try_from(end - start).expect("at most AHEAD_LEN_MAX and a block"))?;
        if is_long {
            let next = if forward {
                end..(end + self.ahead_len).min(sst.data_end())
            } else {
                start.saturating_sub(self.ahead_len)..start
            };
            sst.prefetch(next);
        }
        for no in first..=last {
            let (offset, len) = sst.block_extent(no);
            let at = usize::try_from(offset - start).expect("inside the bytes read");
            match sst.admit(no, &bytes[at..at + len as usize], Warmth::Cold) {
                Ok(admitted) => self.ahead.push((no, admitted)),
                Err(error) if no == block => return Err(error),
                // If the cursor gets there, the block is read again and the error returned.
                Err(_) => {}
            }
        }
        let at = self.ahead.iter().position(|(no, _)| *no == block).expect("admitted above");
        Ok(self.ahead.swap_remove(at).1)
    }
}
