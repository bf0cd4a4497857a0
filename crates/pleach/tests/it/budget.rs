//! The memory budget: what memtables do not hold is the cache's, until they need it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use pleach::env::{Env, SimEnv};
use pleach::{Db, Options, Stats};

use crate::rig::setup::DIR;
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
    let used = stats.cache_bytes + stats.index_filter_bytes + stats.memtable_bytes;
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
