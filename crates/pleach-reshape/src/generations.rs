//! Generations: what happens when all rows are to move, because the ids of a store are exhausted or for a recluster.
//!
//! A new generation has tables of its own, whose sequences begin again. Writers append to it at once. The rows of the
//! generation before are moved in the order of their keys; then its tables are dropped. After a crash the open goes on with
//! the moves. This is the paper's cleaning (section III-C), while reads and writes go on.
//!
//! # Order
//! Tables, then the store's generation, in one commit before any row in them. Each transaction of moves raises the edge; old
//! rows of keys up to it are dead. When all rows have moved: a checkpoint that names none of the old ones, then, durably, that
//! the old generation is dead and that older maps are not good, then the tables go, once no snapshot may read them. While
//! rows move, checkpoints are made as they are due, so that the map's changes fit into their memory.
//!
//! # Invariants
//! 1. Edge: of a key up to the edge, the map names no row of the generation before, unless after its new row. A writer of such a
//!    key finds its new row, or an entry that it has none, so it removes nothing from the old tables behind the edge.
//! 2. Above the edge, a key has at most one row that counts, in either generation: a write that replaces or deletes an old
//!    row removes it in the same transaction, or leaves a newer row (`Update::Defer`).
//!
//! # Concurrency
//! `moving` is held by who moves all rows; it is taken before `maintenance`. So checkpoints and removals go on meanwhile.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pleach::{Error, ErrorKind, Result};

use crate::checkpoint::Maintenance;
use crate::handle::{Inner, Reshaped};
use crate::ids::{Allocator, Id, Layout, Previous};
use crate::map::{Bounds, Direction};
use crate::moves::Moved;
use crate::named::{self, CheckpointNumbers, Generation, store_error};
use crate::options::MapPlace;
use crate::sorted::sort_rows;
use crate::store::{self, Durability, RowStore, Table};

/// How long a writer waits for snapshots to end that keep the tables which the next generation needs: 2 seconds.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
const LOOKS_MAX: usize = 1000;
/// Keys that are looked at to see whether rows lie in the order of their keys: a block or two of the map.
const SAMPLE_KEYS: usize = 256;
/// Ids from one row to the next that still count as order: rows of one page.
const NEAR: u64 = 8;

/// Makes a table of a generation. Each generation but the first begins with rows that are moved in the order of their keys.
pub(crate) fn create_table(
    store: &dyn RowStore,
    layout: Layout,
    (table, generation): (Table, u64),
) -> store::Result<()> {
    let is_clustered = generation > 0 && layout.has_moves(table);
    if is_clustered { store.create_clustered_table(table) } else { store.create_table(table) }
}

impl Reshaped {
    /// Moves what is left of rows with exhausted ids, and drops their tables. The background job does it too.
    ///
    /// # Errors
    /// Those of [`recluster`](Self::recluster) and [`checkpoint`](Self::checkpoint).
    pub fn drain(&self) -> Result<()> {
        self.inner.drain()?;
        // It renews the state of the map's store that readers use.
        self.wake_job();
        Ok(())
    }

    /// Moves all rows to a new generation and drops the tables of the one before. Returns how many it moved; `None`, and moves
    /// none, if a snapshot keeps the tables that the new generation needs.
    pub(crate) fn recluster_all(&self) -> Result<Option<u64>> {
        let inner = &self.inner;
        let moving = inner.moving.lock();
        let make_room = || if self.has_job() { self.wait_for_room() } else { inner.checkpoint_if_due() };
        inner.drain_moving(make_room)?;
        {
            let mut maintenance = inner.maintenance.lock();
            inner.drop_dead_tables(&mut maintenance)?;
            if maintenance.dead.is_some() {
                return Ok(None);
            }
            let generation = inner.allocator.load().generation;
            inner.begin_generation(&mut maintenance, generation + 1)?;
        }
        match inner.drain_moving(make_room) {
            Ok(moved) => {
                inner.drop_dead_tables(&mut inner.maintenance.lock())?;
                self.wake_job();
                Ok(Some(moved))
            }
            Err(error) => {
                inner.is_drain_due.store(true, Ordering::SeqCst);
                // The job does not wait for the lock.
                drop(moving);
                self.wake_job();
                Err(error)
            }
        }
    }
}

impl Inner {
    /// Begins a generation after the one that a writer has found exhausted.
    pub(crate) fn renew(&self, exhausted: u64) -> Result<()> {
        let is_renewed = || self.allocator.load().generation != exhausted;
        for _ in 0..LOOKS_MAX {
            // Another thread may move rows for long, and its new ids are there from the beginning.
            if is_renewed() {
                return Ok(());
            }
            let moving = self.moving.lock();
            if is_renewed() {
                return Ok(());
            }
            self.drain_moving(|| self.checkpoint_if_due())?;
            let mut maintenance = self.maintenance.lock();
            self.drop_dead_tables(&mut maintenance)?;
            if maintenance.dead.is_none() {
                self.begin_generation(&mut maintenance, exhausted + 1)?;
                self.is_drain_due.store(true, Ordering::SeqCst);
                return Ok(());
            }
            drop(maintenance);
            drop(moving);
            self.env.sleep(LOOK_AGAIN);
        }
        let message =
            "all ids are in use, and a snapshot keeps the tables of those before; drop the snapshot";
        Err(Error::new(ErrorKind::Conflict, message))
    }

    fn begin_generation(&self, maintenance: &mut Maintenance, generation: u64) -> Result<()> {
        for table in self.layout.tables(generation) {
            self.create_empty_table(table, generation)?;
        }
        let half = maintenance.map_store.open_half(generation)?;
        // Nobody has an id of the old generation that is not published.
        let _alone = self.gate.write();
        self.replaced.forget(&mut maintenance.removals, generation);
        let durable = Generation { number: generation, is_draining: true };
        named::set_generation(&*self.store, durable, maintenance.numbers, Durability::Buffered)?;
        let next = vec![0; self.layout.stripe_count()];
        let previous = Some(Previous::new(self.allocator.load().next(), None));
        self.allocator.store(Arc::new(Allocator::new(self.layout, generation, &next, previous)));
        maintenance.map_store.begin_generation(generation, half);
        Ok(())
    }

    /// Makes a table. If it is there with rows of a dead generation, because its removal has failed, it is removed first: an open
    /// would take these rows for new ones.
    fn create_empty_table(&self, table: Table, generation: u64) -> Result<()> {
        let create = || {
            create_table(&*self.store, self.layout, (table, generation))
                .map_err(|e| store_error("make a table", &e))
        };
        create()?;
        let newest = || self.store.snapshot()?.last(table, 0, u64::MAX);
        if newest().map_err(|e| store_error("read rows", &e))?.is_some() {
            self.store.drop_table(table).map_err(|e| store_error("drop a table", &e))?;
            create()?;
        }
        Ok(())
    }

    pub(crate) fn drain(&self) -> Result<()> {
        self.check_writable()?;
        let _moving = self.moving.lock();
        self.drain_moving(|| self.checkpoint_if_due())?;
        self.drop_dead_tables(&mut self.maintenance.lock())
    }

    /// As [`drain`](Self::drain), until the store is closed, and unless another thread moves all rows already; then it is to be
    /// asked again. The job must not wait for a thread that waits for its checkpoints. Returns whether it could try.
    pub(crate) fn try_drain(&self) -> Result<bool> {
        self.check_writable()?;
        let Some(_moving) = self.moving.try_lock() else { return Ok(false) };
        self.drain_moving(|| {
            self.check_not_closing()?;
            self.checkpoint_if_due()
        })?;
        self.drop_dead_tables(&mut self.maintenance.lock())?;
        Ok(true)
    }

    /// Ends moves of the background job when the store is closed.
    pub(crate) fn check_not_closing(&self) -> Result<()> {
        if self.is_closing.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Closed, "the store is being closed"));
        }
        Ok(())
    }

    fn checkpoint_if_due(&self) -> Result<()> {
        if self.is_checkpoint_due() { self.checkpoint() } else { Ok(()) }
    }

    /// Moves what is left of the generation before, and ends it. Returns how many rows it moved.
    ///
    /// Requires: the caller holds `moving`, and not `maintenance`.
    fn drain_moving(&self, make_room: impl FnMut() -> Result<()>) -> Result<u64> {
        let allocator = self.allocator.load_full();
        let Some(previous) = &allocator.previous else { return Ok(0) };
        let edge = previous.edge();
        let rest = (edge.as_deref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let is_before = |id: Id| !id.is_of(allocator.generation);
        let sorted = if self.are_in_order(rest, is_before)? {
            None
        } else {
            sort_rows(self, allocator.generation.wrapping_sub(1), previous)?
        };
        let moved = self.move_rows(rest, Moved::Generation, sorted, make_room, is_before)?;
        self.end_generation_before(&mut self.maintenance.lock())?;
        Ok(moved)
    }

    /// Whether the rows of a range lie in the order of their keys, by a sample: then moves read neighbours. A wrong answer costs
    /// time alone.
    fn are_in_order(&self, bounds: Bounds<'_>, is_wanted: impl Fn(Id) -> bool) -> Result<bool> {
        let mut sample = self.snapshot()?.entries(bounds, Direction::Up, SAMPLE_KEYS)?;
        sample.retain(|(_, id)| is_wanted(*id));
        let steps = sample.windows(2).map(|pair| pair[1].1.0.wrapping_sub(pair[0].1.0));
        let near = steps.filter(|step| (1..=NEAR).contains(step)).count();
        // Three steps of four.
        Ok(near * 4 >= sample.len().saturating_sub(1) * 3)
    }

    /// Declares the generation before dead. Requires: no entry of the map names it.
    fn end_generation_before(&self, maintenance: &mut Maintenance) -> Result<()> {
        let allocator = self.allocator.load_full();
        self.checkpoint_alone(maintenance)?;
        let numbers = CheckpointNumbers { oldest: maintenance.numbers.newest, ..maintenance.numbers };
        let generation = Generation { number: allocator.generation, is_draining: false };
        let written = named::set_generation(&*self.store, generation, numbers, Durability::Sync);
        written.inspect_err(|error| self.poison(error))?;
        maintenance.numbers = numbers;
        let _alone = self.gate.write();
        let next = self.allocator.load().next();
        self.allocator.store(Arc::new(Allocator::new(self.layout, allocator.generation, &next, None)));
        // Snapshots from now on see this version, which distinguishes them from those that may need the tables.
        let version = self.versions.take(&*self.store)?;
        maintenance.dead = Some((self.layout.tables(allocator.generation + 1), version));
        maintenance.map_store.end_generation_before();
        if self.options.map == MapPlace::Disk {
            self.map.set_base(maintenance.map_store.base());
        }
        Ok(())
    }

    /// Drops tables that neither a row nor a snapshot is in.
    pub(crate) fn drop_dead_tables(&self, maintenance: &mut Maintenance) -> Result<()> {
        let Some((tables, version)) = &maintenance.dead else { return Ok(()) };
        if self.map.horizon().oldest().is_some_and(|oldest| oldest < *version) {
            return Ok(());
        }
        for table in tables {
            self.store.drop_table(*table).map_err(|e| store_error("drop a table", &e))?;
        }
        maintenance.map_store.drop_dead()?;
        maintenance.dead = None;
        self.use_newest_base(maintenance);
        Ok(())
    }
}
