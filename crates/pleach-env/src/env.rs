//! The interface to the machine: [`Env`] for names, clock, randomness and jobs, [`File`] for bytes.
//!
//! Calls return `std::io::Result`; the layer above wraps the error with the action that failed. Every barrier takes a
//! [`Site`], a fixed name. Tests switch a barrier off by its site and check that the crash test fails.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::bounded::OpenFiles;
use crate::job::{Job, JobHandle};
use crate::processor::ProcessorTime;
use crate::read_queue::ReadDriver;
use crate::waiter::Waiter;

/// Fixed name of one barrier or check, such as `"log.sync"`. Listed in docs/testing/planted-bugs.md.
pub type Site = &'static str;

/// How to open a file that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open for writing too.
    pub write: bool,
    /// Bypass the page cache for reads (`O_DIRECT`). Offsets, lengths and buffer addresses must then be multiples
    /// of 4096. If the file system refuses, the file is opened without it.
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

/// A step of small writes, in bytes ([`File::prepare_small_writes`]).
pub const SMALL_WRITES_STEP: u64 = 16 << 10;

/// A regular file. Reads and writes name their offset; there is no cursor, so handles are shared freely.
pub trait File: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`. It may read fewer, and reads none only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills `buf` from `offset` on if the operating system has all of these bytes in memory, and does not wait for the device.
    /// Returns whether it did; if not, `buf` holds anything. An environment that cannot tell returns `false`.
    fn read_resident_at(&self, _buf: &mut [u8], _offset: u64) -> bool {
        false
    }

    /// Writes up to `buf.len()` bytes at `offset` and extends the file if needed. It may write fewer.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes the file's bytes and length durable (`fdatasync`). [`Env::sync_dir`] makes its name durable.
    ///
    /// The caller never retries a failed sync, because the kernel may have dropped the dirty pages (fsyncgate). It poisons its
    /// handle.
    fn sync(&self, site: Site) -> io::Result<()>;

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the length is zero.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Sets the length; new bytes read as zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space, so that writes below `len` cannot fail for lack of space, and extends the file to `len`. New bytes read
    /// as zeros. If the file system cannot reserve space, this is [`File::set_len`].
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Frees the space of a range, which reads as zeros from now on. The length stays. Like a removal, a punch may persist at
    /// once: bytes that replace the range must be durable before. `Unsupported` if the file system cannot do it.
    ///
    /// Requires: `offset` and `len` are multiples of 4096.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Hints that many small writes will go to `range`, whose space is reserved, and returns whether they will be cheaper for
    /// it. The system's files are then written by stores into the page cache instead of calls. A write is not made in the
    /// order of its bytes any more: one that fails, or is cut short because the process is killed, may leave any of its bytes.
    /// A new hint ends the one before; the close of the file ends it too.
    fn expect_small_writes(&self, _range: Range<u64>) -> bool {
        false
    }

    /// Asks the system for the pages that the next small writes need ([`File::expect_small_writes`]). A write asks for them
    /// itself, and waits. Who writes under a lock calls this without it, when the writes have passed
    /// [`SMALL_WRITES_STEP`] bytes more. Others may write meanwhile.
    fn prepare_small_writes(&self) {}

    /// Hints that reads come in no order, so that the system reads nothing around them. The file does not change any more, so it
    /// may be mapped for them.
    fn expect_random_reads(&self);

    /// Hints that the range will be read soon. The system starts to read it, and the call returns.
    fn prefetch(&self, offset: u64, len: u64);

    /// Hints that the range will not be read soon, so that the system drops it from the page cache.
    fn forget(&self, offset: u64, len: u64);

    /// The system's file, which stays open as long as the answer, for reads that the system makes by itself. `None` where
    /// there is none.
    fn descriptor(&self) -> io::Result<Option<Arc<fs::File>>> {
        Ok(None)
    }

    /// Reads exactly `buf.len()` bytes at `offset`; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
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

/// An error unless a range consists of whole blocks.
pub(crate) fn check_punch(offset: u64, len: u64) -> io::Result<()> {
    if offset.is_multiple_of(4096) && len.is_multiple_of(4096) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "a range to punch begins and ends at multiples of 4096"))
}

/// How many handles may hold a lock on a file at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Several handles, all of them shared: for readers.
    Shared,
    /// One handle.
    Exclusive,
}

/// A lock on a file, held until dropped or until the process ends.
pub trait FileLock: Send + Sync {}

/// An open directory.
pub trait Dir: Send + Sync {
    /// As [`Env::sync_dir`], but needs no descriptor.
    fn sync(&self, site: Site) -> io::Result<()>;
}

/// The machine: names, clock, randomness, jobs. Shared as `Arc<dyn Env>`.
pub trait Env: Send + Sync + 'static {
    /// `path` as an absolute path, which stays valid if the process changes its working directory. The simulator has no
    /// working directory and returns the path unchanged.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    /// Creates `path` and its missing parents, and makes the new names durable. The system's defaults set the permissions (on
    /// Unix the umask), as for files.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Names in `path`, sorted, with their metadata. Names that are not UTF-8 are left out: a store makes none.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<(String, Metadata)>>;

    /// Makes creations, renames and removals of names directly in `path` durable.
    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()>;

    /// Opens a directory, so that it can be synced when no descriptor is left.
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>>;

    /// Creates a new file for reading and writing; `AlreadyExists` if the name is taken.
    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file that exists. Symbolic links are refused.
    fn open_file(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>>;

    /// Opens a file whose bytes never change, for reading. An environment may close it and open it again for the next read, as
    /// [`BoundedEnv`](crate::BoundedEnv) does.
    ///
    /// Requires: the name stays as long as the handle, because a closed file is opened again by its name.
    fn open_stable_file(&self, path: &Path, direct: bool) -> io::Result<Arc<dyn File>> {
        self.open_file(path, OpenOptions { write: false, direct })
    }

    /// The files that the environment's [`BoundedEnv`](crate::BoundedEnv)s have open. The first call raises the process's limit
    /// of descriptors as far as the system allows.
    fn open_files(&self) -> Arc<OpenFiles>;

    /// Metadata of a name; `None` if it does not exist.
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>>;

    /// Gives the file `from` the name `to`. Atomically replaces the file that had this name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Its bytes are freed when the last handle is closed.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Locks `path`; `None` if another handle, of this process or another, holds it in a mode that excludes this one.
    ///
    /// [`LockMode::Exclusive`] creates the file if needed; it is never removed. [`LockMode::Shared`] creates nothing and needs
    /// no permission to write. If the file is missing, a shared lock excludes writers too, provided that the file system can
    /// lock a directory.
    fn lock_file(&self, path: &Path, mode: LockMode) -> io::Result<Option<Box<dyn FileLock>>>;

    /// Free bytes on the file system of `path` that this process may use.
    fn available_space(&self, path: &Path) -> io::Result<u64>;

    /// Monotonic time since an arbitrary moment.
    fn now(&self) -> Duration;

    /// Time since the beginning of 1970 by the machine's clock, which may jump in both directions. In the simulator it begins in
    /// 2020 and advances with [`Env::now`].
    fn wall_clock(&self) -> Duration;

    /// Waits; in the simulator, advances the clock.
    fn sleep(&self, duration: Duration);

    /// Number of processors that this process may use. Two in the simulator.
    fn parallelism(&self) -> usize;

    /// Bytes of memory that this process may use: the machine's, or less if a limit is set for it (on Linux, of a control
    /// group). `None` if that is unknown, as in the simulator.
    fn memory_limit(&self) -> Option<u64> {
        None
    }

    /// Time of the machine's processors so far, to see whether it is idle. `None` if the system does not tell. In the simulator
    /// each call counts as a second, with the use that the test has set.
    fn processor_time(&self) -> Option<ProcessorTime> {
        None
    }

    /// A random number; in the simulator, from its seed.
    fn random_u64(&self) -> u64;

    /// The best driver for many reads at once, if the system does not refuse it.
    fn read_driver(&self) -> ReadDriver {
        ReadDriver::Blocking
    }

    /// Which of `pending` reads [`ReadDriver::Blocking`] makes next: the oldest; in the simulator, any, by its seed.
    fn next_read(&self, _pending: usize) -> usize {
        0
    }

    /// Starts a background job, which is idle until it is woken. Fails if the system has no thread for it.
    fn spawn_job(&self, name: &str, job: Box<dyn Job>) -> io::Result<JobHandle>;

    /// A condition variable whose wait lets the simulator step jobs.
    fn waiter(&self) -> Waiter;
}
