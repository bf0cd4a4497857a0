//! The environment in memory: files without a disk, and everything else of the real machine.
//!
//! For stores that need not outlive their process: caches, tests of applications, indexes that are built and thrown away.
//! Threads, clock and randomness are those of [`RealEnv`]. [`SimEnv`](crate::SimEnv) is another thing: a disk that loses
//! data on purpose, for the tests of this project.
//!
//! # Concurrency
//! One lock guards the names; calls that open, create, rename or remove take it. Reads and writes take only their file's lock,
//! which readers share.

mod bytes;
mod file;
mod lock;
mod tree;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::RwLock;

use crate::bounded::OpenFiles;
use crate::env::{Dir, Env, File, FileLock, LockMode, Metadata, OpenOptions, Site};
use crate::job::{Job, JobHandle};
use crate::processor::ProcessorTime;
use crate::read_queue::ReadDriver;
use crate::real::RealEnv;
use crate::waiter::Waiter;
use bytes::UsedBytes;
use file::{MemDir, MemFile, MemHandle};
use tree::Tree;

/// An environment whose files are in memory, for any number of threads and stores.
///
/// The files end with the environment: drop it, and what is open in it, to free them. A store in it can be closed and opened
/// again. Nothing is written to a disk, and no descriptors are used.
///
/// - *Paths* begin at a root of the environment's own, with or without a leading `/`. The parent of a new file must exist;
///   a store creates its directory.
/// - *Syncs* do nothing, so `Durability::Sync` costs no more than `Durability::Buffered`.
/// - *Locks* work as on the machine: a store that is open in an environment cannot be opened there a second time.
/// - *Reads* take place at once, on the thread that wants the bytes ([`ReadDriver::Blocking`]). Threads may read one file at the
///   same time. Rings cannot read it. Direct reads are ordinary ones.
/// - *Space*: [`Env::available_space`] is the memory that the process may use ([`Env::memory_limit`]) less
///   [`MemEnv::used_bytes`]. A store refuses puts when little is left, as on a full disk. The environment itself has no limit;
///   a write for which the allocator finds no memory fails with `OutOfMemory`. Blocks in a store's cache are copies, so a
///   small memory budget suffices: reads of what is not cached are copies too.
///
/// ```
/// use std::path::Path;
/// use pleach_env::{Env, MemEnv};
///
/// # fn main() -> std::io::Result<()> {
/// let env = MemEnv::new();
/// env.create_dir_all(Path::new("/dir"))?;
/// let file = env.create_file(Path::new("/dir/greeting"))?;
/// file.write_all_at(b"hello", 0)?;
/// env.remove_file(Path::new("/dir/greeting"))?;
///
/// // A removed file lives on until its last handle is dropped.
/// let mut bytes = [0; 5];
/// file.read_exact_at(&mut bytes, 0)?;
/// assert_eq!(&bytes, b"hello");
/// drop(file);
/// assert_eq!(env.used_bytes(), 0);
/// # Ok(())
/// # }
/// ```
pub struct MemEnv {
    /// The machine, for what is no file.
    machine: RealEnv,
    /// Its files are never closed: they have no descriptors.
    open_files: Arc<OpenFiles>,
    tree: RwLock<Tree>,
    used: UsedBytes,
}

impl MemEnv {
    /// An environment without files.
    pub fn new() -> Self {
        Self {
            machine: RealEnv::new(),
            open_files: OpenFiles::for_descriptors(usize::MAX),
            tree: RwLock::default(),
            used: UsedBytes::default(),
        }
    }

    /// Bytes of memory that the files take, those included that were removed and are still open. What was extended but never
    /// written takes none.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Default for MemEnv {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemEnv").field("used_bytes", &self.used_bytes()).finish_non_exhaustive()
    }
}

impl Env for MemEnv {
    /// From the environment's root.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(tree::absolute(path))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.tree.write().create_dir_all(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<(String, Metadata)>> {
        self.tree.read().list(path)
    }

    fn sync_dir(&self, path: &Path, _site: Site) -> io::Result<()> {
        self.tree.read().check_dir(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        self.tree.read().check_dir(path)?;
        Ok(Arc::new(MemDir))
    }

    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = MemFile::new(&self.used);
        self.tree.write().create(path, Arc::clone(&file))?;
        Ok(Arc::new(MemHandle { file, may_write: true }))
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let file = self.tree.read().file(path)?;
        Ok(Arc::new(MemHandle { file, may_write: options.write }))
    }

    fn open_files(&self) -> Arc<OpenFiles> {
        Arc::clone(&self.open_files)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.tree.read().metadata(path)
    }

    /// Directories cannot be renamed.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.tree.write().rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.tree.write().remove(path)
    }

    fn lock_file(&self, path: &Path, mode: LockMode) -> io::Result<Option<Box<dyn FileLock>>> {
        let lock = self.tree.write().lock(path, mode, || MemFile::new(&self.used))?;
        Ok(lock.map(|lock| Box::new(lock) as Box<dyn FileLock>))
    }

    fn available_space(&self, _path: &Path) -> io::Result<u64> {
        let limit = self.machine.memory_limit().unwrap_or(u64::MAX);
        Ok(limit.saturating_sub(self.used_bytes()))
    }

    fn now(&self) -> Duration {
        self.machine.now()
    }

    fn wall_clock(&self) -> Duration {
        self.machine.wall_clock()
    }

    fn sleep(&self, duration: Duration) {
        self.machine.sleep(duration);
    }

    fn parallelism(&self) -> usize {
        self.machine.parallelism()
    }

    fn memory_limit(&self) -> Option<u64> {
        self.machine.memory_limit()
    }

    fn processor_time(&self) -> Option<ProcessorTime> {
        self.machine.processor_time()
    }

    /// Not for secrets.
    fn random_u64(&self) -> u64 {
        self.machine.random_u64()
    }

    fn read_driver(&self) -> ReadDriver {
        ReadDriver::Blocking
    }

    fn spawn_job(&self, name: &str, job: Box<dyn Job>) -> io::Result<JobHandle> {
        self.machine.spawn_job(name, job)
    }

    fn waiter(&self) -> Waiter {
        self.machine.waiter()
    }
}

#[cfg(test)]
mod tests;
