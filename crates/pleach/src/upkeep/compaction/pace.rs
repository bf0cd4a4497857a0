//! The pace of compactions: a budget of bytes a second, so that merges leave disk and processors to others.
//!
//! With a budget, workers sleep between pieces of their output. The budget is suspended while debt slows writers down, or a
//! thread waits for compactions to end, because a delay then costs more than it saves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The workers' common budget.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// 0: no budget.
    bytes_per_s: u64,
    /// The environment's time at which the output so far is within the budget.
    paid_at_ns: AtomicU64,
}

/// Output between two charges.
const PIECE_BYTES: u64 = 1 << 20;

/// Longest sleep that workers can owe, so that no single charge stops them for good.
const OWED_MAX: Duration = Duration::from_secs(60);

/// The part of an output that was charged for. The output's length is an estimate: it shrinks when a block is compressed.
#[derive(Default)]
pub(super) struct ChargedOutput {
    charged: u64,
}

impl ChargedOutput {
    /// The bytes to charge for an output of `len` bytes, if they are a whole piece.
    #[inline]
    pub(super) fn piece(&mut self, len: u64) -> Option<u64> {
        (len >= self.charged.saturating_add(PIECE_BYTES)).then(|| self.rest(len))
    }

    /// The bytes to charge for an output of `len` bytes, however few.
    pub(super) fn rest(&mut self, len: u64) -> u64 {
        let bytes = len.saturating_sub(self.charged);
        self.charged = self.charged.max(len);
        bytes
    }
}

const NS_PER_S: u128 = 1_000_000_000;

impl Pacer {
    /// A budget; none for zero.
    pub(crate) fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, paid_at_ns: AtomicU64::new(0) }
    }

    /// Whether there is a budget.
    pub(crate) fn is_on(&self) -> bool {
        self.bytes_per_s > 0
    }

    /// Charges the budget for `bytes` at the time `now`; returns how long to sleep until the output is within the budget.
    pub(crate) fn charge(&self, bytes: u64, now: Duration) -> Duration {
        let ns = u128::from(bytes) * NS_PER_S / u128::from(self.bytes_per_s.max(1));
        let (price, now) = (clamped(ns), clamped(now.as_nanos()));
        let latest = now.saturating_add(clamped(OWED_MAX.as_nanos()));
        let paid = |paid_at: u64| paid_at.max(now).saturating_add(price).min(latest);
        let pay = |paid_at| Some(paid(paid_at));
        let before = self.paid_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
        Duration::from_nanos(paid(before.expect("the closure always pays")) - now)
    }
}

fn clamped(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_the_budget() {
        let pacer = Pacer::new(1 << 20);
        let at = Duration::from_secs;
        assert_eq!(pacer.charge(1 << 20, at(10)), at(1));
        assert_eq!(pacer.charge(1 << 20, at(10)), at(2), "another worker, at the same time");
        assert_eq!(pacer.charge(1 << 20, at(12)), at(1), "an unused budget is lost");
        assert_eq!(pacer.charge(1 << 20, at(100)), at(1));
    }

    #[test]
    fn what_workers_owe_has_a_bound() {
        let pacer = Pacer::new(1);
        let at = Duration::from_secs;
        assert_eq!(pacer.charge(u64::MAX, at(10)), OWED_MAX);
        assert_eq!(pacer.charge(1, at(10)), OWED_MAX);
        assert_eq!(pacer.charge(1, at(11) + OWED_MAX), at(1), "and end");
    }

    #[test]
    fn an_output_that_shrinks_is_not_charged_twice() {
        let mut charged = ChargedOutput::default();
        assert_eq!(charged.piece(PIECE_BYTES - 1), None);
        assert_eq!(charged.piece(PIECE_BYTES + 4000), Some(PIECE_BYTES + 4000));
        assert_eq!(charged.rest(PIECE_BYTES), 0, "a block was compressed");
        assert_eq!(charged.piece(2 * PIECE_BYTES + 3999), None);
        assert_eq!(charged.rest(PIECE_BYTES + 5000), 1000);
    }
}
