//! SSTs with a learned index: which kind is chosen, how long the files become, how many blocks a read takes.

use std::path::Path;
use std::sync::Arc;

use pleach_env::{ErrorKind, failpoint};
use pleach_table::{
    Codec, CursorMode, Encoders, FrameCache, IndexChoice, IndexKind, Obstacle, Sst, SstBuilder, SstCursor,
    SstOptions, ValueKind,
};

use crate::support::{Entries, FILE, PATH, build, get, hash, learned, machine, numbered, open, options};

fn smallest(codec: Codec) -> SstOptions {
    SstOptions { codec, index: IndexChoice::Smallest, ..SstOptions::default() }
}

/// Keys of 16 random digits.
fn random_digits(count: usize) -> Entries {
    let mut rng = fastrand::Rng::with_seed(3);
    (0..count)
        .map(|_| (format!("{:016}", rng.u64(..10_u64.pow(16))).into_bytes(), (ValueKind::Put, vec![7; 100])))
        .collect()
}

/// Keys with long equal parts between the bytes that differ.
fn paths(count: usize) -> Entries {
    let mut rng = fastrand::Rng::with_seed(4);
    let path = |a: u64, b: u64| {
        format!("https://www.example-{a}.com/articles/of/the/year/and/of/the/month/{b:x}?language=en")
    };
    (0..count)
        .map(|_| (path(rng.u64(..300), rng.u64(..)).into_bytes(), (ValueKind::Put, vec![7; 100])))
        .collect()
}

#[test]
fn regular_keys_get_a_model_and_others_do_not() {
    for (entries, codec, expected) in [
        (numbered(20_000, 100), Codec::None, Ok(())),
        (numbered(20_000, 100), Codec::Lz4, Ok(())),
        (random_digits(20_000), Codec::None, Ok(())),
        (paths(20_000), Codec::None, Err(Obstacle::Ties)),
        (numbered(10, 100), Codec::None, Err(Obstacle::OneBlock)),
        (numbered(100, 100), Codec::None, Err(Obstacle::Larger)),
    ] {
        let (_, env) = machine();
        let mut builder = SstBuilder::create(&env, Path::new(PATH), FILE, smallest(codec)).unwrap();
        for (key, (kind, value)) in &entries {
            builder.add(key, *kind, value, hash(key)).unwrap();
        }
        let (summary, obstacle) = builder.finish_with_obstacle(|_| true).unwrap();
        assert_eq!(obstacle, expected.err());
        let sst = open(&env, Some(&summary), &FrameCache::new(1 << 20)).unwrap();
        let kind = if expected.is_ok() { IndexKind::Learned } else { IndexKind::Separators };
        assert_eq!(sst.index_kind(), kind);
        sst.verify(hash).unwrap();
    }
}

#[test]
fn a_model_makes_the_index_small_and_the_file_hardly_longer() {
    for (entries, percent) in [(numbered(50_000, 100), 10), (random_digits(50_000), 35)] {
        let [separators, smallest] = [options(Codec::None), smallest(Codec::None)].map(|options| {
            let (_, env) = machine();
            let summary = build(&env, &entries, options);
            let sst = open(&env, Some(&summary), &FrameCache::new(0)).unwrap();
            (summary.data_blocks, sst.index_memory())
        });
        assert!(smallest.0 * 100 <= separators.0 * 103, "{smallest:?} {separators:?}");
        assert!(smallest.1 * 100 <= separators.1 * percent, "{smallest:?} {separators:?}");
    }
    let (_, env) = machine();
    let entries = paths(20_000);
    let without = build(&env, &entries, options(Codec::None));
    env.remove_file(Path::new(PATH)).unwrap();
    let with = build(&env, &entries, smallest(Codec::None));
    let [with, without] = [with, without].map(|summary| summary.data_blocks);
    assert!(with * 100 <= without * 101, "advice ends where no model can be made: {with} {without}");
}

#[test]
fn a_footer_of_another_version_is_refused() {
    let (separators, lines) = (options(Codec::None), SstOptions { codec: Codec::Lz4, ..learned() });
    let others = [
        (learned(), [2, 4, 7]),
        (separators, [3, 4, 7]),
        (lines, [2, 3, 7]),
        (options(Codec::Lz4), [2, 3, 7]),
    ];
    for (options, other) in
        others.into_iter().flat_map(|(options, others)| others.map(|other| (options, other)))
    {
        let (sim, env) = machine();
        build(&env, &numbered(2000, 100), options);
        let mut bytes = sim.read_file(Path::new(PATH)).unwrap();
        let at = bytes.len() - 64 + 4;
        bytes[at] = other;
        sim.write_file(Path::new(PATH), &bytes);
        let open = || open(&env, None, &FrameCache::new(0));
        let error = failpoint::with_skipped("sst.footer.crc", open).unwrap_err();
        let kind = if other == 7 { ErrorKind::Unsupported } else { ErrorKind::Corruption };
        assert_eq!((error.kind(), error.path()), (kind, Some(Path::new(PATH))), "{error}");
        assert_eq!(error.to_string().contains("format version 7"), other == 7, "{error}");
    }
}

#[test]
fn verify_finds_a_model_that_hides_keys() {
    let entries = random_digits(800);
    let (sim, env) = machine();
    let summary = build(&env, &entries, SstOptions { filter_bits_per_key: 0.0, ..learned() });
    let good = sim.read_file(Path::new(PATH)).unwrap();
    let tail_at = usize::try_from(summary.file_len - u64::from(summary.tail_len)).unwrap();
    let (mut hiding, mut harmless) = (0, 0);
    // The index block begins with its header and the places of blocks.
    for at in tail_at + 28..good.len() - 64 - 150 {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        sim.write_file(Path::new(PATH), &bytes);
        failpoint::with_skipped("sst.tail.crc", || {
            let Ok(sst) = open(&env, None, &FrameCache::new(1 << 20)) else { return };
            let finds_all = entries.keys().all(|key| get(&sst, key).unwrap().is_some());
            assert_eq!(sst.verify(hash).is_ok(), finds_all, "byte {at}");
            (hiding, harmless) = (hiding + usize::from(!finds_all), harmless + usize::from(finds_all));
        });
    }
    assert!(hiding > 10, "{hiding} bytes hide keys, {harmless} do not");
}

#[test]
fn equal_encoders_are_shared_by_ssts() {
    let encoders = Encoders::new();
    let (_, env) = machine();
    let summary = build(&env, &numbered(5000, 100), learned());
    let open = || {
        let cache = FrameCache::new(1 << 20);
        let mut sst = Sst::open(&env, Path::new(PATH), FILE, Some(&summary), cache, false).unwrap();
        sst.share_encoder(&encoders);
        sst
    };
    let (first, second) = (open(), open());
    drop(first);
    assert_eq!(get(&second, b"key00000300").unwrap().unwrap().0, ValueKind::Put);
}

#[test]
fn a_finished_sst_learns_from_its_separators() {
    for (entries, codec, percent) in [
        (numbered(30_000, 100), Codec::None, 10),
        (random_digits(30_000), Codec::None, 35),
        (random_digits(30_000), Codec::Lz4, 60),
    ] {
        let (sim, env) = machine();
        let summary = build(&env, &entries, options(codec));
        let cache = FrameCache::new(64 << 20);
        let old = open(&env, Some(&summary), &cache).unwrap();
        for key in entries.keys() {
            get(&old, key).unwrap();
        }
        let reads = sim.read_count();
        let new = Arc::new(old.learn_index(IndexChoice::Smallest).unwrap());
        assert!(new.has_index_from_separators() && !old.has_index_from_separators());
        assert_eq!((old.index_kind(), new.index_kind()), (IndexKind::Separators, IndexKind::Learned));
        assert!(new.index_memory() * 100 <= old.index_memory() * percent, "{new:?} {}", new.index_memory());
        for (key, entry) in &entries {
            let absent = [key, b"x".as_slice()].concat();
            assert_eq!(new.block_for(key), old.block_for(key));
            assert_eq!(new.block_for(&absent), old.block_for(&absent));
            assert_eq!(get(&new, key).unwrap().as_ref(), Some(entry));
        }
        assert_eq!(sim.read_count(), reads, "both have the same blocks in the cache");
        assert_eq!(new.learn_index(IndexChoice::Smallest).unwrap_err(), Obstacle::Larger);
        drop(old);
        for key in entries.keys() {
            assert!(get(&new, key).unwrap().is_some());
        }
        assert_eq!(sim.read_count(), reads, "the cache keeps the blocks for the new one");
        new.verify(hash).unwrap();
        let mut cursor = SstCursor::new(new, CursorMode::Cached);
        for (key, _) in entries.iter().step_by(7) {
            cursor.seek(key).unwrap();
            assert_eq!(cursor.key(), key);
            cursor.seek_before(key).unwrap();
        }
        let used = cache.stats().used;
        drop(cursor);
        let again = open(&env, Some(&summary), &cache).unwrap();
        for key in entries.keys() {
            assert!(get(&again, key).unwrap().is_some());
        }
        let used_again = cache.stats().used;
        assert!(
            used_again < used + used / 10,
            "the frames of the last one are used again: {used} {used_again}"
        );
    }
}

#[test]
fn keys_that_tie_keep_their_separators() {
    let (_, env) = machine();
    let summary = build(&env, &paths(20_000), options(Codec::None));
    let sst = open(&env, Some(&summary), &FrameCache::new(0)).unwrap();
    assert_eq!(sst.learn_index(IndexChoice::Smallest).unwrap_err(), Obstacle::Ties);
}
