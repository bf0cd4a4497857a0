//! Shares of the memory budget: what the memtables hold now, and what the cache has of the rest.
//!
//! Memtables may take three eighths of the budget, but most of the time they hold less. The cache borrows the difference. The
//! commit leader calls [`MemoryShares::follow_memtables`] when it has reserved memory and before it fills it: if the
//! memtables hold more than they were granted, the cache evicts blocks, or separated values ([`ValueCache`]), and gives their
//! memory back. The cleaner calls [`MemoryShares::review`] when filters and indexes have changed, and when nothing was
//! written for a while.
//!
//! Filters borrow nothing, because one that was evicted has to be read again.
//!
//! # Invariants
//! 1. *Granted first*: memtables fill no memory, up to their largest share, before the cache has given up as much. Exceptions
//!    are blocks that readers pin, which the cache gives up later.
//!
//! # Cost
//! Of a commit: a comparison. Each time the memtables have grown by a region (a sixteenth of a memtable, at most 4 MiB): the
//! eviction of as many bytes of blocks, if the cache uses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pleach_env::sync::Mutex;

use crate::memtable::MemtableMemory;
use crate::values::ValueCache;

/// See the module's text.
pub(crate) struct MemoryShares {
    pub(crate) memtables: Arc<MemtableMemory>,
    /// The caches of blocks and of values, which share what they have.
    cache: Arc<ValueCache>,
    /// The largest share of the memtables, in bytes.
    memtables_max: usize,
    /// Bytes that memtables may hold before the cache has to give up more; `usize::MAX` when it has given up their largest
    /// share. Changed under `cache_min`. Sequentially consistent, as the sum of the memtables is: of a grant and a reservation,
    /// whichever comes second observes the other.
    granted: AtomicUsize,
    /// Bytes of the cache while it borrows nothing: what filters, indexes and the largest share of memtables leave.
    cache_min: Mutex<usize>,
}

impl MemoryShares {
    /// The shares of a store that was just opened.
    pub(crate) fn new(
        memtables: Arc<MemtableMemory>,
        memtables_max: usize,
        cache: Arc<ValueCache>,
        cache_min: usize,
    ) -> Self {
        let (granted, cache_min) = (AtomicUsize::new(0), Mutex::new(cache_min));
        let shares = Self { memtables, cache, memtables_max, granted, cache_min };
        shares.grant();
        shares
    }

    /// Lets the cache give up what the memtables hold, if they hold more than was granted. For threads that write to them,
    /// after a reservation.
    #[inline]
    pub(crate) fn follow_memtables(&self) {
        if self.memtables.bytes() > self.granted.load(Ordering::SeqCst) {
            self.grant();
        }
    }

    #[cold]
    fn grant(&self) {
        self.grant_what_is_held(*self.cache_min.lock());
    }

    /// Grants the memtables what they hold and one region more, and the cache the rest. Requires: `cache_min` is locked.
    fn grant_what_is_held(&self, cache_min: usize) {
        let mut granted = 0;
        while self.memtables.bytes() > granted {
            granted = self.memtables.bytes() + self.memtables.region_len();
            if granted >= self.memtables_max {
                granted = usize::MAX;
            }
            self.granted.store(granted, Ordering::SeqCst);
        }
        self.cache.set_total(cache_min + self.memtables_max.saturating_sub(granted));
    }

    /// Notes the memory that filters and indexes leave to the cache. If `is_idle`, the memory that is kept for the next
    /// memtables is freed, and the cache borrows all that the memtables do not hold.
    pub(crate) fn review(&self, cache_min: usize, is_idle: bool) {
        let mut current = self.cache_min.lock();
        *current = cache_min;
        if is_idle {
            self.memtables.free_kept();
            self.grant_what_is_held(cache_min);
        } else {
            let granted = self.granted.load(Ordering::SeqCst);
            self.cache.set_total(cache_min + self.memtables_max.saturating_sub(granted));
        }
    }
}
