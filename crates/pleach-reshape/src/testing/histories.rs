//! Checks by histories: writers of several threads, and random calls against ordered maps.

use std::collections::BTreeMap;
use std::thread;

use fastrand::Rng;

use super::{Open, all_rows, at, commit, opened, pattern, put, row_in, row_of, rows_in};
use crate::store::{Change, Durability, RowSnapshot, RowStore, Table};

pub(super) fn writers_lose_nothing(open: &Open) {
    let store = opened(open);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &*store;
            scope.spawn(move || {
                store.create_table(Table(writer)).expect("a table");
                store.create_table(Table(1000)).expect("a table that others make at the same time");
                for id in 0..TRANSACTIONS {
                    let row = written(writer, id);
                    // A row of its own, one in a table of all, one that all write, and a value that all write.
                    let changes = [
                        put(at(writer, id), &row),
                        put(at(1000, id << 16 | u64::from(writer)), &row),
                        put(at(1000, u64::MAX), &row),
                        Change::SetMeta { name: "last", value: &row },
                    ];
                    commit(store, &changes);
                    assert_eq!(row_of(store, at(writer, id)).as_ref(), Some(&row));
                }
            });
        }
    });
    check_writers(&*store);
    store.sync().expect("a sync");
    let last = store.meta("last").expect("a read");
    drop(store);
    let store = opened(open);
    check_writers(&*store);
    assert_eq!(store.meta("last").expect("a read"), last, "an open puts transactions into another order");
}

const WRITERS: u16 = 8;
const TRANSACTIONS: u64 = 150;

/// The row of a writer's transaction, unlike all others.
fn written(writer: u16, id: u64) -> Vec<u8> {
    pattern(id << 16 | u64::from(writer), 100)
}

fn check_writers(store: &dyn RowStore) {
    for writer in 0..WRITERS {
        let expected: BTreeMap<_, _> = (0..TRANSACTIONS).map(|id| (id, written(writer, id))).collect();
        assert_eq!(all_rows(store, writer), expected);
    }
    let shared = all_rows(store, 1000);
    assert_eq!(shared.len() as u64, u64::from(WRITERS) * TRANSACTIONS + 1);
    assert!(shared.iter().all(|(id, row)| *id == u64::MAX || *row == pattern(*id, 100)));
    assert_eq!(
        store.meta("last").expect("a read").as_ref(),
        shared.get(&u64::MAX),
        "both by the same transaction"
    );
}

const TABLES: u16 = 3;
const IDS: u64 = 60;

type Rows = BTreeMap<(u16, u64), Vec<u8>>;

pub(super) fn answers_are_those_of_a_map(open: &Open) {
    let mut random = Rng::with_seed(7);
    let mut rows = Rows::new();
    for _ in 0..4 {
        let store = opened(open);
        for table in 0..TABLES {
            store.create_table(Table(table)).expect("a table");
        }
        live(&*store, &mut rows, &mut random);
        store.sync().expect("a sync");
    }
}

/// One life of a store.
fn live(store: &dyn RowStore, rows: &mut Rows, random: &mut Rng) {
    let mut held: Vec<(Box<dyn RowSnapshot + '_>, Rows)> = Vec::new();
    for _ in 0..600 {
        match random.u8(..10) {
            0..6 => transaction(store, rows, random),
            6 if held.len() < 5 => held.push((store.snapshot().expect("a snapshot"), rows.clone())),
            7 if !held.is_empty() => drop(held.swap_remove(random.usize(..held.len()))),
            8 if held.is_empty() => {
                let table = random.u16(..TABLES);
                store.drop_table(Table(table)).expect("a removal");
                store.create_table(Table(table)).expect("a table");
                rows.retain(|(there, _), _| *there != table);
            }
            _ => {
                let place = (random.u16(..TABLES), random.u64(..IDS));
                assert_eq!(row_of(store, at(place.0, place.1)).as_ref(), rows.get(&place));
            }
        }
        if let Some((snapshot, then)) = held.last_mut() {
            compare(&mut **snapshot, then, random);
        }
    }
    for (snapshot, then) in &mut held {
        compare(&mut **snapshot, then, random);
    }
    compare(&mut *store.snapshot().expect("a snapshot"), rows, random);
}

fn transaction(store: &dyn RowStore, rows: &mut Rows, random: &mut Rng) {
    let draw = |_| {
        let row = random.bool().then(|| pattern(random.u64(..), random.usize(..400)));
        ((random.u16(..TABLES), random.u64(..IDS)), row)
    };
    let drawn: Vec<_> = (0..5).map(draw).collect();
    let changes = drawn.iter().map(|((table, id), row)| match row {
        Some(row) => put(at(*table, *id), row),
        None => Change::Remove { place: at(*table, *id) },
    });
    let changes: Vec<_> = changes.take(random.usize(..=drawn.len())).collect();
    let durability = if random.u8(..30) == 0 { Durability::Sync } else { Durability::Buffered };
    store.commit(&changes, durability).expect("a commit");
    let count = changes.len();
    for (place, row) in drawn.into_iter().take(count) {
        match row {
            Some(row) => drop(rows.insert(place, row)),
            None => drop(rows.remove(&place)),
        }
    }
}

/// Compares a range, its last row and a row of a snapshot.
fn compare(snapshot: &mut dyn RowSnapshot, rows: &Rows, random: &mut Rng) {
    let (table, first, last) = (random.u16(..TABLES), random.u64(..IDS), random.u64(..IDS));
    let inside = rows.iter().filter(|((of, id), _)| *of == table && (first..=last).contains(id));
    let expected: Vec<_> = inside.map(|((_, id), row)| (*id, row.clone())).collect();
    assert_eq!(rows_in(snapshot, table, first, last), expected);
    let found = snapshot.last(Table(table), first, last).expect("a read");
    assert_eq!(found, expected.last().map(|(id, _)| *id));
    assert_eq!(row_in(snapshot, at(table, first)).as_ref(), rows.get(&(table, first)));
}
