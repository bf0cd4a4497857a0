//! The parts of a reshaped store in which threads meet: its latches and its writers in flight, around a map and a store of one
//! word each.

use crate::env::Yielding;
use crate::ids::Id;
use crate::in_flight::InFlight;
use crate::latches::Latches;
use crate::row_cache::RowCache;
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

/// A writer of one batch, which writes over the row of the first key and deletes the second, and readers with a cache of rows.
/// The map has no version of the deletion, as if a checkpoint had taken it.
pub struct Cached {
    latches: Latches,
    rows: RowCache,
    /// The row of the first key: its version.
    first: AtomicU64,
    /// The version of the second key's row, or 0.
    second: AtomicU64,
}

impl Cached {
    pub fn new() -> Self {
        let (first, second) = (AtomicU64::new(OLD), AtomicU64::new(OLD));
        Self { latches: Latches::new(2), rows: RowCache::new(1 << 20, 1), first, second }
    }

    pub fn write(&self) {
        let held = self.latches.hold([FIRST, SECOND].into_iter());
        held.announce(NEW);
        self.first.store(NEW, Ordering::Release);
        self.second.store(0, Ordering::Release);
        let value: &[u8] = &[NEW as u8];
        self.rows.refresh([(&b"1"[..], FIRST, Some((Id(1), value))), (b"2", SECOND, None)].into_iter());
    }

    /// Whether the first key has its new value.
    pub fn is_written(&self) -> bool {
        self.read(b"1", FIRST, &self.first) == Some(NEW)
    }

    /// Whether the second key is gone.
    pub fn is_deleted(&self) -> bool {
        self.read(b"2", SECOND, &self.second).is_none()
    }

    fn read(&self, key: &[u8], hash: u64, row: &AtomicU64) -> Option<u64> {
        let miss = match self.rows.get(key, hash) {
            Ok(value) => return Some(u64::from(value[0])),
            Err(miss) => miss,
        };
        let version = row.load(Ordering::Acquire);
        self.latches.wait_for(hash, version);
        if version == 0 {
            return None;
        }
        self.rows.fill(miss, key, hash, Id(1), &[version as u8]);
        Some(version)
    }
}

impl Default for Cached {
    fn default() -> Self {
        Self::new()
    }
}

const OLD: u64 = 1;
const NEW: u64 = 2;

/// Hashes of two keys with different latches.
const FIRST: u64 = 0;
const SECOND: u64 = 1 << 32;
