//! WiredTiger behind the benchmark's trait, over the system's library and `pleach-wiredtiger`'s cover.
//!
//! Partitions are tables, row-store B-trees of byte strings, or WiredTiger's LSM trees. A buffered commit writes the log to the
//! system and does not sync it, unless `log` says otherwise. What is chosen and why: docs/benchmarks.md.
//!
//! Where each commit writes the log, threads that wait share a transaction (`share`).
//!
//! Settings by name: `log`, of buffered commits: `written`, `unwritten` (a killed process loses what is in the log's buffer) or
//! `off`; `share` (on); `connection` and `table`, both strings in WiredTiger's own syntax that are put after ours and so
//! override them; `;` stands for its comma.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::time::{Duration, Instant};

use pleach_bench::{
    Capabilities, Direction, Durability, Engine, EngineConfig, EngineFactory, EngineStats, Removal, Result,
    Scan, Session, Write,
};

use pleach_wiredtiger::{Connection, Log, Statistic};

use crate::group::Group;

/// How long a table that is to be removed may be in use by background threads, and how often that is tried.
const DROP_PATIENCE: Duration = Duration::from_secs(30);
const DROP_PAUSE: Duration = Duration::from_millis(1);

/// What WiredTiger can do.
const CAPABILITIES: Capabilities = Capabilities {
    direct_reads: true,
    compression: true,
    atomic_batches: true,
    native_get_many: false,
    async_get: false,
    compaction: false,
    partition_removal: Removal::Native,
};

/// The factory of WiredTiger's B-trees.
pub(crate) fn factory() -> EngineFactory {
    let about = format!("WiredTiger {}, a row-store table for each partition", version()).leak();
    EngineFactory { name: "wiredtiger", about, capabilities: CAPABILITIES, open: |config| open(config, "") }
}

/// The factory of WiredTiger's LSM trees.
pub(crate) fn lsm() -> EngineFactory {
    let about = format!("WiredTiger {}, an LSM tree for each partition", version()).leak();
    EngineFactory {
        name: "wiredtiger-lsm",
        about,
        capabilities: CAPABILITIES,
        open: |config| open(config, ",type=lsm"),
    }
}

pub(crate) fn version() -> String {
    let [major, minor, patch] = pleach_wiredtiger::version();
    format!("{major}.{minor}.{patch}")
}

struct WiredTiger {
    connection: Connection,
    /// Ranges of LSM trees are removed key by key: a truncation between cursors takes keys outside of the range, too.
    is_lsm: bool,
    /// Names of the tables, by partition.
    tables: Vec<CString>,
    /// If writers share transactions.
    group: Option<Group>,
}

fn open(config: &EngineConfig, kind: &str) -> Result<Box<dyn Engine>> {
    let mut config = config.clone();
    let (connection_config, writes_log) = connection_config(&mut config)?;
    let table_config = table_config(&mut config, kind)?;
    let group = group(&mut config, writes_log)?;
    config.no_tuning_left()?;
    let connection = Connection::open(&config.dir, &connection_config)?;
    let names = (0..config.partitions).map(|number| CString::new(format!("table:p{number}")));
    let tables = names.collect::<Result<Vec<_>, _>>()?;
    let session = connection.session()?;
    for table in &tables {
        session.create(table, &table_config)?;
    }
    drop(session);
    Ok(Box::new(WiredTiger { connection, is_lsm: !kind.is_empty(), tables, group }))
}

/// With the usual shares, 5 and 20 %, random inserts evict pages long before the cache is full. A load of a million pairs of 116
/// bytes with a cache of a quarter made 39 k puts a second with these and 36 k with those, and took 33 us of processor time for
/// each instead of 41.
const DIRTY: &str = "eviction_dirty_target=60,eviction_dirty_trigger=80";

/// Of B-trees. Against this, with the usual pages of 32 KiB and the system's read-ahead: loads 0.6 times, scans of 100 rows 0.9
/// times as fast. With 32 KiB and without read-ahead: loads and YCSB A and F 0.8, scans 1.2 times. With 8 KiB: YCSB 1.05,
/// scans 0.6 times. Figures: docs/design/0020-key-reshaping.md.
pub(crate) const PAGES: &str = ",leaf_page_max=16KB,access_pattern_hint=random";

/// The configuration of a connection, and whether each commit writes the log.
pub(crate) fn connection_config(config: &mut EngineConfig) -> Result<(String, bool)> {
    let kind = log(config)?;
    let writes_log = config.durability == Durability::Sync || kind == Log::Written;
    let log = match (config.durability, kind) {
        (Durability::Sync, Log::Off) => return Err("synced commits need a log".into()),
        (Durability::Sync, _) => "log=(enabled=true),transaction_sync=(enabled=true,method=fsync)",
        (Durability::Buffered, Log::Written) => {
            "log=(enabled=true),transaction_sync=(enabled=true,method=none)"
        }
        (Durability::Buffered, Log::Unwritten) => "log=(enabled=true),transaction_sync=(enabled=false)",
        (Durability::Buffered, Log::Off) => "log=(enabled=false)",
    };
    let mut text = format!(
        "create,cache_size={memory},{log},checkpoint=(wait=60,log_size=2GB),{eviction},{DIRTY},statistics=(fast),session_max=300",
        memory = config.memory_bytes.max(1 << 20),
        eviction = eviction(config),
    );
    if config.direct_reads {
        text.push_str(",direct_io=[data]");
    }
    if config.compression {
        // Found where the system keeps its libraries.
        text.push_str(",extensions=[libwiredtiger_snappy.so]");
    }
    Ok((text + &own_words(config, "connection")?, writes_log))
}

/// The queue of writers that share transactions: where each commit writes the log, they would spin there.
pub(crate) fn group(config: &mut EngineConfig, writes_log: bool) -> Result<Option<Group>> {
    let is_wanted = config.take_tuning("share")?.unwrap_or(true);
    Ok((is_wanted && writes_log).then(Group::default))
}

/// What becomes of the log at a buffered commit.
pub(crate) fn log(config: &mut EngineConfig) -> Result<Log> {
    Ok(match config.take_tuning::<String>("log")?.as_deref() {
        None | Some("written") => Log::Written,
        Some("unwritten") => Log::Unwritten,
        Some("off") => Log::Off,
        Some(other) => return Err(format!("log={other}: it is written, unwritten or off").into()),
    })
}

/// Eviction: threads as configured.
pub(crate) fn eviction(config: &EngineConfig) -> String {
    let threads = config.background_threads.clamp(1, 20);
    format!("eviction=(threads_min={threads},threads_max={threads})")
}

fn table_config(config: &mut EngineConfig, kind: &str) -> Result<String> {
    let compressor = if config.compression { "snappy" } else { "none" };
    let pages = if kind.is_empty() { PAGES } else { "" };
    let text = format!("key_format=u,value_format=u,block_compressor={compressor}{pages}{kind}");
    Ok(text + &own_words(config, "table")?)
}

/// A setting in WiredTiger's own syntax, to be put after others.
pub(crate) fn own_words(config: &mut EngineConfig, name: &str) -> Result<String> {
    let words: Option<String> = config.take_tuning(name)?;
    Ok(words.map(|words| format!(",{}", words.replace(';', ","))).unwrap_or_default())
}

impl Engine for WiredTiger {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let session = self.connection.session()?;
        let group = self.group.as_ref();
        Ok(Box::new(WiredTigerSession { tables: &self.tables, is_lsm: self.is_lsm, session, group }))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        let session = self.connection.session()?;
        let start = Instant::now();
        while !session.drop_table(&self.tables[partition])? {
            if start.elapsed() > DROP_PATIENCE {
                return Err("the table stays in use".into());
            }
            std::thread::sleep(DROP_PAUSE);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.connection.session()?.checkpoint()
    }

    /// A checkpoint does the work that WiredTiger has postponed: it writes the dirty pages and releases the log.
    fn settle(&self) -> Result<()> {
        self.flush()
    }

    fn stats(&self) -> Result<EngineStats> {
        let mut session = self.connection.session()?;
        let mut read = |statistic| session.statistic(statistic);
        let log_bytes = read(Statistic::LogBytes)?;
        let block_bytes = read(Statistic::BlockWrittenBytes)?;
        let stalled_us = read(Statistic::ApplicationCacheWaitUs)?;
        let details = [
            ("block_written_bytes", block_bytes),
            ("cache_bytes", read(Statistic::CacheBytes)?),
            ("cache_dirty_bytes", read(Statistic::CacheDirtyBytes)?),
            ("cache_internal_bytes", read(Statistic::CacheInternalBytes)?),
            ("evicted_by_application", read(Statistic::EvictedByApplication)?),
            ("application_eviction_us", read(Statistic::ApplicationEvictionUs)?),
            ("checkpoints", read(Statistic::Checkpoints)?),
        ];
        Ok(EngineStats {
            written_bytes: Some(log_bytes + block_bytes),
            log_bytes: Some(log_bytes),
            read_bytes: Some(read(Statistic::BlockReadBytes)?),
            index_filter_bytes: None,
            stalled_ns: Some(stalled_us * 1000),
            details: BTreeMap::from(details.map(|(name, count)| (name.to_owned(), count))),
            ..EngineStats::default()
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.connection.close()
    }
}

struct WiredTigerSession<'a> {
    tables: &'a [CString],
    is_lsm: bool,
    session: pleach_wiredtiger::Session,
    group: Option<&'a Group>,
}

/// One write, in the transaction that is open or in one of its own; false on a conflict.
fn write_one(
    session: &mut pleach_wiredtiger::Session,
    tables: &[CString],
    write: &Write<'_>,
) -> Result<bool> {
    let (at, table) = (write.partition, &tables[write.partition]);
    match write.value {
        Some(value) => session.insert(at, table, write.key, value),
        None => session.remove(at, table, write.key),
    }
}

/// All writes in one transaction; false on a conflict, after which none is done.
fn write_all(
    session: &mut pleach_wiredtiger::Session,
    tables: &[CString],
    writes: &[Write<'_>],
) -> Result<bool> {
    if let [write] = writes {
        return write_one(session, tables, write);
    }
    session.begin()?;
    for write in writes {
        let done = write_one(session, tables, write);
        if !matches!(done, Ok(true)) {
            session.roll_back()?;
            return done;
        }
    }
    session.commit().map(|()| true)
}

impl Session for WiredTigerSession<'_> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(&[Write { partition, key, value: Some(value) }])
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        self.write(&[Write { partition, key, value: None }])
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.session.get(partition, &self.tables[partition], key, read)
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        if scan.limit == 0 {
            return Ok(());
        }
        let mut left = scan.limit;
        let table = &self.tables[scan.partition];
        self.session.scan(scan.partition, table, scan.from, direction(scan.direction), &mut |key, value| {
            left -= 1;
            visit(key, value) && left > 0
        })
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        let (session, tables) = (&mut self.session, self.tables);
        let mut commit = |writes: &[Write<'_>]| {
            while !write_all(session, tables, writes)? {}
            Ok(())
        };
        match self.group {
            Some(group) => group.write(writes, commit),
            None => commit(writes),
        }
    }

    fn delete_range(&mut self, partition: usize, lower: &[u8], upper: &[u8]) -> Result<()> {
        if !self.is_lsm {
            return self.session.truncate(partition, &self.tables[partition], lower, upper);
        }
        let mut keys = Vec::new();
        let scan = Scan { partition, from: Some(lower), direction: Direction::Forward, limit: usize::MAX };
        self.scan(&scan, &mut |key, _| {
            let is_inside = key < upper;
            if is_inside {
                keys.push(key.to_vec());
            }
            is_inside
        })?;
        keys.iter().try_for_each(|key| self.delete(partition, key))
    }
}

fn direction(direction: Direction) -> pleach_wiredtiger::Direction {
    match direction {
        Direction::Forward => pleach_wiredtiger::Direction::Forward,
        Direction::Reverse => pleach_wiredtiger::Direction::Reverse,
    }
}
