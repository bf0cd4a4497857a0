//! The memtable beside a skip list: the figures of docs/design/0002-memtable.md.
//!
//! `cargo test --release -p pleach --lib skip_list -- --ignored --nocapture --test-threads 1`
//!
//! One thread puts entries with values of 100 bytes in a scattered order and then gets them in another. Each round measures
//! all structures, so that a change of the machine's speed meets all of them; the median of the rounds counts.

#![expect(clippy::disallowed_methods, reason = "it measures the machine")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_skiplist::{SkipMap, SkipSet};
use pleach_table::{ValueKind, key_hash};

use super::super::{Arena, ArenaRef, Memtable, MemtableMemory, MemtableWriter, entry};
use crate::keys::{PartitionId, partition_key};

const ROUNDS: usize = 3;
const GETS: u64 = 1_000_000;
/// Keys that are made at a time. Making them does not count.
const LOT: u64 = 10_000;
const VALUE: [u8; 100] = [b'v'; 100];

/// A scattered order of all numbers below `count`, which `shift` changes.
fn scattered(i: u64, count: u64, shift: u64) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c55;
    u64::try_from(u128::from(i + shift) * u128::from(PRIME) % u128::from(count)).unwrap()
}

/// An ordered structure for partition keys.
trait Ordered {
    const NAME: &str;
    fn new(entries: u64) -> Self;
    fn put(&mut self, key: &[u8], seq: u64);
    fn get(&self, key: &[u8]) -> usize;
}

/// The memtable as the engine uses it: arena, tree and hash index.
struct Whole(MemtableWriter);

/// Memory for so many entries.
fn memtable(entries: u64) -> MemtableWriter {
    let budget = usize::try_from(entries).unwrap() * 256;
    MemtableWriter::new(budget, &MemtableMemory::new(budget, 0)).unwrap()
}

impl Ordered for Whole {
    const NAME: &str = "tree and hash index";

    fn new(entries: u64) -> Self {
        Self(memtable(entries))
    }

    fn put(&mut self, key: &[u8], seq: u64) {
        assert!(self.0.reserve(Memtable::footprint(key.len(), VALUE.len())));
        self.0.insert(key_hash(0, key), key, seq, ValueKind::Put, &VALUE);
    }

    fn get(&self, key: &[u8]) -> usize {
        self.0.version(key_hash(0, key), key, u64::MAX >> 8).unwrap().value.len()
    }
}

/// The arena and the tree, without the hash index.
struct TreeAlone(MemtableWriter);

impl Ordered for TreeAlone {
    const NAME: &str = "tree";

    fn new(entries: u64) -> Self {
        Self(memtable(entries))
    }

    fn put(&mut self, key: &[u8], seq: u64) {
        assert!(self.0.reserve(Memtable::footprint(key.len(), VALUE.len())));
        let (memtable, mut arena) = self.0.parts();
        let record = entry::add_key(&mut arena, key, put(seq));
        memtable.tree.insert(&mut arena, record, key);
    }

    fn get(&self, key: &[u8]) -> usize {
        value_len(&self.0.arena, self.0.tree.find(&self.0.arena, key).unwrap())
    }
}

fn value_len(arena: &Arena, record: ArenaRef) -> usize {
    entry::visible_version(arena, record, u64::MAX >> 8).unwrap().value.len()
}

/// The same arena and records, ordered by a skip list of references to them.
struct OverArena {
    memtable: MemtableWriter,
    order: SkipSet<Record>,
}

struct Record {
    memtable: Arc<Memtable>,
    at: ArenaRef,
}

impl Borrow<[u8]> for Record {
    fn borrow(&self) -> &[u8] {
        entry::key(&self.memtable.arena, self.at)
    }
}

impl Ord for Record {
    fn cmp(&self, other: &Self) -> Ordering {
        Borrow::<[u8]>::borrow(self).cmp(other.borrow())
    }
}

impl PartialOrd for Record {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Record {}

impl Ordered for OverArena {
    const NAME: &str = "skip list over the arena";

    fn new(entries: u64) -> Self {
        Self { memtable: memtable(entries), order: SkipSet::new() }
    }

    fn put(&mut self, key: &[u8], seq: u64) {
        assert!(self.memtable.reserve(Memtable::footprint(key.len(), VALUE.len())));
        let at = entry::add_key(&mut self.memtable.parts().1, key, put(seq));
        self.order.insert(Record { memtable: Arc::clone(&self.memtable), at });
    }

    fn get(&self, key: &[u8]) -> usize {
        value_len(&self.memtable.arena, self.order.get(key).unwrap().at)
    }
}

/// A skip list of keys and values that are allocated one by one.
struct Boxed(SkipMap<Box<[u8]>, Box<[u8]>>);

impl Ordered for Boxed {
    const NAME: &str = "skip list of boxes";

    fn new(_entries: u64) -> Self {
        Self(SkipMap::new())
    }

    fn put(&mut self, key: &[u8], _seq: u64) {
        self.0.insert(key.into(), Box::new(VALUE));
    }

    fn get(&self, key: &[u8]) -> usize {
        self.0.get(key).unwrap().value().len()
    }
}

/// Nanoseconds of a put and of a get.
fn measure<T: Ordered>(entries: u64, key: impl Fn(u64) -> Vec<u8>) -> [f64; 2] {
    let keys = |from: u64, shift: u64| -> Vec<_> {
        let numbers = (from..from + LOT).map(|i| scattered(i, entries, shift));
        numbers.map(|n| partition_key(PartitionId(7), &key(n))).collect()
    };
    let mut ordered = T::new(entries);
    let (mut put, mut get) = (Duration::ZERO, Duration::ZERO);
    for lot in (0..entries).step_by(usize::try_from(LOT).unwrap()) {
        let keys = keys(lot, 0);
        let started = Instant::now();
        for (seq, key) in (lot + 1..).zip(&keys) {
            ordered.put(key, seq);
        }
        put += started.elapsed();
    }
    for lot in (0..GETS).step_by(usize::try_from(LOT).unwrap()) {
        let keys = keys(lot, entries / 3);
        let started = Instant::now();
        let found: usize = keys.iter().map(|key| ordered.get(key)).sum();
        get += started.elapsed();
        assert_eq!(found, keys.len() * VALUE.len());
    }
    [put.as_secs_f64() * 1e9 / entries as f64, get.as_secs_f64() * 1e9 / GETS as f64]
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn compare(kind: &str, key: impl Fn(u64) -> Vec<u8> + Copy) {
    for entries in [1_000_000, 4_000_000] {
        let mut rounds: [Vec<[f64; 2]>; 4] = Default::default();
        for _ in 0..ROUNDS {
            rounds[0].push(measure::<Whole>(entries, key));
            rounds[1].push(measure::<TreeAlone>(entries, key));
            rounds[2].push(measure::<OverArena>(entries, key));
            rounds[3].push(measure::<Boxed>(entries, key));
        }
        let names = [Whole::NAME, TreeAlone::NAME, OverArena::NAME, Boxed::NAME];
        let medians = rounds.map(|of| [0, 1].map(|i| median(of.iter().map(|ns| ns[i]).collect())));
        for (name, [put, get]) in names.iter().zip(medians) {
            let [put_ratio, get_ratio] = [put / medians[1][0], get / medians[1][1]];
            println!(
                "{kind}, {entries} entries, {name}: put {put:.0} ns ({put_ratio:.2} x tree), \
                 get {get:.0} ns ({get_ratio:.2} x tree)"
            );
        }
    }
}

#[test]
#[ignore = "minutes; a measurement, in release mode"]
fn random_keys_of_16_bytes() {
    compare("16 random bytes", |n| {
        u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes().to_vec()
    });
}

#[test]
#[ignore = "minutes; a measurement, in release mode"]
fn keys_like_urls() {
    compare("URLs", |n| {
        format!("https://www.example{:03}.org/users/{:05}/orders/{n:010}", n % 1_000, n % 99_991).into_bytes()
    });
}

fn put(seq: u64) -> entry::NewVersion<'static> {
    entry::NewVersion { seq, kind: ValueKind::Put, place: None, value: &VALUE }
}
