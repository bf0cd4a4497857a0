//! Search for a number among ascending ones: a table over the leading bits, then a search without branches.

use std::hint::select_unpredictable;

use super::count;

/// A table over the leading bits of `head - base`: how many heads fall before each bucket.
#[derive(Clone, Debug)]
pub(super) struct Narrowing {
    base: u64,
    shift: u32,
    /// One entry more than there are buckets.
    table: Box<[u32]>,
}

impl Narrowing {
    /// A table with at most as many buckets as heads, and more than half as many.
    pub(super) fn over(heads: &[u64]) -> Self {
        let base = heads.first().copied().unwrap_or(0);
        let span = heads.last().copied().unwrap_or(0) - base;
        let bucket_bits = heads.len().max(1).ilog2();
        let shift = (64 - span.leading_zeros()).saturating_sub(bucket_bits);
        let last_bucket = span >> shift.min(63);
        let mut table = Vec::new();
        let mut seen = 0;
        for bucket in 0..=last_bucket {
            let rest = heads.get(seen..).unwrap_or_default();
            table.push(count(seen));
            seen += rest.iter().take_while(|&&h| (h - base) >> shift.min(63) == bucket).count();
        }
        table.push(count(seen));
        Self { base, shift: shift.min(63), table: table.into() }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.table.len() * 4
    }

    /// The entry that [`Narrowing::range`] reads first.
    #[inline]
    pub(super) fn entry(&self, head: u64) -> Option<&u32> {
        let bucket = usize::try_from(head.checked_sub(self.base)? >> self.shift).ok()?;
        self.table.get(bucket)
    }

    /// Bounds of the number of heads below `head`: the heads between them are to be searched.
    #[inline]
    pub(super) fn range(&self, head: u64) -> (usize, usize) {
        let Some(distance) = head.checked_sub(self.base) else { return (0, 0) };
        let bucket = usize::try_from(distance >> self.shift).unwrap_or(usize::MAX);
        if let Some([lower, upper, ..]) = self.table.get(bucket..) {
            return (*lower as usize, *upper as usize);
        }
        let all = self.table.last().map_or(0, |&n| n as usize);
        (all, all)
    }
}

/// Heads that are compared one by one: eight independent comparisons in a cache line are faster than three dependent ones.
const COUNTED: usize = 8;

/// How many of the ascending `heads` are below `head`, without branches that depend on them.
#[inline]
pub(super) fn partition_below(heads: &[u64], head: u64) -> usize {
    let mut base = 0;
    let mut size = heads.len();
    while size > COUNTED {
        let half = size / 2;
        let middle = heads.get(base + half - 1).copied().unwrap_or(u64::MAX);
        base += select_unpredictable(middle < head, half, 0);
        size -= half;
    }
    let rest = heads.get(base..base + size).unwrap_or_default();
    base + rest.iter().map(|&h| usize::from(h < head)).sum::<usize>()
}
