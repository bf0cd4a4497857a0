//! Back-pressure: how much writers are slowed down, so that debts of flush and compaction never end in a stop.
//!
//! Debt is measured where it hurts: runs that a read has to look at, garbage that takes space, memtables that wait for
//! their flush. Below a soft limit a write is not looked at. Above it each byte is to take a little time, more the nearer
//! a hard limit is, so that the flow of writes meets the pace of the background work and stays there. Whoever is faster
//! sleeps a little: the leader of a commit, for all in its group.
//!
//! # Origin
//! The idea of charging each write its share is old (`WiredTiger`'s eviction, `TigerBeetle`'s paced compaction); the curve
//! is ours.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::version::{Run, SubTree, Version};

/// What the writers of a store are charged.
#[derive(Default)]
pub(crate) struct Pressure {
    /// Nanoseconds for each KiB written, by the debt of compactions.
    per_kib_ns: AtomicU64,
    space_is_short: AtomicBool,
    /// When, in the environment's time, all writes so far are paid for. Changed by commit leaders only, one at a time.
    paid_at_ns: AtomicU64,
}

/// Runs in a sub-tree from which on writers are slowed down, and those at which they nearly stop.
const RUNS: (f64, f64) = (40.0, 80.0);

/// The same for garbage, as a share of the live entries.
const GARBAGE: (f64, f64) = (0.3, 0.5);

/// Garbage of so many memtables does not count.
const GARBAGE_MEMTABLES: u64 = 4;

/// Time for a KiB at half of the way to a hard limit: 10 us, or 100 MB a second.
const HALFWAY_NS: f64 = 10_000.0;

/// Longest time for a KiB: a megabyte a second.
const CHARGE_MAX_NS: f64 = 1_000_000.0;

/// Sleeps are put off until they are worth it.
const SLEEP_MIN_NS: u64 = 100_000;

/// Longest sleep at once; the rest stays owed.
const SLEEP_MAX_NS: u64 = 1_000_000;

impl Pressure {
    /// Looks at the debts of a version.
    pub(crate) fn measure(&self, version: &Version, memtable_bytes: u64) {
        let (mut way, mut space_way) = (0.0_f64, 0.0_f64);
        for (_, partition) in version.partitions() {
            let debt = Debt::of(&partition.tree, memtable_bytes);
            way = way.max(way_to(debt.runs, RUNS));
            space_way = space_way.max(way_to(debt.garbage_share, GARBAGE));
        }
        self.space_is_short.store(space_way > 0.0, Ordering::Relaxed);
        self.per_kib_ns.store(charge_ns(way.max(space_way)), Ordering::Relaxed);
    }

    /// Whether garbage has outgrown the soft limit.
    pub(crate) fn is_space_short(&self) -> bool {
        self.space_is_short.load(Ordering::Relaxed)
    }

    /// Whether writes take longer than they would by themselves.
    pub(crate) fn is_on(&self, memtable_way: f64) -> bool {
        memtable_way > 0.0 || self.per_kib_ns.load(Ordering::Relaxed) > 0
    }

    /// Charges a group of writes; the sleep that is due. `memtable_way` is how far the memtables are on the way to a stop.
    pub(crate) fn charge(&self, bytes: usize, memtable_way: f64, now: Duration) -> Option<Duration> {
        let per_kib = self.per_kib_ns.load(Ordering::Relaxed).max(charge_ns(memtable_way));
        let now = nanos(now);
        let paid_at = self.paid_at_ns.load(Ordering::Relaxed).max(now) + bytes as u64 * per_kib / 1024;
        self.paid_at_ns.store(paid_at, Ordering::Relaxed);
        let due = paid_at - now;
        (due >= SLEEP_MIN_NS).then(|| Duration::from_nanos(due.min(SLEEP_MAX_NS)))
    }

    /// Whether the next write would have to sleep.
    pub(crate) fn must_sleep(&self, now: Duration) -> bool {
        self.paid_at_ns.load(Ordering::Relaxed).saturating_sub(nanos(now)) >= SLEEP_MAX_NS
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}

/// What a sub-tree owes.
struct Debt {
    runs: f64,
    garbage_share: f64,
}

impl Debt {
    fn of(tree: &SubTree, memtable_bytes: u64) -> Self {
        let (entries, bytes) = (tree.sum(Run::entries), tree.sum(Run::bytes));
        let garbage = tree.sum(Run::garbage).min(entries);
        let garbage_bytes = as_f64(bytes) * as_f64(garbage) / as_f64(entries.max(1));
        let counts = garbage_bytes > as_f64(GARBAGE_MEMTABLES * memtable_bytes);
        let share = as_f64(garbage) / as_f64((entries - garbage).max(1));
        let runs = tree.runs.iter().filter(|run| !run.files.is_empty()).count() as u64;
        Self { runs: as_f64(runs), garbage_share: if counts { share } else { 0.0 } }
    }
}

/// How far `value` is on the way from the soft to the hard limit: 0 to 1.
fn way_to(value: f64, (soft, hard): (f64, f64)) -> f64 {
    ((value - soft) / (hard - soft)).clamp(0.0, 1.0)
}

/// Charge for a KiB. Without bound towards the end of the way, but for [`CHARGE_MAX_NS`].
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and CHARGE_MAX_NS")]
fn charge_ns(way: f64) -> u64 {
    if way <= 0.0 {
        return 0;
    }
    (HALFWAY_NS * way / (1.0 - way).max(1e-6)).min(CHARGE_MAX_NS) as u64
}

#[expect(clippy::cast_precision_loss, reason = "debts are estimates")]
fn as_f64(count: u64) -> f64 {
    count as f64
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
    fn the_faster_ones_sleep() {
        let pressure = Pressure::default();
        let at = Duration::from_micros;
        assert_eq!(pressure.charge(1 << 20, 0.0, at(0)), None);
        pressure.per_kib_ns.store(10_000, Ordering::Relaxed);
        // A KiB every 10 us is not too fast; ten at once are, by 100 us.
        let slow = (0..100).find_map(|i| pressure.charge(1024, 0.0, at(10 * i)));
        assert_eq!(slow, None);
        assert_eq!(pressure.charge(9 * 1024, 0.0, at(1000)), None);
        assert_eq!(pressure.charge(1024, 0.0, at(1000)), Some(at(100)));
        // Nobody sleeps long at once, but what is left is not forgotten, until its time has passed.
        assert_eq!(pressure.charge(1 << 20, 0.0, at(2000)), Some(at(1000)));
        assert!(pressure.must_sleep(at(3000)));
        assert!(!pressure.must_sleep(at(2000 + 10_240)));
    }
}
