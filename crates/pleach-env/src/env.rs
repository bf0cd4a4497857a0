//! The interface to the machine: [`Env`] for names, clock, randomness and jobs, [`File`] for bytes.
//!
//! Calls return `std::io::Result`; the layer above knows what it was doing and wraps the error with that. Every
//! barrier takes a [`Site`], a fixed name by which tests switch that one barrier off and then demand that the crash
//! test notices.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::bounded::OpenFiles;
use crate::job::{Job, JobHandle};
use crate::waiter::Waiter;

/// Fixed name of one barrier or check, such as `"log.sync"`. The list stands in docs/testing.md.
pub type Site = &'static str;

/// How to open a file that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open for writing too.
    pub write: bool,
    /// Bypass the page cache for reads (`O_DIRECT`). Offsets, lengths and buffer addresses must then be multiples
    /// of 4096. Where the file system refuses, the file is opened without it.
    pub direct: bool,
}

/// Metadata of a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Length in bytes.
    pub len: u64,
    /// Whether it is a regular file (neither a directory nor a symbolic link).
    pub is_file: bool,
}

/// A regular file. Reads and writes name their offset; there is no cursor, so handles are shared freely.
pub trait File: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file or by chance.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes up to `buf.len()` bytes at `offset`, extending the file where needed; may write fewer.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes the file's bytes and length durable (`fdatasync`). The name is made durable by [`Env::sync_dir`].
    ///
    /// A failure must never be retried: the kernel may have dropped the dirty pages (fsyncgate). The caller poisons
    /// its handle.
    fn sync(&self, site: Site) -> io::Result<()>;

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the length is zero.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Sets the length; bytes gained read as zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space so that writes below `len` do not fail for want of it, and extends the file to `len`. Bytes
    /// gained read as zeros. Where the file system cannot, it is [`File::set_len`].
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Gives the space of a range back; it reads as zeros from now on. The length stays. Like a removal, a punch may
    /// persist at once: whatever replaces the bytes must be durable before. `Unsupported` where the file system cannot.
    ///
    /// Requires: `offset` and `len` are multiples of 4096.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Hints that reads come in no order and name all that they want: nothing around them is worth fetching.
    fn expect_random_reads(&self);

    /// Hints that the given range will be read soon: fetching it begins, and the caller goes on.
    fn prefetch(&self, offset: u64, len: u64);

    /// Hints that the given range will not be read soon, so that the next read comes from the device.
    fn forget(&self, offset: u64, len: u64);

    /// Reads exactly `buf.len()` bytes at `offset`; `UnexpectedEof` when the file ends before.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes all of `buf` at `offset`. After an error, any part of it may have been written.
    fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.write_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    buf = &buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// An error when a range is not one of whole blocks.
pub(crate) fn check_punch(offset: u64, len: u64) -> io::Result<()> {
    if offset.is_multiple_of(4096) && len.is_multiple_of(4096) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "a range to punch begins and ends at multiples of 4096"))
}

/// Who may hold a lock on a file at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Others that share it too: for readers, who change nothing.
    Shared,
    /// Nobody else.
    Exclusive,
}

/// A lock on a file, held until dropped or until the process ends.
pub trait FileLock: Send + Sync {}

/// An open directory.
pub trait Dir: Send + Sync {
    /// As [`Env::sync_dir`], without opening anything.
    fn sync(&self, site: Site) -> io::Result<()>;
}

/// The machine: names, clock, randomness, jobs. Shared as `Arc<dyn Env>`.
pub trait Env: Send + Sync + 'static {
    /// `path` from the root on, so that it means the same when the process changes its working directory. In the simulator
    /// there is none, and the path stays as it is.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    /// Creates `path` and its missing parents, and makes the new names durable. Who may use them is the system's to
    /// say (on Unix the umask), as it is for files.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Names in `path`, sorted, with their metadata. Names that are not UTF-8 are left out: none of them is ours.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<(String, Metadata)>>;

    /// Makes creations, renames and removals of names directly in `path` durable.
    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()>;

    /// Opens a directory, so that it can be synced where no descriptor is left.
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>>;

    /// Creates a new file for reading and writing; `AlreadyExists` when the name is taken.
    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file that exists. Symbolic links are refused.
    fn open_file(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reading whose bytes never change. An environment may close it and open it again when it is read, as
    /// [`BoundedEnv`](crate::BoundedEnv) does.
    ///
    /// Requires: the name stays as long as the handle; a file that was closed meanwhile cannot be read without it.
    fn open_stable_file(&self, path: &Path, direct: bool) -> io::Result<Arc<dyn File>> {
        self.open_file(path, OpenOptions { write: false, direct })
    }

    /// The files that the environment's [`BoundedEnv`](crate::BoundedEnv)s have open. Asking first raises the process's
    /// limit of descriptors as far as the system lets it.
    fn open_files(&self) -> Arc<OpenFiles>;

    /// Metadata of a name, `None` when there is none.
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>>;

    /// Gives the file `from` the name `to`, atomically replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name; its bytes go when the last handle is closed.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Locks `path`; `None` when another handle, of this process or another, holds it in a mode that excludes this one.
    ///
    /// [`LockMode::Exclusive`] creates the file where needed; it is never removed. [`LockMode::Shared`] creates nothing
    /// and needs no permission to write: where the file is missing, the lock excludes writers all the same, as far as
    /// the file system can lock a directory.
    fn lock_file(&self, path: &Path, mode: LockMode) -> io::Result<Option<Box<dyn FileLock>>>;

    /// Free bytes on the file system of `path` that this process may use.
    fn available_space(&self, path: &Path) -> io::Result<u64>;

    /// Monotonic time since an arbitrary moment.
    fn now(&self) -> Duration;

    /// Time since the beginning of 1970, as the machine's clock has it: it may jump, either way. In the simulator it
    /// begins in 2020 and goes with [`Env::now`].
    fn wall_clock(&self) -> Duration;

    /// Waits; in the simulator, advances the clock.
    fn sleep(&self, duration: Duration);

    /// Threads that can run at the same time: processors of the machine that this process may use. Two in the simulator.
    fn parallelism(&self) -> usize;

    /// A random number; in the simulator, from its seed.
    fn random_u64(&self) -> u64;

    /// Starts a background job, asleep until it is woken. Fails where the system has no thread for it.
    fn spawn_job(&self, name: &str, job: Box<dyn Job>) -> io::Result<JobHandle>;

    /// A condition variable whose wait lets the simulator step jobs.
    fn waiter(&self) -> Waiter;
}
