//! The read cost of a sub-tree: the time that reads have spent on its runs but the first, and on separated values that are
//! not in the order of their keys.
//!
//! More runs spare writes and cost reads. Future reads are unknown. So everything is merged once reads have spent as much time
//! on further runs as the merge takes: at worst, both together cost twice as much as the better choice (the ski-rental rule).
//! The same rule decides about conversions: values are copied into the order of their keys once scans have spent as much time
//! on values in disorder as the copies take.
//!
//! Pickers compare the cost with the price. They look whenever the cost has risen by half a second, and sometimes besides.
//!
//! # Cost
//! An atomic addition and a load. Only a sample of reads adds, so that threads rarely contend for the counter.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Nanoseconds that a get takes longer for each further run, for its range and filter. Measured: cached gets from 5, 14 and
/// 29 runs.
pub(crate) const GET_NS: u64 = 70;

/// The same for a seek, which reads each run's index and a block, and places the run in the merge.
pub(crate) const SEEK_NS: u64 = 700;

/// Nanoseconds that a merge or a conversion takes for a byte: 140 MB a second.
pub(crate) const MERGE_NS_PER_BYTE: u64 = 7;

/// Nanoseconds that a scan takes for a value that it reads alone: from the device, with others in flight, and from the system's
/// memory. Measured: scans of 500 values of 1 KB before and after a conversion.
pub(crate) const DEVICE_VALUE_NS: u64 = 7000;
pub(crate) const MEMORY_VALUE_NS: u64 = 800;

/// When costs have risen by this, pickers look at them: half a second.
const LOOK_NS: u64 = 1 << 29;

/// One seek in so many of a thread is counted, and stands for all of them.
const SEEKS_SAMPLED: u64 = 16;
/// 2^64 by the golden ratio. Its multiples are spread evenly, every second or third of them too. So two partitions whose seeks
/// take turns are both counted; every sixteenth seek would be the same one's.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

thread_local! {
    static SEEKS: Cell<u64> = const { Cell::new(0) };
}

/// The read cost of a sub-tree. All its versions share it.
#[derive(Debug, Default)]
pub(crate) struct ReadCost {
    spent_ns: AtomicU64,
    /// The time that scans have spent on values in disorder.
    values_ns: AtomicU64,
    /// Whether one of them has risen by [`LOOK_NS`] since the last look.
    is_news: AtomicBool,
}

impl ReadCost {
    /// Adds the cost of reads of `runs` runs, which took `ns` longer for each run but the first.
    pub(crate) fn note(&self, runs: usize, ns: u64) {
        self.add(&self.spent_ns, (runs as u64).saturating_sub(1) * ns);
    }

    /// Adds the cost of a seek in `runs` runs. Returns whether it is one of the sample.
    pub(crate) fn note_seek(&self, runs: usize) -> bool {
        let place = SEEKS.get();
        SEEKS.set(place.wrapping_add(STEP));
        let is_sampled = place < u64::MAX / SEEKS_SAMPLED;
        if is_sampled {
            self.note(runs, SEEK_NS * SEEKS_SAMPLED);
        }
        is_sampled
    }

    /// Whether a merge of `bytes` would have cost less than the reads since the last one.
    pub(crate) fn outweighs_merge_of(&self, bytes: u64) -> bool {
        self.spent_ns.load(Ordering::Relaxed) >= bytes.saturating_mul(MERGE_NS_PER_BYTE).max(1)
    }

    /// Starts again from zero: everything is being merged.
    pub(crate) fn reset(&self) {
        self.spent_ns.store(0, Ordering::Relaxed);
    }

    /// Adds time that a scan has spent on values in disorder.
    pub(crate) fn note_values(&self, ns: u64) {
        self.add(&self.values_ns, ns);
    }

    fn add(&self, sum: &AtomicU64, ns: u64) {
        if ns > 0 {
            let before = sum.fetch_add(ns, Ordering::Relaxed);
            if before / LOOK_NS != (before + ns) / LOOK_NS {
                self.is_news.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether pickers should look at it, because it has risen noticeably. Once for each rise.
    pub(crate) fn take_news(&self) -> bool {
        self.is_news.load(Ordering::Relaxed) && self.is_news.swap(false, Ordering::Relaxed)
    }

    /// Whether a conversion that writes `bytes`, cleaning for it included, would have cost less than the disorder of values
    /// since the last one.
    pub(crate) fn outweighs_conversion_of(&self, bytes: u64) -> bool {
        self.values_ns.load(Ordering::Relaxed) >= bytes.saturating_mul(MERGE_NS_PER_BYTE).max(1)
    }

    /// Subtracts the price of a conversion that writes `bytes`. What was spent beyond that counts for the next ones, up to
    /// `MORE_MAX` of them.
    pub(crate) fn pay_conversion_of(&self, bytes: u64) {
        /// With this one, as many as put all values in order at the default space target.
        const MORE_MAX: u64 = 6;
        let price = bytes.saturating_mul(MERGE_NS_PER_BYTE);
        let left = |spent: u64| Some(spent.saturating_sub(price).min(price.saturating_mul(MORE_MAX)));
        let _always_changes = self.values_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }

    /// Starts again from zero: all values are in order, or cannot be put in order.
    pub(crate) fn reset_values(&self) {
        self.values_ns.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeks_that_take_turns_are_counted_alike() {
        for partitions in 1..40 {
            let costs: Vec<_> = (0..partitions).map(|_| ReadCost::default()).collect();
            let counted = |cost: &ReadCost| (0..1600).filter(|_| cost.note_seek(2)).count();
            assert!((90..=110).contains(&counted(&costs[0])));
            let mut sampled = vec![0; partitions];
            for _ in 0..1600 {
                costs.iter().zip(&mut sampled).for_each(|(cost, n)| *n += u32::from(cost.note_seek(2)));
            }
            assert!(sampled.iter().all(|n| (70..=130).contains(n)), "{sampled:?}");
        }
    }
}
