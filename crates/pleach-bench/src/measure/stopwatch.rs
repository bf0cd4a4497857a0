//! A stopwatch: nanoseconds since a common start, from the processor's time stamp counter.

use std::hint::black_box;

use quanta::Clock;

/// Cheap to read and to clone; all clones share the start.
#[derive(Clone, Debug)]
pub(crate) struct Stopwatch {
    clock: Clock,
    start: u64,
}

impl Stopwatch {
    /// Starts now.
    pub(crate) fn start() -> Self {
        let clock = Clock::new();
        let start = clock.raw();
        Self { clock, start }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.delta_as_nanos(self.start, self.clock.raw())
    }

    /// What two readings cost.
    pub(crate) fn cost_ns(&self) -> f64 {
        const READINGS: u32 = 20_000;
        // The best of a few: an interruption is no cost of the clock.
        let trial = || {
            let start = self.now_ns();
            for _ in 0..READINGS {
                black_box(self.now_ns());
            }
            (self.now_ns() - start) as f64 / f64::from(READINGS)
        };
        2.0 * (0..5).map(|_| trial()).fold(f64::INFINITY, f64::min)
    }
}
