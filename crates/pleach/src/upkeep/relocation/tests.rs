//! Relocation: space stays near its target, every value that a reader can see is moved, and nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pleach_env::SimEnv;
use pleach_log::parse_segment_name;

use crate::file_names::parse_values_name;
use crate::{Db, Options};

const VALUE_LEN: usize = 1000;
const KEYS: u64 = 400;

fn options(env: &Arc<SimEnv>) -> Options {
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(8 << 20).separate_at(100);
    options.memtable_bytes(64 << 10).sst_bytes(32 << 10).compaction_threads(1)
}

fn value(key: u64, round: u64) -> Vec<u8> {
    format!("{key:08}-{round:08}-").into_bytes().into_iter().cycle().take(VALUE_LEN).collect()
}

fn name(key: u64) -> String {
    format!("{key:08}")
}

/// A map of what the store is to hold.
type Model = BTreeMap<u64, u64>;

fn put(db: &Db, model: &mut Model, key: u64, round: u64) {
    db.default_partition().put(name(key), value(key, round)).unwrap();
    model.insert(key, round);
}

fn check(db: &Db, model: &Model) {
    for key in 0..KEYS {
        let expected = model.get(&key).map(|round| value(key, *round));
        assert_eq!(db.default_partition().get(name(key)).unwrap().as_deref(), expected.as_deref());
    }
    assert_eq!(db.default_partition().iter().count(), model.len());
    db.verify().unwrap();
}

/// Overwrites keys at random, some of them often, and deletes some.
fn churn(db: &Db, model: &mut Model, rng: &mut fastrand::Rng, writes: u64) {
    for round in 0..writes {
        let key = if rng.bool() { rng.u64(..KEYS) } else { rng.u64(..KEYS / 10) };
        if rng.u8(..20) == 0 {
            db.default_partition().delete(name(key)).unwrap();
            model.remove(&key);
        } else {
            put(db, model, key, round);
        }
    }
}

#[test]
fn space_stays_near_its_target_while_values_are_overwritten() {
    for (target, percent) in [(1.1, 110), (1.3, 130), (2.0, 200)] {
        let env = SimEnv::new(1);
        let db = options(&env).space_target(target).open("/store").unwrap();
        let (mut model, mut rng) = (Model::new(), fastrand::Rng::with_seed(7));
        (0..KEYS).for_each(|key| put(&db, &mut model, key, 0));
        for _ in 0..8 {
            churn(&db, &mut model, &mut rng, 2 * KEYS);
            db.settle().unwrap();
            let stats = db.stats();
            let live = (model.len() * VALUE_LEN) as u64;
            let allowed = (percent + 8) * live / 100 + (64 << 10);
            let files = stats.value_file_bytes;
            assert!(files <= allowed, "{files} bytes for {live} at {target}, not {allowed}");
        }
        assert!(db.stats().value_moved_bytes > 0);
        check(&db, &model);
        drop(db);
        check(&options(&env).open("/store").unwrap(), &model);
    }
}

#[test]
fn a_store_that_is_opened_with_a_lower_target_is_cleaned_at_once() {
    let env = SimEnv::new(1);
    let db = options(&env).space_target(4.0).open("/store").unwrap();
    let (mut model, mut rng) = (Model::new(), fastrand::Rng::with_seed(7));
    (0..KEYS).for_each(|key| put(&db, &mut model, key, 0));
    churn(&db, &mut model, &mut rng, 2 * KEYS);
    db.flush().unwrap();
    db.settle().unwrap();
    let before = db.stats().value_file_bytes;
    drop(db);
    let db = options(&env).space_target(1.1).open("/store").unwrap();
    db.settle().unwrap();
    let after = db.stats().value_file_bytes;
    assert!(after < before * 8 / 10, "{before} bytes before, {after} after");
    check(&db, &model);
}

#[test]
fn a_snapshot_reads_old_values_and_their_files_go_with_it() {
    let env = SimEnv::new(1);
    let db = options(&env).open("/store").unwrap();
    let (mut model, mut rng) = (Model::new(), fastrand::Rng::with_seed(7));
    (0..KEYS).for_each(|key| put(&db, &mut model, key, 0));
    db.settle().unwrap();
    let (snapshot, before) = (db.snapshot(), model.clone());
    churn(&db, &mut model, &mut rng, 6 * KEYS);
    db.settle().unwrap();
    assert!(db.stats().value_moved_bytes > 0 && db.stats().pinned_bytes > 0);
    for (key, round) in before {
        let found = snapshot.get(&db.default_partition(), name(key)).unwrap();
        assert_eq!(found.as_deref(), Some(&value(key, round)[..]));
    }
    drop(snapshot);
    db.inner().version_set.remove_obsolete();
    assert_eq!(db.stats().pinned_bytes, 0);
    let named = usize::try_from(db.stats().value_files).unwrap();
    let names = env.file_names(Path::new("/store"));
    let of_log = db.inner().version_set.record_files.lock().segments.len();
    let holds_values =
        |name: &&String| parse_values_name(name).is_some() || parse_segment_name(name).is_some();
    let values = names.iter().filter(holds_values).count();
    assert!(values <= named + of_log, "{names:?} for {named} files of values");
    check(&db, &model);
}

/// Deletes hide all values of old files, but no merge has removed the pointers to them.
#[test]
fn files_of_which_nothing_is_left_go_without_a_copy() {
    let env = SimEnv::new(1);
    let db = options(&env).runs_per_stage(64).open("/store").unwrap();
    let mut model = Model::new();
    (0..KEYS).for_each(|key| put(&db, &mut model, key, 0));
    db.flush().unwrap();
    let files = db.stats().value_file_bytes;
    for key in 0..KEYS {
        db.default_partition().delete(name(key)).unwrap();
        model.remove(&key);
    }
    put(&db, &mut model, 7, 1);
    db.settle().unwrap();
    let stats = db.stats();
    assert!(stats.value_file_bytes < files / 10, "{} of {files} bytes", stats.value_file_bytes);
    check(&db, &model);
    drop(db);
    check(&options(&env).open("/store").unwrap(), &model);
}
