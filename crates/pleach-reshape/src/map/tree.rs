//! An ordered tree in memory whose searches touch few cache lines.
//!
//! Leaves hold entries in the order of their inserts, and beside them, in key order, *heads*: 8 bytes of each key behind what all
//! keys of the tree begin with. Two levels of arrays of heads lead to the leaves. So a search compares numbers in the lines of
//! one array each, and a key only where heads are equal. Nothing is removed.
//!
//! # Cost
//! For random keys two cache misses of a search in the leaf and one in the key, and some 80 bytes an entry of 56.

use std::cmp::Ordering;
use std::ops::Bound;

use pleach_coding::{common_prefix_len, head_behind};

use super::{Bounds, Key};

/// Entries of a leaf at most.
const LEAF_LEN: usize = 64;
/// Heads of a cache line.
const LINE_HEADS: usize = 8;
/// A leaf's entries get room for so many more at a time.
const GROWTH: usize = 16;
/// Leaves of a node at most.
const NODE_LEAVES: usize = 512;

struct Leaf<V> {
    /// In key order; those behind the last one are the greatest number.
    heads: [u64; LEAF_LEN],
    /// Which entry each head belongs to.
    order: [u8; LEAF_LEN],
    entries: Vec<(Key, V)>,
}

/// Leaves in key order, with the heads of their first keys.
#[expect(clippy::vec_box, reason = "leaves are large, and a new one moves those behind it")]
struct Node<V> {
    heads: Vec<u64>,
    leaves: Vec<Box<Leaf<V>>>,
}

/// See the module's text.
pub(super) struct Tree<V> {
    /// What all keys begin with.
    prefix: Key,
    /// Of the first keys of nodes.
    heads: Vec<u64>,
    nodes: Vec<Node<V>>,
}

/// Where a key is, or belongs. A place behind the last entry of a leaf is before the first one of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    node: usize,
    leaf: usize,
    index: usize,
}

const FIRST: Place = Place { node: 0, leaf: 0, index: 0 };

impl<V> Leaf<V> {
    fn new() -> Self {
        Self { heads: [u64::MAX; LEAF_LEN], order: [0; LEAF_LEN], entries: Vec::new() }
    }

    fn entry(&self, index: usize) -> &(Key, V) {
        &self.entries[usize::from(self.order[index])]
    }

    /// Index of the first entry that is not before `key`, whose head is `wanted`, and whether it is the key itself.
    fn find(&self, key: &[u8], wanted: u64) -> (usize, bool) {
        // Each step reads what does not depend on the one before, so misses overlap.
        let line = (1..LEAF_LEN / LINE_HEADS).filter(|line| self.heads[line * LINE_HEADS] < wanted).count();
        let line = line * LINE_HEADS;
        let in_line = self.heads[line..line + LINE_HEADS].iter().filter(|head| **head < wanted).count();
        let (mut low, len) = (line + in_line, self.entries.len());
        let mut high = low + self.heads[low..len].partition_point(|head| *head == wanted);
        while low < high {
            let middle = low.midpoint(high);
            match self.entry(middle).0[..].cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// Requires: the leaf is not full.
    fn insert(&mut self, index: usize, head: u64, entry: (Key, V)) {
        let len = self.entries.len();
        self.heads.copy_within(index..len, index + 1);
        self.order.copy_within(index..len, index + 1);
        self.heads[index] = head;
        self.order[index] = u8::try_from(len).expect("a leaf has few entries");
        if len == self.entries.capacity() {
            self.entries.reserve_exact(GROWTH);
        }
        self.entries.push(entry);
    }

    /// Takes the upper half of the entries away.
    fn split(&mut self) -> Self {
        let middle = self.entries.len() / 2;
        let mut entries: Vec<_> = std::mem::take(&mut self.entries).into_iter().map(Some).collect();
        let mut upper = Self::new();
        for (half, indexes) in [(0..middle), (middle..entries.len())].into_iter().enumerate() {
            let of_half = indexes.clone().filter_map(|index| entries[usize::from(self.order[index])].take());
            let mut sorted = Vec::with_capacity(indexes.len() + GROWTH);
            sorted.extend(of_half);
            if half == 0 { self.entries = sorted } else { upper.entries = sorted }
        }
        let of_upper = upper.entries.len();
        upper.heads[..of_upper].copy_from_slice(&self.heads[middle..middle + of_upper]);
        self.heads[middle..].fill(u64::MAX);
        for (leaf, len) in [(&mut *self, middle), (&mut upper, of_upper)] {
            leaf.order.iter_mut().zip(0..).take(len).for_each(|(place, index)| *place = index);
        }
        upper
    }

    fn begins_at_or_before(&self, key: &[u8]) -> bool {
        !self.entries.is_empty() && self.entry(0).0[..] <= *key
    }
}

impl<V> Default for Tree<V> {
    fn default() -> Self {
        let node = Node { heads: vec![0], leaves: vec![Box::new(Leaf::new())] };
        Self { prefix: Key::new(), heads: vec![0], nodes: vec![node] }
    }
}

impl<V> Tree<V> {
    fn head(&self, key: &[u8]) -> u64 {
        head_behind(key, self.prefix.len())
    }

    /// Where a key that begins as all others do is, or belongs; and whether it is there.
    fn find(&self, key: &[u8]) -> (Place, bool) {
        let wanted = self.head(key);
        let begins = |node: &Node<V>| node.leaves[0].begins_at_or_before(key);
        let node = find_child(&self.heads, &self.nodes, wanted, begins);
        let Node { heads, leaves } = &self.nodes[node];
        let leaf = find_child(heads, leaves, wanted, |leaf| leaf.begins_at_or_before(key));
        let (index, is_there) = leaves[leaf].find(key, wanted);
        (Place { node, leaf, index }, is_there)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        if !key.starts_with(&self.prefix) {
            return None;
        }
        let (Place { node, leaf, index }, is_there) = self.find(key);
        is_there.then(|| &self.nodes[node].leaves[leaf].entry(index).1)
    }

    /// The value of a key, or where the key belongs: for [`Tree::insert`].
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Result<&mut V, Place> {
        self.share_prefix(key);
        let (place, is_there) = self.find(key);
        if !is_there {
            return Err(place);
        }
        let leaf = &mut self.nodes[place.node].leaves[place.leaf];
        Ok(&mut leaf.entries[usize::from(leaf.order[place.index])].1)
    }

    /// Inserts a key at the place that [`Tree::get_mut`] has just given.
    pub(super) fn insert(&mut self, mut place: Place, key: &[u8], value: V) {
        let (head, entry) = (self.head(key), (Key::from_slice(key), value));
        if self.nodes[place.node].leaves[place.leaf].entries.len() == LEAF_LEN {
            if self.is_end(place) {
                // Keys that come in order fill leaves.
                let mut last = Leaf::new();
                last.insert(0, head, entry);
                return self.add_leaf(place.node, place.leaf + 1, last);
            }
            let upper = self.nodes[place.node].leaves[place.leaf].split();
            self.add_leaf(place.node, place.leaf + 1, upper);
            place = self.find(key).0;
        }
        self.nodes[place.node].leaves[place.leaf].insert(place.index, head, entry);
    }

    /// Whether a place in a full leaf is behind all keys.
    fn is_end(&self, place: Place) -> bool {
        place
            == Place {
                node: self.nodes.len() - 1,
                leaf: self.nodes[place.node].leaves.len() - 1,
                index: LEAF_LEN,
            }
    }

    fn add_leaf(&mut self, at: usize, index: usize, leaf: Leaf<V>) {
        let node = &mut self.nodes[at];
        node.heads.insert(index, leaf.heads[0]);
        node.leaves.insert(index, Box::new(leaf));
        if node.leaves.len() > NODE_LEAVES {
            let heads = node.heads.split_off(NODE_LEAVES / 2);
            let leaves = node.leaves.split_off(NODE_LEAVES / 2);
            self.heads.insert(at + 1, heads[0]);
            self.nodes.insert(at + 1, Node { heads, leaves });
        }
    }

    /// Shortens the common prefix until `key` has it too.
    fn share_prefix(&mut self, key: &[u8]) {
        if key.starts_with(&self.prefix) {
            return;
        }
        let first = &self.nodes[0].leaves[0];
        if first.entries.is_empty() {
            self.prefix = Key::from_slice(key);
            return;
        }
        let is_small = self.nodes[0].leaves.len() == 1;
        // All heads are made anew, so in a large tree this may happen a few times only.
        let max = if is_small { self.prefix.len() } else { self.prefix.len() / 2 };
        self.prefix.truncate(common_prefix_len(&self.prefix, key).min(max));
        let skip = self.prefix.len();
        for (node, head_of_node) in self.nodes.iter_mut().zip(&mut self.heads) {
            for (leaf, head_of_leaf) in node.leaves.iter_mut().zip(&mut node.heads) {
                for index in 0..leaf.entries.len() {
                    leaf.heads[index] = head_behind(&leaf.entry(index).0, skip);
                }
                *head_of_leaf = leaf.heads[0];
            }
            *head_of_node = node.heads[0];
        }
    }

    /// The entries of a range, which is not empty by its bounds.
    pub(super) fn range(&self, (lower, upper): Bounds<'_>) -> TreeRange<'_, V> {
        let first = match lower {
            Bound::Unbounded => FIRST,
            Bound::Included(key) => self.lower_bound(key, true),
            Bound::Excluded(key) => self.lower_bound(key, false),
        };
        let end = match upper {
            Bound::Unbounded => self.end(),
            Bound::Included(key) => self.lower_bound(key, false),
            Bound::Excluded(key) => self.lower_bound(key, true),
        };
        TreeRange { tree: self, first, end }
    }

    /// The place of the first key that is greater, or equal, too, if that `is_included`.
    fn lower_bound(&self, key: &[u8], is_included: bool) -> Place {
        if !key.starts_with(&self.prefix) {
            return if *key < self.prefix[..] { FIRST } else { self.end() };
        }
        let (place, is_there) = self.find(key);
        Place { index: place.index + usize::from(is_there && !is_included), ..place }
    }

    fn end(&self) -> Place {
        let node = self.nodes.len() - 1;
        let leaf = self.nodes[node].leaves.len() - 1;
        Place { node, leaf, index: self.nodes[node].leaves[leaf].entries.len() }
    }
}

/// Entries of a range of a tree.
pub(super) struct TreeRange<'t, V> {
    tree: &'t Tree<V>,
    first: Place,
    end: Place,
}

impl<'t, V> TreeRange<'t, V> {
    pub(super) fn next(&mut self) -> Option<(&'t Key, &'t V)> {
        while self.first < self.end {
            let Place { node, leaf, index } = self.first;
            let leaves = &self.tree.nodes[node].leaves;
            if index < leaves[leaf].entries.len() {
                self.first.index += 1;
                let (key, value) = leaves[leaf].entry(index);
                return Some((key, value));
            }
            let is_last = leaf + 1 == leaves.len();
            self.first = if is_last {
                Place { node: node + 1, ..FIRST }
            } else {
                Place { node, leaf: leaf + 1, index: 0 }
            };
        }
        None
    }

    pub(super) fn next_back(&mut self) -> Option<(&'t Key, &'t V)> {
        while self.first < self.end {
            let Place { node, leaf, index } = self.end;
            let nodes = &self.tree.nodes;
            if let Some(index) = index.checked_sub(1) {
                self.end.index = index;
                let (key, value) = nodes[node].leaves[leaf].entry(index);
                return Some((key, value));
            }
            let (node, leaf) =
                if leaf > 0 { (node, leaf - 1) } else { (node - 1, nodes[node - 1].leaves.len() - 1) };
            self.end = Place { node, leaf, index: nodes[node].leaves[leaf].entries.len() };
        }
        None
    }
}

/// Index of the last child that begins at or before a key with the head `wanted`, or 0.
pub(super) fn find_child<T>(
    heads: &[u64],
    children: &[T],
    wanted: u64,
    begins_at_or_before: impl FnMut(&T) -> bool,
) -> usize {
    let ties = heads.partition_point(|head| *head < wanted);
    let ties_end = ties + heads[ties..].partition_point(|head| *head == wanted);
    let after = ties + children[ties..ties_end].partition_point(begins_at_or_before);
    after.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Pairs<'t> = Vec<(&'t Key, &'t u64)>;

    fn check(tree: &Tree<u64>, map: &BTreeMap<Key, u64>, rng: &mut fastrand::Rng, keys: &[Key]) {
        let all: Pairs<'_> = std::iter::from_fn({
            let mut range = tree.range((Bound::Unbounded, Bound::Unbounded));
            move || range.next()
        })
        .collect();
        assert!(all.into_iter().eq(map), "all in order");
        for _ in 0..50 {
            let [key, lower, upper] = [(); 3].map(|()| &keys[rng.usize(..keys.len())][..]);
            assert_eq!(tree.get(key), map.get(key));
            let mut bound = |key| if rng.bool() { Bound::Included(key) } else { Bound::Excluded(key) };
            let bounds = (bound(lower), bound(upper));
            if super::super::is_empty(bounds) {
                continue;
            }
            let (mut found, mut expected) = (tree.range(bounds), map.range::<[u8], _>(bounds));
            // From both ends until they meet.
            loop {
                let from_front = rng.bool();
                let entry = if from_front { found.next() } else { found.next_back() };
                assert_eq!(entry, if from_front { expected.next() } else { expected.next_back() });
                if entry.is_none() {
                    break;
                }
            }
            assert_eq!((found.next(), found.next_back()), (None, None));
        }
    }

    /// Keys in every order and with common prefixes of every length, which later keys do not have.
    #[test]
    fn a_tree_answers_as_a_map_does() {
        let mut rng = fastrand::Rng::with_seed(3);
        for round in 0..60 {
            let prefix: Key = (0..rng.usize(..40)).map(|_| rng.u8(b'a'..b'c')).collect();
            let (count, letters) = (rng.usize(1..3000), rng.u8(1..12));
            let mut keys: Vec<Key> = (0..count)
                .map(|_| {
                    // Most have the whole prefix.
                    let shared = if rng.u8(..) < 3 { rng.usize(..=prefix.len()) } else { prefix.len() };
                    let mut key = Key::from_slice(&prefix[..shared]);
                    key.extend((0..rng.usize(..14)).map(|_| b'a' + rng.u8(..=letters)));
                    key.extend_from_slice(&[u8::MAX; 12][..if rng.u8(..) < 3 { 12 } else { 0 }]);
                    key
                })
                .collect();
            match round % 3 {
                0 => keys.sort(),
                1 => keys.sort_by(|key, other| other.cmp(key)),
                _ => {}
            }
            let (mut tree, mut map) = (Tree::default(), BTreeMap::new());
            for (number, key) in keys.iter().enumerate() {
                let value = number as u64;
                match tree.get_mut(key) {
                    Ok(old) => *old = value,
                    Err(place) => tree.insert(place, key, value),
                }
                map.insert(key.clone(), value);
                if rng.usize(..400) == 0 || number + 1 == count {
                    check(&tree, &map, &mut rng, &keys);
                }
            }
        }
    }

    /// Enough keys for more than one node, in three orders.
    #[test]
    fn a_large_tree_has_all_its_keys() {
        let count = 3 * (NODE_LEAVES * LEAF_LEN) as u64;
        for order in 0..3 {
            let mut tree = Tree::default();
            for number in 0..count {
                let number = [number, count - 1 - number, number.wrapping_mul(0x9E37_79B9_7F4A_7C15)][order];
                let key = format!("{number:020}");
                let place = tree.get_mut(key.as_bytes()).expect_err("a new key");
                tree.insert(place, key.as_bytes(), number);
            }
            assert!(tree.nodes.len() > 1);
            let mut range = tree.range((Bound::Unbounded, Bound::Unbounded));
            let keys: Vec<_> = std::iter::from_fn(|| range.next()).collect();
            assert_eq!(keys.len() as u64, count);
            assert!(keys.is_sorted_by(|(key, _), (next, _)| key < next));
            for (key, number) in keys {
                assert_eq!(&key[..], format!("{number:020}").as_bytes());
                assert_eq!(tree.get(key), Some(number));
            }
            let leaves: usize = tree.nodes.iter().map(|node| node.leaves.len()).sum();
            if order == 0 {
                assert_eq!(leaves as u64, count.div_ceil(LEAF_LEN as u64), "keys in order fill leaves");
            }
        }
    }
}
