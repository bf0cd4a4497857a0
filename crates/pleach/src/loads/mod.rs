//! Loads: blocks that are being read, each once, however many lookups want it.
//!
//! A lookup that misses a block in the cache asks the table of loads in flight. If nobody reads the block, one of two takes
//! it:
//! - a thread *claims* it ([`Loads::begin`]), reads it by itself and ends the [`Claim`];
//! - a task hands it to the store's [`ReadService`] and gets a [`LoadFuture`] ([`Loads::load`]).
//!
//! Whoever wants a block that is being read waits with a [`LoadFuture`]; a thread waits like a task ([`block_on`]).
//!
//! # Invariants
//! 1. *One read*: a block with an entry in the table is being read, or its last read failed. A block is in the cache before
//!    its entry is removed, unless the cache declines it, and the cache is searched again after an entry was made. Who comes
//!    after a block was declined reads it again.
//! 2. *Progress*: a thread that holds claims waits only for the device and runs no code of the caller except wakers. So all
//!    loads end, and a lookup that waits for a load holds no claim.
//! 3. *Nothing is kept alive*: the table does not keep loads alive. The service does while it reads, and futures do. A
//!    future may be dropped, or forgotten, at any time.
//!
//! # Concurrency
//! A part of the table is locked for a moment only, and a load's `state` inside.
//! No lock is held when a task is woken. `models/` runs this module in all orders of threads.
//!
//! # Cost
//! A hit in the cache does not come here. A block that one thread reads costs two locks of a part and no allocation.

mod claim;
mod load;
mod pace;
mod parker;
mod timer;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

use pleach_env::sync::Mutex;
use pleach_env::{Env, Error, FileId, ReadDriver, ReadService, Result, failpoint};
use pleach_table::{BlockRef, Sst, Warmth};

pub(crate) use claim::Claim;
use load::Load;
pub(crate) use load::LoadFuture;
pub(crate) use pace::{LookupPace, Paced};
pub(crate) use parker::block_on;
pub(crate) use timer::Alarm;
use timer::Timer;

/// Parts of the table, by block, so that threads seldom wait for the same lock (arbitrary).
const PARTS: usize = 16;

/// The name of a block.
type BlockKey = (FileId, u32);

/// A map by blocks.
pub(crate) type BlockMap<T> = HashMap<BlockKey, T, BuildHasherDefault<BlockHasher>>;

type Part = BlockMap<InFlight>;

/// The table of loads in flight.
struct Table {
    parts: [Mutex<Part>; PARTS],
    /// Statistics: relaxed.
    reads: AtomicU64,
    wasted_reads: AtomicU64,
}

/// Who reads a block.
enum InFlight {
    /// A thread. Nobody else waits for the block.
    Claimed,
    /// A thread, if `claimed`, otherwise the service; the load has those that wait. If it has been dropped, nobody waits.
    Load { load: Weak<Load>, claimed: bool },
}

/// The blocks of a store that are being read.
pub(crate) struct Loads {
    env: Arc<dyn Env>,
    /// Made when the first task waits for a block, or by the close. Not a `LazyReadService`: each load would take its lock.
    service: OnceLock<Arc<ReadService<Load>>>,
    table: Arc<Table>,
    timer: Timer,
    pub(crate) pace: LookupPace,
}

/// What a thread does for a block that it wants.
pub(crate) enum Begun<'l> {
    /// Nothing: it has been read meanwhile.
    Cached(BlockRef),
    /// It reads the block, and ends the claim.
    Claimed(Claim<'l>),
    /// It waits, once it holds no claim.
    InFlight(LoadFuture),
}

impl Loads {
    pub(crate) fn new(env: &Arc<dyn Env>) -> Self {
        let table = Table {
            parts: std::array::from_fn(|_| Mutex::new(Part::default())),
            reads: AtomicU64::new(0),
            wasted_reads: AtomicU64::new(0),
        };
        Self {
            env: Arc::clone(env),
            service: OnceLock::new(),
            table: Arc::new(table),
            timer: Timer::default(),
            pace: LookupPace::default(),
        }
    }

    /// Device reads made for lookups, and blocks that were read and not used.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.table.reads.load(Ordering::Relaxed), self.table.wasted_reads.load(Ordering::Relaxed))
    }

    /// Counts a read that a thread makes.
    pub(crate) fn note_read(&self) {
        self.table.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a block that was read and not used.
    pub(crate) fn note_wasted_read(&self) {
        self.table.wasted_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// The load of a block that is not in the cache, by the service. It has begun when this returns.
    ///
    /// # Errors
    /// `Closed` after [`Loads::close`].
    pub(crate) fn load(
        &self,
        driver: ReadDriver,
        sst: &Arc<Sst>,
        block: u32,
        warmth: Warmth,
    ) -> Result<LoadFuture> {
        let service = self.service(driver);
        let key = (sst.file_id(), block);
        // Dropped after the part is unlocked: the drop of a load locks it.
        let known;
        let mut part = self.table.part(key).lock();
        known = self.find(&mut part, sst, block);
        if let Some(future) = known.as_ref().and_then(|load| LoadFuture::new(load, Some(service))) {
            return Ok(future);
        }
        let load = Load::new(&self.table, sst, block, warmth);
        // Before a close can find the load and end it.
        let future = LoadFuture::new(&load, Some(service)).expect("it has not failed");
        part.insert(key, InFlight::Load { load: Arc::downgrade(&load), claimed: false });
        drop(part);
        failpoint::reached("loads.entered");
        if let Some(block) = sst.cached_block(block) {
            load.end(Ok(block));
            return Ok(future);
        }
        if !service.submit(load) {
            return Err(Error::closed());
        }
        if service.wants_help() {
            future.call_for_help();
        }
        Ok(future)
    }

    /// What the calling thread does for a block that it has not found in the cache.
    pub(crate) fn begin(&self, sst: &Arc<Sst>, block: u32) -> Begun<'_> {
        failpoint::reached("loads.begin");
        let key = (sst.file_id(), block);
        // As in `load`.
        let known;
        let mut part = self.table.part(key).lock();
        known = self.find(&mut part, sst, block);
        if let Some(future) = known.as_ref().and_then(|load| LoadFuture::new(load, self.service.get())) {
            return Begun::InFlight(future);
        }
        part.insert(key, InFlight::Claimed);
        drop(part);
        let claim = Claim::new(&self.table, key);
        match sst.cached_block(block) {
            Some(found) => {
                claim.end(&Ok(found.clone()));
                Begun::Cached(found)
            }
            None => Begun::Claimed(claim),
        }
    }

    /// Reads a block that is not in the cache, on the calling thread, or waits for the one who reads it.
    ///
    /// Requires: the thread holds no claim.
    pub(crate) fn read(&self, sst: &Arc<Sst>, block: u32, warmth: Warmth) -> Result<BlockRef> {
        match self.begin(sst, block) {
            Begun::Cached(block) => Ok(block),
            Begun::Claimed(claim) => {
                self.note_read();
                let loaded = sst.load_block(block, warmth);
                claim.end(&loaded);
                loaded
            }
            Begun::InFlight(mut load) => block_on(&*self.env, None, |waker| load.poll_block(waker))
                .expect("it waits as long as it takes"),
        }
    }

    /// The load of a block that is being read, or that has just been read.
    fn find(&self, part: &mut Part, sst: &Arc<Sst>, block: u32) -> Option<Arc<Load>> {
        let Entry::Occupied(mut entry) = part.entry((sst.file_id(), block)) else { return None };
        if let InFlight::Load { load, claimed } = entry.get() {
            let load = load.upgrade();
            if load.is_none() {
                // The load ended before it lost its last owner, so its block is seen in the cache from here on.
                fence(Ordering::Acquire);
            }
            if load.is_some() || !claimed {
                return load;
            }
        }
        let load = Load::new(&self.table, sst, block, Warmth::Warm);
        entry.insert(InFlight::Load { load: Arc::downgrade(&load), claimed: true });
        Some(load)
    }

    /// Wakes a task at the time `at` of the environment's clock, unless the alarm is dropped before. `None` if the system
    /// has no thread for that.
    pub(crate) fn wake_at(&self, at: Duration, waker: &Waker) -> Option<Alarm> {
        self.timer.set(&self.env, at, waker)
    }

    fn service(&self, driver: ReadDriver) -> &Arc<ReadService<Load>> {
        self.service.get_or_init(|| Arc::new(ReadService::new(&self.env, driver)))
    }

    /// Waits for all reads of the service, and begins no more. Forgotten futures keep no block.
    pub(crate) fn close(&self) {
        self.timer.close();
        self.service(ReadDriver::Blocking).close();
        for part in &self.table.parts {
            let loads: Vec<_> = part.lock().values().filter_map(InFlight::of_service).collect();
            for load in loads {
                load.end(Err(Error::closed()));
            }
        }
    }
}

impl InFlight {
    /// The load, unless a thread will end it.
    fn of_service(&self) -> Option<Arc<Load>> {
        if let Self::Load { load, claimed: false } = self { load.upgrade() } else { None }
    }
}

impl Table {
    fn part(&self, (file, block): BlockKey) -> &Mutex<Part> {
        let mut hasher = BlockHasher::default();
        hasher.write_u64(file.0);
        hasher.write_u32(block);
        &self.parts[usize::try_from(hasher.finish() >> 60).expect("four bits")]
    }
}

/// Fibonacci hashing: numbers of files and blocks come from the store itself, so nobody chooses them to collide.
#[derive(Default)]
pub(crate) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(32) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
