//! Ranges whose ends lie inside of runs of the map, at rows that are there, are gone, or never were.

use std::ops::Bound;

use pleach_reshape::Options;
use pleach_reshape::store::model::ModelStore;

use crate::rig::Contents;

fn key(number: u32) -> Vec<u8> {
    format!("{number:03}").into_bytes()
}

#[test]
fn ranges_may_begin_and_end_anywhere_in_a_run() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    let options = Options::new().background(false).moves(1 << 20, 128);
    let store = options.open(Box::new(rows), dir.path()).unwrap();
    let mut contents = Contents::new();
    // The odd numbers are keys that never were.
    for number in (0..300).map(|number| number * 77 % 300 * 2) {
        store.put(key(number), number.to_string()).unwrap();
        contents.insert(key(number), number.to_string().into_bytes());
    }
    store.recluster::<&[u8]>(..).unwrap();
    assert!(store.stats().has_runs);
    let gone = (0..600).filter(|number| number % 14 == 0 || (200..=260).contains(number) || *number > 580);
    for number in gone {
        store.delete(key(number)).unwrap();
        contents.remove(&key(number));
    }
    for number in 0..602 {
        for lower in [Bound::Included(key(number)), Bound::Excluded(key(number))] {
            let (near, far) = (Bound::Included(key(number + 9)), Bound::Excluded(key(number + 150)));
            for upper in [near, far, Bound::Unbounded] {
                let bounds = (lower.clone(), upper);
                let expected: Vec<_> = contents.range(bounds.clone()).collect();
                let (up, down) = (store.range(bounds.clone()).unwrap(), store.range(bounds.clone()).unwrap());
                let entries = number as usize % 40;
                let up: Vec<_> = up.expect_entries(entries).map(Result::unwrap).collect();
                assert!(up.iter().map(|(key, value)| (key, value)).eq(expected.clone()), "{bounds:?}");
                let down: Vec<_> = down.expect_entries(entries).rev().map(Result::unwrap).collect();
                assert!(
                    down.iter().map(|(key, value)| (key, value)).eq(expected.into_iter().rev()),
                    "{bounds:?}"
                );
            }
        }
    }
}
