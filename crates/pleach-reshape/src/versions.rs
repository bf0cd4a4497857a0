//! Versions: one number for each transaction of the whole store, which orders the rows of a key.
//!
//! # Invariants
//! 1. Unique: no version comes twice, also after a crash. A transaction raises the *ceiling* in the store before a version
//!    at or above it is used; an open goes on at the ceiling. Crashes leave a prefix of the commits, so a row is only there
//!    together with a ceiling above its version.

use std::sync::atomic::{AtomicU64, Ordering};

use pleach::Result;
use pleach::env::sync::Mutex;

use crate::named;
use crate::store::RowStore;

/// Versions between two transactions that raise the ceiling. One transaction among so many does not count.
const STEP: u64 = 1 << 20;

/// The allocator of versions.
#[derive(Debug)]
pub(crate) struct Versions {
    next: AtomicU64,
    ceiling: AtomicU64,
    raising: Mutex<()>,
}

impl Versions {
    /// Goes on at the store's ceiling.
    pub(crate) fn new(ceiling: u64) -> Self {
        // 0 stands for no version.
        Self {
            next: AtomicU64::new(ceiling.max(1)),
            ceiling: AtomicU64::new(ceiling),
            raising: Mutex::new(()),
        }
    }

    /// A version greater than all before.
    pub(crate) fn take(&self, store: &dyn RowStore) -> Result<u64> {
        // Sequentially consistent, with the slots of writers in flight: see `Allocator::take_from`.
        let version = self.next.fetch_add(1, Ordering::SeqCst);
        if version >= self.ceiling.load(Ordering::Acquire) {
            self.raise(store, version)?;
        }
        Ok(version)
    }

    #[cold]
    fn raise(&self, store: &dyn RowStore, version: u64) -> Result<()> {
        let _raising = self.raising.lock();
        let ceiling = self.ceiling.load(Ordering::Acquire);
        if version >= ceiling {
            let raised = version + STEP;
            named::set_ceiling(store, raised)?;
            self.ceiling.store(raised, Ordering::Release);
        }
        Ok(())
    }

    /// The smallest version that was never taken.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }
}
