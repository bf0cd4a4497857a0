//! A cursor over an SST's entries, in both directions.
//!
//! # Invariants
//! 1. *Errors stay*: once a block could not be read, the cursor is invalid and every move returns that error again; it
//!    never goes on behind a part it has not seen.
//!
//! # Cost
//! A step inside a block copies the key's suffix and nothing else. Cached mode reads ahead once it has passed two
//! blocks in one direction.

use std::ops::Range;
use std::sync::Arc;

use pleach_env::{Error, Result};

use super::cached::CachedBlocks;
use super::reader::Sst;
use super::stream::BlockStream;
use crate::block::{DataBlock, Layout};
use crate::frame::{AlignedBuffer, BlockRef};
use crate::hash::tag_of;
use crate::kind::ValueKind;

/// How a cursor gets its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorMode {
    /// Through the cache.
    Cached,
    /// Through a buffer of 1 MiB, past the cache.
    Streaming {
        /// Whether to drop what has been read from the operating system's cache.
        forget: bool,
    },
}

/// See the module's text.
pub struct SstCursor {
    sst: Arc<Sst>,
    source: Source,
    /// `None` while the cursor is invalid.
    place: Option<Place>,
    key: Vec<u8>,
    error: Option<Error>,
}

/// An entry in a block.
struct Place {
    block: u32,
    layout: Layout,
    i: usize,
    kind: ValueKind,
    value: Range<usize>,
}

enum Source {
    Cached(CachedBlocks),
    Streaming(BlockStream),
}

impl SstCursor {
    /// A cursor that is not valid until it has been moved.
    pub fn new(sst: Arc<Sst>, mode: CursorMode) -> Self {
        let source = match mode {
            CursorMode::Cached => Source::Cached(CachedBlocks::default()),
            CursorMode::Streaming { forget } => Source::Streaming(BlockStream::new(forget)),
        };
        Self { sst, source, place: None, key: Vec::new(), error: None }
    }

    /// The SST it walks over.
    pub fn sst(&self) -> &Arc<Sst> {
        &self.sst
    }

    /// Moves to the first entry.
    pub fn seek_first(&mut self) -> Result<()> {
        self.enter(0, |_| Some(0))
    }

    /// Moves to the last entry.
    pub fn seek_last(&mut self) -> Result<()> {
        self.enter(self.sst.blocks() - 1, |block| Some(block.count() - 1))
    }

    /// Moves to the first entry whose key is not below `key`; invalid if there is none.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let block = self.sst.index.find(key);
        self.enter(block, |block| Some(block.lower_bound(key)).filter(|&i| i < block.count()))?;
        if self.place.is_none() && block + 1 < self.sst.blocks() {
            self.enter(block + 1, |_| Some(0))?;
        }
        Ok(())
    }

    /// Moves to the last entry whose key is below `key`; invalid if there is none.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let block = self.sst.index.find(key);
        self.enter(block, |block| block.lower_bound(key).checked_sub(1))?;
        if self.place.is_none() && block > 0 {
            self.enter(block - 1, |block| Some(block.count() - 1))?;
        }
        Ok(())
    }

    /// Moves to the next entry; invalid behind the last.
    ///
    /// Requires: valid.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a move in one of two directions, not an iteration")]
    pub fn next(&mut self) -> Result<()> {
        let Some(place) = &self.place else { return self.misused() };
        let (block, next) = (place.block, place.i + 1);
        if next < place.layout.count() {
            self.step(next);
            return Ok(());
        }
        if block + 1 == self.sst.blocks() {
            self.place = None;
            return Ok(());
        }
        self.enter(block + 1, |_| Some(0))
    }

    /// Moves to the previous entry; invalid before the first.
    ///
    /// Requires: valid.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        let Some(place) = &self.place else { return self.misused() };
        let block = place.block;
        if let Some(previous) = place.i.checked_sub(1) {
            self.step(previous);
            return Ok(());
        }
        if block == 0 {
            self.place = None;
            return Ok(());
        }
        self.enter(block - 1, |block| Some(block.count() - 1))
    }

    /// A move without a place: the error that took it, or a mistake of the caller.
    #[cold]
    fn misused(&self) -> Result<()> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => panic!("only a valid cursor moves by a step"),
        }
    }

    /// Whether the cursor is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.place.is_some()
    }

    /// Key of the entry. Requires: valid, here and below.
    #[inline]
    pub fn key(&self) -> &[u8] {
        debug_assert!(self.valid(), "only a valid cursor has a key");
        &self.key
    }

    /// Kind of the entry.
    #[inline]
    pub fn kind(&self) -> ValueKind {
        self.here().kind
    }

    /// Value of the entry.
    #[inline]
    pub fn value(&self) -> &[u8] {
        &self.source.bytes()[self.here().value.clone()]
    }

    /// Value of the entry, as a block that outlives the cursor's next move and the value's place in it.
    pub fn value_pin(&self) -> (BlockRef, Range<usize>) {
        match &self.source {
            Source::Cached(blocks) => (blocks.current(), self.here().value.clone()),
            Source::Streaming(_) => {
                let value = self.value();
                let mut copy = AlignedBuffer::zeroed(value.len());
                copy.copy_from_slice(value);
                (BlockRef::heap(copy), 0..value.len())
            }
        }
    }

    /// Number of the block the entry is in.
    pub(super) fn block(&self) -> u32 {
        self.here().block
    }

    /// Whether the entry can be found by its key's hash.
    pub(super) fn is_tagged(&self, hash: u64) -> bool {
        let view = DataBlock::with_layout(self.source.bytes(), self.here().layout);
        view.tag(self.here().i) == tag_of(hash)
    }

    #[inline]
    fn here(&self) -> &Place {
        self.place.as_ref().expect("only a valid cursor has an entry")
    }

    /// Goes to the entry of `block` that `choose` names, if it names one.
    fn enter(&mut self, block: u32, choose: impl FnOnce(DataBlock<'_>) -> Option<usize>) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let adjacent = self.place.take().is_some_and(|place| place.block.abs_diff(block) == 1);
        if let Err(error) = self.source.load(&self.sst, block, adjacent) {
            self.error = Some(error.clone());
            return Err(error);
        }
        let view = DataBlock::new(self.source.bytes());
        let Some(i) = choose(view) else { return Ok(()) };
        self.key.clear();
        self.key.extend_from_slice(view.prefix());
        let layout = Layout::of(self.source.bytes());
        self.place = Some(Place { block, layout, i, kind: ValueKind::Put, value: 0..0 });
        self.step(i);
        Ok(())
    }

    /// Goes to entry `i` of the current block.
    #[inline]
    fn step(&mut self, i: usize) {
        let place = self.place.as_mut().expect("the caller has a place");
        let view = DataBlock::with_layout(self.source.bytes(), place.layout);
        let entry = view.entry(i);
        self.key.truncate(view.prefix().len());
        self.key.extend_from_slice(view.slice(entry.suffix));
        (place.i, place.kind, place.value) = (i, entry.kind, entry.value);
    }
}

impl Source {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Source::Cached(blocks) => blocks.bytes(),
            Source::Streaming(stream) => stream.bytes(),
        }
    }

    fn load(&mut self, sst: &Sst, block: u32, adjacent: bool) -> Result<()> {
        match self {
            Source::Cached(blocks) => blocks.load(sst, block, adjacent),
            Source::Streaming(stream) => stream.load(sst, block),
        }
    }
}
