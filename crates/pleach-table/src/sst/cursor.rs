//! A cursor over an SST's entries, in both directions.
//!
//! # Invariants
//! 1. *Errors stay*: if a block cannot be read, the cursor is invalid and every later move returns that error. So it never
//!    skips entries.
//!
//! # Cost
//! A step inside a block copies only the key's suffix. Cached mode reads ahead once it has passed a block. A cached seek
//! waits for memory about eight times: for the frame word, for the frame, and for one comparison per halving of the block.
//! [`SstCursor::begin_seek`] and [`SstCursor::continue_seek`] return at each wait, so that several cursors wait together.
//! [`SstCursor::try_next`] returns where the next block is not in memory, so that a task can wait for it.

use std::ops::Range;
use std::sync::Arc;

use pleach_env::{Error, Result};

use super::cached::CachedBlocks;
use super::key_buffer::KeyBuffer;
use super::reader::Sst;
use super::scan_hints::CursorHints;
use super::stream::BlockStream;
use crate::block::{DataBlock, Layout};
use crate::frame::{AlignedBuffer, BlockRef};
use crate::value_kind::ValueKind;
use crate::value_place::ValuePlace;

use seek::Seek;
pub use seek::{SeekStep, Toward};

mod seek;

/// How many bytes behind its entry a cursor prefetches: about one small entry.
const AHEAD: usize = 64;

/// How many entries before its entry a cursor on its way down prefetches (arbitrary).
const BEFORE: usize = 2;

/// How many entries before a block's end a cursor prefetches the next block (arbitrary).
const NEAR_END: usize = 4;

/// How a cursor gets its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorMode {
    /// Through the cache.
    Cached,
    /// Through a buffer that grows to 1 MiB, past the cache.
    Streaming {
        /// Whether to drop the bytes read from the operating system's cache.
        forget: bool,
    },
}

/// A cursor over the entries of an SST.
pub struct SstCursor {
    sst: Arc<Sst>,
    source: Source,
    /// `None` while the cursor is invalid.
    place: Option<Place>,
    /// The seek in progress, or the step to a block that is not in memory.
    seek: Option<Seek>,
    key: KeyBuffer,
    error: Option<Error>,
}

/// An entry in a block.
#[derive(Clone)]
struct Place {
    block: u32,
    layout: Layout,
    i: usize,
    kind: ValueKind,
    value: ValuePlace,
}

enum Source {
    Cached(CachedBlocks),
    Streaming(BlockStream),
}

impl SstCursor {
    /// A cursor that is invalid until it is moved.
    pub fn new(sst: Arc<Sst>, mode: CursorMode) -> Self {
        let source = match mode {
            CursorMode::Cached => Source::Cached(CachedBlocks::new(None)),
            CursorMode::Streaming { forget } => Source::Streaming(BlockStream::new(forget)),
        };
        Self { sst, source, place: None, seek: None, key: KeyBuffer::new(), error: None }
    }

    /// A cursor through the cache, for a scan with hints.
    pub fn for_scan(sst: Arc<Sst>, hints: CursorHints) -> Self {
        let source = Source::Cached(CachedBlocks::new(Some(hints)));
        Self { source, ..Self::new(sst, CursorMode::Cached) }
    }

    /// Moves to another file, in which the cursor is invalid until it is moved.
    pub fn move_to_file(&mut self, sst: &Arc<Sst>) {
        self.enter_file(sst);
        match &mut self.source {
            Source::Cached(blocks) => blocks.forget(),
            Source::Streaming(stream) => stream.restart(),
        }
    }

    fn enter_file(&mut self, sst: &Arc<Sst>) {
        self.sst = Arc::clone(sst);
        self.place = None;
        self.seek = None;
    }

    /// Goes on in the next file of the walk: on the way up to the first entry of `block`, by default of the first one, and on
    /// the way down to the last entry of `block`, by default of the last one. It may have to wait for the entry, as
    /// [`SstCursor::try_next`].
    pub fn step_to_file(&mut self, sst: &Arc<Sst>, block: Option<u32>, up: bool) -> Result<()> {
        let block = block.unwrap_or(if up { 0 } else { sst.blocks() - 1 });
        self.enter_file(sst);
        match &mut self.source {
            Source::Cached(blocks) => blocks.enter_next_file(sst, block),
            Source::Streaming(stream) => stream.restart(),
        }
        self.step_to(block, up)
    }

    /// Moves to the entry that `other` stands on, in the same block. Nothing is read or searched, and what `other` has read
    /// ahead stays with it.
    ///
    /// Requires: both cursors read through the cache, and `other` is valid.
    pub fn move_to(&mut self, other: &Self) {
        let (Source::Cached(blocks), Source::Cached(of_other)) = (&mut self.source, &other.source) else {
            unreachable!("compactions walk in one direction");
        };
        blocks.share(of_other);
        self.sst.clone_from(&other.sst);
        (self.place, self.key) = (other.place.clone(), other.key.clone());
        (self.seek, self.error) = (None, None);
    }

    /// The SST it walks over.
    pub fn sst(&self) -> &Arc<Sst> {
        &self.sst
    }

    /// Moves to the next entry; invalid behind the last.
    ///
    /// Requires: valid.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a move in one of two directions, not an iteration")]
    pub fn next(&mut self) -> Result<()> {
        self.try_next()?;
        self.wait()
    }

    /// Moves to the previous entry; invalid before the first.
    ///
    /// Requires: valid.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        self.try_prev()?;
        self.wait()
    }

    /// As [`SstCursor::next`], but does not wait for a block that is not in memory: the cursor is then invalid, and
    /// [`SstCursor::is_waiting`].
    ///
    /// Requires: valid.
    #[inline]
    pub fn try_next(&mut self) -> Result<()> {
        let Some(place) = &mut self.place else { return self.misused() };
        let block = place.block;
        if place.i + 1 < place.layout.count() {
            let view = DataBlock::with_layout(self.source.bytes(), place.layout);
            let entry = view.entry_behind(place.i, &place.value, AHEAD);
            self.key.set_suffix(view.prefix(), self.source.bytes(), &entry.suffix);
            (place.i, place.kind, place.value) = (place.i + 1, entry.kind, entry.value);
            if place.i + NEAR_END == place.layout.count() && block + 1 < self.sst.blocks() {
                self.sst.cache.prefetch(&self.sst.words, block + 1);
            }
            return Ok(());
        }
        if block + 1 == self.sst.blocks() {
            self.place = None;
            return Ok(());
        }
        self.step_to(block + 1, true)
    }

    /// As [`SstCursor::try_next`], to the previous entry.
    ///
    /// Requires: valid.
    #[inline]
    pub fn try_prev(&mut self) -> Result<()> {
        let Some(place) = &mut self.place else { return self.misused() };
        let block = place.block;
        if let Some(previous) = place.i.checked_sub(1) {
            let view = DataBlock::with_layout(self.source.bytes(), place.layout);
            view.prefetch_entry(previous.saturating_sub(BEFORE));
            let entry = view.entry(previous);
            self.key.set_suffix(view.prefix(), self.source.bytes(), &entry.suffix);
            (place.i, place.kind, place.value) = (previous, entry.kind, entry.value);
            if previous == NEAR_END && block > 0 {
                self.sst.cache.prefetch(&self.sst.words, block - 1);
            } else if previous == NEAR_END / 2 && block > 0 {
                self.sst.cache.prefetch_end(&self.sst.words, block - 1);
            }
            return Ok(());
        }
        if block == 0 {
            self.place = None;
            return Ok(());
        }
        self.step_to(block - 1, false)
    }

    /// The result of a step of an invalid cursor: its error, or a panic because the caller is wrong.
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
        self.key.bytes()
    }

    /// Kind of the entry.
    #[inline]
    pub fn kind(&self) -> ValueKind {
        self.here().kind
    }

    /// Value of the entry.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.here().value.bytes(self.source.bytes())
    }

    /// Value of the entry: bytes that outlive the cursor's next move, and the value's place in them.
    pub fn value_pin(&self) -> (BlockRef, Range<usize>) {
        match &self.source {
            Source::Cached(blocks) => blocks.pin().with_place(&self.here().value),
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

    /// Whether a lookup of the entry's key, whose hash is `hash`, finds the entry in its block.
    pub(super) fn is_found(&self, hash: u64) -> bool {
        let view = DataBlock::with_layout(self.source.bytes(), self.here().layout);
        view.finds(self.here().i, self.key(), hash)
    }

    #[inline]
    fn here(&self) -> &Place {
        self.place.as_ref().expect("only a valid cursor has an entry")
    }

    /// Moves to the first entry of the next block, or to the last one of the block before. Waits there for a block that is not in
    /// memory.
    fn step_to(&mut self, block: u32, up: bool) -> Result<()> {
        self.place = None;
        let moved = match &mut self.source {
            Source::Cached(blocks) => blocks.step_to(&self.sst, block, up),
            Source::Streaming(stream) => stream.load(&self.sst, block).map(|()| true),
        };
        if self.keep_error(moved)? {
            self.enter_edge(block, up);
        } else {
            self.seek = Some(Seek::of_step(block, up));
        }
        Ok(())
    }

    fn keep_error<T>(&mut self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.error = Some(error.clone()))
    }

    /// Moves to the first or to the last entry of the source's block.
    fn enter_edge(&mut self, block: u32, first: bool) {
        let layout = Layout::of(self.source.bytes());
        self.enter(block, layout, if first { 0 } else { layout.count() - 1 });
    }

    /// Moves to entry `i` of the source's block.
    fn enter(&mut self, block: u32, layout: Layout, i: usize) {
        let view = DataBlock::with_layout(self.source.bytes(), layout);
        let entry = view.entry(i);
        self.key.set_prefix(view.prefix());
        self.key.set_suffix(view.prefix(), self.source.bytes(), &entry.suffix);
        self.place = Some(Place { block, layout, i, kind: entry.kind, value: entry.value });
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
}
