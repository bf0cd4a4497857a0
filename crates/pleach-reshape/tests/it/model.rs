//! Random actions of all kinds, compared with a map at every step.

use std::ops::Bound;

use pleach::env::SimEnv;
use pleach_reshape::store::model::ModelStore;

use crate::rig::{
    Contents, any_place, any_update, assert_contents, key, open, options, recluster, seed, variable, write,
    write_in_order,
};

#[test]
fn a_store_answers_as_a_map_does() {
    for case in 0..variable("PLEACH_CASES", 60) {
        let seed = seed() + case;
        println!("seed {seed}");
        run(seed);
    }
}

fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let env = SimEnv::new(seed);
    let rows = ModelStore::new(rng.bool());
    let mut options = options(&env, &mut rng);
    let mut store = open(&rows, &options);
    let mut contents = Contents::new();
    let keys = rng.u64(5..200);
    for _ in 0..12 {
        for _ in 0..rng.usize(..80) {
            write(&store, &mut contents, keys, &mut rng);
        }
        let before = contents.clone();
        let mut snapshot = store.snapshot().unwrap();
        let mut is_poisoned = false;
        for _ in 0..rng.usize(..60) {
            write(&store, &mut contents, keys, &mut rng);
            if rng.u8(..16) == 0 {
                store.checkpoint().unwrap();
                write_in_order(&store, &mut contents, &mut rng);
                store.checkpoint().unwrap();
            }
            if !maintain(&store, &rows, &mut rng) {
                is_poisoned = true;
                break;
            }
            reads(&store, &contents, keys, &mut rng);
        }
        let seen: Contents = snapshot.all().map(Result::unwrap).collect();
        assert_eq!(seen, before);
        let own = key(&mut rng, keys);
        assert_eq!(snapshot.get(&own).unwrap(), before.get(&own).cloned());
        drop(snapshot);
        assert_contents(&store, &contents, "after a round");
        if is_poisoned || rng.u8(..3) == 0 {
            if !is_poisoned && rng.bool() {
                store.close().unwrap();
            } else {
                drop(store);
            }
            options = options.clone().update(any_update(&mut rng)).map(any_place(&mut rng));
            store = open(&rows, &options);
            assert_contents(&store, &contents, "after an open");
        }
    }
    let exported: Contents = store.export().unwrap().map(Result::unwrap).collect();
    assert_eq!(exported, contents);
}

/// Whether the store still takes writes.
fn maintain(store: &pleach_reshape::Reshaped, rows: &ModelStore, rng: &mut fastrand::Rng) -> bool {
    match rng.u8(..40) {
        0 => store.checkpoint().unwrap(),
        1 => {
            let fails_at = rng.bool().then(|| rng.usize(..20));
            return recluster(store, rows, fails_at, None);
        }
        2 => drop(store.recluster(&b"02"[..]..&b"05"[..]).unwrap()),
        3 => store.drain().unwrap(),
        4 => drop(store.clean().unwrap()),
        5 => store.sync().unwrap(),
        _ => {}
    }
    true
}

fn reads(store: &pleach_reshape::Reshaped, contents: &Contents, keys: u64, rng: &mut fastrand::Rng) {
    let own = key(rng, keys);
    assert_eq!(store.get(&own).unwrap().as_ref(), contents.get(&own));
    let wanted: Vec<_> = (0..rng.usize(..5)).map(|_| key(rng, keys)).collect();
    let expected: Vec<_> = wanted.iter().map(|key| contents.get(key).cloned()).collect();
    assert_eq!(store.get_many(&wanted).unwrap(), expected);
    let (lower, upper) = (key(rng, keys), key(rng, keys));
    let bounds = (Bound::Included(lower.clone()), Bound::Excluded(upper.clone()));
    let mut found = store.range(bounds).unwrap().expect_entries(rng.usize(..8));
    let mut expected: std::collections::VecDeque<_> = if lower < upper {
        contents.range(lower..upper).map(|(key, value)| (key.clone(), value.clone())).collect()
    } else {
        std::collections::VecDeque::new()
    };
    for _ in 0..20 {
        let (found, expected) = if rng.bool() {
            (found.next(), expected.pop_front())
        } else {
            (found.next_back(), expected.pop_back())
        };
        assert_eq!(found.map(Result::unwrap), expected);
    }
}
