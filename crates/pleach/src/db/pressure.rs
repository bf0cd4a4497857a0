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

use crate::compaction::picker::{Policy, STAGE_BOTTOM};
use crate::flush::STAGE_FIRST;
use crate::options::Shape;
use crate::version::{Run, SubTree};

/// The charges of the writers of a store.
#[derive(Default)]
pub(crate) struct Pressure {
    /// Nanoseconds for each KiB written, by the debt of compactions.
    per_kib_ns: AtomicU64,
    space_is_short: AtomicBool,
    /// When, in the environment's time, all writes so far are paid for. Changed by commit leaders only, one at a time.
    paid_at_ns: AtomicU64,
}

/// Least number of runs in a sub-tree from which on writers are slowed down. Arbitrary: a long merge lets about so many
/// gather above it, whatever the options.
const RUNS_MIN: usize = 40;

/// Garbage, as a share of the live entries, from which on writers are slowed down, and that at which they nearly stop.
const GARBAGE: (f64, f64) = (0.3, 0.5);

/// Garbage of so many memtables does not count.
const GARBAGE_MEMTABLES: u64 = 4;

/// Time for a KiB at half of the way to a hard limit: 10 us, or 100 MB a second.
const HALFWAY_NS: f64 = 10_000.0;

/// Longest time for a KiB: a megabyte a second.
const CHARGE_MAX_NS: f64 = 1_000_000.0;

/// Sleeps are put off until they are worth it.
const SLEEP_MIN_NS: u64 = 100_000;

/// Longest sleep of a group that owes less by itself, for what others have left owed. From here on who does not want to
/// wait is refused.
pub(super) const SLEEP_FOR_OTHERS_NS: u64 = 1_000_000;

/// The most that is owed at a time, and so the longest sleep; the rest is forgiven. At the hard limit groups of a megabyte
/// become ten megabytes a second.
const DEBT_MAX_NS: u64 = 100_000_000;

impl Pressure {
    /// Sets what writers are charged, by how far the partition that owes most is on the way to a stop: by its runs, and by
    /// its garbage. See [`ways`].
    pub(crate) fn measure(&self, (way, space_way): (f64, f64)) {
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
        let own = (bytes as u64).saturating_mul(per_kib) / 1024;
        let debt = self.debt_ns(now).saturating_add(own).min(DEBT_MAX_NS);
        self.paid_at_ns.store(nanos(now) + debt, Ordering::Relaxed);
        let due = debt.min(own.max(SLEEP_FOR_OTHERS_NS));
        (due >= SLEEP_MIN_NS).then(|| Duration::from_nanos(due))
    }

    /// Forgets what is owed.
    pub(crate) fn forgive(&self) {
        self.paid_at_ns.store(0, Ordering::Relaxed);
    }

    /// Whether the sleep of a group with `bytes` of those who bear to wait would be felt by those who do not.
    pub(crate) fn must_sleep(&self, bytes: usize, memtable_way: f64, now: Duration) -> bool {
        let per_kib = self.per_kib_ns.load(Ordering::Relaxed).max(charge_ns(memtable_way));
        let own = (bytes as u64).saturating_mul(per_kib) / 1024;
        self.debt_ns(now).saturating_add(own) >= SLEEP_FOR_OTHERS_NS
    }

    fn debt_ns(&self, now: Duration) -> u64 {
        self.paid_at_ns.load(Ordering::Relaxed).saturating_sub(nanos(now))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}

/// How far a sub-tree is on the way to a stop of writers, from 0 to 1: by its runs, and by its garbage. Debt counts only
/// runs and garbage above what the policy leaves alone.
pub(super) fn ways(tree: &SubTree, policy: &Policy) -> (f64, f64) {
    let debt = Debt::of(tree, policy);
    (way_to(debt.runs, runs_limits(policy, tree)), way_to(debt.garbage_share, GARBAGE))
}

/// The debt of a sub-tree.
struct Debt {
    runs: f64,
    garbage_share: f64,
}

impl Debt {
    fn of(tree: &SubTree, policy: &Policy) -> Self {
        let (entries, bytes) = (tree.sum(Run::entries), tree.sum(Run::bytes));
        let garbage = tree.sum(Run::garbage).min(entries);
        let garbage_bytes = as_f64(bytes) * as_f64(garbage) / as_f64(entries.max(1));
        // The other shapes do not merge for garbage: nothing that the writers could wait for is due.
        let counts = policy.shape == Shape::ForestOverBottom
            && garbage_bytes > as_f64(GARBAGE_MEMTABLES * policy.memtable_bytes);
        let share = as_f64(garbage) / as_f64((entries - garbage).max(1));
        let runs = tree.runs.iter().filter(|run| !run.files.is_empty()).count() as u64;
        Self { runs: as_f64(runs), garbage_share: if counts { share } else { 0.0 } }
    }
}

/// Runs of a sub-tree from which on writers are slowed down, and those at which they nearly stop: a tenth more than the
/// pickers leave alone while data is written, and twice as many.
fn runs_limits(policy: &Policy, tree: &SubTree) -> (f64, f64) {
    let k = policy.k;
    let stages = tree.runs.chunk_by(|a, b| a.stage == b.stage).map(|runs| runs[0].stage);
    let later = stages.filter(|stage| (STAGE_FIRST + 1..STAGE_BOTTOM).contains(stage)).count();
    let sections = k - 1;
    let at_rest = sections
        + match policy.shape {
            Shape::Forest => (1 + later) * (k - 1),
            // The bottom, and of later stages two, for they come with the next merges.
            Shape::ForestOverBottom => k * k + later.max(2) * (2 * k + k / 2 - 1),
            Shape::Leveled => k - 1 + later,
        };
    let soft = as_f64((at_rest + at_rest / 10).max(RUNS_MIN) as u64);
    (soft, 2.0 * soft)
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
    use crate::compaction::picker::testing::{policy, tree};
    use crate::compaction::picker::{self, Situation};

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
        // A large group sleeps for all that it owes.
        assert_eq!(pressure.charge(1 << 20, 0.0, at(2000)), Some(at(10_240)));
    }

    #[test]
    fn nobody_sleeps_long_for_others() {
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

    /// A sub-tree that has, of each stage, so many runs without garbage.
    fn tree_of(stages: &[(u8, usize)]) -> SubTree {
        let stages = stages.iter().flat_map(|&(stage, count)| std::iter::repeat_n(stage, count));
        let specs: Vec<_> = stages.rev().enumerate().map(|(id, stage)| format!("{stage}:{id}b9")).collect();
        let specs: Vec<_> = specs.into_iter().rev().collect();
        tree(&specs.join(" "), &[])
    }

    fn slowed(policy: &Policy, tree: &SubTree) -> bool {
        Debt::of(tree, policy).runs > runs_limits(policy, tree).0
    }

    #[test]
    fn what_the_pickers_leave_alone_is_no_debt() {
        for k in [2, 3, 4, 8, 16, 64] {
            let policy = |shape| Policy { k, is_quiet: false, ..policy(shape) };
            let later = 2 * k + k / 2 - 1;
            for (shape, full) in [
                (Shape::Forest, [(0, k - 1), (1, k - 1), (2, k - 1), (3, k - 1)]),
                (Shape::ForestOverBottom, [(1, k * k - 1), (2, later), (3, later), (60, 1)]),
                (Shape::Leveled, [(0, k - 1), (1, k - 1), (2, 1), (3, 1)]),
            ] {
                let (policy, tree) = (policy(shape), tree_of(&full));
                let situation = Situation { tree: &tree, busy: &[], now: 0 };
                assert_eq!(picker::pick(&policy, situation), None, "{shape:?}, k = {k}: the premise");
                assert!(!slowed(&policy, &tree), "{shape:?}, k = {k}");
                let twice = tree_of(&full.map(|(stage, count)| (stage, 2 * count)));
                assert!(
                    twice.runs.len() <= RUNS_MIN || slowed(&policy, &twice),
                    "{shape:?}, k = {k}: twice as many"
                );
            }
        }
        let policy = policy(Shape::ForestOverBottom);
        let policy = Policy { k: 4, ..policy };
        assert_eq!(runs_limits(&policy, &SubTree::default()), (40.0, 80.0));
    }

    #[test]
    fn garbage_is_a_debt_where_it_is_merged_for() {
        let tree = tree("1:2b100000o90000 60:1b100000", &[]);
        let share = |shape| Debt::of(&tree, &policy(shape)).garbage_share;
        assert!(share(Shape::ForestOverBottom) > GARBAGE.1);
        assert_eq!((share(Shape::Forest), share(Shape::Leveled)), (0.0, 0.0));
    }
}
