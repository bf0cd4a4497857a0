//! Tests of the memtable against a `BTreeMap`, and of readers beside a writer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pleach_env::FileId;
use pleach_env::memory::RegionBytes;
use pleach_table::{ValueKind, key_hash};

use super::tree::LeafPlace;
use super::{
    Footprint, Insert, LARGE_FRONT, Memtable, MemtableMemory, MemtableWriter, PLACE_LEN, Place, SideInserts,
    entry,
};

mod second_heads;
mod skip_list;

/// Under Miri with a small hash index, because Miri looks at all of it for each access.
fn memtable(budget: usize) -> MemtableWriter {
    let budget = if cfg!(miri) { budget.min(16 << 10) } else { budget };
    MemtableWriter::new(budget, &MemtableMemory::new(budget, 1)).unwrap()
}

fn put(m: &mut MemtableWriter, key: &[u8], seq: u64, value: &[u8]) {
    insert(m, key, seq, ValueKind::Put, value);
}

fn insert(m: &mut MemtableWriter, key: &[u8], seq: u64, kind: ValueKind, value: &[u8]) {
    assert!(m.reserve(Memtable::footprint(key.len(), value.len())));
    m.insert(key_hash(0, key), key, seq, kind, value);
}

/// The number of operations of a test: 1 in 100 under Miri, which is so much slower.
fn scaled(operations: u64) -> u64 {
    if cfg!(miri) { operations / 100 } else { operations }
}

fn key_of(kind: u32, n: u64) -> Vec<u8> {
    match kind {
        0 => n.swap_bytes().to_le_bytes().to_vec(),
        1 => format!("{n:016}").into_bytes(),
        2 => format!("tenant/{}/order/{n:08}", n % 7).into_bytes(),
        _ => [&b"k"[..], &vec![0; (n % 20) as usize], &n.to_le_bytes()].concat(),
    }
}

#[test]
fn point_reads_and_scans_agree_with_a_model() {
    for kind in if cfg!(miri) { 3..4 } else { 0..4 } {
        for budget in if cfg!(miri) { vec![1 << 10] } else { vec![1 << 10, 1 << 20] } {
            let seed = 7 + u64::from(kind);
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut memtable = memtable(budget);
            let mut model = BTreeMap::new();
            for seq in 1..=scaled(20_000) {
                let key = key_of(kind, rng.u64(..scaled(8_000)));
                let value = seq.to_le_bytes().to_vec();
                put(&mut memtable, &key, seq, &value);
                model.insert(key, value);
            }
            for n in 0..scaled(8_000) {
                let key = key_of(kind, n);
                let found =
                    memtable.version(key_hash(0, &key), &key, u64::MAX >> 8).map(|v| v.value.to_vec());
                assert_eq!(found.as_ref(), model.get(&key), "kind {kind} seed {seed}");
            }
            check_scans(&memtable, &model, &mut rng, kind);
        }
    }
}

fn check_scans(
    memtable: &Arc<Memtable>,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    rng: &mut fastrand::Rng,
    kind: u32,
) {
    let mut cursor = memtable.cursor(u64::MAX >> 8);
    cursor.seek_first();
    for (k, v) in model {
        assert_eq!((cursor.key(), cursor.value()), (&k[..], &v[..]));
        cursor.next();
    }
    assert!(!cursor.is_valid());
    cursor.seek_last();
    for (k, v) in model.iter().rev() {
        assert_eq!((cursor.key(), cursor.value()), (&k[..], &v[..]));
        cursor.prev();
    }
    assert!(!cursor.is_valid());
    for _ in 0..scaled(2_000) {
        let probe = key_of(kind, rng.u64(..scaled(9_000)));
        cursor.seek(&probe);
        let expected = model.range(probe.clone()..).next();
        assert_eq!(cursor.is_valid().then(|| cursor.key()), expected.map(|(k, _)| &k[..]));
        cursor.seek_before(&probe);
        let expected = model.range(..probe).next_back();
        assert_eq!(cursor.is_valid().then(|| cursor.key()), expected.map(|(k, _)| &k[..]));
    }
}

/// All keys so far share a prefix, so the tree's outer nodes search behind it. Then come keys below, above and inside of that
/// prefix.
#[test]
fn keys_are_found_that_do_not_share_the_prefix_of_those_before() {
    let prefixes = ["shared/long/prefix/", "shared/long/pr", "shared/m", "shared/", "a", "z", ""];
    let mut rng = fastrand::Rng::with_seed(19);
    for round in 0..scaled(100).max(1) {
        let mut order = prefixes;
        rng.shuffle(&mut order);
        let mut memtable = memtable(1 << 16);
        let mut model = BTreeMap::new();
        let per_prefix = rng.u64(1..if cfg!(miri) { 70 } else { 500 });
        for (phase, prefix) in order.iter().enumerate() {
            let new_key = |rng: &mut fastrand::Rng| format!("{prefix}{:06}", rng.u32(..2000)).into_bytes();
            for _ in 0..per_prefix {
                let (key, seq) = (new_key(&mut rng), model.len() as u64 + 1);
                if let std::collections::btree_map::Entry::Vacant(entry) = model.entry(key) {
                    put(&mut memtable, entry.key(), seq, b"");
                    entry.insert(seq);
                }
            }
            let mut cursor = memtable.cursor(u64::MAX >> 8);
            cursor.seek_first();
            for key in model.keys() {
                assert_eq!(cursor.key(), key, "round {round}, {} of {order:?}", phase + 1);
                cursor.next();
            }
            assert!(!cursor.is_valid());
            for prefix in prefixes {
                let probe = [prefix.as_bytes(), &new_key(&mut rng)[prefix.len() % 3..]].concat();
                cursor.seek(&probe);
                let expected = model.range(probe..).next();
                assert_eq!(cursor.is_valid().then(|| cursor.key()), expected.map(|(key, _)| &key[..]));
            }
        }
    }
}

/// Puts a value in a chunk of its own.
fn put_large(m: &mut MemtableWriter, key: &[u8], seq: u64, value: &[u8]) {
    assert!(m.reserve(Memtable::footprint_of_large(key.len(), value.len())));
    let value = RegionBytes::try_copy(LARGE_FRONT, value).unwrap();
    m.insert_large(key_hash(0, key), key, seq, None, value);
}

/// Keys of many versions, some of them large, milestones among them: every version is found.
#[test]
fn large_values_are_versions_like_others() {
    let mut rng = fastrand::Rng::with_seed(12);
    let (keys, versions) = if cfg!(miri) { (1, 40) } else { (20, 2_000u64) };
    let mut memtable = memtable(1 << 20);
    let mut model = BTreeMap::<(Vec<u8>, u64), Vec<u8>>::new();
    for seq in 1..=versions {
        let key = key_of(0, rng.u64(..keys));
        let value = seq.to_le_bytes().repeat(rng.usize(1..90));
        if rng.u8(..3) == 0 {
            let used = memtable.used_bytes();
            put_large(&mut memtable, &key, seq, &value);
            assert!(memtable.used_bytes() >= used + value.len());
        } else {
            put(&mut memtable, &key, seq, &value);
        }
        model.insert((key, seq), value);
    }
    assert!(cfg!(miri) || memtable.is_full_for(Footprint::default(), usize::MAX));
    for n in 0..keys {
        let key = key_of(0, n);
        for visible in 0..=versions {
            let found = memtable.version(key_hash(0, &key), &key, visible);
            let expected = model.range((key.clone(), 0)..=(key.clone(), visible)).next_back();
            assert_eq!(found.map(|v| (v.seq, v.value)), expected.map(|((_, seq), v)| (*seq, &v[..])));
        }
    }
}

#[test]
fn older_versions_stay_visible_to_older_readers() {
    let mut memtable = memtable(1 << 20);
    put(&mut memtable, b"a", 1, b"one");
    put(&mut memtable, b"a", 5, b"five");
    insert(&mut memtable, b"a", 9, ValueKind::Tombstone, b"");
    let at = |seq| memtable.version(key_hash(0, b"a"), b"a", seq).map(|v| (v.kind, v.value.to_vec()));
    assert_eq!(at(0), None);
    assert_eq!(at(4), Some((ValueKind::Put, b"one".to_vec())));
    assert_eq!(at(5), Some((ValueKind::Put, b"five".to_vec())));
    assert_eq!(at(100), Some((ValueKind::Tombstone, vec![])));
}

#[test]
fn ascending_inserts_fill_the_leaves() {
    let mut memtable = memtable(1 << 20);
    for n in 0..scaled(6_400) {
        put(&mut memtable, format!("{n:016}").as_bytes(), n + 1, b"");
    }
    assert!(memtable.tree.bytes() < 110 * 1_300, "100 full leaves and a few inner nodes");
}

/// From a variable, or random.
fn seed() -> u64 {
    let seed = std::env::var("PLEACH_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("PLEACH_SEED={seed}");
    seed
}

/// Claims of batches that the log refuses, before, between and behind one that is inserted later.
#[test]
fn an_undone_claim_leaves_its_memory_to_the_next_one() {
    let mut writer = memtable(1 << 20);
    let memtable = Arc::clone(&writer);
    let key = key_of(3, 1);
    let hash = key_hash(0, &key);
    // It gives back what its value does not take.
    let footprint = Memtable::footprint(key.len(), 500);
    assert!(writer.reserve(Footprint { bytes: 100 * footprint.bytes, records: 100, ..footprint }));
    let refuse = |writer: &mut MemtableWriter| {
        let before = (writer.used_bytes(), writer.tree.granted());
        for _ in 0..1000 {
            let inserts = writer.claim(&memtable, footprint).expect("it is reserved");
            assert_ne!((writer.used_bytes(), writer.tree.granted()), before);
            writer.undo_claim(inserts, footprint);
            assert_eq!((writer.used_bytes(), writer.tree.granted()), before);
        }
    };
    let put = |seq, value| Insert { hash, key: &key, seq, kind: ValueKind::Put, place: None, value };
    let finish = |mut inserts: SideInserts<'_>, put: &Insert<'_>| {
        inserts.prepare(put);
        let mut inserts = inserts.begin();
        inserts.insert(put);
        inserts.end();
    };
    refuse(&mut writer);
    let first = writer.claim(&memtable, footprint).unwrap();
    refuse(&mut writer);
    finish(first, &put(1, b"first"));
    // The first of them takes back what the insert has left; it is free for the others even so.
    let claimed = writer.claim(&memtable, footprint).unwrap();
    writer.undo_claim(claimed, footprint);
    refuse(&mut writer);
    let second = writer.claim(&memtable, footprint).unwrap();
    finish(second, &put(2, &[7; 500]));
    for (seq, value) in [(1, &b"first"[..]), (2, &[7; 500])] {
        assert_eq!(memtable.version(hash, &key, seq).map(|found| found.value), Some(value));
    }
}

/// Inserts runs of ascending keys that are disjoint, interleaved or overlapping. Each key must be in the tree once.
#[test]
fn keys_in_order_go_next_to_the_last_insert_and_nowhere_else() {
    let mut rng = fastrand::Rng::with_seed(seed());
    let (mut hits, mut refused) = (0, 0);
    for budget in if cfg!(miri) { vec![1 << 10] } else { vec![1 << 10, 1 << 20] } {
        let mut writer = memtable(budget);
        let memtable = Arc::clone(&writer);
        let (mut model, mut seq) = (BTreeMap::new(), 0);
        while seq < if cfg!(miri) { 150 } else { 40_000 } {
            let (step, kind) = ([1, 2, 5, 40][rng.usize(..4)], rng.u32(1..3));
            let first = rng.u64(..scaled(100_000));
            // Some are prepared before their turn, as those of writers side by side; some of those together.
            let together = [0, 1, 7][rng.usize(..3)];
            let keys: Vec<_> =
                (0..rng.u64(1..150)).map(|number| key_of(kind, first + number * step)).collect();
            for keys in keys.chunks(together.max(1)) {
                let footprint = Memtable::footprint(keys[0].len(), 8);
                let footprint = keys.iter().fold(Footprint::default(), |sum, _| sum.and(footprint));
                assert!(writer.reserve(Footprint { records: 2 * footprint.records, ..footprint }));
                let values: Vec<_> = (seq + 1..).map(u64::to_le_bytes).take(keys.len()).collect();
                let puts: Vec<_> = (seq + 1..)
                    .zip(keys)
                    .zip(&values)
                    .map(|((seq, key), value)| {
                        let hash = key_hash(0, key);
                        Insert { hash, key, seq, kind: ValueKind::Put, place: None, value }
                    })
                    .collect();
                seq += keys.len() as u64;
                if memtable.place_in_order(&keys[0]).is_some() {
                    assert!(!model.contains_key(&keys[0]));
                    hits += 1;
                } else {
                    refused += 1;
                }
                if together > 0
                    && let Some(mut inserts) = writer.claim(&memtable, footprint)
                {
                    for put in &puts {
                        inserts.prepare(put);
                    }
                    let mut inserts = inserts.begin();
                    for put in &puts {
                        inserts.insert(put);
                    }
                    inserts.end();
                } else {
                    for put in &puts {
                        writer.insert(put.hash, put.key, put.seq, put.kind, put.value);
                    }
                }
                model.extend(puts.iter().map(|put| (put.key.to_vec(), put.value.to_vec())));
            }
        }
        for (key, value) in &model {
            let found = memtable.version(key_hash(0, key), key, u64::MAX >> 8).map(|v| v.value.to_vec());
            assert_eq!(found.as_ref(), Some(value));
        }
        check_scans(&memtable, &model, &mut rng, 1);
    }
    assert!(cfg!(miri) || hits > 4_000 && refused > 10_000, "{hits} hits, {refused} refused");
}

/// Whatever place is tried, a key gets one only if the tree does not hold it, and the one where a descent leads.
#[test]
fn places_next_to_a_key_are_those_of_a_descent() {
    let mut rng = fastrand::Rng::with_seed(seed());
    for kind in if cfg!(miri) { 3..4 } else { 0..4 } {
        let mut memtable = memtable(1 << 20);
        let count = if cfg!(miri) { 150 } else { 3_000 };
        for seq in 1..=count {
            put(&mut memtable, &key_of(kind, rng.u64(..count * 2)), seq, b"");
        }
        let (tree, arena) = (&memtable.tree, &memtable.arena);
        let places: Vec<_> = tree.places().collect();
        assert!(places.len() > 64);
        let mut found = 0;
        for _ in 0..if cfg!(miri) { 2 } else { 100 } {
            let key = key_of(kind, rng.u64(..count * 2));
            let (wanted, record) = tree.locate(arena, &key);
            for place in &places {
                if let Some(next) = tree.behind(arena, *place, &key) {
                    assert!(record.is_none());
                    assert_eq!((next.leaf, next.index), (wanted.leaf, wanted.index));
                    found += 1;
                }
                let stale = LeafPlace { version: place.version + 2, ..*place };
                assert!(tree.behind(arena, stale, &key).is_none());
            }
        }
        assert!(cfg!(miri) || found > 20, "{found}");
    }
}

/// Inserts of any order need no more nodes than were reserved for them: a node without memory panics.
#[test]
fn a_reservation_covers_the_nodes_of_keys_in_any_order() {
    let (batches, keys) = if cfg!(miri) { (1, 100) } else { (30, 4_000u64) };
    let mut rng = fastrand::Rng::with_seed(13);
    let lengths = [65, 1, 63, 64, keys];
    for batch_keys in lengths.into_iter().take(if cfg!(miri) { 1 } else { 5 }) {
        let mut memtable = memtable(1 << 20);
        let mut seq = 0;
        // Ascending keys leave full leaves behind, each of which splits at the next key.
        for n in 0..keys {
            seq += 1;
            put(&mut memtable, &(n * 1_000).swap_bytes().to_le_bytes(), seq, b"");
        }
        for _ in 0..batches {
            let key = |rng: &mut fastrand::Rng| match rng.u8(..3) {
                0 => rng.u64(..),
                1 => rng.u64(..keys * 1_000),
                _ => u64::MAX - rng.u64(..keys),
            };
            let mut batch: Vec<_> =
                (0..batch_keys).map(|_| key(&mut rng).swap_bytes().to_le_bytes()).collect();
            if rng.bool() {
                batch.sort_unstable();
            }
            let footprint = batch.iter().map(|key| Memtable::footprint(key.len(), 0));
            assert!(memtable.reserve(footprint.fold(Footprint::default(), Footprint::and)));
            for key in &batch {
                seq += 1;
                memtable.insert(key_hash(0, key), key, seq, ValueKind::Put, b"");
            }
        }
    }
}

/// Far more keys than the index and the first table of nodes take (see `tree::SLABS`, smaller in tests).
#[test]
fn any_number_of_tiny_keys_is_held() {
    let count = if cfg!(miri) { 300 } else { 400_000u64 };
    let mut memtable = memtable(16 << 10);
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    for n in 1..=count {
        put(&mut memtable, &key(n), n, b"");
    }
    assert!(
        (1..=count)
            .all(|n| memtable.version(key_hash(0, &key(n)), &key(n), count).is_some_and(|v| v.seq == n))
    );
    let mut cursor = memtable.cursor(count);
    cursor.seek_first();
    for _ in 0..count {
        cursor.next();
    }
    assert!(!cursor.is_valid());
}

#[test]
fn readers_see_a_consistent_prefix_beside_the_writer() {
    read_beside_the_writer(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec());
}

#[test]
fn readers_of_second_heads_see_a_consistent_prefix_beside_the_writer() {
    read_beside_the_writer(|n| [second_heads::url(n), n.to_le_bytes().to_vec()].concat());
}

/// Number n is inserted under seq n with a key that scatters n, so a reader at `visible` must find exactly 1..=visible.
fn read_beside_the_writer(key: impl Fn(u64) -> Vec<u8> + Copy + Sync + Send) {
    let seed = 42;
    let mut memtable = memtable(1 << 16); // The index fills up early, so the tree is read too.
    let visible = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (memtable, visible, done) = (Arc::clone(&memtable), &visible, &done);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + reader);
                while !done.load(Ordering::Acquire) {
                    let at = visible.load(Ordering::Acquire);
                    if at == 0 {
                        continue;
                    }
                    for _ in 0..scaled(200) {
                        let n = rng.u64(1..=at);
                        let found = memtable.version(key_hash(0, &key(n)), &key(n), at);
                        assert_eq!(found.map(|v| v.seq), Some(n));
                    }
                    let mut cursor = memtable.cursor(at);
                    let (mut count, mut last) = (0, None);
                    cursor.seek_first();
                    while cursor.is_valid() {
                        let k = cursor.key().to_vec();
                        assert!(last.as_ref() < Some(&k));
                        last = Some(k);
                        count += 1;
                        cursor.next();
                    }
                    assert_eq!(count, at);
                    cursor.seek_last();
                    while cursor.is_valid() {
                        count -= 1;
                        cursor.prev();
                    }
                    assert_eq!(count, 0);
                }
            });
        }
        for n in 1..=if cfg!(miri) { 80 } else { 20_000 } {
            put(&mut memtable, &key(n), n, b"value");
            visible.store(n, Ordering::Release);
        }
        done.store(true, Ordering::Release);
    });
}

/// Of many puts prepared for one new key, the first one adds it; the others become its versions where they are, every sixteenth
/// with links.
#[test]
fn puts_prepared_for_the_same_new_key_become_its_versions() {
    for (key_len, separated) in [(0, false), (1, false), (4, true), (5, false), (61, true)] {
        let key = vec![b'k'; key_len];
        let (hash, count) = (key_hash(0, &key), 60);
        let mut writer = memtable(1 << 20);
        let memtable = Arc::clone(&writer);
        let place = |seq| Place { segment: FileId(seq), offset: 7, len: 8 };
        let values: BTreeMap<u64, _> = (1..=count).map(|seq: u64| (seq, seq.to_le_bytes())).collect();
        let put = |seq: u64| {
            let (kind, place) =
                if separated { (ValueKind::ValuePointer, Some(place(seq))) } else { (ValueKind::Put, None) };
            Insert { hash, key: &key, seq, kind, place, value: &values[&seq] }
        };
        let place_len = if separated { PLACE_LEN } else { 0 };
        let footprint = Memtable::footprint(key.len(), 8 + place_len);
        assert!(writer.reserve(Footprint { bytes: footprint.bytes * 60, records: 60, ..footprint }));
        let prepared: Vec<_> = (1..=count)
            .map(|seq| {
                assert!(writer.reserve(Footprint { records: 1, ..Footprint::default() }));
                let mut inserts = writer.claim(&memtable, footprint).expect("it is reserved");
                inserts.prepare(&put(seq));
                inserts
            })
            .collect();
        for (seq, inserts) in (1..).zip(prepared) {
            let mut inserts = inserts.begin();
            inserts.insert(&put(seq));
            inserts.end();
        }
        for seq in 1..=count {
            let found = memtable.version(hash, &key, seq).expect("it was put");
            assert_eq!((found.seq, found.value), (seq, &values[&seq][..]));
            assert!(!separated || entry::place(&memtable.arena, found.value_at) == place(seq));
        }
        let mut cursor = memtable.cursor(count);
        cursor.seek_first();
        assert_eq!(cursor.key(), &key[..]);
        cursor.next();
        assert!(!cursor.is_valid(), "one key");
    }
}

#[test]
fn inserts_that_were_claimed_side_by_side_agree_with_a_model() {
    insert_side_by_side(|rng, _, keys| key_of(3, rng.u64(..keys)));
}

#[test]
fn inserts_that_were_claimed_in_order_agree_with_a_model() {
    // The greatest key comes early, so keys in order go between others.
    let in_order = insert_side_by_side(|rng, next, keys| match rng.u8(..32) {
        0 => key_of(1, rng.u64(..keys)),
        1 => key_of(1, next.load(Ordering::Relaxed)),
        2 => key_of(1, 1_000_000 + rng.u64(..keys)),
        _ => key_of(1, next.fetch_add(1, Ordering::Relaxed)),
    });
    assert!(cfg!(miri) || in_order > 100, "{in_order}");
}

/// Threads claim memory under a lock, look for their places side by side, and insert in turn, as the write path does. `key`
/// gets a number that the threads share, and the number of keys.
/// Returns how many puts had a place next to the last one.
fn insert_side_by_side(
    key: impl Fn(&mut fastrand::Rng, &AtomicU64, u64) -> Vec<u8> + Copy + Send + Sync,
) -> u64 {
    let (threads, puts, keys) = if cfg!(miri) { (2, 60, 20) } else { (4, 20_000, 3_000) };
    let (next, in_order) = (AtomicU64::new(keys / 2), AtomicU64::new(0));
    let writer = pleach_env::sync::QuickMutex::new((memtable(1 << 20), 1u64));
    let memtable = Arc::clone(&*writer.lock().0);
    let (shown, claimed) = (AtomicU64::new(0), AtomicU64::new(0));
    let turns = pleach_env::sync::Turnstile::new();
    let settle = |next: u64| turns.wait_until(|| shown.load(Ordering::Acquire) + 1 == next);
    let show = |seq: u64| {
        shown.store(seq, Ordering::Release);
        turns.notify();
    };
    let put = |key: &[u8]| {
        let hash = key_hash(0, key);
        let footprint = Memtable::footprint(key.len(), 8);
        let mut guard = writer.lock();
        let (writer, next) = &mut *guard;
        let seq = *next;
        *next += 1;
        let Some(mut insert) = writer.claim(&memtable, footprint) else {
            settle(seq);
            assert!(writer.reserve(footprint));
            writer.insert(hash, key, seq, ValueKind::Put, &seq.to_le_bytes());
            show(seq);
            return seq;
        };
        drop(guard);
        claimed.fetch_add(1, Ordering::Relaxed);
        in_order.fetch_add(u64::from(memtable.place_in_order(key).is_some()), Ordering::Relaxed);
        let (kind, value) = (ValueKind::Put, &seq.to_le_bytes()[..]);
        let put = Insert { hash, key, seq, kind, place: None, value };
        insert.prepare(&put);
        settle(seq);
        let mut insert = insert.begin();
        insert.insert(&put);
        insert.end();
        show(seq);
        seq
    };
    let done: Vec<Vec<(u64, Vec<u8>)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let (next, put) = (&next, &put);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread);
                    let keys = (0..puts).map(|_| key(&mut rng, next, keys));
                    keys.map(|key| (put(&key), key)).collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut model = BTreeMap::<Vec<u8>, Vec<u64>>::new();
    let mut all: Vec<_> = done.into_iter().flatten().collect();
    all.sort_unstable();
    for (seq, key) in all {
        model.entry(key).or_default().push(seq);
    }
    assert!(claimed.load(Ordering::Relaxed) > threads * puts / 2, "most were claimed");
    check_versions(&memtable, &model);
    in_order.into_inner()
}

/// Each key is there once, in order, with all its versions.
fn check_versions(memtable: &Arc<Memtable>, model: &BTreeMap<Vec<u8>, Vec<u64>>) {
    for (key, seqs) in model {
        for &seq in seqs {
            let found = memtable.version(key_hash(0, key), key, seq).expect("it was put");
            assert_eq!((found.seq, found.value), (seq, &seq.to_le_bytes()[..]));
        }
    }
    let mut cursor = memtable.cursor(u64::MAX >> 8);
    cursor.seek_first();
    for key in model.keys() {
        assert_eq!(cursor.key(), key, "in order, each once");
        cursor.next();
    }
    assert!(!cursor.is_valid());
}
