//! The table of loads with a store of one block.

#[path = "../../crates/pleach/src/loads/mod.rs"]
mod source;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use crate::store::{Env, ErrorKind, ReadDriver, Sst, Still, Warmth};
use source::Loads;
pub(crate) use source::block_on;

/// A store whose block is not in the cache.
pub struct Store {
    env: Arc<dyn Env>,
    loads: Loads,
    sst: Arc<Sst>,
}

impl Store {
    /// The first `failures` reads fail.
    pub fn new(failures: u32) -> Arc<Self> {
        let env: Arc<dyn Env> = Arc::new(Still);
        let store = Self { loads: Loads::new(&env), sst: Sst::new(failures), env };
        // The service is made by the first load, once.
        drop(store.loads.load(ReadDriver::Blocking, &Sst::new(0), 7, Warmth::Warm));
        Arc::new(store)
    }

    /// Device reads of the block so far.
    pub fn reads(&self) -> u32 {
        self.sst.reads.load(Ordering::Relaxed)
    }

    /// A thread's read.
    pub fn read(&self) -> Result<(), ErrorKind> {
        if self.sst.cached_block(0).is_some() {
            return Ok(());
        }
        self.loads.read(&self.sst, 0, Warmth::Warm).map(drop).map_err(|error| error.kind())
    }

    /// A future's read.
    pub fn read_as_future(&self) -> Result<(), ErrorKind> {
        if self.sst.cached_block(0).is_some() {
            return Ok(());
        }
        let load = self.loads.load(ReadDriver::Blocking, &self.sst, 0, Warmth::Warm);
        let mut load = load.map_err(|error| error.kind())?;
        let loaded = block_on(&*self.env, None, |waker| load.poll_block(waker)).expect("without a deadline");
        loaded.map(drop).map_err(|error| error.kind())
    }

    /// A future that is dropped after its first poll.
    pub fn begin_and_drop(&self) {
        if let Ok(mut load) = self.loads.load(ReadDriver::Blocking, &self.sst, 0, Warmth::Warm) {
            let _not_awaited = load.poll_block(Waker::noop());
        }
    }

    pub fn close(&self) {
        self.loads.close();
    }
}
