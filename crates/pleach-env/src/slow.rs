//! An environment whose reads take as long as a device's, so many at a time.
//!
//! A test sees by it whether reads overlap, on a machine whose files are all in the page cache. A benchmark simulates a
//! device that it does not have.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::bounded::OpenFiles;
use crate::env::{Dir, Env, File, FileLock, LockMode, Metadata, OpenOptions, Site};
use crate::job::{Job, JobHandle};
use crate::processor::ProcessorTime;
use crate::read_queue::ReadDriver;
use crate::waiter::Waiter;

/// An environment that delays each read of a file.
///
/// Its files have no descriptor, so no ring reads them: its best driver is [`ReadDriver::Threads`].
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use pleach_env::{Env, RealEnv, SlowEnv};
///
/// let env = Arc::new(SlowEnv::new(Arc::new(RealEnv::new()), 8));
/// env.set_latency(Duration::from_millis(2));
/// assert_eq!((env.reads(), env.parallelism()), (0, RealEnv::new().parallelism()));
/// ```
pub struct SlowEnv {
    env: Arc<dyn Env>,
    device: Arc<Device>,
}

/// The simulated device.
struct Device {
    env: Arc<dyn Env>,
    latency_ns: AtomicU64,
    queue: Mutex<Queue>,
    /// Signalled when a read ends while another waits.
    freed: Condvar,
}

struct Queue {
    /// Reads that the device can do at the same time.
    width: usize,
    running: usize,
    running_max: usize,
    reads: u64,
}

impl SlowEnv {
    /// Wraps `env`. At most `width` reads, at least one, run at the same time; others wait. Reads are not delayed
    /// before [`SlowEnv::set_latency`].
    pub fn new(env: Arc<dyn Env>, width: usize) -> Self {
        let queue = Mutex::new(Queue { width: width.max(1), running: 0, running_max: 0, reads: 0 });
        let device =
            Device { env: Arc::clone(&env), latency_ns: AtomicU64::new(0), queue, freed: Condvar::new() };
        Self { env, device: Arc::new(device) }
    }

    /// Delays each read that begins from now on by `latency`, and starts counting again.
    pub fn set_latency(&self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.device.latency_ns.store(nanos, Ordering::Relaxed);
        let mut queue = self.device.queue.lock();
        (queue.running_max, queue.reads) = (0, 0);
    }

    /// Reads that were made since the last [`SlowEnv::set_latency`].
    pub fn reads(&self) -> u64 {
        self.device.queue.lock().reads
    }

    /// The most reads that ran at the same time since then.
    pub fn running_max(&self) -> usize {
        self.device.queue.lock().running_max
    }

    fn slow(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(SlowFile { file, device: Arc::clone(&self.device) })
    }
}

impl Device {
    /// Lets one read take its time.
    fn delay(&self) {
        let mut queue = self.queue.lock();
        while queue.running == queue.width {
            self.freed.wait(&mut queue);
        }
        queue.running += 1;
        queue.running_max = queue.running_max.max(queue.running);
        queue.reads += 1;
        drop(queue);
        let latency = Duration::from_nanos(self.latency_ns.load(Ordering::Relaxed));
        if !latency.is_zero() {
            self.env.sleep(latency);
        }
        self.queue.lock().running -= 1;
        self.freed.notify_one();
    }
}

/// A file of a [`SlowEnv`]. It answers [`File::descriptor`] with none: the system would read without a delay.
struct SlowFile {
    file: Arc<dyn File>,
    device: Arc<Device>,
}

impl File for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.device.delay();
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(buf, offset)
    }

    fn sync(&self, site: Site) -> io::Result<()> {
        self.file.sync(site)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.punch(offset, len)
    }

    fn expect_small_writes(&self, range: Range<u64>) -> bool {
        self.file.expect_small_writes(range)
    }

    fn prepare_small_writes(&self) {
        self.file.prepare_small_writes();
    }

    fn expect_random_reads(&self) {
        self.file.expect_random_reads();
    }

    /// Nothing: a read that follows is delayed all the same.
    fn prefetch(&self, _offset: u64, _len: u64) {}

    fn forget(&self, offset: u64, len: u64) {
        self.file.forget(offset, len);
    }
}

impl Env for SlowEnv {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.env.absolute(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.env.create_dir_all(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<(String, Metadata)>> {
        self.env.list_dir(path)
    }

    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        self.env.sync_dir(path, site)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        self.env.open_dir(path)
    }

    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.slow(self.env.create_file(path)?))
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        Ok(self.slow(self.env.open_file(path, options)?))
    }

    fn open_files(&self) -> Arc<OpenFiles> {
        self.env.open_files()
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
        self.env.lock_file(path, mode)
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
        ReadDriver::Threads
    }

    fn spawn_job(&self, name: &str, job: Box<dyn Job>) -> io::Result<JobHandle> {
        self.env.spawn_job(name, job)
    }

    fn waiter(&self) -> Waiter {
        self.env.waiter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealEnv;

    #[test]
    fn reads_take_their_time_and_only_so_many_run_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let env = SlowEnv::new(Arc::new(RealEnv::new()), 2);
        let file = env.create_file(&dir.path().join("a")).unwrap();
        file.write_all_at(&[7; 100], 0).unwrap();
        let latency = Duration::from_millis(10);
        env.set_latency(latency);
        let begin = env.now();
        std::thread::scope(|scope| {
            for offset in 0..6 {
                let file = &file;
                scope.spawn(move || {
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, offset).unwrap();
                    assert_eq!(byte, [7]);
                });
            }
        });
        assert!(env.now().saturating_sub(begin) >= latency * 3);
        assert_eq!((env.reads(), env.read_driver()), (6, ReadDriver::Threads));
        assert!(env.running_max() <= 2 && file.descriptor().unwrap().is_none());
    }
}
