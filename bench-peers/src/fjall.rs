//! Fjall 3 behind the benchmark's trait.
//!
//! Partitions are fjall's keyspaces, each an LSM-tree of its own with its own memtable; all share one journal, one block
//! cache and one pool of worker threads. What is chosen and why: docs/benchmarks.md.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    HashRatioPolicy, PartitioningPolicy, PinningPolicy, RestartIntervalPolicy,
};
use fjall::{
    AbstractTree, CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions, KvSeparationOptions,
    PersistMode,
};
use pleach_bench::{
    Capabilities, Direction, Durability, Engine, EngineConfig, EngineFactory, EngineStats, Removal, Result,
    Scan, Session, Write,
};

use crate::quiet::wait_until_quiet;

const MIB: u64 = 1 << 20;

/// Memtables whose memory is set apart for each keyspace: the active one and one that is being flushed.
const MEMTABLES: u64 = 2;

/// The factory of fjall. Settings by name: `cache_bytes`, `memtable_bytes`, `journal_bytes`, `workers`, `block_bytes`,
/// `hash_ratio`, `restart_interval`, `filter_bits`, `pin`, `split`, `l0_threshold`, `level_ratio`, `table_bytes`, and
/// `blob_threshold`, which turns key-value separation on for values of so many bytes, and with it `blob_file_bytes`,
/// `blob_staleness` and `blob_age_cutoff`.
pub(crate) const FJALL: EngineFactory = EngineFactory {
    name: "fjall",
    about: concat!(
        "fjall ",
        env!("FJALL_VERSION"),
        ", a keyspace for each partition, no key-value separation"
    ),
    capabilities: Capabilities {
        direct_reads: false,
        compression: true,
        atomic_batches: true,
        native_get_many: false,
        async_get: false,
        compaction: true,
        partition_removal: Removal::Native,
    },
    open,
};

/// The factory of fjall with key-value separation. Settings are those of [`FJALL`].
pub(crate) const FJALL_BLOB: EngineFactory = EngineFactory {
    name: "fjall-blob",
    about: concat!(
        "fjall ",
        env!("FJALL_VERSION"),
        ", values of 512 B and more in blob files, else as fjall"
    ),
    open: |config| {
        let mut config = config.clone();
        config.tuning.entry("blob_threshold".to_owned()).or_insert_with(|| BLOB_THRESHOLD.to_owned());
        open(&config)
    },
    ..FJALL
};

/// Length of values from which on `fjall-blob` keeps them apart: that of `rocksdb-blob`.
const BLOB_THRESHOLD: &str = "512";

struct Fjall {
    db: Database,
    /// By partition; none once it is dropped. Sessions have handles of their own, so that reads take no lock.
    keyspaces: Mutex<Vec<Option<Keyspace>>>,
    durability: Durability,
}

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let mut config = config.clone();
    let memory = Memory::divide(&mut config)?;
    let compression = if config.compression { CompressionType::Lz4 } else { CompressionType::None };
    let workers = config.take_tuning("workers")?.unwrap_or(config.background_threads.max(1));
    let mut builder = Database::builder(&config.dir)
        .cache_size(memory.cache_bytes)
        .worker_threads(workers)
        .journal_compression(compression)
        .manual_journal_persist(false);
    if let Some(bytes) = config.take_tuning("journal_bytes")? {
        builder = builder.max_journaling_size(bytes);
    }
    let options = keyspace_options(&mut config, &memory, compression)?;
    config.no_tuning_left()?;
    let db = builder.open()?;
    let mut keyspaces = Vec::new();
    for number in 0..config.partitions {
        keyspaces.push(Some(db.keyspace(&format!("p{number}"), || options.clone())?));
    }
    Ok(Box::new(Fjall { db, keyspaces: Mutex::new(keyspaces), durability: config.durability }))
}

/// How the memory that the benchmark allows is divided.
struct Memory {
    /// Size at which a keyspace's memtable is flushed.
    memtable_bytes: u64,
    /// Block cache, which also holds filters and indexes that are not pinned.
    cache_bytes: u64,
}

impl Memory {
    fn divide(config: &mut EngineConfig) -> Result<Self> {
        let partitions = config.partitions.max(1) as u64;
        // Fjall's documentation recommends 8 to 64 MiB.
        let memtable_bytes = (config.memory_bytes / 8 / partitions).clamp(8 * MIB, 64 * MIB);
        let memtable_bytes = config.take_tuning("memtable_bytes")?.unwrap_or(memtable_bytes);
        let rest = config.memory_bytes.saturating_sub(memtable_bytes * MEMTABLES * partitions);
        let cache_bytes = config.take_tuning("cache_bytes")?.unwrap_or(rest.max(config.memory_bytes / 4));
        Ok(Self { memtable_bytes, cache_bytes })
    }
}

fn keyspace_options(
    config: &mut EngineConfig,
    memory: &Memory,
    compression: CompressionType,
) -> Result<KeyspaceCreateOptions> {
    let bits = config.take_tuning("filter_bits")?.unwrap_or(10.0);
    let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits));
    let mut options = KeyspaceCreateOptions::default()
        .max_memtable_size(memory.memtable_bytes)
        .filter_policy(FilterPolicy::all(bloom))
        .data_block_compression_policy(CompressionPolicy::all(compression));
    if let Some(bytes) = config.take_tuning("block_bytes")? {
        options = options.data_block_size_policy(BlockSizePolicy::all(bytes));
    }
    if let Some(ratio) = config.take_tuning("hash_ratio")? {
        options = options.data_block_hash_ratio_policy(HashRatioPolicy::all(ratio));
    }
    if let Some(interval) = config.take_tuning("restart_interval")? {
        options = options.data_block_restart_interval_policy(RestartIntervalPolicy::all(interval));
    }
    if let Some(pin) = config.take_tuning("pin")? {
        options = options
            .index_block_pinning_policy(PinningPolicy::all(pin))
            .filter_block_pinning_policy(PinningPolicy::all(pin));
    }
    if let Some(split) = config.take_tuning("split")? {
        options = options
            .index_block_partitioning_policy(PartitioningPolicy::all(split))
            .filter_block_partitioning_policy(PartitioningPolicy::all(split));
    }
    let mut levels = Leveled::default();
    if let Some(threshold) = config.take_tuning("l0_threshold")? {
        levels = levels.with_l0_threshold(threshold);
    }
    if let Some(ratio) = config.take_tuning("level_ratio")? {
        levels = levels.with_level_ratio_policy(vec![ratio]);
    }
    if let Some(bytes) = config.take_tuning("table_bytes")? {
        levels = levels.with_table_target_size(bytes);
    }
    if let Some(threshold) = config.take_tuning("blob_threshold")? {
        options = options.with_kv_separation(Some(separation(config, threshold, compression)?));
    }
    Ok(options.compaction_strategy(Arc::new(levels)))
}

/// Key-value separation, with fjall's own collector unless a setting says otherwise.
fn separation(
    config: &mut EngineConfig,
    threshold: u32,
    compression: CompressionType,
) -> Result<KvSeparationOptions> {
    let mut separation =
        KvSeparationOptions::default().separation_threshold(threshold).compression(compression);
    if let Some(bytes) = config.take_tuning("blob_file_bytes")? {
        separation = separation.file_target_size(bytes);
    }
    if let Some(share) = config.take_tuning("blob_staleness")? {
        separation = separation.staleness_threshold(share);
    }
    if let Some(share) = config.take_tuning("blob_age_cutoff")? {
        separation = separation.age_cutoff(share);
    }
    Ok(separation)
}

impl Fjall {
    /// Handles of the partitions that are left.
    fn handles(&self) -> Vec<Option<Keyspace>> {
        self.keyspaces.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn live(&self) -> impl Iterator<Item = Keyspace> {
        self.handles().into_iter().flatten()
    }
}

impl Engine for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FjallSession { engine: self, keyspaces: self.handles() }))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        let mut keyspaces = self.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        let keyspace = keyspaces[partition].take().ok_or("the partition has been dropped before")?;
        Ok(self.db.delete_keyspace(keyspace)?)
    }

    fn flush(&self) -> Result<()> {
        self.live().try_for_each(|keyspace| Ok(keyspace.rotate_memtable_and_wait()?))
    }

    /// Fjall does not start a compaction on its own but after a flush, so that debts may remain; they are its choice.
    fn settle(&self) -> Result<()> {
        wait_until_quiet(Duration::from_secs(60), || {
            let flushes = self.live().map(|keyspace| keyspace.sealed_memtable_count()).sum::<usize>()
                + self.db.outstanding_flushes();
            let compactions = self.db.active_compactions();
            let done = (self.db.compactions_completed(), self.db.time_compacting(), self.db.disk_space()?);
            Ok((flushes + compactions > 0, done))
        })
    }

    fn compact(&self) -> Result<()> {
        self.flush()?;
        self.live().try_for_each(|keyspace| Ok(keyspace.major_compact()?))
    }

    fn stats(&self) -> Result<EngineStats> {
        let sum = |of: fn(&Keyspace) -> usize| self.live().map(|keyspace| of(&keyspace) as u64).sum();
        let details = [
            ("tables", sum(Keyspace::table_count)),
            ("l0_runs", sum(|keyspace| keyspace.tree.l0_run_count())),
            ("pinned_filter_bytes", sum(|keyspace| keyspace.tree.pinned_filter_size())),
            ("pinned_index_bytes", sum(|keyspace| keyspace.tree.pinned_block_index_size())),
            ("blob_files", sum(Keyspace::blob_file_count)),
            ("cache_bytes", self.db.cache_size()),
            ("cache_capacity_bytes", self.db.cache_capacity()),
            ("memtable_bytes", self.db.write_buffer_size()),
            ("journal_bytes", self.db.journal_disk_space()?),
            ("compactions", self.db.compactions_completed() as u64),
            ("compacting_us", u64::try_from(self.db.time_compacting().as_micros())?),
        ];
        let details = BTreeMap::from(details.map(|(name, count)| (name.to_owned(), count)));
        Ok(EngineStats { details, ..EngineStats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { db, keyspaces, .. } = *self;
        drop(keyspaces);
        Ok(db.persist(PersistMode::Buffer)?)
    }
}

struct FjallSession<'a> {
    engine: &'a Fjall,
    keyspaces: Vec<Option<Keyspace>>,
}

impl FjallSession<'_> {
    fn keyspace(&self, partition: usize) -> Result<&Keyspace> {
        Ok(self.keyspaces[partition].as_ref().ok_or("the partition has been dropped")?)
    }

    /// Single writes go straight into the journal, which hands them to the system; only syncing needs a batch.
    fn is_synced(&self) -> bool {
        self.engine.durability == Durability::Sync
    }
}

impl Session for FjallSession<'_> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        if self.is_synced() {
            return self.write(&[Write { partition, key, value: Some(value) }]);
        }
        Ok(self.keyspace(partition)?.insert(key, value)?)
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        if self.is_synced() {
            return self.write(&[Write { partition, key, value: None }]);
        }
        Ok(self.keyspace(partition)?.remove(key)?)
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace(partition)?.get(key)?;
        Ok(value.map(|value| read(&value)).is_some())
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let keyspace = self.keyspace(scan.partition)?;
        let from = scan.from.map_or(Bound::Unbounded, Bound::Included);
        let mut left = scan.limit;
        let mut see = |entry: Guard| -> Result<bool> {
            let (key, value) = entry.into_inner()?;
            left -= 1;
            Ok(visit(&key, &value) && left > 0)
        };
        if scan.limit == 0 {
            return Ok(());
        }
        match scan.direction {
            Direction::Forward => {
                let mut range = keyspace.range::<&[u8], _>((from, Bound::Unbounded));
                while range.next().map_or(Ok(false), &mut see)? {}
            }
            Direction::Reverse => {
                let mut range = keyspace.range::<&[u8], _>((Bound::Unbounded, from));
                while range.next_back().map_or(Ok(false), &mut see)? {}
            }
        }
        Ok(())
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        let mode = if self.is_synced() { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut batch = self.engine.db.batch().durability(Some(mode));
        for write in writes {
            let keyspace = self.keyspace(write.partition)?;
            match write.value {
                Some(value) => batch.insert(keyspace, write.key, value),
                None => batch.remove(keyspace, write.key),
            }
        }
        Ok(batch.commit()?)
    }
}
