//! Blocks read one after the other through the cache: for range scans.
//!
//! The block a walk begins with counts as a use; what follows is admitted cold. After a few neighbouring blocks, more of
//! them are read at once, ever more, and stay pinned until the walk has passed them.

use pleach_env::Result;

use super::reader::Sst;
use crate::frame::{BlockRef, Warmth};

/// Blocks passed in one direction before the cursor reads ahead.
const PATIENCE: u32 = 2;
/// Bytes read ahead at first, and at most.
const AHEAD_LEN_MIN: u64 = 32 << 10;
const AHEAD_LEN_MAX: u64 = 256 << 10;

/// See the module's text.
#[derive(Default)]
pub(super) struct CachedBlocks {
    current: Option<BlockRef>,
    number: u32,
    /// Neighbouring blocks entered one after the other.
    passed: u32,
    ahead: Vec<(u32, BlockRef)>,
    ahead_len: u64,
}

impl CachedBlocks {
    /// Bytes of the current block; none before the first.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.current.as_deref().unwrap_or_default()
    }

    /// The current block, to be kept.
    pub(super) fn current(&self) -> BlockRef {
        self.current.clone().expect("only a valid cursor has a block")
    }

    /// Makes `block` the current one; `adjacent` says that it is a neighbour of the one before.
    pub(super) fn load(&mut self, sst: &Sst, block: u32, adjacent: bool) -> Result<()> {
        let forward = block >= self.number;
        (self.passed, self.ahead_len) =
            if adjacent { (self.passed + 1, self.ahead_len) } else { (0, AHEAD_LEN_MIN) };
        self.number = block;
        self.current = None;
        self.current = Some(self.find(sst, block, forward)?);
        Ok(())
    }

    fn find(&mut self, sst: &Sst, block: u32, forward: bool) -> Result<BlockRef> {
        if let Some(at) = self.ahead.iter().position(|(no, _)| *no == block) {
            return Ok(self.ahead.swap_remove(at).1);
        }
        if self.passed == 0 {
            return sst.read_block(block);
        }
        if let Some(block) = sst.cache.lookup(&sst.words, block, false) {
            return Ok(block);
        }
        if self.passed < PATIENCE {
            return sst.load_block(block, Warmth::Cold);
        }
        self.read_ahead(sst, block, forward)
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
        self.ahead_len = (self.ahead_len * 2).min(AHEAD_LEN_MAX);
        if first == last {
            return sst.load_block(block, Warmth::Cold);
        }
        let bytes =
            sst.read(start, usize::try_from(end - start).expect("at most AHEAD_LEN_MAX and a block"))?;
        for no in first..=last {
            let (offset, len) = sst.block_extent(no);
            let at = usize::try_from(offset - start).expect("inside the bytes read");
            match sst.admit(no, &bytes[at..at + len as usize], Warmth::Cold) {
                Ok(admitted) => self.ahead.push((no, admitted)),
                Err(error) if no == block => return Err(error),
                // It will be read again, and the error told, if the cursor gets there.
                Err(_) => {}
            }
        }
        let at = self.ahead.iter().position(|(no, _)| *no == block).expect("admitted above");
        Ok(self.ahead.swap_remove(at).1)
    }
}
