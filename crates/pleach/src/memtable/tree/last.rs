//! Where the last insert was: keys that come in ascending order go behind it.
//!
//! Such a key needs no descent, and no probe of the hash index either: its neighbours in the leaf say that the tree does not
//! hold it. Random keys pay for it with one load: the place is looked at only behind inserts that were each behind the one
//! before.
//!
//! # Concurrency
//! The writer alone changes it. Others may read a mixture of two places, and find that the leaf has another version.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{LeafPlace, Tree};
use crate::memtable::arena::Arena;
use crate::memtable::entry;

/// The place is looked at behind so many inserts in a row that were each behind the one before.
const IN_ORDER_MIN: u32 = 2;

/// See the module's text.
#[derive(Default)]
pub(super) struct Last {
    /// Inserts in a row that were each behind the one before.
    in_order: AtomicU32,
    leaf: AtomicU32,
    index: AtomicU32,
    /// The leaf's version behind the insert.
    version: AtomicU64,
}

impl Last {
    /// Takes note of an insert at this place.
    #[inline]
    pub(super) fn note(&self, leaf: u32, index: usize, version: u64) {
        let index = u32::try_from(index).expect("it is below the fanout");
        let before = self.index.load(Ordering::Relaxed);
        // The first of a new leaf is behind the last one of another.
        let is_behind = index == 0 || leaf == self.leaf.load(Ordering::Relaxed) && index == before + 1;
        let in_order = self.in_order.load(Ordering::Relaxed);
        self.in_order.store(if is_behind { in_order.saturating_add(1) } else { 0 }, Ordering::Relaxed);
        self.leaf.store(leaf, Ordering::Relaxed);
        self.index.store(index, Ordering::Relaxed);
        self.version.store(version, Ordering::Relaxed);
    }
}

impl Tree {
    /// The place behind the last insert, if `key` belongs there and keys come in order; then the tree does not hold it. For any
    /// thread.
    #[inline]
    pub(in crate::memtable) fn behind_last(&self, arena: &Arena, key: &[u8]) -> Option<LeafPlace> {
        let last = &*self.last;
        if last.in_order.load(Ordering::Relaxed) < IN_ORDER_MIN {
            return None;
        }
        let leaf = last.leaf.load(Ordering::Relaxed);
        let version = last.version.load(Ordering::Relaxed);
        let index = last.index.load(Ordering::Relaxed) as usize;
        let node = self.leaves.at(leaf);
        if node.version() != version {
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
}
