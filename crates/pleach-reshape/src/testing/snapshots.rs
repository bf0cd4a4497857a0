//! Checks of snapshots and of what is visible when.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::{Open, at, commit, pattern, put, row_in, row_of, rows_in, with_tables};
use crate::store::{Change, RowStore, Table};

pub(super) fn stay(open: &Open) {
    let store = with_tables(open, &[0]);
    let mut held = Vec::new();
    // Snapshot number n is taken when rows 0 to 9 have value n, and rows below n are removed.
    for round in 0..10_u64 {
        let row = pattern(round, 1000);
        let mut changes: Vec<_> = (0..10).map(|id| put(at(0, id), &row)).collect();
        changes.extend((0..round).map(|id| Change::Remove { place: at(0, id) }));
        commit(&*store, &changes);
        held.push(store.snapshot().expect("a snapshot"));
    }
    let removals: Vec<_> = (0..10).map(|id| Change::Remove { place: at(0, id) }).collect();
    commit(&*store, &removals);
    for round in 0..200 {
        commit(&*store, &[put(at(0, 100 + round), &pattern(round, 1000))]);
    }
    store.sync().expect("a sync");
    for (round, snapshot) in (0..).zip(&mut held) {
        let expected: Vec<_> = (round..10).map(|id| (id, pattern(round, 1000))).collect();
        assert!(rows_in(&mut **snapshot, 0, 0, u64::MAX) == expected, "snapshot {round}");
        assert_eq!(row_in(&mut **snapshot, at(0, 9)), Some(pattern(round, 1000)));
        assert_eq!(row_in(&mut **snapshot, at(0, 100)), None);
        assert_eq!(snapshot.last(Table(0), 0, u64::MAX).expect("a read"), Some(9));
    }
    // They end in any order.
    while !held.is_empty() {
        drop(held.swap_remove(held.len() / 2));
        commit(&*store, &[put(at(0, 50), b"")]);
    }
}

pub(super) fn outlive_changes_of_tables(open: &Open) {
    let store = with_tables(open, &[0, 1]);
    commit(&*store, &[put(at(0, 1), b"kept"), put(at(1, 1), b"lost")]);
    let mut snapshot = store.snapshot().expect("a snapshot");
    store.create_table(Table(2)).expect("a table");
    commit(&*store, &[put(at(2, 1), b"new")]);
    assert_eq!(row_in(&mut *snapshot, at(2, 1)), None, "a table that was not there has no rows");
    store.drop_table(Table(1)).expect("a removal of a table that the snapshot does not use");
    store.create_table(Table(3)).expect("a table");
    commit(&*store, &[put(at(3, 1), b"new"), put(at(0, 1), b"changed")]);
    assert_eq!(row_in(&mut *snapshot, at(0, 1)).as_deref(), Some(&b"kept"[..]));
    assert_eq!(row_in(&mut *snapshot, at(3, 1)), None);
    assert_eq!(row_of(&*store, at(3, 1)).as_deref(), Some(&b"new"[..]));
    assert_eq!(row_of(&*store, at(0, 1)).as_deref(), Some(&b"changed"[..]));
}

pub(super) fn go_to_threads(open: &Open) {
    let store = with_tables(open, &[0]);
    for round in 0..20_u64 {
        commit(&*store, &[put(at(0, 1), &pattern(round, 100)), put(at(0, 2 + round), b"")]);
        let mut snapshots: Vec<_> = (0..4).map(|_| store.snapshot().expect("a snapshot")).collect();
        thread::scope(|scope| {
            for mut snapshot in snapshots.drain(1..) {
                scope.spawn(move || {
                    assert_eq!(row_in(&mut *snapshot, at(0, 1)), Some(pattern(round, 100)));
                    assert_eq!(snapshot.last(Table(0), 0, u64::MAX).expect("a read"), Some(2 + round));
                    // Back to where it was made, or dropped here.
                    (round % 2 == 0).then_some(snapshot)
                });
            }
            commit(&*store, &[put(at(0, 1), b"later"), put(at(0, 1000), b"")]);
            commit(&*store, &[Change::Remove { place: at(0, 1000) }]);
            assert_eq!(row_in(&mut *snapshots[0], at(0, 1)), Some(pattern(round, 100)));
        });
    }
}

/// Rows of a transaction in [`show_no_halves`], in two tables.
const ROWS: u64 = 8;

fn version(store: &dyn RowStore, number: u64) {
    let row = number.to_string().into_bytes();
    let tables = (0..ROWS).map(|id| u16::from(id % 2 == 1));
    let mut changes: Vec<_> = tables.zip(0..).map(|(table, id)| put(at(table, id), &row)).collect();
    changes.push(Change::SetMeta { name: "version", value: &row });
    commit(store, &changes);
}

/// Sets a flag when it is dropped.
struct Done<'f>(&'f AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) fn show_no_halves(open: &Open) {
    let store = with_tables(open, &[0, 1]);
    version(&*store, 0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    let mut snapshot = store.snapshot().expect("a snapshot");
                    let first = row_in(&mut *snapshot, at(0, 0)).expect("it is always there");
                    for table in 0..2 {
                        let rows = rows_in(&mut *snapshot, table, 0, u64::MAX);
                        assert_eq!(rows.len() as u64, ROWS / 2);
                        assert!(rows.iter().all(|(_, row)| *row == first), "half a transaction is seen");
                    }
                    let order = (first.len(), first);
                    assert!(
                        last.is_empty() || (last.len(), last) <= order,
                        "an older state is seen after a newer one"
                    );
                    last = order.1;
                }
            });
        }
        // Also if a commit panics.
        let _at_the_end = Done(&done);
        for number in 1..300 {
            version(&*store, number);
        }
    });
}

pub(super) fn reads_see_commits(open: &Open) {
    const LAST: u64 = 1000;
    let store = with_tables(open, &[0]);
    let (committed, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for reader in 0..3 {
            let (store, committed, done) = (&store, &committed, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let seen = committed.load(Ordering::Acquire);
                    if seen > 0 {
                        let row = if reader == 0 {
                            row_in(&mut *store.snapshot().expect("a snapshot"), at(0, seen))
                        } else {
                            row_of(&**store, at(0, seen))
                        };
                        assert_eq!(row.as_deref(), Some(seen.to_string().as_bytes()));
                        let count =
                            store.meta("count").expect("a read").expect("it was written with the first row");
                        let count: u64 = String::from_utf8_lossy(&count).parse().expect("a number");
                        assert!(count >= seen, "{count} after {seen}");
                    }
                }
            });
        }
        let _at_the_end = Done(&done);
        for id in 1..=LAST {
            let text = id.to_string();
            commit(
                &*store,
                &[put(at(0, id), text.as_bytes()), Change::SetMeta { name: "count", value: text.as_bytes() }],
            );
            committed.store(id, Ordering::Release);
        }
    });
}
