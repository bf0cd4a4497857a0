//! Pace: the write budget of compactions, in the simulated machine's time.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use pleach::env::{Env, SimEnv};
use pleach::{Db, Options};

use super::{Model, check, put_random};
use crate::rig::setup::DIR;

const BYTES_PER_SECOND: u64 = 100_000;

fn open(env: &Arc<SimEnv>) -> Db {
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(1 << 20).memtable_bytes(32 << 10);
    options.sst_bytes(16 << 10).compaction_bytes_per_second(BYTES_PER_SECOND).open(DIR).unwrap()
}

/// A store whose garbage is due to be merged, but not so late that writers are slowed down.
fn store(env: &Arc<SimEnv>) -> (Db, Model) {
    let (db, mut model) = (open(env), Model::new());
    let rng = &mut Rng::with_seed(1);
    put_random(&db, &mut model, rng, (10_000, 2000));
    db.compact().unwrap();
    put_random(&db, &mut model, rng, (700, 2000));
    db.flush().unwrap();
    (db, model)
}

/// How long `work` takes, and how much compactions write meanwhile.
fn cost(env: &SimEnv, db: &Db, work: impl FnOnce()) -> (Duration, u64) {
    let (written, started) = (db.stats().compaction_written_bytes, env.now());
    work();
    (env.now().saturating_sub(started), db.stats().compaction_written_bytes - written)
}

#[test]
fn compactions_keep_to_their_budget() {
    let env = SimEnv::new(1);
    let (db, model) = store(&env);
    let (took, written) = cost(&env, &db, || env.run_jobs());
    assert!(written > 200_000, "everything was merged: {written} bytes");
    let due = Duration::from_secs(written) / u32::try_from(BYTES_PER_SECOND).unwrap();
    assert!(took > due * 3 / 4 && took < due * 5 / 4, "{written} bytes took {took:?}");
    check(&db, &model, "paced");
}

#[test]
fn a_thread_that_waits_lifts_the_budget() {
    let env = SimEnv::new(1);
    let (db, model) = store(&env);
    let (took, written) = cost(&env, &db, || db.settle().unwrap());
    assert!(written > 200_000, "everything was merged: {written} bytes");
    assert!(took < Duration::from_millis(100), "{written} bytes took {took:?}");
    check(&db, &model, "hurried");
}
