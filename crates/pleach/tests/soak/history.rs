//! What each key of a partition may hold: its versions, counted by the only thread that writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fastrand::Rng;
use pleach::{Db, Durability, Partition, Result};

/// Keys of a partition. Their blocks do not fit into the caches of the soak.
pub(crate) const KEYS: usize = 3_000;

/// One value in so many has several blocks of its own.
const LARGE_EVERY: usize = 501;

/// One version of a key in so many is a tombstone.
const DELETED_EVERY: u32 = 7;

/// A partition, and the versions of its keys. A key begins with version 0, which is absent.
pub(crate) struct History {
    pub(crate) partition: Partition,
    versions: Arc<Versions>,
    /// Set before the partition is dropped.
    pub(crate) is_dropped: AtomicBool,
    /// Set before the store is closed.
    pub(crate) is_closing: AtomicBool,
}

/// The versions of all keys: the last one that was begun, and the last one that was acknowledged.
pub(crate) struct Versions {
    begun: Vec<AtomicU32>,
    acknowledged: Vec<AtomicU32>,
}

pub(crate) fn key(n: usize) -> String {
    format!("user{n:06}")
}

pub(crate) fn number(key: &[u8]) -> usize {
    std::str::from_utf8(&key[4..]).unwrap().parse().unwrap()
}

fn is_deleted(version: u32) -> bool {
    version.is_multiple_of(DELETED_EVERY)
}

fn value(n: usize, version: u32) -> Vec<u8> {
    let len = if n.is_multiple_of(LARGE_EVERY) { 70_000 } else { n * 31 % 500 };
    let mut value = format!("{n:08} {version:08} ").into_bytes();
    value.resize(value.len() + len, u8::try_from((n + version as usize) % 251).unwrap());
    value
}

fn all_zero() -> Vec<AtomicU32> {
    (0..KEYS).map(|_| AtomicU32::new(0)).collect()
}

impl Versions {
    /// Of keys that were never written.
    pub(crate) fn new() -> Self {
        Self { begun: all_zero(), acknowledged: all_zero() }
    }
}

impl History {
    pub(crate) fn new(partition: Partition, versions: &Arc<Versions>) -> Self {
        Self {
            partition,
            versions: Arc::clone(versions),
            is_dropped: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
        }
    }

    /// The last version of a key that was acknowledged before now: a read that begins now sees no older one.
    pub(crate) fn oldest(&self, n: usize) -> u32 {
        self.versions.acknowledged[n].load(Ordering::SeqCst)
    }

    pub(crate) fn all_oldest(&self) -> Vec<u32> {
        (0..KEYS).map(|n| self.oldest(n)).collect()
    }

    /// Compares what a read found, that began when `oldest` was the last acknowledged version and has ended.
    pub(crate) fn check(&self, n: usize, oldest: u32, found: Option<&[u8]>) {
        let newest = self.versions.begun[n].load(Ordering::SeqCst);
        let Some(found) = found else {
            assert!(
                (oldest..=newest).any(is_deleted),
                "{} is absent; its versions are {oldest} to {newest}",
                key(n)
            );
            return;
        };
        let version = std::str::from_utf8(&found[9..17]).unwrap().parse().unwrap();
        assert!(
            (oldest..=newest).contains(&version) && !is_deleted(version),
            "{} has version {version}, not one of {oldest} to {newest}",
            key(n)
        );
        assert!(found == value(n, version), "the bytes of {} in version {version}", key(n));
    }

    /// Writes the next version of neighbouring keys.
    pub(crate) fn write(&self, db: &Db, rng: &mut Rng) -> Result<()> {
        let from = rng.usize(..KEYS);
        let numbers = from..(from + rng.usize(1..60)).min(KEYS);
        let mut batch = db.batch();
        for n in numbers.clone() {
            let version = self.versions.begun[n].fetch_add(1, Ordering::SeqCst) + 1;
            if is_deleted(version) {
                batch.delete(&self.partition, key(n));
            } else {
                batch.put(&self.partition, key(n), value(n, version));
            }
        }
        batch.commit(Durability::Buffered)?;
        for n in numbers {
            let written = self.versions.begun[n].load(Ordering::SeqCst);
            self.versions.acknowledged[n].store(written, Ordering::SeqCst);
        }
        Ok(())
    }
}
