//! LMDB's part of the indexed engine. Rows are appended with `MDB_APPEND`.

use std::sync::atomic::AtomicU64;

use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, Database, Env, PutFlags, RwTxn, WithTls};
use pleach_bench::{Engine, EngineConfig, EngineFactory, Result};

use super::{Bounds, Indexed, IndexedStore, Tables, as_slices, factory};
use crate::group::Group;

/// The factory of LMDB with an index.
pub(crate) const LMDB: EngineFactory =
    factory("lmdb-indexed", "LMDB, rows by id and an index of keys in the same store", open);

type Index = Database<'static, Bytes, U64<BigEndian>>;
type Rows = Database<'static, U64<BigEndian>, Bytes>;

struct Lmdb {
    env: Env<WithTls>,
    index: Index,
    rows: Rows,
}

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let mut config = config.clone();
    let group = config.take_tuning("share")?.unwrap_or(true).then(Group::default);
    let env = crate::lmdb::open_env(&mut config, 2)?;
    config.no_tuning_left()?;
    let created = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let index = opener.create_database::<Bytes, U64<BigEndian>>(txn, Some("index"))?;
        let rows = opener.create_database::<U64<BigEndian>, Bytes>(txn, Some("rows"))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((index, rows)))
    })?;
    let (index, rows) = created.unwrap_commit();
    let txn = env.read_txn()?;
    let last = rows.last(&txn)?.map(|(id, _)| id);
    drop(txn);
    let next = AtomicU64::new(last.map_or(0, |last| last + 1));
    Ok(Box::new(Indexed { store: Lmdb { env, index, rows }, partitions: config.partitions, next, group }))
}

impl IndexedStore for Lmdb {
    fn transact(&self, change: &mut dyn FnMut(&mut dyn Tables) -> Result<bool>) -> Result<()> {
        let mut tables = LmdbTables { store: self, txn: self.env.write_txn()? };
        change(&mut tables)?;
        Ok(tables.txn.commit()?)
    }

    fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let txn = self.env.read_txn()?;
        let Some(id) = self.index.get(&txn, key)? else { return Ok(false) };
        Ok(self.rows.get(&txn, &id)?.map(read).is_some())
    }

    fn scan(
        &self,
        bounds: &Bounds,
        is_reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let (txn, bounds) = (self.env.read_txn()?, as_slices(bounds));
        let mut show = |entry: heed::Result<(&[u8], u64)>| -> Result<bool> {
            let (key, id) = entry?;
            let row = self.rows.get(&txn, &id)?.ok_or("an entry of the index has no row")?;
            Ok(visit(key, row))
        };
        if is_reverse {
            for entry in self.index.rev_range(&txn, &bounds)? {
                if !show(entry)? {
                    break;
                }
            }
        } else {
            for entry in self.index.range(&txn, &bounds)? {
                if !show(entry)? {
                    break;
                }
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }
}

struct LmdbTables<'s> {
    store: &'s Lmdb,
    txn: RwTxn<'s>,
}

impl Tables for LmdbTables<'_> {
    fn id(&mut self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.store.index.get(&self.txn, key)?)
    }

    fn add(&mut self, key: &[u8], id: u64, value: &[u8]) -> Result<bool> {
        self.store.index.put(&mut self.txn, key, &id)?;
        self.store.rows.put_with_flags(&mut self.txn, PutFlags::APPEND, &id, value)?;
        Ok(true)
    }

    fn replace(&mut self, id: u64, value: &[u8]) -> Result<bool> {
        self.store.rows.put(&mut self.txn, &id, value)?;
        Ok(true)
    }

    fn remove(&mut self, key: &[u8], id: u64) -> Result<bool> {
        self.store.index.delete(&mut self.txn, key)?;
        self.store.rows.delete(&mut self.txn, &id)?;
        Ok(true)
    }
}
