//! Seeks of a cursor, in steps: each step prefetches the memory that the next one reads.

use pleach_env::Result;

use super::{Source, SstCursor};
use crate::block::{DataBlock, Layout, Search};

/// Which entry a seek looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// The first entry whose key is not below the key sought.
    NotBelow,
    /// The last entry whose key is below the key sought.
    Below,
}

/// A seek in progress.
pub(super) struct Seek {
    toward: Toward,
    block: u32,
    prefetch: bool,
    stage: Stage,
}

/// What a seek has prefetched last.
enum Stage {
    /// The block's frame word.
    Word,
    /// The block's frame state and beginning.
    Frame,
    /// The entry to compare next.
    Entry(Layout, Search),
}

impl SstCursor {
    /// Moves to the first entry whose key is not below `key`; invalid if there is none.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.begin_seek(key, Toward::NotBelow, false);
        while !self.continue_seek(key)? {}
        Ok(())
    }

    /// Moves to the last entry whose key is below `key`; invalid if there is none.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.begin_seek(key, Toward::Below, false);
        while !self.continue_seek(key)? {}
        Ok(())
    }

    /// Begins a seek. Until [`SstCursor::continue_seek`] returns `true`, the cursor is invalid. With `prefetch`, a block that is
    /// not cached is prefetched from the file, which pays if other cursors seek at the same time.
    pub fn begin_seek(&mut self, key: &[u8], toward: Toward, prefetch: bool) {
        self.place = None;
        let block = self.sst.block_for(key);
        self.seek = Some(Seek { toward, block, prefetch, stage: Stage::Word });
    }

    /// Continues a seek until it must wait for memory or the device. Returns whether the seek is done.
    ///
    /// Requires: `key` is that of `begin_seek`.
    pub fn continue_seek(&mut self, key: &[u8]) -> Result<bool> {
        let Some(seek) = &mut self.seek else { return Ok(true) };
        match &mut seek.stage {
            Stage::Word => {
                if let Source::Cached(_) = self.source
                    && !self.sst.cache.prefetch(&self.sst.words, seek.block)
                    && seek.prefetch
                {
                    self.sst.prefetch_block(seek.block);
                }
                seek.stage = Stage::Frame;
                Ok(false)
            }
            Stage::Frame => {
                let block = seek.block;
                self.load(block, false)?;
                let view = DataBlock::new(self.source.bytes());
                let search = view.search(key);
                let stage = Stage::Entry(Layout::of(self.source.bytes()), search);
                self.seek.as_mut().expect("seen above").stage = stage;
                if search.is_over() { self.end_seek() } else { Ok(false) }
            }
            Stage::Entry(layout, search) => {
                DataBlock::with_layout(self.source.bytes(), *layout).narrow(search, key);
                if search.is_over() { self.end_seek() } else { Ok(false) }
            }
        }
    }

    /// Moves to the entry that the search found, or into the neighbouring block.
    fn end_seek(&mut self) -> Result<bool> {
        let Some(Seek { toward, block, stage: Stage::Entry(layout, search), .. }) = self.seek.take() else {
            unreachable!("only a search ends a seek")
        };
        let rank = search.answer();
        match toward {
            Toward::NotBelow if rank < layout.count() => self.enter(block, layout, rank),
            Toward::NotBelow if block + 1 < self.sst.blocks() => self.enter_first(block + 1, false)?,
            Toward::Below if rank > 0 => self.enter(block, layout, rank - 1),
            Toward::Below if block > 0 => self.enter_last(block - 1, false)?,
            Toward::NotBelow | Toward::Below => {}
        }
        Ok(true)
    }
}
