//! The parts of an open store, put together: version set, write path and upkeep, and the names of partitions.
//!
//! # Concurrency
//! The order of the locks is in ARCHITECTURE.md, "Locks". Lookups take none. Finding a partition reads `names`. Jobs hold
//! `Upkeep` and the parts below it, never this: a job keeps no handle and no directory lock alive.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use pleach_env::memory::RegionPool;
use pleach_env::sync::{Mutex, RwLock};
use pleach_env::{Error, FileId};
use pleach_log::Recovery;
use pleach_table::FrameCache;

use crate::context::Context;
use crate::options::Options;
use crate::state::{CurrentState, State};
use crate::stats::Counters;
use crate::status::Status;
use crate::upkeep::Upkeep;
use crate::version::Trash;
use crate::version_set::{VersionSet, Versions};
use crate::write_path::{LivePartition, WritePath, Writer};

/// The shared part of a store.
pub(crate) struct Inner {
    pub(crate) ctx: Arc<Context>,
    pub(crate) cache: Arc<FrameCache>,
    /// The findings of recovery in the log.
    pub(crate) recovery: Recovery,
    /// Manifest, versions, the state that readers see, and the files of the store.
    pub(crate) version_set: Arc<VersionSet>,
    /// Log and active memtable.
    pub(crate) writes: Arc<WritePath>,
    /// Flush, compaction, filters.
    pub(crate) upkeep: Arc<Upkeep>,

    /// Held while a partition is created or dropped, and while the store is closed: one at a time.
    pub(crate) naming: Mutex<()>,
    /// Live partitions by name, with the flag that drop sets. Held for a moment only.
    pub(crate) names: RwLock<HashMap<Arc<str>, Arc<LivePartition>>>,
}

/// Arguments of [`Inner::new`].
pub(crate) struct Parts {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) cache: Arc<FrameCache>,
    pub(crate) trash: Arc<Trash>,
    pub(crate) state: State,
    pub(crate) writer: Writer,
    pub(crate) versions: Versions,
    pub(crate) next_id: u64,
    pub(crate) segments: Vec<FileId>,
    pub(crate) recovery: Recovery,
    pub(crate) memtable_pool: Arc<RegionPool>,
    pub(crate) read_only: Option<Error>,
}

impl Inner {
    pub(crate) fn new(parts: Parts) -> Self {
        let env = Arc::clone(&parts.options.env);
        let names = parts.versions.version.partitions().map(|(id, partition)| {
            let name = Arc::clone(&partition.name);
            (Arc::clone(&name), Arc::new(LivePartition { id, name, dropped: AtomicBool::new(false) }))
        });
        let names = RwLock::new(names.collect());
        let status = Status::new(parts.read_only, Arc::clone(&parts.state.closed), env.waiter());
        let ctx = Arc::new(Context {
            env,
            dir: parts.dir,
            options: parts.options,
            counters: Counters::default(),
            status,
            filters_looked_at_after: AtomicU64::new(u64::MAX),
        });
        let state = CurrentState::new(parts.state, parts.writer.next_seq - 1);
        let version_set = Arc::new(VersionSet::new(
            &ctx,
            parts.versions,
            state,
            parts.trash,
            (parts.next_id, parts.segments),
        ));
        let writes = Arc::new(WritePath::new(&ctx, &version_set, parts.writer, parts.memtable_pool));
        let upkeep = Arc::new(Upkeep::new(&ctx, &version_set, &writes, &parts.cache));
        Self {
            naming: Mutex::new(()),
            names,
            writes,
            upkeep,
            version_set,
            ctx,
            cache: parts.cache,
            recovery: parts.recovery,
        }
    }
}
