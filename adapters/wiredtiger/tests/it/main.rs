//! The store of rows in WiredTiger: the conformance suite, killed processes, and folders of other things.

#![cfg(wiredtiger)]
#![expect(clippy::disallowed_methods, reason = "WiredTiger knows no other file system than the real one")]

use std::path::Path;

use pleach_reshape::store::{Result, RowStore};
use pleach_reshape::testing::kill::{OpenAt, child, survives_kills};
use pleach_reshape::testing::{Open, check_all, check_locks, measure_appends};
use pleach_wiredtiger::{Connection, Log, WiredTigerOptions, WiredTigerStore};

fn open_with(folder: &Path, log: Log, tables: &str) -> Result<Box<dyn RowStore>> {
    let options = WiredTigerOptions { log, tables: tables.to_owned(), ..WiredTigerOptions::default() };
    Ok(Box::new(WiredTigerStore::open(folder, &options)?))
}

fn off(folder: &Path) -> Result<Box<dyn RowStore>> {
    open_with(folder, Log::Off, "")
}

fn unwritten(folder: &Path) -> Result<Box<dyn RowStore>> {
    open_with(folder, Log::Unwritten, "")
}

fn written(folder: &Path) -> Result<Box<dyn RowStore>> {
    open_with(folder, Log::Written, "")
}

fn conforms(open: OpenAt) {
    let fresh = || {
        let folder = tempfile::tempdir().expect("a folder");
        let open: Box<Open> = Box::new(move || open(folder.path()));
        open
    };
    check_all(&fresh);
    check_locks(&*fresh());
}

#[test]
fn conforms_without_a_log() {
    conforms(off);
}

#[test]
fn conforms_with_an_unwritten_log() {
    conforms(unwritten);
}

#[test]
fn conforms_with_a_written_log() {
    conforms(written);
}

/// Kills at each durability, in the gate.
const KILLS: u64 = 20;

#[test]
fn survives_kills_without_a_log() {
    survives_kills(off, "child_without_a_log", KILLS);
}

#[test]
fn child_without_a_log() {
    child(off);
}

#[test]
fn survives_kills_with_an_unwritten_log() {
    survives_kills(unwritten, "child_with_an_unwritten_log", KILLS);
}

#[test]
fn child_with_an_unwritten_log() {
    child(unwritten);
}

#[test]
fn survives_kills_with_a_written_log() {
    survives_kills(written, "child_with_a_written_log", KILLS);
}

#[test]
fn child_with_a_written_log() {
    child(written);
}

fn assert_error_says(opened: Result<Box<dyn RowStore>>, words: &str) {
    let error = opened.expect_err("it does not open").to_string();
    assert!(error.contains(words), "the error says why: {error}");
}

#[test]
fn folders_of_other_things_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("letter"), "dear").expect("a file");
    assert_error_says(written(folder.path()), "holds other files");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing is written there");
}

#[test]
fn stores_of_wiredtiger_with_other_tables_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    {
        let connection = Connection::open(folder.path(), "create").expect("a store");
        connection
            .session()
            .expect("a session")
            .create(c"table:letters", "key_format=u,value_format=u")
            .expect("a table");
    }
    assert_error_says(written(folder.path()), "not of rows");
}

#[test]
fn a_crash_while_a_store_is_made_does_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(Connection::open(folder.path(), "create").expect("a store without tables"));
    written(folder.path()).expect("it is made");
}

/// `cargo test --release measure -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn measure_appends_of_rows() {
    for batch in [1, 100] {
        let folder = tempfile::tempdir().expect("a folder");
        let store = unwritten(folder.path()).expect("the store opens");
        println!(
            "WiredTiger, transactions of {batch}: {:?} a row",
            measure_appends(&*store, 1_000_000, batch)
        );
    }
}
