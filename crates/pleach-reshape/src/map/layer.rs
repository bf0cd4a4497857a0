//! A layer: recent changes of the map in memory, ordered, for any number of threads.
//!
//! Ordered trees, one per shard of keys by hash, each with a lock: a publication locks one shard. A range merges the shards.
//! Measured against one skip list without locks: see docs/design/0020-key-reshaping.md.
//!
//! Keys that were published in ascending order lie in a tail instead (`tail`). A key is in one place only.
//!
//! Most keys that are asked for are not here, so a filter says that first, in one cache miss.
//!
//! # Concurrency
//! Each shard's lock guards its tree, and one the tail; it is taken last. The filter has a key before a tree or the tail has it.
//! `bytes` is a statistic.

use std::cmp;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pleach::env::sync::{Mutex, RwLock};
use pleach_coding::{common_prefix_len, head_behind};

use super::tail::{TAIL_ENTRY_BYTES, Tail, TailRange};
use super::tree::{Tree, TreeRange};
use super::{Bounds, Direction, Key, is_empty};
use crate::ids::Id;

/// Shards of a layer: more than threads that publish, few enough for a range to visit all.
const SHARD_COUNT: usize = 16;

/// Memory of an entry in a tree besides its key: the entry, and its share of a leaf that is two thirds full.
pub(super) const ENTRY_BYTES: usize = size_of::<Entry>() + 26;
/// Keys of up to so many bytes lie in an entry of the tail.
const KEY_INLINE_LEN: usize = 24;

/// A layer is expected to have at least so many bytes: some 68,000 keys of 16 bytes. The filter has 80 KiB.
const EXPECTED_BYTES_MIN: usize = 5 << 20;

/// In a layer whose keys came in order the trees have at most the tail's bytes divided by this.
const IN_ORDER_SHARE: usize = 8;

/// Memory of an entry in a tree; a fifth of its key is room for further keys.
fn tree_bytes(key: &[u8]) -> usize {
    ENTRY_BYTES + key.len() + key.len() / 5
}

/// Memory of a key outside of its entry in the tail.
pub(super) fn heap_bytes(key: &[u8]) -> usize {
    if key.len() > KEY_INLINE_LEN { key.len() + 16 } else { 0 }
}

/// What was published of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// `None`: it has no row.
    pub(crate) id: Option<Id>,
    /// By which transaction.
    pub(crate) version: u64,
}

pub(super) struct Entry {
    published: Published,
    /// What it superseded and a snapshot may ask for.
    older: Option<Box<Entry>>,
}

impl Entry {
    fn new(published: Published) -> Self {
        Self { published, older: None }
    }

    /// Publishes the key again.
    fn replace(&mut self, published: Published, horizon: &Horizon) {
        let newest = horizon.newest.load(Ordering::SeqCst);
        let is_wanted = newest != 0 && self.published.version <= newest;
        let before = Entry { published: self.published, older: self.older.take() };
        self.published = published;
        self.older = if is_wanted { Some(Box::new(before)) } else { before.older };
        if self.older.is_some() {
            // Without a snapshot nothing older is wanted.
            let oldest = horizon.oldest.load(Ordering::SeqCst);
            self.trim(if newest == 0 { u64::MAX } else { oldest });
        }
    }

    fn at(&self, version: u64) -> Option<Published> {
        let mut entry = self;
        while entry.published.version > version {
            entry = entry.older.as_ref()?;
        }
        Some(entry.published)
    }

    /// Drops what no snapshot can ask for: everything below the newest entry that the oldest snapshot sees.
    fn trim(&mut self, oldest: u64) {
        let mut entry = self;
        while entry.published.version > oldest {
            match &mut entry.older {
                Some(older) => entry = older,
                None => return,
            }
        }
        entry.older = None;
    }
}

/// The snapshots that are held: which superseded entries must stay.
#[derive(Default)]
pub(crate) struct Horizon {
    /// Versions of held snapshots, with their numbers.
    held: Mutex<BTreeMap<u64, usize>>,
    /// The oldest and the newest of them; 0 if there are none. Written under `held`. A publication runs while its writer holds
    /// the gate, and a snapshot is entered while nobody does, so each sees the other.
    oldest: AtomicU64,
    newest: AtomicU64,
}

impl Horizon {
    /// Enters a snapshot of this version.
    pub(crate) fn hold(&self, version: u64) {
        let mut held = self.held.lock();
        *held.entry(version).or_default() += 1;
        self.update(&held);
    }

    pub(crate) fn release(&self, version: u64) {
        let mut held = self.held.lock();
        if let Some(count) = held.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                held.remove(&version);
            }
        }
        self.update(&held);
    }

    /// The version of the oldest snapshot that is held.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.held.lock().keys().next().copied()
    }

    fn update(&self, held: &BTreeMap<u64, usize>) {
        let newest = held.keys().next_back().copied().unwrap_or(0);
        self.oldest.store(held.keys().next().copied().unwrap_or(0), Ordering::SeqCst);
        self.newest.store(newest, Ordering::SeqCst);
    }
}

/// Which keys a layer may have: a Bloom filter whose bits of one key are in one word.
struct Filter {
    words: Box<[AtomicU64]>,
}

impl Filter {
    /// For so many keys: eight bits for each.
    fn new(keys: usize) -> Self {
        Self { words: (0..keys.div_ceil(8)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The word of a key, by the upper half of its hash, and its four bits there. The lowest byte chooses the shard.
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let at = ((hash >> 32) * self.words.len() as u64) >> 32;
        let bits = [8, 14, 20, 26].iter().fold(0, |bits, shift| bits | 1 << (hash >> shift & 63));
        (&self.words[usize::try_from(at).unwrap_or(0)], bits)
    }

    fn add(&self, hash: u64) {
        let (word, bits) = self.place(hash);
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Release);
        }
    }

    fn may_have(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        word.load(Ordering::Acquire) & bits == bits
    }
}

/// Recent changes of the map.
pub(crate) struct Layer {
    shards: Box<[RwLock<Tree<Entry>>]>,
    tail: RwLock<Tail>,
    filter: Filter,
    bytes: AtomicUsize,
}

impl Layer {
    /// An empty layer that will probably have so many bytes. More are as right, but keys that it lacks cost more then.
    pub(crate) fn new(expected_bytes: usize) -> Self {
        Self {
            shards: (0..SHARD_COUNT).map(|_| RwLock::default()).collect(),
            tail: RwLock::default(),
            filter: Filter::new(expected_bytes.max(EXPECTED_BYTES_MIN) / TAIL_ENTRY_BYTES),
            bytes: AtomicUsize::new(0),
        }
    }

    fn shard(&self, hash: u64) -> &RwLock<Tree<Entry>> {
        // Latches use the upper bits.
        &self.shards[usize::from(hash.to_le_bytes()[0]) % SHARD_COUNT]
    }

    /// Bytes in memory, about; 0 if it is empty.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether it has keys that were not above all others when they were published.
    pub(crate) fn has_keys_below(&self) -> bool {
        let in_tail = self.tail.read().bytes();
        self.bytes() > in_tail
    }

    /// Whether nearly all of its keys are in the tail. Of writers side by side the one that is ahead has keys in order only as
    /// long as the others have not come.
    pub(crate) fn came_in_order(&self) -> bool {
        let in_tail = self.tail.read().bytes();
        self.bytes().saturating_sub(in_tail) <= in_tail / IN_ORDER_SHARE
    }

    /// Publishes a key's new place, or that it has none.
    ///
    /// Requires: the caller holds the key's latch.
    pub(crate) fn publish(&self, key: &[u8], hash: u64, published: Published, horizon: &Horizon) {
        self.publish_in_tree(key, hash, published, horizon, false);
    }

    /// The same. `is_first`: it is known that the key was never published.
    fn publish_in_tree(
        &self,
        key: &[u8],
        hash: u64,
        published: Published,
        horizon: &Horizon,
        is_first: bool,
    ) {
        let mut shard = self.shard(hash).write();
        // Before the search, so that the cache misses of both overlap.
        let is_first = is_first || !self.filter.may_have(hash);
        match shard.get_mut(key) {
            Ok(entry) => entry.replace(published, horizon),
            Err(place) => {
                if !is_first && let Some(entry) = self.tail.write().get_mut(key) {
                    entry.replace(published, horizon);
                    return;
                }
                self.filter.add(hash);
                self.bytes.fetch_add(tree_bytes(key), Ordering::Relaxed);
                shard.insert(place, key, Entry::new(published));
            }
        }
    }

    /// Publishes the place of a key that is probably above all others. One that another thread has overtaken goes to a tree.
    ///
    /// Requires: the key was never published. The caller holds its latch.
    pub(crate) fn publish_above(&self, key: &[u8], hash: u64, published: Published, horizon: &Horizon) {
        self.filter.add(hash);
        if self.tail.write().push(key, Entry::new(published)) {
            self.bytes.fetch_add(TAIL_ENTRY_BYTES + heap_bytes(key), Ordering::Relaxed);
        } else {
            self.publish_in_tree(key, hash, published, horizon, true);
        }
    }

    /// What was published of a key up to the version `at`.
    pub(crate) fn get(&self, key: &[u8], hash: u64, at: u64) -> Option<Published> {
        if !self.filter.may_have(hash) {
            return None;
        }
        if let Some(entry) = self.shard(hash).read().get(key) {
            return entry.at(at);
        }
        self.tail.read().get(key)?.at(at)
    }

    /// Appends up to `limit` entries of a range as of the version `at`, from one end, and returns whether there are no more.
    pub(crate) fn collect(
        &self,
        bounds: Bounds<'_>,
        direction: Direction,
        at: u64,
        limit: usize,
        out: &mut Vec<(Key, Option<Id>)>,
    ) -> bool {
        if self.bytes() == 0 || is_empty(bounds) {
            return true;
        }
        let shards: Vec<_> = self.shards.iter().map(|shard| shard.read()).collect();
        let tail = self.tail.read();
        let trees = shards.iter().map(|shard| Source::Tree(shard.range(bounds)));
        let mut sources: Vec<_> = trees.chain([Source::Tail(tail.range(bounds))]).collect();
        let prefixes = shards.iter().filter_map(|shard| shard.common_prefix()).chain(tail.common_prefix());
        let skip = prefixes.reduce(|prefix, other| &prefix[..common_prefix_len(prefix, other)]);
        let skip = skip.map_or(0, <[u8]>::len);
        let next = |entry, source| Next::new(entry, source, skip, direction);
        let firsts = sources.iter_mut().enumerate();
        let mut nexts: BinaryHeap<_> =
            firsts.filter_map(|(number, source)| Some(next(source.next(direction)?, number))).collect();
        while let Some(mut first) = nexts.peek_mut() {
            if take(first.key, first.entry, at, limit, out) {
                return false;
            }
            match sources[first.source].next(direction) {
                Some(entry) => *first = next(entry, first.source),
                None => drop(PeekMut::pop(first)),
            }
        }
        true
    }
}

/// Entries of a range from one place.
enum Source<'l> {
    Tree(TreeRange<'l, Entry>),
    Tail(TailRange<'l>),
}

impl<'l> Source<'l> {
    fn next(&mut self, direction: Direction) -> Option<(&'l [u8], &'l Entry)> {
        match (self, direction) {
            (Source::Tree(range), Direction::Up) => range.next(),
            (Source::Tree(range), Direction::Down) => range.next_back(),
            (Source::Tail(range), Direction::Up) => range.next(),
            (Source::Tail(range), Direction::Down) => range.next_back(),
        }
    }
}

/// The next entry of a source. The greatest is the one that comes first. No two sources have a key.
struct Next<'l> {
    /// 8 bytes of the key, behind what all keys have in common; inverted where entries come in descending order.
    head: u64,
    key: &'l [u8],
    entry: &'l Entry,
    source: usize,
    direction: Direction,
}

impl<'l> Next<'l> {
    fn new((key, entry): (&'l [u8], &'l Entry), source: usize, skip: usize, direction: Direction) -> Self {
        let head = head_behind(key, skip);
        let head = if direction == Direction::Up { head } else { !head };
        Self { head, key, entry, source, direction }
    }
}

impl PartialEq for Next<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Next<'_> {}

impl PartialOrd for Next<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Next<'_> {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        let by_keys = || match self.direction {
            Direction::Up => other.key.cmp(self.key),
            Direction::Down => self.key.cmp(other.key),
        };
        other.head.cmp(&self.head).then_with(by_keys)
    }
}

/// Appends an entry that the version sees; whether there were `limit` already.
fn take(key: &[u8], entry: &Entry, at: u64, limit: usize, out: &mut Vec<(Key, Option<Id>)>) -> bool {
    let Some(published) = entry.at(at) else { return false };
    if out.len() >= limit {
        return true;
    }
    out.push((Key::from_slice(key), published.id));
    false
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::super::{NEWEST, key_hash};
    use super::*;

    fn publish(layer: &Layer, horizon: &Horizon, key: &[u8], id: Option<u64>, version: u64) {
        layer.publish(key, key_hash(key), Published { id: id.map(Id), version }, horizon);
    }

    /// 0: it has no row. `None`: nothing was published.
    fn ids(layer: &Layer, key: &[u8], at: u64) -> Option<u64> {
        layer.get(key, key_hash(key), at).map(|published| published.id.map_or(0, |id| id.0))
    }

    #[test]
    fn superseded_entries_stay_as_long_as_a_snapshot_may_ask() {
        let (layer, horizon) = (Layer::new(0), Horizon::default());
        publish(&layer, &horizon, b"k", Some(1), 1);
        publish(&layer, &horizon, b"k", Some(2), 2);
        horizon.hold(2);
        publish(&layer, &horizon, b"k", Some(3), 3);
        horizon.hold(4);
        publish(&layer, &horizon, b"k", None, 5);
        publish(&layer, &horizon, b"k", Some(6), 6);
        assert_eq!(ids(&layer, b"k", NEWEST), Some(6));
        assert_eq!([2, 4].map(|at| ids(&layer, b"k", at)), [Some(2), Some(3)]);
        assert_eq!(ids(&layer, b"k", 1), None);
        horizon.release(2);
        publish(&layer, &horizon, b"k", Some(7), 7);
        assert_eq!([2, 4].map(|at| ids(&layer, b"k", at)), [None, Some(3)]);
        horizon.release(4);
        publish(&layer, &horizon, b"k", Some(8), 8);
        assert_eq!([2, 4, 7].map(|at| ids(&layer, b"k", at)), [None; 3]);
    }

    #[test]
    fn more_keys_than_were_expected_are_found() {
        let (layer, horizon) = (Layer::new(0), Horizon::default());
        let count = 3 * EXPECTED_BYTES_MIN as u64 / ENTRY_BYTES as u64;
        for number in 0..count {
            publish(&layer, &horizon, &number.to_le_bytes(), Some(number + 1), 1);
        }
        assert!((0..count).all(|number| ids(&layer, &number.to_le_bytes(), NEWEST) == Some(number + 1)));
        assert!((count..2 * count).all(|number| ids(&layer, &number.to_le_bytes(), NEWEST).is_none()));
    }

    #[test]
    fn a_key_of_the_tail_is_published_again_in_its_place() {
        let (layer, horizon) = (Layer::new(0), Horizon::default());
        let key = |number: u64| format!("{number:04}").into_bytes();
        let above = |number: u64, version| {
            let (key, id) = (key(number), Some(Id(number + 1)));
            layer.publish_above(&key, key_hash(&key), Published { id, version }, &horizon);
        };
        // Of every three keys, the second one comes late, and so not to the tail.
        let count = 3000u64;
        (0..count).filter(|number| number % 3 != 1).for_each(|number| above(number, 1));
        (0..count).filter(|number| number % 3 == 1).for_each(|number| above(number, 1));
        let bytes = layer.bytes();
        horizon.hold(1);
        for number in (0..count).step_by(2) {
            publish(&layer, &horizon, &key(number), None, 2);
        }
        assert_eq!(layer.bytes(), bytes, "each key has one entry");
        for number in 0..count {
            assert_eq!(ids(&layer, &key(number), 1), Some(number + 1));
            assert_eq!(ids(&layer, &key(number), NEWEST), Some(if number % 2 == 0 { 0 } else { number + 1 }));
        }
        assert_eq!(ids(&layer, &key(count), NEWEST), None);
        for (lower, upper) in [(0, 1), (5, 5), (0, 511), (511, 513), (700, 1999), (1, count - 1)] {
            let keys = [lower, upper].map(key);
            for included in [true, false] {
                let bound = |key| if included { Bound::Included(key) } else { Bound::Excluded(key) };
                let bounds = (bound(&keys[0][..]), bound(&keys[1][..]));
                let inside = if included { lower..upper + 1 } else { (lower + 1).min(upper)..upper };
                let expected: Vec<_> = inside.map(|number| Some(Id(number + 1))).collect();
                for direction in [Direction::Up, Direction::Down] {
                    let mut out = Vec::new();
                    assert!(layer.collect(bounds, direction, 1, usize::MAX, &mut out));
                    if direction == Direction::Down {
                        out.reverse();
                    }
                    assert_eq!(out.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), expected);
                }
            }
        }
    }

    #[test]
    fn ranges_come_in_order_from_both_ends() {
        let (layer, horizon) = (Layer::new(0), Horizon::default());
        for number in 0..1000u64 {
            publish(&layer, &horizon, format!("{number:04}").as_bytes(), Some(number + 1), 1);
        }
        let bounds = (Bound::Excluded(&b"0010"[..]), Bound::Included(&b"0500"[..]));
        for (direction, first) in [(Direction::Up, 12), (Direction::Down, 501)] {
            let mut out = Vec::new();
            assert!(!layer.collect(bounds, direction, NEWEST, 100, &mut out));
            assert_eq!((out.len(), out[0].1), (100, Some(Id(first))));
            out.clear();
            assert!(layer.collect(bounds, direction, NEWEST, 1000, &mut out));
            assert_eq!(out.len(), 490);
        }
    }
}
