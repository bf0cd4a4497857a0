//! Keys in ascending order: each goes next to the last insert.
//!
//! Such a key needs no descent in the tree, and no lookup in the hash index: the keys on both sides of its place say that the
//! memtable does not hold it. (The index still gets the key.) The place is checked only after consecutive ascending inserts, so
//! overwrites and keys in random order cost one load.
//!
//! # Concurrency
//! Who inserts takes note of the place. Any thread reads it, and may get fields of different inserts: [`Tree::behind`] is right
//! for any of them.
//!
//! [`Tree::behind`]: super::tree::Tree::behind

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Memtable;
use super::tree::LeafPlace;

/// The place is checked after so many consecutive ascending inserts.
const ASCENDING_MIN: u32 = 2;

/// Where the last new key is.
#[derive(Default)]
pub(super) struct LastPlace {
    /// The number of its leaf. Stored last, and loaded first.
    leaf: AtomicU32,
    /// Its index in the leaf.
    index: AtomicU32,
    /// The leaf's version after the insert.
    version: AtomicU64,
}

impl Memtable {
    /// Takes note of where a new key is. Requires: the caller inserts at present.
    #[inline]
    pub(super) fn note(&self, place: LeafPlace) {
        let last = &self.counts.last;
        let index = u32::try_from(place.index).expect("it is below the fanout");
        let (leaf_before, index_before) =
            (last.leaf.load(Ordering::Relaxed), last.index.load(Ordering::Relaxed));
        // After a full leaf, the new key is the first one of a new leaf.
        let is_ascending = if place.leaf == leaf_before { index == index_before + 1 } else { index == 0 };
        let before = self.ascending.load(Ordering::Relaxed);
        self.set_ascending(if is_ascending { (before + 1).min(ASCENDING_MIN) } else { 0 });
        last.index.store(index, Ordering::Relaxed);
        last.version.store(place.version, Ordering::Relaxed);
        // Who loads the number has the leaf's memory, too.
        last.leaf.store(place.leaf, Ordering::Release);
    }

    /// Takes note of an overwrite. Requires: the caller inserts at present.
    #[inline]
    pub(super) fn note_overwrite(&self) {
        self.set_ascending(0);
    }

    /// Other threads read it, so it is stored only if it changes.
    #[inline]
    fn set_ascending(&self, ascending: u32) {
        if ascending != self.ascending.load(Ordering::Relaxed) {
            self.ascending.store(ascending, Ordering::Relaxed);
        }
    }

    /// Whether the last inserts were ascending.
    #[inline]
    fn is_in_order(&self) -> bool {
        self.ascending.load(Ordering::Relaxed) == ASCENDING_MIN
    }

    /// The place next to the last insert, if keys come in order and `key` belongs there; then the memtable does not hold it. For
    /// any thread.
    #[inline]
    pub(super) fn place_in_order(&self, key: &[u8]) -> Option<LeafPlace> {
        if !self.is_in_order() {
            return None;
        }
        let last = &self.counts.last;
        let leaf = last.leaf.load(Ordering::Acquire);
        let (index, version) = (last.index.load(Ordering::Relaxed), last.version.load(Ordering::Relaxed));
        let place = self.tree.behind(&self.arena, LeafPlace { leaf, version, index: index as usize }, key)?;
        debug_assert!(
            self.tree.locate(&self.arena, key).1.is_none() || !self.tree.is_current(place),
            "the memtable does not hold the key"
        );
        Some(place)
    }
}
