//! Loads: blocks that are being read for tasks, each once, however many tasks want it.
//!
//! A task that wants a block which is not in the cache gets a [`LoadFuture`]. The first one for a block hands the read to the
//! store's [`ReadService`]; those that come before the read has ended share it. After a failure the next one reads again. The task that polls first after the end checks the
//! block and puts it into the cache.
//!
//! # Invariants
//! 1. The table does not keep loads alive. The service does while it reads, and futures do. A future may be dropped, or
//!    forgotten, at any time.
//!
//! # Concurrency
//! `service` and the parts of the table are held for a moment only; a load's `state` also while its block is checked. No lock
//! is held when a task is woken.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use pleach_env::sync::Mutex;
use pleach_env::{Env, Error, FileId, QueuedRead, ReadDriver, ReadRequest, ReadService, Result};
use pleach_table::{BlockLoad, BlockRef, Sst};
use smallvec::SmallVec;

/// Parts of the table, by block, so that threads seldom meet.
const PARTS: usize = 16;

type Table = [Mutex<HashMap<(FileId, u32), Weak<Load>>>; PARTS];

/// The blocks of a store that are being read for tasks.
pub(crate) struct Loads {
    env: Arc<dyn Env>,
    service: Mutex<Service>,
    table: Arc<Table>,
}

enum Service {
    /// No task has waited for a block yet.
    NotStarted,
    Started(Arc<ReadService<Load>>),
    Closed,
}

/// A block that is being read, or has just been.
pub(crate) struct Load {
    sst: Arc<Sst>,
    block: u32,
    table: Arc<Table>,
    state: Mutex<LoadState>,
}

enum LoadState {
    /// Wakes these tasks at the end.
    Reading(SmallVec<[Waker; 1]>),
    /// The bytes, not yet checked.
    Read(io::Result<BlockLoad>),
    Checked(Result<BlockRef>),
}

impl Loads {
    pub(crate) fn new(env: &Arc<dyn Env>) -> Self {
        let table = Arc::new(std::array::from_fn(|_| Mutex::new(HashMap::new())));
        Self { env: Arc::clone(env), service: Mutex::new(Service::NotStarted), table }
    }

    /// The read of a block that is not in the cache. It has begun when this returns.
    ///
    /// # Errors
    /// `Closed` after [`Loads::close`].
    pub(crate) fn load(&self, driver: ReadDriver, sst: &Arc<Sst>, block: u32) -> Result<LoadFuture> {
        let service = self.service(driver).ok_or_else(closed)?;
        let key = (sst.file_id(), block);
        // Dropped after the lock is released: the drop of a load takes it.
        let known;
        let mut part = part_of(&self.table, key).lock();
        known = part.get(&key).and_then(Weak::upgrade);
        if let Some(load) = known.as_ref().filter(|load| !load.has_failed()) {
            return Ok(LoadFuture { load: Arc::clone(load), service, is_polled: false });
        }
        let state = Mutex::new(LoadState::Reading(SmallVec::new()));
        let load = Arc::new(Load { sst: Arc::clone(sst), block, table: Arc::clone(&self.table), state });
        part.insert(key, Arc::downgrade(&load));
        drop(part);
        if !service.submit(Arc::clone(&load)) {
            return Err(closed());
        }
        Ok(LoadFuture { load, service, is_polled: false })
    }

    fn service(&self, driver: ReadDriver) -> Option<Arc<ReadService<Load>>> {
        let mut service = self.service.lock();
        if let Service::NotStarted = &*service {
            let started = ReadService::new(&self.env, driver)
                // The system has no room for a ring or a thread.
                .or_else(|_| ReadService::new(&self.env, ReadDriver::Blocking))
                .expect("tasks that read for themselves need nothing");
            *service = Service::Started(Arc::new(started));
        }
        match &*service {
            Service::Started(service) => Some(Arc::clone(service)),
            _ => None,
        }
    }

    /// Waits for all reads, and begins no more.
    pub(crate) fn close(&self) {
        if let Service::Started(service) = mem::replace(&mut *self.service.lock(), Service::Closed) {
            service.close();
        }
    }
}

fn part_of(table: &Table, (file, block): (FileId, u32)) -> &Mutex<HashMap<(FileId, u32), Weak<Load>>> {
    let hash = (file.0 ^ u64::from(block).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &table[usize::try_from(hash >> 60).expect("four bits")]
}

impl Load {
    /// Whether the read, or the check, has failed. A future that was forgotten may keep such a load.
    fn has_failed(&self) -> bool {
        matches!(&*self.state.lock(), LoadState::Read(Err(_)) | LoadState::Checked(Err(_)))
    }
}

impl QueuedRead for Load {
    type Buffer = BlockLoad;

    fn request(&self, tag: u64) -> ReadRequest<'_, BlockLoad> {
        self.sst.begin_load(self.block, tag)
    }

    fn complete(&self, result: io::Result<BlockLoad>) {
        let before = mem::replace(&mut *self.state.lock(), LoadState::Read(result));
        if let LoadState::Reading(wakers) = before {
            for waker in wakers {
                // A task that panics must not keep the others asleep; the panic hook has reported it.
                let _reported = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let key = (self.sst.file_id(), self.block);
        let mut part = part_of(&self.table, key).lock();
        // Another load of the block may have begun since this one had no owner.
        if part.get(&key).is_some_and(|load| load.strong_count() == 0) {
            part.remove(&key);
        }
    }
}

/// A block that is being read.
pub(crate) struct LoadFuture {
    load: Arc<Load>,
    service: Arc<ReadService<Load>>,
    is_polled: bool,
}

impl LoadFuture {
    fn poll_load(&self, waker: &Waker) -> Poll<Result<BlockRef>> {
        let Load { sst, block, state, .. } = &*self.load;
        let mut state = state.lock();
        let checked = match mem::replace(&mut *state, LoadState::Reading(SmallVec::new())) {
            LoadState::Reading(mut wakers) => {
                if !wakers.iter().any(|known| known.will_wake(waker)) {
                    wakers.push(waker.clone());
                }
                *state = LoadState::Reading(wakers);
                return Poll::Pending;
            }
            LoadState::Read(Err(e)) if e.kind() == io::ErrorKind::NotConnected => Err(closed()),
            LoadState::Read(result) => sst.finish_load(*block, result),
            LoadState::Checked(result) => result,
        };
        *state = LoadState::Checked(checked.clone());
        Poll::Ready(checked)
    }
}

impl Future for LoadFuture {
    type Output = Result<BlockRef>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<BlockRef>> {
        if self.service.wants_help() {
            // The task reads, at its second turn, so that others can ask for their blocks before.
            if mem::replace(&mut self.is_polled, true) {
                self.service.help();
            }
            cx.waker().wake_by_ref();
        }
        self.poll_load(cx.waker())
    }
}

#[cold]
fn closed() -> Error {
    Error::new(pleach_env::ErrorKind::Closed, "the store is closed")
}
