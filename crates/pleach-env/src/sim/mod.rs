//! The simulated machine: an in-memory disk that may lose everything before its barrier, a virtual clock, seeded random
//! numbers, and jobs that the test steps.
//!
//! A test builds a [`SimEnv`] from a seed, runs a store on it, and takes [crash images](SimEnv::crash_image): new machines
//! whose disks hold what a power failure at that moment may leave. Seed and calls determine everything, so every failure can
//! be repeated.
//!
//! # The disk
//! Until its barrier, every change persists or not on its own:
//! - *Bytes*: of each sector of 512 bytes a crash keeps the durable version or any later one.
//! - *Length*: a crash keeps the durable length or any later one. Length without data reads zeros; data without length
//!   is cut off. Truncation and allocation are changes of length, and truncated bytes are a version of zeros.
//! - *Names*: each creation, removal and rename persists or not, independently of the others and of all data. A file
//!   without a name after the crash is gone, however well its bytes were synced.
//!
//! [`File::sync`] is the barrier of one file's bytes and length, [`Env::sync_dir`] that of one directory's names.
//! Directories are durable when [`Env::create_dir_all`] returns. Some file systems guarantee more; a store must not rely on
//! it.
//!
//! # Invariants
//! 1. Every crash keeps what a barrier made durable, unless it was overwritten, removed or renamed afterwards.
//! 2. Every byte, length and name that a crash keeps was on the disk before.
//!
//! # Concurrency
//! For one thread, or for the threads of [`SimEnv::run_clients`], of which one runs at a time; the locks only make it
//! `Send + Sync`. There are three, never held together: the machine's, the schedule's and the hook's. None is held while a
//! job or a hook runs.
//!
//! # Cost
//! A write copies the sectors and the block it touches. A capture or crash image copies the tables of names and files, and
//! the blocks with pending changes.

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
use crate::processor::ProcessorTime;
use crate::sync::point;
use crate::waiter::Waiter;
use disk::Disk;
use fault::check;
use file::{SimDir, SimFile, SimLock};
use machine::Machine;
use schedule::Schedule;

/// Time of processors that passes from one call of [`Env::processor_time`] to the next.
const SAMPLE_TIME: Duration = Duration::from_secs(1);

/// Called before each mutating call, with the call's number and name.
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
    /// For handles, wakers and waiters, which outlive the call.
    this: Weak<SimEnv>,
    /// Has a lock of its own. No lock of the machine is held while it opens or closes files.
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

    /// The barrier of a directory's names. Counts also if a failpoint skips it, so that later calls keep their numbers.
    fn sync_names(&self, path: &Path, site: Site, is_open: bool) -> io::Result<()> {
        let mut turn = self.begin("sync_dir")?;
        if failpoint::skipped(site) {
            return Ok(());
        }
        check(turn.fault.and_then(FaultKind::sync_error))?;
        if !is_open {
            turn.check_open()?;
        }
        let Machine { disk, open, .. } = &mut *turn.machine;
        disk.check_dir(path)?;
        disk.sync_dir(path, |ino| open.contains_key(&ino));
        turn.end()
    }

    fn this(&self) -> Arc<Self> {
        self.this.upgrade().expect("the caller holds the Arc in which the environment was made")
    }
}

impl Env for SimEnv {
    /// Counts as a mutating call only if something is missing.
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        {
            let mut machine = self.machine.lock();
            machine.check_power()?;
            if machine.disk.is_dir(path) {
                return Ok(());
            }
        }
        let mut turn = self.begin("create_dir_all")?;
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
        let mut turn = self.begin("create_file")?;
        turn.check_open()?;
        turn.machine.disk.vacant(path)?;
        turn.machine.check_space()?;
        let ino = turn.machine.disk.create(path)?;
        turn.end()?; // On an error the name stays, without a handle.
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
        let mut turn = self.begin("rename")?;
        turn.check_fault()?;
        turn.machine.disk.rename(from, to)?;
        turn.end()
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut turn = self.begin("remove_file")?;
        turn.check_fault()?;
        turn.machine.disk.remove(path)?;
        turn.end()
    }

    /// Does not count as a mutating call, although it may create the file. The file's name is then pending.
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

    fn next_read(&self, pending: usize) -> usize {
        let mut machine = self.machine.lock();
        machine.overlapped_reads += u64::from(pending > 1);
        machine.read_order.usize(..pending)
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

    fn processor_time(&self) -> Option<ProcessorTime> {
        let mut machine = self.machine.lock();
        machine.processor.total += SAMPLE_TIME;
        let busy = SAMPLE_TIME.mul_f64(machine.processor_use);
        machine.processor.busy += busy;
        Some(machine.processor)
    }

    fn random_u64(&self) -> u64 {
        self.machine.lock().numbers.u64(..)
    }

    /// The job steps in [`SimEnv::step_job`], in [`SimEnv::run_jobs`] and in waits of the foreground. If a step drops the
    /// job's handle, the job is dropped after that step.
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
