//! Pace of reads: how long a thread waits for a block, and so whether it pays to read several at the same time.
//!
//! A thread that reads several blocks at once hands them to the service and is woken by it. That takes time which a block in
//! the page cache does not, and which a device does not make up for when it is busy with other reads anyway.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pleach_env::Env;

/// One read in so many is timed.
const TIMED_EVERY: u64 = 16;
/// One lookup in so many that could read in parallel reads serially, so that reads go on being timed.
const SERIAL_EVERY: u64 = 64;
/// A sample that took longer says nothing about the device.
const SAMPLE_MAX: Duration = Duration::from_millis(1);
/// Time that the service takes to begin reads for a thread and to wake it. An estimate.
const HANDOFF: Duration = Duration::from_micros(20);
/// So many reads of other lookups keep the device busy enough. `SifrDB`'s number of searches (section 5.3.3).
const BUSY: u64 = 16;

/// See the module's text. Statistics: relaxed.
#[derive(Default)]
pub(crate) struct ReadPace {
    /// Moving average of the time that a read takes. 0 before the first sample.
    read_ns: AtomicU64,
    asked: AtomicU64,
}

impl ReadPace {
    /// Makes the read with this number, and times it if it is one of the sample.
    pub(super) fn timed<T>(&self, env: &dyn Env, number: u64, read: impl FnOnce() -> T) -> T {
        if !number.is_multiple_of(TIMED_EVERY) {
            return read();
        }
        let began = env.now();
        let done = read();
        let took = env.now().saturating_sub(began).min(SAMPLE_MAX);
        let took = u64::try_from(took.as_nanos()).expect("at most SAMPLE_MAX");
        let before = self.read_ns.load(Ordering::Relaxed);
        let average = if before == 0 { took } else { before - before / 8 + took / 8 };
        self.read_ns.store(average, Ordering::Relaxed);
        done
    }

    /// Whether a lookup with so many equally likely candidates ends sooner if it reads them at the same time, while `in_flight`
    /// reads of others are. Serially it would read half of them.
    pub(super) fn is_parallel_better(&self, candidates: usize, in_flight: u64) -> bool {
        if candidates < 2 || in_flight >= BUSY {
            return false;
        }
        let saved = (candidates as u64 - 1) * self.read_ns.load(Ordering::Relaxed) / 2;
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        !asked.is_multiple_of(SERIAL_EVERY) && Duration::from_nanos(saved) >= HANDOFF
    }
}
