//! Assembly of an open store: version set, write path, upkeep, and the names of partitions.
//!
//! # Concurrency
//! The order of the locks is in ARCHITECTURE.md, "Locks". Lookups take none. Finding a partition reads `names`. Jobs hold
//! `Upkeep` and the parts below it, never `Inner`, so a job keeps no handle and no directory lock alive.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use pleach_env::LazyReadService;
use pleach_env::sync::{Mutex, RwLock};
use pleach_log::Recovery;
use pleach_table::FrameCache;

use super::open::{Ready, Writers};
use super::recovery::Found;
use crate::context::Context;
use crate::loads::Loads;
use crate::memory_shares::MemoryShares;
use crate::options::Options;
use crate::shown::Shown;
use crate::state::{CurrentState, LoggedMemtable, State};
use crate::stats::Counters;
use crate::status::Status;
use crate::tombstone_spans::TombstoneSpans;
use crate::upkeep::Upkeep;
use crate::values::ValueCache;
use crate::version::Version;
use crate::version_set::{VersionSet, Versions};
use crate::write_path::{LivePartition, WritePath, Writer};

/// The parts of an open store, which all handles share.
pub(crate) struct Inner {
    pub(crate) ctx: Arc<Context>,
    pub(crate) cache: Arc<FrameCache>,
    /// What recovery found in the log.
    pub(crate) recovery: Recovery,
    /// Manifest, versions, the state that readers see, and the files of the store.
    pub(crate) version_set: Arc<VersionSet>,
    /// Log and active memtable.
    pub(crate) writes: Arc<WritePath>,
    /// Flush, compaction, filters.
    pub(crate) upkeep: Arc<Upkeep>,

    /// Held while a partition is created or dropped, and while the store is closed: one at a time.
    pub(crate) naming: Mutex<()>,
    /// Live partitions by name. Held for a moment only.
    pub(crate) names: RwLock<HashMap<Arc<str>, Arc<LivePartition>>>,
}

impl Inner {
    /// The store that was read as `ready`, with `version` as its newest version and an empty memtable.
    pub(super) fn new(
        dir: &Path,
        options: &Options,
        ready: Ready,
        version: Version,
        writers: Writers,
    ) -> (Self, Found) {
        let Ready { found, files, trash, cache, encoders } = ready;
        let Writers { log, manifest, memtable: (memtables, memtable), first_segment, read_only } = writers;
        let names = version.partitions().map(|(id, partition)| {
            let name = Arc::clone(&partition.name);
            (Arc::clone(&name), Arc::new(LivePartition { id, name, dropped: AtomicBool::new(false) }))
        });
        let names = RwLock::new(names.collect());
        let segments = if read_only.is_some() { Vec::new() } else { vec![first_segment] };
        let (next_id, last_seq) = (version.next_id, version.flushed_seq);
        let (version, shown) = (Arc::new(version), Shown::new(last_seq));
        let active = Arc::new(LoggedMemtable { memtable: Arc::clone(&memtable), first_segment });
        let state = State {
            active,
            immutable: Vec::new(),
            version: Arc::clone(&version),
            partitions_since: 0,
            tombstone_spans: Arc::new(TombstoneSpans::new(Arc::clone(&shown))),
            closed: Arc::default(),
        };
        let ctx = Arc::new(Context {
            env: Arc::clone(&options.env),
            dir: dir.to_path_buf(),
            options: options.clone(),
            counters: Counters::default(),
            status: Status::new(read_only, Arc::clone(&state.closed), options.env.waiter()),
            loads: Loads::new(&options.env),
            read_ahead: LazyReadService::new(&options.env),
            value_reads: LazyReadService::new(&options.env),
            value_debt: AtomicU64::new(0),
            value_cache: ValueCache::new(Arc::clone(&cache)),
            reads_cost_more: AtomicBool::new(false),
            read_driver: OnceLock::new(),
            filter_review_interval: AtomicU64::new(u64::MAX),
        });
        let writer = Writer {
            log,
            next_seq: last_seq + 1,
            room_until: 0,
            scant_bytes: 0,
            memtable,
            tombstone_spans: Arc::clone(&state.tombstone_spans),
            side_by_side: 0,
        };
        let (filter_bytes, index_bytes) = files.table_bytes();
        let cache_min = options.cache_bytes(filter_bytes.saturating_add(index_bytes));
        let shares =
            MemoryShares::new(memtables, options.memtables_share(), Arc::clone(&ctx.value_cache), cache_min);
        let versions = Versions { version, files, manifest, floor_is_pinned: true };
        let state = CurrentState::new(state, shown);
        let version_set = Arc::new(VersionSet::new(&ctx, versions, state, trash, (next_id, segments)));
        let writes = Arc::new(WritePath::new(&ctx, &version_set, writer, shares));
        let upkeep = Arc::new(Upkeep::new(&ctx, &version_set, &writes, &cache, encoders));
        let (recovery, naming) = (found.recovery, Mutex::new(()));
        (Self { ctx, cache, recovery, version_set, writes, upkeep, naming, names }, found)
    }
}
