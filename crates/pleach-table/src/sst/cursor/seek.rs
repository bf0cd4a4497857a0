//! Seeks of a cursor, in steps: each step prefetches the memory that the next one reads, or asks for a block of the file. So
//! several cursors wait together, for memory and for the device. A step to a block that is not in memory waits as a seek of the
//! block's first or last entry.

use std::io;
use std::task::{Poll, Waker, ready};

use pleach_env::{ReadRequest, Result};

use super::{Source, SstCursor};
use crate::block::{DataBlock, Layout, Search};
use crate::frame::{BlockRef, Warmth};
use crate::sst::load::BlockLoad;

/// Which entry a seek looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// The first entry whose key is not below the key sought.
    NotBelow,
    /// The last entry whose key is below the key sought.
    Below,
}

/// What a seek waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekStep {
    /// Nothing: it is done.
    Done,
    /// Memory, which was prefetched.
    Memory,
    /// A block from the file: [`SstCursor::begin_read`] and [`SstCursor::end_read`], or [`SstCursor::read`].
    Read,
}

/// A seek in progress.
pub(super) struct Seek {
    goal: Goal,
    block: u32,
    /// Whether it comes from the neighbouring block, which it has searched.
    goes_on: bool,
    stage: Stage,
}

/// The entry that a seek looks for in its block.
#[derive(Clone, Copy)]
enum Goal {
    Key(Toward),
    First,
    Last,
}

impl Goal {
    /// Whether the walk that follows goes up.
    fn is_up(self) -> bool {
        matches!(self, Goal::Key(Toward::NotBelow) | Goal::First)
    }
}

/// What a seek has prefetched last.
enum Stage {
    /// The block's frame word.
    Word,
    /// The block's frame state and beginning.
    Frame,
    /// Nothing: the block is not in the cache.
    Read,
    /// Nothing: the block, to which a step leads, is not in memory. The read-ahead reads it.
    Step,
    /// The entry to compare next.
    Entry(Layout, Search),
}

impl Seek {
    /// The step to the first or last entry of a block that is not in memory.
    pub(super) fn of_step(block: u32, up: bool) -> Self {
        Self { goal: if up { Goal::First } else { Goal::Last }, block, goes_on: true, stage: Stage::Step }
    }
}

impl SstCursor {
    /// Moves to the first entry whose key is not below `key`; invalid if there is none.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.begin_seek(key, Toward::NotBelow);
        self.finish_seek(key)
    }

    /// Moves to the last entry whose key is below `key`; invalid if there is none.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.begin_seek(key, Toward::Below);
        self.finish_seek(key)
    }

    /// Moves to the first entry.
    pub fn seek_first(&mut self) -> Result<()> {
        self.begin_seek_first();
        self.finish_seek(&[])
    }

    /// Moves to the last entry.
    pub fn seek_last(&mut self) -> Result<()> {
        self.begin_seek_last();
        self.finish_seek(&[])
    }

    fn finish_seek(&mut self, key: &[u8]) -> Result<()> {
        loop {
            match self.continue_seek(key)? {
                SeekStep::Done => return Ok(()),
                SeekStep::Memory => {}
                SeekStep::Read => self.read()?,
            }
        }
    }

    /// Begins a seek. Until [`SstCursor::continue_seek`] returns [`SeekStep::Done`], the cursor is invalid.
    pub fn begin_seek(&mut self, key: &[u8], toward: Toward) {
        self.begin(self.sst.block_for(key), Goal::Key(toward), false);
    }

    /// Begins a seek of the first entry.
    pub fn begin_seek_first(&mut self) {
        self.begin(0, Goal::First, false);
    }

    /// Begins a seek of the last entry.
    pub fn begin_seek_last(&mut self) {
        self.begin(self.sst.blocks() - 1, Goal::Last, false);
    }

    fn begin(&mut self, block: u32, goal: Goal, goes_on: bool) {
        self.place = None;
        self.sst.words.prefetch(block);
        self.seek = Some(Seek { goal, block, goes_on, stage: Stage::Word });
    }

    /// Continues a seek until it must wait for memory or the file.
    ///
    /// Requires: `key` is that of `begin_seek`, if a key is sought.
    #[inline]
    pub fn continue_seek(&mut self, key: &[u8]) -> Result<SeekStep> {
        if let Some(Seek { stage: Stage::Entry(layout, search), .. }) = &mut self.seek {
            DataBlock::with_layout(self.source.bytes(), *layout).narrow(search, key);
            return if search.is_over() { Ok(self.end_seek()) } else { Ok(SeekStep::Memory) };
        }
        self.reach_block(key)
    }

    /// The steps up to the search in the block.
    fn reach_block(&mut self, key: &[u8]) -> Result<SeekStep> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let Some(seek) = &mut self.seek else { return Ok(SeekStep::Done) };
        match &mut seek.stage {
            Stage::Word => {
                if let Source::Cached(_) = self.source {
                    self.sst.cache.prefetch(&self.sst.words, seek.block);
                }
                seek.stage = Stage::Frame;
                Ok(SeekStep::Memory)
            }
            Stage::Frame => {
                let (block, up) = (seek.block, seek.goal.is_up());
                match &mut self.source {
                    Source::Cached(blocks) => {
                        let found = blocks.seek_cached(&self.sst, block, up, seek.goes_on);
                        seek.stage = Stage::Read;
                        if !self.keep_error(found)? {
                            return Ok(SeekStep::Read);
                        }
                    }
                    Source::Streaming(stream) => {
                        let loaded = stream.load(&self.sst, block);
                        self.keep_error(loaded)?;
                    }
                }
                Ok(self.search(key))
            }
            // The block was read.
            Stage::Read => Ok(self.search(key)),
            Stage::Entry(..) => unreachable!("the caller searches"),
            Stage::Step => unreachable!("a step is no seek of the caller"),
        }
    }

    /// Begins to read what the scan wants behind the block that the seek waits for, in the background.
    ///
    /// Requires: [`SstCursor::continue_seek`] returned [`SeekStep::Read`], here and below.
    pub fn read_ahead(&mut self) {
        let (block, up) = self.sought();
        if let Source::Cached(blocks) = &mut self.source {
            blocks.read_ahead(&self.sst, block, up);
        }
    }

    /// The read of the block that the seek waits for.
    pub fn begin_read(&self, tag: u64) -> ReadRequest<'_, BlockLoad> {
        self.sst.begin_load(self.wanted(), Warmth::Warm, tag)
    }

    /// Takes what the read returned. The seek continues.
    pub fn end_read(&mut self, read: io::Result<BlockLoad>) -> Result<()> {
        let block = self.wanted();
        let loaded = self.sst.finish_load(block, read);
        self.take_block(loaded)
    }

    /// Reads the block that the seek waits for, and with it what the scan wants behind it.
    pub fn read(&mut self) -> Result<()> {
        let (block, up) = self.sought();
        let Source::Cached(blocks) = &mut self.source else { unreachable!("a stream reads for itself") };
        let read = blocks.read_sought(&self.sst, block, up);
        self.keep_error(read)
    }

    /// Number of the block that the seek waits for.
    pub fn wanted(&self) -> u32 {
        self.sought().0
    }

    /// The block that the seek waits for, and whether the walk that follows goes up.
    fn sought(&self) -> (u32, bool) {
        let seek = self.seek.as_ref().expect("a seek waits for a block");
        (seek.block, seek.goal.is_up())
    }

    /// Takes the block that the seek waits for, or the error of its read. The seek continues.
    pub fn take_block(&mut self, loaded: Result<BlockRef>) -> Result<()> {
        let loaded = self.keep_error(loaded)?;
        match &mut self.source {
            Source::Cached(blocks) => blocks.seek_to(loaded),
            Source::Streaming(_) => unreachable!("a stream reads for itself"),
        }
        Ok(())
    }

    /// Whether the cursor is invalid because [`SstCursor::try_next`], [`SstCursor::try_prev`] or [`SstCursor::step_to_file`]
    /// leads to a block that is not in memory. [`SstCursor::wait`] or [`SstCursor::poll_step`] complete the step.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        matches!(self.seek, Some(Seek { stage: Stage::Step, .. }))
    }

    /// Completes a step that waits, if there is one. Reads the block by a window of the read-ahead, or waits for the window.
    #[inline]
    pub fn wait(&mut self) -> Result<()> {
        if self.is_waiting() { self.wait_for_step() } else { Ok(()) }
    }

    #[cold]
    fn wait_for_step(&mut self) -> Result<()> {
        let block = self.wanted();
        let Source::Cached(blocks) = &mut self.source else { unreachable!("a stream reads for itself") };
        let arrived = blocks.wait(&self.sst, block);
        self.end_step(arrived)
    }

    /// As [`SstCursor::wait`], for a task: the block is read by the service of the scan's hints, and `waker` is woken when the
    /// task should poll again. The cursor keeps the read when it is not polled again.
    pub fn poll_step(&mut self, waker: &Waker) -> Poll<Result<()>> {
        if !self.is_waiting() {
            return Poll::Ready(Ok(()));
        }
        let block = self.wanted();
        let Source::Cached(blocks) = &mut self.source else { unreachable!("a stream reads for itself") };
        let arrived = ready!(blocks.poll(&self.sst, block, waker));
        Poll::Ready(self.end_step(arrived))
    }

    fn end_step(&mut self, arrived: Result<()>) -> Result<()> {
        if arrived.is_err() {
            self.seek = None;
        }
        self.keep_error(arrived)?;
        self.search(&[]);
        Ok(())
    }

    /// Starts the search in the block.
    fn search(&mut self, key: &[u8]) -> SeekStep {
        let Some(seek) = &mut self.seek else { unreachable!("the caller has seen it") };
        let layout = Layout::of(self.source.bytes());
        let rank = match seek.goal {
            Goal::Key(_) => {
                let search = DataBlock::with_layout(self.source.bytes(), layout).search(key);
                seek.stage = Stage::Entry(layout, search);
                return if search.is_over() { self.end_seek() } else { SeekStep::Memory };
            }
            Goal::First => 0,
            Goal::Last => layout.count() - 1,
        };
        let block = seek.block;
        self.seek = None;
        self.enter(block, layout, rank);
        SeekStep::Done
    }

    /// Moves to the entry that the search found, or goes on in the neighbouring block.
    fn end_seek(&mut self) -> SeekStep {
        let Some(Seek { goal: Goal::Key(toward), block, stage: Stage::Entry(layout, search), .. }) =
            self.seek.take()
        else {
            unreachable!("only a search ends a seek")
        };
        let rank = search.answer();
        match toward {
            Toward::NotBelow if rank < layout.count() => self.enter(block, layout, rank),
            Toward::Below if rank > 0 => self.enter(block, layout, rank - 1),
            Toward::NotBelow if block + 1 < self.sst.blocks() => self.begin(block + 1, Goal::First, true),
            Toward::Below if block > 0 => self.begin(block - 1, Goal::Last, true),
            Toward::NotBelow | Toward::Below => {}
        }
        if self.seek.is_none() { SeekStep::Done } else { SeekStep::Memory }
    }
}
