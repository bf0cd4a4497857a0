//! The simulated machine: an in-memory disk that forgets what no barrier has secured, a virtual clock, seeded random
//! numbers, and jobs that step only when told to.
//!
//! A test builds a [`SimEnv`] from a seed, runs a store on it, and asks for [crash images](SimEnv::crash_image): new
//! machines whose disks hold what a power failure at that moment may leave behind. Everything is determined by the
//! seed and the calls, so that a failure found once can be found again.
//!
//! # The disk
//! Every change persists on its own, early or late, until its barrier:
//! - *Bytes*: of each sector of 512 bytes a crash keeps the durable version or any later one.
//! - *Length*: a crash keeps the durable length or any later one. Length without data reads zeros; data without length
//!   is cut off. Truncation and allocation are changes of length, and truncated bytes are a version of zeros.
//! - *Names*: each creation, removal and rename persists or not, independently of the others and of all data. A file
//!   without a name after the crash is gone, however well its bytes were synced.
//!
//! [`File::sync`] is the barrier of one file's bytes and length, [`Env::sync_dir`] that of one directory's names.
//! Directories themselves are durable when [`Env::create_dir_all`] returns. The real file systems promise more here
//! and there; a store must not lean on it.
//!
//! # Invariants
//! 1. What a barrier has secured survives every crash, unless it is overwritten, removed or renamed afterwards.
//! 2. What a crash keeps has been there: no byte, length or name is invented.
//!
//! # Concurrency
//! Meant for one thread, or for those of [`SimEnv::run_clients`], of which one runs at a time; the locks make it
//! `Send + Sync` and no more. There are three, never held together: the
//! machine's, the schedule's and the hook's. None is held while a job or a hook runs.
//!
//! # Cost
//! Writes copy the sectors and the block they touch. Captures and crash images copy the tables of names and files,
//! and of the bytes only the blocks that have something pending.

mod block;
mod capture;
#[cfg(feature = "failpoints")]
mod clients;
mod control;
mod crash;
mod dir;
mod disk;
mod fault;
mod file;
mod inode;
mod machine;
mod schedule;

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

pub use capture::Capture;
#[cfg(feature = "failpoints")]
pub use clients::Clients;
pub use crash::CrashPolicy;
pub use fault::{Fault, FaultKind, JOB_PANIC};

use crate::bounded::OpenFiles;
use crate::env::{Dir, Env, File, FileLock, LockMode, Metadata, OpenOptions, Site};
use crate::failpoint;
use crate::job::{Job, JobHandle};
use crate::sync::point;
use crate::waiter::Waiter;
use disk::Disk;
use fault::FaultKind as Kind;
use file::{SimDir, SimFile, SimLock};
use machine::{Machine, Op};
use schedule::Schedule;

/// Called before each mutating call with its number and name.
type Hook = Box<dyn FnMut(u64, &'static str) + Send>;

/// A machine in memory whose power can be cut.
///
/// ```
/// use std::path::Path;
/// use pleach_env::{CrashPolicy, Env, SimEnv};
///
/// # fn main() -> std::io::Result<()> {
/// let env = SimEnv::new(42);
/// let dir = Path::new("/store");
/// env.create_dir_all(dir)?;
/// let file = env.create_file(&dir.join("greeting"))?;
/// file.write_all_at(b"hello", 0)?;
/// file.sync("example.file")?;
///
/// // The bytes are durable but the name is not.
/// let crashed = env.crash_image(CrashPolicy::DurableOnly, 1);
/// assert_eq!(crashed.read_file(&dir.join("greeting")), None);
///
/// env.sync_dir(dir, "example.dir")?;
/// let crashed = env.crash_image(CrashPolicy::DurableOnly, 1);
/// assert_eq!(crashed.read_file(&dir.join("greeting")).as_deref(), Some(&b"hello"[..]));
/// # Ok(())
/// # }
/// ```
pub struct SimEnv {
    /// For what outlives the call: handles, wakers, waiters.
    this: Weak<SimEnv>,
    /// Has a lock of its own, and none of the machine's is held while its files are opened or closed.
    open_files: Arc<OpenFiles>,
    /// Disk, counters, clock, faults.
    machine: Mutex<Machine>,
    /// The jobs.
    schedule: Mutex<Schedule>,
    /// Absent while it is being called.
    hook: Mutex<Option<Hook>>,
}

impl SimEnv {
    /// A machine with an empty disk, determined by `seed`.
    pub fn new(seed: u64) -> Arc<Self> {
        Self::with_machine(seed, Machine::new(seed, Disk::empty(), None))
    }

    fn with_machine(seed: u64, machine: Machine) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            open_files: OpenFiles::for_descriptors(usize::MAX),
            machine: Mutex::new(machine),
            schedule: Mutex::new(Schedule::new(seed)),
            hook: Mutex::new(None),
        })
    }

    /// The barrier of a directory's names. One that a failpoint skips is counted all the same, so that the calls after it
    /// keep their numbers.
    fn sync_names(&self, path: &Path, site: Site, is_open: bool) -> io::Result<()> {
        let mut turn = self.begin(Op::SyncDir)?;
        if failpoint::skipped(site) {
            return Ok(());
        }
        if let Some(error) = turn.fault.and_then(Kind::sync_error) {
            return Err(error);
        }
        if !is_open {
            turn.check_open()?;
        }
        let Machine { disk, open, .. } = &mut *turn.machine;
        disk.check_dir(path)?;
        disk.sync_dir(path, |ino| open.contains_key(&ino));
        turn.end()
    }

    fn this(&self) -> Arc<Self> {
        self.this.upgrade().expect("the environment is only ever made behind an Arc, which the caller holds")
    }
}

impl Env for SimEnv {
    /// Counted as a mutating call only where something is missing.
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        {
            let mut machine = self.machine.lock();
            machine.check_power()?;
            if machine.disk.is_dir(path) {
                return Ok(());
            }
        }
        let mut turn = self.begin(Op::CreateDirAll)?;
        turn.check_open()?;
        turn.machine.check_space()?;
        turn.machine.disk.create_dir_all(path)?;
        turn.end()
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<(String, Metadata)>> {
        let mut machine = self.machine.lock();
        machine.begin_open()?;
        machine.disk.list(path)
    }

    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        self.sync_names(path, site, false)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let mut machine = self.machine.lock();
        machine.begin_open()?;
        machine.disk.check_dir(path)?;
        Ok(SimDir::open(self.this(), &mut machine, path))
    }

    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut turn = self.begin(Op::CreateFile)?;
        turn.check_open()?;
        turn.machine.disk.vacant(path)?;
        turn.machine.check_space()?;
        let ino = turn.machine.disk.create(path)?;
        turn.end()?; // The name stays, without a handle.
        let options = OpenOptions { write: true, direct: false };
        Ok(SimFile::open(self.this(), turn.machine, ino, options))
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let mut machine = self.machine.lock();
        machine.begin_open()?;
        let ino = machine.disk.lookup(path)?;
        if options.write {
            machine.check_writable()?;
        }
        Ok(SimFile::open(self.this(), machine, ino, options))
    }

    fn open_files(&self) -> Arc<OpenFiles> {
        Arc::clone(&self.open_files)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let mut machine = self.machine.lock();
        machine.check_power()?;
        Ok(machine.disk.metadata(path))
    }

    /// Within one directory only.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut turn = self.begin(Op::Rename)?;
        turn.check_fault()?;
        turn.machine.disk.rename(from, to)?;
        turn.end()
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut turn = self.begin(Op::RemoveFile)?;
        turn.check_fault()?;
        turn.machine.disk.remove(path)?;
        turn.end()
    }

    /// Not counted as a mutating call, though it may create the file, whose name is then pending as any other.
    fn lock_file(&self, path: &Path, mode: LockMode) -> io::Result<Option<Box<dyn FileLock>>> {
        let mut machine = self.machine.lock();
        machine.begin_open()?;
        if mode == LockMode::Exclusive {
            machine.check_writable()?;
            if machine.disk.find(path).is_none() {
                machine.disk.create(path)?;
            }
        }
        let lock = SimLock::take(&self.this, &mut machine, path, mode);
        Ok(lock.map(|lock| Box::new(lock) as Box<dyn FileLock>))
    }

    fn available_space(&self, _path: &Path) -> io::Result<u64> {
        let mut machine = self.machine.lock();
        machine.check_power()?;
        Ok(machine.free_bytes())
    }

    fn now(&self) -> Duration {
        self.machine.lock().clock
    }

    fn wall_clock(&self) -> Duration {
        const START_OF_2020: Duration = Duration::from_secs(1_577_836_800);
        START_OF_2020 + self.machine.lock().clock
    }

    fn sleep(&self, duration: Duration) {
        point();
        self.machine.lock().clock += duration;
    }

    fn parallelism(&self) -> usize {
        2
    }

    fn random_u64(&self) -> u64 {
        self.machine.lock().numbers.u64(..)
    }

    /// The job steps in [`SimEnv::step_job`], in [`SimEnv::run_jobs`] and where the foreground waits. Dropping the
    /// handle from inside a step drops the job after that step.
    fn spawn_job(&self, name: &str, job: Box<dyn Job>) -> io::Result<JobHandle> {
        let (limit, count) = (self.machine.lock().job_limit, self.schedule.lock().job_count());
        if limit.is_some_and(|limit| count >= limit) {
            return Err(Errno::AGAIN.into());
        }
        Ok(self.add_job(name, job))
    }

    fn waiter(&self) -> Waiter {
        self.add_waiter()
    }
}

#[cfg(test)]
mod tests;
