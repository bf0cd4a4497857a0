//! Places in the tree's leaves: where a key is or would be, found before the insert's turn and used in it.
//!
//! Any thread finds a place ([`Tree::locate`]). The one whose turn it is asks whether the leaf is still the same
//! ([`Tree::is_current`]), and then inserts without a descent ([`Tree::insert_at`]).

use std::sync::atomic::Ordering;

use super::Tree;
use crate::memtable::arena::{Arena, ArenaRef, ArenaWriter};
use crate::memtable::entry;

/// Where a leaf has a key or would have it, as of a version of the leaf.
#[derive(Clone, Copy)]
pub(in crate::memtable) struct LeafPlace {
    pub(super) leaf: u32,
    pub(super) version: u64,
    pub(super) index: usize,
}

impl Tree {
    /// Takes so many of the keys that memory is reserved for; `false`, and none, if there are fewer.
    #[inline]
    pub(in crate::memtable) fn take_reserved(
        &self,
        _one_at_a_time: &mut ArenaWriter<'_>,
        keys: usize,
    ) -> bool {
        let granted = self.granted.load(Ordering::Relaxed);
        if keys > granted {
            return false;
        }
        self.granted.store(granted - keys, Ordering::Relaxed);
        true
    }

    /// Where the tree has `key`, or would have it. For any thread.
    pub(in crate::memtable) fn locate(&self, arena: &Arena, key: &[u8]) -> (LeafPlace, Option<ArenaRef>) {
        loop {
            let (leaf, version) = self.leaf_for(arena, key, true);
            let node = self.leaves.at(leaf);
            let index = node.rank(arena, key, false);
            let found = node.key_like(index, key);
            if node.unchanged_since(version) {
                return (
                    LeafPlace { leaf, version, index },
                    found.filter(|&at| entry::key(arena, at) == key),
                );
            }
        }
    }

    /// Prefetches what [`Tree::insert_at`] will change.
    #[inline]
    pub(in crate::memtable) fn prefetch_to_insert(&self, place: LeafPlace) {
        self.leaves.at(place.leaf).prefetch_to_insert(place.index);
    }

    /// Whether the leaf of a place is as it was.
    #[inline]
    pub(in crate::memtable) fn is_current(&self, place: LeafPlace) -> bool {
        self.leaves.at(place.leaf).unchanged_since(place.version)
    }

    /// Adds a key record that the tree does not hold, at a place that is current.
    ///
    /// Requires: a reservation that covers it.
    #[inline]
    pub(in crate::memtable) fn insert_at(
        &self,
        writer: &mut ArenaWriter<'_>,
        place: LeafPlace,
        key_ref: ArenaRef,
        key: &[u8],
    ) {
        if self.leaves.at(place.leaf).is_full() {
            return self.insert_record(writer.arena(), key_ref, key);
        }
        self.insert_in_leaf(writer.arena(), place.leaf, place.index, key_ref, key);
    }
}
