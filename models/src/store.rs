//! What the table of loads needs of the rest of the engine, as small as it can be.

use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::FileId;
use crate::sync::{Condvar, Mutex, MutexGuard};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    Io,
    Closed,
}

#[derive(Clone, Debug)]
pub struct Error(ErrorKind);

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: ErrorKind, _message: &str) -> Self {
        Self(kind)
    }

    pub fn closed() -> Self {
        Self(ErrorKind::Closed)
    }

    pub fn kind(&self) -> ErrorKind {
        self.0
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReadDriver {
    Threads,
    Blocking,
}

pub trait Env: Send + Sync {
    fn now(&self) -> Duration;
    fn waiter(&self) -> Waiter;
    fn spawn_job(&self, name: &str, step: Box<dyn FnMut() -> JobStep + Send>) -> io::Result<JobHandle>;
}

/// An environment without time and jobs.
pub struct Still;

impl Env for Still {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn waiter(&self) -> Waiter {
        Waiter(Condvar::default())
    }

    fn spawn_job(&self, _name: &str, _step: Box<dyn FnMut() -> JobStep + Send>) -> io::Result<JobHandle> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub enum JobStep {
    Idle,
    IdleFor(Duration),
}

pub struct JobHandle;

impl JobHandle {
    pub fn waker(&self) -> &Self {
        self
    }

    pub fn wake(&self) {}
}

pub struct Waiter(Condvar);

impl Waiter {
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(guard);
    }

    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) {
        self.wait(guard);
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

pub struct ReadRequest<'f, B>(pub(crate) PhantomData<&'f B>);

pub trait QueuedRead: Send + Sync + 'static {
    type Buffer;

    fn request(&self, tag: u64) -> ReadRequest<'_, Self::Buffer>;

    fn give_up(&self) -> bool {
        false
    }

    fn complete(&self, result: io::Result<Self::Buffer>);
}

/// A service whose reads are made by those who wait, or by threads of the model.
pub struct ReadService<R> {
    driver: ReadDriver,
    state: Mutex<(Vec<Arc<R>>, bool)>,
}

impl<R: QueuedRead<Buffer: Default>> ReadService<R> {
    pub fn new(_env: &Arc<dyn Env>, driver: ReadDriver) -> Self {
        Self { driver, state: Mutex::new((Vec::new(), false)) }
    }

    pub fn submit(&self, read: Arc<R>) -> bool {
        let mut state = self.state.lock();
        if state.1 {
            drop(state);
            read.complete(Err(io::ErrorKind::NotConnected.into()));
            return false;
        }
        state.0.push(read);
        true
    }

    pub fn withdraw(&self, read: &Arc<R>) {
        self.state.lock().0.retain(|other| !Arc::ptr_eq(other, read));
    }

    pub fn wants_help(&self) -> bool {
        self.driver == ReadDriver::Blocking
    }

    pub fn help(&self) -> bool {
        self.wants_help() && self.make_one()
    }

    /// Makes a read, as a thread of the service does.
    pub fn make_one(&self) -> bool {
        let read = self.state.lock().0.pop();
        let Some(read) = read else { return false };
        if !read.give_up() {
            let _request = read.request(0);
            read.complete(Ok(R::Buffer::default()));
        }
        true
    }

    pub fn close(&self) {
        self.state.lock().1 = true;
        while self.make_one() {}
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    Warm,
}

#[derive(Clone, Debug)]
pub struct BlockRef;

#[derive(Default)]
pub struct BlockLoad;

impl BlockLoad {
    pub fn cool(&mut self) {}
}

/// An SST of one block, which may be in a cache.
pub struct Sst {
    /// A lock, because loom does not know what the standard library's `Arc` and `Weak` order.
    is_cached: Mutex<bool>,
    /// Device reads that have begun.
    pub reads: AtomicU32,
    /// So many reads fail first.
    pub failures: u32,
}

impl Sst {
    pub fn new(failures: u32) -> Arc<Self> {
        Arc::new(Self { is_cached: Mutex::new(false), reads: AtomicU32::new(0), failures })
    }

    pub fn file_id(&self) -> FileId {
        FileId(1)
    }

    pub fn cached_block(&self, _block: u32) -> Option<BlockRef> {
        self.is_cached.lock().then_some(BlockRef)
    }

    pub fn load_block(&self, block: u32, _warmth: Warmth) -> Result<BlockRef> {
        let _request = self.begin_load(block, Warmth::Warm, 0);
        self.finish_load(block, Ok(BlockLoad))
    }

    pub fn begin_load(&self, _block: u32, _warmth: Warmth, _tag: u64) -> ReadRequest<'_, BlockLoad> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        ReadRequest(PhantomData)
    }

    /// The check of the block, which may find damage, and its publication.
    pub fn finish_load(&self, block: u32, read: io::Result<BlockLoad>) -> Result<BlockRef> {
        if self.reads.load(Ordering::Relaxed) <= self.failures {
            return Err(self.load_failed(block, io::ErrorKind::Other.into()));
        }
        read.map_err(|error| self.load_failed(block, error))?;
        *self.is_cached.lock() = true;
        Ok(BlockRef)
    }

    pub fn load_failed(&self, _block: u32, _error: io::Error) -> Error {
        Error(ErrorKind::Io)
    }
}
