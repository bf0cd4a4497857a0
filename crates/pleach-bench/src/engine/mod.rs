//! Engines: the interface of the benchmark to a key-value store.
//!
//! An [`EngineFactory`] names an engine and opens it. An [`Engine`] is the open store, shared by all threads. A [`Session`]
//! belongs to one thread, and holds the engine's cursors, transactions or handles of that thread. Calls are virtual: a few
//! nanoseconds of hundreds.
//!
//! Keys and values are bytes in byte order. A store has [`EngineConfig::partitions`] key spaces, numbered from zero, which
//! all exist from the start. Engines without partitions prefix their keys and say so in [`Capabilities`].

mod null;
mod pleach;
mod reference;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use null::NullEngine;
pub use pleach::{PLEACH, PLEACH_FOREST, PLEACH_INLINE, PLEACH_LEVELED, PLEACH_SEPARATED};
pub use reference::REFERENCE;

/// An error as text.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A result whose error is text.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An engine that can be opened. Rivals are listed by the caller of [`crate::run`].
#[derive(Clone, Copy, Debug)]
pub struct EngineFactory {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// One line: which library, which version, which configuration.
    pub about: &'static str,
    /// What it can do natively.
    pub capabilities: Capabilities,
    /// Opens a store in an existing folder, which is empty or holds a store of this engine.
    pub open: fn(&EngineConfig) -> Result<Box<dyn Engine>>,
}

/// What an engine does natively. The [`Session`]'s default methods emulate the rest, or refuse it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an ability of its own")]
pub struct Capabilities {
    /// Reads past the page cache.
    pub direct_reads: bool,
    /// Compression of its own.
    pub compression: bool,
    /// Several writes become visible and durable together.
    pub atomic_batches: bool,
    /// Reads of many keys in one call, faster than one by one.
    pub native_get_many: bool,
    /// [`Engine::get_async`] and [`Engine::scan_async`] give futures.
    pub async_get: bool,
    /// [`Engine::compact`] merges everything.
    pub compaction: bool,
    /// How a whole partition is removed.
    pub partition_removal: Removal,
}

/// How a range of keys, or a partition, is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// By one operation, whatever the size.
    Native,
    /// By a range tombstone.
    Range,
    /// Key by key.
    #[default]
    KeyByKey,
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// When the operating system has it: it survives a killed process.
    Buffered,
    /// When the medium has it: it survives a power cut.
    Sync,
}

/// The configuration of every engine. Each engine translates it into the settings that its own experts would choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineConfig {
    /// An existing folder for the store alone.
    pub dir: PathBuf,
    /// Memory for write buffers, caches, indexes and filters together.
    pub memory_bytes: u64,
    /// When a write counts as done.
    pub durability: Durability,
    /// Whether blocks are read past the page cache.
    pub direct_reads: bool,
    /// Whether data is compressed.
    pub compression: bool,
    /// Threads for flushes and compactions, if the engine has such a setting.
    pub background_threads: usize,
    /// Key spaces, numbered from zero.
    pub partitions: usize,
    /// Settings of one engine by their own names; an unknown one is an error.
    pub tuning: BTreeMap<String, String>,
    /// The settings that the engine has asked for.
    #[serde(skip)]
    pub known_tuning: BTreeSet<String>,
}

/// Statistics of an engine. Counts start at zero with each open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineStats {
    /// Bytes written by its write calls: log, flushes and compactions.
    pub written_bytes: Option<u64>,
    /// Those of them that went to the log.
    pub log_bytes: Option<u64>,
    /// Bytes read by its read calls.
    pub read_bytes: Option<u64>,
    /// Memory of indexes and filters.
    pub index_filter_bytes: Option<u64>,
    /// Time in which writers were stalled.
    pub stalled_ns: Option<u64>,
    /// Further figures, by name.
    pub details: BTreeMap<String, u64>,
    /// Its settings, by its own names.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// One write of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The key space.
    pub partition: usize,
    /// The key.
    pub key: &'a [u8],
    /// The value; none deletes the key.
    pub value: Option<&'a [u8]>,
}

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key up.
    Forward,
    /// From the largest key down.
    Reverse,
}

/// Where a scan starts, which way it goes and how far at most.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// The key space.
    pub partition: usize,
    /// Bound of the first key: at or above it when going forward, at or below it in reverse. `None` starts at the end of the
    /// key space.
    pub from: Option<&'a [u8]>,
    /// Which way it goes.
    pub direction: Direction,
    /// Most entries that will be read.
    pub limit: usize,
}

/// A read in flight: the value's bytes, or none.
pub type GetFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>>> + Send + 'a>>;

/// A scan in flight.
pub type ScanFuture<'a> = Pin<Box<dyn Future<Output = Result<ScannedEntries>> + Send + 'a>>;

/// Copies of keys and values, one behind the other.
#[derive(Debug, Default)]
pub struct ScannedEntries {
    bytes: Vec<u8>,
    /// Where each key ends, and its value.
    ends: Vec<[usize; 2]>,
}

impl ScannedEntries {
    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push([key_end, self.bytes.len()]);
    }

    /// The entries in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut begin = 0;
        self.ends.iter().map(move |&[key_end, end]| {
            let entry = (&self.bytes[begin..key_end], &self.bytes[key_end..end]);
            begin = end;
            entry
        })
    }
}

/// An open store.
pub trait Engine: Send + Sync {
    /// A session for the calling thread.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Starts an asynchronous read; `None` if the engine has none.
    fn get_async<'a>(&'a self, _partition: usize, _key: &[u8]) -> Option<GetFuture<'a>> {
        None
    }

    /// Starts an asynchronous scan; `None` if the engine has none.
    fn scan_async<'a>(&'a self, _scan: &Scan<'_>) -> Option<ScanFuture<'a>> {
        None
    }

    /// Removes a partition and its entries. It is not used afterwards.
    fn drop_partition(&self, partition: usize) -> Result<()>;

    /// Writes everything in memory to files.
    fn flush(&self) -> Result<()>;

    /// Waits until flushes and compactions have nothing left to do.
    fn settle(&self) -> Result<()>;

    /// Merges everything into the densest form, also if no merge is due, and waits for the end.
    ///
    /// # Errors
    /// If the engine has no such call: see [`Capabilities::compaction`].
    fn compact(&self) -> Result<()> {
        Err("the engine has no call for a compaction of everything".into())
    }

    /// Brings everything into the form that is read best, and waits for the end: a compaction where the engine knows no more.
    ///
    /// # Errors
    /// As [`Engine::compact`].
    fn convert(&self) -> Result<()> {
        self.compact()
    }

    /// Its statistics.
    fn stats(&self) -> Result<EngineStats>;

    /// Closes the store. Unlike a drop, it returns errors.
    fn close(self: Box<Self>) -> Result<()>;
}

/// One thread's access to an open store. A callback gets the bytes of a value, so that an engine that reads without a copy
/// need not copy.
pub trait Session {
    /// Gives a key a value.
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a key, if it is there.
    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()>;

    /// Reads a value; whether there was one.
    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Shows entries in key order until the limit is reached or `visit` returns false.
    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;

    /// Commits several writes, together where the engine can.
    fn write(&mut self, writes: &[Write<'_>]) -> Result<()> {
        for write in writes {
            match write.value {
                Some(value) => self.put(write.partition, write.key, value)?,
                None => self.delete(write.partition, write.key)?,
            }
        }
        Ok(())
    }

    /// Reads many values; `read` gets the position of the key and the value, for those that are there.
    fn get_many(
        &mut self,
        partition: usize,
        keys: &[&[u8]],
        read: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            self.get(partition, key, &mut |value| read(at, value))?;
        }
        Ok(())
    }

    /// Removes all keys from `lower` up to, not including, `upper`.
    fn delete_range(&mut self, partition: usize, lower: &[u8], upper: &[u8]) -> Result<()> {
        const KEYS_AT_ONCE: usize = 1000;
        loop {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            let scan =
                Scan { partition, from: Some(lower), direction: Direction::Forward, limit: KEYS_AT_ONCE };
            self.scan(&scan, &mut |key, _| {
                let inside = key < upper;
                if inside {
                    keys.push(key.to_vec());
                }
                inside
            })?;
            let deletes: Vec<Write<'_>> =
                keys.iter().map(|key| Write { partition, key, value: None }).collect();
            self.write(&deletes)?;
            if keys.len() < KEYS_AT_ONCE {
                return Ok(());
            }
        }
    }
}

impl EngineConfig {
    /// Takes a setting out of [`EngineConfig::tuning`] and parses it; `None` if it is not given.
    pub fn take_tuning<T: std::str::FromStr>(&mut self, name: &str) -> Result<Option<T>> {
        self.known_tuning.insert(name.to_owned());
        let Some(text) = self.tuning.remove(name) else { return Ok(None) };
        let number =
            text.parse().map_err(|_| format!("setting {name}={text} is not of the kind it takes"))?;
        Ok(Some(number))
    }

    /// An error if settings are left that were not taken.
    pub fn no_tuning_left(&self) -> Result<()> {
        match self.tuning.keys().next() {
            Some(name) => {
                let known: Vec<_> = self.known_tuning.iter().map(String::as_str).collect();
                Err(format!("the engine has no setting {name}; it has: {}", known.join(", ")).into())
            }
            None => Ok(()),
        }
    }
}
