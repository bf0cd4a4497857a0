//! Checks of single calls: puts, removals, reads, scans, named values.

use super::{Open, all_rows, at, commit, pattern, put, row_of, rows_in, with_tables};
use crate::store::{Change, Durability, Place, Table};

pub(super) fn rows_come_back(open: &Open) {
    let store = with_tables(open, &[0]);
    for durability in [Durability::Buffered, Durability::Sync] {
        store.commit(&[put(at(0, 1), b"one"), put(at(0, 2), b"two")], durability).expect("a commit");
        assert_eq!(row_of(&*store, at(0, 1)).as_deref(), Some(&b"one"[..]));
        store.commit(&[put(at(0, 1), b"another one")], durability).expect("a commit");
        assert_eq!(row_of(&*store, at(0, 1)).as_deref(), Some(&b"another one"[..]));
        store
            .commit(&[Change::Remove { place: at(0, 1) }, Change::Remove { place: at(0, 9) }], durability)
            .expect("a commit");
        assert_eq!(row_of(&*store, at(0, 1)), None);
        assert_eq!(row_of(&*store, at(0, 2)).as_deref(), Some(&b"two"[..]));
        store.commit(&[], durability).expect("an empty commit");
    }
}

pub(super) fn changes_go_in_order(open: &Open) {
    let store = with_tables(open, &[0, 1]);
    let remove = |place| Change::Remove { place };
    let (a, b, other) = (at(0, 1), at(0, 2), at(1, 1));
    commit(
        &*store,
        &[put(a, b"1"), remove(a), put(a, b"2"), put(b, b"3"), put(other, b"4"), remove(b), put(a, b"5")],
    );
    assert_eq!(row_of(&*store, a).as_deref(), Some(&b"5"[..]));
    assert_eq!(row_of(&*store, b), None);
    let (name, set) = ("name", |value| Change::SetMeta { name: "name", value });
    commit(
        &*store,
        &[set(b"1"), remove(other), set(b"2"), put(other, b"6"), remove(a), put(a, b"7"), remove(a)],
    );
    assert_eq!(store.meta(name).expect("a read").as_deref(), Some(&b"2"[..]));
    assert_eq!(row_of(&*store, other).as_deref(), Some(&b"6"[..]));
    assert_eq!(row_of(&*store, a), None);
}

pub(super) fn rows_of_all_sizes(open: &Open) {
    let ids = [0, 1, 127, 128, 255, 256, u64::from(u32::MAX), 1 << 63, u64::MAX - 1, u64::MAX];
    let sizes = [0, 1, 7, 100, 1000, 2000, 4000, 4096, 70_000, 1 << 20];
    let expected = || ids.into_iter().zip(sizes).map(|(id, size)| (id, pattern(id, size)));
    {
        let store = with_tables(open, &[7]);
        for (id, row) in expected() {
            commit(&*store, &[put(at(7, id), &row)]);
            assert!(row_of(&*store, at(7, id)).is_some_and(|found| found == row), "row {id}");
        }
        store.sync().expect("a sync");
    }
    let store = with_tables(open, &[]);
    assert!(all_rows(&*store, 7).into_iter().eq(expected()));
    // Each takes the place of one of another size.
    let sizes = sizes.into_iter().rev();
    for (id, size) in ids.into_iter().zip(sizes.clone()) {
        commit(&*store, &[put(at(7, id), &pattern(!id, size))]);
    }
    assert!(
        all_rows(&*store, 7)
            .into_iter()
            .eq(ids.into_iter().zip(sizes).map(|(id, size)| (id, pattern(!id, size))))
    );
}

pub(super) fn large_transactions(open: &Open) {
    let store = with_tables(open, &[0, 1]);
    let rows: Vec<_> = (0..20_000).map(|id| (at(u16::from(id % 2 == 1), id), pattern(id, 500))).collect();
    let puts: Vec<_> = rows.iter().map(|(place, row)| put(*place, row)).collect();
    commit(&*store, &puts);
    for (place, row) in &rows {
        assert_eq!(row_of(&*store, *place).as_ref(), Some(row), "{place:?}");
    }
    let removals: Vec<_> = rows.iter().map(|(place, _)| Change::Remove { place: *place }).collect();
    commit(&*store, &removals);
    assert_eq!((all_rows(&*store, 0).len(), all_rows(&*store, 1).len()), (0, 0));
}

pub(super) fn ids_in_any_order(open: &Open) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut expected = std::collections::BTreeMap::new();
    for life in 0..4 {
        let store = with_tables(open, &[0]);
        for step in 0..500_u64 {
            // Upwards, downwards, anywhere, and above a last row that was removed.
            let id = match life {
                0 => 1 << 20 | step,
                1 => (1 << 20) - step,
                2 => random.u64(..1 << 21),
                _ => (1 << 30) + random.u64(..20),
            };
            let row = pattern(id, 50);
            commit(&*store, &[put(at(0, id), &row)]);
            expected.insert(id, row);
            if step % 3 == 0 {
                let (last, _) = expected.pop_last().expect("one was inserted");
                commit(&*store, &[Change::Remove { place: at(0, last) }]);
            }
        }
        assert_eq!(all_rows(&*store, 0), expected);
        store.sync().expect("a sync");
    }
}

pub(super) fn scans_keep_bounds(open: &Open) {
    let store = with_tables(open, &[0, 1, 2]);
    for table in [0, 2] {
        for id in [0, 10, 20, 30, u64::MAX] {
            commit(&*store, &[put(at(table, id), &pattern(id, 10))]);
        }
    }
    let mut snapshot = store.snapshot().expect("a snapshot");
    let mut ids = |table, first, last| -> Vec<u64> {
        let rows = rows_in(&mut *snapshot, table, first, last);
        assert!(rows.iter().all(|(id, row)| *row == pattern(*id, 10)));
        rows.into_iter().map(|(id, _)| id).collect()
    };
    for table in [0, 2] {
        assert_eq!(ids(table, 0, u64::MAX), [0, 10, 20, 30, u64::MAX]);
        assert_eq!(ids(table, 10, 20), [10, 20]);
        assert_eq!(ids(table, 11, 29), [20]);
        assert_eq!(ids(table, 20, 20), [20]);
        assert_eq!(ids(table, 21, 29), []);
        assert_eq!(ids(table, 31, u64::MAX - 1), []);
        assert_eq!(ids(table, 31, u64::MAX), [u64::MAX]);
        assert_eq!(ids(table, 30, 10), [], "an upside-down range is empty");
    }
    assert_eq!(ids(1, 0, u64::MAX), []);
    let mut seen = Vec::new();
    let mut visit = |id, _: &[u8]| {
        seen.push(id);
        seen.len() < 2
    };
    snapshot.scan(Table(0), 5, u64::MAX, &mut visit).expect("a scan");
    assert_eq!(seen, [10, 20], "it stops where it is told to");
}

pub(super) fn last_of_a_range(open: &Open) {
    let store = with_tables(open, &[0, 1, 2]);
    for table in [0, 2] {
        for id in [10, 20, 30] {
            commit(&*store, &[put(at(table, id), b"")]);
        }
    }
    let mut snapshot = store.snapshot().expect("a snapshot");
    let mut last = |table, first, last| snapshot.last(Table(table), first, last).expect("a read");
    for table in [0, 2] {
        assert_eq!(last(table, 0, u64::MAX), Some(30));
        assert_eq!(last(table, 0, 30), Some(30));
        assert_eq!(last(table, 0, 29), Some(20));
        assert_eq!(last(table, 20, 20), Some(20));
        assert_eq!(last(table, 21, 29), None);
        assert_eq!(last(table, 0, 9), None);
        assert_eq!(last(table, 31, u64::MAX), None);
        assert_eq!(last(table, 30, 10), None);
    }
    assert_eq!(last(1, 0, u64::MAX), None);
}

pub(super) fn many_rows(open: &Open) {
    let store = with_tables(open, &[0, 1, 2]);
    for table in [0, 2] {
        for id in (0..300).step_by(3) {
            commit(&*store, &[put(at(table, id), &pattern(id + u64::from(table), 200))]);
        }
    }
    let asked = |table| (0..300).map(move |id| at(table, id));
    let places: Vec<Place> = asked(0).chain(asked(1)).chain(asked(2)).collect();
    let mut snapshot = store.snapshot().expect("a snapshot");
    let mut seen = Vec::new();
    snapshot.get_many(&places, &mut |index, row| seen.push((index, row.to_vec()))).expect("a read");
    let there = |place: &Place| place.table != Table(1) && place.id.is_multiple_of(3);
    let expected = places.iter().enumerate().filter(|(_, place)| there(place));
    assert!(
        seen.into_iter()
            .eq(expected.map(|(index, place)| (index, pattern(place.id + u64::from(place.table.0), 200))))
    );
    snapshot.get_many(&[], &mut |_, _| panic!("nothing was asked for")).expect("a read");
}

pub(super) fn named_values(open: &Open) {
    {
        let store = with_tables(open, &[0]);
        assert_eq!(store.meta("mark").expect("a read"), None);
        for (name, value) in
            [("mark", &b"1"[..]), ("mark", b"2"), ("empty", b""), ("large", &pattern(1, 50_000))]
        {
            commit(&*store, &[Change::SetMeta { name, value }, put(at(0, 1), value)]);
            assert_eq!(store.meta(name).expect("a read").as_deref(), Some(value));
        }
        store.sync().expect("a sync");
    }
    let store = with_tables(open, &[]);
    let meta = |name| store.meta(name).expect("a read");
    assert_eq!(meta("mark").as_deref(), Some(&b"2"[..]));
    assert_eq!(meta("empty").as_deref(), Some(&b""[..]));
    assert!(meta("large").is_some_and(|value| value == pattern(1, 50_000)));
    assert_eq!(meta("larg"), None);
}
