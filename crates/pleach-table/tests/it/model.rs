//! SSTs against an ordered map: points, and cursors in both directions.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use pleach_env::{ReadBuffer, ReadRequest};
use pleach_table::{
    Codec, CursorMode, FrameCache, IndexChoice, KEY_LEN_MAX, Sst, SstCursor, SstOptions, ValueKind, Warmth,
};
use proptest::prelude::*;

use crate::support::{Entries, PATH, apart, build, get, hash, machine, numbered, open, options};

const MODES: [CursorMode; 3] =
    [CursorMode::Cached, CursorMode::Streaming { forget: false }, CursorMode::Streaming { forget: true }];

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..10),
        4 => "[ab]{1,3}/common/part/of/path/[a-c]{0,9}".prop_map(String::into_bytes),
        4 => (0u32..5000).prop_map(|n| format!("user{n:08}").into_bytes()),
        2 => proptest::collection::vec(prop_oneof![Just(0u8), Just(255)], 1..14),
        1 => (100usize..5000, 0u8..4).prop_map(|(len, last)| [vec![b'k'; len], vec![last]].concat()),
        1 => (0u8..3).prop_map(|last| [vec![b'x'; 65_538], vec![last]].concat()),
        1 => (0usize..3, 0u8..3).prop_map(|(less, last)| [vec![b'y'; KEY_LEN_MAX - 1 - less], vec![last]].concat()),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        4 => 0usize..20,
        6 => 20usize..300,
        2 => 300usize..5000,
        1 => 5000usize..40_000,
        1 => Just(1 << 20),
    ];
    (len, any::<u8>(), any::<bool>()).prop_map(|(len, seed, noise)| {
        let mut rng = fastrand::Rng::with_seed(u64::from(seed));
        (0..len).map(|_| if noise { rng.u8(..) } else { seed }).collect()
    })
}

fn entries(count: usize) -> impl Strategy<Value = Entries> {
    let kind = prop_oneof![
        6 => value().prop_map(|v| (ValueKind::Put, v)),
        1 => Just((ValueKind::Tombstone, Vec::new())),
        1 => proptest::collection::vec(any::<u8>(), 16).prop_map(|v| (ValueKind::ValuePointer, v)),
    ];
    proptest::collection::btree_map(key(), kind, 1..count)
}

/// Entries of which blocks may be columnar.
fn apart_entries(count: usize) -> impl Strategy<Value = Entries> {
    let keys = prop_oneof![
        1 => proptest::collection::btree_set(key(), 1..count),
        1 => proptest::collection::btree_set(any::<u64>().prop_map(|n| n.to_le_bytes().to_vec()), 1..count),
    ];
    keys.prop_map(apart)
}

fn sst_options() -> impl Strategy<Value = SstOptions> {
    let index = prop_oneof![
        1 => Just(IndexChoice::Separators),
        1 => Just(IndexChoice::Smallest),
        2 => Just(IndexChoice::Learned),
    ];
    (any::<bool>(), prop_oneof![Just(0.0f32), Just(6.0), Just(10.0)], index, any::<bool>()).prop_map(
        |(lz4, filter_bits_per_key, index, columns)| SstOptions {
            codec: if lz4 { Codec::Lz4 } else { Codec::None },
            filter_bits_per_key,
            index,
            columns,
            ..SstOptions::default()
        },
    )
}

/// Caches of different sizes: none, one that is always full, one that holds everything.
fn cache() -> impl Strategy<Value = Arc<FrameCache>> {
    prop_oneof![Just(0usize), Just(16 << 10), Just(64 << 10), Just(32 << 20)].prop_map(FrameCache::new)
}

type Expected<'a> = (&'a Vec<u8>, &'a (ValueKind, Vec<u8>));

fn assert_here(cursor: &SstCursor, expected: Option<Expected<'_>>) {
    assert_eq!(cursor.valid(), expected.is_some());
    if let Some((key, (kind, value))) = expected {
        assert!(cursor.key() == key, "another key");
        assert_eq!(cursor.kind(), *kind);
        assert!(cursor.value() == value, "another value");
        let (block, range) = cursor.value_pin();
        assert!(block[range] == **value, "another pinned value");
    }
}

fn check_walks(sst: &Arc<Sst>, entries: &Entries) {
    for mode in MODES {
        let mut cursor = SstCursor::new(sst.clone(), mode);
        assert!(!cursor.valid());
        cursor.seek_first().unwrap();
        for entry in entries {
            assert_here(&cursor, Some(entry));
            cursor.next().unwrap();
        }
        assert_here(&cursor, None);
        cursor.seek_last().unwrap();
        for entry in entries.iter().rev() {
            assert_here(&cursor, Some(entry));
            cursor.prev().unwrap();
        }
        assert_here(&cursor, None);
    }
}

fn check_seeks(sst: &Arc<Sst>, entries: &Entries, targets: &[Vec<u8>]) {
    for mode in MODES {
        let mut cursor = SstCursor::new(sst.clone(), mode);
        for target in targets.iter().chain(entries.keys().step_by(7)) {
            cursor.seek(target).unwrap();
            assert_here(&cursor, entries.range::<Vec<u8>, _>(target..).next());
            if cursor.valid() {
                cursor.prev().unwrap();
                assert_here(&cursor, entries.range::<Vec<u8>, _>(..target).next_back());
            }
            cursor.seek_before(target).unwrap();
            assert_here(&cursor, entries.range::<Vec<u8>, _>(..target).next_back());
            if cursor.valid() {
                cursor.next().unwrap();
                assert_here(
                    &cursor,
                    entries.range::<Vec<u8>, _>((Bound::Included(target), Bound::Unbounded)).next(),
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn an_sst_is_the_map_it_was_built_from(
        entries in prop_oneof![2 => entries(120), 1 => apart_entries(600)],
        targets in proptest::collection::vec(key(), 0..30),
        options in sst_options(),
        cache in cache(),
        with_summary in any::<bool>(),
        direct in any::<bool>(),
        learns in any::<bool>(),
    ) {
        let (_, env) = machine();
        let summary = build(&env, &entries, options);
        let path = Path::new(PATH);
        let known = with_summary.then_some(&summary);
        let sst = Sst::open(&env, path, crate::support::FILE, known, cache.clone(), direct).unwrap();
        let learns = if learns { sst.learn_index(IndexChoice::Learned).ok() } else { None };
        let sst = Arc::new(learns.unwrap_or(sst));
        prop_assert_eq!(sst.summary(), &summary);
        prop_assert_eq!(summary.entries, entries.len() as u64);
        prop_assert!(summary.smallest == *entries.keys().next().unwrap());
        prop_assert!(summary.largest == *entries.keys().next_back().unwrap());
        for _ in 0..2 {
            for (key, expected) in &entries {
                prop_assert!(sst.may_contain(hash(key)));
                prop_assert!(get(&sst, key).unwrap().as_ref() == Some(expected));
            }
        }
        for key in &targets {
            prop_assert!(get(&sst, key).unwrap().as_ref() == entries.get(key));
        }
        check_walks(&sst, &entries);
        check_seeks(&sst, &entries, &targets);
        sst.verify(hash).unwrap();
    }
}

#[test]
fn long_walks_read_ahead_and_see_every_entry() {
    for codec in [Codec::None, Codec::Lz4] {
        let (sim, env) = machine();
        let entries = numbered(30_000, 100);
        let summary = build(&env, &entries, SstOptions { codec, ..SstOptions::default() });
        for capacity in [0, 128 << 10, 16 << 20] {
            let sst = open(&env, Some(&summary), &FrameCache::new(capacity)).unwrap();
            let before = sim.read_count();
            check_walks(&sst, &entries);
            let reads = sim.read_count() - before;
            assert!(reads < u64::from(sst.blocks()), "{reads} reads for {} blocks", sst.blocks());
        }
    }
}

/// Values on both sides of what is written from where it lies, first, last, beside each other and between small ones.
#[test]
fn large_values_are_written_from_where_they_lie() {
    const MIB: usize = 1 << 20;
    for codec in [Codec::None, Codec::Lz4] {
        let (sim, env) = machine();
        let mut entries = numbered(600, 100);
        let len_max = if codec == Codec::Lz4 { 65 * MIB } else { 3 * MIB };
        let lens = [MIB, MIB - 1, MIB + 1, len_max, 2 * MIB, MIB - 60, 0];
        for (at, len) in [0, 1, 100, 101, 102, 300, 599].into_iter().zip(lens) {
            let (_, (_, value)) = entries.iter_mut().nth(at).unwrap();
            *value = (0..len as u64).map(|i| (i * 7 + i / 251).to_le_bytes()[0]).collect();
        }
        let summary = build(&env, &entries, options(codec));
        let sst = open(&env, Some(&summary), &FrameCache::new(1 << 20)).unwrap();
        sst.verify(hash).unwrap();
        for (key, (kind, value)) in &entries {
            let (found_kind, found) = get(&sst, key).unwrap().unwrap();
            assert!(found_kind == *kind && found == *value, "{} bytes", value.len());
        }
        assert_eq!(get(&sst, b"key").unwrap(), None);
        let bytes = sim.read_file(Path::new(PATH)).unwrap();
        let total: usize = entries.values().map(|(_, value)| value.len()).sum();
        assert!(codec == Codec::Lz4 || bytes.len() < total + total / 50 + (64 << 10), "{}", bytes.len());
    }
}

#[test]
fn opening_with_a_summary_is_one_read() {
    let (sim, env) = machine();
    let summary = build(&env, &numbered(5000, 100), SstOptions::default());
    let before = sim.read_count();
    open(&env, Some(&summary), &FrameCache::new(0)).unwrap();
    assert_eq!(sim.read_count() - before, 1);
}

#[test]
fn a_cached_block_is_not_read_again() {
    let (sim, env) = machine();
    let entries = numbered(500, 100);
    let summary = build(&env, &entries, SstOptions::default());
    let sst = open(&env, Some(&summary), &FrameCache::new(1 << 20)).unwrap();
    let key = entries.keys().nth(250).unwrap();
    let block = sst.block_for(key);
    assert!(sst.cached_block(block).is_none());
    get(&sst, key).unwrap().unwrap();
    let before = sim.read_count();
    get(&sst, key).unwrap().unwrap();
    assert_eq!(sim.read_count(), before);
    assert!(sst.cached_block(block).unwrap().is_cached());
}

#[test]
fn a_block_read_by_others_is_admitted() {
    for codec in [Codec::None, Codec::Lz4] {
        let (sim, env) = machine();
        let entries = numbered(500, 100);
        let summary = build(&env, &entries, SstOptions { codec, ..SstOptions::default() });
        let sst = open(&env, Some(&summary), &FrameCache::new(1 << 20)).unwrap();
        let file = sim.read_file(sst.path()).unwrap();
        for (key, (kind, value)) in &entries {
            let no = sst.block_for(key);
            let block = sst.cached_block(no).unwrap_or_else(|| {
                let ReadRequest { offset, mut buffer, needed, .. } = sst.begin_load(no, Warmth::Warm, 0);
                let offset = usize::try_from(offset).unwrap();
                buffer.bytes_mut()[..needed].copy_from_slice(&file[offset..offset + needed]);
                sst.finish_load(no, Ok(buffer)).unwrap()
            });
            let (found, place) = sst.get_in_block(&block, key, hash(key)).unwrap();
            assert_eq!((found, place.bytes(&block)), (*kind, value.as_slice()));
        }
    }
}

/// The part that is not yet in the index and the properties when the length is estimated (`build` compares) can be
/// as long as the longest keys.
#[test]
fn the_estimated_length_counts_long_keys() {
    let long = |last: u8| [vec![b'x'; KEY_LEN_MAX - 1], vec![last]].concat();
    let put = || (ValueKind::Put, Vec::new());
    for keys in [vec![long(0), long(1)], vec![long(0), b"y".to_vec()], vec![b"a".to_vec(), long(0)]] {
        let (_, env) = machine();
        let entries: Entries = keys.into_iter().map(|key| (key, put())).collect();
        build(&env, &entries, SstOptions { filter_bits_per_key: 0.0, ..SstOptions::default() });
    }
}

#[test]
#[should_panic(expected = "ascending order")]
fn a_key_added_out_of_order_is_the_callers_mistake() {
    let (_, env) = machine();
    let path = Path::new(PATH);
    let mut builder =
        pleach_table::SstBuilder::create(&env, path, crate::support::FILE, SstOptions::default()).unwrap();
    builder.add(b"b", ValueKind::Put, b"", hash(b"b")).unwrap();
    let _never = builder.add(b"b", ValueKind::Put, b"", hash(b"b"));
}

#[test]
fn an_abandoned_sst_leaves_no_file() {
    let (sim, env) = machine();
    let path = Path::new(PATH);
    let mut builder =
        pleach_table::SstBuilder::create(&env, path, crate::support::FILE, SstOptions::default()).unwrap();
    builder.add(b"b", ValueKind::Put, b"", hash(b"b")).unwrap();
    builder.abandon();
    assert!(sim.read_file(path).is_none());
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused() {
    let (_, env) = machine();
    let path = Path::new(PATH);
    let mut builder =
        pleach_table::SstBuilder::create(&env, path, crate::support::FILE, SstOptions::default()).unwrap();
    builder.add(b"", ValueKind::Put, b"", 0).unwrap();
    assert!(builder.add(&vec![1; KEY_LEN_MAX + 1], ValueKind::Put, b"", 0).is_err());
    builder.add(&vec![1; KEY_LEN_MAX], ValueKind::Put, b"", 0).unwrap();
}
