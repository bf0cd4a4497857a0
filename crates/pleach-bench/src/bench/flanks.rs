//! Raw reads of the store's files before and after a round of an uncached workload.
//!
//! A virtual disk's speed changes from minute to minute. A round counts only if the device was as fast after it as before;
//! otherwise it is repeated.

use super::store::Store;
use crate::device::{Manner, Sample, StoreFiles, best_driver, sample};
use crate::engine::Result;
use crate::workload::{Mix, Planned, Shape};

/// Share by which the device's rate may change during a round that counts.
const CHANGE_MAX: f64 = 0.1;
/// Purposes of the rounds after discarded ones: with the first one's keys they would find its blocks in the cache. The last
/// round counts in any case.
const REPEATS: [&str; 4] = ["second try", "third try", "fourth try", "fifth try"];
/// Blocks of a store below which the host's memory is measured rather than its device: 16 MiB.
const BLOCKS_MIN: u64 = 4096;
/// Seconds of a measurement of the device.
const SECONDS: f64 = 0.5;

/// The device beside a workload.
pub(super) struct Flanks {
    files: StoreFiles,
    manner: Manner,
}

/// The device's rates around a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flanked {
    before: f64,
    after: f64,
    pub(super) discarded: u32,
}

impl Flanked {
    /// Reads a second.
    pub(super) fn reads_per_s(self) -> f64 {
        f64::midpoint(self.before, self.after)
    }

    /// By which share of the higher rate the two differ.
    pub(super) fn change(self) -> f64 {
        (self.before - self.after).abs() / self.before.max(self.after)
    }

    fn counts(self) -> bool {
        self.change() <= CHANGE_MAX || self.discarded as usize == REPEATS.len()
    }
}

/// Operations of one thread that a workload has in flight.
pub(super) fn in_flight(store: &Store<'_>, planned: &Planned) -> usize {
    match planned.workload.shape {
        Shape::Mix { many: true, .. } => store.settings.multi,
        _ if planned.workload.is_futures() && store.factory.capabilities.async_get => {
            store.settings.in_flight.unwrap_or(1)
        }
        _ => 1,
    }
}

impl Flanks {
    /// Reads the store's files through. `None` for a workload that writes or reads through the page cache, and for a small
    /// store.
    pub(super) fn new(store: &Store<'_>, planned: &Planned) -> Result<Option<Self>> {
        let only_reads = matches!(planned.workload.shape, Shape::Mix { mix: Mix::GETS | Mix::SCANS, .. });
        if !store.settings.direct || !only_reads {
            return Ok(None);
        }
        let files = StoreFiles::open(store.dir(), true)?;
        if files.blocks() < BLOCKS_MIN {
            return Ok(None);
        }
        files.read_through()?;
        let depth = in_flight(store, planned).min(crate::device::DEPTH_MAX as usize) as u32;
        let manner = Manner { driver: best_driver(&files), depth, threads: planned.threads, in_calls: false };
        Ok(Some(Self { files, manner }))
    }

    /// Runs `round` until the device was steady around it, first with the purpose `first`.
    pub(super) fn around<T>(
        &self,
        first: &'static str,
        mut round: impl FnMut(&'static str) -> Result<T>,
    ) -> Result<(T, Flanked)> {
        let rate = |number: u32| -> Result<f64> {
            let Sample { reads_per_s, .. } = sample(&self.files, self.manner, SECONDS, u64::from(number))?;
            Ok(reads_per_s)
        };
        let mut flanked = Flanked { before: rate(0)?, ..Flanked::default() };
        let mut purpose = first;
        loop {
            let done = round(purpose)?;
            flanked.after = rate(flanked.discarded + 1)?;
            if flanked.counts() {
                return Ok((done, flanked));
            }
            purpose = REPEATS[flanked.discarded as usize];
            flanked = Flanked { before: flanked.after, after: 0.0, discarded: flanked.discarded + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_counts_if_the_device_was_steady() {
        let flanked = |before, after, discarded| Flanked { before, after, discarded };
        assert!(flanked(100.0, 91.0, 0).counts() && flanked(91.0, 100.0, 0).counts());
        assert!(!flanked(100.0, 89.0, 0).counts() && !flanked(89.0, 100.0, 3).counts());
        assert!(flanked(100.0, 10.0, 4).counts());
    }
}
