//! Generations: what happens when the ids of a store are exhausted.
//!
//! A new generation has tables of its own, whose sequences begin again. Writers append to it at once. The rows of the
//! generation before are moved; then its tables are dropped. After a crash the open goes on with the moves. This is the
//! paper's cleaning (section III-C), while reads and writes go on.
//!
//! # Order
//! Tables, then the store's generation, in one commit before any row in them. When all rows have moved: a checkpoint that
//! names none of the old ones, then, durably, that the old generation is dead and that older maps are not good, then the
//! tables go. While rows move, checkpoints are made as they are due, so that the map's changes fit into their memory.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pleach::{Error, ErrorKind, Result};

use crate::checkpoint::Maintenance;
use crate::handle::{Inner, Reshaped};
use crate::ids::Allocator;
use crate::moves::Exhausted;
use crate::named::{self, CheckpointNumbers, Generation, store_error};
use crate::store::Durability;

/// How long a writer waits for snapshots to end that keep the tables which the next generation needs: 2 seconds.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
const LOOKS_MAX: usize = 1000;

impl Reshaped {
    /// Moves what is left of rows with exhausted ids, and drops their tables. The background job does it too.
    ///
    /// # Errors
    /// Those of [`recluster`](Self::recluster) and [`checkpoint`](Self::checkpoint).
    pub fn drain(&self) -> Result<()> {
        self.inner.drain()
    }
}

impl Inner {
    /// Begins a generation after the one that a writer has found exhausted.
    pub(crate) fn renew(&self, exhausted: u64) -> Result<()> {
        for _ in 0..LOOKS_MAX {
            let mut maintenance = self.maintenance.lock();
            if self.allocator.load().generation != exhausted {
                return Ok(());
            }
            self.drain_alone(&mut maintenance)?;
            self.drop_dead_tables(&mut maintenance)?;
            if maintenance.dead.is_none() {
                return self.begin_generation(&mut maintenance, exhausted + 1);
            }
            drop(maintenance);
            self.env.sleep(LOOK_AGAIN);
        }
        let message =
            "all ids are in use, and a snapshot keeps the tables of those before; drop the snapshot";
        Err(Error::new(ErrorKind::Conflict, message))
    }

    fn begin_generation(&self, maintenance: &mut Maintenance, generation: u64) -> Result<()> {
        for table in self.layout.tables(generation) {
            self.store.create_table(table).map_err(|e| store_error("make a table", &e))?;
        }
        // Nobody has an id of the old generation that is not published.
        let _alone = self.gate.write();
        self.replaced.forget(&mut maintenance.removals, generation);
        let durable = Generation { number: generation, is_draining: true };
        named::set_generation(&*self.store, durable, maintenance.numbers, Durability::Buffered)?;
        let next = vec![0; self.layout.stripe_count()];
        let previous = Some(self.allocator.load().next());
        self.allocator.store(Arc::new(Allocator::new(self.layout, generation, &next, previous)));
        self.is_drain_due.store(true, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn drain(&self) -> Result<()> {
        self.check_writable()?;
        let mut maintenance = self.maintenance.lock();
        self.drain_alone(&mut maintenance)?;
        self.drop_dead_tables(&mut maintenance)
    }

    fn drain_alone(&self, maintenance: &mut Maintenance) -> Result<()> {
        let allocator = self.allocator.load_full();
        if allocator.previous.is_none() {
            return Ok(());
        }
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let make_room = || if self.is_checkpoint_due() { self.checkpoint_alone(maintenance) } else { Ok(()) };
        self.move_rows(everything, Exhausted::Fails, make_room, |id| !id.is_of(allocator.generation))?;
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
        maintenance.dead = None;
        Ok(())
    }
}
