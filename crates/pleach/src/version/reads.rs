//! Costs of the reads of a sub-tree that come from its several runs.
//!
//! Runs that stay side by side spare writes and cost reads. Nobody knows what will be read; but once reads have spent as
//! much time on further runs as a merge of all of them would have taken, the merge is worth its price, and at worst both
//! together cost twice what the better choice would have (the rule of the rented skis).
//!
//! # Cost
//! An atomic addition. Readers add for a sample of reads only, so that threads do not meet at it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time that a get takes longer for each further run, in nanoseconds: its range and filter. Measured by gets from 5, 14 and
/// 29 runs, cached.
pub(crate) const GET_NS: u64 = 70;

/// The same of a seek, which has to look into each run: its index, a block, its place in the merge.
pub(crate) const SEEK_NS: u64 = 700;

/// Time that a merge takes for a byte: 140 MB a second.
pub(crate) const MERGE_NS_PER_BYTE: u64 = 7;

/// One seek of a thread in so many is counted, for all of them.
const SEEKS_SAMPLED: u64 = 16;

thread_local! {
    static SEEKS: Cell<u64> = const { Cell::new(0) };
}

/// The account of a sub-tree, the same in all its versions.
#[derive(Debug, Default)]
pub(crate) struct ReadCost {
    spent_ns: AtomicU64,
}

impl ReadCost {
    /// Takes note of reads of `runs` runs that took `ns` longer, all together, for each run but the first.
    pub(crate) fn note(&self, runs: usize, ns: u64) {
        self.spent_ns.fetch_add((runs as u64).saturating_sub(1) * ns, Ordering::Relaxed);
    }

    /// Takes note of a seek.
    pub(crate) fn note_seek(&self, runs: usize) {
        let number = SEEKS.get();
        SEEKS.set(number.wrapping_add(1));
        if number.is_multiple_of(SEEKS_SAMPLED) {
            self.note(runs, SEEK_NS * SEEKS_SAMPLED);
        }
    }

    /// Whether a merge of `bytes` would have cost less than the reads since the last one.
    pub(crate) fn outweighs_merge_of(&self, bytes: u64) -> bool {
        self.spent_ns.load(Ordering::Relaxed) >= bytes.saturating_mul(MERGE_NS_PER_BYTE).max(1)
    }

    /// Starts anew: everything is being merged.
    pub(crate) fn reset(&self) {
        self.spent_ns.store(0, Ordering::Relaxed);
    }
}
