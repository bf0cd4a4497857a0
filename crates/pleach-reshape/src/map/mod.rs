//! The map: which row a key has. A version of layers over a base.
//!
//! Writers publish to the *active layer*. A checkpoint *seals* it, so that a new one takes the writes, and merges what is
//! sealed into the *base*. The three together are a [`Version`], which is replaced and never changed, apart from its active
//! layer. A reader loads the version without a lock; a snapshot holds one.
//!
//! Of keys whose rows lie in the order of keys, because they were moved or came so, the base may know only some rows that may be
//! theirs (`runs`): an [`Answer`] that is not sure.
//!
//! # Invariants
//! 1. Order: what a layer says of a key is newer than what the layers below it, and the base, say.
//! 2. Snapshots: a layer keeps what it superseded as long as a snapshot may ask for it.
//!
//! # Concurrency
//! `publishing` is held shared while a write is published, and alone for the instant in which the version is replaced, so that a
//! sealed layer does not change. One thread at a time makes checkpoints.

mod base;
mod greatest;
mod layer;
mod map_store;
#[cfg(test)]
mod measure;
mod merge;
mod packed;
pub(crate) mod records;
mod runs;
mod sealed_rows;
mod tail;
mod tree;

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use arc_swap::ArcSwap;
use pleach::Result;
use pleach::env::sync::RwLock;
use pleach_coding::head;
use smallvec::SmallVec;

pub(crate) use base::Base;
use greatest::Greatest;
pub(crate) use layer::{Horizon, Layer, Published};
pub(crate) use map_store::{BATCH_ENTRIES, MapStore, Present, RunsOf};
pub(crate) use runs::{Candidates, Rows};
pub(crate) use sealed_rows::SealedRows;

use crate::ids::Id;

/// A user key. Keys up to 24 bytes need no allocation.
pub(crate) type Key = SmallVec<[u8; 24]>;

/// A key range.
pub(crate) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Entries of a source, those of deleted keys too.
pub(crate) type Entries = Vec<(Key, Option<Id>)>;

/// From which end entries come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// In ascending order.
    Up,
    /// In descending order.
    Down,
}

/// The version of a lookup that wants the newest of all.
pub(crate) const NEWEST: u64 = u64::MAX;

/// Hash of a key, for latches and shards.
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Compares keys by their bytes: most by the first 8, without a call.
pub(crate) fn compare(key: &[u8], other: &[u8]) -> Ordering {
    head(key).cmp(&head(other)).then_with(|| key.cmp(other))
}

/// Most keys that the base looks for at once: each that it finds keeps a block until all are found. Enough for a device.
const LOOKUPS_MAX: usize = 512;

/// Whether no key can be in a range.
pub(crate) fn is_empty(bounds: Bounds<'_>) -> bool {
    match bounds {
        (Bound::Included(first), Bound::Included(last)) => first > last,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
        _ => false,
    }
}

/// What the map says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its row, or rows one of which may be its row. None: it has no row.
    pub(crate) ids: Candidates,
    /// Whether `ids` need no look at the rows.
    pub(crate) is_sure: bool,
    /// By which transaction it was published; 0 if the base says it.
    pub(crate) version: u64,
}

impl Answer {
    pub(crate) fn of(id: Option<Id>, version: u64) -> Self {
        Self { ids: id.into_iter().collect(), is_sure: true, version }
    }
}

/// An immutable state of the map, apart from the active layer.
pub(crate) struct Version {
    active: Arc<Layer>,
    /// The newest first.
    sealed: Vec<Arc<Layer>>,
    base: Base,
}

impl Version {
    /// What the map says of a key as of the version `at`.
    pub(crate) fn get(&self, key: &[u8], hash: u64, at: u64) -> Result<Answer> {
        for layer in self.layers() {
            if let Some(published) = layer.get(key, hash, at) {
                return Ok(Answer::of(published.id, published.version));
            }
        }
        self.base.get(key, hash)
    }

    /// What the map says of some keys as of the version `at`. Blocks of single entries that are not in memory are read at the
    /// same time.
    pub(crate) fn get_many(&self, keys: &[(&[u8], u64)], at: u64) -> Result<Vec<Answer>> {
        let mut answers = Vec::with_capacity(keys.len());
        let mut in_base = Vec::new();
        for (index, (key, hash)) in keys.iter().enumerate() {
            let published = self.layers().find_map(|layer| layer.get(key, *hash, at));
            if published.is_none() {
                in_base.push(index);
            }
            answers.push(published.map_or_else(
                || Answer::of(None, 0),
                |published| Answer::of(published.id, published.version),
            ));
        }
        for indexes in in_base.chunks(LOOKUPS_MAX) {
            let wanted = indexes.iter().map(|index| keys[*index]);
            for (index, answer) in indexes.iter().zip(self.base.get_many(wanted)?) {
                answers[*index] = answer;
            }
        }
        Ok(answers)
    }

    /// Up to `limit` keys of a range that have rows, as of the version `at`, from one end. None are left out, so fewer than
    /// `limit` means that the range has no more. `rows` are of the same moment, and have the keys of runs.
    pub(crate) fn entries(
        &self,
        rows: &mut Rows<'_>,
        bounds: Bounds<'_>,
        direction: Direction,
        at: u64,
        limit: usize,
    ) -> Result<Vec<(Key, Id)>> {
        merge::entries(self, rows, bounds, direction, at, limit)
    }

    fn layers(&self) -> impl Iterator<Item = &Arc<Layer>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }
}

/// The newest version of the map, and what changes it.
pub(crate) struct Map {
    current: ArcSwap<Version>,
    publishing: RwLock<()>,
    horizon: Horizon,
    greatest: Greatest,
}

impl Map {
    pub(crate) fn new(base: Base) -> Self {
        let version = Version { active: Arc::new(Layer::new(0)), sealed: Vec::new(), base };
        Self {
            current: ArcSwap::from_pointee(version),
            publishing: RwLock::new(()),
            horizon: Horizon::default(),
            greatest: Greatest::default(),
        }
    }

    /// The newest version.
    pub(crate) fn current(&self) -> Arc<Version> {
        self.current.load_full()
    }

    /// What the map says of a key now.
    pub(crate) fn get(&self, key: &[u8], hash: u64) -> Result<Answer> {
        self.current.load().get(key, hash, NEWEST)
    }

    /// What the map says of some keys now.
    pub(crate) fn get_many(&self, keys: &[(&[u8], u64)]) -> Result<Vec<Answer>> {
        self.current.load().get_many(keys, NEWEST)
    }

    /// What the active layer says of a key; of interest only where nothing is sealed.
    pub(crate) fn get_active(&self, key: &[u8], hash: u64) -> Option<Published> {
        self.current.load().active.get(key, hash, NEWEST)
    }

    /// Publishes the places of a transaction's keys; `None` means that the key has no row any more.
    ///
    /// Requires: the caller holds the keys' latches.
    pub(crate) fn publish<'k>(
        &self,
        changes: impl Iterator<Item = (&'k [u8], u64, Option<Id>)> + Clone,
        version: u64,
    ) {
        // An update in place leaves rows where they are.
        if changes.clone().next().is_none() {
            return;
        }
        let are_above_all = self.greatest.raise(changes.clone().map(|(key, ..)| key));
        let _publishing = self.publishing.read();
        let active = &self.current.load().active;
        for (key, hash, id) in changes {
            let published = Published { id, version };
            if are_above_all {
                active.publish_above(key, hash, published, &self.horizon);
            } else {
                active.publish(key, hash, published, &self.horizon);
            }
        }
    }

    /// Finds a key that no entry is above. Requires: there are no writers yet.
    pub(crate) fn find_greatest(&self) -> Result<()> {
        let (version, mut of_layers) = (self.current(), Entries::new());
        let all = (Bound::Unbounded, Bound::Unbounded);
        for layer in version.layers() {
            let limit = of_layers.len() + 1;
            layer.collect(all, Direction::Down, NEWEST, limit, &mut of_layers);
        }
        let mut greatest = of_layers.into_iter().map(|(key, _)| key).max().unwrap_or_default();
        for (source, _) in version.base.sources() {
            greatest = greatest.max(source.upper_end()?.unwrap_or_default());
        }
        self.greatest.set(greatest);
        Ok(())
    }

    /// Whether a key is above all keys that have been published, and so has no row.
    ///
    /// Requires: the caller holds the key's latch.
    pub(crate) fn is_above_all(&self, key: &[u8]) -> bool {
        self.greatest.is_below(key)
    }

    /// Snapshots that are held.
    pub(crate) fn horizon(&self) -> &Horizon {
        &self.horizon
    }

    /// Bytes of the layers.
    pub(crate) fn delta_bytes(&self) -> usize {
        self.current.load().layers().map(|layer| layer.bytes()).sum()
    }

    /// Bytes of the active layer.
    pub(crate) fn active_bytes(&self) -> usize {
        self.current.load().active.bytes()
    }

    /// Whether layers wait to be written: a checkpoint is under way, or has failed.
    pub(crate) fn has_sealed(&self) -> bool {
        !self.current.load().sealed.is_empty()
    }

    /// Whether the base has runs.
    pub(crate) fn has_runs(&self) -> bool {
        self.current.load().base.sources().iter().any(|(source, _)| source.has_runs())
    }

    /// Whether layers have keys that were not above all others. Only the rows of such may have been in runs.
    pub(crate) fn has_keys_below(&self) -> bool {
        self.current.load().layers().any(|layer| layer.has_keys_below())
    }

    /// Bytes of a base in memory.
    pub(crate) fn base_bytes(&self) -> usize {
        self.current.load().base.bytes()
    }

    /// Seals the active layer, unless it is empty. Writers publish to a new one from now on.
    pub(crate) fn seal(&self) {
        let _alone = self.publishing.write();
        let current = self.current.load();
        if current.active.bytes() > 0 {
            let sealed = std::iter::once(&current.active).chain(&current.sealed).cloned().collect();
            let base = current.base.clone();
            let active = Arc::new(Layer::new(current.active.bytes()));
            self.current.store(Arc::new(Version { active, sealed, base }));
        }
    }

    /// Passes all entries of the sealed layers, the oldest layer first, to `merge` in key order by `limit` at a time. `merge`
    /// returns the base that has them, or `None` if readers are to use the base as it is until the end.
    pub(crate) fn merge_sealed(
        &self,
        limit: usize,
        mut merge: impl FnMut(&Base, &Layer, &[(Key, Option<Id>)]) -> Result<Option<Base>>,
    ) -> Result<()> {
        let sealed = self.current().sealed.clone();
        for layer in sealed.iter().rev() {
            let mut after: Option<Key> = None;
            loop {
                let lower = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let mut entries = Vec::new();
                let is_end =
                    layer.collect((lower, Bound::Unbounded), Direction::Up, NEWEST, limit, &mut entries);
                if let Some(base) = merge(&self.current.load().base, layer, &entries)? {
                    self.replace(|version| Version { base, ..version });
                }
                if is_end {
                    break;
                }
                after = entries.pop().map(|(key, _)| key);
            }
        }
        Ok(())
    }

    /// Ends a merge: the sealed layers go, and readers use `base`, if it is another one.
    pub(crate) fn forget_sealed(&self, base: Option<Base>) {
        self.replace(|version| {
            let base = base.unwrap_or(version.base);
            Version { active: version.active, sealed: Vec::new(), base }
        });
    }

    /// Lets readers use another base that says the same.
    pub(crate) fn set_base(&self, base: Base) {
        self.replace(|version| Version { base, ..version });
    }

    /// Replaces the version. `publishing` keeps the active layer of the version that is read.
    fn replace(&self, change: impl FnOnce(Version) -> Version) {
        let alone = self.publishing.write();
        let current = self.current.load_full();
        let (active, sealed) = (Arc::clone(&current.active), current.sealed.clone());
        self.current.store(Arc::new(change(Version { active, sealed, base: current.base.clone() })));
        drop(alone);
        // Only now: it may be the last one that has layers of megabytes, and publications wait for the lock.
        drop(current);
    }
}
