//! An environment in which any number of files share a bounded number of descriptors.
//!
//! A store wraps its environment in a [`BoundedEnv`]. It opens its SSTs and files of separated values by
//! [`Env::open_stable_file`]. If too many of them are open, some are closed; a closed one is opened again when it is read.
//! The log segments to which it writes, the manifest and the lock keep their descriptors. A call that needs a descriptor and
//! finds none closes some stable files and tries again.
//!
//! The directory that is synced first, which is the store's, stays open. So a sync of it needs no descriptor and succeeds in a
//! process that has used up all of them.
//!
//! The close of a store closes all its files ([`BoundedEnv::close_files`]), whoever keeps the store's memory.
//!
//! # Concurrency
//! The list of open files has a lock of its own, see [`OpenFiles`], and so has the list of the others, see [`Held`].

mod file;
mod held;
mod open_files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use open_files::OpenFiles;

use crate::env::{Dir, Env, File, FileLock, LockMode, Metadata, OpenOptions, Site};
use crate::job::{Job, JobHandle};
use crate::processor::ProcessorTime;
use crate::read_queue::ReadDriver;
use crate::waiter::Waiter;
use file::BoundedFile;
use held::Held;

/// An environment whose stable files are closed and opened again as needed.
pub struct BoundedEnv {
    env: Arc<dyn Env>,
    open_files: Arc<OpenFiles>,
    held: Arc<Held>,
}

impl BoundedEnv {
    /// Wraps `env`. All environments that wrap it share the limit of [`Env::open_files`].
    pub fn new(env: Arc<dyn Env>) -> Self {
        let open_files = env.open_files();
        Self { env, open_files, held: Arc::default() }
    }

    /// Closes all files and the directory. A call in progress keeps its descriptor until it ends; later calls fail with
    /// `EBADF`.
    pub fn close_files(&self) {
        self.held.close();
        self.open_files.close_all_of(&self.held);
    }

    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        if let Some(dir) = self.held.dir(path) {
            return Ok(dir);
        }
        let dir = self.open_files.with_descriptor(|| self.env.open_dir(path))?;
        self.held.hold_dir(path, &dir);
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
        self.held.hold(self.open_files.with_descriptor(|| self.env.create_file(path))?)
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        self.held.hold(self.open_files.with_descriptor(|| self.env.open_file(path, options))?)
    }

    fn open_stable_file(&self, path: &Path, direct: bool) -> io::Result<Arc<dyn File>> {
        let (env, open_files, held) = (&self.env, &self.open_files, &self.held);
        BoundedFile::open(Arc::clone(env), Arc::clone(open_files), Arc::clone(held), path, direct)
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

    fn processor_time(&self) -> Option<ProcessorTime> {
        self.env.processor_time()
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
