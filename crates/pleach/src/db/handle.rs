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

/// An open store. Clones share it; it is closed when the last handle (of the store or of a partition) goes.
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
    /// The lock on the directory, until the store is closed.
    pub(super) lock: Mutex<Option<Box<dyn FileLock>>>,
    /// How the close ended. Held while the store is being closed.
    pub(super) closed: Mutex<Option<Result<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // `Db::close` reports the error to those who want to know.
        let _unheard = self.close();
    }
}

impl Options {
    /// Opens the store in directory `path`, creating it where allowed, and recovers it from its log.
    ///
    /// A store on a full disk can be opened too. If there is not even room for that, it is opened for reading only until it
    /// is opened again: writes return the error of [`Db::read_only`]. Otherwise deletes and drops of partitions are accepted,
    /// which free space.
    ///
    /// # Errors
    /// `NotFound`: there is no store, and none is to be created. `InvalidArgument`: an option is out of range, or the
    /// directory holds something that is no store; nothing is created in it.
    /// `Conflict`: another process, or this one, has the store open. `Unsupported`: written in a format that is newer, or
    /// from before the first release.
    /// `Corruption`: a file is damaged; it is named. `Io`: the system refused. Nothing is changed by a failed open,
    /// except that an interrupted recovery may leave files that the next open removes.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        Db::open_with(path.as_ref(), self)
    }
}

impl Db {
    /// Opens the store in directory `path` with default options, creating it if it is not there.
    ///
    /// # Errors
    /// See [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    pub(crate) fn open_with(path: &Path, mut options: Options) -> Result<Self> {
        options.env = Arc::new(BoundedEnv::new(options.env));
        // Files are opened again by their paths, whatever the working directory is by then.
        let absolute = options.env.absolute(path);
        let path = absolute.map_err(|e| Error::io("find the working directory for", path, e))?;
        let (inner, lock) = open::open(&path, &options)?;
        let inner = Arc::new(inner);
        let (jobs, lock, closed) = (Mutex::default(), Mutex::new(Some(lock)), Mutex::new(None));
        let shared = Arc::new(Shared { jobs, inner, lock, closed });
        if shared.inner.ctx.status.read_only().is_some() {
            return Ok(Self { shared });
        }
        match start_jobs(&shared.inner.upkeep) {
            Ok(jobs) => *shared.jobs.lock() = jobs,
            Err(error) => {
                // The close that follows waits for none of them.
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

    /// The partition called `name`, created if it is missing.
    ///
    /// # Errors
    /// `InvalidArgument` when the name is empty or longer than 255 bytes; otherwise as for writes.
    pub fn partition(&self, name: &str) -> Result<Partition> {
        self.inner().ctx.status.check_not_closed()?;
        let live = match self.inner().find_partition(name) {
            Some(live) => live,
            None => self.inner().create_partitions(&[name])?.swap_remove(0),
        };
        Ok(Partition::new(self, live))
    }

    /// The partitions called `names`, in their order. Those that are missing are created together, by one durable write:
    /// all of them or none.
    ///
    /// # Errors
    /// As of [`Db::partition`], for any of the names.
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

    /// The partition called `name`, if there is one.
    pub fn find_partition(&self, name: &str) -> Option<Partition> {
        self.inner().find_partition(name).map(|live| Partition::new(self, live))
    }

    /// The names of all partitions, sorted.
    pub fn partitions(&self) -> Vec<String> {
        let mut names: Vec<_> = self.inner().names.read().keys().map(ToString::to_string).collect();
        names.sort_unstable();
        names
    }

    /// Drops a partition with all it holds: one small durable write, whatever its size. Its files are removed in the
    /// background, once no snapshot, range or value refers to them. Other handles of it get `Closed` errors.
    ///
    /// # Errors
    /// `InvalidArgument` for the default partition and for one of another store; `Closed` when it was dropped before.
    #[expect(clippy::needless_pass_by_value, reason = "the handle is of no use afterwards")]
    pub fn drop_partition(&self, partition: Partition) -> Result<()> {
        if !partition.is_of(&self.shared) {
            // Its number is that of another partition here.
            return Err(Error::invalid("the partition belongs to another store"));
        }
        create_drop::drop_partition(self.inner(), &partition)
    }

    /// An empty write batch.
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::new(self)
    }

    /// A consistent view of all partitions as they are now. It stays valid, unchanged, as long as it is kept.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self)
    }

    /// Makes everything written so far durable, as if the last write had asked for it.
    pub fn sync(&self) -> Result<()> {
        self.inner().writes.sync_log()
    }

    /// Writes what the memtables hold to files and waits until that is done; not for what others write meanwhile. Not
    /// needed for durability.
    pub fn flush(&self) -> Result<()> {
        self.inner().upkeep.flush_all()
    }

    /// Merges each partition into one run and waits until that is done: the densest and fastest to read form. What is written
    /// meanwhile stays beside it.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        // The version is let go of before the wait: it would hold the space of what is merged.
        let ids: Vec<_> =
            self.inner().version_set.state.load().version.partitions().map(|(id, _)| id).collect();
        ids.into_iter().try_for_each(|id| self.inner().upkeep.compact_partition(id))
    }

    /// Waits until flushes and compactions have nothing left to do.
    pub fn settle(&self) -> Result<()> {
        self.flush()?;
        self.inner().upkeep.wait_for_compactions()
    }

    /// Reads every live file and checks it: checksums, order, counts, filters, indexes, and the version's invariants.
    ///
    /// # Errors
    /// The first damage found, with file and offset.
    pub fn verify(&self) -> Result<VerifyReport> {
        verify::verify(self.inner(), &mut |_, _| true)
    }

    /// As [`Db::verify`], telling `progress` the bytes checked and the bytes in all after each file; it returns whether
    /// to go on.
    pub fn verify_with(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<VerifyReport> {
        verify::verify(self.inner(), progress)
    }

    /// As [`Db::verify_with`], but damage does not end it: it returns every damaged place of every file.
    ///
    /// # Errors
    /// Those that are no damage of a file.
    pub fn verify_all(
        &self,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(VerifyReport, Vec<DamagedPlace>)> {
        verify::verify_all(self.inner(), progress)
    }

    /// The store's statistics.
    pub fn stats(&self) -> Stats {
        self.inner().stats()
    }

    /// Whether writes are refused, and why.
    pub fn poisoned(&self) -> Option<Error> {
        self.inner().ctx.status.poison().cloned()
    }

    /// Why the store takes no writes since it was opened: with [`Options::read_only`], or on a full disk. `None` for a
    /// store that was opened for writing. The error is the one that writes get.
    pub fn read_only(&self) -> Option<Error> {
        self.inner().ctx.status.read_only().cloned()
    }

    /// Closes the store: everything written is made durable, background work stops, and the lock is released, so that the
    /// directory can be opened again at once. From then on every handle of the store answers `Closed`: partitions,
    /// snapshots, ranges and batches, for reads too. Keys and values that were returned stay valid. Dropping the last
    /// handle closes the store too, but cannot report an error.
    ///
    /// # Errors
    /// `Poisoned` when an earlier failure had stopped the store; the message says whether all writes are durable. `Io` when
    /// the last sync fails. The store is closed all the same. When another handle closed the store before, its result.
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
