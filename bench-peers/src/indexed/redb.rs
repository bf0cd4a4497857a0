//! redb's part of the indexed engine.

use std::sync::atomic::{AtomicU64, Ordering};

use pleach_bench::{Durability, Engine, EngineConfig, EngineFactory, Result};
use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition};

use super::{Bounds, Indexed, IndexedStore, Tables, as_slices, factory};
use crate::group::Group;

/// The factory of redb with an index.
pub(crate) const REDB: EngineFactory =
    factory("redb-indexed", "redb, rows by id and an index of keys in the same store", open);

const INDEX: TableDefinition<'static, &'static [u8], u64> = TableDefinition::new("index");
const ROWS: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("rows");

struct Redb {
    db: Database,
    durability: redb::Durability,
    sync_every: u64,
    commits: AtomicU64,
}

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let mut config = config.clone();
    let sync_every = config.take_tuning("sync_every")?.unwrap_or(crate::redb::SYNC_EVERY);
    let cache_bytes = config.take_tuning("cache_bytes")?.unwrap_or(config.memory_bytes);
    let group = config.take_tuning("share")?.unwrap_or(true).then(Group::default);
    config.no_tuning_left()?;
    let db = Database::builder()
        .set_cache_size(usize::try_from(cache_bytes)?)
        .create(config.dir.join("store.redb"))?;
    let txn = db.begin_write()?;
    txn.open_table(INDEX)?;
    let last = txn.open_table(ROWS)?.last()?.map(|(id, _)| id.value());
    txn.commit()?;
    let durability = match config.durability {
        Durability::Buffered => redb::Durability::None,
        Durability::Sync => redb::Durability::Immediate,
    };
    let store = Redb { db, durability, sync_every, commits: AtomicU64::new(0) };
    let next = AtomicU64::new(last.map_or(0, |last| last + 1));
    Ok(Box::new(Indexed { store, partitions: config.partitions, next, group }))
}

impl IndexedStore for Redb {
    fn transact(&self, change: &mut dyn FnMut(&mut dyn Tables) -> Result<bool>) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        let commits = self.commits.fetch_add(1, Ordering::Relaxed);
        let is_due = self.sync_every > 0 && commits % self.sync_every == self.sync_every - 1;
        txn.set_durability(if is_due { redb::Durability::Immediate } else { self.durability })?;
        change(&mut RedbTables { index: txn.open_table(INDEX)?, rows: txn.open_table(ROWS)? })?;
        Ok(txn.commit()?)
    }

    fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let txn = self.db.begin_read()?;
        let Some(id) = txn.open_table(INDEX)?.get(key)?.map(|id| id.value()) else { return Ok(false) };
        let rows = txn.open_table(ROWS)?;
        Ok(rows.get(id)?.map(|row| read(row.value())).is_some())
    }

    fn scan(
        &self,
        bounds: &Bounds,
        is_reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let txn = self.db.begin_read()?;
        let (index, rows) = (txn.open_table(INDEX)?, txn.open_table(ROWS)?);
        let mut entries = index.range::<&[u8]>(as_slices(bounds))?;
        while let Some(entry) = if is_reverse { entries.next_back() } else { entries.next() } {
            let (key, id) = entry?;
            let row = rows.get(id.value())?.ok_or("an entry of the index has no row")?;
            if !visit(key.value(), row.value()) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.begin_write()?.commit()?)
    }
}

struct RedbTables<'t> {
    index: Table<'t, &'static [u8], u64>,
    rows: Table<'t, u64, &'static [u8]>,
}

impl Tables for RedbTables<'_> {
    fn id(&mut self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.index.get(key)?.map(|id| id.value()))
    }

    fn add(&mut self, key: &[u8], id: u64, value: &[u8]) -> Result<bool> {
        self.index.insert(key, id)?;
        self.replace(id, value)
    }

    fn replace(&mut self, id: u64, value: &[u8]) -> Result<bool> {
        self.rows.insert(id, value)?;
        Ok(true)
    }

    fn remove(&mut self, key: &[u8], id: u64) -> Result<bool> {
        self.index.remove(key)?;
        self.rows.remove(id)?;
        Ok(true)
    }
}
