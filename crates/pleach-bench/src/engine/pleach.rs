//! Pleach behind the benchmark's trait, once for each shape of its files.
//!
//! Partitions are Pleach's own; partition 0 is the default one.

use std::collections::BTreeMap;
use std::ops::Bound;

use pleach::{Db, Options, Partition, Shape, Value, WriteBatch};

use super::{
    Capabilities, Direction, Durability, Engine, EngineConfig, EngineFactory, EngineStats, GetFuture,
    Removal, Result, Scan, Session, Write,
};

/// The factory of Pleach as it is by default, a forest over a bottom. Settings by name: `memtable_bytes`,
/// `runs_per_stage`, `sst_bytes`, `clean_every`, `filter_bits_per_key`.
pub const PLEACH: EngineFactory = EngineFactory {
    name: "pleach",
    about: concat!(
        "Pleach ",
        env!("CARGO_PKG_VERSION"),
        ", default options but for what the command line says"
    ),
    capabilities: CAPABILITIES,
    open: |config| open(config, Shape::ForestOverBottom),
};

/// The factory of Pleach as a forest without a bottom, which writes least. Settings are those of [`PLEACH`].
pub const PLEACH_FOREST: EngineFactory = EngineFactory {
    name: "pleach-forest",
    about: concat!("Pleach ", env!("CARGO_PKG_VERSION"), ", a forest, else as pleach"),
    capabilities: CAPABILITIES,
    open: |config| open(config, Shape::Forest),
};

/// The factory of Pleach in levels, which reads least. Settings are those of [`PLEACH`].
pub const PLEACH_LEVELED: EngineFactory = EngineFactory {
    name: "pleach-leveled",
    about: concat!("Pleach ", env!("CARGO_PKG_VERSION"), ", leveled, else as pleach"),
    capabilities: CAPABILITIES,
    open: |config| open(config, Shape::Leveled),
};

const CAPABILITIES: Capabilities = Capabilities {
    direct_reads: true,
    compression: true,
    atomic_batches: true,
    native_get_many: true,
    async_get: true,
    compaction: true,
    partition_removal: Removal::Native,
};

/// Most compaction threads that Pleach takes.
const COMPACTION_THREADS_MAX: usize = 64;

struct PleachEngine {
    db: Db,
    partitions: Vec<Partition>,
    durability: pleach::Durability,
    settings: BTreeMap<String, String>,
}

fn open(config: &EngineConfig, shape: Shape) -> Result<Box<dyn Engine>> {
    let db = options(config.clone(), shape)?.open(&config.dir)?;
    let mut partitions = vec![db.default_partition()];
    for number in 1..config.partitions {
        partitions.push(db.partition(&format!("p{number}"))?);
    }
    let durability = match config.durability {
        Durability::Buffered => pleach::Durability::Buffered,
        Durability::Sync => pleach::Durability::Sync,
    };
    let mut settings = settings(config, shape);
    settings.insert("read_driver".to_owned(), db.stats().read_driver.to_string());
    Ok(Box::new(PleachEngine { db, partitions, durability, settings }))
}

fn compaction_threads(config: &EngineConfig) -> usize {
    config.background_threads.clamp(1, COMPACTION_THREADS_MAX)
}

/// What was chosen, for the record.
fn settings(config: &EngineConfig, shape: Shape) -> BTreeMap<String, String> {
    let mut settings = config.tuning.clone();
    settings.insert("shape".to_owned(), format!("{shape:?}"));
    settings.insert("compaction_threads".to_owned(), compaction_threads(config).to_string());
    settings
}

fn options(mut config: EngineConfig, shape: Shape) -> Result<Options> {
    let mut options = Options::new()
        .memory(usize::try_from(config.memory_bytes)?)
        .direct_reads(config.direct_reads)
        .compression(config.compression)
        .shape(shape)
        .compaction_threads(compaction_threads(&config));
    if let Some(bytes) = config.take_tuning("memtable_bytes")? {
        options = options.memtable_bytes(bytes);
    }
    if let Some(runs) = config.take_tuning("runs_per_stage")? {
        options = options.runs_per_stage(runs);
    }
    if let Some(bytes) = config.take_tuning("sst_bytes")? {
        options = options.sst_bytes(bytes);
    }
    if let Some(ssts) = config.take_tuning("clean_every")? {
        options = options.clean_every(ssts);
    }
    if let Some(bits) = config.take_tuning("filter_bits_per_key")? {
        options = options.filter_bits_per_key(bits);
    }
    if let Some(driver) = config.take_tuning("read_driver")? {
        options = options.read_driver(driver);
    }
    config.no_tuning_left()?;
    Ok(options)
}

impl Engine for PleachEngine {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(PleachSession { engine: self }))
    }

    fn get_async<'a>(&'a self, partition: usize, key: &[u8]) -> Option<GetFuture<'a>> {
        let get = self.partitions[partition].get_async(key);
        Some(Box::pin(async { Ok(get.await?.map(Value::into_vec)) }))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        if partition == 0 {
            return Err("the default partition cannot be dropped".into());
        }
        Ok(self.db.drop_partition(self.partitions[partition].clone())?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.db.settle()?)
    }

    fn compact(&self) -> Result<()> {
        Ok(self.db.compact()?)
    }

    fn stats(&self) -> Result<EngineStats> {
        let stats = self.db.stats();
        let details = [
            ("runs", stats.runs),
            ("runs_max", stats.runs_max),
            ("ssts", stats.ssts),
            ("sst_bytes", stats.sst_bytes),
            ("flush_bytes", stats.flush_bytes),
            ("compaction_written_bytes", stats.compaction_written_bytes),
            ("compaction_read_bytes", stats.compaction_read_bytes),
            ("moved_bytes", stats.moved_bytes),
            ("tombstones_passed", stats.tombstones_passed),
            ("cache_bytes", stats.cache_bytes),
            ("memtable_bytes", stats.memtable_bytes),
            ("filter_bytes", stats.filter_bytes),
            ("wasted_probes", stats.wasted_probes),
        ];
        Ok(EngineStats {
            written_bytes: Some(stats.log_bytes + stats.flush_bytes + stats.compaction_written_bytes),
            log_bytes: Some(stats.log_bytes),
            read_bytes: None,
            index_filter_bytes: Some(stats.index_filter_bytes),
            stalled_ns: u64::try_from(stats.stalled.as_nanos()).ok(),
            details: BTreeMap::from(details.map(|(name, count)| (name.to_owned(), count))),
            settings: self.settings.clone(),
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { db, partitions, .. } = *self;
        drop(partitions);
        Ok(db.close()?)
    }
}

struct PleachSession<'a> {
    engine: &'a PleachEngine,
}

impl PleachSession<'_> {
    fn partition(&self, number: usize) -> &Partition {
        &self.engine.partitions[number]
    }
}

impl Session for PleachSession<'_> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.partition(partition).put_with(key, value, self.engine.durability)?)
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        Ok(self.partition(partition).delete_with(key, self.engine.durability)?)
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.partition(partition).get(key)?;
        Ok(value.map(|value| read(&value)).is_some())
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let from = scan.from.map_or(Bound::Unbounded, Bound::Included);
        let mut left = scan.limit;
        let mut see = |(key, value): (&[u8], &[u8])| {
            left -= 1;
            visit(key, value) && left > 0
        };
        if scan.limit == 0 {
            return Ok(());
        }
        let partition = self.partition(scan.partition);
        match scan.direction {
            Direction::Forward => {
                let mut range = partition.range::<&[u8]>((from, Bound::Unbounded));
                while range.next_entry()?.is_some_and(&mut see) {}
            }
            Direction::Reverse => {
                let mut range = partition.range::<&[u8]>((Bound::Unbounded, from));
                while range.next_back_entry()?.is_some_and(&mut see) {}
            }
        }
        Ok(())
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        let mut batch: WriteBatch = self.engine.db.batch();
        for write in writes {
            match write.value {
                Some(value) => batch.put(self.partition(write.partition), write.key, value),
                None => batch.delete(self.partition(write.partition), write.key),
            }
        }
        Ok(batch.commit(self.engine.durability)?)
    }

    fn get_many(
        &mut self,
        partition: usize,
        keys: &[&[u8]],
        read: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<()> {
        let values = self.partition(partition).get_many(keys)?;
        for (at, value) in values.iter().enumerate() {
            if let Some(value) = value {
                read(at, value);
            }
        }
        Ok(())
    }
}
