//! The handle of an open store.

use std::path::Path;
use std::sync::Arc;

use pleach_env::sync::Mutex;
use pleach_env::{BoundedEnv, Error, FileLock, JobHandle, Result};

use super::inner::Inner;
use super::partition::Partition;
use super::snapshot::Snapshot;
use super::verify::{self, VerifyReport};
use super::write_batch::WriteBatch;
use super::{create_drop, open};
use crate::damage::DamagedPlace;
use crate::options::Options;
use crate::stats::Stats;
use crate::upkeep::start_jobs;

/// An open store. Clones share it. The store is closed when the last handle of it, or of one of its partitions, is dropped.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = pleach::Db::open(dir.path().join("data"))?;
/// let users = db.partition("users")?;
/// users.put(b"alice", b"1")?;
/// assert_eq!(users.get(b"alice")?.as_deref(), Some(&b"1"[..]));
/// db.drop_partition(users)?;
/// # Ok::<(), pleach::Error>(())
/// ```
#[derive(Clone)]
pub struct Db {
    pub(crate) shared: Arc<Shared>,
}

/// The store and what lives as long as it is open.
pub(crate) struct Shared {
    pub(super) jobs: Mutex<Vec<JobHandle>>,
    pub(crate) inner: Arc<Inner>,
    /// The store's open files.
    pub(super) files: Arc<BoundedEnv>,
    /// The lock on the directory, until the store is closed.
    pub(super) lock: Mutex<Option<Box<dyn FileLock>>>,
    /// The result of the close. Held while the store is being closed.
    pub(super) closed: Mutex<Option<Result<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Callers that need the error call `Db::close`.
        let _unheard = self.close();
    }
}

impl Options {
    /// Opens the store in directory `path`, and recovers it from its log. Creates a missing store, and the missing directories
    /// of `path`, unless [`Options::create_if_missing`] forbids it.
    ///
    /// A store on a full disk can be opened too. It accepts deletes and drops of partitions, which free space. If recovery
    /// itself finds no room, the store is opened for reading only: writes return the error of [`Db::read_only`] until the
    /// store is opened again.
    ///
    /// # Errors
    /// - `NotFound`: there is no store, and creating one was not allowed.
    /// - `InvalidArgument`: an option is out of range, or the directory holds files that are not a store's.
    /// - `Conflict`: this process or another has the store open.
    /// - `Unsupported`: the format is newer than this version, or from before the first release.
    /// - `Corruption`: a file is damaged; the error names it.
    /// - `Io`: the system refused a call.
    ///
    /// A failed open changes nothing, except that an interrupted recovery may leave files that the next open removes.
    ///
    /// # Cost
    /// It reads the manifest, the indexes of all SSTs and the filters for which there is memory. It reads the log behind the last
    /// flush, usually at most three memtables, and writes that again. A close leaves less than 1 MiB of it.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        Db::open_with(path.as_ref(), self)
    }
}

impl Db {
    /// Opens the store in directory `path` with default options. Creates it, and the missing directories of `path`, if it is
    /// not there.
    ///
    /// # Errors
    /// See [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    pub(crate) fn open_with(path: &Path, mut options: Options) -> Result<Self> {
        let files = Arc::new(BoundedEnv::new(options.env));
        options.env = Arc::<BoundedEnv>::clone(&files);
        // Files may be opened again after the working directory has changed.
        let absolute = options.env.absolute(path);
        let path = absolute.map_err(|e| Error::io("find the working directory for", path, e))?;
        let (inner, lock) = open::open(&path, &options)?;
        let inner = Arc::new(inner);
        let (jobs, lock, closed) = (Mutex::default(), Mutex::new(Some(lock)), Mutex::new(None));
        let shared = Arc::new(Shared { jobs, inner, files, lock, closed });
        if shared.inner.ctx.status.read_only().is_some() {
            return Ok(Self { shared });
        }
        match start_jobs(&shared.inner.upkeep) {
            Ok(jobs) => *shared.jobs.lock() = jobs,
            Err(error) => {
                // The close of `shared` must not wait for jobs.
                shared.inner.ctx.status.note_jobs_stopped();
                return Err(error);
            }
        }
        Ok(Self { shared })
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.shared.inner
    }

    /// The partition that every store has.
    pub fn default_partition(&self) -> Partition {
        let live = self.inner().find_partition(open::DEFAULT_PARTITION);
        Partition::new(self, live.expect("the default partition cannot be dropped"))
    }

    /// The partition called `name`. Creates it if it is missing; [`Db::find_partition`] does not, also for a store that is open
    /// for reading only.
    ///
    /// # Errors
    /// `InvalidArgument` when the name is empty or longer than 255 bytes; `Unsupported` when the store has created 2^28
    /// partitions ([`limits::PARTITIONS_MAX`](crate::limits::PARTITIONS_MAX)); otherwise as for writes. A partition that
    /// exists is found also when writes are refused.
    pub fn partition(&self, name: &str) -> Result<Partition> {
        self.inner().ctx.status.check_not_closed()?;
        let live = match self.inner().find_partition(name) {
            Some(live) => live,
            None => self.inner().create_partitions(&[name])?.swap_remove(0),
        };
        Ok(Partition::new(self, live))
    }

    /// The partitions called `names`, in their order. One durable write creates all that are missing, or none.
    ///
    /// # Errors
    /// Those of [`Db::partition`], for any of the names.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = pleach::Db::open(dir.path())?;
    /// let months = db.create_partitions(["january", "february"])?;
    /// months[1].put(b"29", b"leap year")?;
    /// # Ok::<(), pleach::Error>(())
    /// ```
    pub fn create_partitions<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Vec<Partition>> {
        let names: Vec<_> = names.into_iter().collect();
        let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
        let found = self.inner().create_partitions(&names)?;
        Ok(found.into_iter().map(|live| Partition::new(self, live)).collect())
    }

    /// The partition called `name`, if there is one. After a close it still returns the handles of the partitions that there
    /// were; their calls return `Closed`.
    pub fn find_partition(&self, name: &str) -> Option<Partition> {
        self.inner().find_partition(name).map(|live| Partition::new(self, live))
    }

    /// The names of all partitions, sorted. After a close they are those of the partitions that there were.
    pub fn partitions(&self) -> Vec<String> {
        let mut names: Vec<_> = self.inner().names.read().keys().map(ToString::to_string).collect();
        names.sort_unstable();
        names
    }

    /// Drops a partition with all its entries, by one small durable write. Its files are removed in the background once no
    /// snapshot, range or value refers to them. Other handles of the partition return `Closed`.
    ///
    /// It costs a sync of the log and one of the manifest, whatever the size of the partition. Writers wait meanwhile.
    ///
    /// # Errors
    /// `InvalidArgument` for the default partition and for a partition of another store; `Closed` if it was dropped before;
    /// otherwise as for writes.
    #[expect(clippy::needless_pass_by_value, reason = "the handle cannot be used afterwards")]
    pub fn drop_partition(&self, partition: Partition) -> Result<()> {
        if !partition.is_of(&self.shared) {
            // Another partition of this store may have the same number.
            return Err(Error::invalid("the partition belongs to another store"));
        }
        create_drop::drop_partition(self.inner(), &partition)
    }

    /// An empty write batch.
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::new(self)
    }

    /// A consistent view of all partitions as they are now. Later writes do not change it. It reads nothing and makes no system
    /// call. What it pins is described at [`Snapshot`].
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self)
    }

    /// Makes all writes so far durable, as a write with [`Durability::Sync`](crate::Durability::Sync) does.
    ///
    /// # Errors
    /// - `Io`: the device refused; writes return `Poisoned` from now on. If [`Db::poisoned`] is `None`, there was no space to
    ///   overwrite what is left of a failed write, so that one may come back: free some space and try again.
    /// - `Poisoned`, `Closed`: as for writes.
    pub fn sync(&self) -> Result<()> {
        self.inner().writes.sync_log()
    }

    /// Flushes the memtables as they are now, and waits for the flush. Not needed for durability: it is for tests and for
    /// measurements of what lies in files.
    ///
    /// # Errors
    /// `Io`, `Poisoned` or `Closed`, as for writes. If the flush meets an I/O error that is no shortage, the store is
    /// poisoned, and the error is `Poisoned`.
    pub fn flush(&self) -> Result<()> {
        self.inner().upkeep.flush_all()
    }

    /// Merges each partition into one run, and waits for that. A single run takes the least space and is the fastest to
    /// read. Writes that come meanwhile are not merged.
    ///
    /// # Cost
    /// It reads the SSTs that overlap others and writes them again, except for those of a partition that is one run already.
    /// Separated values stay where they are, unless a conversion is due ([`Options::conversion`]). It needs extra space for
    /// about [`Options::clean_every`] SSTs.
    ///
    /// # Errors
    /// - `Io`: a shortage, such as a full disk. What was merged before stays so; call it again.
    /// - `Poisoned`: an earlier failure stopped all writes, or this merge met damage or a device error, which stops them too.
    ///   [`Db::poisoned`] has the cause, with its kind, file and offset.
    /// - `Closed`.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        // The version is released before the wait. Otherwise it would pin the inputs of the compactions.
        let ids: Vec<_> =
            self.inner().version_set.state.load().version.partitions().map(|(id, _)| id).collect();
        ids.into_iter().try_for_each(|id| self.inner().upkeep.compact_partition(id))
    }

    /// As [`Db::compact`], and copies separated values to new files in the order of their keys, which makes scans fast. Values
    /// that are in order already, or so large that it gains nothing, stay where they are.
    ///
    /// Old copies are removed as it goes on. Copies are made only as far as
    /// [`Options::space_target`](crate::Options::space_target) has room for them: if that is too little for all, it is done in
    /// several passes. Reads and writes go on meanwhile.
    ///
    /// Returns the bytes of values that were left where they are because there was no room for copies. If there are any, drop
    /// snapshots and iterators that pin old copies, or raise the space target, and convert again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = pleach::Options::new().separate_at(512).open(dir.path())?;
    /// let users = db.partition("users")?;
    /// for i in (0..1000u32).rev() {
    ///     users.put(i.to_be_bytes(), [7; 1000])?;
    /// }
    /// assert_eq!(db.convert()?, 0);
    /// # Ok::<(), pleach::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::compact`].
    pub fn convert(&self) -> Result<u64> {
        self.flush()?;
        let ids: Vec<_> =
            self.inner().version_set.state.load().version.partitions().map(|(id, _)| id).collect();
        let upkeep = &self.inner().upkeep;
        ids.into_iter().try_fold(0, |left, id| Ok(left + upkeep.convert_partition(id, &mut |_, _| true)?))
    }

    /// Flushes the memtables, and waits until no compaction is due, and no file of separated values is to be cleaned.
    ///
    /// # Errors
    /// As [`Db::compact`].
    pub fn settle(&self) -> Result<()> {
        self.flush()?;
        self.inner().upkeep.wait_for_compactions()
    }

    /// Reads every live file and checks it: checksums, order, counts, filters, indexes, and the version's invariants. Of
    /// separated values it reads all that a reader can see. So it takes as long as reading the whole store. Damage that it finds
    /// does not stop writes.
    ///
    /// # Errors
    /// The first damage found, with file and offset. `Io` when a file cannot be read, `Closed`.
    pub fn verify(&self) -> Result<VerifyReport> {
        verify::verify(self.inner(), &mut |_, _| true)
    }

    /// As [`Db::verify`]. After each file it calls `progress` with the bytes checked so far and the bytes in all, and stops
    /// if that returns `false`.
    ///
    /// # Errors
    /// Those of [`Db::verify`].
    pub fn verify_with(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<VerifyReport> {
        verify::verify(self.inner(), progress)
    }

    /// As [`Db::verify_with`], but it continues after damage and returns all damaged places of all files. Separated values of a
    /// partition with the same error, such as those of a missing file, are one place.
    ///
    /// # Errors
    /// Errors other than damage of a file.
    pub fn verify_all(
        &self,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(VerifyReport, Vec<DamagedPlace>)> {
        verify::verify_all(self.inner(), progress)
    }

    /// The store's statistics. The call reads no file, but it visits each partition, SST and file of separated values.
    pub fn stats(&self) -> Stats {
        self.inner().stats()
    }

    /// The failure that stopped all writes, if there was one.
    pub fn poisoned(&self) -> Option<Error> {
        self.inner().ctx.status.poison().cloned()
    }

    /// The error that writes return since the open, if the store was opened for reading only: with [`Options::read_only`],
    /// or because the disk was full. `None` if it was opened for writing.
    pub fn read_only(&self) -> Option<Error> {
        self.inner().ctx.status.read_only().cloned()
    }

    /// Closes the store: makes all writes durable, stops background work and releases the lock, so that the directory can
    /// be opened again at once. From then on every handle of the store returns `Closed`, for reads too: partitions,
    /// snapshots, ranges and batches. Keys and values that were returned before stay valid. Reads in flight end first; a
    /// future that was waiting for one returns its answer or `Closed`. Dropping the last handle closes the store too, but
    /// cannot report an error.
    ///
    /// # Errors
    /// `Poisoned` if an earlier failure had stopped the store; the message says whether all writes are durable. `Io` if the
    /// last sync fails. The store is closed in both cases. If another handle closed the store before, the result of that
    /// call. `Conflict` if a task's waker calls this while another close is under way: that close may wait for the waker.
    pub fn close(self) -> Result<()> {
        self.shared.close()
    }

    /// Last sequence number that readers see; it grows by one with each put and delete.
    pub fn last_sequence_number(&self) -> u64 {
        self.inner().version_set.state.visible()
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("path", &self.inner().ctx.dir).finish_non_exhaustive()
    }
}
