//! The frame cache: blocks of all SSTs in a bounded amount of memory.
//!
//! A full cache admits a block of a point read only if the block was missed before, at most as many misses ago as the cache has
//! frames. Other blocks go to the heap, for their readers alone (docs/design/0003-cache.md).
//!
//! # Invariants
//! 1. *Whole blocks*: a word is set after the block's bytes have been written and validated.
//!
//! # Concurrency
//! A hit takes no lock: two loads of the word and a pin. A miss locks its shard once. Two readers that miss the same block
//! both read it. One sets the word; the copy of the other cannot be found, and is evicted after its pins are gone.
//!
//! # Cost
//! A hit is one atomic addition, and one subtraction later, in the cache line of the frame's state.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::block_ref::BlockRef;
use super::shard::{QUAD, Shard};
use super::slab::{LockedRun, SlabOwner, TOUCHED};
use super::words::FrameWords;
use crate::sizes::{BLOCK_LEN_MAX, PAGE};

/// Frames a shard should have at least: 16 MiB.
const SHARD_FRAMES_MIN: u32 = 4096;
/// Shards at most: misses beyond this many at a time are rare even on large machines.
const SHARDS_MAX: u32 = 32;

/// The part of all frames that may be locked for blocks that are being read: one in this many (arbitrary). Further blocks are
/// read to the heap, so reads in flight never empty the cache.
const LOCKED_SHARE: u32 = 4;
/// So many frames may be locked in any cache: 1 MiB.
const LOCKED_MIN: u32 = 256;

/// A unit of the time in which misses are remembered: the frames of the largest cache divided by this, in misses (arbitrary: a
/// longer unit forgets with less precision, a shorter one wraps earlier).
const MISS_UNITS: u32 = 16;

/// How a block that is read from the file is admitted to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// Not at all: it lives on the heap, for its reader alone.
    Uncached,
    /// By a scan: the first to be evicted.
    Cold,
    /// By a point read: it survives the first pass of the clock. A full cache may admit only blocks that were missed before, not
    /// longer ago than it has frames, counted in misses.
    Warm,
}

/// The cache of blocks, which all SSTs of a store share. See the crate's text.
pub struct FrameCache {
    /// `None` where the capacity is below one quad: every block then lives on the heap.
    slab: Option<SlabOwner>,
    shards: Box<[Mutex<Shard>]>,
    shard_frames: u32,
    /// Frames that may be used. Relaxed: it orders no other memory.
    limit: AtomicU32,
    /// Frames that may be locked. Relaxed: it orders no other memory.
    locked_max: AtomicU32,
    /// Frames of all [`FrameMut`]s. Relaxed: it orders no other memory.
    locked: AtomicU32,
    /// Frames ever used, of all shards. Changed under the lock of the shard, so it never loses frames that it has not counted.
    /// Relaxed: it orders no other memory.
    used: AtomicU32,
    /// The frames whose use [`FrameCache::when_grown`] reports. Relaxed, as `used`.
    watched: AtomicU32,
    when_grown: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Misses of point reads: the time in which misses are remembered. Relaxed: it orders no other memory.
    misses: AtomicU64,
    /// So many of them are a unit of that time. It does not change with the limit, so that times stay comparable.
    miss_unit: u32,
    /// Statistics only.
    admissions: AtomicU64,
    heap_fallbacks: AtomicU64,
    declined: AtomicU64,
}

/// Statistics of a [`FrameCache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCacheStats {
    /// Bytes of all frames that may be used.
    pub capacity: u64,
    /// Bytes of the frames that were ever used.
    pub used: u64,
    /// Bytes of the frames that are locked for blocks being read.
    pub locked: u64,
    /// Blocks put into frames.
    pub admissions: u64,
    /// Blocks evicted.
    pub evictions: u64,
    /// Blocks put on the heap because no frame was free.
    pub heap_fallbacks: u64,
    /// Blocks put on the heap because they were not missed twice within a short time.
    pub declined: u64,
}

impl FrameCache {
    /// As [`FrameCache::try_new`].
    ///
    /// # Panics
    /// When the process may not have so many addresses.
    pub fn new(capacity_bytes: usize) -> Arc<Self> {
        Self::try_new(capacity_bytes).expect("addresses for the cache")
    }

    /// A cache of `capacity_bytes`, rounded down to a multiple of 16 KiB and to 8 TiB. The system gives the memory of a frame
    /// at its first use. `None` when the process may not have so many addresses.
    pub fn try_new(capacity_bytes: usize) -> Option<Arc<Self>> {
        let frames = u32::try_from(capacity_bytes / PAGE).unwrap_or(u32::MAX / 2);
        let shards = (frames / SHARD_FRAMES_MIN).clamp(1, SHARDS_MAX);
        let shard_frames = frames / shards / QUAD * QUAD;
        let slab = if shard_frames > 0 { Some(SlabOwner::try_new(shard_frames * shards)?) } else { None };
        let limit = shard_frames * shards;
        let shards = (0..shards).map(|i| Mutex::new(Shard::new(i * shard_frames, shard_frames))).collect();
        Some(Arc::new(Self {
            slab,
            shards,
            shard_frames,
            limit: AtomicU32::new(limit),
            locked_max: AtomicU32::new(locked_max(limit)),
            locked: AtomicU32::new(0),
            used: AtomicU32::new(0),
            watched: AtomicU32::new(u32::MAX),
            when_grown: OnceLock::new(),
            misses: AtomicU64::new(0),
            miss_unit: (limit / MISS_UNITS).max(1),
            admissions: AtomicU64::new(0),
            heap_fallbacks: AtomicU64::new(0),
            declined: AtomicU64::new(0),
        }))
    }

    /// Changes the capacity to about `bytes`, at most that of [`FrameCache::try_new`]. When it falls, blocks are evicted and
    /// their memory is given back. A pinned block keeps its memory until a later call.
    pub fn set_capacity(&self, bytes: usize) {
        let Some(slab) = &self.slab else { return };
        let frames = u32::try_from(bytes / PAGE / self.shards.len()).unwrap_or(u32::MAX);
        let mut limit = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            let used = shard.used();
            shard.set_limit(slab, frames);
            let lost = used - shard.used();
            let counted = self.used.fetch_sub(lost, Ordering::Relaxed);
            debug_assert!(lost <= counted, "all frames of the shard were counted");
            limit += shard.limit();
        }
        self.limit.store(limit, Ordering::Relaxed);
        self.locked_max.store(locked_max(limit), Ordering::Relaxed);
    }

    /// Bytes of the frames that were ever used.
    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed) as usize * PAGE
    }

    /// Has `report` called by threads that admit blocks while more bytes of frames are used than [`FrameCache::watch`] says. It
    /// is set once. It may call methods of the cache.
    pub fn when_grown(&self, report: impl Fn() + Send + Sync + 'static) {
        let _set_once = self.when_grown.set(Box::new(report));
    }

    /// Sets the bytes of used frames above which growth is reported. Before the first call, none is.
    pub fn watch(&self, bytes: usize) {
        self.watched.store(u32::try_from(bytes / PAGE).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Reports growth that is watched. Requires: no lock is held.
    #[cold]
    fn report_growth(&self) {
        if self.used.load(Ordering::Relaxed) > self.watched.load(Ordering::Relaxed)
            && let Some(report) = self.when_grown.get()
        {
            report();
        }
    }

    /// The statistics so far.
    pub fn stats(&self) -> FrameCacheStats {
        let mut stats = FrameCacheStats {
            locked: u64::from(self.locked.load(Ordering::Relaxed)) * PAGE as u64,
            admissions: self.admissions.load(Ordering::Relaxed),
            heap_fallbacks: self.heap_fallbacks.load(Ordering::Relaxed),
            declined: self.declined.load(Ordering::Relaxed),
            ..FrameCacheStats::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.capacity += u64::from(shard.limit()) * PAGE as u64;
            stats.used += u64::from(shard.used()) * PAGE as u64;
            stats.evictions += shard.evictions;
        }
        stats
    }

    /// The block `block` of the SST that `words` belongs to, if a frame holds it.
    #[inline]
    pub(crate) fn lookup(&self, words: &FrameWords, block: u32, touch: bool) -> Option<BlockRef> {
        let pin = words.pin(self.slab.as_ref()?, block)?;
        if touch {
            pin.touch();
        }
        Some(BlockRef::framed(pin))
    }

    /// Prefetches the state of the block's frame and the beginning of the block. Returns whether a frame seems to hold it.
    #[inline]
    pub(crate) fn prefetch(&self, words: &FrameWords, block: u32) -> bool {
        let (Some(first), Some(slab)) = (words.frame(block), &self.slab) else { return false };
        slab.prefetch(first);
        true
    }

    /// Prefetches a longer beginning of a block than a lookup does by itself.
    #[inline]
    pub(crate) fn prefetch_more(&self, words: &FrameWords, block: u32) {
        if let (Some(first), Some(slab)) = (words.frame(block), &self.slab) {
            slab.prefetch_more(first);
        }
    }

    /// Prefetches the last entry of a block whose frame's state was prefetched.
    #[inline]
    pub(crate) fn prefetch_end(&self, words: &FrameWords, block: u32) {
        if let (Some(first), Some(slab)) = (words.frame(block), &self.slab) {
            slab.prefetch_end(first);
        }
    }

    /// Whether a frame seems to hold the block: a load of its word.
    #[inline]
    pub(crate) fn seems_cached(words: &FrameWords, block: u32) -> bool {
        words.frame(block).is_some()
    }

    /// Frames for `len` bytes of a block, to be filled and published; `None` when it is too large, no frame is free, too many
    /// frames are being filled, or `declines` and the cache is full of blocks that are likely wanted sooner ([`Warmth::Warm`]).
    pub(crate) fn reserve(
        self: &Arc<Self>,
        words: &Arc<FrameWords>,
        block: u32,
        len: usize,
        warmth: Warmth,
        declines: bool,
    ) -> Option<FrameMut> {
        let slab = self.slab.as_ref()?;
        if len > BLOCK_LEN_MAX || warmth == Warmth::Uncached {
            return None;
        }
        let frames = u32::try_from(len.div_ceil(PAGE).max(1)).expect("at most four");
        let shard = block.wrapping_add(words.salt()) as usize % self.shards.len();
        let may_evict = !declines || warmth == Warmth::Cold || self.was_missed_lately(words, block);
        let mut grown = 0;
        let run =
            if self.locked.fetch_add(frames, Ordering::Relaxed) < self.locked_max.load(Ordering::Relaxed) {
                let mut shard = self.shards[shard].lock();
                let used = shard.used();
                let run = shard.reserve(slab, frames, words, block, warmth == Warmth::Cold, may_evict);
                grown = shard.used() - used;
                if grown > 0 {
                    self.used.fetch_add(grown, Ordering::Relaxed);
                }
                run
            } else {
                None
            };
        if grown > 0 {
            self.report_growth();
        }
        let Some(run) = run else {
            self.locked.fetch_sub(frames, Ordering::Relaxed);
            let counter = if may_evict { &self.heap_fallbacks } else { &self.declined };
            counter.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        Some(FrameMut { run: Some(run), len, words: words.clone(), block, warmth, cache: self.clone() })
    }

    /// Notes a miss, and returns whether the miss before it is not longer ago than the cache has frames, counted in misses.
    fn was_missed_lately(&self, words: &FrameWords, block: u32) -> bool {
        let now = self.misses.fetch_add(1, Ordering::Relaxed) / u64::from(self.miss_unit);
        let now = u32::try_from(now & u64::from(u32::MAX >> 1)).expect("31 bits");
        let window = self.limit.load(Ordering::Relaxed).div_ceil(self.miss_unit);
        words.note_miss(block, now).is_some_and(|units| units <= window)
    }

    fn slab(&self) -> &SlabOwner {
        self.slab.as_ref().expect("runs come from a slab")
    }

    fn shard_of(&self, frame: u32) -> &Mutex<Shard> {
        &self.shards[(frame / self.shard_frames) as usize]
    }

    /// Frees all frames of an SST that is being closed. A pinned block stays until its pins are gone.
    ///
    /// Requires: no thread reads or admits blocks of the SST any more. Other SSTs' blocks may evict its blocks meanwhile.
    pub(crate) fn forget(&self, words: &Arc<FrameWords>) {
        let Some(slab) = &self.slab else { return };
        for first in words.take_all() {
            self.shard_of(first).lock().disown(slab, first, words);
        }
    }
}

/// How many of a cache's frames may be locked.
fn locked_max(frames: u32) -> u32 {
    (frames / LOCKED_SHARE).max(LOCKED_MIN)
}

impl std::fmt::Debug for FrameCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameCache").field("stats", &self.stats()).finish()
    }
}

/// Frames that are being filled with a block. A drop without [`FrameMut::publish`] frees them.
pub(crate) struct FrameMut {
    /// `None` only after `publish`.
    run: Option<LockedRun>,
    len: usize,
    words: Arc<FrameWords>,
    block: u32,
    warmth: Warmth,
    cache: Arc<FrameCache>,
}

impl FrameMut {
    /// All bytes of the frames. The block uses the first `len`.
    pub(crate) fn whole(&mut self) -> &mut [u8] {
        self.cache.slab().bytes_mut(self.run.as_mut().expect("not published"))
    }

    /// Makes a block for which nobody waits cold.
    pub(crate) fn cool(&mut self) {
        self.warmth = Warmth::Cold;
    }

    /// Lets readers find the block. Requires: its bytes are complete and validated.
    pub(crate) fn publish(mut self) -> BlockRef {
        let run = self.run.take().expect("not published");
        let first = run.first();
        self.cache.locked.fetch_sub(run.frames(), Ordering::Relaxed);
        let chances = if self.warmth == Warmth::Warm { TOUCHED } else { 0 };
        let pin = self.cache.slab().unlock_pinned(run, self.len, chances);
        self.words.set(self.block, first);
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
            self.cache.locked.fetch_sub(run.frames(), Ordering::Relaxed);
            self.cache.shard_of(run.first()).lock().cancel(self.cache.slab(), run);
        }
    }
}

#[cfg(test)]
mod tests {
    use pleach_env::FileId;

    use super::*;

    /// Admits the only block of each of these files.
    fn admit(cache: &Arc<FrameCache>, files: impl Iterator<Item = u64>) -> Vec<Arc<FrameWords>> {
        let words = files.map(|id| FrameWords::new(FileId(id), 1));
        let words: Vec<_> = words.collect();
        for words in &words {
            drop(cache.reserve(words, 0, PAGE, Warmth::Warm, false).expect("a frame is free").publish());
        }
        words
    }

    /// The block, from the cache or filled by this call. All its bytes are its number.
    fn read(cache: &Arc<FrameCache>, words: &Arc<FrameWords>, block: u32) -> Option<BlockRef> {
        cache.lookup(words, block, true).or_else(|| {
            let len = PAGE / 2 + block as usize % 4 * PAGE;
            let warmth = if block.is_multiple_of(3) { Warmth::Cold } else { Warmth::Warm };
            let mut frames = cache.reserve(words, block, len, warmth, block.is_multiple_of(2))?;
            frames.fill(u8::try_from(block).unwrap());
            Some(frames.publish())
        })
    }

    /// Small enough for Miri, which looks for races between readers and the frames' next writers.
    #[test]
    fn threads_read_whole_blocks_while_frames_change_owners() {
        let rounds = if cfg!(miri) { 40 } else { 20_000 };
        let cache = FrameCache::new(3 * QUAD as usize * PAGE);
        let files: Vec<_> = (0..2).map(|id| FrameWords::new(FileId(id), 8)).collect();
        let kept: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|seed| {
                    let (cache, files) = (&cache, &files);
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(seed);
                        let mut kept = None;
                        // A file of the thread's own is closed now and then. Its last user closes a file.
                        let mut own = FrameWords::new(FileId(9), 8);
                        for _ in 0..rounds {
                            let (file, block) = (rng.usize(..3), rng.u32(..8));
                            let words = files.get(file).unwrap_or(&own);
                            let Some(bytes) = read(cache, words, block) else { continue };
                            assert_eq!(bytes.len(), PAGE / 2 + block as usize % 4 * PAGE);
                            let middle = bytes.len() / 2;
                            let [first, .., last] = &bytes[..] else { panic!("a block has bytes") };
                            assert!([first, &bytes[middle], last].iter().all(|&&b| u32::from(b) == block));
                            match rng.u8(..16) {
                                0 => {
                                    cache.forget(&own);
                                    own = FrameWords::new(FileId(9), 8);
                                }
                                1..=4 => kept = Some((block, bytes.clone())),
                                5 => cache.set_capacity(rng.usize(1..=3) * QUAD as usize * PAGE),
                                _ => {}
                            }
                        }
                        kept
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(cache.used_bytes() as u64, cache.stats().used, "no frame was counted twice or not at all");
        drop((cache, files));
        assert!(
            kept.iter().all(|(block, bytes)| bytes[..] == vec![u8::try_from(*block).unwrap(); bytes.len()])
        );
    }

    #[test]
    fn blocks_that_were_cooled_are_evicted_first() {
        let count = 4 * QUAD;
        let cache = FrameCache::new(count as usize * PAGE);
        let words = FrameWords::new(FileId(1), count);
        for block in 0..count {
            let mut frames =
                cache.reserve(&words, block, PAGE, Warmth::Warm, false).expect("a frame is free");
            if block % 2 == 0 {
                frames.cool();
            }
            drop(frames.publish());
        }
        admit(&cache, 2..2 + u64::from(count / 4));
        let is_cached = |block: &u32| FrameCache::seems_cached(&words, *block);
        let kept = |first: u32| (first..count).step_by(2).filter(is_cached).count();
        assert_eq!((kept(0), kept(1)), (count as usize / 4, count as usize / 2));
    }

    #[test]
    fn a_full_cache_declines_blocks_that_were_not_missed_lately() {
        let count = 16 * QUAD;
        let cache = FrameCache::new(count as usize * PAGE);
        let words = FrameWords::new(FileId(1), 1000);
        let load = |block| {
            let frames = cache.reserve(&words, block, PAGE, Warmth::Warm, true);
            frames.map(FrameMut::publish).is_some()
        };
        assert!((0..count).all(load), "frames are free");
        let again = 500;
        for block in 100..100 + count / 2 {
            assert!(!load(block), "missed for the first time");
        }
        assert!(!load(again) && load(again), "missed again at once");
        assert!(FrameCache::seems_cached(&words, again));
        assert!(load(100), "missed again within as many misses as there are frames");
        assert!((200..200 + 2 * count).all(|block| !load(block)));
        assert!(!load(101), "missed too long ago");
        let stats = cache.stats();
        assert_eq!((stats.evictions, stats.heap_fallbacks), (2, 0));
        assert_eq!(stats.declined, u64::from(count / 2 + 1 + 2 * count + 1));
        cache.forget(&words);
        assert!((300..300 + count).all(load), "the frames are free again");
        assert!(cache.reserve(&words, 999, PAGE, Warmth::Warm, false).is_some(), "nothing is declined");
    }

    #[test]
    fn a_smaller_cache_keeps_pinned_blocks_and_can_grow_again() {
        let quads = |n| n * QUAD as usize * PAGE;
        let cache = FrameCache::new(quads(4));
        let words = FrameWords::new(FileId(1), 16);
        let fill = || {
            for block in 0..16 {
                let Some(found) = cache.lookup(&words, block, false) else {
                    let mut frames =
                        cache.reserve(&words, block, PAGE, Warmth::Warm, false).expect("a frame is free");
                    frames.fill(u8::try_from(block).unwrap());
                    frames.publish();
                    continue;
                };
                assert_eq!(found[..], [u8::try_from(block).unwrap(); PAGE]);
            }
        };
        let cached = || (0..16).filter(|block| cache.lookup(&words, *block, false).is_some()).count();
        fill();
        assert_eq!(cached(), 16);
        let pinned = cache.lookup(&words, 15, true).expect("just filled");
        cache.set_capacity(quads(1));
        assert_eq!((cache.stats().capacity, cached()), (quads(1) as u64, 5));
        fill();
        assert_eq!(cached(), 5, "four, and the one pinned");
        assert_eq!(pinned[..], [15; PAGE]);
        drop(pinned);
        cache.set_capacity(quads(1));
        assert_eq!(cached(), 4);
        cache.set_capacity(quads(9));
        assert_eq!(cache.stats().capacity, quads(4) as u64, "no more than at first");
        fill();
        assert_eq!(cached(), 16);
    }

    #[test]
    #[cfg_attr(miri, ignore = "20 000 blocks")]
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
    fn frames_being_filled_are_bounded_and_count_until_they_are_published_or_dropped() {
        let cache = FrameCache::new(2 * LOCKED_MIN as usize * PAGE);
        let words = FrameWords::new(FileId(1), 2 * LOCKED_MIN);
        assert!(cache.reserve(&words, 0, PAGE, Warmth::Uncached, false).is_none());
        for _ in 0..2 {
            let mut filling: Vec<_> = (0..LOCKED_MIN)
                .map(|block| {
                    cache.reserve(&words, block, PAGE, Warmth::Warm, false).expect("below the bound")
                })
                .collect();
            assert!(cache.reserve(&words, LOCKED_MIN, PAGE, Warmth::Warm, false).is_none());
            drop(filling.pop().map(FrameMut::publish));
            drop(cache.reserve(&words, LOCKED_MIN, PAGE, Warmth::Warm, false).expect("one was published"));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "64 MiB of frames")]
    fn blocks_of_a_file_take_the_shards_in_turn() {
        let cache = FrameCache::new(4 * SHARD_FRAMES_MIN as usize * PAGE);
        let words = FrameWords::new(FileId(7), 400);
        for block in 0..400 {
            drop(cache.reserve(&words, block, PAGE, Warmth::Warm, false).expect("a frame is free").publish());
        }
        assert!(cache.shards.iter().all(|shard| shard.lock().used() == 100));
    }

    #[test]
    #[cfg_attr(miri, ignore = "terabytes of addresses")]
    fn a_cache_of_terabytes_costs_what_is_used_of_it() {
        let cache = FrameCache::try_new(5 << 40).expect("addresses are plenty");
        assert_eq!(cache.stats().capacity, 5 << 40);
        let words = admit(&cache, 1..=1000);
        assert_eq!(cache.stats().used, 1000 * PAGE as u64);
        assert!(words.iter().all(|words| cache.lookup(words, 0, true).is_some()));
    }
}
