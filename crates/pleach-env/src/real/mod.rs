//! The real machine: files, clock, randomness and threads of the operating system.
//!
//! The layers above reach it through [`Env`]. It neither caches nor retries: it passes on short reads, short writes and
//! interruptions, and the provided methods of [`File`] handle them for both environments. Built for Linux; features that a
//! file system may lack (`O_DIRECT`, `fallocate`) have a fallback.
//!
//! # Invariants
//! 1. Modes: every handle is close-on-exec. Files are created with mode 0666 and directories with 0777, less the process's
//!    umask. A symbolic link or special file in place of a file is refused.
//! 2. One sync, one report: a failed `fdatasync` or `fsync` is returned and never repeated here.
//!
//! # Concurrency
//! [`RealEnv`] is immutable. Each job has one thread, see the module `job`.

mod bus_error;
mod file;
mod job;
mod lock;
mod mapping;
mod memory_limit;
mod processor;
mod read_mapping;

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::bounded::OpenFiles;
use crate::env::{Dir, Env, File, FileLock, LockMode, Metadata, OpenOptions, Site};
use crate::failpoint;
use crate::job::{Job, JobHandle};
use crate::processor::ProcessorTime;
use crate::read_queue::ReadDriver;
use crate::waiter::Waiter;
use file::RealFile;

/// The operating system's files, clock, randomness and threads.
///
/// ```
/// use pleach_env::{Env, RealEnv};
///
/// # fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// let env = RealEnv::new();
/// let file = env.create_file(&dir.join("greeting"))?;
/// file.write_all_at(b"hello", 0)?;
/// file.sync("example.file")?;
/// env.sync_dir(dir, "example.dir")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RealEnv {
    started: Instant,
    maps_reads: bool,
    /// Looked up once.
    memory_limit: OnceLock<Option<u64>>,
}

impl RealEnv {
    /// The machine of this process; its clock starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the environment's clock")]
    pub fn new() -> Self {
        Self { started: Instant::now(), maps_reads: false, memory_limit: OnceLock::new() }
    }

    /// The same environment, whose stores read SSTs by copies from mapped files instead of system calls.
    ///
    /// A read whose bytes are in the system's page cache takes about a fifth less time. The price: what was read counts as memory
    /// of the process (`RssFile`), though the system takes it back when it needs memory. A file that is cut under the store, or a
    /// device that fails, is an error as before: a handler of the signal `SIGBUS` sees to that. A program that replaces the
    /// handler, or blocks the signal in threads that read, loses that and ends instead. Files that are not in memory are
    /// read by calls.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use pleach_env::{Env, RealEnv};
    ///
    /// let env: Arc<dyn Env> = Arc::new(RealEnv::new().with_mapped_reads());
    /// ```
    #[must_use]
    pub fn with_mapped_reads(self) -> Self {
        Self { maps_reads: true, ..self }
    }
}

impl Default for RealEnv {
    fn default() -> Self {
        Self::new()
    }
}

impl Env for RealEnv {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        std::path::absolute(or_dot(path))
    }

    /// Creates the directories from the top down, each durable before the next. So if an earlier process crashed here, at most
    /// the deepest existing directory lacks its barrier; it is synced first.
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = path.ancestors().take_while(|p| !is_dir(p)).collect();
        if let Some(parent) = path.ancestors().nth(missing.len()).and_then(Path::parent) {
            match sync_dir(parent) {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {} // Then an earlier process of ours could not create a name in it.
                result => result?,
            }
        }
        for dir in missing.into_iter().rev() {
            match rustix::fs::mkdir(dir, Mode::from_raw_mode(0o777)) {
                Ok(()) => {}
                Err(Errno::EXIST) if is_dir(dir) => {} // Another process was faster.
                Err(e) => return Err(e.into()),
            }
            if let Some(parent) = dir.parent() {
                sync_dir(parent)?;
            }
        }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the environment's way to list a directory")]
    fn list_dir(&self, path: &Path) -> io::Result<Vec<(String, Metadata)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(metadata) => names.push((name, convert(&metadata))),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {} // Removed since it was listed.
                Err(e) => return Err(e),
            }
        }
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }

    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        if failpoint::skipped(site) {
            return Ok(());
        }
        sync_dir(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(RealDir(open_dir(path)?)))
    }

    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = open(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        Ok(Arc::new(RealFile::new(file)))
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let access = if options.write { OFlags::RDWR } else { OFlags::RDONLY };
        let direct = if options.direct { OFlags::DIRECT } else { OFlags::empty() };
        let file = match open(path, access | direct) {
            Err(e) if options.direct && e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                open(path, access)?
            }
            result => result?,
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let is_mapped = self.maps_reads && !options.write && !options.direct;
        Ok(Arc::new(if is_mapped { RealFile::with_mapped_reads(file) } else { RealFile::new(file) }))
    }

    /// One for all environments of the process, because they share its descriptors.
    fn open_files(&self) -> Arc<OpenFiles> {
        static OPEN_FILES: OnceLock<Arc<OpenFiles>> = OnceLock::new();
        Arc::clone(OPEN_FILES.get_or_init(|| OpenFiles::for_descriptors(raise_descriptor_limit())))
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(convert(&metadata))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the environment's rename")]
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the environment's unlink")]
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn lock_file(&self, path: &Path, mode: LockMode) -> io::Result<Option<Box<dyn FileLock>>> {
        lock::lock(path, mode)
    }

    fn available_space(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the environment's clock")]
    fn wall_clock(&self) -> Duration {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the environment's sleep")]
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn parallelism(&self) -> usize {
        std::thread::available_parallelism().map_or(1, Into::into)
    }

    fn memory_limit(&self) -> Option<u64> {
        *self.memory_limit.get_or_init(memory_limit::memory_limit)
    }

    fn processor_time(&self) -> Option<ProcessorTime> {
        processor::processor_time()
    }

    /// Not for secrets.
    fn random_u64(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }

    fn read_driver(&self) -> ReadDriver {
        ReadDriver::Ring
    }

    fn spawn_job(&self, name: &str, job: Box<dyn Job>) -> io::Result<JobHandle> {
        job::spawn(name, job)
    }

    fn waiter(&self) -> Waiter {
        Waiter::real()
    }
}

/// Opens a file by the rules of invariant 1. `NONBLOCK` has no effect on a regular file. Without it, the open of a pipe with
/// this name would wait forever.
fn open(path: &Path, flags: OFlags) -> io::Result<fs::File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(0o666);
    Ok(rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, mode))?.into())
}

/// Makes the names in `path` durable. The directory itself may be reached through a symbolic link.
fn sync_dir(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::fsync(open_dir(path)?)?)
}

fn open_dir(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::io::retry_on_intr(|| rustix::fs::open(or_dot(path), flags, Mode::empty()))?.into())
}

/// An open directory of the operating system.
struct RealDir(fs::File);

impl Dir for RealDir {
    fn sync(&self, site: Site) -> io::Result<()> {
        if failpoint::skipped(site) {
            return Ok(());
        }
        Ok(rustix::fs::fsync(&self.0)?)
    }
}

/// Raises the soft limit of descriptors to the hard one. Returns the new limit.
fn raise_descriptor_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

fn is_dir(path: &Path) -> bool {
    fs::metadata(or_dot(path)).is_ok_and(|m| m.is_dir())
}

/// The parent of a bare relative name is the empty path, which the system calls do not take.
fn or_dot(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn convert(metadata: &fs::Metadata) -> Metadata {
    Metadata { len: metadata.len(), is_file: metadata.is_file() }
}

#[cfg(test)]
mod tests;
