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
}

enum Phase {
    /// Wakes these tasks at the end.
    Reading(SmallVec<[Waker; 1]>),
    /// The bytes, not yet checked: the first task that polls checks them.
    Read(BlockLoad),
    Ended(Result<BlockRef>),
}

impl Load {
    pub(super) fn new(table: &Arc<Table>, sst: &Arc<Sst>, block: u32, warmth: Warmth) -> Arc<Self> {
        let state = Mutex::new(State { phase: Phase::Reading(SmallVec::new()), futures: 0 });
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
        if state.futures == 0 {
            self.abandon(&mut state);
        }
        drop(state);
        if let Phase::Reading(wakers) = before {
            wakers.into_iter().for_each(wake);
        }
    }

    /// Nobody waits any more: a block that was read goes to the cache.
    fn abandon(&self, state: &mut State) {
        if let Phase::Read(_) = state.phase {
            self.table.wasted_reads.fetch_add(1, Ordering::Relaxed);
            let _whoever_wants_it_sees_the_error = self.check(state);
        }
    }

    /// Checks what was read. `None` while it is being read.
    fn check(&self, state: &mut State) -> Option<Result<BlockRef>> {
        if let Phase::Reading(_) = state.phase {
            return None;
        }
        // While the block is checked, a panic leaves a load that failed.
        let loaded = match mem::replace(&mut state.phase, Phase::Ended(Err(Error::closed()))) {
            Phase::Read(load) => self.sst.finish_load(self.block, Ok(load)),
            Phase::Ended(loaded) => loaded,
            Phase::Reading(_) => unreachable!("see above"),
        };
        state.phase = Phase::Ended(loaded.clone());
        Some(loaded)
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
        let before = mem::replace(&mut state.phase, Phase::Ended(Err(Error::closed())));
        drop(state);
        run_waker(|| drop(before));
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
    is_polled: bool,
}

impl LoadFuture {
    /// `None` when the load has failed: the next one reads again. A future that was forgotten may keep such a load.
    pub(super) fn new(load: &Arc<Load>, service: Option<&Arc<ReadService<Load>>>) -> Option<Self> {
        let mut state = load.state.lock();
        if matches!(state.phase, Phase::Ended(Err(_))) {
            return None;
        }
        state.futures += 1;
        Some(Self { load: Arc::clone(load), service: service.cloned(), is_polled: false })
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
        wakers.into_iter().for_each(wake);
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
        if let Phase::Reading(wakers) = &mut state.phase
            && !wakers.iter().any(|known| known.will_wake(waker))
        {
            wakers.push(waker.clone());
        }
        self.load.check(&mut state).map_or(Poll::Pending, Poll::Ready)
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
        if state.futures == 0 {
            self.load.abandon(&mut state);
        }
    }
}
