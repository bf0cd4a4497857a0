//! The memory budget: what memtables do not hold is the cache's, until they need it.

use std::sync::Arc;
use std::time::Duration;

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

fn put(db: &Db, keys: std::ops::Range<u64>) {
    let partition = db.default_partition();
    for i in keys {
        partition.put(key(i), [b'v'; 100]).unwrap();
    }
}

/// Checks that the budget holds.
fn checked(db: &Db) -> Stats {
    let stats = db.stats();
    let used = stats.cache_bytes + stats.index_filter_bytes + stats.memtable_bytes;
    assert!(used <= BUDGET + EXCESS_MAX, "{used} bytes of {BUDGET}: {stats:?}");
    stats
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
    let mut rng = fastrand::Rng::with_seed(vars::seed());
    let env = SimEnv::new(rng.u64(..));
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(MEMORY);
    let db = options.open(DIR).unwrap();
    put(&db, 0..KEYS);
    let reads = db.default_partition();
    let mut next = 0;
    for _ in 0..4 {
        leave_alone(&env, &db);
        for i in 0..KEYS {
            assert!(reads.get(key(i)).unwrap().is_some());
        }
        let idle = checked(&db);
        assert!(idle.cache_bytes > LEFT_BY_FULL_MEMTABLES + 3 * BUDGET / 16, "{idle:?}");
        // Up to four memtables, with reads between them.
        let end = next + rng.u64(3000..10_000);
        while next < end {
            let burst = rng.u64(1..200);
            put(&db, next..next + burst);
            next += burst;
            checked(&db);
            for _ in 0..rng.u64(..200) {
                assert!(reads.get(key(rng.u64(..KEYS))).unwrap().is_some());
            }
            if rng.u8(..20) == 0 {
                env.run_jobs();
            }
        }
        let busy = checked(&db);
        assert!(busy.cache_bytes <= idle.cache_bytes - BUDGET / 16, "{busy:?}");
    }
    db.verify().unwrap();
}
