//! The paper's own scheme behind the benchmark's trait: one counter, one locked tree, a remap file written before each commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use pleach_bench::{
    Capabilities, Direction, Durability, Engine, EngineConfig, EngineStats, Removal, Result, Scan, Session,
    Write,
};
use pleach_reshape::paper::{Flush, PaperScheme};

use super::stores::{Store, WiredTigerStats};
use super::{CACHE_SHARE, durability};
use crate::prefix::{keys_of, prefix, prefixed};

/// What the scheme can do.
pub(super) const CAPABILITIES: Capabilities = Capabilities {
    direct_reads: false,
    compression: false,
    atomic_batches: true,
    native_get_many: false,
    async_get: false,
    compaction: false,
    partition_removal: Removal::KeyByKey,
};

struct Paper {
    store: PaperScheme,
    partitions: usize,
    durability: pleach_reshape::Durability,
    counts: Option<WiredTigerStats>,
}

pub(super) fn open(config: &EngineConfig, store: Store) -> Result<Box<dyn Engine>> {
    let mut config = config.clone();
    let all = usize::try_from(config.memory_bytes)?;
    let tree = config.take_tuning("map_bytes")?.unwrap_or(all / 2);
    let flush = match (config.take_tuning::<String>("flush")?.as_deref(), config.durability) {
        (Some("write"), _) | (None, Durability::Buffered) => Flush::Write,
        (Some("sync"), _) | (None, Durability::Sync) => Flush::Sync,
        (Some(other), _) => return Err(format!("flush={other}: it is write or sync").into()),
    };
    let (rows, counts) = store.open(&mut config, all.saturating_sub(tree).max(all / CACHE_SHARE))?;
    config.no_tuning_left()?;
    let env: Arc<dyn pleach::env::Env> = Arc::new(pleach::env::RealEnv::new());
    let store = PaperScheme::open(rows, &env, config.dir.join("remap"), flush)?;
    Ok(Box::new(Paper {
        store,
        partitions: config.partitions,
        durability: durability(config.durability),
        counts,
    }))
}

impl Engine for Paper {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(PaperSession { engine: self }))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        let mut session = PaperSession { engine: self };
        for key in keys_of(&mut session, partition)? {
            session.delete(partition, &key)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.store.sync()?)
    }

    fn settle(&self) -> Result<()> {
        self.flush()
    }

    fn stats(&self) -> Result<EngineStats> {
        let times = self.store.remap_times();
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut details = BTreeMap::from([
            ("remap_file_bytes".to_owned(), self.store.remap_file_bytes()),
            ("remap_table_ns".to_owned(), nanos(times.table)),
            ("remap_file_ns".to_owned(), nanos(times.file)),
        ]);
        if let Some(counts) = &self.counts {
            counts.add_to(&mut details)?;
        }
        Ok(EngineStats { details, ..EngineStats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

struct PaperSession<'a> {
    engine: &'a Paper,
}

impl PaperSession<'_> {
    fn one(&self, partition: usize, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let key = prefixed(self.engine.partitions, partition, key);
        Ok(self.engine.store.write(&[(&key, value)], self.engine.durability)?)
    }
}

impl Session for PaperSession<'_> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.one(partition, key, Some(value))
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        self.one(partition, key, None)
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.engine.store.get(prefixed(self.engine.partitions, partition, key))?;
        Ok(value.map(|value| read(&value)).is_some())
    }

    /// The paper has no scans in reverse: they read everything up to where they start.
    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let first = prefix(self.engine.partitions, scan.partition);
        let ours = |key: &[u8]| first.is_none_or(|first| key.first() == Some(&first));
        let skipped = usize::from(first.is_some());
        let key = |from: &[u8]| prefixed(self.engine.partitions, scan.partition, from).into_owned();
        if scan.direction == Direction::Forward {
            let pairs = self.engine.store.scan(key(scan.from.unwrap_or_default()), scan.limit)?;
            for (key, value) in pairs.iter().take_while(|(key, _)| ours(key)) {
                if !visit(&key[skipped..], value) {
                    break;
                }
            }
            return Ok(());
        }
        let mut pairs = self.engine.store.scan(key(&[]), usize::MAX)?;
        let from = scan.from.map(key);
        pairs.retain(|(key, _)| ours(key) && from.as_ref().is_none_or(|from| key <= from));
        for (key, value) in pairs.iter().rev().take(scan.limit) {
            if !visit(&key[skipped..], value) {
                break;
            }
        }
        Ok(())
    }

    /// Each key once in a call of the scheme's: batches are divided where a key comes again.
    fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        let keys: Vec<_> =
            writes.iter().map(|write| prefixed(self.engine.partitions, write.partition, write.key)).collect();
        let mut last = BTreeMap::new();
        for (key, write) in keys.iter().zip(writes) {
            last.insert(&**key, write.value);
        }
        let operations: Vec<_> = last.into_iter().collect();
        Ok(self.engine.store.write(&operations, self.engine.durability)?)
    }
}
