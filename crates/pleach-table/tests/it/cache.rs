//! The frame cache under pressure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pleach_env::FileId;
use pleach_table::{Codec, CursorMode, FrameCache, Sst, SstBuilder, SstCursor, SstOptions, ValueKind};

use crate::support::{Entries, build, get, hash, machine, numbered, open, options};

/// Values of many sizes, so that blocks of one to four pages and larger ones share the cache.
fn mixed(count: usize) -> Entries {
    let mut rng = fastrand::Rng::with_seed(3);
    let lens = [10, 100, 400, 1000, 1500, 2700, 3500, 5000, 9000, 14_000, 30_000];
    (0..count)
        .map(|i| {
            let value = i.to_string().bytes().cycle().take(lens[rng.usize(..lens.len())]).collect();
            (format!("key{i:06}").into_bytes(), (ValueKind::Put, value))
        })
        .collect()
}

#[test]
fn readers_on_many_threads_see_right_contents_while_frames_change_hands() {
    for codec in [Codec::None, Codec::Lz4] {
        for capacity in [16 << 10, 64 << 10, 1 << 20] {
            let (_, env) = machine();
            let entries = mixed(1500);
            let summary = build(&env, &entries, options(codec));
            let cache = FrameCache::new(capacity);
            let sst = open(&env, Some(&summary), &cache).unwrap();
            let keys: Vec<_> = entries.keys().collect();
            std::thread::scope(|scope| {
                for thread in 0..6 {
                    let (sst, keys, entries) = (&sst, &keys, &entries);
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(thread);
                        let mut held = Vec::new();
                        for round in 0..3000 {
                            let key = keys[rng.usize(..keys.len()) / (1 + round % 7)];
                            let (kind, block, range) = sst.get(key, hash(key)).unwrap().unwrap();
                            assert_eq!((kind, &block[range.clone()]), (ValueKind::Put, &entries[key].1[..]));
                            held.push((key, block.clone(), range));
                            if held.len() > 8 {
                                let (key, block, range) = held.swap_remove(rng.usize(..held.len()));
                                assert!(block[range] == entries[key].1, "a pinned block has changed");
                            }
                        }
                    });
                }
                let (sst, entries) = (&sst, &entries);
                scope.spawn(move || {
                    for _ in 0..3 {
                        let mut cursor = SstCursor::new(sst.clone(), CursorMode::Cached);
                        cursor.seek_first().unwrap();
                        for (key, (_, value)) in entries {
                            assert!(cursor.key() == key && cursor.value() == value);
                            cursor.next().unwrap();
                        }
                    }
                });
            });
            assert!(cache.stats().evictions > 0, "{:?}", cache.stats());
        }
    }
}

#[test]
fn ssts_come_and_go_under_readers() {
    let (_, env) = machine();
    let entries = numbered(400, 300);
    let cache = FrameCache::new(256 << 10);
    let stop = AtomicBool::new(false);
    let open_one = |id: u64| {
        let path = format!("/db/{id:06}.sst");
        let mut builder = SstBuilder::create(&env, path.as_ref(), FileId(id), SstOptions::default()).unwrap();
        for (key, (kind, value)) in &entries {
            let value = [&id.to_le_bytes()[..], value].concat();
            builder.add(key, *kind, &value, hash(key)).unwrap();
        }
        let summary = builder.finish().unwrap();
        Arc::new(Sst::open(&env, path.as_ref(), FileId(id), Some(&summary), cache.clone(), false).unwrap())
    };
    let shared = parking_lot::Mutex::new((100, open_one(100)));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (shared, stop, entries) = (&shared, &stop, &entries);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                let keys: Vec<_> = entries.keys().collect();
                while !stop.load(Ordering::Relaxed) {
                    let (id, sst) = shared.lock().clone();
                    for _ in 0..20 {
                        let key = keys[rng.usize(..keys.len())];
                        let (_, block, range) = sst.get(key, hash(key)).unwrap().unwrap();
                        drop(sst.clone());
                        assert_eq!(block[range.clone()][..8], u64::to_le_bytes(id));
                        assert!(block[range][8..] == entries[key].1);
                    }
                }
            });
        }
        for id in 101..160 {
            *shared.lock() = (id, open_one(id));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_value_outlives_sst_and_cache() {
    let (_, env) = machine();
    let entries = numbered(400, 100);
    let summary = build(&env, &entries, options(Codec::None));
    let cache = FrameCache::new(1 << 20);
    let sst = open(&env, Some(&summary), &cache).unwrap();
    let key = entries.keys().nth(77).unwrap();
    let (_, block, range) = sst.get(key, hash(key)).unwrap().unwrap();
    let copy = block.clone();
    assert!(block.is_cached());
    drop(sst);
    drop(cache);
    let third = block.clone();
    drop(block);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(copy[range.clone()] == entries[key].1));
    });
    drop(copy);
    assert!(third[range] == entries[key].1);
}

#[test]
fn blocks_may_be_dropped_while_the_cache_is_dropped() {
    let (_, env) = machine();
    let entries = numbered(400, 100);
    let summary = build(&env, &entries, options(Codec::None));
    for round in 0..50 {
        let cache = FrameCache::new(64 << 10);
        let sst = open(&env, Some(&summary), &cache).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let blocks: Vec<_> = (0..sst.blocks()).map(|no| sst.read_block(no).unwrap()).collect();
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(round * 3 + thread);
                    let mut blocks = blocks;
                    while !blocks.is_empty() {
                        let block = blocks.swap_remove(rng.usize(..blocks.len()));
                        let copy = block.clone();
                        drop(block);
                        assert_eq!(copy[5], 1, "a data block");
                    }
                });
            }
            drop((sst, cache));
        });
    }
}

#[test]
fn when_all_frames_are_pinned_blocks_go_to_the_heap() {
    let (_, env) = machine();
    let entries = numbered(2000, 100);
    let summary = build(&env, &entries, options(Codec::None));
    let cache = FrameCache::new(64 << 10);
    let sst = open(&env, Some(&summary), &cache).unwrap();
    let blocks: Vec<_> = (0..sst.blocks()).map(|no| sst.read_block(no).unwrap()).collect();
    assert_eq!(blocks.iter().filter(|block| block.is_cached()).count(), 16);
    let stats = cache.stats();
    assert!(stats.heap_fallbacks + stats.declined > 0);
    drop(blocks);
    for (key, expected) in &entries {
        assert!(get(&sst, key).unwrap().as_ref() == Some(expected));
    }
}

#[test]
fn a_long_scan_leaves_what_points_have_used() {
    let (_, env) = machine();
    let entries = numbered(40_000, 100);
    let summary = build(&env, &entries, options(Codec::None));
    let cache = FrameCache::new(1 << 20);
    let sst = open(&env, Some(&summary), &cache).unwrap();
    let hot: Vec<u32> = (0..sst.blocks()).step_by(10).take(100).collect();
    for _ in 0..2 {
        for &no in &hot {
            sst.read_block(no).unwrap();
        }
    }
    let mut cursor = SstCursor::new(sst.clone(), CursorMode::Cached);
    cursor.seek_first().unwrap();
    while cursor.valid() {
        cursor.next().unwrap();
    }
    let left = hot.iter().filter(|&&no| sst.cached_block(no).is_some()).count();
    assert!(left >= 95, "{left} of {} hot blocks left after a scan of {} blocks", hot.len(), sst.blocks());
}

#[test]
fn a_working_set_that_fits_stays() {
    let (sim, env) = machine();
    let entries = numbered(6000, 100);
    let summary = build(&env, &entries, options(Codec::None));
    let cache = FrameCache::new(1 << 20);
    let sst = open(&env, Some(&summary), &cache).unwrap();
    assert!(sst.blocks() < 250);
    for no in 0..sst.blocks() {
        sst.read_block(no).unwrap();
    }
    let before = sim.read_count();
    for key in entries.keys() {
        get(&sst, key).unwrap().unwrap();
    }
    assert_eq!(sim.read_count(), before);
    drop(sst);
    let sst = open(&env, Some(&summary), &cache).unwrap();
    let used = cache.stats().used;
    for no in 0..sst.blocks() {
        sst.read_block(no).unwrap();
    }
    assert_eq!(cache.stats().used, used, "frames of a dropped SST are used again");
    assert_eq!(cache.stats().evictions, 0);
}
