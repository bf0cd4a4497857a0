//! The memory of a store's memtables: regions for their arenas, and the sum of what they hold.
//!
//! The write path compares the sum with what the memory budget grants (`memory_shares`).
//!
//! # Concurrency
//! The writer of a memtable adds to the sum, the drop of a memtable subtracts from it, on any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pleach_env::memory::RegionPool;

/// Number of chunks that hold a memtable's budget, so that little is left over at its end.
const CHUNKS_PER_BUDGET: usize = 16;

/// See the module's text.
pub(crate) struct MemtableMemory {
    /// Regions of flushed memtables, for the next ones.
    regions: Arc<RegionPool>,
    /// Bytes of all [`Holding`]s. Sequentially consistent, for `memory_shares`.
    held: AtomicUsize,
}

impl MemtableMemory {
    /// Memory for memtables with this budget, which keeps the regions of `kept` of them for reuse.
    pub(crate) fn new(budget: usize, kept: usize) -> Arc<Self> {
        let region_len = (budget / CHUNKS_PER_BUDGET).clamp(32 << 10, 4 << 20);
        let regions = Arc::new(RegionPool::new(region_len, kept * CHUNKS_PER_BUDGET));
        Arc::new(Self { regions, held: AtomicUsize::new(0) })
    }

    pub(super) fn regions(&self) -> &Arc<RegionPool> {
        &self.regions
    }

    /// Length of the regions, by which memtables grow.
    pub(crate) fn region_len(&self) -> usize {
        self.regions.region_len()
    }

    /// Bytes of all memtables, pinned ones included, and of the regions kept for reuse.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.held.load(Ordering::SeqCst) + self.regions.kept_bytes()
    }

    /// Bytes of the regions kept for reuse.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.regions.kept_bytes()
    }

    /// Frees the regions kept for reuse.
    pub(crate) fn free_kept(&self) {
        self.regions.clear();
    }
}

/// What one memtable holds of the memory.
pub(super) struct Holding {
    memory: Arc<MemtableMemory>,
    /// The writer alone changes it.
    bytes: AtomicUsize,
}

impl Holding {
    pub(super) fn new(memory: &Arc<MemtableMemory>) -> Self {
        Self { memory: Arc::clone(memory), bytes: AtomicUsize::new(0) }
    }

    /// For the writer: notes that the memtable holds `bytes` now. It never shrinks.
    #[inline]
    pub(super) fn grow_to(&self, bytes: usize) {
        let before = self.bytes.load(Ordering::Relaxed);
        if bytes != before {
            self.bytes.store(bytes, Ordering::Relaxed);
            self.memory.held.fetch_add(bytes - before, Ordering::SeqCst);
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes.load(Ordering::Relaxed), Ordering::SeqCst);
    }
}
