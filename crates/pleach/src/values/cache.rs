//! Value cache: separated values that point reads have read, by their places.
//!
//! It shares memory with the cache of blocks. Blocks come first, because a block holds the pointers to many values: they keep
//! what they use, up to seven eighths, and values get the rest. A store that admits no value has no value cache, and its blocks
//! may use everything.
//!
//! Nothing is invalidated: numbers of segments are never used again, and a pointer always leads to the same value. Values of
//! segments that are gone are never found again, so they are evicted as those are that nobody reads.
//!
//! # Invariants
//! 1. *One budget*: frames that were ever used and values take no more than the total. The cache of blocks reports when it uses
//!    more than it was granted, and values are evicted before it uses as much again.
//! 2. *Proved when admitted*: a value enters after its checksum has proved it for a key. A hit does not prove it again: it
//!    relies on the pointer, which the checksum of its block covers.
//!
//! # Concurrency
//! A hit locks its shard for reading. Shares change under the lock of `total`, which is taken before those of shards.
//!
//! # Cost
//! [`ENTRY_BYTES`] of memory for each value, which count.

use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use pleach_env::sync::Mutex;
use pleach_table::FrameCache;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::pointer::ValuePointer;

/// Memory of a cached value beside its bytes: the entry of the cache (72 bytes), the place in its table, the counts of the
/// `Arc`, and what the allocator adds.
const ENTRY_BYTES: u64 = 128;

/// The part of the total that blocks leave to values in any case: one in this many (arbitrary).
const VALUES_SHARE: usize = 8;

/// Blocks are granted this part of the total more than they use (arbitrary), so that values are seldom evicted for them.
const STEP_SHARE: usize = 64;

/// A shard has at least so many bytes (arbitrary), and larger values than that are not admitted.
const SHARD_BYTES_MIN: usize = 1 << 20;

/// Shards at most, as of the cache of blocks.
const SHARDS_MAX: usize = 32;

/// Bytes of a usual value (arbitrary). The cache remembers half as many evicted values as it can hold of this length.
const USUAL_BYTES: usize = 1 << 10;

/// A value's place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PlaceKey {
    segment: u64,
    offset: u64,
}

impl PlaceKey {
    fn new(pointer: ValuePointer) -> Self {
        Self { segment: pointer.segment.0, offset: pointer.offset }
    }
}

impl Hash for PlaceKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Offsets have 32 bits, so few places of neighbouring segments share this number.
        state.write_u64((self.segment << 32) ^ self.offset);
    }
}

/// Mixes one number. Places are chosen by the store and not by users, so no key is needed against chosen collisions.
#[derive(Default)]
struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The finalizer of MurmurHash3.
        let mut mixed = self.0.rotate_left(5) ^ number;
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        self.0 = mixed ^ (mixed >> 33);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Weighs a value by its memory.
#[derive(Clone)]
struct ByMemory;

impl Weighter<PlaceKey, Arc<[u8]>> for ByMemory {
    fn weight(&self, _: &PlaceKey, value: &Arc<[u8]>) -> u64 {
        ENTRY_BYTES + value.len() as u64
    }
}

type Values = Cache<PlaceKey, Arc<[u8]>, ByMemory, BuildHasherDefault<PlaceHasher>>;

/// See the module's text.
pub(crate) struct ValueCache {
    blocks: Arc<FrameCache>,
    /// Made for the first value.
    values: OnceLock<Values>,
    /// Bytes of blocks and values together.
    total: Mutex<usize>,
    /// Values that point reads have read. Statistics only.
    reads: AtomicU64,
}

impl ValueCache {
    /// A cache that shares memory with `blocks`. It has none before [`ValueCache::set_total`].
    pub(crate) fn new(blocks: Arc<FrameCache>) -> Arc<Self> {
        let (values, total, reads) = (OnceLock::new(), Mutex::new(0), AtomicU64::new(0));
        let cache = Arc::new(Self { blocks, values, total, reads });
        let weak = Arc::downgrade(&cache);
        cache.blocks.when_grown(move || {
            if let Some(cache) = weak.upgrade() {
                cache.grant_blocks(*cache.total.lock());
            }
        });
        cache
    }

    /// Sets the bytes of blocks and values together. When they fall, values are evicted, and then blocks.
    pub(crate) fn set_total(&self, bytes: usize) {
        let mut total = self.total.lock();
        *total = bytes;
        self.share(bytes);
    }

    /// Shares the memory again. Requires: `total` is locked.
    fn share(&self, total: usize) {
        if self.values.get().is_none() {
            return self.blocks.set_capacity(total);
        }
        self.blocks.set_capacity(total - total / VALUES_SHARE);
        self.grant_blocks(total);
    }

    /// Grants the blocks what they use and a step more, and the values the rest. Requires: `total` is locked.
    fn grant_blocks(&self, total: usize) {
        let Some(values) = self.values.get() else { return };
        let blocks_max = total - total / VALUES_SHARE;
        let granted = (self.blocks.used_bytes() + total / STEP_SHARE).min(blocks_max);
        self.blocks.watch(granted);
        values.set_capacity((total - granted).max(1) as u64);
    }

    /// The value to which a pointer leads. If it `counts`, the value is kept longer.
    #[inline]
    pub(crate) fn get(&self, pointer: ValuePointer, counts: bool) -> Option<Arc<[u8]>> {
        let (values, key) = (self.values.get()?, PlaceKey::new(pointer));
        let found = if counts { values.get(&key) } else { values.peek(&key) };
        found.filter(|value| value.len() == pointer.len as usize)
    }

    /// Admits a value that a point read has read and proved.
    pub(crate) fn admit(&self, pointer: ValuePointer, value: &Arc<[u8]>) {
        let values = match self.values.get() {
            Some(values) => values,
            None => self.start(),
        };
        values.insert(PlaceKey::new(pointer), Arc::clone(value));
    }

    /// Makes the cache of values. The blocks give up what is its.
    #[cold]
    fn start(&self) -> &Values {
        let total = self.total.lock();
        let values = self.values.get_or_init(|| {
            let capacity = (*total / VALUES_SHARE).max(1);
            let options = OptionsBuilder::new()
                .weight_capacity(capacity as u64)
                .estimated_items_capacity(capacity / USUAL_BYTES)
                .shards((*total / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX))
                .build()
                .expect("capacities are given");
            let hasher = BuildHasherDefault::default();
            Cache::with_options(options, ByMemory, hasher, DefaultLifecycle::default())
        });
        self.share(*total);
        values
    }

    /// Memory of all values.
    pub(crate) fn bytes(&self) -> u64 {
        self.values.get().map_or(0, Cache::weight)
    }

    /// Counts values that were read because they were not cached.
    pub(crate) fn note_reads(&self, values: u64) {
        self.reads.fetch_add(values, Ordering::Relaxed);
    }

    /// Values that were read because they were not cached.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}
