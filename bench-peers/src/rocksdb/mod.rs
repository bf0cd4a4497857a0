//! RocksDB behind the benchmark's trait, in four configurations: levelled, universal, and levelled with values in
//! blob files, these with the collector as its authors advise or bound by space.
//!
//! Partitions are column families, and partition 0 is the default one. Reads show the block's own bytes (pinned); a
//! session keeps one iterator for each partition and brings it up to date before a scan, which is cheaper than a new
//! one and sees the same. Statistics are off, for they cost every operation: bytes written are the system's to count.
//!
//! `get_many` is `MultiGet`, which reads the blocks that it needs of one file by one `io_uring` call. Setting by name, beside
//! those of `options`: `async_io`, by default `true`.

mod options;
mod stats;

use std::sync::Arc;

use pleach_bench::{
    Capabilities, Direction, Durability, Engine, EngineConfig, EngineFactory, EngineStats, Error, Removal,
    Result, Scan, Session, Write,
};
use rocksdb::{
    BottommostLevelCompaction, BoundColumnFamily, ColumnFamilyDescriptor, CompactOptions,
    DBRawIteratorWithThreadMode, DBWithThreadMode, DEFAULT_COLUMN_FAMILY_NAME, MultiThreaded, ReadOptions,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};

use options::{Prepared, Style, prepare};
use stats::Caches;

/// The factory of levelled RocksDB. Settings by name: see `options`.
pub(crate) const LEVELLED: EngineFactory = EngineFactory {
    name: "rocksdb",
    about: "RocksDB 11.8.1 (crate rocksdb 0.25), levelled compaction, 10-bit Bloom filters, one cache for all memory",
    capabilities: CAPABILITIES,
    open: |config| open(config, Style::Levelled),
};

/// The factory of RocksDB with universal compaction. Settings by name: see `options`.
pub(crate) const UNIVERSAL: EngineFactory = EngineFactory {
    name: "rocksdb-universal",
    about: "RocksDB 11.8.1 (crate rocksdb 0.25), universal compaction, else as rocksdb",
    capabilities: CAPABILITIES,
    open: |config| open(config, Style::Universal),
};

/// The factory of RocksDB with blob files. Settings by name: see `options`.
pub(crate) const BLOB: EngineFactory = EngineFactory {
    name: "rocksdb-blob",
    about: "RocksDB 11.8.1 (crate rocksdb 0.25), values of 512 B and more in blob files, else as rocksdb",
    capabilities: CAPABILITIES,
    open: |config| open(config, Style::Blob),
};

/// The factory of RocksDB with blob files whose collector keeps to a space target. Settings by name: see `options`.
pub(crate) const BLOB_SPACE: EngineFactory = EngineFactory {
    name: "rocksdb-blob-space",
    about: "RocksDB 11.8.1 (crate rocksdb 0.25), blob files at 1.3 times the live values at most, else as rocksdb-blob",
    capabilities: CAPABILITIES,
    open: |config| open(config, Style::BlobWithinSpace),
};

const CAPABILITIES: Capabilities = Capabilities {
    direct_reads: true,
    compression: true,
    atomic_batches: true,
    native_get_many: true,
    async_get: false,
    compaction: true,
    partition_removal: Removal::Native,
};

type Db = DBWithThreadMode<MultiThreaded>;

struct RocksDbEngine {
    db: Db,
    caches: Caches,
    durability: Durability,
    partitions: usize,
    /// `ReadOptions::async_io`.
    async_io: bool,
}

fn open(config: &EngineConfig, style: Style) -> Result<Box<dyn Engine>> {
    let mut config = config.clone();
    let async_io = config.take_tuning("async_io")?.unwrap_or(true);
    let Prepared { options, caches } = prepare(config.clone(), style)?;
    let families = (0..config.partitions)
        .map(|number| ColumnFamilyDescriptor::new(family_name(number), options.clone()));
    let db = Db::open_cf_descriptors(&options, &config.dir, families)?;
    let EngineConfig { durability, partitions, .. } = config;
    Ok(Box::new(RocksDbEngine { db, caches, durability, partitions, async_io }))
}

fn family_name(partition: usize) -> String {
    match partition {
        0 => DEFAULT_COLUMN_FAMILY_NAME.to_owned(),
        _ => format!("p{partition}"),
    }
}

impl RocksDbEngine {
    /// The column family of each partition; none where it was dropped.
    fn families(&self) -> Vec<Option<Arc<BoundColumnFamily<'_>>>> {
        (0..self.partitions).map(|number| self.db.cf_handle(&family_name(number))).collect()
    }
}

impl Engine for RocksDbEngine {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let families = self.families();
        let mut write = WriteOptions::default();
        write.set_sync(self.durability == Durability::Sync);
        let mut read = ReadOptions::default();
        read.set_async_io(self.async_io);
        Ok(Box::new(RocksDbSession {
            db: &self.db,
            iterators: families.iter().map(|_| None).collect(),
            families,
            read,
            write,
        }))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        Ok(self.db.drop_cf(&family_name(partition))?)
    }

    fn flush(&self) -> Result<()> {
        for family in self.families().iter().flatten() {
            self.db.flush_cf(family)?;
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        let mut wait = WaitForCompactOptions::default();
        wait.set_flush(true);
        Ok(self.db.wait_for_compact(&wait)?)
    }

    fn compact(&self) -> Result<()> {
        let mut all = CompactOptions::default();
        all.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        for family in self.families().iter().flatten() {
            self.db.compact_range_cf_opt(family, None::<&[u8]>, None::<&[u8]>, &all);
        }
        Ok(())
    }

    fn stats(&self) -> Result<EngineStats> {
        stats::stats(&self.db, &self.families(), &self.caches)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

struct RocksDbSession<'a> {
    // Iterators come first, for they are dropped first.
    iterators: Vec<Option<DBRawIteratorWithThreadMode<'a, Db>>>,
    families: Vec<Option<Arc<BoundColumnFamily<'a>>>>,
    db: &'a Db,
    read: ReadOptions,
    write: WriteOptions,
}

impl<'a> RocksDbSession<'a> {
    fn family(&self, partition: usize) -> Result<&Arc<BoundColumnFamily<'a>>> {
        family_of(&self.families, partition)
    }

    /// The partition's iterator, which sees all that is committed now.
    fn iterator(&mut self, partition: usize) -> Result<&mut DBRawIteratorWithThreadMode<'a, Db>> {
        let slot = &mut self.iterators[partition];
        if let Some(iterator) = slot {
            iterator.refresh()?;
        } else {
            let family = family_of(&self.families, partition)?;
            *slot = Some(self.db.raw_iterator_cf(family));
        }
        Ok(slot.as_mut().expect("it was just made"))
    }
}

fn family_of<'f, 'a>(
    families: &'f [Option<Arc<BoundColumnFamily<'a>>>],
    partition: usize,
) -> Result<&'f Arc<BoundColumnFamily<'a>>> {
    families[partition].as_ref().ok_or_else(|| Error::from("the partition was dropped"))
}

impl Session for RocksDbSession<'_> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_cf_opt(self.family(partition)?, key, value, &self.write)?)
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        Ok(self.db.delete_cf_opt(self.family(partition)?, key, &self.write)?)
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned_cf_opt(self.family(partition)?, key, &self.read)?;
        Ok(value.map(|value| read(&value)).is_some())
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let iterator = self.iterator(scan.partition)?;
        match (scan.direction, scan.from) {
            (Direction::Forward, Some(key)) => iterator.seek(key),
            (Direction::Forward, None) => iterator.seek_to_first(),
            (Direction::Reverse, Some(key)) => iterator.seek_for_prev(key),
            (Direction::Reverse, None) => iterator.seek_to_last(),
        }
        for seen in 1..=scan.limit {
            let Some((key, value)) = iterator.item() else { break };
            if !visit(key, value) || seen == scan.limit {
                return Ok(());
            }
            match scan.direction {
                Direction::Forward => iterator.next(),
                Direction::Reverse => iterator.prev(),
            }
        }
        Ok(iterator.status()?)
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for write in writes {
            let family = self.family(write.partition)?;
            match write.value {
                Some(value) => batch.put_cf(family, write.key, value),
                None => batch.delete_cf(family, write.key),
            }
        }
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn get_many(
        &mut self,
        partition: usize,
        keys: &[&[u8]],
        read: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<()> {
        let family = self.family(partition)?;
        let keys = keys.iter().copied();
        let values = self.db.batched_multi_get_cf_opt(family, keys, false, &self.read);
        for (at, value) in values.into_iter().enumerate() {
            if let Some(value) = value? {
                read(at, &value);
            }
        }
        Ok(())
    }

    fn delete_range(&mut self, partition: usize, lower: &[u8], upper: &[u8]) -> Result<()> {
        Ok(self.db.delete_range_cf_opt(self.family(partition)?, lower, upper, &self.write)?)
    }
}
