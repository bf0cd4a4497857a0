//! The real machine, on which reads of SSTs fail while the soak wants it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use pleach::ReadDriver;
use pleach::env::{
    Dir, Env, File, FileLock, Job, JobHandle, LockMode, Metadata, OpenFiles, OpenOptions, RealEnv, Site,
    Waiter,
};

/// One read in so many fails.
const STRIKE_EVERY: u64 = 23;

/// Long enough for a task to do something before it is woken.
const SLOW: Duration = Duration::from_millis(5);

/// See the module's text.
pub(crate) struct StruckEnv {
    env: RealEnv,
    device: Arc<Device>,
}

struct Device {
    fails: AtomicBool,
    is_slow: AtomicBool,
    reads: AtomicU64,
    struck: AtomicU64,
    /// Reads of threads that have not returned.
    running: AtomicU64,
    /// A file whose reads fail with `EIO` on every driver: no process maps its first pages.
    broken: Arc<fs::File>,
}

impl StruckEnv {
    pub(crate) fn new() -> Self {
        // Opened once: futures that are forgotten keep their environment.
        static BROKEN: LazyLock<Arc<fs::File>> =
            LazyLock::new(|| Arc::new(fs::File::open("/proc/self/mem").unwrap()));
        let broken = Arc::clone(&BROKEN);
        let ([fails, is_slow], [reads, struck, running]) =
            ([false; 2].map(AtomicBool::new), [0; 3].map(AtomicU64::new));
        Self {
            env: RealEnv::new(),
            device: Arc::new(Device { fails, is_slow, reads, struck, running, broken }),
        }
    }

    /// Whether some reads that begin from now on fail.
    pub(crate) fn set_failing(&self, fails: bool) {
        self.device.fails.store(fails, Ordering::SeqCst);
    }

    /// Reads that begin from now on take [`SLOW`] longer.
    pub(crate) fn slow_down(&self) {
        self.device.is_slow.store(true, Ordering::SeqCst);
    }

    /// Reads that failed.
    pub(crate) fn struck(&self) -> u64 {
        self.device.struck.load(Ordering::SeqCst)
    }

    /// Reads of threads that have not returned.
    pub(crate) fn running(&self) -> u64 {
        self.device.running.load(Ordering::SeqCst)
    }

    fn strikable(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(StruckFile { file, device: Arc::clone(&self.device) })
    }
}

impl Device {
    /// Whether this read fails.
    fn strikes(&self) -> bool {
        if self.is_slow.load(Ordering::SeqCst) {
            std::thread::sleep(SLOW);
        }
        let strikes = self.fails.load(Ordering::SeqCst)
            && self.reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(STRIKE_EVERY);
        self.struck.fetch_add(u64::from(strikes), Ordering::SeqCst);
        strikes
    }
}

struct StruckFile {
    file: Arc<dyn File>,
    device: Arc<Device>,
}

impl File for StruckFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.device.strikes() {
            return Err(io::Error::other("a read that the soak has struck"));
        }
        self.device.running.fetch_add(1, Ordering::SeqCst);
        let read = self.file.read_at(buf, offset);
        self.device.running.fetch_sub(1, Ordering::SeqCst);
        read
    }

    /// A read by a ring fails when it is made.
    fn descriptor(&self) -> io::Result<Option<Arc<fs::File>>> {
        if self.device.strikes() { Ok(Some(Arc::clone(&self.device.broken))) } else { self.file.descriptor() }
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

    fn expect_random_reads(&self) {
        self.file.expect_random_reads();
    }

    fn prefetch(&self, offset: u64, len: u64) {
        self.file.prefetch(offset, len);
    }

    fn forget(&self, offset: u64, len: u64) {
        self.file.forget(offset, len);
    }
}

impl Env for StruckEnv {
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
        self.env.create_file(path)
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let file = self.env.open_file(path, options)?;
        let is_sst = path.extension().is_some_and(|extension| extension == "sst");
        Ok(if is_sst { self.strikable(file) } else { file })
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

    fn random_u64(&self) -> u64 {
        self.env.random_u64()
    }

    fn read_driver(&self) -> ReadDriver {
        self.env.read_driver()
    }

    fn spawn_job(&self, name: &str, job: Box<dyn Job>) -> io::Result<JobHandle> {
        self.env.spawn_job(name, job)
    }

    fn waiter(&self) -> Waiter {
        self.env.waiter()
    }
}
