//! An ordered tree in memory whose searches wait for few cache lines.
//!
//! Leaves hold keys and values in the order of their inserts, and beside them, in key order, *heads*: 8 bytes of each key. Nodes
//! hold leaves in the same way, by their first keys, and an array of heads leads to the nodes. So a search compares numbers in
//! the lines of one array each, and a key only where heads are equal. Nothing is removed.
//!
//! Heads begin behind what all keys of their array have in common: those of a leaf lie between its first key and that of the
//! next leaf, and so have what these two have in common. In the first and the last leaf, the first and the last node and the
//! array of nodes it is what all keys of the tree have in common. Long keys of one kind would else have equal heads.
//!
//! # Cost
//! A search for a random key waits for two cache misses, which overlap, in a leaf's heads, and for two in the key. An entry takes
//! some 26 bytes besides its value, and 1.2 for each byte of its key.

use std::cmp::Ordering;
use std::ops::Bound;

use pleach_coding::{common_prefix_len, head_behind};

use super::{Bounds, Key};

/// Entries of a page at most.
const PAGE_LEN: usize = 64;
/// Heads of a cache line.
const LINE_HEADS: usize = 8;
/// A page's values get room for so many more at a time.
const GROWTH: usize = 16;
/// Its bytes of keys get room for one part in so many more.
const BYTES_GROWTH: usize = 8;

/// The keys of a page, and the heads by which they are found.
struct Keys {
    /// Where heads begin in keys.
    skip: usize,
    len: usize,
    /// In key order; those behind the last one are the greatest number.
    heads: [u64; PAGE_LEN],
    /// Which key each head belongs to, in the order of inserts.
    order: [u8; PAGE_LEN],
    /// Where the keys end in `bytes`.
    ends: [u32; PAGE_LEN],
    /// All keys, in the order of inserts.
    bytes: Vec<u8>,
}

/// Keys and what they lead to: a leaf or a node.
struct Page<T> {
    keys: Keys,
    /// In the order of inserts.
    values: Vec<T>,
}

type Leaf<V> = Page<V>;

/// Leaves by their first keys. The very first leaf has the empty key.
type Node<V> = Page<Box<Leaf<V>>>;

/// See the module's text.
pub(super) struct Tree<V> {
    /// What all keys begin with.
    prefix: Key,
    /// The first keys of nodes, and their heads, behind the prefix. The very first node has the empty key.
    heads: Vec<u64>,
    firsts: Vec<Key>,
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

impl Keys {
    fn new(skip: usize) -> Self {
        let (heads, order, ends) = ([u64::MAX; PAGE_LEN], [0; PAGE_LEN], [0; PAGE_LEN]);
        Self { skip, len: 0, heads, order, ends, bytes: Vec::new() }
    }

    fn key(&self, index: usize) -> &[u8] {
        let at = usize::from(self.order[index]);
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[at] as usize]
    }

    /// Index of the first key that is not before `key`, and whether it is the key itself.
    fn find(&self, key: &[u8]) -> (usize, bool) {
        let wanted = head_behind(key, self.skip);
        // Each step reads what does not depend on the one before, so misses overlap.
        let line = (1..PAGE_LEN / LINE_HEADS).filter(|line| self.heads[line * LINE_HEADS] < wanted).count();
        let line = line * LINE_HEADS;
        let in_line = self.heads[line..line + LINE_HEADS].iter().filter(|head| **head < wanted).count();
        let mut low = line + in_line;
        let mut high = low + self.heads[low..self.len].partition_point(|head| *head == wanted);
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// Inserts a key before that with this index. Requires: the page is not full.
    fn insert(&mut self, index: usize, key: &[u8]) {
        self.heads.copy_within(index..self.len, index + 1);
        self.order.copy_within(index..self.len, index + 1);
        self.heads[index] = head_behind(key, self.skip);
        self.order[index] = u8::try_from(self.len).expect("a page has few entries");
        if self.bytes.capacity() - self.bytes.len() < key.len() {
            self.bytes.reserve_exact(key.len() + self.bytes.len() / BYTES_GROWTH);
        }
        self.bytes.extend_from_slice(key);
        self.ends[self.len] = u32::try_from(self.bytes.len()).expect("keys are short");
        self.len += 1;
    }

    /// Lets heads begin elsewhere.
    fn set_skip(&mut self, skip: usize) {
        if self.skip != skip {
            self.skip = skip;
            for index in 0..self.len {
                self.heads[index] = head_behind(self.key(index), skip);
            }
        }
    }
}

impl<T> Page<T> {
    fn new(skip: usize) -> Self {
        Self { keys: Keys::new(skip), values: Vec::new() }
    }

    fn len(&self) -> usize {
        self.keys.len
    }

    fn value(&self, index: usize) -> &T {
        &self.values[usize::from(self.keys.order[index])]
    }

    fn value_mut(&mut self, index: usize) -> &mut T {
        &mut self.values[usize::from(self.keys.order[index])]
    }

    /// Requires: the page is not full.
    fn insert(&mut self, index: usize, key: &[u8], value: T) {
        self.keys.insert(index, key);
        if self.values.len() == self.values.capacity() {
            self.values.reserve_exact(GROWTH);
        }
        self.values.push(value);
    }

    /// Takes the upper half of the entries of a full page away.
    fn split(&mut self) -> Self {
        let bytes = self.keys.bytes.len();
        let [lower, mut upper] = [(); 2].map(|()| {
            let mut half = Self::new(self.keys.skip);
            half.keys.bytes.reserve_exact(bytes / 2 + bytes / BYTES_GROWTH);
            half.values.reserve_exact(PAGE_LEN / 2 + GROWTH);
            half
        });
        let Self { keys, values } = std::mem::replace(self, lower);
        let mut values: Vec<_> = values.into_iter().map(Some).collect();
        for index in 0..PAGE_LEN {
            let half = if index < PAGE_LEN / 2 { &mut *self } else { &mut upper };
            if let Some(value) = values[usize::from(keys.order[index])].take() {
                half.insert(half.len(), keys.key(index), value);
            }
        }
        upper
    }
}

impl<V> Default for Tree<V> {
    fn default() -> Self {
        let mut node = Node::new(0);
        node.insert(0, &[], Box::new(Leaf::new(0)));
        Self { prefix: Key::new(), heads: vec![0], firsts: vec![Key::new()], nodes: vec![node] }
    }
}

impl<V> Tree<V> {
    fn leaf(&self, node: usize, leaf: usize) -> &Leaf<V> {
        self.nodes[node].value(leaf)
    }

    fn leaf_mut(&mut self, node: usize, leaf: usize) -> &mut Leaf<V> {
        self.nodes[node].value_mut(leaf)
    }

    /// What all keys begin with; `None`: there are no keys.
    pub(super) fn common_prefix(&self) -> Option<&[u8]> {
        (self.leaf(0, 0).len() > 0).then_some(&self.prefix[..])
    }

    /// Where a key that begins as all others do is, or belongs; and whether it is there.
    fn find(&self, key: &[u8]) -> (Place, bool) {
        let wanted = head_behind(key, self.prefix.len());
        let node = find_child(&self.heads, &self.firsts, wanted, |first| first[..] <= *key);
        let (after, is_first) = self.nodes[node].keys.find(key);
        let leaf = if is_first { after } else { after - 1 };
        let (index, is_there) = self.leaf(node, leaf).keys.find(key);
        (Place { node, leaf, index }, is_there)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        if !key.starts_with(&self.prefix) {
            return None;
        }
        let (Place { node, leaf, index }, is_there) = self.find(key);
        is_there.then(|| self.leaf(node, leaf).value(index))
    }

    /// The value of a key, or where the key belongs: for [`Tree::insert`].
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Result<&mut V, Place> {
        if self.common_prefix().is_none_or(|prefix| !key.starts_with(prefix)) {
            self.share_prefix(key);
        }
        let (place, is_there) = self.find(key);
        if !is_there {
            return Err(place);
        }
        Ok(self.leaf_mut(place.node, place.leaf).value_mut(place.index))
    }

    /// Inserts a key at the place that [`Tree::get_mut`] has just given.
    pub(super) fn insert(&mut self, mut place: Place, key: &[u8], value: V) {
        if self.leaf(place.node, place.leaf).len() == PAGE_LEN {
            if place.index == PAGE_LEN && self.next_key(place.node, place.leaf).is_none() {
                // Keys that come in order fill leaves.
                let mut last = Leaf::new(self.prefix.len());
                last.insert(0, key, value);
                return self.add_leaf(place, last);
            }
            let upper = self.leaf_mut(place.node, place.leaf).split();
            self.add_leaf(place, upper);
            place = self.find(key).0;
        }
        self.leaf_mut(place.node, place.leaf).insert(place.index, key, value);
    }

    /// Adds a leaf behind that of a place.
    fn add_leaf(&mut self, Place { mut node, mut leaf, .. }: Place, next: Leaf<V>) {
        if self.nodes[node].len() == PAGE_LEN {
            let upper = self.nodes[node].split();
            let first = Key::from_slice(upper.keys.key(0));
            self.heads.insert(node + 1, head_behind(&first, self.prefix.len()));
            self.firsts.insert(node + 1, first);
            self.nodes.insert(node + 1, upper);
            self.fit_node(node);
            self.fit_node(node + 1);
            if let Some(in_upper) = leaf.checked_sub(self.nodes[node].len()) {
                (node, leaf) = (node + 1, in_upper);
            }
        }
        let first = Key::from_slice(next.keys.key(0));
        self.nodes[node].insert(leaf + 1, &first, Box::new(next));
        self.fit_leaf(node, leaf);
        self.fit_leaf(node, leaf + 1);
    }

    /// The first key behind a leaf.
    fn next_key(&self, node: usize, leaf: usize) -> Option<&[u8]> {
        let keys = &self.nodes[node].keys;
        if leaf + 1 < keys.len {
            Some(keys.key(leaf + 1))
        } else {
            self.firsts.get(node + 1).map(|key| &key[..])
        }
    }

    /// What all keys from a leaf to another one of its node have in common.
    fn common_len(&self, node: usize, first: usize, last: usize) -> usize {
        // In front of the keys of the very first leaf others may come, and behind those of the very last.
        let is_first = node == 0 && first == 0;
        let next = self.next_key(node, last).filter(|_| !is_first);
        let first = self.nodes[node].keys.key(first);
        next.map_or(self.prefix.len(), |next| common_prefix_len(first, next))
    }

    fn fit_leaf(&mut self, node: usize, leaf: usize) {
        let skip = self.common_len(node, leaf, leaf);
        self.leaf_mut(node, leaf).keys.set_skip(skip);
    }

    fn fit_node(&mut self, node: usize) {
        let skip = self.common_len(node, 0, self.nodes[node].len() - 1);
        self.nodes[node].keys.set_skip(skip);
    }

    /// Shortens the common prefix to what `key` has too; that of no keys is `key`.
    #[cold]
    fn share_prefix(&mut self, key: &[u8]) {
        let shared = self.common_prefix().map(|prefix| common_prefix_len(prefix, key));
        self.prefix = Key::from_slice(&key[..shared.unwrap_or(key.len())]);
        let skip = self.prefix.len();
        self.heads = self.firsts.iter().map(|first| head_behind(first, skip)).collect();
        // Only the heads of these begin behind the common prefix.
        let last = self.nodes.len() - 1;
        for (node, leaf) in [(0, 0), (last, self.nodes[last].len() - 1)] {
            self.fit_node(node);
            self.fit_leaf(node, leaf);
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
        let leaf = self.nodes[node].len() - 1;
        Place { node, leaf, index: self.leaf(node, leaf).len() }
    }
}

/// Entries of a range of a tree.
pub(super) struct TreeRange<'t, V> {
    tree: &'t Tree<V>,
    first: Place,
    end: Place,
}

impl<'t, V> TreeRange<'t, V> {
    pub(super) fn next(&mut self) -> Option<(&'t [u8], &'t V)> {
        while self.first < self.end {
            let Place { node, leaf, index } = self.first;
            let entries = self.tree.leaf(node, leaf);
            if index < entries.len() {
                self.first.index += 1;
                return Some((entries.keys.key(index), entries.value(index)));
            }
            let is_last = leaf + 1 == self.tree.nodes[node].len();
            let (node, leaf) = if is_last { (node + 1, 0) } else { (node, leaf + 1) };
            self.first = Place { node, leaf, index: 0 };
        }
        None
    }

    pub(super) fn next_back(&mut self) -> Option<(&'t [u8], &'t V)> {
        while self.first < self.end {
            let Place { node, leaf, index } = self.end;
            if let Some(index) = index.checked_sub(1) {
                self.end.index = index;
                let entries = self.tree.leaf(node, leaf);
                return Some((entries.keys.key(index), entries.value(index)));
            }
            let (node, leaf) =
                if leaf > 0 { (node, leaf - 1) } else { (node - 1, self.tree.nodes[node - 1].len() - 1) };
            self.end = Place { node, leaf, index: self.tree.leaf(node, leaf).len() };
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

    type Pairs<'t> = Vec<(&'t [u8], &'t u64)>;

    fn check(tree: &Tree<u64>, map: &BTreeMap<Key, u64>, rng: &mut fastrand::Rng, keys: &[Key]) {
        let all: Pairs<'_> = std::iter::from_fn({
            let mut range = tree.range((Bound::Unbounded, Bound::Unbounded));
            move || range.next()
        })
        .collect();
        assert!(all.into_iter().eq(map.iter().map(|(key, value)| (&key[..], value))), "all in order");
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
                let expected = if from_front { expected.next() } else { expected.next_back() };
                assert_eq!(entry, expected.map(|(key, value)| (&key[..], value)));
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
        let count = 3 * (PAGE_LEN * PAGE_LEN) as u64;
        for order in 0..3 {
            let mut tree = Tree::default();
            for number in 0..count {
                let number = [number, count - 1 - number, number.wrapping_mul(0x9E37_79B9_7F4A_7C15)][order];
                let key = format!("user/profile/{number:020}");
                let place = tree.get_mut(key.as_bytes()).expect_err("a new key");
                tree.insert(place, key.as_bytes(), number);
            }
            assert!(tree.nodes.len() > 1);
            assert!(tree.common_prefix().is_some_and(|prefix| prefix.starts_with(b"user/profile/")));
            let mut range = tree.range((Bound::Unbounded, Bound::Unbounded));
            let keys: Vec<_> = std::iter::from_fn(|| range.next()).collect();
            assert_eq!(keys.len() as u64, count);
            assert!(keys.is_sorted_by(|(key, _), (next, _)| key < next));
            for (key, number) in keys {
                assert_eq!(key, format!("user/profile/{number:020}").as_bytes());
                assert_eq!(tree.get(key), Some(number));
            }
            let leaves: usize = tree.nodes.iter().map(Page::len).sum();
            if order == 0 {
                assert!(
                    tree.leaf(1, 1).keys.skip > tree.prefix.len(),
                    "keys of one leaf have more in common"
                );
                assert_eq!(leaves as u64, count.div_ceil(PAGE_LEN as u64), "keys in order fill leaves");
            }
        }
    }
}
