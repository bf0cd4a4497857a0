//! The usual length of the scans of a sub-tree: how many entries a scan is likely to take that has not said it.
//!
//! The scans of one sub-tree tend to be alike: pages of a list, the lines of an order. A walk that is not in memory sizes its
//! first read by it, where it would otherwise begin with a short one and wait for the device several times.
//!
//! A shorter scan lowers the length at once; a longer one raises it by an eighth of the difference. So where lengths differ it
//! stays near the short ones, and little is read for nothing.
//!
//! # Cost
//! An atomic load for each scan, and a store for a sample of them ([`ReadCost`](super::reads::ReadCost) draws it).

use std::sync::atomic::{AtomicU64, Ordering};

/// A longer scan raises the length by the difference divided by this. (Arbitrary: higher learns later, lower reads more for
/// nothing.)
const RISE: u64 = 8;

/// See the module's text. All versions of a sub-tree share it.
#[derive(Debug, Default)]
pub(crate) struct ScanLength {
    entries: AtomicU64,
}

impl ScanLength {
    /// Entries that a scan takes; 0 if that is unknown.
    pub(crate) fn usual(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Learns from a scan that took `entries`. Of two at the same time one may be lost.
    pub(crate) fn note(&self, entries: u64) {
        let usual = self.usual();
        let raised = usual + entries.saturating_sub(usual).div_ceil(RISE);
        self.entries.store(entries.min(raised), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_of_one_length_are_learned() {
        let length = ScanLength::default();
        assert_eq!(length.usual(), 0);
        (0..40).for_each(|_| length.note(100));
        assert_eq!(length.usual(), 100);
        length.note(u64::MAX);
        assert!(length.usual() > 1 << 60);
    }

    #[test]
    fn short_scans_among_long_ones_keep_it_low() {
        let length = ScanLength::default();
        (0..100).for_each(|n| length.note(if n % 4 == 0 { 10 } else { 1000 }));
        length.note(10);
        assert_eq!(length.usual(), 10);
        length.note(1000);
        assert_eq!(length.usual(), 134);
    }
}
