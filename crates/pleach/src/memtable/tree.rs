//! The memtable's ordered part: a B+tree of references to key records, with one writer and lock-free readers.
//!
//! Keys are only ever added (a delete is a tombstone version), so nodes split and never merge. A split fills the new
//! right node, makes the parent point to it, and only then trims the left one: at every instant each key can be
//! reached, and a reader that came by the old way sees the node change and starts again.
//!
//! # Invariants
//! 1. A key record stands in exactly one leaf once the writer is at rest.
//! 2. Leaves are chained left to right by `next`; the chain visits keys in ascending order.
//! 3. Node number 0 is the first leaf, for ever; no node is freed before the tree.
//! 4. *Nothing fails after a reservation*: [`Tree::reserve`] takes the memory of all nodes that its keys can need.
//!
//! # Concurrency
//! [`Tree::insert`] by one thread at a time; everything else by anyone, any time (see `node`).

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pleach_env::sync::Mutex;
use smallvec::SmallVec;

use super::arena::{Arena, ArenaRef};
use super::entry;
use super::node::{FANOUT, Node};

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
    /// Writer: how many more keys there is memory for, whatever they are.
    granted: AtomicUsize,
}

/// Keys for which memory is taken beyond those asked for, so that few small batches ask for more.
const GRANT: usize = 64;

/// Levels of inner nodes at most: with half full nodes eight hold 2^40 leaves.
const DEPTH_MAX: usize = 8;

/// A leaf's entries as they stood at one instant.
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
        Some(Self { leaves, inners, root: AtomicU32::new(0), granted: AtomicUsize::new(0) })
    }

    /// Writer: takes from the system what inserts of this many keys will need. Returns whether it was given; if not, the
    /// tree is as usable as before.
    #[inline]
    pub(super) fn reserve(&self, keys: usize) -> bool {
        let granted = self.granted.load(Ordering::Relaxed);
        if keys > granted {
            return self.grant(keys + GRANT) && self.reserve(keys) || self.grant(keys) && self.reserve(keys);
        }
        self.granted.store(granted - keys, Ordering::Relaxed);
        true
    }

    #[cold]
    fn grant(&self, keys: usize) -> bool {
        let leaves = leaf_splits_max(keys, self.leaves.len());
        let inners = inner_splits_max(leaves, self.inners.len());
        let is_given = self.leaves.reserve(leaves) && self.inners.reserve(inners);
        if is_given {
            self.granted.store(keys, Ordering::Relaxed);
        }
        is_given
    }

    /// Bytes of the nodes.
    pub(super) fn bytes(&self) -> usize {
        self.leaves.len() * size_of::<Node>() + self.inners.len() * size_of::<Inner>()
    }

    /// Writer: adds a key record that the tree does not hold. Requires: a reservation that covers it.
    pub(super) fn insert(&self, arena: &Arena, key_ref: ArenaRef, key: &[u8]) {
        let mut path = SmallVec::<[(u32, usize); 8]>::new();
        loop {
            path.clear();
            let leaf = self.descend(arena, key, &mut path);
            let node = self.leaves.at(leaf);
            let index = node.rank(arena, key, false);
            if !node.is_full() {
                node.write(|n| n.insert_at(index, key_ref, key));
                return;
            }
            // Room for the new separator is made from the top down, so that a split never reaches further up.
            match path.iter().position(|&(inner, _)| self.inner(inner).node.is_full()) {
                Some(depth) => self.split_inner(arena, &path[..=depth]),
                None => self.split_leaf(arena, leaf, index, key_ref, path.last().copied()),
            }
        }
    }

    /// Writer: the leaf for `key`, with the inner nodes passed and the child taken in each.
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
        // Ascending inserts leave full leaves behind: the new key starts the right one.
        let appends = index == FANOUT && left.high().is_none();
        let from = if appends { FANOUT } else { FANOUT / 2 };
        let separator =
            if appends { key_ref } else { left.key_at(from).expect("the writer sees its own entries") };
        let right_id = self.leaves.push();
        self.leaves.at(right_id).fill_from(arena, left, from, separator);
        self.attach(arena, parent, leaf, right_id, separator);
        left.write(|n| n.trim(arena, from, separator, right_id));
    }

    /// Splits the last node of `path`, all of whose ancestors have room.
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
        right.node.fill_from(arena, &left.node, middle + 1, separator);
        for (to, i) in (middle + 1..=FANOUT).enumerate() {
            right.children.0[to].store(left.children.0[i].load(Ordering::Relaxed), Ordering::Release);
        }
        self.attach(arena, parent, id, right_id, separator);
        left.node.write(|n| n.trim(arena, middle, separator, 0));
    }

    /// Makes `right` the neighbour of `left` in its parent, or makes a new root of both.
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
            parent.node.write(|n| {
                for i in (child + 1..=n.count()).rev() {
                    parent.children.0[i + 1]
                        .store(parent.children.0[i].load(Ordering::Relaxed), Ordering::Release);
                }
                parent.children.0[child + 1].store(right, Ordering::Release);
                n.insert_at(child, separator, key);
            });
        } else {
            let id = self.inners.push() | INNER;
            let root = self.inner(id);
            root.children.0[0].store(left, Ordering::Release);
            root.children.0[1].store(right, Ordering::Release);
            root.node.write(|n| n.insert_at(0, separator, key));
            self.root.store(id, Ordering::Release);
        }
    }

    /// Looks for the record of `key`.
    pub(super) fn find(&self, arena: &Arena, key: &[u8]) -> Option<ArenaRef> {
        loop {
            let (id, version) = self.leaf_for(arena, key, true);
            let leaf = self.leaves.at(id);
            let index = leaf.rank(arena, key, false);
            let found = if index < leaf.count() { leaf.key_at(index) } else { None };
            if leaf.unchanged_since(version) {
                return found.filter(|&at| entry::key(arena, at) == key);
            }
        }
    }

    /// A copy of the leaf in which `key` stands or would stand and the number of its entries below `key`. With
    /// `inclusive` false, the leaf that ends just before `key`, where that is another.
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

    /// Reader: the leaf for `key` and its version when it was reached.
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
                // The child was the right one when its version was noted only if the parent still says so.
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

/// How often leaves split at most in inserts of `keys` keys into a tree of so many leaves.
///
/// A key splits one leaf at most. A leaf that is full now may split at once; any other split comes after half a leaf of
/// new keys, or, at the end, after a leaf of them.
fn leaf_splits_max(keys: usize, leaves: usize) -> usize {
    keys.min(leaves + keys / (FANOUT / 2) + keys / FANOUT + 1)
}

/// The same of inner nodes, new roots included, when leaves split so often.
///
/// A split of a leaf splits one inner node of each level at most. An inner node that is full now may split at once; any other
/// split comes after nearly half a node of separators.
fn inner_splits_max(leaf_splits: usize, inners: usize) -> usize {
    let at_once = inners.min(leaf_splits * DEPTH_MAX);
    at_once + at_once / (FANOUT / 4) + leaf_splits / (FANOUT / 4) + DEPTH_MAX + 1
}

/// Nodes by number, in slabs that never move: small ones first, for small memtables, then of equal size, so that
/// growing never takes long. The table of slabs is short too: a batch of very many keys gets a second one.
struct Pool<T> {
    slabs: Box<[Slab<T>]>,
    far: OnceLock<Box<[Slab<T>]>>,
    len: AtomicU32,
    /// Writer: nodes that there is memory for.
    ready: AtomicU32,
    /// Writer: memory for the next slabs, in their order, which nobody has touched yet.
    spare: Mutex<VecDeque<Vec<T>>>,
}

type Slab<T> = OnceLock<Box<[T]>>;

/// Nodes in the first slab; the next are twice as long each, up to [`SLAB_MAX`].
const SLAB_MIN: u32 = 16;
const SLAB_MAX: u32 = 256;

/// Nodes in the slabs that are shorter than [`SLAB_MAX`].
const IN_SHORT_SLABS: u32 = SLAB_MAX - SLAB_MIN;
const SHORT_SLABS: u32 = SLAB_MAX.ilog2() - SLAB_MIN.ilog2();

/// Slabs of the first table. With leaves half full they hold two million keys, more than a memtable of the default size
/// does. Fewer in tests, so that these reach the second table.
const SLABS: u32 = if cfg!(test) { 16 } else { 256 };

/// Nodes in the slabs of the first table.
const IN_SLABS: u32 = IN_SHORT_SLABS + (SLABS - SHORT_SLABS) * SLAB_MAX;

/// Nodes in a slab of the second table, and slabs of it.
const FAR_SLAB: u32 = 4096;
const FAR_SLABS: u32 = 4096;

const _: () = assert!(
    (IN_SLABS as usize + FAR_SLAB as usize * FAR_SLABS as usize) * (FANOUT / 2)
        > crate::limits::OPERATIONS_MAX,
    "leaves are at least half full, so the pool holds the keys of any batch"
);
const _: () =
    assert!(IN_SLABS + FAR_SLAB * FAR_SLABS < INNER, "a node's number leaves the mark of inner nodes free");

impl<T: Default> Pool<T> {
    fn new() -> Self {
        let slabs = Self::table(SLABS).expect("it is short");
        Self {
            slabs,
            far: OnceLock::new(),
            len: AtomicU32::new(0),
            ready: AtomicU32::new(0),
            spare: Mutex::new(VecDeque::new()),
        }
    }

    /// An empty table; `None` without memory.
    fn table(slabs: u32) -> Option<Box<[Slab<T>]>> {
        let mut table = Vec::new();
        table.try_reserve_exact(slabs as usize).ok()?;
        table.resize_with(slabs as usize, OnceLock::new);
        Some(table.into_boxed_slice())
    }

    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    /// Slab and index of a node of the first table.
    #[inline]
    fn place(id: u32) -> (u32, u32) {
        if id >= IN_SHORT_SLABS {
            let rest = id - IN_SHORT_SLABS;
            return (SHORT_SLABS + rest / SLAB_MAX, rest % SLAB_MAX);
        }
        let shifted = id + SLAB_MIN;
        let slab = shifted.ilog2() - SLAB_MIN.ilog2();
        (slab, shifted - (SLAB_MIN << slab))
    }

    /// Nodes in the slab that node `id` is in.
    fn slab_len(id: u32) -> u32 {
        if id >= IN_SLABS { FAR_SLAB } else { (SLAB_MIN << Self::place(id).0.min(SHORT_SLABS)).min(SLAB_MAX) }
    }

    /// Writer: takes memory for `count` more nodes. Returns whether the system gave it.
    fn reserve(&self, count: usize) -> bool {
        let wanted = self.len() + count;
        let mut spare = self.spare.lock();
        let mut ready = self.ready.load(Ordering::Relaxed);
        while (ready as usize) < wanted {
            let mut slab = Vec::new();
            let slab_len = Self::slab_len(ready);
            let is_given = self.has_slot(ready)
                && slab.try_reserve_exact(slab_len as usize).is_ok()
                && spare.try_reserve(1).is_ok();
            if !is_given {
                return false;
            }
            spare.push_back(slab);
            ready += slab_len;
            self.ready.store(ready, Ordering::Relaxed);
        }
        true
    }

    /// Writer: whether a table has a slot for the slab of node `id`. Makes the second table where it begins.
    fn has_slot(&self, id: u32) -> bool {
        if id < IN_SLABS {
            return true;
        }
        let has_table = self.far.get().is_some()
            || Self::table(FAR_SLABS).is_some_and(|table| self.far.set(table).is_ok());
        has_table && (id - IN_SLABS) / FAR_SLAB < FAR_SLABS
    }

    /// Writer: a new node's number. Requires: a reservation that covers it.
    fn push(&self) -> u32 {
        let id = self.len.load(Ordering::Relaxed);
        let slot = if id < IN_SLABS {
            &self.slabs[Self::place(id).0 as usize]
        } else {
            let far = self.far.get().expect("made by the reservation");
            &far[((id - IN_SLABS) / FAR_SLAB) as usize]
        };
        slot.get_or_init(|| {
            let spare = self.spare.lock().pop_front();
            let mut slab = spare.expect("the memory of a batch is reserved before it is logged");
            slab.resize_with(Self::slab_len(id) as usize, T::default);
            slab.into_boxed_slice()
        });
        self.len.store(id + 1, Ordering::Relaxed);
        id
    }

    #[inline]
    fn at(&self, id: u32) -> &T {
        if id >= IN_SLABS {
            return self.far_at(id - IN_SLABS);
        }
        let (slab, index) = Self::place(id);
        &self.slabs[slab as usize].get().expect("node numbers come from push")[index as usize]
    }

    #[cold]
    fn far_at(&self, id: u32) -> &T {
        let far = self.far.get().expect("node numbers come from push");
        &far[(id / FAR_SLAB) as usize].get().expect("node numbers come from push")[(id % FAR_SLAB) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_places_of_their_own() {
        let pool = Pool::<AtomicU32>::new();
        let count = IN_SLABS + 2 * FAR_SLAB + 1;
        for id in 0..count {
            assert!(pool.reserve(1));
            assert_eq!(pool.push(), id);
            pool.at(id).store(id, Ordering::Relaxed);
        }
        assert!((0..count).all(|id| pool.at(id).load(Ordering::Relaxed) == id));
    }
}
