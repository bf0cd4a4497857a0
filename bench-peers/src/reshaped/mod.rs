//! Reshaped stores behind the benchmark's trait: redb, LMDB and WiredTiger under `pleach-reshape`.
//!
//! Of each store there are `-reshaped`, whose map is in memory, `-reshaped-pleach`, whose map is in a Pleach store, and `-paper`,
//! the paper's own scheme. Partitions are prefixes of keys. [`stores`] opens the stores.
//!
//! The memory that the engine gets is divided: a quarter for the changes of the map (delta), a quarter for the cache of rows (a
//! sixteenth beside a map in memory), a part for the map, the rest for the store's cache. A map in memory grows with the keys and
//! cannot be bounded: its part is `map_bytes`, half of the memory by default, and statistics tell what it takes (`map_bytes`).
//!
//! Settings by name: `map_bytes`, `delta_bytes`, `row_cache_bytes`; `update` (`in-place`, `replace` or `defer`);
//! `replaced_rows`; `stripes` (`one`, `ranges:8`, `tables:8`); of `-paper` `flush` (`write` or `sync`: what happens to the remap
//! file before a commit); those of the store.

mod paper;
mod stores;

use std::collections::BTreeMap;
use std::path::PathBuf;

use pleach_bench::{
    Capabilities, Direction, Durability, Engine, EngineConfig, EngineFactory, EngineStats, Removal, Result,
    Scan, Session, Write,
};
use pleach_reshape::{MapPlace, Options, Reshaped, Stripes, Update};

use crate::prefix::{bounds, prefixed, remove_all};
use crate::quiet::file_bytes;
use stores::{Store, WiredTigerStats};

/// What all reshaped engines can do.
const CAPABILITIES: Capabilities = Capabilities {
    direct_reads: false,
    compression: false,
    atomic_batches: true,
    native_get_many: true,
    async_get: false,
    compaction: true,
    partition_removal: Removal::KeyByKey,
};

/// The factories of all reshaped engines.
pub(crate) fn factories() -> Vec<EngineFactory> {
    let factory = |name, about, open| EngineFactory { name, about, capabilities: CAPABILITIES, open };
    let paper =
        |name, about, open| EngineFactory { capabilities: paper::CAPABILITIES, ..factory(name, about, open) };
    vec![
        factory("redb-reshaped", "redb under key reshaping, the map in memory", |config| {
            open(config, Store::Redb, MapPlace::Memory)
        }),
        factory("redb-reshaped-pleach", "redb under key reshaping, the map in Pleach", |config| {
            open(config, Store::Redb, MapPlace::Disk)
        }),
        paper("redb-paper", "redb under the paper's scheme", |config| paper::open(config, Store::Redb)),
        factory("lmdb-reshaped", "LMDB under key reshaping, the map in memory", |config| {
            open(config, Store::Lmdb, MapPlace::Memory)
        }),
        factory("lmdb-reshaped-pleach", "LMDB under key reshaping, the map in Pleach", |config| {
            open(config, Store::Lmdb, MapPlace::Disk)
        }),
        paper("lmdb-paper", "LMDB under the paper's scheme", |config| paper::open(config, Store::Lmdb)),
        #[cfg(wiredtiger)]
        factory("wiredtiger-reshaped", "WiredTiger under key reshaping, the map in memory", |config| {
            open(config, Store::WiredTiger, MapPlace::Memory)
        }),
        #[cfg(wiredtiger)]
        factory(
            "wiredtiger-reshaped-pleach",
            "WiredTiger under key reshaping, the map in Pleach",
            |config| open(config, Store::WiredTiger, MapPlace::Disk),
        ),
        #[cfg(wiredtiger)]
        paper("wiredtiger-paper", "WiredTiger under the paper's scheme", |config| {
            paper::open(config, Store::WiredTiger)
        }),
    ]
}

/// How the memory is divided.
#[derive(Clone, Copy, Debug)]
struct Memory {
    delta: usize,
    /// For the cache of rows.
    rows: usize,
    /// For the rows that a move reads at a time, beside all others and only while it lasts.
    moves: usize,
    /// For the map's Pleach store.
    map_store: usize,
    cache: usize,
}

/// Part of the memory for the delta. Each checkpoint syncs the store, so a small delta costs many syncs, and a store that
/// appends needs little cache.
const DELTA_SHARE: usize = 4;
/// Part of the memory for the cache of rows.
const ROWS_SHARE: usize = 4;
/// The same beside a map in memory.
const ROWS_SHARE_BESIDE_MAP: usize = 16;
/// Part of the memory for a move.
const MOVES_SHARE: usize = 8;
/// Keys that a move puts into one transaction.
const MOVE_KEYS: usize = 128;
/// Least part of the memory for the cache.
const CACHE_SHARE: usize = 16;
/// Part of the memory for the map's Pleach store, if it is the map.
const MAP_STORE_SHARE: usize = 4;
/// What the map's Pleach store gets if it is written only.
const MAP_STORE_WRITTEN: usize = 16 << 20;

impl Memory {
    fn divide(config: &mut EngineConfig, place: MapPlace) -> Result<Self> {
        let all = usize::try_from(config.memory_bytes)?;
        let delta = config.take_tuning("delta_bytes")?.unwrap_or(all / DELTA_SHARE);
        let map_bytes = config.take_tuning("map_bytes")?;
        let (map, map_store) = match place {
            MapPlace::Disk => {
                let bytes = map_bytes.unwrap_or(all / MAP_STORE_SHARE);
                (bytes, bytes)
            }
            MapPlace::Memory => {
                let written = MAP_STORE_WRITTEN.min(all / CACHE_SHARE);
                (map_bytes.unwrap_or(all / 2) + written, written)
            }
        };
        let rows = config.take_tuning("row_cache_bytes")?.unwrap_or(match place {
            MapPlace::Disk => all / ROWS_SHARE,
            MapPlace::Memory => all / ROWS_SHARE_BESIDE_MAP,
        });
        let moves = all / MOVES_SHARE;
        let cache = all.saturating_sub(delta + map + rows).max(all / CACHE_SHARE);
        Ok(Self { delta, rows, moves, map_store, cache })
    }
}

struct Engined {
    store: Reshaped,
    partitions: usize,
    durability: pleach_reshape::Durability,
    counts: Option<WiredTigerStats>,
    /// The folder of the map.
    map: PathBuf,
}

fn open(config: &EngineConfig, store: Store, place: MapPlace) -> Result<Box<dyn Engine>> {
    let mut config = config.clone();
    let memory = Memory::divide(&mut config, place)?;
    let mut options = Options::new()
        .map(place)
        .delta_bytes(memory.delta)
        .row_cache_bytes(memory.rows)
        .moves(memory.moves, MOVE_KEYS)
        .map_options(pleach::Options::new().memory(memory.map_store))
        .update(update(&mut config)?);
    if let Some(rows) = config.take_tuning("replaced_rows")? {
        options = options.replaced_rows(rows);
    }
    if let Some(stripes) = stripes(&mut config)? {
        options = options.stripes(stripes);
    }
    let (rows, counts) = store.open(&mut config, memory.cache)?;
    config.no_tuning_left()?;
    let map = config.dir.join("map");
    let store = options.open(rows, &map)?;
    let durability = durability(config.durability);
    Ok(Box::new(Engined { store, partitions: config.partitions, durability, counts, map }))
}

fn durability(wanted: Durability) -> pleach_reshape::Durability {
    match wanted {
        Durability::Buffered => pleach_reshape::Durability::Buffered,
        Durability::Sync => pleach_reshape::Durability::Sync,
    }
}

fn update(config: &mut EngineConfig) -> Result<Update> {
    Ok(match config.take_tuning::<String>("update")?.as_deref() {
        None => Update::default(),
        Some("in-place") => Update::InPlace,
        Some("replace") => Update::Replace,
        Some("defer") => Update::Defer,
        Some(other) => return Err(format!("update={other}: it is in-place, replace or defer").into()),
    })
}

fn stripes(config: &mut EngineConfig) -> Result<Option<Stripes>> {
    let Some(text) = config.take_tuning::<String>("stripes")? else { return Ok(None) };
    Ok(Some(match text.split_once(':') {
        None if text == "one" => Stripes::One,
        Some(("ranges", count)) => Stripes::Ranges(count.parse()?),
        Some(("tables", count)) => Stripes::Tables(count.parse()?),
        _ => return Err(format!("stripes={text}: it is one, ranges:8 or tables:8, or the like").into()),
    }))
}

impl Engine for Engined {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(ReshapedSession { engine: self }))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        remove_all(&mut ReshapedSession { engine: self }, partition)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.store.checkpoint()?)
    }

    fn settle(&self) -> Result<()> {
        self.flush()
    }

    fn compact(&self) -> Result<()> {
        self.store.recluster::<&[u8]>(..)?;
        Ok(())
    }

    fn convert(&self) -> Result<()> {
        self.compact()
    }

    fn stats(&self) -> Result<EngineStats> {
        let stats = self.store.stats();
        let mut details = BTreeMap::from([
            ("delta_bytes".to_owned(), stats.delta_bytes as u64),
            ("map_bytes".to_owned(), stats.map_bytes as u64),
            ("row_cache_bytes".to_owned(), stats.row_cache_bytes as u64),
            ("checkpoints".to_owned(), stats.checkpoint),
            ("remap_file_bytes".to_owned(), file_bytes(&self.map)),
        ]);
        if let Some(counts) = &self.counts {
            counts.add_to(&mut details)?;
        }
        Ok(EngineStats { details, ..EngineStats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.store.close()?)
    }
}

struct ReshapedSession<'a> {
    engine: &'a Engined,
}

impl ReshapedSession<'_> {
    fn key<'k>(&self, partition: usize, key: &'k [u8]) -> std::borrow::Cow<'k, [u8]> {
        prefixed(self.engine.partitions, partition, key)
    }
}

impl Session for ReshapedSession<'_> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.engine.store.put_with(self.key(partition, key), value, self.engine.durability)?)
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        Ok(self.engine.store.delete_with(self.key(partition, key), self.engine.durability)?)
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.engine.store.get(self.key(partition, key))?;
        Ok(value.map(|value| read(&value)).is_some())
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        if scan.limit == 0 {
            return Ok(());
        }
        let skipped = usize::from(self.engine.partitions > 1);
        let range = self.engine.store.range::<Vec<u8>>(bounds(self.engine.partitions, scan))?;
        let mut range = range.expect_entries(scan.limit);
        for _ in 0..scan.limit {
            let entry = match scan.direction {
                Direction::Forward => range.next_entry()?,
                Direction::Reverse => range.next_back_entry()?,
            };
            let Some((key, value)) = entry else { break };
            if !visit(&key[skipped..], value) {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        let mut batch = self.engine.store.batch();
        for write in writes {
            let key = self.key(write.partition, write.key);
            match write.value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        Ok(batch.commit_with(self.engine.durability)?)
    }

    fn get_many(
        &mut self,
        partition: usize,
        keys: &[&[u8]],
        read: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<()> {
        let values = self.engine.store.get_many(keys.iter().map(|key| self.key(partition, key)))?;
        for (at, value) in values.into_iter().enumerate() {
            if let Some(value) = value {
                read(at, &value);
            }
        }
        Ok(())
    }
}
