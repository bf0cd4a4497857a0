//! The conformance suite over each store, and kills at each of its durabilities.

use std::path::Path;

use pleach_reshape::store::lmdb::{LmdbOptions, LmdbStore};
use pleach_reshape::store::model::ModelStore;
use pleach_reshape::store::redb::{RedbOptions, RedbStore};
use pleach_reshape::store::{Durability, Result, RowStore};
use pleach_reshape::testing::kill::{OpenAt, Plan, child, survives_kills};
use pleach_reshape::testing::{Open, check_all, check_locks};

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

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn survives(open: OpenAt, child: &'static str) {
    let (kills, seed) = (number_from("PLEACH_KILLS", 40), number_from("PLEACH_SEED", 1));
    eprintln!("PLEACH_SEED={seed} PLEACH_KILLS={kills}");
    for durability in [Durability::Buffered, Durability::Sync] {
        survives_kills(&Plan { child, open, durability, kills, seed });
    }
}

#[test]
fn redb_survives_kills() {
    survives(redb, "back_ends::child_of_redb");
}

#[test]
fn child_of_redb() {
    child(redb);
}

#[test]
fn lmdb_survives_kills() {
    survives(lmdb_unsynced, "back_ends::child_of_lmdb");
}

#[test]
fn child_of_lmdb() {
    child(lmdb_unsynced);
}

#[test]
fn lmdb_with_a_writable_map_survives_kills() {
    survives(lmdb_write_map, "back_ends::child_of_lmdb_with_a_writable_map");
}

#[test]
fn child_of_lmdb_with_a_writable_map() {
    child(lmdb_write_map);
}
