//! An environment in which any number of files share a bounded number of descriptors.
//!
//! A store wraps its environment in a [`BoundedEnv`] and opens its SSTs by [`Env::open_stable_file`]. If too many SSTs are
//! open, some are closed; a closed one is opened again when it is read. Log segments, the manifest and the lock keep their
//! descriptors. A call that needs a descriptor and finds none closes some SSTs and tries again.
//!
//! The directory that is synced first, which is the store's, stays open. So a sync of it needs no descriptor and succeeds in a
//! process that has used up all of them.
//!
//! # Concurrency
//! The list of open files has a lock of its own, see [`OpenFiles`]. No call is made under the lock of the directory.

mod file;
mod open_files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use open_files::OpenFiles;

use crate::env::{Dir, Env, File, FileLock, LockMode, Metadata, OpenOptions, Site};
use crate::job::{Job, JobHandle};
use crate::read_queue::ReadDriver;
use crate::waiter::Waiter;
use file::BoundedFile;

/// An environment whose stable files are closed and opened again as needed.
pub struct BoundedEnv {
    env: Arc<dyn Env>,
    open_files: Arc<OpenFiles>,
    /// The first directory that was synced.
    dir: Mutex<Option<(PathBuf, Arc<dyn Dir>)>>,
}

impl BoundedEnv {
    /// Wraps `env`. All environments that wrap it share the limit of [`Env::open_files`].
    pub fn new(env: Arc<dyn Env>) -> Self {
        let open_files = env.open_files();
        Self { env, open_files, dir: Mutex::new(None) }
    }

    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        if let Some((_, dir)) = self.dir.lock().as_ref().filter(|(held, _)| held == path) {
            return Ok(Arc::clone(dir));
        }
        let dir = self.open_files.with_descriptor(|| self.env.open_dir(path))?;
        self.dir.lock().get_or_insert_with(|| (path.to_path_buf(), Arc::clone(&dir)));
        Ok(dir)
    }
}

impl Env for BoundedEnv {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.env.absolute(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.open_files.with_descriptor(|| self.env.create_dir_all(path))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<(String, Metadata)>> {
        self.open_files.with_descriptor(|| self.env.list_dir(path))
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        self.open_files.with_descriptor(|| self.env.open_dir(path))
    }

    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        self.dir(path)?.sync(site)
    }

    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open_files.with_descriptor(|| self.env.create_file(path))
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        self.open_files.with_descriptor(|| self.env.open_file(path, options))
    }

    fn open_stable_file(&self, path: &Path, direct: bool) -> io::Result<Arc<dyn File>> {
        BoundedFile::open(Arc::clone(&self.env), Arc::clone(&self.open_files), path, direct)
    }

    fn open_files(&self) -> Arc<OpenFiles> {
        Arc::clone(&self.open_files)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.env.metadata(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.env.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.env.remove_file(path)
    }

    fn lock_file(&self, path: &Path, mode: LockMode) -> io::Result<Option<Box<dyn FileLock>>> {
        self.open_files.with_descriptor(|| self.env.lock_file(path, mode))
    }

    fn available_space(&self, path: &Path) -> io::Result<u64> {
        self.env.available_space(path)
    }

    fn now(&self) -> Duration {
        self.env.now()
    }

    fn wall_clock(&self) -> Duration {
        self.env.wall_clock()
    }

    fn sleep(&self, duration: Duration) {
        self.env.sleep(duration);
    }

    fn parallelism(&self) -> usize {
        self.env.parallelism()
    }

    fn memory_limit(&self) -> Option<u64> {
        self.env.memory_limit()
    }

    fn random_u64(&self) -> u64 {
        self.env.random_u64()
    }

    fn read_driver(&self) -> ReadDriver {
        self.env.read_driver()
    }

    fn next_read(&self, pending: usize) -> usize {
        self.env.next_read(pending)
    }

    fn spawn_job(&self, name: &str, job: Box<dyn Job>) -> io::Result<JobHandle> {
        self.env.spawn_job(name, job)
    }

    fn waiter(&self) -> Waiter {
        self.env.waiter()
    }
}

#[cfg(test)]
mod tests;
