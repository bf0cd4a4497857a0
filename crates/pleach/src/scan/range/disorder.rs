//! The price of disorder: about how much longer the reads of a chunk's values take than if the values were in the order of
//! their keys.
//!
//! [`RangeChunks`](super::RangeChunks) begins a read for each value, so the reads that were made say nothing. Those count that an
//! iterator would make, which lets values that lie close together share one (`value_reads::batch`). Where values lie is taken
//! from their pointers, as conversions do.

use crate::values::ValuePointer;
use crate::version::reads::{DEVICE_VALUE_NS, MEMORY_VALUE_NS};

/// How values are read.
pub(super) struct Manner {
    /// Bytes between two values that share a read, at most, and bytes of a read.
    gap_max: u64,
    span_max: u64,
    /// Nanoseconds that a read more takes.
    read_ns: u64,
}

/// From the device, and from the system's memory, as an iterator reads.
pub(super) const FROM_DEVICE: Manner =
    Manner { gap_max: 16 << 10, span_max: 256 << 10, read_ns: DEVICE_VALUE_NS };
pub(super) const FROM_MEMORY: Manner =
    Manner { gap_max: 4 << 10, span_max: 64 << 10, read_ns: MEMORY_VALUE_NS };

/// Nanoseconds that reads of the values take longer than if these were in order. Values that gain nothing by order do not count.
pub(super) fn disorder_ns(mut pointers: Vec<ValuePointer>, manner: &Manner) -> u64 {
    pointers.retain(|pointer| pointer.gains_by_order());
    pointers.sort_unstable_by_key(|pointer| (pointer.segment, pointer.offset));
    let is_apart = |pair: &[ValuePointer]| {
        let end = pair[0].offset + pair[0].bytes();
        pair[0].segment != pair[1].segment || pair[1].offset > end + manner.gap_max
    };
    let groups = pointers.windows(2).filter(|pair| is_apart(pair)).count() as u64;
    let bytes: u64 = pointers.iter().map(|pointer| pointer.bytes()).sum();
    groups.saturating_sub(bytes / manner.span_max) * manner.read_ns
}

#[cfg(test)]
mod tests {
    use pleach_env::FileId;

    use super::*;

    #[test]
    fn only_reads_that_order_would_spare_have_a_price() {
        let price = |places: &[(u64, u64)]| {
            let pointer = |&(segment, offset)| ValuePointer { segment: FileId(segment), offset, len: 996 };
            disorder_ns(places.iter().map(pointer).collect(), &FROM_DEVICE)
        };
        assert_eq!(price(&[]), 0);
        assert_eq!(price(&[(1, 5_000_000)]), 0);
        let in_order: Vec<_> = (0..100).map(|i| (1, i * 1000)).collect();
        assert_eq!(price(&in_order), 0);
        // A chunk may take its values in any order of its own.
        assert_eq!(price(&in_order.iter().copied().rev().collect::<Vec<_>>()), 0);
        let long: Vec<_> = (0..10_000).map(|i| (i / 2000, i % 2000 * 1000)).collect();
        assert_eq!(price(&long), 0, "five files for ten million bytes");
        let apart: Vec<_> = (0..100).map(|i| (1 + i % 3, i * 1_000_000)).collect();
        assert_eq!(price(&apart), 99 * DEVICE_VALUE_NS);
    }
}
