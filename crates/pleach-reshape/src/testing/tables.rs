//! Checks of tables, and of opening a store again.

use super::{Open, all_rows, at, commit, opened, pattern, put, row_of, with_tables};
use crate::store::{Change, Durability, Table};

pub(super) fn made_and_removed(open: &Open) {
    {
        let store = with_tables(open, &[0, 500]);
        commit(&*store, &[put(at(0, 1), b"kept"), put(at(500, 1), b"lost")]);
        store.create_table(Table(0)).expect("it is there already");
        store.drop_table(Table(500)).expect("a removal");
        store.drop_table(Table(500)).expect("it is gone already");
        store.drop_table(Table(9)).expect("it was never there");
        assert_eq!(row_of(&*store, at(500, 1)), None, "a table that is not there has no rows");
        assert_eq!(all_rows(&*store, 500).len(), 0);
        assert_eq!(all_rows(&*store, 9).len(), 0);
        store.sync().expect("a sync");
    }
    {
        let store = opened(open);
        assert_eq!(row_of(&*store, at(500, 1)), None);
        store.create_table(Table(500)).expect("a table");
        assert_eq!(all_rows(&*store, 500).len(), 0, "a table that is made again is empty");
        commit(&*store, &[put(at(500, 0), b"new")]);
        store.sync().expect("a sync");
    }
    let store = opened(open);
    assert_eq!(row_of(&*store, at(0, 1)).as_deref(), Some(&b"kept"[..]));
    assert_eq!(row_of(&*store, at(500, 0)).as_deref(), Some(&b"new"[..]));
    assert_eq!(row_of(&*store, at(500, 1)), None);
    // Again and again, as generations of tables are, each with rows.
    for round in 0..20 {
        store.create_table(Table(3)).expect("a table");
        let rows: Vec<_> = (0..100).map(|id| pattern(id + round, 300)).collect();
        let puts: Vec<_> = (0..).zip(&rows).map(|(id, row)| put(at(3, id), row)).collect();
        commit(&*store, &puts);
        assert_eq!(all_rows(&*store, 3).len(), 100);
        store.drop_table(Table(3)).expect("a removal");
    }
}

/// As all rows of a reshaped store move: each transaction appends rows to another table and writes a named value, and the table
/// that they had is removed whole, several times.
pub(super) fn moved_to_another(open: &Open) {
    const ROWS: u64 = 4000;
    let rows: Vec<_> = (0..ROWS).map(|id| pattern(id, 150)).collect();
    for generation in 0..4_u16 {
        let (from, to) = (generation % 2, (generation + 1) % 2);
        let store = opened(open);
        if generation == 0 {
            store.create_table(Table(from)).expect("a table");
            let puts: Vec<_> = (0..).zip(&rows).map(|(id, row)| put(at(from, id), row)).collect();
            commit(&*store, &puts);
        }
        store.create_clustered_table(Table(to)).expect("a table");
        let before = store.snapshot().expect("a snapshot");
        for first in (0..ROWS).step_by(100) {
            let edge = (first + 100).to_string();
            let mut changes = vec![Change::SetMeta { name: "edge", value: edge.as_bytes() }];
            // The other way round each time: a row's id is no row's of the table before.
            changes.extend((first..first + 100).map(|id| {
                let of = if generation % 2 == 0 { ROWS - 1 - id } else { id };
                put(at(to, id), &rows[usize::try_from(of).expect("few")])
            }));
            commit(&*store, &changes);
            assert_eq!(store.meta("edge").expect("a read"), Some(edge.into_bytes()));
        }
        drop(before);
        assert_eq!(all_rows(&*store, from).len(), rows.len());
        store.sync().expect("a sync");
        store.drop_table(Table(from)).expect("a removal");
        let found = all_rows(&*store, to);
        assert_eq!((found.len(), all_rows(&*store, from).len()), (rows.len(), 0));
        let first = if generation % 2 == 0 { rows.last() } else { rows.first() };
        assert_eq!(found.get(&0), first);
        store.sync().expect("a sync");
    }
}

pub(super) fn do_not_mix(open: &Open) {
    let tables: Vec<u16> = (0..16).chain([255, 256, 4095, u16::MAX]).collect();
    let store = with_tables(open, &tables);
    let rows: Vec<_> = tables.iter().map(|table| pattern(u64::from(*table), 20)).collect();
    let puts: Vec<_> = tables.iter().zip(&rows).map(|(table, row)| put(at(*table, 1), row)).collect();
    commit(&*store, &puts);
    for (table, row) in tables.iter().zip(rows) {
        assert_eq!(all_rows(&*store, *table).into_iter().collect::<Vec<_>>(), [(1, row)]);
    }
}

pub(super) fn not_opened_twice(open: &Open) {
    let store = with_tables(open, &[0]);
    commit(&*store, &[put(at(0, 1), b"one")]);
    let error = open().expect_err("the store is open");
    assert!(error.to_string().contains("in use"), "the error says why: {error}");
    assert_eq!(row_of(&*store, at(0, 1)).as_deref(), Some(&b"one"[..]));
}

pub(super) fn synced_is_there(open: &Open) {
    for life in 0..5_u64 {
        let store = with_tables(open, &[0]);
        for id in 0..life * 10 {
            assert_eq!(row_of(&*store, at(0, id)), Some(pattern(id, 80)), "row {id} in life {life}");
            assert_eq!(store.meta("count").expect("a read"), Some((life * 10).to_string().into_bytes()));
        }
        for id in life * 10..(life + 1) * 10 {
            let (row, count) = (pattern(id, 80), (id + 1).to_string());
            let changes = [put(at(0, id), &row), Change::SetMeta { name: "count", value: count.as_bytes() }];
            // In one life each commit is synced, in the next all of them at last.
            let durability = if life % 2 == 0 { Durability::Sync } else { Durability::Buffered };
            store.commit(&changes, durability).expect("a commit");
        }
        if life % 2 == 1 {
            store.sync().expect("a sync");
        }
    }
}
