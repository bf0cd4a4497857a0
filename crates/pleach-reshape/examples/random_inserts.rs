//! Loads redb with random keys, as it is and under key reshaping, and shows what the layer gives: puts, gets, a scan before and
//! behind a recluster, and how long the next open takes.
//!
//! `cargo run --release -p pleach-reshape --example random_inserts -- [keys] [directory]`
//!
//! Keys are 16 digits, values 100 bytes, in batches of 100. Both stores have 32 MiB of memory: the plain one as redb's cache, the
//! reshaped one for redb, the map, its changes and the cache of rows. With a million keys all pairs fit into the page
//! cache of most machines; `docs/key-reshaping.md` has figures of more data than memory.

#![expect(clippy::print_stdout, reason = "a program for people")]
#![expect(clippy::disallowed_methods, reason = "it measures the machine")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pleach_reshape::store::redb::{RedbOptions, RedbStore};
use pleach_reshape::{Options, Reshaped};
use redb::{Database, Durability, TableDefinition};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PLAIN: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("pairs");
const BATCH: u64 = 100;
/// Every so many transactions of the plain store are synced: as [`RedbOptions::sync_every`].
const SYNC_EVERY: u64 = 50;
const MEMORY: usize = 32 << 20;
const VALUE: [u8; 100] = [b'v'; 100];

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let keys = args.next().map_or(Ok(1_000_000), |arg| arg.parse())?.max(BATCH) / BATCH * BATCH;
    let temporary = tempfile::tempdir()?;
    let dir = args.next().map_or_else(|| temporary.path().join("stores"), PathBuf::from);
    std::fs::create_dir(&dir)
        .map_err(|e| format!("cannot make {}, which must not exist yet: {e}", dir.display()))?;

    let load = timed(|| load_plain(&dir.join("plain.redb"), keys))?.1;
    println!("plain redb:    {} puts/s", rate(keys, load));

    let store = open(&dir)?;
    let load = timed(|| load_reshaped(&store, keys))?.1;
    println!("reshaped redb: {} puts/s", rate(keys, load));
    let (found, seconds) = timed(|| read(&store, keys))?;
    println!("reshaped redb: {} gets/s, {found} keys found", rate(found, seconds));
    let (pairs, seconds) = timed(|| Ok(store.all()?.try_fold(0, |pairs, pair| pair.map(|_| pairs + 1))?))?;
    println!("reshaped redb: {} pairs/s by a scan", rate(pairs, seconds));
    let (moved, seconds) = timed(|| Ok(store.recluster::<&[u8]>(..)?))?;
    println!("reshaped redb: a recluster moved {moved} rows in {seconds:.1} s");
    let (pairs, seconds) = timed(|| Ok(store.all()?.try_fold(0, |pairs, pair| pair.map(|_| pairs + 1))?))?;
    println!("reshaped redb: {} pairs/s by a scan", rate(pairs, seconds));
    store.close()?;

    let (store, seconds) = timed(|| open(&dir))?;
    println!("reshaped redb: opened in {seconds:.3} s, {} rows read", store.open_report().rows_read);
    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// Opens redb under key reshaping. The map lies in a directory beside it.
fn open(dir: &Path) -> Result<Reshaped> {
    let redb = RedbOptions { cache_bytes: MEMORY / 4, ..RedbOptions::default() };
    let rows = RedbStore::open(&dir.join("rows"), &redb).map_err(|e| e.to_string())?;
    let map = pleach::Options::new().memory(MEMORY / 4);
    let options = Options::new().map_options(map).delta_bytes(MEMORY / 4).row_cache_bytes(MEMORY / 4);
    Ok(options.open(Box::new(rows), dir.join("map"))?)
}

/// Number `i` of an order of 0 to `keys` that jumps around. Requires: `i` is less than `keys`.
fn key(i: u64, keys: u64) -> String {
    const PRIME: u128 = 0x9e37_79b9_7f4a_7c55;
    format!("{:016}", u128::from(i) * PRIME % u128::from(keys))
}

fn load_plain(file: &Path, keys: u64) -> Result<()> {
    let db = Database::builder().set_cache_size(MEMORY).create(file)?;
    for batch in 0..keys / BATCH {
        let mut txn = db.begin_write()?;
        if batch % SYNC_EVERY != 0 {
            txn.set_durability(Durability::None)?;
        }
        let mut table = txn.open_table(PLAIN)?;
        for i in batch * BATCH..(batch + 1) * BATCH {
            table.insert(key(i, keys).as_bytes(), &VALUE[..])?;
        }
        drop(table);
        txn.commit()?;
    }
    Ok(())
}

fn load_reshaped(store: &Reshaped, keys: u64) -> Result<()> {
    for batch in 0..keys / BATCH {
        let mut writes = store.batch();
        for i in batch * BATCH..(batch + 1) * BATCH {
            writes.put(key(i, keys), VALUE);
        }
        writes.commit()?;
    }
    Ok(())
}

/// Reads every tenth key; how many were there.
fn read(store: &Reshaped, keys: u64) -> Result<u64> {
    let mut found = 0;
    for i in (0..keys).step_by(10) {
        found += u64::from(store.get(key(i, keys))?.is_some());
    }
    Ok(found)
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let done = work()?;
    Ok((done, start.elapsed().as_secs_f64()))
}

fn rate(count: u64, seconds: f64) -> String {
    format!("{:.0} thousand", count as f64 / seconds / 1000.0)
}
