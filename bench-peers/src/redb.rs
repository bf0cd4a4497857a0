//! redb behind the benchmark's trait.
//!
//! Partitions are tables. Each put or delete is a write transaction, each batch another. A session keeps its read
//! transaction and its open tables as long as nothing newer is committed, which a counter of this module tells, and
//! closes them before it writes: every read sees all that is committed.
//!
//! redb has no durability between none and a sync: what is committed without one is lost when the process is killed,
//! until a later commit with one, which is made now and then. `Buffered` is therefore weaker than elsewhere. Nor has it
//! compression, filters or background threads.
//!
//! Threads that wait for the writer share its next transaction (`share`).
//!
//! Settings by name: `share` (on); `sync_every`, commits without a sync between two with one (0: never but at a flush);
//! `cache_bytes`, instead of all memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use pleach_bench::{
    Capabilities, Direction, Durability, Engine, EngineConfig, EngineFactory, EngineStats, Removal, Result,
    Scan, Session, Write,
};
use redb::{Database, ReadOnlyTable, ReadableDatabase, Table, TableDefinition, WriteTransaction};

use crate::group::Group;

/// The factory of redb.
pub(crate) const REDB: EngineFactory = EngineFactory {
    name: "redb",
    about: "redb 4.1, cache of all memory, a transaction for each write or for those that wait; buffered writes do not survive a killed process",
    capabilities: Capabilities {
        direct_reads: false,
        compression: false,
        atomic_batches: true,
        native_get_many: false,
        async_get: false,
        compaction: false,
        partition_removal: Removal::Native,
    },
    open,
};

const FILE: &str = "store.redb";

/// What commits without a sync have freed waits for one with a sync, and the more there is the slower each commit. With 3
/// million keys overwrites took 88, 129, 459 and 1820 us with a sync after 50, 150, 1000 and 10,000.
pub(crate) const SYNC_EVERY: u64 = 50;

type Key = &'static [u8];
type Definition<'n> = TableDefinition<'n, Key, Key>;
type ReadTable = ReadOnlyTable<Key, Key>;

struct RedbEngine {
    db: Database,
    names: Vec<String>,
    durability: redb::Durability,
    sync_every: u64,
    /// None if each write has a transaction of its own.
    group: Option<Group>,
    /// Transactions that have been committed; counted before the commit's caller goes on.
    commits: AtomicU64,
}

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let mut config = config.clone();
    let sync_every = config.take_tuning("sync_every")?.unwrap_or(SYNC_EVERY);
    let cache_bytes = config.take_tuning("cache_bytes")?.unwrap_or(config.memory_bytes);
    let group = config.take_tuning("share")?.unwrap_or(true).then(Group::default);
    config.no_tuning_left()?;
    let db =
        Database::builder().set_cache_size(usize::try_from(cache_bytes)?).create(config.dir.join(FILE))?;
    let names: Vec<String> = (0..config.partitions).map(|number| format!("p{number}")).collect();
    let txn = db.begin_write()?;
    for name in &names {
        txn.open_table(definition(name))?;
    }
    txn.commit()?;
    let durability = match config.durability {
        Durability::Buffered => redb::Durability::None,
        Durability::Sync => redb::Durability::Immediate,
    };
    Ok(Box::new(RedbEngine { db, names, durability, sync_every, group, commits: AtomicU64::new(0) }))
}

fn definition(name: &str) -> Definition<'_> {
    TableDefinition::new(name)
}

impl RedbEngine {
    fn commit(
        &self,
        durability: redb::Durability,
        change: impl FnOnce(&WriteTransaction) -> Result<()>,
    ) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(durability)?;
        change(&txn)?;
        txn.commit()?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Makes writes in one transaction.
    fn write(&self, writes: &[Write<'_>]) -> Result<()> {
        self.commit(self.next_durability(), |txn| {
            // A table is opened once in a transaction; neighbours of one partition share it.
            for same in writes.chunk_by(|a, b| a.partition == b.partition) {
                let mut table = txn.open_table(definition(&self.names[same[0].partition]))?;
                for write in same {
                    match write.value {
                        Some(value) => drop(table.insert(write.key, value)?),
                        None => drop(table.remove(write.key)?),
                    }
                }
            }
            Ok(())
        })
    }

    /// The durability of the next write.
    fn next_durability(&self) -> redb::Durability {
        let due = self.sync_every > 0
            && self.commits.load(Ordering::Relaxed) % self.sync_every == self.sync_every - 1;
        if due { redb::Durability::Immediate } else { self.durability }
    }
}

impl Engine for RedbEngine {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RedbSession { engine: self, tables: self.names.iter().map(|_| None).collect(), seen: 0 }))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        self.commit(self.durability, |txn| {
            txn.delete_table(definition(&self.names[partition]))?;
            Ok(())
        })
    }

    fn flush(&self) -> Result<()> {
        self.commit(redb::Durability::Immediate, |_| Ok(()))
    }

    /// Nothing goes on in the background; what was committed without a sync reaches the file's header.
    fn settle(&self) -> Result<()> {
        self.flush()
    }

    fn stats(&self) -> Result<EngineStats> {
        let commits = self.commits.load(Ordering::Relaxed);
        let details = BTreeMap::from([("commits".to_owned(), commits)]);
        Ok(EngineStats { details, ..EngineStats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

struct RedbSession<'a> {
    engine: &'a RedbEngine,
    /// Tables as of the commit number `seen` or later.
    tables: Vec<Option<ReadTable>>,
    seen: u64,
}

impl RedbSession<'_> {
    /// A partition's table in a read transaction that sees all that is committed.
    fn table(&mut self, partition: usize) -> Result<&ReadTable> {
        // Before a transaction is begun, which may then see more but never less.
        let commits = self.engine.commits.load(Ordering::Acquire);
        if commits != self.seen {
            self.close_tables();
            self.seen = commits;
        }
        match &mut self.tables[partition] {
            Some(table) => Ok(table),
            none => {
                let name = &self.engine.names[partition];
                Ok(none.insert(self.engine.db.begin_read()?.open_table(definition(name))?))
            }
        }
    }

    fn close_tables(&mut self) {
        self.tables.iter_mut().for_each(|table| *table = None);
    }

    /// Changes one table in a transaction of its own.
    fn change(
        &mut self,
        partition: usize,
        change: impl FnOnce(&mut Table<'_, Key, Key>) -> Result<()>,
    ) -> Result<()> {
        self.close_tables();
        let engine = self.engine;
        engine.commit(engine.next_durability(), |txn| {
            change(&mut txn.open_table(definition(&engine.names[partition]))?)
        })
    }
}

impl Session for RedbSession<'_> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(&[Write { partition, key, value: Some(value) }])
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        self.write(&[Write { partition, key, value: None }])
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.table(partition)?.get(key)?;
        Ok(value.map(|value| read(value.value())).is_some())
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let from = scan.from.map_or(Bound::Unbounded, Bound::Included);
        let table = self.table(scan.partition)?;
        match scan.direction {
            Direction::Forward => show(table.range::<&[u8]>((from, Bound::Unbounded))?, scan.limit, visit),
            Direction::Reverse => {
                show(table.range::<&[u8]>((Bound::Unbounded, from))?.rev(), scan.limit, visit)
            }
        }
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        self.close_tables();
        match &self.engine.group {
            Some(group) => group.write(writes, |writes| self.engine.write(writes)),
            None => self.engine.write(writes),
        }
    }

    fn delete_range(&mut self, partition: usize, lower: &[u8], upper: &[u8]) -> Result<()> {
        self.change(partition, |table| Ok(table.retain_in(lower..upper, |_, _| false)?))
    }
}

type Entry = (redb::AccessGuard<'static, Key>, redb::AccessGuard<'static, Key>);

fn show(
    entries: impl Iterator<Item = redb::Result<Entry>>,
    limit: usize,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    for entry in entries.take(limit) {
        let (key, value) = entry?;
        if !visit(key.value(), value.value()) {
            break;
        }
    }
    Ok(())
}
