//! Load: one read of a block, and the futures that wait for it.

use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use pleach_env::sync::Mutex;
use pleach_env::{Error, QueuedRead, ReadRequest, ReadService, Result, run_waker, wake};
use pleach_table::{BlockLoad, BlockRef, Sst, Warmth};
use smallvec::SmallVec;

use super::{InFlight, Table};

/// A block that is being read, or has just been.
pub(super) struct Load {
    sst: Arc<Sst>,
    block: u32,
    warmth: Warmth,
    table: Arc<Table>,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// Futures that have not been dropped.
    futures: usize,
    /// Number of the next future.
    next: u64,
}

enum Phase {
    /// Being read, or checked. At the end it wakes these tasks: the last one that polled each future, by its number.
    Reading(SmallVec<[(u64, Waker); 1]>),
    /// The bytes, not yet checked: the first task that polls checks them.
    Read(BlockLoad),
    Ended(Result<BlockRef>),
}

impl State {
    /// The bytes, for the caller to check. Meanwhile others wait as if the block was still being read.
    fn take_read(&mut self) -> Option<BlockLoad> {
        match mem::replace(&mut self.phase, Phase::Reading(SmallVec::new())) {
            Phase::Read(read) => Some(read),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// The bytes, if no future wants them.
    fn take_unwanted(&mut self) -> Option<BlockLoad> {
        if self.futures == 0 { self.take_read() } else { None }
    }

    /// Sets the task to wake for the future of this number. Returns the one that was set before, if it is another.
    fn set_waker(&mut self, number: u64, waker: &Waker) -> Option<Waker> {
        let Phase::Reading(wakers) = &mut self.phase else { return None };
        match wakers.iter_mut().find(|(other, _)| *other == number) {
            Some((_, known)) if known.will_wake(waker) => None,
            Some((_, known)) => Some(mem::replace(known, waker.clone())),
            None => {
                wakers.push((number, waker.clone()));
                None
            }
        }
    }

    fn take_waker(&mut self, number: u64) -> Option<Waker> {
        let Phase::Reading(wakers) = &mut self.phase else { return None };
        let at = wakers.iter().position(|(other, _)| *other == number)?;
        Some(wakers.swap_remove(at).1)
    }
}

impl Load {
    pub(super) fn new(table: &Arc<Table>, sst: &Arc<Sst>, block: u32, warmth: Warmth) -> Arc<Self> {
        let state = Mutex::new(State { phase: Phase::Reading(SmallVec::new()), futures: 0, next: 0 });
        Arc::new(Self { sst: Arc::clone(sst), block, warmth, table: Arc::clone(table), state })
    }

    /// Ends the load with a block that another has checked, or with an error.
    pub(super) fn end(&self, loaded: Result<BlockRef>) {
        self.set(Phase::Ended(loaded));
    }

    fn set(&self, phase: Phase) {
        let mut state = self.state.lock();
        if let Phase::Ended(_) = state.phase {
            // A close ended the load while a task was reading the block for others. Nobody asks for it any more.
            drop(state);
            return drop(phase);
        }
        let before = mem::replace(&mut state.phase, phase);
        let unwanted = state.take_unwanted();
        drop(state);
        if let Phase::Reading(wakers) = before {
            wakers.into_iter().for_each(|(_, waker)| wake(waker));
        }
        self.abandon(unwanted);
    }

    /// Nobody waits any more: a block that was read goes to the cache, as one of the first to be evicted.
    fn abandon(&self, unwanted: Option<BlockLoad>) {
        if let Some(mut read) = unwanted {
            read.cool();
            self.table.wasted_reads.fetch_add(1, Ordering::Relaxed);
            let _whoever_wants_it_sees_the_error = self.check(read);
        }
    }

    /// Checks what was read, and ends the load.
    fn check(&self, read: BlockLoad) -> Result<BlockRef> {
        let checking = Checking(self);
        let loaded = self.sst.finish_load(self.block, Ok(read));
        mem::forget(checking);
        self.end(loaded.clone());
        loaded
    }
}

/// A load whose block is being checked. A drop is a panic's: the load has failed.
struct Checking<'l>(&'l Load);

impl Drop for Checking<'_> {
    fn drop(&mut self) {
        self.0.end(Err(Error::closed()));
    }
}

impl QueuedRead for Load {
    type Buffer = BlockLoad;

    fn request(&self, tag: u64) -> ReadRequest<'_, BlockLoad> {
        self.table.reads.fetch_add(1, Ordering::Relaxed);
        self.sst.begin_load(self.block, self.warmth, tag)
    }

    fn give_up(&self) -> bool {
        let mut state = self.state.lock();
        if state.futures > 0 {
            return false;
        }
        state.phase = Phase::Ended(Err(Error::closed()));
        true
    }

    fn complete(&self, result: io::Result<BlockLoad>) {
        self.set(match result {
            Ok(load) => Phase::Read(load),
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Phase::Ended(Err(Error::closed())),
            Err(e) => Phase::Ended(Err(self.sst.load_failed(self.block, e))),
        });
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let key = (self.sst.file_id(), self.block);
        let mut part = self.table.part(key).lock();
        // Another load of the block may have begun since this one had no owner.
        let Some(entry) = part.get_mut(&key) else { return };
        match entry {
            InFlight::Load { load, .. } if !std::ptr::eq(load.as_ptr(), self) => {}
            InFlight::Load { claimed: true, .. } => *entry = InFlight::Claimed,
            InFlight::Load { claimed: false, .. } => drop(part.remove(&key)),
            InFlight::Claimed => {}
        }
    }
}

/// Waits for a load.
pub(crate) struct LoadFuture {
    load: Arc<Load>,
    service: Option<Arc<ReadService<Load>>>,
    /// Among the futures of the load.
    number: u64,
    is_polled: bool,
}

impl LoadFuture {
    /// `None` when the load has failed: the next one reads again. A future that was forgotten may keep such a load.
    pub(super) fn new(load: &Arc<Load>, service: Option<&Arc<ReadService<Load>>>) -> Option<Self> {
        let mut state = load.state.lock();
        if matches!(state.phase, Phase::Ended(Err(_))) {
            return None;
        }
        let number = state.next;
        (state.futures, state.next) = (state.futures + 1, number + 1);
        Some(Self { load: Arc::clone(load), service: service.cloned(), number, is_polled: false })
    }

    /// Wakes those that found the load before it was handed to a service of helpers: they found nothing to read, and the
    /// task of this future may not be polled again.
    pub(super) fn call_for_help(&self) {
        let mut state = self.load.state.lock();
        let wakers = match &mut state.phase {
            Phase::Reading(wakers) => mem::take(wakers),
            _ => return,
        };
        drop(state);
        wakers.into_iter().for_each(|(_, waker)| wake(waker));
    }

    /// The block, if it is there; otherwise the waker is woken when it is.
    pub(crate) fn poll_block(&mut self, waker: &Waker) -> Poll<Result<BlockRef>> {
        if let Some(service) = self.service.as_ref().filter(|service| service.wants_help()) {
            // The task reads, at its second turn, so that others can ask for their blocks before. Where there is nothing to
            // read, another thread reads its block.
            if !mem::replace(&mut self.is_polled, true) || service.help() {
                waker.wake_by_ref();
            }
        }
        let mut state = self.load.state.lock();
        if let Phase::Ended(loaded) = &state.phase {
            return Poll::Ready(loaded.clone());
        }
        if let Some(read) = state.take_read() {
            drop(state);
            return Poll::Ready(self.load.check(read));
        }
        let before = state.set_waker(self.number, waker);
        drop(state);
        run_waker(|| drop(before));
        Poll::Pending
    }
}

impl Future for LoadFuture {
    type Output = Result<BlockRef>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<BlockRef>> {
        self.poll_block(cx.waker())
    }
}

impl Drop for LoadFuture {
    fn drop(&mut self) {
        let mut state = self.load.state.lock();
        state.futures -= 1;
        let waker = state.take_waker(self.number);
        let unwanted = state.take_unwanted();
        drop(state);
        self.load.abandon(unwanted);
        run_waker(|| drop(waker));
    }
}
