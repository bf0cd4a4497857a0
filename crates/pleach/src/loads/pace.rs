//! Pace of lookups: whether they end sooner if candidates are read one after the other or at the same time.
//!
//! Which is better depends on the device, on the page cache, and on how busy device and processors are with the lookups of
//! others. A single lookup does not show it: on a busy machine a parallel one ends sooner and slows all others. So
//! [`EPOCH`] lookups in a row have the same mode, serial or parallel, and their times are averaged. The mode with the
//! smaller average is used. Sometimes the other one is tried for one epoch, so that its average stays true.
//!
//! # Cost
//! Each lookup that could read in parallel reads the clock twice. Epochs of the slower mode cost about 1 %, as long as it
//! is at most six times slower.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Lookups of one mode in a row. The first quarter is not averaged: reads of the epoch before are still on the device.
/// Arbitrary: at least as many as there are reads in flight.
const EPOCH: u64 = 128;
/// Weight of one lookup in its average: 1 of 16, so that one epoch replaces nearly all that was known.
const WEIGHT: u64 = 16;
/// A lookup counts for at most this many averages: sometimes a device takes a thousand times longer.
const OUTLIER: u64 = 4;
/// A lookup counts for at most this time, so that no sum overflows. 18 minutes; arbitrary.
const TOOK_MAX_NS: u64 = 1 << 40;
/// Epochs of the better mode for one of the other: at least, and at most.
const TRY_EVERY: (u64, u64) = (16, 512);
/// Reading in parallel has to be faster by this many percent, because it reads more.
const MARGIN: u64 = 5;
/// Numbers of candidates, by their logarithm: 2 and 3, 4 to 7, 8 to 15, more.
const CLASSES: usize = 4;

/// See the module's text.
#[derive(Default)]
pub(crate) struct LookupPace([Class; CLASSES]);

/// Lookups with about as many candidates. Statistics: relaxed.
#[derive(Default)]
struct Class {
    lookups: AtomicU64,
    /// The mode of this epoch.
    is_parallel: AtomicBool,
    /// The last epoch in which the slower mode was tried.
    tried: AtomicU64,
    /// Average time of a serial lookup and of a parallel one. 0 before the first.
    average_ns: [AtomicU64; 2],
}

/// The mode of one lookup.
pub(crate) struct Paced {
    pub(crate) is_parallel: bool,
    class: usize,
    is_averaged: bool,
    began: Duration,
}

impl LookupPace {
    /// The mode of a lookup that begins now and has this many equally likely candidates. `None` if there is no choice.
    pub(crate) fn begin(&self, candidates: usize, now: impl FnOnce() -> Duration) -> Option<Paced> {
        let class = (candidates.checked_ilog2()? as usize).checked_sub(1)?.min(CLASSES - 1);
        let number = self.0[class].lookups.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(EPOCH) {
            self.0[class].begin_epoch(number / EPOCH);
        }
        let is_parallel = self.0[class].is_parallel.load(Ordering::Relaxed);
        Some(Paced { is_parallel, class, is_averaged: number % EPOCH >= EPOCH / 4, began: now() })
    }

    /// Takes the time of a lookup that ends now.
    pub(crate) fn end(&self, paced: &Paced, now: impl FnOnce() -> Duration) {
        if !paced.is_averaged {
            return;
        }
        let took = now().saturating_sub(paced.began).as_nanos();
        let took = u64::try_from(took).unwrap_or(u64::MAX).clamp(1, TOOK_MAX_NS);
        let average = &self.0[paced.class].average_ns[usize::from(paced.is_parallel)];
        let before = average.load(Ordering::Relaxed);
        let after = if before == 0 {
            took
        } else {
            (before * (WEIGHT - 1) + took.min(before * OUTLIER)).div_ceil(WEIGHT)
        };
        average.store(after, Ordering::Relaxed);
    }
}

impl Class {
    /// Chooses the mode of an epoch: first the modes that were not tried yet.
    fn begin_epoch(&self, epoch: u64) {
        let [serial, parallel] = self.average_ns.each_ref().map(|average| average.load(Ordering::Relaxed));
        let is_parallel = if serial == 0 || parallel == 0 {
            serial != 0
        } else {
            let is_better = parallel < serial - serial * MARGIN / 100;
            let (best, other) = (serial.min(parallel), serial.max(parallel));
            let try_every = (100 * (other - best) / best).clamp(TRY_EVERY.0, TRY_EVERY.1);
            let is_due = epoch >= self.tried.load(Ordering::Relaxed) + try_every;
            if is_due {
                self.tried.store(epoch, Ordering::Relaxed);
            }
            is_better ^ is_due
        };
        self.is_parallel.store(is_parallel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const CANDIDATES: usize = 8;

    /// Makes lookups one after the other, on a machine where a lookup takes `took(its number, is_parallel)`. Returns how
    /// many were parallel.
    fn run(pace: &LookupPace, lookups: u64, took: impl Fn(u64, bool) -> u64) -> u64 {
        let clock = Cell::new(0);
        let now = || Duration::from_nanos(clock.get());
        let mut parallel = 0;
        for number in 0..lookups {
            let paced = pace.begin(CANDIDATES, now).expect("there is a choice");
            clock.set(clock.get() + took(number, paced.is_parallel));
            pace.end(&paced, now);
            parallel += u64::from(paced.is_parallel);
        }
        parallel
    }

    #[test]
    fn the_faster_mode_is_used_and_the_other_one_is_tried() {
        for (serial, parallel, least, most) in
            [(100, 300, 100, 2000), (300, 100, 98_000, 99_900), (100, 98, 1000, 7000), (1, 1, 1000, 7000)]
        {
            let pace = LookupPace::default();
            run(&pace, 1000, |_, is_parallel| if is_parallel { parallel } else { serial });
            let tried = run(&pace, 100_000, |_, is_parallel| if is_parallel { parallel } else { serial });
            assert!((least..=most).contains(&tried), "{serial} {parallel}: {tried}");
        }
    }

    #[test]
    fn a_change_is_noticed() {
        let pace = LookupPace::default();
        run(&pace, 10_000, |_, is_parallel| if is_parallel { 50_000 } else { 500_000 });
        // The data is in the page cache now.
        let parallel = run(&pace, 200_000, |_, is_parallel| if is_parallel { 30_000 } else { 8_000 });
        assert!(parallel < 100_000, "{parallel}");
    }

    #[test]
    fn a_read_that_takes_a_thousand_times_longer_changes_nothing() {
        let pace = LookupPace::default();
        run(&pace, 1000, |_, is_parallel| if is_parallel { 60_000 } else { 100_000 });
        let hiccup = |number| if number % 100 == 7 { 50_000_000 } else { 0 };
        let parallel = run(&pace, 100_000, |number, is_parallel| {
            hiccup(number) + if is_parallel { 60_000 } else { 100_000 }
        });
        assert!(parallel > 90_000, "{parallel}");
    }

    #[test]
    fn lookups_that_take_for_ever_do_not_overflow() {
        let pace = LookupPace::default();
        run(&pace, 2000, |number, _| if number % 3 == 0 { 1 << 50 } else { 1 });
    }

    #[test]
    fn one_candidate_is_no_choice() {
        let pace = LookupPace::default();
        for candidates in [0, 1] {
            assert!(pace.begin(candidates, || unreachable!("no look at the clock")).is_none());
        }
        assert!(pace.begin(usize::MAX, || Duration::ZERO).is_some());
    }
}
