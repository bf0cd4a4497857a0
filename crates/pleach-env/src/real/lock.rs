//! The operating system's lock on a store: `flock` on a file that only the removal of the whole store removes.
//!
//! Writers take it exclusively, readers share it. A reader creates nothing. If a store was copied without its lock file,
//! readers share a lock on the directory instead. A writer creates the file, locks it, and then tries the directory's lock.
//!
//! # Invariants
//! 1. *Readers of the directory and a writer exclude each other.* The reader locks the directory and then looks for the file
//!    again. The writer creates the file and then tries the directory. Whichever runs second notices the other.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use super::{open, open_dir};
use crate::env::{FileLock, LockMode};
use crate::failpoint;

/// Holds the `flock`. It belongs to the open file, which the children of a fork have too, so it would not end before they do.
struct RealLock {
    file: fs::File,
    /// The process that took the lock, and that alone may end it.
    process: Pid,
}

impl FileLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        if getpid() == self.process {
            let _ends_with_the_file = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// See [`Env::lock_file`](crate::Env::lock_file).
pub(super) fn lock(path: &Path, mode: LockMode) -> io::Result<Option<Box<dyn FileLock>>> {
    match mode {
        LockMode::Exclusive => lock_exclusively(path),
        LockMode::Shared => lock_shared(path),
    }
}

fn lock_exclusively(path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
    let lock = loop {
        let file = open(path, OFlags::RDWR | OFlags::CREATE)?;
        failpoint::reached("lock.opened");
        let Some(lock) = try_flock(file, LockMode::Exclusive)? else { return Ok(None) };
        // Between the two calls another process may have removed the store, its lock file included.
        if is_at(&lock.file, path)? {
            break Box::new(lock);
        }
    };
    // Invariant 1. The directory's lock is released at once: later readers find the file.
    match parent(path).and_then(|dir| try_flock(dir, LockMode::Exclusive)) {
        Ok(None) => Ok(None),
        // Some file systems lock only files that are open for writing, which a directory never is.
        Ok(Some(_)) | Err(_) => Ok(Some(lock)),
    }
}

fn lock_shared(path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
    match open(path, OFlags::RDONLY) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        file => return shared(try_flock(file?, LockMode::Shared)),
    }
    failpoint::reached("lock.no_file");
    let Some(lock) = try_flock(parent(path)?, LockMode::Shared)? else { return Ok(None) };
    match open(path, OFlags::RDONLY) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Some(Box::new(lock))),
        file => shared(try_flock(file?, LockMode::Shared)),
    }
}

fn shared(lock: io::Result<Option<RealLock>>) -> io::Result<Option<Box<dyn FileLock>>> {
    Ok(lock?.map(|lock| Box::new(lock) as Box<dyn FileLock>))
}

/// Whether `path` still names the open file.
fn is_at(file: &fs::File, path: &Path) -> io::Result<bool> {
    let of = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    match fs::symlink_metadata(path) {
        Ok(named) => Ok(of(&named) == of(&file.metadata()?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// The lock; `None` if another open file holds it in a mode that excludes this one.
fn try_flock(file: fs::File, mode: LockMode) -> io::Result<Option<RealLock>> {
    let operation = match mode {
        LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        LockMode::Shared => FlockOperation::NonBlockingLockShared,
    };
    match rustix::io::retry_on_intr(|| rustix::fs::flock(&file, operation)) {
        Ok(()) => Ok(Some(RealLock { file, process: getpid() })),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The directory that `path` is in.
fn parent(path: &Path) -> io::Result<fs::File> {
    open_dir(path.parent().unwrap_or(path))
}
