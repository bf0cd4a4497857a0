//! Pleach behind the benchmark's trait, once for each shape of its files.
//!
//! Partitions are Pleach's own; partition 0 is the default one.

mod settings;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use pleach::{Db, Partition, Range, ReadOptions, Shape, Value, WriteBatch};

use settings::Chosen;

use super::{
    Capabilities, Direction, Durability, Engine, EngineConfig, EngineFactory, EngineStats, GetFuture,
    Removal, Result, Scan, ScanFuture, ScannedEntries, Session, Write,
};

/// The factory of Pleach as it is by default, a forest over a bottom. Settings by name: `memtable_bytes`, `runs_per_stage`,
/// `sst_bytes`, `clean_every`, `separate_at`, `space_target`, `conversion` (`never`, `scans`, `always`), `filter_bits_per_key`,
/// `learned_index` (`never`, `always`, `adaptive`, `reading`: as adaptive, but flushes never train), `read_driver` (`ring`,
/// `device-polled`, `kernel-polled`, `threads`, `blocking`), `read_policy` (`auto`, `serial`, `fc<searches>`, `pa`), `fill_cache`
/// (`true`, `false`), `expect_entries` (`true`, `false`: whether scans say how many entries they take), `simulated_device`
/// (`sata`, `hdd`).
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

/// The factory of Pleach with all values in its SSTs. Settings are those of [`PLEACH`].
pub const PLEACH_INLINE: EngineFactory = EngineFactory {
    name: "pleach-inline",
    about: concat!("Pleach ", env!("CARGO_PKG_VERSION"), ", no value apart from its key, else as pleach"),
    capabilities: CAPABILITIES,
    open: |config| open_with(config, "separate_at", "0"),
};

/// The factory of Pleach with large values apart from keys. Settings are those of [`PLEACH`].
pub const PLEACH_SEPARATED: EngineFactory = EngineFactory {
    name: "pleach-separated",
    about: concat!(
        "Pleach ",
        env!("CARGO_PKG_VERSION"),
        ", values of 512 B and more apart from keys, else as pleach"
    ),
    capabilities: CAPABILITIES,
    open: |config| open_with(config, "separate_at", SEPARATE_AT),
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

struct PleachEngine {
    db: Db,
    partitions: Vec<Partition>,
    durability: pleach::Durability,
    reads: ReadOptions,
    expects_entries: bool,
    settings: BTreeMap<String, String>,
}

fn open(config: &EngineConfig, shape: Shape) -> Result<Box<dyn Engine>> {
    let Chosen { options, reads, expects_entries, device } = settings::chosen(config.clone(), shape)?;
    let db = options.open(&config.dir)?;
    if let Some(device) = device {
        device.begin();
    }
    let mut partitions = vec![db.default_partition()];
    for number in 1..config.partitions {
        partitions.push(db.partition(&format!("p{number}"))?);
    }
    let durability = match config.durability {
        Durability::Buffered => pleach::Durability::Buffered,
        Durability::Sync => pleach::Durability::Sync,
    };
    let mut settings = settings::for_record(config, shape);
    settings.insert("read_driver".to_owned(), db.stats().read_driver.to_string());
    Ok(Box::new(PleachEngine { db, partitions, durability, reads, expects_entries, settings }))
}

/// Length of values from which on [`PLEACH_SEPARATED`] keeps them apart: that of `rocksdb-blob`.
const SEPARATE_AT: &str = "512";

/// As [`PLEACH`], with a setting unless the command line has it.
fn open_with(config: &EngineConfig, setting: &str, value: &str) -> Result<Box<dyn Engine>> {
    let mut config = config.clone();
    config.tuning.entry(setting.to_owned()).or_insert_with(|| value.to_owned());
    open(&config, Shape::ForestOverBottom)
}

/// Values of `learned_index` with which an idle store trains.
const TRAINS_WHEN_IDLE: [&str; 2] = ["adaptive", "reading"];
/// A store that is idle for so long without a new model has made all that it makes.
const TRAINED_AFTER: Duration = Duration::from_secs(3);

impl PleachEngine {
    fn wait_for_training(&self) {
        let (mut learned, mut since) = (0, Instant::now());
        while since.elapsed() < TRAINED_AFTER {
            let stats = self.db.stats();
            if stats.ssts_learned == stats.ssts {
                return;
            }
            if stats.ssts_learned != learned {
                (learned, since) = (stats.ssts_learned, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn range(&self, partition: &Partition, bounds: (Bound<&[u8]>, Bound<&[u8]>), limit: usize) -> Range {
        let range = partition.range::<&[u8]>(bounds);
        if self.expects_entries { range.expect_entries(limit as u64) } else { range }
    }
}

impl Engine for PleachEngine {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(PleachSession { engine: self }))
    }

    fn get_async<'a>(&'a self, partition: usize, key: &[u8]) -> Option<GetFuture<'a>> {
        let get = self.partitions[partition].get_async_with(key, &self.reads);
        Some(Box::pin(async { Ok(get.await?.map(Value::into_vec)) }))
    }

    fn scan_async<'a>(&'a self, scan: &Scan<'_>) -> Option<ScanFuture<'a>> {
        let from = scan.from.map_or(Bound::Unbounded, Bound::Included);
        let (partition, limit) = (&self.partitions[scan.partition], scan.limit);
        let mut chunks = match scan.direction {
            Direction::Forward => self.range(partition, (from, Bound::Unbounded), limit).into_chunks(limit),
            Direction::Reverse => {
                self.range(partition, (Bound::Unbounded, from), limit).into_chunks_back(limit)
            }
        };
        Some(Box::pin(async move {
            let (mut entries, mut left) = (ScannedEntries::default(), limit);
            while left > 0
                && let Some(chunk) = chunks.next_chunk().await?
            {
                chunk.iter().take(left).for_each(|(key, value)| entries.push(key, value));
                left = left.saturating_sub(chunk.len());
            }
            Ok(entries)
        }))
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
        self.db.settle()?;
        if self.settings.get("learned_index").is_some_and(|index| TRAINS_WHEN_IDLE.contains(&&**index)) {
            self.wait_for_training();
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Ok(self.db.compact()?)
    }

    fn convert(&self) -> Result<()> {
        Ok(self.db.convert().map(drop)?)
    }

    fn stats(&self) -> Result<EngineStats> {
        let stats = self.db.stats();
        let details = [
            ("runs", stats.runs),
            ("runs_max", stats.runs_max),
            ("ssts", stats.ssts),
            ("ssts_learned", stats.ssts_learned),
            ("index_bytes", stats.index_bytes),
            ("residual_bytes", stats.residual_bytes),
            ("index_error_max", stats.index_error_max),
            ("data_blocks", stats.data_blocks),
            ("training_us", u64::try_from(stats.training_time.as_micros()).unwrap_or(u64::MAX)),
            ("sst_bytes", stats.sst_bytes),
            ("flush_bytes", stats.flush_bytes),
            ("compaction_written_bytes", stats.compaction_written_bytes),
            ("compaction_read_bytes", stats.compaction_read_bytes),
            ("moved_bytes", stats.moved_bytes),
            ("value_files", stats.value_files),
            ("value_file_bytes", stats.value_file_bytes),
            ("value_bytes", stats.value_bytes),
            ("value_table_bytes", stats.value_table_bytes),
            ("value_copied_bytes", stats.value_copied_bytes),
            ("value_moved_bytes", stats.value_moved_bytes),
            ("value_moves", stats.value_moves),
            ("value_converted_bytes", stats.value_converted_bytes),
            ("values_converted", stats.values_converted),
            ("tombstones_passed", stats.tombstones_passed),
            ("cache_bytes", stats.cache_bytes),
            ("value_cache_bytes", stats.value_cache_bytes),
            ("memtable_bytes", stats.memtable_bytes),
            ("filter_bytes", stats.filter_bytes),
            ("wasted_probes", stats.wasted_probes),
            ("lookup_reads", stats.lookup_reads),
            ("wasted_reads", stats.wasted_reads),
            ("value_reads", stats.value_reads),
        ];
        Ok(EngineStats {
            written_bytes: Some(
                stats.log_bytes
                    + stats.flush_bytes
                    + stats.compaction_written_bytes
                    + stats.value_copied_bytes
                    + stats.value_moved_bytes
                    + stats.value_converted_bytes,
            ),
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
        let value = self.partition(partition).get_with(key, &self.engine.reads)?;
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
                let mut range = self.engine.range(partition, (from, Bound::Unbounded), scan.limit);
                while range.next_entry()?.is_some_and(&mut see) {}
            }
            Direction::Reverse => {
                let mut range = self.engine.range(partition, (Bound::Unbounded, from), scan.limit);
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
        let values = self.partition(partition).get_many_with(keys, &self.engine.reads)?;
        for (at, value) in values.iter().enumerate() {
            if let Some(value) = value {
                read(at, value);
            }
        }
        Ok(())
    }
}
