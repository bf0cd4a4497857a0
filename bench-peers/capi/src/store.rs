//! Open stores of this process: each folder is opened once, however many sessions ask for it.
//!
//! Threads of a load generator that share no memory, as the Lua states of sysbench, thus share a store.
//!
//! # Invariants
//! 1. One store a folder: [`Store`]s are made and closed while [`OPEN`] is locked, and their references are counted up and down
//!    only then. So the last reference can be told, and a folder is not opened before its last store is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pleach_bench::{Durability, Engine, EngineConfig, Result};

/// All open stores by their folders.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<Store>>> = Mutex::new(BTreeMap::new());

/// An open store.
pub(crate) struct Store {
    name: String,
    config: EngineConfig,
    pub(crate) engine: Box<dyn Engine>,
}

/// Access to the open stores.
pub(crate) struct Stores(MutexGuard<'static, BTreeMap<PathBuf, Weak<Store>>>);

impl Stores {
    pub(crate) fn lock() -> Self {
        // A panic of an engine leaves the map as it was.
        Self(OPEN.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The store in a folder, opened if it is not open.
    pub(crate) fn open(&mut self, name: &str, config: EngineConfig) -> Result<Arc<Store>> {
        if let Some(store) = self.0.get(&config.dir).and_then(Weak::upgrade) {
            let is_same = store.name == name && store.config == config;
            let other = || "the folder is open with another engine or with other settings".into();
            return is_same.then_some(store).ok_or_else(other);
        }
        let engines = bench_peers::engines();
        let Some(factory) = engines.iter().find(|engine| engine.name == name) else {
            let names: Vec<_> = engines.iter().map(|engine| engine.name).collect();
            return Err(format!("there is no engine {name:?}; there are: {}", names.join(", ")).into());
        };
        let engine = (factory.open)(&config)?;
        let store = Arc::new(Store { name: name.to_owned(), config, engine });
        self.0.insert(store.config.dir.clone(), Arc::downgrade(&store));
        Ok(store)
    }

    /// Gives a store back; the last one to do so closes it.
    pub(crate) fn close(&mut self, store: Arc<Store>) -> Result<()> {
        let Some(store) = Arc::into_inner(store) else { return Ok(()) };
        self.0.remove(&store.config.dir);
        store.engine.close()
    }
}

impl Store {
    /// The number of its tables.
    pub(crate) fn tables(&self) -> usize {
        self.config.partitions
    }
}

/// The configuration of an engine, as the benchmark's command makes it of its options. The folder is created. `settings` are the
/// engine's own, as `<name>=<value>,...`.
#[expect(clippy::disallowed_methods, reason = "a benchmark runs on the real machine, never in the simulator")]
pub(crate) fn config(
    folder: &Path,
    memory_bytes: u64,
    durability: &str,
    settings: &str,
    tables: usize,
) -> Result<EngineConfig> {
    let durability = match durability {
        "buffered" => Durability::Buffered,
        "sync" => Durability::Sync,
        other => return Err(format!("durability {other:?}: it is buffered or sync").into()),
    };
    if !(1..=255).contains(&tables) {
        return Err(format!("{tables} tables: there are 1 to 255").into());
    }
    let pairs = settings.split(',').filter(|setting| !setting.is_empty()).map(|setting| {
        let pair = setting.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        pair.ok_or_else(|| format!("setting {setting:?} is not of the form <name>=<value>").into())
    });
    let tuning = pairs.collect::<Result<BTreeMap<_, _>>>()?;
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(EngineConfig {
        dir: folder.canonicalize()?,
        memory_bytes,
        durability,
        direct_reads: false,
        compression: false,
        background_threads: std::thread::available_parallelism().map_or(1, Into::into),
        partitions: tables,
        tuning,
        known_tuning: BTreeSet::new(),
    })
}
