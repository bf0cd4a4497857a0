//! A stopwatch: nanoseconds since a common start, from the processor's time stamp counter.

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
}
