//! State that all handles and jobs of a store share.
//!
//! # Concurrency
//! The order of the locks is in ARCHITECTURE.md, "Locks": `naming`, `writer`, `versions`, `swap`; the others are leaves.
//!
//! Lookups take no lock: they load `state`. Scans look into the list of deleted stretches where they pass tombstones.
//! Finding a partition reads `names`.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use pleach_env::memory::RegionPool;
use pleach_env::sync::{Mutex, RwLock};
use pleach_env::{Env, Error, FileId, Result};
use pleach_log::{CommitQueue, LogWriter, ManifestHint, Recovery, RetiredSegments, SeqNo};
use pleach_table::FrameCache;

use crate::compaction::{Pacer, Requests};
use crate::db::attached::Attached;
use crate::db::ledger::Ledger;
use crate::db::pressure::Pressure;
use crate::db::write::WriteRequest;
use crate::keys::PartitionId;
use crate::manifest::Manifest;
use crate::memtable::Memtable;
use crate::options::Options;
use crate::scan::DeletedStretches;
use crate::state::{CurrentState, LoggedMemtable, State};
use crate::stats::Counters;
use crate::status::Status;
use crate::version::edit::RunId;
use crate::version::{FileTable, Trash, Version};

/// The shared part of a store.
pub(crate) struct Inner {
    // Immutable.
    pub(crate) status: Arc<Status>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) cache: Arc<FrameCache>,
    pub(crate) trash: Arc<Trash>,
    pub(crate) counters: Counters,
    /// The findings of recovery in the log.
    pub(crate) recovery: Recovery,
    /// Memory of memtables.
    memtable_pool: Arc<RegionPool>,
    /// Group commit of writers.
    pub(crate) queue: CommitQueue<WriteRequest>,

    /// What readers see.
    pub(crate) state: CurrentState,

    // Atomic.
    /// Next file or run number.
    pub(super) next_id: AtomicU64,
    /// Drops of partitions since the open. Raised, under `writer`, after the flag of the partition.
    pub(crate) drops: AtomicU64,
    /// Searches in vain after which the choice of filters in memory is looked at again; 0 while all are. The highest number
    /// before the first look.
    pub(crate) filters_looked_at_after: AtomicU64,
    /// When, in the environment's time, the last memtable was sealed.
    pub(crate) sealed_at_ns: AtomicU64,
    /// How many wait for the compactions to end.
    pub(crate) settling: AtomicUsize,

    /// The log and what commit leaders decide. Held by one leader, or by who seals a memtable.
    pub(crate) writer: Mutex<Writer>,
    /// The manifest and what it says.
    pub(crate) versions: Mutex<Versions>,
    /// The manifest hint of log segments.
    pub(super) hint: Mutex<ManifestHint>,
    /// Log segments and manifests that exist.
    pub(crate) framed_files: Mutex<FramedFiles>,
    /// Flushed memtables. Those that still exist are pinned by snapshots, ranges or values. Leaf lock.
    pub(crate) flushed_memtables: Mutex<Vec<Weak<Memtable>>>,
    /// Held while a partition is created or dropped, and while the store is closed: one at a time.
    pub(crate) naming: Mutex<()>,
    /// Live partitions by name, with the flag that drop sets. Held for a moment only.
    pub(crate) names: RwLock<HashMap<Arc<str>, Arc<LivePartition>>>,

    /// Sums and work lists over all partitions. Leaf lock.
    pub(crate) ledger: Mutex<Ledger>,
    /// The charge of writers for the debts of background work.
    pub(crate) pressure: Pressure,
    /// A commit leader waits for a flush, or is slowed down: a request that comes now would wait too.
    pub(crate) writers_wait: AtomicBool,
    /// The bytes that compactions may write in a second.
    pub(crate) pacer: Pacer,
    /// What somebody waits for of the compactions. Leaf lock.
    pub(crate) background: Mutex<Background>,
}

/// State that the handles of a partition share.
pub(crate) struct LivePartition {
    pub(crate) id: PartitionId,
    pub(crate) name: Arc<str>,
    /// Set, under `writer`, when the partition is dropped: later writes and reads are refused.
    pub(crate) dropped: AtomicBool,
}

/// State that commit leaders own.
pub(crate) struct Writer {
    pub(crate) log: Attached<LogWriter>,
    pub(crate) next_seq: SeqNo,
    /// How far the active memtable may fill up before room on the disk is looked for again.
    pub(crate) room_until: usize,
    /// Memtable bytes of the deletes that were accepted although less was free than `space` keeps.
    pub(crate) scant_bytes: usize,
    /// The active memtable of `state`, at hand.
    pub(crate) active: Arc<LoggedMemtable>,
    /// Those of `state`.
    pub(crate) stretches: Arc<DeletedStretches>,
}

/// Log segments and replaced manifests that the cleaner removes when they are not needed any more.
#[derive(Default)]
pub(crate) struct FramedFiles {
    /// Segments, ascending, those in use included.
    pub(crate) segments: Vec<FileId>,
    /// Manifests that a newer one replaced.
    pub(crate) old_manifests: Vec<FileId>,
    /// Handles of segments that the log needs no more.
    pub(crate) retired: RetiredSegments,
}

/// The newest version and the means to write the next.
pub(crate) struct Versions {
    pub(crate) version: Arc<Version>,
    pub(crate) files: FileTable,
    pub(crate) manifest: Attached<Manifest>,
    /// Until recovery has rewritten the log's tail, flushes must not move the log's floor.
    pub(crate) floor_is_pinned: bool,
}

/// State of background work.
#[derive(Default)]
pub(crate) struct Background {
    /// Partitions whose runs somebody waits to see merged into one.
    pub(crate) to_compact: Requests,
    /// How many wait for each of them.
    pub(crate) asking: BTreeMap<PartitionId, usize>,
    /// Partial compactions in progress, which the version does not record.
    pub(crate) partial_jobs: usize,
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
        let ledger = Ledger::new(&parts.options, &parts.versions.version, 0);
        let names = parts.versions.version.partitions().map(|(id, partition)| {
            let name = Arc::clone(&partition.name);
            (Arc::clone(&name), Arc::new(LivePartition { id, name, dropped: AtomicBool::new(false) }))
        });
        let hint = parts.versions.manifest.as_ref().map_or(ManifestHint::NONE, Manifest::hint);
        Self {
            naming: Mutex::new(()),
            names: RwLock::new(names.collect()),
            status: Arc::new(Status::new(parts.read_only, Arc::clone(&parts.state.closed), env.waiter())),
            env,
            dir: parts.dir,
            pacer: Pacer::new(parts.options.compaction_bytes_per_second),
            options: parts.options,
            cache: parts.cache,
            trash: parts.trash,
            counters: Counters::default(),
            recovery: parts.recovery,
            memtable_pool: parts.memtable_pool,
            queue: CommitQueue::new(WriteRequest::cost),
            state: CurrentState::new(parts.state, parts.writer.next_seq - 1),
            next_id: AtomicU64::new(parts.next_id),
            drops: AtomicU64::new(0),
            filters_looked_at_after: AtomicU64::new(u64::MAX),
            sealed_at_ns: AtomicU64::new(0),
            settling: AtomicUsize::new(0),
            writer: Mutex::new(parts.writer),
            hint: Mutex::new(hint),
            framed_files: Mutex::new(FramedFiles { segments: parts.segments, ..FramedFiles::default() }),
            versions: Mutex::new(parts.versions),
            flushed_memtables: Mutex::new(Vec::new()),
            ledger: Mutex::new(ledger),
            pressure: Pressure::default(),
            writers_wait: AtomicBool::new(false),
            background: Mutex::new(Background::default()),
        }
    }

    /// An empty memtable; an error when there is no memory for it.
    pub(crate) fn new_memtable(&self) -> Result<Arc<Memtable>> {
        Ok(Arc::new(Memtable::new(self.options.memtable_budget(), &self.memtable_pool)?))
    }

    /// A number for a new file.
    pub(crate) fn new_file_id(&self) -> FileId {
        FileId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// A number for a new run, above those of all runs there are.
    ///
    /// Requires: `versions` is locked until the run is in the version, or until the number is known to whoever plans: see
    /// [`RunId::NEXT`] and [`Inner::plan_basis`].
    pub(super) fn new_run_id(&self) -> RunId {
        RunId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// The newest version, and a number for a run to be made of some of its runs: above those of all runs in the version,
    /// below those of all runs that come later, so that the run's age is that of what it is made of.
    pub(crate) fn plan_basis(&self) -> (Arc<Version>, RunId) {
        // Under the lock no run has got a number and is not yet in the version.
        let versions = self.versions.lock();
        (Arc::clone(&versions.version), self.new_run_id())
    }

    /// What a new log segment is to note of the manifest.
    pub(crate) fn manifest_hint(&self) -> ManifestHint {
        *self.hint.lock()
    }

    /// Syncs the directory before something durable names new files in it.
    ///
    /// Where no descriptor was left to open it, nothing was synced and nothing is lost.
    pub(crate) fn sync_dir(&self, site: pleach_env::Site) -> Result<()> {
        self.env.sync_dir(&self.dir, site).map_err(|e| {
            let error = Error::io("sync the directory", &self.dir, e);
            if error.is_out_of_files() { error } else { self.status.set_poison(error) }
        })
    }
}
