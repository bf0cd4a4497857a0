//! The conformance suite of stores: what [`RowStore`] promises, as checks that run over any store.
//!
//! A store's tests call [`check_all`] with a function that makes an opener for each check, and, if the store is in files,
//! [`check_locks`] and the functions of [`kill`]. A check that fails panics.

mod access;
mod appends;
mod histories;
pub mod kill;
mod snapshots;
mod tables;

use std::collections::BTreeMap;

pub use appends::measure_appends;

pub use crate::threads::set_thread_number;

use crate::store::{Change, Durability, Place, Result, RowSnapshot, RowStore, Table};

/// Opens the store under test: the same one each time, a fresh one at first. It is called again when the last one was dropped.
pub type Open = dyn Fn() -> Result<Box<dyn RowStore>>;

/// A check with its name.
type Check = (&'static str, fn(&Open));

/// Every check.
const CHECKS: &[Check] = &[
    ("rows come back, are replaced and removed", access::rows_come_back),
    ("changes of a transaction go in their order", access::changes_go_in_order),
    ("rows may be empty, large, and at both ends", access::rows_of_all_sizes),
    ("a transaction may be large", access::large_transactions),
    ("ids may come in any order", access::ids_in_any_order),
    ("scans keep their bounds", access::scans_keep_bounds),
    ("the last row of a range is found", access::last_of_a_range),
    ("many rows are read at once", access::many_rows),
    ("named values are kept", access::named_values),
    ("tables are made and removed", tables::made_and_removed),
    ("rows move to another table", tables::moved_to_another),
    ("tables do not mix", tables::do_not_mix),
    ("what is synced is there after an open", tables::synced_is_there),
    ("a snapshot stays as it was", snapshots::stay),
    ("snapshots outlive changes of tables", snapshots::outlive_changes_of_tables),
    ("snapshots go to other threads", snapshots::go_to_threads),
    ("no snapshot shows half a transaction", snapshots::show_no_halves),
    ("reads see what was committed", snapshots::reads_see_commits),
    ("writers of several threads lose nothing", histories::writers_lose_nothing),
    ("answers are those of a map", histories::answers_are_those_of_a_map),
];

/// A number from a variable of the environment, for seeds and lengths of runs.
pub fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Runs all checks; `fresh` makes an opener of a store that is empty at first.
pub fn check_all(fresh: &dyn Fn() -> Box<Open>) {
    for (name, check) in CHECKS {
        eprintln!("store: {name}");
        check(&*fresh());
    }
}

/// Checks that a store in use is not opened again, also not by this process: for stores in files.
pub fn check_locks(open: &Open) {
    tables::not_opened_twice(open);
}

fn opened(open: &Open) -> Box<dyn RowStore> {
    open().expect("the store opens")
}

/// A store with these tables.
fn with_tables(open: &Open, tables: &[u16]) -> Box<dyn RowStore> {
    let store = opened(open);
    for table in tables {
        store.create_table(Table(*table)).expect("a table");
    }
    store
}

fn at(table: u16, id: u64) -> Place {
    Place { table: Table(table), id }
}

fn put(place: Place, row: &[u8]) -> Change<'_> {
    Change::Put { place, row }
}

fn commit(store: &dyn RowStore, changes: &[Change<'_>]) {
    store.commit(changes, Durability::Buffered).expect("a commit");
}

fn row_of(store: &dyn RowStore, place: Place) -> Option<Vec<u8>> {
    let mut found = None;
    let is_there = store.get(place, &mut |row| found = Some(row.to_vec())).expect("a read");
    assert_eq!(is_there, found.is_some(), "what it says of {place:?} is what it shows");
    found
}

fn row_in(snapshot: &mut dyn RowSnapshot, place: Place) -> Option<Vec<u8>> {
    let mut found = None;
    let is_there = snapshot.get(place, &mut |row| found = Some(row.to_vec())).expect("a read");
    assert_eq!(is_there, found.is_some(), "what it says of {place:?} is what it shows");
    found
}

fn rows_in(snapshot: &mut dyn RowSnapshot, table: u16, first: u64, last: u64) -> Vec<(u64, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut visit = |id, row: &[u8]| {
        rows.push((id, row.to_vec()));
        true
    };
    snapshot.scan(Table(table), first, last, &mut visit).expect("a scan");
    rows
}

fn all_rows(store: &dyn RowStore, table: u16) -> BTreeMap<u64, Vec<u8>> {
    rows_in(&mut *store.snapshot().expect("a snapshot"), table, 0, u64::MAX).into_iter().collect()
}

/// Bytes that follow from a number.
fn pattern(number: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number);
    (0..len).map(|_| random.u8(..)).collect()
}
