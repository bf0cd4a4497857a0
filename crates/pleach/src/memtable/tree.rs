//! The memtable's ordered part: a B+tree of references to key records, with one writer and lock-free readers.
//!
//! Keys are only added (a delete is a tombstone version), so nodes split and never merge. A split fills the new right node,
//! then makes the parent point to it, then trims the left one. So every key can be reached at any time. A reader that came
//! through the old pointer sees that the node changed and starts again.
//!
//! # Invariants
//! 1. While no insert runs, each key record is in exactly one leaf.
//! 2. `next` chains the leaves from left to right, so the chain visits keys in ascending order.
//! 3. Node 0 is always the first leaf. No node is freed before the tree.
//! 4. *Nothing fails after a reservation*: [`Tree::reserve`] takes the memory of all nodes that its keys can need.
//!
//! # Concurrency
//! Functions that change the tree take the memtable's [`ArenaWriter`], so one thread at a time calls them. The others are for
//! any thread at any time (see `node`).

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pleach_env::sync::OwnLine;
use smallvec::SmallVec;

use super::arena::{Arena, ArenaRef, ArenaWriter};
use super::entry;
use super::node::{FANOUT, Node, SECOND_HEADS_BYTES};

mod place;
mod pool;

pub(super) use place::LeafPlace;
use pool::Pool;

/// Marks a node number as that of an inner node.
const INNER: u32 = 1 << 31;

/// An inner node: child `i` holds the keys from separator `i - 1` (inclusive) to separator `i` (exclusive).
#[derive(Default)]
struct Inner {
    node: Node,
    children: Children,
}

struct Children([AtomicU32; FANOUT + 1]);

impl Default for Children {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; FANOUT + 1])
    }
}

/// The tree. See the module's text.
pub(super) struct Tree {
    leaves: Pool<Node>,
    inners: Pool<Inner>,
    root: AtomicU32,
    /// Number of nodes with second heads. The writer alone changes it.
    second_heads: AtomicUsize,
    /// Number of further keys, of any kind, that memory is reserved for. The writer alone uses it.
    granted: OwnLine<AtomicUsize>,
}

/// Keys for which memory is taken beyond those asked for. Few batches reserve then: only the others can insert side by side.
const GRANT: usize = 256;

/// So many further batches of the same length are granted too, up to this length.
const GRANTED_BATCHES: usize = 3;
const GRANTED_BATCH_MAX: usize = 2048;

/// Most levels of inner nodes: eight levels of half full nodes hold 2^40 leaves.
const DEPTH_MAX: usize = 8;

/// A leaf's entries as they stood at one instant.
#[derive(Clone)]
pub(super) struct LeafCopy {
    pub(super) keys: SmallVec<[ArenaRef; FANOUT]>,
    /// Lower fence; `None` for the first leaf.
    pub(super) low: Option<ArenaRef>,
    /// The leaf to the right; 0 = none.
    pub(super) next: u32,
}

impl Tree {
    /// An empty tree; `None` when there is no memory for its first leaf.
    pub(super) fn new() -> Option<Self> {
        let (leaves, inners) = (Pool::new(), Pool::new());
        if !leaves.reserve(1) {
            return None;
        }
        leaves.push();
        let (root, second_heads) = (AtomicU32::new(0), AtomicUsize::new(0));
        let granted = OwnLine(AtomicUsize::new(0));
        Some(Self { leaves, inners, root, second_heads, granted })
    }

    /// Takes from the system the memory for inserts of this many keys. Returns whether the system gave it; if not, the tree
    /// is as usable as before.
    #[inline]
    pub(super) fn reserve(&self, _one_at_a_time: &mut ArenaWriter<'_>, keys: usize) -> bool {
        let mut granted = self.granted.load(Ordering::Relaxed);
        if keys > granted {
            let ahead = GRANT + GRANTED_BATCHES * keys.min(GRANTED_BATCH_MAX);
            let Some(grown) = self.grant(keys + ahead).or_else(|| self.grant(keys)) else { return false };
            granted = grown;
        }
        self.granted.store(granted - keys, Ordering::Relaxed);
        true
    }

    /// Takes the memory for inserts of `keys` keys; returns their number, or `None` without memory.
    #[cold]
    fn grant(&self, keys: usize) -> Option<usize> {
        let leaves = leaf_splits_max(keys, self.leaves.len());
        let inners = inner_splits_max(leaves, self.inners.len());
        (self.leaves.reserve(leaves) && self.inners.reserve(inners)).then_some(keys)
    }

    /// Number of further keys that memory is reserved for.
    #[cfg(test)]
    pub(super) fn granted(&self) -> usize {
        self.granted.load(Ordering::Relaxed)
    }

    /// Bytes of the nodes.
    pub(super) fn bytes(&self) -> usize {
        let second_heads = self.second_heads() * SECOND_HEADS_BYTES;
        self.leaves.len() * size_of::<Node>() + self.inners.len() * size_of::<Inner>() + second_heads
    }

    /// Number of nodes with second heads.
    pub(super) fn second_heads(&self) -> usize {
        self.second_heads.load(Ordering::Relaxed)
    }

    /// Changes a node. `change` returns whether the node got second heads.
    fn change(&self, node: &Node, change: impl FnOnce(&Node) -> bool) {
        self.count_second_heads(node.write(change));
    }

    fn count_second_heads(&self, are_made: bool) {
        if are_made {
            self.second_heads.store(self.second_heads() + 1, Ordering::Relaxed);
        }
    }

    /// Adds a key record that the tree does not hold. Returns where it is.
    ///
    /// Requires: a reservation that covers it.
    pub(super) fn insert(&self, writer: &mut ArenaWriter<'_>, key_ref: ArenaRef, key: &[u8]) -> LeafPlace {
        self.insert_record(writer.arena(), key_ref, key)
    }

    fn insert_record(&self, arena: &Arena, key_ref: ArenaRef, key: &[u8]) -> LeafPlace {
        let mut path = SmallVec::<[(u32, usize); 8]>::new();
        loop {
            path.clear();
            let leaf = self.descend(arena, key, &mut path);
            let node = self.leaves.at(leaf);
            let index = node.rank(arena, key, false);
            if !node.is_full() {
                return self.insert_in_leaf(arena, leaf, index, key_ref, key);
            }
            // Full ancestors are split from the top down, so that a split never needs another one above it.
            match path.iter().position(|&(inner, _)| self.inner(inner).node.is_full()) {
                Some(depth) => self.split_inner(arena, &path[..=depth]),
                None => self.split_leaf(arena, leaf, index, key_ref, path.last().copied()),
            }
        }
    }

    /// Adds a key record to a leaf that is not full.
    fn insert_in_leaf(
        &self,
        arena: &Arena,
        leaf: u32,
        index: usize,
        key_ref: ArenaRef,
        key: &[u8],
    ) -> LeafPlace {
        let node = self.leaves.at(leaf);
        self.change(node, |n| n.insert_at(arena, index, key_ref, key));
        LeafPlace { leaf, version: node.version(), index }
    }

    /// The leaf for `key`. `path` gets the inner nodes on the way and the index of the child in each.
    fn descend(&self, arena: &Arena, key: &[u8], path: &mut SmallVec<[(u32, usize); 8]>) -> u32 {
        let mut id = self.root.load(Ordering::Relaxed);
        while id & INNER != 0 {
            let inner = self.inner(id);
            let child = inner.node.rank(arena, key, true);
            path.push((id, child));
            id = inner.children.0[child].load(Ordering::Relaxed);
            self.node(id).prefetch();
        }
        id
    }

    fn split_leaf(
        &self,
        arena: &Arena,
        leaf: u32,
        index: usize,
        key_ref: ArenaRef,
        parent: Option<(u32, usize)>,
    ) {
        let left = self.leaves.at(leaf);
        // With ascending keys the left leaf stays full, and the new key is the first of the right one.
        let appends = index == FANOUT && left.high().is_none();
        let from = if appends { FANOUT } else { FANOUT / 2 };
        let separator =
            if appends { key_ref } else { left.key_at(from).expect("the writer sees its own entries") };
        let right_id = self.leaves.push();
        self.count_second_heads(self.leaves.at(right_id).fill_from(arena, left, from, separator));
        self.attach(arena, parent, leaf, right_id, separator);
        self.change(left, |n| n.trim(arena, from, separator, right_id));
    }

    /// Splits the last node of `path`. Requires: no ancestor is full.
    fn split_inner(&self, arena: &Arena, path: &[(u32, usize)]) {
        let (id, parent) = match *path {
            [.., parent, (id, _)] => (id, Some(parent)),
            [(id, _)] => (id, None),
            [] => unreachable!("a path that holds a full node is not empty"),
        };
        let left = self.inner(id);
        let middle = FANOUT / 2;
        let separator = left.node.key_at(middle).expect("the writer sees its own entries");
        let right_id = self.inners.push() | INNER;
        let right = self.inner(right_id);
        self.count_second_heads(right.node.fill_from(arena, &left.node, middle + 1, separator));
        for (to, i) in (middle + 1..=FANOUT).enumerate() {
            right.children.0[to].store(left.children.0[i].load(Ordering::Relaxed), Ordering::Release);
        }
        self.attach(arena, parent, id, right_id, separator);
        self.change(&left.node, |n| n.trim(arena, middle, separator, 0));
    }

    /// Makes `right` the right neighbour of `left` in its parent, or makes both the children of a new root.
    fn attach(
        &self,
        arena: &Arena,
        parent: Option<(u32, usize)>,
        left: u32,
        right: u32,
        separator: ArenaRef,
    ) {
        let key = entry::key(arena, separator);
        if let Some((parent, child)) = parent {
            let parent = self.inner(parent);
            self.change(&parent.node, |n| {
                for i in (child + 1..=n.count()).rev() {
                    parent.children.0[i + 1]
                        .store(parent.children.0[i].load(Ordering::Relaxed), Ordering::Release);
                }
                parent.children.0[child + 1].store(right, Ordering::Release);
                n.insert_at(arena, child, separator, key)
            });
        } else {
            let id = self.inners.push() | INNER;
            let root = self.inner(id);
            root.children.0[0].store(left, Ordering::Release);
            root.children.0[1].store(right, Ordering::Release);
            self.change(&root.node, |n| n.insert_at(arena, 0, separator, key));
            self.root.store(id, Ordering::Release);
        }
    }

    /// Looks for the record of `key`.
    pub(super) fn find(&self, arena: &Arena, key: &[u8]) -> Option<ArenaRef> {
        self.locate(arena, key).1
    }

    /// A copy of the leaf that has or would have `key`, and the number of its entries below `key`. With `inclusive` false
    /// and `key` the lower fence of that leaf: the leaf to its left.
    pub(super) fn leaf_at(&self, arena: &Arena, key: &[u8], inclusive: bool) -> (LeafCopy, usize) {
        loop {
            let (id, version) = self.leaf_for(arena, key, inclusive);
            let leaf = self.leaves.at(id);
            let rank = leaf.rank(arena, key, false);
            let copy = Self::copy(leaf);
            if leaf.unchanged_since(version) {
                return (copy, rank);
            }
        }
    }

    /// A copy of the first leaf.
    pub(super) fn first_leaf(&self) -> LeafCopy {
        self.leaf(0)
    }

    /// A copy of the last leaf.
    pub(super) fn last_leaf(&self) -> LeafCopy {
        loop {
            let mut id = self.root.load(Ordering::Acquire);
            while id & INNER != 0 {
                let inner = self.inner(id);
                id = inner.children.0[inner.node.count()].load(Ordering::Acquire);
            }
            let copy = self.leaf(id);
            if copy.next == 0 {
                return copy;
            }
        }
    }

    /// A copy of leaf number `id`.
    pub(super) fn leaf(&self, id: u32) -> LeafCopy {
        let leaf = self.leaves.at(id);
        loop {
            let version = leaf.stable_version();
            let copy = Self::copy(leaf);
            if leaf.unchanged_since(version) {
                return copy;
            }
        }
    }

    fn copy(leaf: &Node) -> LeafCopy {
        LeafCopy {
            keys: (0..leaf.count()).filter_map(|i| leaf.key_at(i)).collect(),
            low: leaf.low(),
            next: leaf.next(),
        }
    }

    /// For readers: the leaf for `key`, and its version when it was reached.
    fn leaf_for(&self, arena: &Arena, key: &[u8], inclusive: bool) -> (u32, u64) {
        'again: loop {
            let mut id = self.root.load(Ordering::Acquire);
            let mut version = self.node(id).stable_version();
            if self.root.load(Ordering::Acquire) != id {
                continue;
            }
            while id & INNER != 0 {
                let inner = self.inner(id);
                let child = inner.children.0[inner.node.rank(arena, key, inclusive)].load(Ordering::Acquire);
                if !inner.node.unchanged_since(version) {
                    continue 'again;
                }
                self.node(child).prefetch();
                let child_version = self.node(child).stable_version();
                // Only an unchanged parent proves that this was the child for `key` when its version was read.
                if !inner.node.unchanged_since(version) {
                    continue 'again;
                }
                (id, version) = (child, child_version);
            }
            return (id, version);
        }
    }

    fn inner(&self, id: u32) -> &Inner {
        self.inners.at(id & !INNER)
    }

    fn node(&self, id: u32) -> &Node {
        if id & INNER == 0 { self.leaves.at(id) } else { &self.inner(id).node }
    }
}

/// Most splits of leaves while `keys` keys are inserted into a tree of `leaves` leaves.
///
/// A key splits at most one leaf. A leaf that is full now may split at once. Any other split follows half a leaf of new keys
/// or, in the last leaf, a whole one.
fn leaf_splits_max(keys: usize, leaves: usize) -> usize {
    keys.min(leaves + keys / (FANOUT / 2) + keys / FANOUT + 1)
}

/// Most splits of inner nodes, new roots included, for this many splits of leaves.
///
/// A split of a leaf splits at most one inner node of each level. An inner node that is full now may split at once. Any other
/// split follows nearly half a node of new separators.
fn inner_splits_max(leaf_splits: usize, inners: usize) -> usize {
    let at_once = inners.min(leaf_splits * DEPTH_MAX);
    at_once + at_once / (FANOUT / 4) + leaf_splits / (FANOUT / 4) + DEPTH_MAX + 1
}
