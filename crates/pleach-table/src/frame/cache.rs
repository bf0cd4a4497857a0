//! The frame cache: blocks of all SSTs in a bounded piece of memory.
//!
//! # Invariants
//! 1. *A word tells the truth or nothing*: an SST's word for a block is 0, or names a run that holds this block, or a
//!    run that is locked or belongs to another block since, which the reader notices by loading the word again after
//!    it has pinned the run: eviction clears the word before it unlocks the run.
//! 2. *Whole blocks*: a word is set after the block's bytes have been written and validated.
//!
//! # Concurrency
//! A hit takes no lock: two loads of the word and a pin. Misses take their shard's mutex once. Two readers that miss
//! the same block both read it; one publishes, the other uses its copy, which is nobody's once it lets go of it.
//!
//! # Cost
//! A hit is one atomic addition now and one subtraction later, in a cache line of the frame's own state.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use pleach_env::FileId;

use super::block_ref::BlockRef;
use super::shard::{QUAD, Shard};
use super::slab::{Pin, Run, SlabOwner, TOUCHED};
use crate::sizes::{BLOCK_LEN_MAX, PAGE};

/// Frames a shard should have at least: 16 MiB.
const SHARD_FRAMES_MIN: u32 = 4096;
/// Shards at most: misses beyond this many at a time are rare even on large machines.
const SHARDS_MAX: u32 = 32;

/// How a block is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warmth {
    /// By a scan: first to go.
    Cold,
    /// By a point read: it survives the clock's first pass.
    Warm,
}

/// Memory for blocks, shared by all SSTs of a store. See the crate's text.
pub struct FrameCache {
    /// `None` where the capacity is below one quad: every block then lives on the heap.
    slab: Option<SlabOwner>,
    shards: Box<[Mutex<Shard>]>,
    shard_frames: u32,
    /// Statistics only.
    admissions: AtomicU64,
    heap_fallbacks: AtomicU64,
}

/// Statistics of a [`FrameCache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCacheStats {
    /// Bytes of all frames.
    pub capacity: u64,
    /// Bytes of frames used at least once.
    pub used: u64,
    /// Blocks put into frames.
    pub admissions: u64,
    /// Blocks that had to go for others.
    pub evictions: u64,
    /// Blocks that went to the heap because no frame could be had.
    pub heap_fallbacks: u64,
}

impl FrameCache {
    /// As [`FrameCache::try_new`].
    ///
    /// # Panics
    /// When the process may not have so many addresses.
    pub fn new(capacity_bytes: usize) -> Arc<Self> {
        Self::try_new(capacity_bytes).expect("addresses for the cache")
    }

    /// A cache of `capacity_bytes`, rounded down to 16 KiB, and to 8 TiB. Memory is taken from the system as it is first
    /// used; `None` when the process may not have so many addresses.
    pub fn try_new(capacity_bytes: usize) -> Option<Arc<Self>> {
        let frames = u32::try_from(capacity_bytes / PAGE).unwrap_or(u32::MAX / 2);
        let shards = (frames / SHARD_FRAMES_MIN).clamp(1, SHARDS_MAX);
        let shard_frames = frames / shards / QUAD * QUAD;
        let slab = if shard_frames > 0 { Some(SlabOwner::try_new(shard_frames * shards)?) } else { None };
        let shards = (0..shards).map(|i| Mutex::new(Shard::new(i * shard_frames, shard_frames))).collect();
        Some(Arc::new(Self {
            slab,
            shards,
            shard_frames,
            admissions: AtomicU64::new(0),
            heap_fallbacks: AtomicU64::new(0),
        }))
    }

    /// The statistics so far.
    pub fn stats(&self) -> FrameCacheStats {
        let mut stats = FrameCacheStats {
            capacity: u64::from(self.shard_frames) * self.shards.len() as u64 * PAGE as u64,
            admissions: self.admissions.load(Ordering::Relaxed),
            heap_fallbacks: self.heap_fallbacks.load(Ordering::Relaxed),
            ..FrameCacheStats::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.used += u64::from(shard.used()) * PAGE as u64;
            stats.evictions += shard.evictions;
        }
        stats
    }

    /// The block `block` of the SST that `words` belongs to, if a frame holds it.
    #[inline]
    pub(crate) fn lookup(&self, words: &FrameWords, block: u32, touch: bool) -> Option<BlockRef> {
        let pin = self.pin(words, block)?;
        if touch {
            pin.touch();
        }
        Some(BlockRef::framed(pin))
    }

    #[inline]
    fn pin(&self, words: &FrameWords, block: u32) -> Option<Pin> {
        let word = words.word(block);
        let seen = word.load(Ordering::Relaxed);
        let first = seen.checked_sub(1)?;
        let pin = self.slab.as_ref()?.pin(first)?;
        // Invariant 1. Relaxed suffices: the pin acquired what happened before the run was last unlocked.
        (word.load(Ordering::Relaxed) == seen).then_some(pin)
    }

    /// Asks for what [`FrameCache::lookup`] of the block and a look at its beginning will need. Returns whether a frame
    /// seems to hold it.
    #[inline]
    pub(crate) fn prefetch(&self, words: &FrameWords, block: u32) -> bool {
        let seen = words.word(block).load(Ordering::Relaxed);
        let (Some(first), Some(slab)) = (seen.checked_sub(1), &self.slab) else { return false };
        slab.prefetch(first);
        true
    }

    /// Frames for `len` bytes of a block, to be filled and published; `None` when it is too large or nothing is free.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        words: &Arc<FrameWords>,
        block: u32,
        len: usize,
        warmth: Warmth,
    ) -> Option<FrameMut> {
        let slab = self.slab.as_ref()?;
        if len > BLOCK_LEN_MAX {
            return None;
        }
        let frames = u32::try_from(len.div_ceil(PAGE).max(1)).expect("at most four");
        let shard = block.wrapping_add(words.salt) as usize % self.shards.len();
        let run = self.shards[shard].lock().reserve(slab, frames, words, block, warmth == Warmth::Cold);
        if run.is_none() {
            self.heap_fallbacks.fetch_add(1, Ordering::Relaxed);
        }
        Some(FrameMut { run: Some(run?), len, words: words.clone(), block, warmth, cache: self.clone() })
    }

    fn slab(&self) -> &SlabOwner {
        self.slab.as_ref().expect("runs come from a slab")
    }

    fn shard_of(&self, frame: u32) -> &Mutex<Shard> {
        &self.shards[(frame / self.shard_frames) as usize]
    }

    /// Lets go of all frames of an SST that is being closed. Blocks still pinned stay until their pins go.
    pub(crate) fn forget(&self, words: &Arc<FrameWords>) {
        let Some(slab) = &self.slab else { return };
        for word in &words.words {
            if let Some(first) = word.swap(0, Ordering::Relaxed).checked_sub(1) {
                self.shard_of(first).lock().disown(slab, first, words);
            }
        }
    }
}

impl std::fmt::Debug for FrameCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameCache").field("stats", &self.stats()).finish()
    }
}

/// One word per block of an SST: the number of the frame that holds it, plus one, or 0.
pub(crate) struct FrameWords {
    words: Box<[AtomicU32]>,
    /// The file's part in the choice of shards. Its blocks take them in turn, from here on.
    salt: u32,
}

impl FrameWords {
    /// No block is cached. Files of one block each fill all shards alike, whatever the steps of their numbers.
    pub(crate) fn new(file: FileId, blocks: u32) -> Arc<Self> {
        let words = (0..blocks).map(|_| AtomicU32::new(0)).collect();
        // Fibonacci hashing: the upper half of a product with 2^64 divided by the golden ratio.
        let salt = file.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        Arc::new(Self { words, salt: u32::try_from(salt).expect("the upper half") })
    }

    #[inline]
    pub(super) fn word(&self, block: u32) -> &AtomicU32 {
        &self.words[block as usize]
    }

    /// Asks for the cache line of a block's word.
    #[inline]
    pub(crate) fn prefetch(&self, block: u32) {
        pleach_env::memory::prefetch(std::ptr::from_ref(self.word(block)).cast());
    }
}

/// Frames being filled with a block. Dropped without [`FrameMut::publish`], they are free again.
pub(crate) struct FrameMut {
    /// `None` only after `publish`.
    run: Option<Run>,
    len: usize,
    words: Arc<FrameWords>,
    block: u32,
    warmth: Warmth,
    cache: Arc<FrameCache>,
}

impl FrameMut {
    /// All bytes of the frames, of which the block may use the first `len`.
    pub(crate) fn whole(&mut self) -> &mut [u8] {
        self.cache.slab().bytes_mut(self.run.as_mut().expect("not published"))
    }

    /// Makes the block findable. Requires: its bytes are complete and validated.
    pub(crate) fn publish(mut self) -> BlockRef {
        let run = self.run.take().expect("not published");
        let first = run.first();
        let chances = if self.warmth == Warmth::Warm { TOUCHED } else { 0 };
        let pin = self.cache.slab().unlock_pinned(run, self.len, chances);
        let _another_was_faster =
            self.words.word(self.block).compare_exchange(0, first + 1, Ordering::Release, Ordering::Relaxed);
        self.cache.admissions.fetch_add(1, Ordering::Relaxed);
        BlockRef::framed(pin)
    }
}

impl Deref for FrameMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.cache.slab().bytes(self.run.as_ref().expect("not published"))[..self.len]
    }
}

impl DerefMut for FrameMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.whole()[..len]
    }
}

impl Drop for FrameMut {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.cache.shard_of(run.first()).lock().cancel(self.cache.slab(), run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Admits the only block of each of these files.
    fn admit(cache: &Arc<FrameCache>, files: impl Iterator<Item = u64>) -> Vec<Arc<FrameWords>> {
        let words = files.map(|id| FrameWords::new(FileId(id), 1));
        let words: Vec<_> = words.collect();
        for words in &words {
            drop(cache.reserve(words, 0, PAGE, Warmth::Warm).expect("a frame is free").publish());
        }
        words
    }

    #[test]
    fn files_of_one_block_use_all_shards() {
        // Numbers as partitions, flushes and the log between them give them out.
        for step in [1, 2, 3, 4, 32, 4096] {
            let cache = FrameCache::new(4 * SHARD_FRAMES_MIN as usize * PAGE);
            assert_eq!(cache.shards.len(), 4);
            let _words = admit(&cache, (1..=8000).map(|n| n * step));
            for shard in &cache.shards {
                assert!((1700..=2300).contains(&shard.lock().used()), "step {step}: {}", shard.lock().used());
            }
            assert_eq!(cache.stats().evictions, 0, "step {step}");
            let _words = admit(&cache, (8001..=20_000).map(|n| n * step));
            let stats = cache.stats();
            assert!(stats.used * 100 >= stats.capacity * 99, "step {step}: {stats:?}");
        }
    }

    #[test]
    fn blocks_of_a_file_take_the_shards_in_turn() {
        let cache = FrameCache::new(4 * SHARD_FRAMES_MIN as usize * PAGE);
        let words = FrameWords::new(FileId(7), 400);
        for block in 0..400 {
            drop(cache.reserve(&words, block, PAGE, Warmth::Warm).expect("a frame is free").publish());
        }
        assert!(cache.shards.iter().all(|shard| shard.lock().used() == 100));
    }

    #[test]
    fn a_cache_of_terabytes_costs_what_is_used_of_it() {
        let cache = FrameCache::try_new(5 << 40).expect("addresses are plenty");
        assert_eq!(cache.stats().capacity, 5 << 40);
        let words = admit(&cache, 1..=1000);
        assert_eq!(cache.stats().used, 1000 * PAGE as u64);
        assert!(words.iter().all(|words| cache.lookup(words, 0, true).is_some()));
    }
}
