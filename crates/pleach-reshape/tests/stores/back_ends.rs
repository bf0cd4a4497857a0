//! The conformance suite over each store, and kills at each of its durabilities.

use std::path::Path;

use pleach_reshape::Durability;
use pleach_reshape::store::lmdb::{LmdbOptions, LmdbStore};
use pleach_reshape::store::model::ModelStore;
use pleach_reshape::store::redb::{RedbOptions, RedbStore};
use pleach_reshape::store::{Change, Place, Result, RowStore, Table};
use pleach_reshape::testing::kill::{OpenAt, child, survives_kills};
use pleach_reshape::testing::{Open, check_all, check_locks, measure_appends};

fn redb(folder: &Path) -> Result<Box<dyn RowStore>> {
    Ok(Box::new(RedbStore::open(folder, &RedbOptions::default())?))
}

/// Small enough that most pages are read from the file, and never synced but when asked.
fn redb_short(folder: &Path) -> Result<Box<dyn RowStore>> {
    Ok(Box::new(RedbStore::open(folder, &RedbOptions { cache_bytes: 200_000, sync_every: 0 })?))
}

fn lmdb(folder: &Path) -> Result<Box<dyn RowStore>> {
    Ok(Box::new(LmdbStore::open(folder, &LmdbOptions::default())?))
}

fn lmdb_unsynced(folder: &Path) -> Result<Box<dyn RowStore>> {
    Ok(Box::new(LmdbStore::open(folder, &LmdbOptions { unsynced_commits: true, ..LmdbOptions::default() })?))
}

fn lmdb_write_map(folder: &Path) -> Result<Box<dyn RowStore>> {
    let options =
        LmdbOptions { unsynced_commits: true, write_map: true, map_bytes: 1 << 30, ..LmdbOptions::default() };
    Ok(Box::new(LmdbStore::open(folder, &options)?))
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
fn redb_conforms() {
    conforms(redb);
}

#[test]
fn redb_with_a_small_cache_conforms() {
    conforms(redb_short);
}

#[test]
fn lmdb_conforms() {
    conforms(lmdb);
}

#[test]
fn lmdb_without_syncs_conforms() {
    conforms(lmdb_unsynced);
}

#[test]
fn lmdb_with_a_writable_map_conforms() {
    conforms(lmdb_write_map);
}

#[test]
fn model_conforms() {
    check_all(&|| {
        let store = ModelStore::new(true);
        let open: Box<Open> = Box::new(move || Ok(Box::new(store.clone())));
        open
    });
}

/// Kills at each durability, in the gate.
const KILLS: u64 = 40;

#[test]
fn redb_survives_kills() {
    survives_kills(redb, "back_ends::child_of_redb", KILLS);
}

#[test]
fn child_of_redb() {
    child(redb);
}

#[test]
fn lmdb_survives_kills() {
    survives_kills(lmdb_unsynced, "back_ends::child_of_lmdb", KILLS);
}

#[test]
fn child_of_lmdb() {
    child(lmdb_unsynced);
}

#[test]
fn lmdb_with_a_writable_map_survives_kills() {
    survives_kills(lmdb_write_map, "back_ends::child_of_lmdb_with_a_writable_map", KILLS);
}

#[test]
fn child_of_lmdb_with_a_writable_map() {
    child(lmdb_write_map);
}

#[test]
fn a_table_of_lmdb_that_cannot_be_removed_keeps_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let open = |map_bytes| {
        LmdbStore::open(folder.path(), &LmdbOptions { map_bytes, ..LmdbOptions::default() }).unwrap()
    };
    let (kept, dropped) = (Table(0), Table(1));
    let put = |store: &LmdbStore, table, id, len| {
        let row = vec![7; len];
        store.commit(&[Change::Put { place: Place { table, id }, row: &row }], Durability::Buffered)
    };
    let is_there = |store: &LmdbStore| store.get(Place { table: dropped, id: 1 }, &mut |_| {}).unwrap();
    {
        let store = open(1 << 20);
        store.create_table(kept).unwrap();
        store.create_table(dropped).unwrap();
        for id in 1..50 {
            put(&store, dropped, id, 3000).unwrap();
        }
        // What a snapshot sees is not used again, so the store is soon full to the last page.
        let snapshot = store.snapshot().unwrap();
        for id in 1.. {
            if put(&store, kept, id, 10).is_err() {
                break;
            }
        }
        let error = store.drop_table(dropped).unwrap_err();
        assert!(error.to_string().contains("map_bytes"), "{error}");
        assert!(is_there(&store));
        put(&store, dropped, 100, 10).unwrap_err();
        drop(snapshot);
    }
    let store = open(2 << 20);
    assert!(is_there(&store));
    store.drop_table(dropped).unwrap();
    assert!(!is_there(&store));
}

/// `cargo test --release -p pleach-reshape --features lmdb,testing --test stores measure -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn measure_appends_of_rows() {
    for (name, open) in [("LMDB", lmdb_unsynced as OpenAt), ("redb", redb)] {
        for batch in [1, 100] {
            let folder = tempfile::tempdir().expect("a folder");
            let store = open(folder.path()).expect("the store opens");
            println!(
                "{name}, transactions of {batch}: {:?} a row",
                measure_appends(&*store, 1_000_000, batch)
            );
        }
    }
}
