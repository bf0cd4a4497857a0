//! An open SST. Index and filter are in memory, unless the filter was taken; blocks are read through the frame cache.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_coding::Malformed;
use pleach_env::memory::prefetch;
use pleach_env::{Error, File, FileId, Result};
use pleach_index::{Encoders, Index, IndexChoice, IndexKind, Obstacle, SearchStage};

use super::open::TAIL_CRC;
use crate::block::{BlockType, DataBlock, check};
use crate::codec::Codec;
use crate::extents::Extents;
use crate::filter::Filter;
use crate::frame::{BlockRef, FrameCache, FrameWords, Warmth};
use crate::summary::SstSummary;
use crate::value_kind::ValueKind;
use crate::value_place::ValuePlace;

/// A file of sorted entries, open for reading.
///
/// A lookup calls `may_contain`, `block_for`, `cached_block` or `read_block`, then `get_in_block`; [`Sst::get`] does all of it.
/// A driver that reads blocks by other means begins with [`Sst::begin_load`] and ends with [`Sst::finish_load`].
///
/// # Concurrency
/// Immutable except for its frame words; share it as `Arc<Sst>`. Dropping it, and what [`Sst::learn_index`] made of it, frees
/// its frames; pinned blocks stay.
pub struct Sst {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    pub(super) file_id: FileId,
    /// Whether reads must be aligned.
    pub(super) direct: bool,
    pub(super) codec: Codec,
    /// Types that its data blocks may have.
    pub(super) data_types: &'static [BlockType],
    pub(super) extents: Extents,
    pub(super) index: Index,
    /// `None` if the file has none or it was taken.
    pub(super) filter: Option<Filter>,
    /// Offset and length of the filter block; the length is 0 if there is none.
    pub(super) filter_extent: (u64, u32),
    pub(super) summary: SstSummary,
    pub(super) note: Box<[u8]>,
    pub(super) cache: Arc<FrameCache>,
    pub(super) words: Arc<FrameWords>,
    pub(super) frames: Arc<CachedFrames>,
}

/// The frames of a file's blocks, shared by the [`Sst`]s of the file. The drop frees them.
pub(super) struct CachedFrames {
    pub(super) cache: Arc<FrameCache>,
    pub(super) words: Arc<FrameWords>,
}

impl Drop for CachedFrames {
    fn drop(&mut self) {
        self.cache.forget(&self.words);
    }
}

impl Sst {
    /// Number of the file.
    pub fn file_id(&self) -> FileId {
        self.file_id
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself, for drivers that read its blocks by other means.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The file's summary.
    pub fn summary(&self) -> &SstSummary {
        &self.summary
    }

    /// The writer's note: see [`SstBuilder::set_note`](crate::SstBuilder::set_note).
    pub fn note(&self) -> &[u8] {
        &self.note
    }

    /// Compression of its data blocks.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Bytes of memory that index, filter and frame words take while the SST is open.
    pub fn memory(&self) -> usize {
        self.index_memory() + self.filter_memory() + 4 * self.blocks() as usize
    }

    /// Bytes of memory of the index and of the places of blocks. A shared encoder counts in full.
    pub fn index_memory(&self) -> usize {
        self.index.memory() + self.extents.memory()
    }

    /// Kind of the index.
    pub fn index_kind(&self) -> IndexKind {
        self.index.kind()
    }

    /// Shares the encoder of a learned index with the SSTs that were passed to `encoders` before, if one of them has an equal
    /// one. For owners of many SSTs.
    pub fn share_encoder(&mut self, encoders: &Encoders) {
        self.index.share(encoders);
    }

    /// The same open SST with another index: a model that is learned from the separators in memory, without reading the file.
    /// With [`IndexChoice::Smallest`] there is one only if it takes less memory, with [`IndexChoice::Learned`] whatever it takes.
    /// The filter stays with `self`.
    ///
    /// Both share the file and its cached blocks, and both can be used as long as they live. An owner puts the new one in the
    /// place of the old one; the separators are freed with the old one.
    ///
    /// # Errors
    /// Why there is no such model.
    pub fn learn_index(&self, choice: IndexChoice) -> Result<Self, Obstacle> {
        Ok(self.with_index(self.index.learn_from_separators(choice)?))
    }

    /// The same open SST with another index of its blocks; the filter stays with `self`. Like [`Sst::learn_index`], for those who
    /// compare indexes.
    ///
    /// Requires: `index` finds the block of every key of the SST.
    #[doc(hidden)]
    #[must_use]
    pub fn with_index(&self, index: Index) -> Self {
        Self {
            path: self.path.clone(),
            file: Arc::clone(&self.file),
            file_id: self.file_id,
            direct: self.direct,
            codec: self.codec,
            data_types: self.data_types,
            extents: self.extents.clone(),
            index,
            filter: None,
            filter_extent: self.filter_extent,
            summary: self.summary.clone(),
            note: self.note.clone(),
            cache: Arc::clone(&self.cache),
            words: Arc::clone(&self.words),
            frames: Arc::clone(&self.frames),
        }
    }

    /// The error that the model of the index would have without residuals, in blocks: see
    /// [`pleach_index::Index::boundaries_compared`].
    pub fn index_error(&self) -> u32 {
        self.index.boundaries_compared()
    }

    /// Bytes of the residuals in the index: see [`pleach_index::Index::residual_bytes`].
    pub fn residual_bytes(&self) -> usize {
        self.index.residual_bytes()
    }

    /// Whether the index was made by [`Sst::learn_index`].
    pub fn has_index_from_separators(&self) -> bool {
        self.index.is_from_separators()
    }

    /// Bytes of memory of the filter.
    pub fn filter_memory(&self) -> usize {
        self.filter.as_ref().map_or(0, Filter::memory)
    }

    /// Takes the filter out of memory: from now on [`Sst::may_contain`] returns `true` for every key. For owners of many SSTs,
    /// who decide which filters stay in memory.
    pub fn take_filter(&mut self) -> Option<Filter> {
        self.filter.take()
    }

    /// Reads the filter from the file: one read of [`SstSummary::filter_bits`]. `None` if the file has none.
    ///
    /// # Errors
    /// `Io` when the read fails, `Corruption` when the block is damaged.
    pub fn load_filter(&self) -> Result<Option<Filter>> {
        let (offset, len) = self.filter_extent;
        if len == 0 {
            return Ok(None);
        }
        let block = self.read(offset, len as usize)?;
        let (_, payload) = check(&block, self.file_id, offset, &[BlockType::Filter], TAIL_CRC)
            .map_err(|m| self.damaged(offset, m))?;
        let payload_at = offset + (block.len() - payload.len()) as u64;
        Filter::decode(payload).map(Some).map_err(|m| self.damaged(payload_at, m))
    }

    /// Number of data blocks; at least 1.
    pub fn blocks(&self) -> u32 {
        self.extents.blocks()
    }

    /// Prefetches the memory that [`Sst::may_contain`] will read.
    #[inline]
    pub fn prefetch_filter(&self, hash: u64) {
        if let Some(filter) = &self.filter {
            filter.prefetch(hash);
        }
    }

    /// Whether a key with this hash can be in the SST; always `true` without a filter in memory.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(hash))
    }

    /// Prefetches the memory that [`Sst::block_for`] of the same key will read at `stage`. It must have been called for the
    /// stages before.
    #[inline]
    pub fn prefetch_index(&self, key: &[u8], stage: SearchStage) {
        if let Some(address) = self.index.address_read(key, stage) {
            prefetch(address);
        }
    }

    /// Number of the block that can hold `key`; less than [`Sst::blocks`].
    #[inline]
    pub fn block_for(&self, key: &[u8]) -> u32 {
        let block = self.index.find(key);
        self.words.prefetch(block);
        block
    }

    /// Offset and length of a block in the file. In an uncompressed SST both are multiples of 4096.
    ///
    /// Requires: `block` is less than [`Sst::blocks`], here and below.
    #[inline]
    pub fn block_extent(&self, block: u32) -> (u64, u32) {
        self.extents.get(block)
    }

    /// Asks for the memory that [`Sst::cached_block`] and a look at the block's beginning will need.
    #[inline]
    pub fn prefetch_cached(&self, block: u32) {
        self.cache.prefetch(&self.words, block);
    }

    /// Asks for more of the block's beginning than [`Sst::cached_block`] does: what a lookup needs if the block has many small
    /// entries, as value pointers are.
    #[inline]
    pub fn prefetch_pointers(&self, block: u32) {
        self.cache.prefetch_more(&self.words, block);
    }

    /// Asks for the memory that [`Sst::get_in_block`] will search first. Looks at the block's beginning.
    #[inline]
    pub fn prefetch_in_block(&self, block: &BlockRef) {
        DataBlock::new(block).prefetch_first();
    }

    /// The block, if it is in the cache. Counts as a use of the cache.
    #[inline]
    pub fn cached_block(&self, block: u32) -> Option<BlockRef> {
        self.cache.lookup(&self.words, block, true)
    }

    /// The block, from the cache or from the file.
    pub fn read_block(&self, block: u32) -> Result<BlockRef> {
        match self.cached_block(block) {
            Some(block) => Ok(block),
            None => self.load_block(block, Warmth::Warm),
        }
    }

    /// The entry of `key` in the block of [`Sst::block_for`]: its kind, and the place of its value. Values of puts are in the
    /// block.
    #[inline]
    pub fn get_in_block(&self, block: &BlockRef, key: &[u8], hash: u64) -> Option<(ValueKind, ValuePlace)> {
        DataBlock::new(block).find(key, hash)
    }

    /// The entry of `key`: its kind, and bytes that have its value, and where they have it.
    pub fn get(&self, key: &[u8], hash: u64) -> Result<Option<(ValueKind, BlockRef, Range<usize>)>> {
        if !self.may_contain(hash) {
            return Ok(None);
        }
        let block = self.read_block(self.block_for(key))?;
        let Some((kind, place)) = self.get_in_block(&block, key, hash) else { return Ok(None) };
        let (block, range) = block.with_place(&place);
        Ok(Some((kind, block, range)))
    }

    /// The error of malformed bytes in this file.
    pub(super) fn damaged(&self, offset: u64, malformed: Malformed) -> Error {
        Error::malformed(&self.path, offset, malformed)
    }
}

impl fmt::Debug for Sst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sst")
            .field("file_id", &self.file_id)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}
