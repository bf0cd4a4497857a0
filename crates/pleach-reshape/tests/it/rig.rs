//! The rig: stores over the model whose map is on a simulated disk, random actions, and what a map holds after them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use pleach::env::SimEnv;
use pleach_reshape::store::model::{Call, Failure, ModelStore};
use pleach_reshape::testing::set_thread_number;
pub(crate) use pleach_reshape::testing::variable;
use pleach_reshape::{MapPlace, Options, Reshaped, Stripes, Update};

/// Where the map is on the simulated disk.
pub(crate) const DIR: &str = "/map";

/// Writes come as if from so many threads.
const THREADS: usize = 4;
/// Some keys end with it.
const LONG: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
/// Of the keys with so many numbers, those that are not there are looked for too.
const ABSENT_KEYS: u64 = 64;

/// What the model calls.
pub(crate) type Hook = Arc<dyn Fn(Call) + Send + Sync>;

/// What a store holds.
pub(crate) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// The first seed of random tests.
pub(crate) fn seed() -> u64 {
    variable("PLEACH_SEED", 1)
}

/// Small options, drawn by seed.
pub(crate) fn options(env: &Arc<SimEnv>, rng: &mut fastrand::Rng) -> Options {
    let stripes = match rng.u8(..3) {
        0 => Stripes::One,
        1 => Stripes::Ranges(rng.usize(1..4)),
        _ => Stripes::Tables(rng.usize(1..4)),
    };
    let update = any_update(rng);
    let place = any_place(rng);
    let map = pleach::Options::new().memory(2 << 20).memtable_bytes(32 << 10).sst_bytes(8 << 10);
    Options::new()
        .env(Arc::<SimEnv>::clone(env))
        .background(false)
        .stripes(stripes)
        .sequence_bits(if rng.bool() { 56 } else { 11 })
        .update(update)
        .map(place)
        .map_options(map)
        .moves(rng.usize(100..4000), rng.usize(1..20))
        .replaced_rows(rng.usize(1..30))
        .row_cache_bytes([0, 50_000, 32 << 20][rng.usize(..3)])
        .delta_bytes([1, 2000, 32 << 20][rng.usize(..3)])
}

pub(crate) fn any_update(rng: &mut fastrand::Rng) -> Update {
    [Update::InPlace, Update::Replace, Update::Defer][rng.usize(..3)]
}

/// Where a map may be.
pub(crate) fn any_place(rng: &mut fastrand::Rng) -> MapPlace {
    if rng.bool() { MapPlace::Memory } else { MapPlace::Disk }
}

pub(crate) fn open(store: &ModelStore, options: &Options) -> Reshaped {
    options.clone().open(Box::new(store.clone()), Path::new(DIR)).unwrap()
}

/// One of about `count` keys.
pub(crate) fn key(rng: &mut fastrand::Rng, count: u64) -> Vec<u8> {
    let number = rng.u64(..count);
    let mut key = alike(number * 7 % count).into_bytes();
    if number.is_multiple_of(5) {
        key.extend(LONG.bytes());
    }
    key
}

/// A key that begins with a number. Of 16 keys in a row the first 8 have two fingerprints, so that runs often take one for
/// another (`map/runs.rs`).
fn alike(number: u64) -> String {
    static KEYS: OnceLock<Vec<String>> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let mut keys: Vec<String> = Vec::new();
        for number in 0..256_usize {
            let plain = format!("{number:03}");
            let like = (number % 16 < 8 && number % 4 != 0).then(|| fingerprint(&keys[number / 4 * 4]));
            let mut tries = (0..).map(|suffix| format!("{plain}{suffix}"));
            let found = like.and_then(|like| tries.find(|key| fingerprint(key) == like));
            keys.push(found.unwrap_or(plain));
        }
        keys
    });
    usize::try_from(number)
        .ok()
        .and_then(|number| keys.get(number))
        .cloned()
        .unwrap_or_else(|| number.to_string())
}

/// What runs know of a key. Other keys of the tests that end with x have others, which is as well.
fn fingerprint(key: &str) -> u16 {
    let [_, _, lower, upper, ..] = xxhash_rust::xxh3::xxh3_64(key.as_bytes()).to_le_bytes();
    u16::from_le_bytes([lower, upper])
}

pub(crate) fn value(rng: &mut fastrand::Rng) -> Vec<u8> {
    let len = rng.usize(..60);
    (0..len).map(|_| rng.u8(..)).collect()
}

/// All pairs, read in every way.
pub(crate) fn contents(store: &Reshaped) -> Contents {
    let pairs: Contents = store.all().unwrap().map(Result::unwrap).collect();
    let back: Contents = store.all().unwrap().rev().map(Result::unwrap).collect();
    assert_eq!(pairs, back, "both ends");
    pairs
}

/// Asserts that a store holds exactly this, whichever way it is read.
pub(crate) fn assert_contents(store: &Reshaped, expected: &Contents, context: &str) {
    let found = contents(store);
    assert_eq!(describe(&found), describe(expected), "{context}");
    for (key, value) in expected {
        assert_eq!(store.get(key).unwrap().as_ref(), Some(value), "{context}");
    }
    for number in 0..ABSENT_KEYS {
        for key in [alike(number), format!("{}{LONG}", alike(number))] {
            let is_there = expected.contains_key(key.as_bytes());
            assert!(is_there || store.get(&key).unwrap().is_none(), "{context}: {key}");
        }
    }
    let report = store.verify().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(report.keys, expected.len() as u64, "{context}");
}

fn describe(contents: &Contents) -> Vec<String> {
    let describe =
        |(key, value): (&Vec<u8>, &Vec<u8>)| format!("{} {value:02x?}", String::from_utf8_lossy(key));
    contents.iter().map(describe).collect()
}

/// Reclusters all rows, and lets a commit on the way fail if `fails_at` counts down to it, so that rows are left in two
/// generations. `hook` is what the rows' store calls anyway. Whether the store still takes writes.
pub(crate) fn recluster(
    store: &Reshaped,
    rows: &ModelStore,
    fails_at: Option<usize>,
    hook: Option<Hook>,
) -> bool {
    let Some(fails_at) = fails_at else {
        store.recluster::<&[u8]>(..).unwrap();
        return true;
    };
    let (left, own, before) = (AtomicUsize::new(fails_at), rows.clone(), hook.clone());
    rows.on_call(Some(Arc::new(move |call| {
        if let Some(before) = &before {
            before(call);
        }
        if call == Call::Commit && left.fetch_sub(1, Ordering::SeqCst) == 0 {
            own.fail(Some(Failure::Commit));
        }
    })));
    let outcome = store.recluster::<&[u8]>(..);
    rows.on_call(hook);
    rows.fail(None);
    outcome.is_ok() || store.sync().is_ok()
}

/// Keys that begin with it are above all that [`key`] gives.
const UPPER: &[u8] = b"x";
/// Such keys of a store at most: some tests have ids for few rows.
const UPPER_KEYS_MAX: usize = 16;

/// Writes keys in a row above all others, in one transaction. Between two checkpoints they form a run of the map. If there are
/// enough of them, deletes them all instead.
pub(crate) fn write_in_order(store: &Reshaped, contents: &mut Contents, rng: &mut fastrand::Rng) {
    set_thread_number(rng.usize(..THREADS));
    let upper: Vec<_> = contents.range(UPPER.to_vec()..).map(|(key, _)| key.clone()).collect();
    let mut batch = store.batch();
    if upper.len() > UPPER_KEYS_MAX / 2 {
        for own in upper {
            batch.delete(&own);
            contents.remove(&own);
        }
    } else {
        let number = |key: &Vec<u8>| str::from_utf8(&key[UPPER.len()..]).unwrap().parse::<u64>().unwrap();
        // Those above it may have been deleted.
        let first = upper.last().map_or(0, number) + rng.u64(1..500);
        let bytes = value(rng);
        for number in first..first + rng.u64(6..=8) {
            let own = [UPPER, format!("{number:06}").as_bytes()].concat();
            batch.put(&own, &bytes);
            contents.insert(own, bytes.clone());
        }
    }
    batch.commit().unwrap();
}

/// One random write, to any stripe; what the store holds changes accordingly.
pub(crate) fn write(store: &Reshaped, contents: &mut Contents, keys: u64, rng: &mut fastrand::Rng) {
    set_thread_number(rng.usize(..THREADS));
    let (mut own, bytes) = (key(rng, keys), value(rng));
    let upper: Vec<_> = contents.range(UPPER.to_vec()..).map(|(key, _)| key).collect();
    if !upper.is_empty() && rng.u8(..8) == 0 {
        own.clone_from(upper[rng.usize(..upper.len())]);
    }
    match rng.u8(..10) {
        0..5 => {
            store.put(&own, &bytes).unwrap();
            contents.insert(own, bytes);
        }
        5 => {
            assert_eq!(store.put_new(&own, &bytes).unwrap(), !contents.contains_key(&own));
            contents.entry(own).or_insert(bytes);
        }
        6..8 => {
            store.delete(&own).unwrap();
            contents.remove(&own);
        }
        _ => {
            let mut batch = store.batch();
            for _ in 0..rng.usize(1..6) {
                let (own, bytes) = (key(rng, keys), value(rng));
                if rng.u8(..3) == 0 {
                    batch.delete(&own);
                    contents.remove(&own);
                } else {
                    batch.put(&own, &bytes);
                    contents.insert(own, bytes);
                }
            }
            batch.commit().unwrap();
        }
    }
}
