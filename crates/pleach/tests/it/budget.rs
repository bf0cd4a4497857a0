//! The memory budget: what memtables do not hold is the cache's, until they need it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use pleach::env::{Env, SimEnv};
use pleach::{Db, Options, ReadOptions, Stats};

use crate::rig::setup::DIR;
use crate::rig::tasks::block_on;
use crate::rig::vars;

/// Memtables of 512 KiB, which grow by regions of 32 KiB.
const MEMORY: usize = 4 << 20;
const BUDGET: u64 = MEMORY as u64;
const REGION: u64 = 32 << 10;
/// Five eighths: what memtables at their largest leave.
const LEFT_BY_FULL_MEMTABLES: u64 = BUDGET * 5 / 8;
const KEYS: u64 = 60_000;

/// What the store uses may exceed the budget by this: each memtable can leave a part of its last region unused.
const EXCESS_MAX: u64 = 3 * REGION;

fn key(i: u64) -> [u8; 8] {
    (i % KEYS).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

fn put(db: &Db, keys: Range<u64>, value: &[u8]) {
    let partition = db.default_partition();
    for i in keys {
        partition.put(key(i), value).unwrap();
    }
}

/// Gets all keys, which fills the cache.
fn get_all(db: &Db) {
    let partition = db.default_partition();
    for i in 0..KEYS {
        assert!(partition.get(key(i)).unwrap().is_some());
    }
}

/// Gets some of the keys.
fn get_some(db: &Db, rng: &mut Rng) {
    let partition = db.default_partition();
    for _ in 0..rng.u64(..200) {
        assert!(partition.get(key(rng.u64(..KEYS))).unwrap().is_some());
    }
}

/// Checks that the budget holds, but for `excess_max`.
fn checked_but_for(db: &Db, excess_max: u64) -> Stats {
    let stats = db.stats();
    let used = stats.cache_bytes + stats.value_cache_bytes + stats.index_filter_bytes + stats.memtable_bytes;
    assert!(used <= BUDGET + excess_max, "{used} bytes of {BUDGET}: {stats:?}");
    stats
}

fn checked(db: &Db) -> Stats {
    checked_but_for(db, EXCESS_MAX)
}

/// A store with all keys, and its machine.
fn filled(rng: &mut Rng) -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(rng.u64(..));
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(MEMORY);
    let db = options.open(DIR).unwrap();
    put(&db, 0..KEYS, &[b'v'; 100]);
    (env, db)
}

/// Lets the store find that nothing is written any more.
fn leave_alone(env: &SimEnv, db: &Db) {
    db.flush().unwrap();
    env.sleep(Duration::from_secs(3));
    db.default_partition().compact().unwrap();
    env.run_jobs();
}

#[test]
fn the_cache_has_what_memtables_do_not_hold_and_gives_it_back() {
    let mut rng = Rng::with_seed(vars::seed());
    let (env, db) = filled(&mut rng);
    let mut next = 0;
    for _ in 0..4 {
        leave_alone(&env, &db);
        get_all(&db);
        let idle = checked(&db);
        assert!(idle.cache_bytes > LEFT_BY_FULL_MEMTABLES + 3 * BUDGET / 16, "{idle:?}");
        // Up to four memtables, with reads between them.
        let end = next + rng.u64(3000..10_000);
        while next < end {
            let burst = rng.u64(1..200);
            put(&db, next..next + burst, &[b'v'; 100]);
            next += burst;
            checked(&db);
            get_some(&db, &mut rng);
            if rng.u8(..20) == 0 {
                env.run_jobs();
            }
        }
        let busy = checked(&db);
        assert!(busy.cache_bytes <= idle.cache_bytes - BUDGET / 16, "{busy:?}");
    }
    db.verify().unwrap();
}

/// Of a memtable of small values, more than a third is an index outside of the regions. So some regions that a memtable of
/// large values has left are kept, and not reused by it.
#[test]
fn regions_that_are_kept_for_the_next_memtable_are_not_the_caches() {
    let mut rng = Rng::with_seed(vars::seed());
    let (env, db) = filled(&mut rng);
    for turn in 0..2 {
        leave_alone(&env, &db);
        get_all(&db);
        put(&db, turn * 400..(turn + 1) * 400, &[b'v'; 1000]);
        db.flush().unwrap();
        let before = checked_but_for(&db, REGION);
        assert!(before.memtable_bytes > 12 * REGION, "what was flushed is kept: {before:?}");
        let mut next = 0;
        while next < 5000 {
            let burst = rng.u64(1..500);
            put(&db, next..next + burst, b"");
            next += burst;
            get_some(&db, &mut rng);
            checked_but_for(&db, REGION);
        }
        let after = checked_but_for(&db, REGION);
        assert!(after.memtable_bytes > before.memtable_bytes + 2 * REGION, "{after:?}");
    }
}

/// A store of separated values and small ones, more than fits into memory.
fn filled_with_separated(rng: &mut Rng, count: u64) -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(rng.u64(..));
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(MEMORY).separate_at(500);
    let db = options.open(DIR).unwrap();
    put(&db, 0..count, &[b's'; 1000]);
    put(&db, count..2 * count, &[b'v'; 100]);
    leave_alone(&env, &db);
    (env, db)
}

#[test]
fn cached_values_give_way_to_memtables_and_blocks() {
    let mut rng = Rng::with_seed(vars::seed());
    let count = 8_000;
    let (env, db) = filled_with_separated(&mut rng, count);
    let partition = db.default_partition();
    let get = |n: u64| drop(partition.get(key(n)).unwrap().unwrap());
    for turn in 0..3 {
        (0..count).for_each(get);
        let full = checked(&db);
        assert!(full.value_cache_bytes > BUDGET / 16, "{full:?}");
        if turn == 0 {
            assert!(full.value_cache_bytes > BUDGET / 4, "blocks use little: {full:?}");
        }
        // Blocks of small values are read among the others.
        for _ in 0..4_000 {
            get(rng.u64(..2 * count));
            if rng.u8(..50) == 0 {
                checked(&db);
            }
        }
        let mut next = 2 * count;
        while next < 2 * count + 8_000 {
            let burst = rng.u64(1..200);
            put(&db, next..next + burst, &[b'v'; 100]);
            next += burst;
            checked(&db);
            (0..rng.u64(..100)).for_each(|_| get(rng.u64(..2 * count)));
            if rng.u8(..20) == 0 {
                env.run_jobs();
            }
        }
        let busy = checked(&db);
        let caches = |stats: &Stats| stats.cache_bytes + stats.value_cache_bytes;
        assert!(caches(&busy) < caches(&full), "{busy:?}");
        leave_alone(&env, &db);
    }
    db.verify().unwrap();
}

#[test]
fn point_reads_fill_the_cache_of_values_and_scans_do_not() {
    let mut rng = Rng::with_seed(vars::seed());
    let (_env, db) = filled_with_separated(&mut rng, 1_000);
    let partition = db.default_partition();
    let reads = || db.stats().value_reads;
    assert_eq!(partition.iter().map(Result::unwrap).count(), 2_000);
    let uncached = ReadOptions::new().fill_cache(false);
    assert!(partition.get_with(key(1), &uncached).unwrap().is_some());
    assert_eq!(db.stats().value_cache_bytes, 0, "neither admits a value");
    let before = reads();
    assert!(partition.get(key(1)).unwrap().is_some());
    assert_eq!(partition.get_many([key(2), key(3), key(1)]).unwrap().iter().flatten().count(), 3);
    assert!(block_on(partition.get_async(key(4))).unwrap().is_some());
    assert_eq!(reads() - before, 4);
    let bytes = db.stats().value_cache_bytes;
    assert!((4_000..=5_000).contains(&bytes), "{bytes} bytes for four values of 1000");
    for n in 1..=4 {
        assert_eq!(partition.get(key(n)).unwrap().unwrap()[..], [b's'; 1000]);
        assert_eq!(block_on(partition.get_async(key(n))).unwrap().unwrap()[..], [b's'; 1000]);
    }
    assert_eq!(partition.get_many((1..=4).map(key)).unwrap().len(), 4);
    assert_eq!(reads() - before, 4, "all were cached");
    // A new value of the key is another value.
    partition.put(key(1), [b'n'; 1000]).unwrap();
    db.flush().unwrap();
    assert_eq!(partition.get(key(1)).unwrap().unwrap()[..], [b'n'; 1000]);
    partition.iter().fill_cache().for_each(|entry| drop(entry.unwrap()));
    assert!(db.stats().value_cache_bytes > 500_000);
}
