//! The stores of rows of reshaped engines, opened as the plain engines of the same library are.
//!
//! Settings by name: of redb `sync_every`; of LMDB `map_size`, `write_map` (off), `read_ahead` (off); of WiredTiger `log`
//! (`written`, the default, `unwritten` or `off`), `connection` and `table`, as of the plain engine.
//!
//! `write_map` is on for plain LMDB, which loads 1.2 times as fast with it. For rows that are appended it is off: loads are 1.1
//! times as fast without it, and moves up to five times, because a page that is used again would be read before it is written.

use std::collections::BTreeMap;

use pleach_bench::{EngineConfig, Result};
use pleach_reshape::store::RowStore;
use pleach_reshape::store::lmdb::{LmdbOptions, LmdbStore};
use pleach_reshape::store::redb::{RedbOptions, RedbStore};
#[cfg(wiredtiger)]
use pleach_wiredtiger::{Connection, Statistic, WiredTigerOptions, WiredTigerStore};

/// A library.
#[derive(Clone, Copy, Debug)]
pub(super) enum Store {
    Redb,
    Lmdb,
    #[cfg(wiredtiger)]
    WiredTiger,
}

/// Where WiredTiger's statistics come from.
#[cfg(wiredtiger)]
pub(super) struct WiredTigerStats(Connection);
#[cfg(not(wiredtiger))]
pub(super) enum WiredTigerStats {}

impl WiredTigerStats {
    /// Adds its figures to others.
    #[cfg(wiredtiger)]
    pub(super) fn add_to(&self, details: &mut BTreeMap<String, u64>) -> Result<()> {
        let mut session = self.0.session()?;
        for (name, statistic) in [
            ("block_written_bytes", Statistic::BlockWrittenBytes),
            ("log_bytes", Statistic::LogBytes),
            ("cache_bytes", Statistic::CacheBytes),
            ("cache_dirty_bytes", Statistic::CacheDirtyBytes),
        ] {
            details.insert(name.to_owned(), session.statistic(statistic)?);
        }
        Ok(())
    }

    #[cfg(not(wiredtiger))]
    pub(super) fn add_to(&self, _details: &mut BTreeMap<String, u64>) -> Result<()> {
        match *self {}
    }
}

impl Store {
    /// Opens the store in a folder of the engine's.
    pub(super) fn open(
        self,
        config: &mut EngineConfig,
        cache_bytes: usize,
    ) -> Result<(Box<dyn RowStore>, Option<WiredTigerStats>)> {
        let folder = config.dir.join("rows");
        match self {
            Self::Redb => {
                let sync_every =
                    config.take_tuning("sync_every")?.unwrap_or(RedbOptions::default().sync_every);
                Ok((Box::new(RedbStore::open(&folder, &RedbOptions { cache_bytes, sync_every })?), None))
            }
            Self::Lmdb => {
                let options = LmdbOptions {
                    map_bytes: config.take_tuning("map_size")?.unwrap_or(LmdbOptions::default().map_bytes),
                    unsynced_commits: config.durability == pleach_bench::Durability::Buffered,
                    write_map: config.take_tuning("write_map")?.unwrap_or(false),
                    read_ahead: config.take_tuning("read_ahead")?.unwrap_or(false),
                };
                Ok((Box::new(LmdbStore::open(&folder, &options)?), None))
            }
            #[cfg(wiredtiger)]
            Self::WiredTiger => {
                let options = WiredTigerOptions {
                    cache_bytes: cache_bytes as u64,
                    log: crate::wiredtiger::log(config)?,
                    connection: format!(
                        "{}{}",
                        crate::wiredtiger::eviction(config),
                        crate::wiredtiger::own_words(config, "connection")?
                    ),
                    tables: crate::wiredtiger::own_words(config, "table")?,
                };
                let store = WiredTigerStore::open(&folder, &options)?;
                let counts = WiredTigerStats(store.connection().clone());
                Ok((Box::new(store), Some(counts)))
            }
        }
    }
}
