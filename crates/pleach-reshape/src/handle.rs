//! Handle: the reshaped store that programs use.
//!
//! It owns the parts. What each call does is in the modules of its path: `write_path`, `reads`, `snapshot`, `range`,
//! `checkpoint`, `moves`, `cleaning`, `generations`, `verify`, `transfer`. The background job is in `job`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use pleach::env::Env;
use pleach::env::sync::{Mutex, RwLock};
use pleach::{Error, Result};

use crate::checkpoint::Maintenance;
use crate::group::Group;
use crate::ids::{Allocator, Layout};
use crate::in_flight::InFlight;
use crate::job::{Job, JobErrors};
use crate::latches::Latches;
use crate::map::Map;
use crate::open::{self, OpenReport};
use crate::options::{MapPlace, Options};
use crate::replaced::Replaced;
use crate::row_cache::RowCache;
use crate::store::{Durability, RowStore};
use crate::versions::Versions;
use crate::write_path::Batch;

/// A store whose random inserts are appends.
///
#[cfg_attr(feature = "redb", doc = "```")]
#[cfg_attr(not(feature = "redb"), doc = "```ignore")]
/// # let dir = tempfile::tempdir().unwrap();
/// use pleach_reshape::Options;
/// use pleach_reshape::store::redb::{RedbOptions, RedbStore};
///
/// let rows = RedbStore::open(&dir.path().join("rows"), &RedbOptions::default()).expect("a store");
/// let store = Options::new().open(Box::new(rows), dir.path().join("map"))?;
/// store.put(b"alice", b"1")?;
/// assert!(!store.put_new(b"alice", b"2")?);
/// let mut batch = store.batch();
/// batch.put(b"bob", b"2");
/// batch.delete(b"alice");
/// batch.commit()?;
/// let names: Result<Vec<_>, _> = store.all()?.map(|entry| entry.map(|(key, _)| key)).collect();
/// assert_eq!(names?, [b"bob"]);
/// store.close()?;
/// # Ok::<(), pleach::Error>(())
/// ```
pub struct Reshaped {
    /// Stopped before the rest is dropped.
    job: Option<Job>,
    pub(crate) inner: Arc<Inner>,
    report: OpenReport,
}

/// Figures of a store, from [`Reshaped::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Memory of the map's changes since the last checkpoint.
    pub delta_bytes: usize,
    /// Memory of the whole map with [`MapPlace::Memory`](crate::MapPlace::Memory). The memory of the map's Pleach store comes
    /// on top.
    pub map_bytes: usize,
    /// Memory of the cached rows, about.
    pub row_cache_bytes: usize,
    /// How often all rows began to move to new tables: the ids were exhausted, or all rows were reclustered.
    pub generation: u64,
    /// Whether rows are being moved from the generation before.
    pub is_draining: bool,
    /// Whether the map has runs: entries that stand for some rows each, which a recluster has written, or which came in the order
    /// of keys.
    pub has_runs: bool,
    /// Whether the map may have runs of rows that came in the order of keys. Then [`Update::Defer`](crate::Update::Defer) removes
    /// rows from before the open at once.
    pub has_runs_of_writers: bool,
    /// The number of the newest checkpoint.
    pub checkpoint: u64,
}

/// The parts of an open store.
pub(crate) struct Inner {
    pub(crate) store: Box<dyn RowStore>,
    pub(crate) options: Options,
    pub(crate) env: Arc<dyn Env>,
    /// The map's directory.
    pub(crate) dir: PathBuf,
    /// The first number of the store's identity.
    pub(crate) identity: u64,
    pub(crate) layout: Layout,
    pub(crate) map: Map,
    pub(crate) latches: Latches,
    /// Rows that were read lately.
    pub(crate) rows: RowCache,
    pub(crate) in_flight: InFlight,
    /// The numbers of uses of `in_flight`.
    pub(crate) tickets: AtomicU64,
    pub(crate) versions: Versions,
    /// Replaced under `gate`, held alone.
    pub(crate) allocator: ArcSwap<Allocator>,
    pub(crate) group: Group,
    /// Held shared from before a write takes its version until it is published. Who holds it alone sees a moment at which
    /// store and map agree.
    pub(crate) gate: RwLock<()>,
    /// Held while all rows move, and by who begins a generation. Taken before all other locks.
    pub(crate) moving: Mutex<()>,
    /// Transactions that have moved rows of a range.
    pub(crate) range_moves: AtomicU64,
    /// Guards checkpoints and changes of the generation. Taken before latches and gate.
    pub(crate) maintenance: Mutex<Maintenance>,
    /// A statistic: the number of the newest checkpoint.
    pub(crate) newest_checkpoint: AtomicU64,
    /// Whether rows may be there that a later row of their key replaces, so that a delete must leave a row.
    pub(crate) garbage: AtomicBool,
    /// Whether rows of writers may be in runs of the map.
    pub(crate) has_runs_of_writers: AtomicBool,
    /// Per stripe: no run that the map had at the open has rows of writers at or above this sequence.
    pub(crate) runs_end_at_open: Vec<u64>,
    /// Rows that are to be removed.
    pub(crate) replaced: Replaced,
    /// Wanted from the background job.
    pub(crate) is_drain_due: AtomicBool,
    /// Whether the job is to end soon.
    pub(crate) is_closing: AtomicBool,
    /// Why writes are refused.
    pub(crate) poison: OnceLock<Error>,
    /// Why reads are refused too: nobody knows whether a transaction took place.
    pub(crate) unknown: OnceLock<Error>,
    /// What the job could not do when it last ran.
    pub(crate) job_errors: Mutex<JobErrors>,
}

impl Reshaped {
    /// Opens the reshaped store of `store`, whose map is in `dir`, or makes it. See [`Options::open`].
    ///
    /// # Errors
    /// Those of [`Options::open`].
    pub fn open(store: Box<dyn RowStore>, dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.open(store, dir)
    }

    pub(crate) fn open_with(store: Box<dyn RowStore>, dir: &Path, options: Options) -> Result<Self> {
        let (inner, report) = open::open(store, dir, options)?;
        let inner = Arc::new(inner);
        let job = if inner.options.runs_checkpoints { Some(Job::start(&inner)?) } else { None };
        let reshaped = Self { job, inner, report };
        reshaped.wake_job();
        Ok(reshaped)
    }

    /// What the open did.
    pub fn open_report(&self) -> &OpenReport {
        &self.report
    }

    /// Writes a pair with [`Durability::Buffered`]: when it returns, the pair can be read. A power cut may take it, and so may a
    /// killed process, unless the store says otherwise
    /// ([`Abilities::buffered_survives_kill`](crate::store::Abilities::buffered_survives_kill): over redb it may).
    ///
    /// # Errors
    /// - That of the background job, if the changes of the map fill their memory
    ///   ([`Options::delta_bytes`](crate::Options::delta_bytes)) because checkpoints fail; nothing was written.
    /// - `InvalidArgument`: the key or the value is too long, or the ids do not suffice.
    /// - `Poisoned`: an earlier write or sync failed and may be there.
    /// - `Io`: the store refused the transaction; it did not take place, unless later writes return `Poisoned`.
    /// - `Corruption`: the map is damaged, or a row that may be the key's.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, Durability::Buffered)
    }

    /// As [`put`](Self::put), as durable as wanted when it returns.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.write(&[(key.as_ref(), Some(value.as_ref()))], false, durability)?;
        Ok(())
    }

    /// Writes a pair if the key is not there; whether it was not.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_new(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.put_new_with(key, value, Durability::Buffered)
    }

    /// As [`put_new`](Self::put_new), as durable as wanted when it returns.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_new_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<bool> {
        self.write(&[(key.as_ref(), Some(value.as_ref()))], true, durability)
    }

    /// Deletes a key, if it is there.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, Durability::Buffered)
    }

    /// As [`delete`](Self::delete), as durable as wanted when it returns.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.write(&[(key.as_ref(), None)], false, durability)?;
        Ok(())
    }

    /// An empty batch.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// `Io`: the store refused; writes return `Poisoned` from now on.
    pub fn sync(&self) -> Result<()> {
        self.inner.check_writable()?;
        self.inner.sync_store()
    }

    /// Writes the map's changes to its Pleach store, so that the next open reads few rows. Writers go on meanwhile, but
    /// wait for a moment if the map has runs whose rows may have gone, as for a [`snapshot`](Self::snapshot).
    ///
    /// # Errors
    /// - `Poisoned`, `Io`: as for [`sync`](Self::sync).
    /// - Those of the map's Pleach store; a later call may succeed.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.checkpoint()?;
        // It renews the state of the map's store that readers use.
        self.wake_job();
        Ok(())
    }

    /// Makes all that was written durable, makes a checkpoint, and closes the map's store. A store that is only dropped opens as
    /// after a killed process.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Self::checkpoint).
    pub fn close(mut self) -> Result<()> {
        self.job = None;
        let removed = self.inner.remove_replaced();
        // A checkpoint without changes of the map syncs nothing, and rows may have been written in place.
        let synced = self.sync();
        let checkpoint = self.inner.checkpoint();
        let closed = self.inner.maintenance.lock().map_store.db().clone().close();
        removed.and(synced).and(checkpoint).and(closed)
    }

    /// Figures of the moment.
    pub fn stats(&self) -> Stats {
        let inner = &self.inner;
        let allocator = inner.allocator.load();
        Stats {
            delta_bytes: inner.map.delta_bytes(),
            map_bytes: inner.map.base_bytes(),
            row_cache_bytes: inner.rows.bytes(),
            generation: allocator.generation,
            is_draining: allocator.previous.is_some(),
            has_runs: inner.map.has_runs(),
            has_runs_of_writers: inner.has_runs_of_writers.load(Ordering::Relaxed),
            checkpoint: inner.newest_checkpoint.load(Ordering::Relaxed),
        }
    }

    /// What the background job could not do; none if it has succeeded since. It tries again after ten seconds, then each time
    /// after twice as long, up to an hour, and when there is more to do. If it cannot make checkpoints, writes fail with this
    /// error once the changes of the map fill their memory.
    pub fn background_error(&self) -> Option<Error> {
        self.inner.job_errors.lock().any()
    }

    pub(crate) fn wake_job(&self) {
        if let Some(job) = &self.job {
            job.wake();
        }
    }

    /// Whether a job makes checkpoints.
    pub(crate) fn has_job(&self) -> bool {
        self.job.is_some()
    }
}

impl Inner {
    pub(crate) fn check_readable(&self) -> Result<()> {
        self.unknown.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_readable()?;
        match self.poison.get() {
            None => Ok(()),
            Some(error) => Err(Error::poisoned(error, format!("an earlier write failed: {error}"))),
        }
    }

    /// Refuses writes from now on.
    pub(crate) fn poison(&self, error: &Error) {
        // The first error stays.
        let _ = self.poison.set(error.clone());
    }

    pub(crate) fn sync_store(&self) -> Result<()> {
        let synced = self.store.sync().map_err(|e| crate::named::store_error("sync", &e));
        synced.inspect_err(|error| self.poison(error))
    }

    /// Memory that the changes since the last checkpoint may take. With a tree in memory, at least half of the tree's: each leaf
    /// that a merge copies should take several changes.
    pub(crate) fn delta_bytes_max(&self) -> usize {
        self.options.delta_bytes.max(self.map.base_bytes() / 2)
    }

    pub(crate) fn is_checkpoint_due(&self) -> bool {
        let share = match self.options.map {
            MapPlace::Disk => CHECKPOINT_SHARE,
            MapPlace::Memory => CHECKPOINT_SHARE_IN_MEMORY,
        };
        // Also while earlier ones have failed: then sealed layers have most of the bytes.
        self.map.active_bytes() >= self.delta_bytes_max() / share
            || self.map.delta_bytes() > self.delta_bytes_max()
    }
}

/// A checkpoint is due when the active layer takes this share of the delta: writers fill the rest while it runs.
const CHECKPOINT_SHARE: usize = 4;
/// With a map in memory: a merge copies leaves, so it should have many changes. A put costs 0.15 us less than with 4, and a key 3
/// bytes more (docs/key-reshaping.md).
const CHECKPOINT_SHARE_IN_MEMORY: usize = 2;
