//! The parts of a reshaped store in which threads meet: its latches and its writers in flight, around a map and a store of one
//! word each.

use crate::env::Yielding;
use crate::in_flight::InFlight;
use crate::latches::Latches;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Writers that append, and a checkpoint that looks for what they have published.
pub struct Marks {
    in_flight: InFlight,
    tickets: AtomicU64,
    version: AtomicU64,
    next: AtomicU64,
    /// Per id the version that was published, or 0.
    published: Vec<AtomicU64>,
}

impl Marks {
    pub fn new(writes: usize) -> Self {
        let published = (0..writes).map(|_| AtomicU64::new(0)).collect();
        let (version, next) = (AtomicU64::new(1), AtomicU64::new(0));
        Self { in_flight: InFlight::new(2), tickets: AtomicU64::new(0), version, next, published }
    }

    /// One write, as the write path makes it.
    pub fn write(&self, thread: usize) {
        let _entered = self.in_flight.enter(thread, &self.tickets);
        let version = self.version.fetch_add(1, Ordering::SeqCst);
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        self.published[id as usize].store(version, Ordering::Release);
    }

    /// The marks of a checkpoint; panics if something below them is not published, or something above has an older version.
    pub fn checkpoint(&self) {
        let mark = self.next.load(Ordering::SeqCst);
        let version = self.version.load(Ordering::SeqCst);
        self.in_flight.wait(&Yielding);
        for (id, published) in (0..).zip(&self.published) {
            let published = published.load(Ordering::Acquire);
            assert!(id >= mark || published != 0, "a row below the mark is not published");
            assert!(published < version || id >= mark, "a later version is below the mark");
        }
        let known = self.published.iter().filter(|published| {
            let published = published.load(Ordering::Acquire);
            published != 0 && published < version
        });
        assert_eq!(known.count() as u64, version - 1, "an earlier version is not published");
    }
}

/// A writer of two keys in one batch, and a reader of both.
pub struct Publication {
    latches: Latches,
    /// The row of the first key, which is written in place: its version.
    row: AtomicU64,
    /// What the map says of the second key: its version.
    map: AtomicU64,
}

impl Publication {
    pub fn new() -> Self {
        Self { latches: Latches::new(2), row: AtomicU64::new(0), map: AtomicU64::new(0) }
    }

    pub fn write(&self, version: u64) {
        let held = self.latches.hold([FIRST, SECOND].into_iter());
        held.announce(version);
        self.row.store(version, Ordering::Release);
        self.map.store(version, Ordering::Release);
    }

    /// The versions of both keys, read one after the other.
    pub fn read(&self) -> (u64, u64) {
        let row = self.row.load(Ordering::Acquire);
        if row != 0 {
            self.latches.wait_for(FIRST, row);
        }
        (row, self.map.load(Ordering::Acquire))
    }
}

impl Default for Publication {
    fn default() -> Self {
        Self::new()
    }
}

/// Hashes of two keys with different latches.
const FIRST: u64 = 0;
const SECOND: u64 = 1 << 32;
