//! Latches: locks of keys, by hash. Who writes a key, or moves its row, holds its latch.
//!
//! A writer holds its latches from before it looks for the old rows until its changes are in the map, and the cached rows that
//! they replace are invalid. So the changes of one key are ordered. Readers take no latch before they have met something that a
//! writer may be in the middle of.
//!
//! # Concurrency
//! `models/` runs this file in all orders. Latches are taken in the order of their numbers, before the gate and before any other
//! lock of this crate, but for those of moves and of maintenance.

use parking_lot::MutexGuard;
use pleach::env::sync::Mutex;
use pleach::env::sync::atomic::{AtomicU64, Ordering};
use smallvec::SmallVec;

/// Many more than threads, so that two keys seldom share one. A power of two.
pub(crate) const LATCH_COUNT: usize = 1 << 14;

#[derive(Debug, Default)]
struct Latch {
    mutex: Mutex<()>,
    /// The version that its holder writes, from before the commit; 0 without one.
    holder: AtomicU64,
    /// The version of the last holder that changed a value.
    last: AtomicU64,
}

/// The table of latches.
#[derive(Debug)]
pub(crate) struct Latches(Box<[Latch]>);

impl Latches {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| Latch::default()).collect())
    }

    /// Takes the latches of all keys with these hashes.
    pub(crate) fn hold(&self, hashes: impl Iterator<Item = u64>) -> Held<'_> {
        let mut numbers: SmallVec<[usize; 4]> = hashes.map(|hash| self.number(hash)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let hold = |number: usize| (&self.0[number], self.0[number].mutex.lock());
        Held(numbers.into_iter().map(hold).collect())
    }

    /// Waits until the writer of this version has published it and has invalidated the cached rows that it replaced. Without the
    /// wait a reader could see a part of a batch, and then miss another part.
    ///
    /// `version` is that of a row or of a deletion that the caller has seen. 0: the base of the map says that the key is not
    /// there. That may come from any writer: a checkpoint may have taken what a writer published while it still holds its latch.
    pub(crate) fn wait_for(&self, hash: u64, version: u64) {
        let latch = &self.0[self.number(hash)];
        // A writer announces its version before it commits, so who has seen the commit sees the announcement, or its end.
        let holder = latch.holder.load(Ordering::SeqCst);
        let is_waited_for = if version == 0 { holder != 0 } else { holder == version };
        if is_waited_for {
            drop(latch.mutex.lock());
        }
    }

    fn number(&self, hash: u64) -> usize {
        // The upper bits; layers use the lower ones.
        usize::try_from(hash >> 32).expect("32 bits") & (self.0.len() - 1)
    }

    /// The version under which a value was last changed under the latch of a key.
    pub(crate) fn last_version(&self, hash: u64) -> u64 {
        self.0[self.number(hash)].last.load(Ordering::SeqCst)
    }
}

/// Latches that are held.
pub(crate) struct Held<'a>(SmallVec<[(&'a Latch, MutexGuard<'a, ()>); 4]>);

impl Held<'_> {
    /// Says which version the holder is going to commit.
    pub(crate) fn announce(&self, version: u64) {
        for (latch, _) in &self.0 {
            latch.holder.store(version, Ordering::SeqCst);
            latch.last.store(version, Ordering::SeqCst);
        }
    }

    /// As [`announce`](Self::announce), of a transaction that moves rows and changes no value.
    pub(crate) fn announce_move(&self, version: u64) {
        for (latch, _) in &self.0 {
            latch.holder.store(version, Ordering::SeqCst);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (latch, _) in &self.0 {
            latch.holder.store(0, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_latch_take_it_once() {
        let latches = Latches::new(LATCH_COUNT);
        let held = latches.hold([1, 2, 1 << 40].into_iter());
        held.announce(7);
        assert_eq!((held.0.len(), latches.last_version(1), latches.last_version(1 << 41)), (2, 7, 0));
        // Another version than the holder's is not waited for.
        latches.wait_for(1, 6);
        drop(held);
        latches.wait_for(1, 7);
        latches.wait_for(1, 0);
    }

    #[test]
    fn a_key_that_the_base_does_not_know_waits_for_any_holder() {
        let latches = Latches::new(LATCH_COUNT);
        let held = latches.hold([1].into_iter());
        held.announce(7);
        let is_over = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                latches.wait_for(1, 0);
                assert_eq!(is_over.load(Ordering::SeqCst), 1);
            });
            (0..1000).for_each(|_| std::thread::yield_now());
            is_over.store(1, Ordering::SeqCst);
            drop(held);
        });
    }
}
