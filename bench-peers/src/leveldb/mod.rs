//! LevelDB behind the benchmark's trait, over the system's library.
//!
//! LevelDB has one key space. A store of several partitions puts the partition's number, one byte, before each key; a
//! store of one does without. [`database`] covers the C interface, [`levels`] reads what LevelDB tells about itself.
//! What is chosen and why: docs/benchmarks.md.

mod database;
mod ffi;
mod levels;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pleach_bench::{
    Capabilities, Direction, Durability, Engine, EngineConfig, EngineFactory, EngineStats, Removal, Result,
    Scan, Session, Write,
};

use crate::quiet::{file_bytes, wait_until_quiet};
use database::{Database, Iterator, Options, WriteBatch};

/// Memtables that LevelDB has at most: one that takes writes and one that is being flushed.
const MEMTABLES: u64 = 2;

/// Most partitions: the prefix is a byte, and the one after it ends the partition.
const PARTITIONS_MAX: usize = 255;

/// Keys that one batch deletes when a partition is dropped.
const DELETES_AT_ONCE: usize = 1000;

/// The factory of LevelDB. Settings by name: `cache_bytes`, `write_buffer_bytes`, `file_bytes`, `block_bytes`,
/// `restart_interval`, `files_max`, `filter_bits`.
pub(crate) fn factory() -> EngineFactory {
    let (major, minor) = database::version();
    EngineFactory {
        name: "leveldb",
        about: format!("LevelDB {major}.{minor} by its C interface, partitions by a key prefix").leak(),
        capabilities: Capabilities {
            direct_reads: false,
            compression: true,
            atomic_batches: true,
            native_get_many: false,
            async_get: false,
            compaction: true,
            partition_removal: Removal::KeyByKey,
        },
        open,
    }
}

struct LevelDb {
    db: Database,
    dir: PathBuf,
    prefixed: bool,
}

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    if config.partitions > PARTITIONS_MAX {
        return Err(format!("at most {PARTITIONS_MAX} partitions have a prefix").into());
    }
    let options = options(config.clone())?;
    let db = Database::open(&config.dir, &options)?;
    Ok(Box::new(LevelDb { db, dir: config.dir.clone(), prefixed: config.partitions > 1 }))
}

fn options(mut config: EngineConfig) -> Result<Options> {
    let write_buffer = (config.memory_bytes / 8).clamp(4 << 20, 64 << 20);
    let write_buffer: u64 = config.take_tuning("write_buffer_bytes")?.unwrap_or(write_buffer);
    let rest = config.memory_bytes.saturating_sub(write_buffer * MEMTABLES);
    let cache = config.take_tuning("cache_bytes")?.unwrap_or(rest.max(config.memory_bytes / 4));
    let options = Options {
        cache_bytes: usize::try_from(cache)?,
        write_buffer_bytes: usize::try_from(write_buffer)?,
        file_bytes: config.take_tuning("file_bytes")?.unwrap_or(8 << 20),
        block_bytes: config.take_tuning("block_bytes")?.unwrap_or(4096),
        restart_interval: config.take_tuning("restart_interval")?.unwrap_or(16),
        files_max: config.take_tuning("files_max")?.unwrap_or(10_000),
        filter_bits: config.take_tuning("filter_bits")?.unwrap_or(10),
        compression: config.compression,
        sync: config.durability == Durability::Sync,
    };
    config.no_tuning_left()?;
    Ok(options)
}

impl LevelDb {
    fn new_session(&self) -> LevelDbSession<'_> {
        LevelDbSession { engine: self, key: Vec::new(), batch: WriteBatch::new() }
    }

    /// Deletes the keys of a partition from `lower` up to, not including, `upper`, as one iterator sees them.
    fn delete_keys(&self, partition: usize, lower: &[u8], upper: Option<&[u8]>) -> Result<()> {
        let (mut scanner, mut deleter) = (self.new_session(), self.new_session());
        let mut written = Ok(());
        let mut waiting = 0;
        let scan = Scan { partition, from: Some(lower), direction: Direction::Forward, limit: usize::MAX };
        scanner.scan(&scan, &mut |key, _| {
            if upper.is_some_and(|upper| key >= upper) {
                return false;
            }
            deleter.add(&Write { partition, key, value: None });
            waiting += 1;
            if waiting == DELETES_AT_ONCE {
                written = deleter.commit();
                waiting = 0;
            }
            written.is_ok()
        })?;
        written?;
        deleter.commit()
    }

    fn stats_text(&self) -> Result<String> {
        self.db.property(c"leveldb.stats")
    }

    fn levels(&self) -> Result<Vec<levels::Level>> {
        Ok(levels::levels(&self.db.property(c"leveldb.sstables")?))
    }
}

impl Engine for LevelDb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self.new_session()))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        self.delete_keys(partition, b"", None)
    }

    /// No file holds the empty key, so that compacting it flushes the memtable and does nothing more.
    fn flush(&self) -> Result<()> {
        self.db.compact_range(b"", b"");
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        wait_until_quiet(Duration::from_secs(60), || {
            let levels = self.levels()?;
            Ok((levels::compaction_is_due(&levels), (levels, self.stats_text()?, file_bytes(&self.dir))))
        })
    }

    fn compact(&self) -> Result<()> {
        self.db.compact_all();
        Ok(())
    }

    fn stats(&self) -> Result<EngineStats> {
        let mut details = BTreeMap::new();
        for (number, level) in self.levels()?.iter().enumerate().filter(|(_, level)| level.files > 0) {
            details.insert(format!("level_{number}_files"), level.files as u64);
            details.insert(format!("level_{number}_bytes"), level.bytes);
        }
        let (read_mib, written_mib) = levels::compaction_mib(&self.stats_text()?);
        details.insert("compaction_read_mib".to_owned(), read_mib);
        details.insert("compaction_written_mib".to_owned(), written_mib);
        let memory = self.db.property(c"leveldb.approximate-memory-usage")?;
        details.insert("memory_bytes".to_owned(), memory.trim().parse()?);
        Ok(EngineStats { details, ..EngineStats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct LevelDbSession<'a> {
    engine: &'a LevelDb,
    /// The key with its prefix.
    key: Vec<u8>,
    batch: WriteBatch,
}

impl LevelDbSession<'_> {
    /// The key as LevelDB has it.
    fn full<'k>(&'k mut self, partition: usize, key: &'k [u8]) -> &'k [u8] {
        if self.engine.prefixed { with_prefix(&mut self.key, partition, key) } else { key }
    }

    /// Adds a write to the batch.
    fn add(&mut self, write: &Write<'_>) {
        let prefixed = self.engine.prefixed;
        let key = if prefixed { with_prefix(&mut self.key, write.partition, write.key) } else { write.key };
        match write.value {
            Some(value) => self.batch.put(key, value),
            None => self.batch.delete(key),
        }
    }

    /// Writes the batch, which is empty then.
    fn commit(&mut self) -> Result<()> {
        let written = self.engine.db.write(&mut self.batch);
        self.batch.clear();
        written
    }

    /// Goes to the first entry of a scan: in reverse, the last one at or below where it starts.
    fn start(&mut self, scan: &Scan<'_>) -> Iterator<'_> {
        let mut iterator = self.engine.db.iterator();
        let prefixed = self.engine.prefixed;
        match (scan.direction, scan.from) {
            (Direction::Forward, None) if !prefixed => iterator.seek_to_first(),
            (Direction::Reverse, None) if !prefixed => iterator.seek_to_last(),
            (Direction::Forward, from) => {
                iterator.seek(self.full(scan.partition, from.unwrap_or_default()));
            }
            (Direction::Reverse, Some(from)) => {
                let from = self.full(scan.partition, from);
                iterator.seek(from);
                match iterator.entry() {
                    Some((key, _)) if key == from => {}
                    Some(_) => iterator.prev(),
                    None => iterator.seek_to_last(),
                }
            }
            (Direction::Reverse, None) => {
                iterator.seek(&[prefix(scan.partition + 1)]);
                if iterator.entry().is_some() { iterator.prev() } else { iterator.seek_to_last() }
            }
        }
        iterator
    }
}

fn with_prefix<'k>(buffer: &'k mut Vec<u8>, partition: usize, key: &[u8]) -> &'k [u8] {
    buffer.clear();
    buffer.push(prefix(partition));
    buffer.extend_from_slice(key);
    buffer
}

/// The byte before a partition's keys.
fn prefix(partition: usize) -> u8 {
    u8::try_from(partition).expect("there are at most 255 partitions")
}

impl Session for LevelDbSession<'_> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let db = &self.engine.db;
        db.put(self.full(partition, key), value)
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        let db = &self.engine.db;
        db.delete(self.full(partition, key))
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let db = &self.engine.db;
        let value = db.get(self.full(partition, key))?;
        Ok(value.map(|value| read(&value)).is_some())
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let prefixed = self.engine.prefixed;
        let mut iterator = self.start(scan);
        let mut left = scan.limit;
        while left > 0
            && let Some((mut key, value)) = iterator.entry()
        {
            if prefixed {
                match key.split_first() {
                    Some((&first, rest)) if first == prefix(scan.partition) => key = rest,
                    _ => break,
                }
            }
            left -= 1;
            if !visit(key, value) {
                break;
            }
            if left > 0 {
                match scan.direction {
                    Direction::Forward => iterator.next(),
                    Direction::Reverse => iterator.prev(),
                }
            }
        }
        iterator.status()
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        for write in writes {
            self.add(write);
        }
        self.commit()
    }

    fn delete_range(&mut self, partition: usize, lower: &[u8], upper: &[u8]) -> Result<()> {
        self.engine.delete_keys(partition, lower, Some(upper))
    }
}
