//! LMDB behind the benchmark's trait, by way of heed.
//!
//! One partition is LMDB's unnamed database; several are named ones. Each put or delete is a write transaction, each
//! batch another. A session keeps its read transaction as long as the meta page shows that nothing newer is committed,
//! and closes it before it writes. So every read sees all that is committed, no transaction is begun without need, and
//! no idle one keeps pages from being used again.
//!
//! LMDB has no cache, no filters, no compression and no background threads of its own: it does not use the
//! memory that it is given. The page cache takes what there is; `--memory-limit` bounds it.
//!
//! Threads that wait for the writer share its next transaction (`share`).
//!
//! Settings by name: `share` (on), `map_bytes`, `write_map` (on), `read_ahead` (off).

// The engine maps its file: heed asks for `unsafe` where the file could change beneath it.
#![expect(unsafe_code, reason = "opening a mapped environment, and choosing its flags, is unsafe in heed")]

use std::collections::BTreeMap;
use std::ops::Bound;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, WithTls};
use pleach_bench::{
    Capabilities, Direction, Durability, Engine, EngineConfig, EngineFactory, EngineStats, Removal, Result,
    Scan, Session, Write,
};

use crate::group::Group;

/// The factory of LMDB.
pub(crate) const LMDB: EngineFactory = EngineFactory {
    name: "lmdb",
    about: "LMDB 0.9.70 (crate heed 0.23), writable map, no read-ahead, a transaction for each write or for those that wait",
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

/// Address space for the file; it is sparse and grows as pages are written.
const MAP_BYTES: usize = 256 << 30;
/// Sessions open at a time.
const READERS_MAX: u32 = 512;

type Partition = Database<'static, Bytes, Bytes>;
type Reader<'a> = RoTxn<'a, WithTls>;

struct LmdbEngine {
    env: Env<WithTls>,
    partitions: Vec<Partition>,
    /// None if each write has a transaction of its own.
    group: Option<Group>,
}

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let mut config = config.clone();
    let partitions = config.partitions;
    let group = config.take_tuning("share")?.unwrap_or(true).then(Group::default);
    let single = partitions == 1;
    let env = open_env(&mut config, if single { 0 } else { partitions })?;
    config.no_tuning_left()?;
    let partitions = (0..partitions).map(|number| create(&env, (!single).then(|| format!("p{number}"))));
    let partitions = partitions.collect::<heed::Result<_>>()?;
    Ok(Box::new(LmdbEngine { env, partitions, group }))
}

/// Opens the environment with room for so many named databases.
pub(crate) fn open_env(config: &mut EngineConfig, databases: usize) -> Result<Env<WithTls>> {
    let mut options = EnvOpenOptions::new().read_txn_with_tls();
    options.map_size(config.take_tuning("map_bytes")?.unwrap_or(MAP_BYTES)).max_readers(READERS_MAX);
    if databases > 0 {
        options.max_dbs(u32::try_from(databases)?);
    }
    let flags = flags(config)?;
    // SAFETY: a system crash may spoil what is not synced, and the benchmark never opens a store that was left by one.
    unsafe { options.flags(flags) };
    // SAFETY: nothing else opens or changes the files in a folder that is the store's alone.
    Ok(unsafe { options.open(&config.dir)? })
}

/// Creates a database, the unnamed one if it has no name.
fn create(env: &Env<WithTls>, name: Option<String>) -> heed::Result<Partition> {
    let created = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let database = opener.create_database::<Bytes, Bytes>(txn, name.as_deref())?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(database))
    })?;
    Ok(created.unwrap_commit())
}

fn flags(config: &mut EngineConfig) -> Result<EnvFlags> {
    let mut flags = EnvFlags::NO_MEM_INIT;
    if config.durability == Durability::Buffered {
        flags |= EnvFlags::NO_SYNC;
    }
    if config.take_tuning("write_map")?.unwrap_or(true) {
        flags |= EnvFlags::WRITE_MAP;
    }
    if !config.take_tuning("read_ahead")?.unwrap_or(false) {
        flags |= EnvFlags::NO_READ_AHEAD;
    }
    Ok(flags)
}

impl LmdbEngine {
    /// Makes writes in one transaction.
    fn write(&self, writes: &[Write<'_>]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for write in writes {
            let partition = self.partitions[write.partition];
            match write.value {
                Some(value) => partition.put(&mut txn, write.key, value)?,
                None => {
                    partition.delete(&mut txn, write.key)?;
                }
            }
        }
        Ok(txn.commit()?)
    }
}

impl Engine for LmdbEngine {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(LmdbSession { engine: self, reader: None }))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        // Its pages become free in one transaction; only its empty root stays.
        let mut txn = self.env.write_txn()?;
        self.partitions[partition].clear(&mut txn)?;
        Ok(txn.commit()?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn stats(&self) -> Result<EngineStats> {
        let info = self.env.info();
        let details = [
            ("last_page", info.last_page_number as u64),
            ("transactions", info.last_txn_id as u64),
            ("readers", u64::from(info.number_of_readers)),
        ];
        let details = BTreeMap::from(details.map(|(name, count)| (name.to_owned(), count)));
        Ok(EngineStats { details, ..EngineStats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

struct LmdbSession<'a> {
    engine: &'a LmdbEngine,
    reader: Option<Reader<'a>>,
}

impl<'a> LmdbSession<'a> {
    fn partition(&self, number: usize) -> Partition {
        self.engine.partitions[number]
    }

    /// A read transaction that sees all that is committed.
    fn reader(&mut self) -> Result<&Reader<'a>> {
        let env = &self.engine.env;
        if self.reader.as_ref().is_some_and(|reader| reader.id() != env.info().last_txn_id) {
            // A thread has one at a time.
            self.reader = None;
        }
        match &mut self.reader {
            Some(reader) => Ok(reader),
            none => Ok(none.insert(env.read_txn()?)),
        }
    }

    /// Makes changes in a transaction and commits it.
    fn change<T>(&mut self, change: impl FnOnce(&mut RwTxn<'_>) -> heed::Result<T>) -> Result<()> {
        self.reader = None;
        let mut txn = self.engine.env.write_txn()?;
        change(&mut txn)?;
        Ok(txn.commit()?)
    }
}

impl Session for LmdbSession<'_> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(&[Write { partition, key, value: Some(value) }])
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        self.write(&[Write { partition, key, value: None }])
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let partition = self.partition(partition);
        let value = partition.get(self.reader()?, key)?;
        Ok(value.map(read).is_some())
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let partition = self.partition(scan.partition);
        let from = scan.from.map_or(Bound::Unbounded, Bound::Included);
        let reader = self.reader()?;
        match scan.direction {
            Direction::Forward => {
                show(partition.range(reader, &(from, Bound::Unbounded))?, scan.limit, visit)
            }
            Direction::Reverse => {
                show(partition.rev_range(reader, &(Bound::Unbounded, from))?, scan.limit, visit)
            }
        }
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        self.reader = None;
        match &self.engine.group {
            Some(group) => group.write(writes, |writes| self.engine.write(writes)),
            None => self.engine.write(writes),
        }
    }

    fn delete_range(&mut self, partition: usize, lower: &[u8], upper: &[u8]) -> Result<()> {
        let partition = self.partition(partition);
        self.change(|txn| partition.delete_range(txn, &(Bound::Included(lower), Bound::Excluded(upper))))
    }
}

fn show<'t>(
    entries: impl Iterator<Item = heed::Result<(&'t [u8], &'t [u8])>>,
    limit: usize,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    for entry in entries.take(limit) {
        let (key, value) = entry?;
        if !visit(key, value) {
            break;
        }
    }
    Ok(())
}
