//! Ranges over runs of the map: their ends lie inside of runs, at rows that are there, are gone, or never were.

use std::ops::Bound;

use pleach_reshape::store::model::ModelStore;
use pleach_reshape::{Options, Reshaped};

use crate::rig::{Contents, recluster};

/// Why the rows of a store are in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// They were put so.
    OfPuts,
    /// A recluster has moved them.
    OfMoves,
}

/// What becomes of a store whose keys were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    Checkpoint,
    /// A recluster that ends in the middle.
    Recluster,
}

fn key(number: u32) -> Vec<u8> {
    format!("{number:03}").into_bytes()
}

fn reclustered(rows: &ModelStore, dir: &tempfile::TempDir, keys: impl Iterator<Item = Vec<u8>>) -> Reshaped {
    let options = Options::new().background(false).moves(1 << 20, 64);
    let store = options.open(Box::new(rows.clone()), dir.path()).unwrap();
    keys.for_each(|key| store.put(&key, &key).unwrap());
    store.recluster::<&[u8]>(..).unwrap();
    assert!(store.stats().has_runs);
    store
}

fn check(store: &Reshaped, contents: &Contents, bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>), entries: usize) {
    let expected = contents.range(bounds.clone());
    let range = || store.range(bounds.clone()).unwrap().expect_entries(entries);
    let up: Vec<_> = range().map(Result::unwrap).collect();
    assert!(up.iter().map(|(key, value)| (key, value)).eq(expected.clone()), "{bounds:?}");
    let down: Vec<_> = range().rev().map(Result::unwrap).collect();
    assert!(down.iter().map(|(key, value)| (key, value)).eq(expected.rev()), "{bounds:?} down");
}

fn in_order(rows: &ModelStore, dir: &tempfile::TempDir, keys: impl Iterator<Item = Vec<u8>>) -> Reshaped {
    let options = Options::new().background(false).moves(1 << 20, 64);
    let store = options.open(Box::new(rows.clone()), dir.path()).unwrap();
    keys.for_each(|key| store.put(&key, &key).unwrap());
    store.checkpoint().unwrap();
    assert!(store.stats().has_runs_of_writers);
    store
}

fn ranges_from_everywhere(order: Order, then: Then) {
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::new(false));
    // The odd numbers are keys that never were.
    let numbers = 0..300;
    let mut contents: Contents = numbers.clone().map(|number| (key(number * 2), key(number * 2))).collect();
    let store = match order {
        Order::OfPuts => in_order(&rows, &dir, numbers.map(|number| key(number * 2))),
        Order::OfMoves => reclustered(&rows, &dir, numbers.map(|number| key(number * 77 % 300 * 2))),
    };
    let gone = (0..600).filter(|number| number % 14 == 0 || (200..=260).contains(number) || *number > 580);
    for number in gone {
        store.delete(key(number)).unwrap();
        contents.remove(&key(number));
    }
    for number in [31, 32, 230] {
        store.put(key(number), "written again").unwrap();
        contents.insert(key(number), b"written again".to_vec());
    }
    match then {
        Then::Nothing => {}
        Then::Checkpoint => store.checkpoint().unwrap(),
        Then::Recluster => {
            recluster(&store, &rows, Some(3), None);
            assert!(store.stats().is_draining);
            store.delete(key(36)).unwrap();
            contents.remove(&key(36));
        }
    }
    for number in 0..602 {
        for lower in [Bound::Included(key(number)), Bound::Excluded(key(number))] {
            for upper in [Bound::Included(key(number + 9)), Bound::Excluded(key(number + 150))] {
                check(&store, &contents, (lower.clone(), upper), number as usize % 40);
            }
        }
    }
    check(&store, &contents, (Bound::Unbounded, Bound::Unbounded), 128);
}

#[test]
fn ranges_may_begin_and_end_anywhere_in_a_run() {
    for order in [Order::OfPuts, Order::OfMoves] {
        for then in [Then::Nothing, Then::Checkpoint, Then::Recluster] {
            ranges_from_everywhere(order, then);
        }
    }
}

/// Rows that a piece of work reads in scans.
fn scanned(rows: &ModelStore, work: impl FnOnce()) -> u64 {
    let before = rows.scanned_rows();
    work();
    rows.scanned_rows() - before
}

#[test]
fn a_range_reads_few_more_rows_than_it_shows() {
    const KEYS: u32 = 20_000;
    let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::without_history(false));
    let key = |number: u32| format!("{number:05}").into_bytes();
    let store = reclustered(&rows, &dir, (0..KEYS).map(key));
    let first = || store.all().unwrap().expect_entries(1).next_entry().unwrap().unwrap().0.to_vec();
    let last = || store.all().unwrap().expect_entries(1).next_back_entry().unwrap().unwrap().0.to_vec();
    assert!(scanned(&rows, || assert_eq!(first(), key(0))) < 20);
    assert!(scanned(&rows, || assert_eq!(last(), key(KEYS - 1))) < 20);
    let hundred = scanned(&rows, || {
        let range = store.range(key(1234)..).unwrap().expect_entries(100);
        assert_eq!(range.take(100).count(), 100);
    });
    assert!((100..120).contains(&hundred), "{hundred}");
    // Deletions of which the base knows nothing yet: its rows are gone, and the layers have an entry for each.
    for number in (0..KEYS / 2).chain(KEYS - 1000..KEYS) {
        store.delete(key(number)).unwrap();
    }
    let found = scanned(&rows, || assert_eq!(first(), key(KEYS / 2)));
    assert!(found < 1500, "{found}");
    let found = scanned(&rows, || assert_eq!(last(), key(KEYS - 1001)));
    assert!(found < 1000, "{found}");
    // And deletions of which single entries of the base say it, because rows were moving.
    let first_of = KEYS / 2 + 2000;
    recluster(&store, &rows, Some(100), None);
    assert!(store.stats().is_draining);
    for number in KEYS / 2..first_of {
        store.delete(key(number)).unwrap();
    }
    store.checkpoint().unwrap();
    let found = scanned(&rows, || assert_eq!(first(), key(first_of)));
    assert!(found < 6000, "{found}");
}
