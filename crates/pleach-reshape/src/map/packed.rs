//! The packed tree: an ordered map from keys to ids in memory, immutable and shared in parts.
//!
//! Leaves of about 4 KiB hold sorted entries without their common prefix. Two levels of arrays lead to them. A change makes
//! copies of what it touches and a new root; the rest is shared with the trees before. So a snapshot is a clone, and readers
//! need no lock. Changes come as large sorted batches, so a copied leaf usually takes several.
//!
//! # Cost
//! About 28 bytes a key of 16 bytes. A lookup compares 8-byte heads in two arrays, then searches one leaf. Heads begin behind
//! what the first keys of a level have in common: URLs and paths would have equal ones otherwise.

use std::cmp::Ordering;
use std::ops::{Bound, Range};
use std::sync::Arc;

use pleach_coding::{common_prefix_len, head, u16_at, u64_at};

use super::tree::find_child;
use super::{Bounds, Direction, Key, compare};
use crate::ids::Id;

/// A leaf is split above this size. Arbitrary between long copies and much overhead.
const LEAF_BYTES: usize = 4096;
/// A leaf below this size is joined with the next one.
const LEAF_BYTES_MIN: usize = LEAF_BYTES / 4;
/// Leaves of a node at most. Fewer have more in common, and more nodes make a longer root, which each change copies.
const NODE_LEAVES: usize = 256;
const ID_LEN: usize = 8;
const HEADER_LEN: usize = 4;
/// Memory of a leaf besides its bytes: counters of its references, the allocator's word, its entry in the node, with head and
/// first key.
const LEAF_OVERHEAD: usize = 16 + 8 + 56;

/// Sorted entries: the length of the prefix, the number of entries (both `u16`), the prefix, the ends of the entries (`u16`
/// each, from the first entry on), the entries: id, key without the prefix.
#[derive(Clone)]
struct Leaf(Arc<[u8]>);

impl Leaf {
    fn build(entries: &[(Key, Id)]) -> Self {
        let (first, last) = (&entries[0].0, &entries[entries.len() - 1].0);
        let prefix_len = common_prefix_len(first, last);
        let mut bytes = Vec::with_capacity(HEADER_LEN + prefix_len + leaf_bytes(entries));
        bytes.extend_from_slice(&short(prefix_len));
        bytes.extend_from_slice(&short(entries.len()));
        bytes.extend_from_slice(&first[..prefix_len]);
        let mut end = 0;
        for (key, _) in entries {
            end += ID_LEN + key.len() - prefix_len;
            bytes.extend_from_slice(&short(end));
        }
        for (key, id) in entries {
            bytes.extend_from_slice(&id.0.to_le_bytes());
            bytes.extend_from_slice(&key[prefix_len..]);
        }
        Self(bytes.into())
    }

    fn len(&self) -> usize {
        usize::from(u16_at(&self.0, 2))
    }

    fn prefix(&self) -> &[u8] {
        &self.0[HEADER_LEN..HEADER_LEN + usize::from(u16_at(&self.0, 0))]
    }

    /// The bytes of an entry: id, key without the prefix.
    fn entry(&self, index: usize) -> &[u8] {
        let ends = HEADER_LEN + usize::from(u16_at(&self.0, 0));
        let entries = ends + 2 * self.len();
        let end = |index: usize| usize::from(u16_at(&self.0, ends + 2 * index));
        let start = if index == 0 { 0 } else { end(index - 1) };
        &self.0[entries + start..entries + end(index)]
    }

    fn key(&self, index: usize) -> Key {
        let mut key = Key::from_slice(self.prefix());
        key.extend_from_slice(&self.entry(index)[ID_LEN..]);
        key
    }

    fn id(&self, index: usize) -> Id {
        Id(u64_at(self.entry(index), 0))
    }

    /// Index of the first entry that is not before `key`, and whether it is the key itself.
    fn search(&self, key: &[u8]) -> (usize, bool) {
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            return (if key < prefix { 0 } else { self.len() }, false);
        };
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match compare(&self.entry(middle)[ID_LEN..], suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }
}

fn number(number: usize) -> u16 {
    u16::try_from(number).expect("a leaf has less than 64 KiB")
}

fn short(index: usize) -> [u8; 2] {
    number(index).to_le_bytes()
}

/// Bytes of a leaf of these entries, about.
fn leaf_bytes(entries: &[(Key, Id)]) -> usize {
    entries.iter().map(|(key, _)| entry_bytes(key)).sum()
}

fn entry_bytes(key: &Key) -> usize {
    key.len() + ID_LEN + 2
}

/// Children in the order of their keys, with their first keys.
#[derive(Clone)]
struct Level<T> {
    /// The beginning of all first keys.
    prefix: Key,
    /// The first 8 bytes of each first key behind the prefix.
    heads: Vec<u64>,
    /// The first keys without the prefix.
    firsts: Vec<Key>,
    children: Vec<T>,
    /// Memory of the leaves below.
    bytes: usize,
}

impl<T> Default for Level<T> {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new(), 0)
    }
}

impl<T> Level<T> {
    /// A level of children with these first keys, which ascend.
    fn new(mut firsts: Vec<Key>, children: Vec<T>, bytes: usize) -> Self {
        let mut prefix = Key::new();
        if let [first, .., last] = &firsts[..] {
            prefix.extend_from_slice(&first[..common_prefix_len(first, last)]);
        }
        if !prefix.is_empty() {
            for first in &mut firsts {
                *first = Key::from_slice(&first[prefix.len()..]);
            }
        }
        Self { prefix, heads: firsts.iter().map(|first| head(first)).collect(), firsts, children, bytes }
    }

    fn first(&self, index: usize) -> Option<Key> {
        let behind = self.firsts.get(index)?;
        let mut first = Key::with_capacity(self.prefix.len() + behind.len());
        first.extend_from_slice(&self.prefix);
        first.extend_from_slice(behind);
        Some(first)
    }

    /// Index of the last child that begins at or before `key`, or 0.
    fn find(&self, key: &[u8]) -> usize {
        match key.strip_prefix(&self.prefix[..]) {
            Some(behind) => find_child(&self.heads, &self.firsts, head(behind), |first| first[..] <= *behind),
            None if key < &self.prefix[..] => 0,
            None => self.children.len() - 1,
        }
    }
}

type Node = Arc<Level<Leaf>>;

/// The tree. A clone shares everything.
#[derive(Clone, Default)]
pub(crate) struct Packed {
    root: Arc<Level<Node>>,
}

impl Packed {
    fn find(&self, key: &[u8]) -> Option<(usize, usize)> {
        let node = self.root.find(key);
        Some((node, self.root.children.get(node)?.find(key)))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Id> {
        let (node, leaf) = self.find(key)?;
        let leaf = &self.root.children[node].children[leaf];
        let (index, is_there) = leaf.search(key);
        is_there.then(|| leaf.id(index))
    }

    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.root.bytes
    }

    /// Appends up to `limit` entries of a range, from one end, and returns whether there are no more.
    pub(crate) fn collect(
        &self,
        bounds: Bounds<'_>,
        direction: Direction,
        limit: usize,
        out: &mut Vec<(Key, Option<Id>)>,
    ) -> bool {
        let wanted = out.len() + limit;
        let start = match direction {
            Direction::Up => bounds.0,
            Direction::Down => bounds.1,
        };
        let first = match start {
            Bound::Included(key) | Bound::Excluded(key) => self.find(key),
            Bound::Unbounded if direction == Direction::Up => Some((0, 0)),
            Bound::Unbounded => self.last_leaf(),
        };
        let mut at = first;
        while let Some((node, leaf)) = at.filter(|(node, _)| *node < self.root.children.len()) {
            let entries = &self.root.children[node].children[leaf];
            if let Some(is_end) = collect_leaf(entries, bounds, direction, wanted, out) {
                return is_end;
            }
            at = self.beside(node, leaf, direction);
        }
        true
    }

    fn last_leaf(&self) -> Option<(usize, usize)> {
        let node = self.root.children.len().checked_sub(1)?;
        Some((node, self.root.children[node].children.len() - 1))
    }

    fn beside(&self, node: usize, leaf: usize, direction: Direction) -> Option<(usize, usize)> {
        let leaves = |node: usize| self.root.children[node].children.len();
        match direction {
            Direction::Up if leaf + 1 < leaves(node) => Some((node, leaf + 1)),
            Direction::Up => Some((node + 1, 0)),
            Direction::Down if leaf > 0 => Some((node, leaf - 1)),
            Direction::Down => node.checked_sub(1).map(|node| (node, leaves(node) - 1)),
        }
    }

    /// The tree with changes, which are sorted and have each key once; `None` removes a key.
    #[must_use]
    pub(crate) fn apply(&self, changes: &[(Key, Option<Id>)]) -> Self {
        let (old, mut changes) = (&*self.root, changes);
        let (mut root, mut scratch, mut done) = (Nodes::default(), Scratch::default(), 0);
        while done < old.children.len()
            && let Some((key, _)) = changes.first()
        {
            let index = old.find(key);
            root.keep(old, done..index);
            let next = old.first(index + 1);
            let is_inside =
                |(key, _): &(Key, Option<Id>)| next.as_ref().is_none_or(|next| compare(key, next).is_lt());
            let own;
            (own, changes) = changes.split_at(changes.partition_point(is_inside));
            root.push(apply_to_node(&old.children[index], own, &mut scratch));
            done = index + 1;
        }
        root.keep(old, done..old.children.len());
        let fresh: Vec<_> = changes.iter().filter_map(|(key, id)| Some((key.clone(), (*id)?))).collect();
        let mut leaves = Vec::new();
        split(&fresh, &mut leaves);
        root.push(leaves);
        Self { root: Arc::new(Level::new(root.firsts, root.children, root.bytes)) }
    }
}

/// The nodes of a new root.
#[derive(Default)]
struct Nodes {
    firsts: Vec<Key>,
    children: Vec<Node>,
    bytes: usize,
}

impl Nodes {
    /// Takes over nodes of the old root.
    fn keep(&mut self, old: &Level<Node>, indexes: Range<usize>) {
        for index in indexes {
            self.firsts.extend(old.first(index));
            self.children.push(Arc::clone(&old.children[index]));
            self.bytes += old.children[index].bytes;
        }
    }

    /// Appends nodes of these leaves.
    fn push(&mut self, leaves: Vec<Leaf>) {
        let nodes = leaves.len().div_ceil(NODE_LEAVES).max(1);
        let each = leaves.len().div_ceil(nodes).max(1);
        let mut leaves = leaves.into_iter().peekable();
        while leaves.peek().is_some() {
            let own: Vec<_> = leaves.by_ref().take(each).collect();
            let firsts: Vec<_> = own.iter().map(|leaf| leaf.key(0)).collect();
            let bytes =
                own.iter().zip(&firsts).map(|(leaf, first)| leaf.0.len() + first.len() + LEAF_OVERHEAD).sum();
            self.firsts.push(firsts[0].clone());
            self.children.push(Arc::new(Level::new(firsts, own, bytes)));
            self.bytes += bytes;
        }
    }
}

/// Memory that splices use again and again.
#[derive(Default)]
struct Scratch {
    /// The ends of entries, as in a leaf.
    ends: Vec<u8>,
    entries: Vec<u8>,
    leaf: Vec<u8>,
}

impl Scratch {
    /// Copies entries of a leaf. Their ends move by the same number.
    fn copy(&mut self, leaf: &Leaf, entries: Range<usize>) {
        let ends_at = HEADER_LEN + leaf.prefix().len();
        let entries_at = ends_at + 2 * leaf.len();
        let (first, last) = (leaf.start(entries.start), leaf.start(entries.end));
        let shift = number(self.entries.len()).wrapping_sub(number(first));
        let (ends, _) = leaf.0[ends_at + 2 * entries.start..ends_at + 2 * entries.end].as_chunks::<2>();
        self.ends
            .extend(ends.iter().flat_map(|end| u16::from_le_bytes(*end).wrapping_add(shift).to_le_bytes()));
        self.entries.extend_from_slice(&leaf.0[entries_at + first..entries_at + last]);
    }

    fn push(&mut self, suffix: &[u8], id: Id) {
        self.entries.extend_from_slice(&id.0.to_le_bytes());
        self.entries.extend_from_slice(suffix);
        self.ends.extend_from_slice(&short(self.entries.len()));
    }
}

impl Leaf {
    /// Where an entry begins, counted from the first one; also for the index behind the last.
    fn start(&self, index: usize) -> usize {
        let ends = HEADER_LEN + usize::from(u16_at(&self.0, 0));
        index.checked_sub(1).map_or(0, |before| usize::from(u16_at(&self.0, ends + 2 * before)))
    }

    /// The leaf with changes, if they keep its prefix and about its size. Entries between changes are copied as they are: most
    /// of a leaf's entries do not change, and to take them apart would cost more than all else.
    fn spliced(&self, changes: &[(Key, Option<Id>)], scratch: &mut Scratch) -> Option<Self> {
        let prefix = self.prefix();
        scratch.ends.clear();
        scratch.entries.clear();
        let mut at = 0;
        for (key, id) in changes {
            let suffix = key.strip_prefix(prefix)?;
            if scratch.entries.len() + entry_bytes(key) > LEAF_BYTES {
                return None;
            }
            let (index, is_there) = self.search(key);
            scratch.copy(self, at..index);
            if let Some(id) = id {
                scratch.push(suffix, *id);
            }
            at = index + usize::from(is_there);
        }
        scratch.copy(self, at..self.len());
        let count = scratch.ends.len() / 2;
        let bytes = scratch.entries.len() + count * (2 + prefix.len());
        if !(LEAF_BYTES_MIN..=LEAF_BYTES).contains(&bytes) {
            return None;
        }
        scratch.leaf.clear();
        scratch.leaf.extend_from_slice(&self.0[..2]);
        scratch.leaf.extend_from_slice(&short(count));
        scratch.leaf.extend_from_slice(prefix);
        scratch.leaf.extend_from_slice(&scratch.ends);
        scratch.leaf.extend_from_slice(&scratch.entries);
        Some(Self(scratch.leaf[..].into()))
    }
}

/// Appends a leaf's entries; `Some` when the range or the wanted number has ended: whether it was the range.
fn collect_leaf(
    leaf: &Leaf,
    bounds: Bounds<'_>,
    direction: Direction,
    wanted: usize,
    out: &mut Vec<(Key, Option<Id>)>,
) -> Option<bool> {
    let first = match bounds.0 {
        Bound::Unbounded => 0,
        Bound::Included(key) => leaf.search(key).0,
        Bound::Excluded(key) => {
            let (index, is_there) = leaf.search(key);
            index + usize::from(is_there)
        }
    };
    let end = match bounds.1 {
        Bound::Unbounded => leaf.len(),
        Bound::Excluded(key) => leaf.search(key).0,
        Bound::Included(key) => {
            let (index, is_there) = leaf.search(key);
            index + usize::from(is_there)
        }
    };
    let mut indexes = first..end.max(first);
    while let Some(index) = if direction == Direction::Up { indexes.next() } else { indexes.next_back() } {
        if out.len() == wanted {
            return Some(false);
        }
        out.push((leaf.key(index), Some(leaf.id(index))));
    }
    let is_last = if direction == Direction::Up { end < leaf.len() } else { first > 0 };
    is_last.then_some(true)
}

/// The leaves of a node with changes.
fn apply_to_node(node: &Node, mut changes: &[(Key, Option<Id>)], scratch: &mut Scratch) -> Vec<Leaf> {
    let mut leaves = Vec::with_capacity(node.children.len() + 1);
    // Entries of leaves that were too small to stand alone.
    let mut carried: Vec<(Key, Id)> = Vec::new();
    for (index, leaf) in node.children.iter().enumerate() {
        let next = node.first(index + 1);
        let is_behind =
            |(key, _): &(Key, Option<Id>)| next.as_ref().is_some_and(|next| compare(key, next).is_ge());
        let own;
        (own, changes) = changes.split_at(changes.iter().position(is_behind).unwrap_or(changes.len()));
        if carried.is_empty() {
            if own.is_empty() {
                leaves.push(leaf.clone());
                continue;
            }
            if let Some(leaf) = leaf.spliced(own, scratch) {
                leaves.push(leaf);
                continue;
            }
        }
        let mut own = own.iter().peekable();
        let mut entries = std::mem::take(&mut carried);
        for entry in 0..leaf.len() {
            let key = leaf.key(entry);
            while let Some((new, id)) = own.next_if(|(new, _)| *new < key) {
                entries.extend(id.map(|id| (new.clone(), id)));
            }
            match own.next_if(|(new, _)| *new == key) {
                Some((_, id)) => entries.extend(id.map(|id| (key, id))),
                None => entries.push((key, leaf.id(entry))),
            }
        }
        for (new, id) in own {
            entries.extend(id.map(|id| (new.clone(), id)));
        }
        if leaf_bytes(&entries) < LEAF_BYTES_MIN && next.is_some() {
            carried = entries;
        } else {
            split(&entries, &mut leaves);
        }
    }
    leaves
}

/// Appends leaves of these entries, all about equally large.
fn split(entries: &[(Key, Id)], leaves: &mut Vec<Leaf>) {
    let total = leaf_bytes(entries);
    let target = total / total.div_ceil(LEAF_BYTES).max(1);
    let (mut start, mut bytes) = (0, 0);
    for (index, (key, _)) in entries.iter().enumerate() {
        bytes += entry_bytes(key);
        if bytes >= target || index + 1 == entries.len() {
            leaves.push(Leaf::build(&entries[start..=index]));
            (start, bytes) = (index + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn random_key(rng: &mut fastrand::Rng) -> Key {
        let len = if rng.u8(..) == 0 { rng.usize(..3000) } else { rng.usize(..6) };
        (0..len).map(|_| rng.u8(b'a'..b'e')).collect()
    }

    fn contents(
        tree: &Packed,
        bounds: Bounds<'_>,
        direction: Direction,
        limit: usize,
    ) -> Vec<(Key, Option<Id>)> {
        let mut out = Vec::new();
        let is_end = tree.collect(bounds, direction, limit, &mut out);
        assert!(is_end || out.len() == limit);
        out
    }

    #[test]
    fn a_tree_answers_as_a_map_does_and_its_clones_stay() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut tree, mut map) = (Packed::default(), BTreeMap::new());
        for round in 0..200 {
            let before =
                (tree.clone(), contents(&tree, (Bound::Unbounded, Bound::Unbounded), Direction::Up, 1 << 20));
            let mut changes = BTreeMap::new();
            for number in 0..rng.u64(..400) {
                let id = rng.u8(..100) > if round % 40 > 20 { 80 } else { 20 };
                changes.insert(random_key(&mut rng), id.then_some(Id(number + 1)));
            }
            let changes: Vec<_> = changes.into_iter().collect();
            tree = tree.apply(&changes);
            for (key, id) in changes {
                if let Some(id) = id {
                    map.insert(key, id)
                } else {
                    map.remove(&key)
                };
            }
            for _ in 0..50 {
                let key = random_key(&mut rng);
                assert_eq!(tree.get(&key), map.get(&key).copied());
                let (lower, upper) = (random_key(&mut rng), random_key(&mut rng));
                let bounds = (Bound::Excluded(&lower[..]), Bound::Included(&upper[..]));
                if lower >= upper {
                    continue;
                }
                let (limit, range) = (rng.usize(1..50), map.range::<[u8], _>(bounds));
                let expected: Vec<_> =
                    range.clone().map(|(key, id)| (key.clone(), Some(*id))).take(limit).collect();
                assert_eq!(contents(&tree, bounds, Direction::Up, limit), expected);
                let expected: Vec<_> =
                    range.rev().map(|(key, id)| (key.clone(), Some(*id))).take(limit).collect();
                assert_eq!(contents(&tree, bounds, Direction::Down, limit), expected);
            }
            let after = contents(&before.0, (Bound::Unbounded, Bound::Unbounded), Direction::Up, 1 << 20);
            assert_eq!(after, before.1);
        }
        assert!(map.len() > 500, "{}", map.len());
    }
}
