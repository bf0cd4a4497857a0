//! Back-pressure: a charge in time for each byte written, by which writers slow down while background work is behind.
//!
//! The charge depends on debt: runs that reads must search, garbage that takes space, and memtables that wait for their
//! flush (`version_set::debt`, `WritePath::memtable_ratio`). A debt ratio is 0 below a soft limit and 1 at a hard limit. At
//! ratio 0 a write is not charged. Above, the charge for a KiB grows with the ratio, so writers slow down to the pace of the
//! background work long before the hard limit. A commit leader sleeps for its whole group. The time that writers were charged
//! and have not slept yet is *owed*.
//!
//! # Origin
//! `WiredTiger`'s eviction and `TigerBeetle`'s paced compaction also charge each write its share; the curve is ours.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Pressure {
    /// Charge for each KiB written, in nanoseconds, by the debt of compactions.
    per_kib_ns: AtomicU64,
    /// Whether garbage exceeds its soft limit.
    has_garbage_debt: AtomicBool,
    /// When, in the environment's time, all writes so far are paid. Changed by commit leaders only, one at a time.
    paid_at_ns: AtomicU64,
}

/// Charge for a KiB at a debt ratio of one half: 10 us, or 100 MB a second.
const HALFWAY_NS: f64 = 10_000.0;

/// Highest charge for a KiB: 1 ms, or a megabyte a second.
const CHARGE_MAX_NS: f64 = 1_000_000.0;

/// Shorter sleeps are postponed: 100 us.
const SLEEP_MIN_NS: u64 = 100_000;

/// Longest sleep of a group for what others owe: 1 ms. If a longer sleep is due, requests that may not wait are refused.
pub(super) const SLEEP_FOR_OTHERS_NS: u64 = 1_000_000;

/// Most time that writers can owe, and so the longest sleep: 100 ms. The excess is forgiven. At the hard limit, groups of a
/// megabyte then write ten megabytes a second.
const OWED_MAX_NS: u64 = 100_000_000;

impl Pressure {
    /// Sets the charge by the largest debt ratios of all partitions, and by that of separated values.
    pub(crate) fn measure(&self, (runs_ratio, garbage_ratio): (f64, f64), values_ratio: f64) {
        self.has_garbage_debt.store(garbage_ratio > 0.0, Ordering::Relaxed);
        let ratio = runs_ratio.max(garbage_ratio).max(values_ratio);
        self.per_kib_ns.store(charge_ns(ratio), Ordering::Relaxed);
    }

    /// Whether garbage exceeds its soft limit.
    pub(crate) fn has_garbage_debt(&self) -> bool {
        self.has_garbage_debt.load(Ordering::Relaxed)
    }

    /// Whether writes are charged.
    pub(crate) fn is_on(&self, memtable_ratio: f64) -> bool {
        memtable_ratio > 0.0 || self.per_kib_ns.load(Ordering::Relaxed) > 0
    }

    /// Charges a group that wrote `bytes`. Returns the sleep that is due. `memtable_ratio` is the fill ratio of the memtables.
    pub(crate) fn charge(&self, bytes: usize, memtable_ratio: f64, now: Duration) -> Option<Duration> {
        let own = self.charge_of(bytes, memtable_ratio);
        let owed = self.owed_ns(now).saturating_add(own).min(OWED_MAX_NS);
        self.paid_at_ns.store(nanos(now) + owed, Ordering::Relaxed);
        let due = owed.min(own.max(SLEEP_FOR_OTHERS_NS));
        (due >= SLEEP_MIN_NS).then(|| Duration::from_nanos(due))
    }

    /// Cancels what writers owe, because background work has caught up.
    pub(crate) fn forgive(&self) {
        self.paid_at_ns.store(0, Ordering::Relaxed);
    }

    /// Whether a group whose requests that may wait write `bytes` would sleep too long for its requests that may not.
    pub(crate) fn must_sleep(&self, bytes: usize, memtable_ratio: f64, now: Duration) -> bool {
        self.owed_ns(now).saturating_add(self.charge_of(bytes, memtable_ratio)) >= SLEEP_FOR_OTHERS_NS
    }

    /// The charge for `bytes` in nanoseconds.
    fn charge_of(&self, bytes: usize, memtable_ratio: f64) -> u64 {
        let per_kib = self.per_kib_ns.load(Ordering::Relaxed).max(charge_ns(memtable_ratio));
        (bytes as u64).saturating_mul(per_kib) / 1024
    }

    /// What writers owe, in nanoseconds.
    fn owed_ns(&self, now: Duration) -> u64 {
        self.paid_at_ns.load(Ordering::Relaxed).saturating_sub(nanos(now))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}

/// Charge for a KiB: `HALFWAY_NS * ratio / (1 - ratio)`, at most [`CHARGE_MAX_NS`].
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and CHARGE_MAX_NS")]
fn charge_ns(ratio: f64) -> u64 {
    if ratio <= 0.0 {
        return 0;
    }
    (HALFWAY_NS * ratio / (1.0 - ratio).max(1e-6)).min(CHARGE_MAX_NS) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charge_grows_smoothly() {
        assert_eq!(charge_ns(0.0), 0);
        assert_eq!(charge_ns(0.5), 10_000);
        assert_eq!(charge_ns(1.0), 1_000_000);
        let charges: Vec<_> = (0..=100).map(|percent| charge_ns(f64::from(percent) / 100.0)).collect();
        assert!(charges.is_sorted());
        assert!(charges.windows(2).take(90).all(|pair| pair[1] < pair[0] * 2 + 200), "{charges:?}");
    }

    #[test]
    fn writers_above_the_charged_pace_sleep() {
        let pressure = Pressure::default();
        let at = Duration::from_micros;
        assert_eq!(pressure.charge(1 << 20, 0.0, at(0)), None);
        pressure.per_kib_ns.store(10_000, Ordering::Relaxed);
        // A KiB every 10 us is not too fast; ten at once are, by 100 us.
        let slow = (0..100).find_map(|i| pressure.charge(1024, 0.0, at(10 * i)));
        assert_eq!(slow, None);
        assert_eq!(pressure.charge(9 * 1024, 0.0, at(1000)), None);
        assert_eq!(pressure.charge(1024, 0.0, at(1000)), Some(at(100)));
        // A large group sleeps for all that it owes.
        assert_eq!(pressure.charge(1 << 20, 0.0, at(2000)), Some(at(10_240)));
    }

    #[test]
    fn a_small_write_sleeps_at_most_a_millisecond_for_others() {
        let pressure = Pressure::default();
        let at = Duration::from_micros;
        pressure.per_kib_ns.store(10_000, Ordering::Relaxed);
        assert!(!pressure.must_sleep(0, 0.0, at(0)));
        assert!(pressure.must_sleep(100 << 10, 0.0, at(0)));
        assert_eq!(pressure.charge(1 << 30, 0.0, at(0)), Some(at(100_000)), "the rest is forgiven");
        assert_eq!(pressure.charge(116, 0.0, at(10_000)), Some(at(1000)));
        assert!(pressure.must_sleep(0, 0.0, at(98_000)));
        assert!(!pressure.must_sleep(0, 0.0, at(100_000)));
        pressure.forgive();
        assert!(!pressure.must_sleep(0, 0.0, at(10_000)));
        // Not even at the hard limit.
        assert_eq!(pressure.charge(116, 1.0, at(200_000)), Some(Duration::from_nanos(113_281)));
    }
}
