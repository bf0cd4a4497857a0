//! Value cache: separated values that point reads have read, by the hashes of their keys.
//!
//! A lookup has the hash of its key long before it has the pointer. So it prefetches the cached value while it searches for the
//! pointer. The pointer then says whether the value is the right one: each cached value knows its place.
//!
//! Values lie in memory of huge pages, because under nested paging a TLB miss costs as much as a cache miss. A [`shard`] has a
//! [`table`] of [`slot`]s and an [`arena`] of values. A value that was read pins its slot, so nothing is copied ([`values`]).
//!
//! The cache shares memory with the cache of blocks. Blocks come first, because a block holds the pointers to many values: they
//! keep what they use, up to seven eighths, and values get the rest. A store that admits no value has no value cache, and its
//! blocks may use everything.
//!
//! Nothing is invalidated: numbers of segments are never used again, and a pointer always leads to the same value. An obsolete
//! value is evicted when a newer value of its key is admitted, or when the hand of its shard passes it.
//!
//! # Invariants
//! 1. *One budget*: frames that were ever used, tables, and lines of arenas that were ever used take no more than the total. The
//!    cache of blocks reports when it uses more than it was granted, and values are evicted before it uses as much again. Memory
//!    that a reader pins stays until its pin is gone and the shares change again.
//! 2. *Proved when admitted*: a value enters after its checksum has proved it for a key. A hit does not prove it again: it
//!    relies on the pointer, which the checksum of its block covers.
//!
//! # Concurrency
//! A hit takes no lock: it writes only to the state of its slot. Shares change under the lock of `total`, which is taken before
//! those of shards.
//!
//! # Cost
//! A hit waits for a line of the table and for the lines of the value, mostly while the block is searched. A value takes a header
//! of 16 bytes, is rounded up to 64 bytes, and takes 28 to 57 bytes of the table: together less than a quarter of a value of
//! 512 bytes, and a tenth of one of 1000. The system may give each table and each arena up to 2 MiB more than that, for the rest
//! of a huge page, and each arena 4 MiB for which it was asked ahead ([`ValueCache::populate`]), but none beyond the capacity.

mod arena;
mod shard;
mod slot;
mod table;
mod values;

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use pleach_env::JobWaker;
use pleach_env::sync::Mutex;
use pleach_table::FrameCache;

use self::values::{CachedValue, Values};
use super::pointer::ValuePointer;

/// The part of the total that blocks leave to values in any case, but for what [`whole_steps`] cuts off: one in this many
/// (arbitrary).
const VALUES_SHARE: usize = 8;

/// Blocks are granted this part of the total more than they use (arbitrary), so that values are seldom evicted for them.
const STEP_SHARE: usize = 64;

/// The bytes of a separated value: in the cache, or those of a reader.
#[derive(Clone)]
pub(crate) enum ValueBytes {
    /// A pin of the cached value.
    Cached(CachedValue),
    /// A copy of its own.
    Heap(Arc<[u8]>),
}

impl Deref for ValueBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Cached(value) => value,
            Self::Heap(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for ValueBytes {
    fn from(bytes: &[u8]) -> Self {
        Self::Heap(bytes.into())
    }
}

/// See the module's text.
pub(crate) struct ValueCache {
    blocks: Arc<FrameCache>,
    /// Made for the first value. `None` if the process may not have so many addresses.
    values: OnceLock<Option<Values>>,
    /// Bytes of blocks and values together at most.
    total_max: usize,
    /// Bytes of blocks and values together.
    total: Mutex<usize>,
    /// Values that point reads have read. Statistics only.
    reads: AtomicU64,
    /// The job that calls [`ValueCache::populate`].
    populator: OnceLock<JobWaker>,
}

/// `bytes` of a `total`, rounded down to whole steps. The memtables take a large total in many small pieces, and each time that
/// the values' capacity falls, a commit waits for a look at all of their slots.
fn whole_steps(bytes: usize, total: usize) -> usize {
    let step = 1 << (total / STEP_SHARE).max(1).ilog2();
    bytes / step * step
}

impl ValueCache {
    /// A cache that shares memory with `blocks`. It has none before [`ValueCache::set_total`].
    pub(crate) fn new(blocks: Arc<FrameCache>) -> Arc<Self> {
        let (values, total, reads) = (OnceLock::new(), Mutex::new(0), AtomicU64::new(0));
        let populator = OnceLock::new();
        let total_max = usize::try_from(blocks.stats().capacity).unwrap_or(usize::MAX);
        let cache = Arc::new(Self { blocks, values, total_max, total, reads, populator });
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
        if self.values().is_none() {
            return self.blocks.set_capacity(total);
        }
        self.blocks.set_capacity(total - total / VALUES_SHARE);
        self.grant_blocks(total);
    }

    /// Grants the blocks what they use and about a step more, and the values the rest. Requires: `total` is locked.
    fn grant_blocks(&self, total: usize) {
        let Some(values) = self.values() else { return };
        let blocks_max = total - total / VALUES_SHARE;
        let granted = (self.blocks.used_bytes() + total / STEP_SHARE).min(blocks_max);
        let of_values = whole_steps(total - granted, total);
        self.blocks.watch(total - of_values);
        values.set_capacity(of_values);
    }

    #[inline]
    fn values(&self) -> Option<&Values> {
        self.values.get()?.as_ref()
    }

    /// Prefetches where a value of a key with this hash would be found.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(values) = self.values() {
            values.prefetch(hash);
        }
    }

    /// Prefetches the beginning of a value of a key with this hash, if one seems to be there. To be called when
    /// [`ValueCache::prefetch`] was called a moment before. Returns whether one seems to be there: then the block of the key
    /// probably holds pointers.
    #[inline]
    pub(crate) fn prefetch_value(&self, hash: u64) -> bool {
        self.values().is_some_and(|values| values.prefetch_value(hash))
    }

    /// The value to which a pointer of a key with this hash leads. If it `counts`, the value is kept longer.
    #[inline]
    pub(crate) fn get(&self, hash: u64, pointer: ValuePointer, counts: bool) -> Option<ValueBytes> {
        self.values()?.get(hash, pointer, counts).map(ValueBytes::Cached)
    }

    /// Admits a value that a point read has read and proved. `None` if it is too large, or too much is pinned.
    pub(crate) fn admit(&self, hash: u64, pointer: ValuePointer, bytes: &[u8]) -> Option<ValueBytes> {
        let values = if self.values.get().is_some() { self.values() } else { self.start() };
        let admitted = values.and_then(|values| values.admit(hash, pointer, bytes));
        if values.is_some_and(|values| values.wants_memory(hash))
            && let Some(populator) = self.populator.get()
        {
            populator.wake();
        }
        admitted.map(ValueBytes::Cached)
    }

    /// Notes that the cached value to which `from` leads has a copy, to which `to` leads: from now on it is found by that.
    pub(crate) fn note_copy(&self, hash: u64, from: ValuePointer, to: ValuePointer) {
        if let Some(values) = self.values() {
            values.note_copy(hash, from, to);
        }
    }

    /// Admits a value if another one of its key is cached.
    pub(crate) fn renew(&self, hash: u64, pointer: ValuePointer, bytes: &[u8]) {
        if let Some(values) = self.values()
            && values.may_have(hash)
        {
            let _unpinned = values.admit(hash, pointer, bytes);
        }
    }

    /// Has a job woken when [`ValueCache::populate`] is to be called.
    pub(crate) fn set_populator(&self, job: JobWaker) {
        let _set_once = self.populator.set(job);
    }

    /// Asks the system for memory ahead of the values, so that readers do not wait for it.
    pub(crate) fn populate(&self) {
        if let Some(values) = self.values() {
            values.populate();
        }
    }

    /// Makes the cache of values. The blocks give up what is its.
    #[cold]
    fn start(&self) -> Option<&Values> {
        let total = self.total.lock();
        let values = self.values.get_or_init(|| Values::try_new(self.total_max.max(*total)));
        self.share(*total);
        values.as_ref()
    }

    /// Memory of all values.
    pub(crate) fn bytes(&self) -> u64 {
        self.values().map_or(0, |values| values.used_bytes() as u64)
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

#[cfg(test)]
mod tests;
