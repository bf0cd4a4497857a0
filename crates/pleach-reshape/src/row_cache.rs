//! Row cache: rows that were read lately, by key, so that a hot key costs neither a lookup in the map nor a page of the store.
//!
//! Rows lie in the order in which they were written, so a page of the store has one hot row, if any. A cache of single rows keeps
//! many more of them in the same memory: 36 times as many with pages of 8 KiB and pairs of 116 bytes.
//!
//! # Invariants
//! 1. Current: a row in the cache is the newest one of its key, and its id is what the map says, whenever nobody holds the key's
//!    latch. A writer invalidates the cached rows of its keys after publication and before it releases the latches
//!    (`Inner::attempt`, `Inner::try_move_group`).
//! 2. No late fills: a reader that began before a change does not fill the cache with what it found ([`RowCache::fill`]).
//! 3. Batches: a batch invalidates all of its rows before it stores new ones ([`RowCache::refresh`]). So a reader that finds a
//!    new row of a batch here finds no older row of that batch afterwards.
//!
//! # Concurrency
//! Each counter covers many keys and counts how often their rows were invalidated. A reader notes it before it looks at the map,
//! and fills the cache only if it has not changed; the counter's lock makes look and fill one step. Hits take only the lock of
//! the cache's shard, shared. `models/` runs this file with the latches, in all orders of up to three preemptions.
//!
//! A key that has no row is not cached, so a write that finds none has nothing to invalidate.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pleach::env::sync::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use smallvec::SmallVec;

use crate::ids::Id;

/// Counters: many more than threads. A power of two.
pub(crate) const COUNTER_COUNT: usize = 1 << 10;
/// Bytes of a usual entry. `quick_cache` derives from it the number of its shards, and of evicted keys that it remembers.
const USUAL_BYTES: usize = 256;
/// What an entry takes beside the bytes of its row: counts of the shared allocation, slot, hash table, and what the allocator
/// rounds up.
const OVERHEAD: usize = 96;
/// Part of the memory that is for evicted keys, and for slots without an entry.
const SPARE_SHARE: usize = 8;
/// A row that takes more than this part of the memory is not cached: it would evict many others.
const ROW_SHARE: usize = 256;

/// The cache of rows. Without memory it does nothing.
pub(crate) struct RowCache(Option<Rows>);

struct Rows {
    cache: Cache<u64, Row, Weigh, BuildHasherDefault<Hashed>, DefaultLifecycle<u64, Row>>,
    counters: Box<[Mutex<u64>]>,
    row_bytes_max: usize,
}

/// A row: id (8 bytes) and length of the key (4), then key and value. `None` stands for an invalidated row until the new one is
/// stored, so that the entry stays as hot as it is.
type Row = Option<Arc<[u8]>>;

const KEY_AT: usize = 12;

/// A look into the cache that found nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss(u64);

impl RowCache {
    /// `counters`: a power of two.
    pub(crate) fn new(bytes: usize, counters: usize) -> Self {
        if bytes == 0 {
            return Self(None);
        }
        let (hasher, lifecycle) = (BuildHasherDefault::default(), DefaultLifecycle::default());
        let rows_bytes = (bytes - bytes / SPARE_SHARE) as u64;
        Self(Some(Rows {
            cache: Cache::with(bytes / USUAL_BYTES, rows_bytes, Weigh, hasher, lifecycle),
            counters: (0..counters).map(|_| Mutex::new(0)).collect(),
            row_bytes_max: bytes / ROW_SHARE,
        }))
    }

    /// The value of a key, or what [`fill`](Self::fill) wants. Requires: the caller looks at the map afterwards.
    pub(crate) fn get(&self, key: &[u8], hash: u64) -> Result<Vec<u8>, Miss> {
        let Some(rows) = &self.0 else { return Err(Miss(0)) };
        match rows.cache.get(&hash).flatten().filter(|row| is_of(row, key)) {
            Some(row) => Ok(row[KEY_AT + key.len()..].to_vec()),
            None => Err(Miss(*rows.counter(hash).lock())),
        }
    }

    /// Where the row of a key is, if it is cached. Requires: the caller holds the key's latch.
    pub(crate) fn id(&self, key: &[u8], hash: u64) -> Option<Id> {
        let row = self.0.as_ref()?.cache.peek(&hash).flatten().filter(|row| is_of(row, key))?;
        row.first_chunk().map(|id| Id(u64::from_le_bytes(*id)))
    }

    /// Adds a row that was read behind a miss, unless its counter has changed since.
    pub(crate) fn fill(&self, miss: Miss, key: &[u8], hash: u64, id: Id, value: &[u8]) {
        let Some(rows) = &self.0 else { return };
        if rows.takes(key, value) {
            let row = encode(key, id, value);
            let counter = rows.counter(hash).lock();
            if *counter == miss.0 {
                rows.cache.insert(hash, Some(row));
            }
        }
    }

    /// Invalidates the rows that these keys had. Of those that were cached, the ones that have a row now, with this id and value,
    /// are cached again.
    ///
    /// Requires: the caller holds the latches of the keys, and has published what it did.
    pub(crate) fn refresh<'k>(&self, changes: impl Iterator<Item = (&'k [u8], u64, Option<(Id, &'k [u8])>)>) {
        let Some(rows) = &self.0 else { return };
        let mut cached = SmallVec::<[_; 4]>::new();
        for change in changes {
            let hash = change.1;
            let mut counter = rows.counter(hash).lock();
            *counter += 1;
            if rows.cache.replace(hash, None, true).is_ok() {
                cached.push(change);
            }
        }
        for (key, hash, row) in cached {
            match row {
                // No reader fills this key meanwhile: who finds the new row waits for its writer.
                Some((id, value)) if rows.takes(key, value) => {
                    // It may have been evicted meanwhile.
                    let _ = rows.cache.replace(hash, Some(encode(key, id, value)), true);
                }
                _ => drop(rows.cache.remove(&hash)),
            }
        }
    }

    /// Invalidates the rows of keys, as [`refresh`](Self::refresh) does.
    pub(crate) fn invalidate<'k>(&self, keys: impl Iterator<Item = (&'k [u8], u64)>) {
        self.refresh(keys.map(|(key, hash)| (key, hash, None)));
    }

    /// Bytes of the rows that are cached, about.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |rows| usize::try_from(rows.cache.weight()).unwrap_or(usize::MAX))
    }
}

impl Rows {
    fn takes(&self, key: &[u8], value: &[u8]) -> bool {
        key.len() + value.len() + OVERHEAD <= self.row_bytes_max
    }

    fn counter(&self, hash: u64) -> &Mutex<u64> {
        &self.counters[usize::try_from(hash & (self.counters.len() as u64 - 1)).expect("a small number")]
    }
}

fn encode(key: &[u8], id: Id, value: &[u8]) -> Arc<[u8]> {
    let key_len = u32::try_from(key.len()).expect("keys are shorter");
    let mut row: Arc<[u8]> = std::iter::repeat_n(0, KEY_AT + key.len() + value.len()).collect();
    let (head, pair) = Arc::get_mut(&mut row).expect("nobody else has it").split_at_mut(KEY_AT);
    head[..8].copy_from_slice(&id.0.to_le_bytes());
    head[8..].copy_from_slice(&key_len.to_le_bytes());
    pair[..key.len()].copy_from_slice(key);
    pair[key.len()..].copy_from_slice(value);
    row
}

/// Whether a row is there and has this key: two keys may have one hash.
fn is_of(row: &[u8], key: &[u8]) -> bool {
    let Ok(key_len) = u32::try_from(key.len()) else { return false };
    row.get(8..KEY_AT).is_some_and(|len| len == key_len.to_le_bytes()) && row[KEY_AT..].starts_with(key)
}

#[derive(Clone)]
struct Weigh;

impl Weighter<u64, Row> for Weigh {
    fn weight(&self, _: &u64, row: &Row) -> u64 {
        (row.as_ref().map_or(0, |row| row.len()) + OVERHEAD) as u64
    }
}

/// Passes on keys that are hashes.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are `u64`");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::key_hash;

    fn miss(cache: &RowCache, key: &[u8]) -> Miss {
        cache.get(key, key_hash(key)).expect_err("it is not there")
    }

    fn fill(cache: &RowCache, miss: Miss, key: &[u8], id: u64, value: &[u8]) {
        cache.fill(miss, key, key_hash(key), Id(id), value);
    }

    fn value(cache: &RowCache, key: &[u8]) -> Option<Vec<u8>> {
        cache.get(key, key_hash(key)).ok()
    }

    fn hashed<'k>(keys: &[&'k [u8]]) -> Vec<(&'k [u8], u64)> {
        keys.iter().map(|key| (*key, key_hash(key))).collect()
    }

    #[test]
    fn a_row_is_there_until_its_key_changes() {
        let cache = RowCache::new(1 << 20, COUNTER_COUNT);
        fill(&cache, miss(&cache, b"k"), b"k", 7, b"one");
        assert_eq!(value(&cache, b"k"), Some(b"one".to_vec()));
        assert_eq!(cache.id(b"k", key_hash(b"k")), Some(Id(7)));
        assert!(cache.bytes() > 4);
        cache.invalidate(hashed(&[b"k"]).into_iter());
        assert_eq!(value(&cache, b"k"), None);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn what_was_read_before_a_change_does_not_come_in_after_it() {
        let cache = RowCache::new(1 << 20, COUNTER_COUNT);
        let before = miss(&cache, b"k");
        cache.invalidate(hashed(&[b"k"]).into_iter());
        fill(&cache, before, b"k", 7, b"old");
        assert_eq!(value(&cache, b"k"), None);
        // Also if the change left a row.
        fill(&cache, miss(&cache, b"k"), b"k", 7, b"one");
        let before = miss(&cache, b"other");
        let changes = hashed(&[b"k", b"other"]).into_iter();
        cache.refresh(changes.map(|(key, hash)| (key, hash, Some((Id(8), &b"two"[..])))));
        fill(&cache, before, b"other", 9, b"old");
        assert_eq!(value(&cache, b"k"), Some(b"two".to_vec()));
        assert_eq!(cache.id(b"k", key_hash(b"k")), Some(Id(8)));
        assert_eq!(value(&cache, b"other"), None, "it was not cached, and is not by a write");
    }

    #[test]
    fn a_batch_invalidates_all_of_its_rows_before_it_adds_one() {
        let cache = RowCache::new(1 << 20, COUNTER_COUNT);
        let keys = [&b"a"[..], b"b", b"c"];
        for key in keys {
            fill(&cache, miss(&cache, key), key, 1, b"old");
        }
        let changes = hashed(&keys).into_iter().map(|(key, hash)| {
            // Each key is asked for in turn; none has a new row before the last one is invalid.
            assert!(keys.iter().all(|key| value(&cache, key).is_none_or(|value| value == b"old")));
            (key, hash, (key != b"c").then_some((Id(2), &b"new"[..])))
        });
        cache.refresh(changes);
        assert_eq!(keys.map(|key| value(&cache, key)), [Some(b"new".to_vec()), Some(b"new".to_vec()), None]);
    }

    #[test]
    fn a_row_that_would_evict_many_others_is_not_cached() {
        let cache = RowCache::new(1 << 20, COUNTER_COUNT);
        fill(&cache, miss(&cache, b"k"), b"k", 1, &[0; 5000]);
        assert_eq!(value(&cache, b"k"), None);
        fill(&cache, miss(&cache, b"k"), b"k", 1, b"short");
        cache.refresh([(&b"k"[..], key_hash(b"k"), Some((Id(1), &[0; 5000][..])))].into_iter());
        assert_eq!((value(&cache, b"k"), cache.bytes()), (None, 0));
    }

    #[test]
    fn keys_with_one_hash_are_told_apart() {
        let cache = RowCache::new(1 << 20, COUNTER_COUNT);
        let Err(miss) = cache.get(b"a", 5) else { panic!("nothing is there") };
        cache.fill(miss, b"a", 5, Id(1), b"of a");
        assert!(cache.get(b"b", 5).is_err());
        assert_eq!(cache.id(b"b", 5), None);
        assert_eq!(cache.get(b"a", 5).ok(), Some(b"of a".to_vec()));
        // A write of the other key leaves its own row, or none.
        cache.refresh([(&b"b"[..], 5, Some((Id(2), &b"of b"[..])))].into_iter());
        assert!(cache.get(b"a", 5).is_err());
        assert_eq!(cache.get(b"b", 5).ok(), Some(b"of b".to_vec()));
    }

    #[test]
    fn it_keeps_to_its_memory_and_without_any_keeps_nothing() {
        let cache = RowCache::new(1 << 16, COUNTER_COUNT);
        for number in 0..10_000_u64 {
            let key = number.to_le_bytes();
            fill(&cache, miss(&cache, &key), &key, number, &[0; 50]);
        }
        assert!((1 << 15..=1 << 16).contains(&cache.bytes()), "{}", cache.bytes());
        let none = RowCache::new(0, COUNTER_COUNT);
        fill(&none, miss(&none, b"k"), b"k", 7, b"one");
        assert_eq!(value(&none, b"k"), None);
        assert_eq!(none.bytes(), 0);
    }
}
