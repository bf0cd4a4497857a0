//! Places in the tree's leaves: where a key is or would be, found before the insert's turn and used in it.
//!
//! Any thread finds a place, by a descent ([`Tree::locate`]) or next to a key that is known ([`Tree::behind`]). The one whose
//! turn it is asks whether the leaf is still the same ([`Tree::is_current`]), and then inserts without a descent
//! ([`Tree::insert_at`]).

use std::sync::atomic::Ordering;

use super::Tree;
use crate::memtable::arena::{Arena, ArenaRef, ArenaWriter};
use crate::memtable::entry;

/// Where a leaf has a key or would have it, as of a version of the leaf.
#[derive(Clone, Copy)]
pub(in crate::memtable) struct LeafPlace {
    pub(in crate::memtable) leaf: u32,
    pub(in crate::memtable) version: u64,
    pub(in crate::memtable) index: usize,
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

    /// Gives back keys of [`Tree::take_reserved`] that are not inserted.
    pub(in crate::memtable) fn give_back_reserved(&self, _one_at_a_time: &mut ArenaWriter<'_>, keys: usize) {
        self.granted.store(self.granted.load(Ordering::Relaxed) + keys, Ordering::Relaxed);
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

    /// The place next to that of another key, if `key` belongs there: then the tree does not hold it. For any thread.
    ///
    /// It compares the keys on both sides, so under one version of the leaf it is right for any index that has a key.
    #[inline]
    pub(in crate::memtable) fn behind(
        &self,
        arena: &Arena,
        other: LeafPlace,
        key: &[u8],
    ) -> Option<LeafPlace> {
        let LeafPlace { leaf, version, index } = other;
        let node = self.leaves.at(leaf);
        if node.version() != version || index >= node.count() {
            return None;
        }
        let is_above = |at| entry::key(arena, at) < key;
        let is_below = |at| key < entry::key(arena, at);
        if !node.key_at(index).is_some_and(is_above) {
            return None;
        }
        let next = if index + 1 < node.count() { node.key_at(index + 1) } else { node.high() };
        let is_between = next.is_none_or(is_below);
        (is_between && node.unchanged_since(version)).then_some(LeafPlace { leaf, version, index: index + 1 })
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

    /// Adds a key record that the tree does not hold, at a place that is current. Returns where it is then.
    ///
    /// Requires: a reservation that covers it.
    #[inline]
    pub(in crate::memtable) fn insert_at(
        &self,
        writer: &mut ArenaWriter<'_>,
        place: LeafPlace,
        key_ref: ArenaRef,
        key: &[u8],
    ) -> LeafPlace {
        if self.leaves.at(place.leaf).is_full() {
            return self.insert_record(writer.arena(), key_ref, key);
        }
        self.insert_in_leaf(writer.arena(), place.leaf, place.index, key_ref, key)
    }

    /// Each index of each leaf, those without a key too.
    #[cfg(test)]
    pub(in crate::memtable) fn places(&self) -> impl Iterator<Item = LeafPlace> {
        let leaves = 0..u32::try_from(self.leaves.len()).expect("few leaves");
        leaves.flat_map(|leaf| {
            let version = self.leaves.at(leaf).version();
            (0..super::FANOUT).map(move |index| LeafPlace { leaf, version, index })
        })
    }
}
