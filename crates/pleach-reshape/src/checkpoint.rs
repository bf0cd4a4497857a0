//! Checkpoint: the changes of the map go to its Pleach store, after the rows that they name are durable.
//!
//! # Order
//! 1. Read the counters of ids, then that of versions. Wait for the writers that were in flight then; others begin and end
//!    meanwhile. All rows below these *marks*, and all rows with a version below, are published now. All later versions are
//!    in rows at or above the marks, or were written in place.
//! 2. Seal the active layer. If rows of runs of the map may have gone, take a snapshot of the rows, while nobody is between
//!    commit and publication. What has gone there has gone before the checkpoint's number, and before the sync.
//! 3. Write the checkpoint's number to the store and sync the store. What the sealed layer names is durable now.
//! 4. Write to the map: the ends of sequences, the entries, the record, and sync it.
//!
//! So the map is never ahead of the store. A failure leaves the sealed layers; the next checkpoint merges them again.
//!
//! # Behind a checkpoint
//! Readers use a state of the map's store. Flushes and merges go on and replace files of it, so the job *renews* that state some
//! times.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pleach::Result;

use crate::handle::Inner;
use crate::ids::Id;
use crate::map::records::Record;
use crate::map::{BATCH_ENTRIES, Base, MapStore, SealedRows};
use crate::named::{self, CheckpointNumbers};
use crate::options::MapPlace;
use crate::store::Table;

/// What one thread at a time does.
pub(crate) struct Maintenance {
    pub(crate) map_store: MapStore,
    pub(crate) numbers: CheckpointNumbers,
    /// The newest checkpoint of this open.
    pub(crate) last: Option<Record>,
    /// Tables without rows, and the version from which on no snapshot needs them.
    pub(crate) dead: Option<(Vec<Table>, u64)>,
    /// Replaced rows, in the order in which they are to be removed.
    pub(crate) removals: VecDeque<Id>,
    /// When readers may get a newer state of the map's store.
    renewal: Renewal,
}

/// When the job looks whether the map's store has replaced what its readers use.
struct Renewal {
    /// By [`Env::now`](pleach::env::Env::now).
    at: Duration,
    /// How long after the look before.
    pause: Duration,
}

/// Flushes and merges of the map's store go on behind a checkpoint: the job looks after so long, then each time after twice as
/// long, for 17 minutes in all (arbitrary).
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);
const RENEWAL_PAUSE_MAX: Duration = Duration::from_secs(512);

impl Renewal {
    /// The first look behind a checkpoint that was made at this time.
    fn after(now: Duration) -> Self {
        Self { at: now + RENEWAL_PAUSE, pause: RENEWAL_PAUSE }
    }
}

impl Maintenance {
    pub(crate) fn new(map_store: MapStore, numbers: CheckpointNumbers, now: Duration) -> Self {
        let renewal = Renewal::after(now);
        Self { map_store, numbers, last: None, dead: None, removals: VecDeque::new(), renewal }
    }
}

impl Inner {
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.check_writable()?;
        let mut maintenance = self.maintenance.lock();
        self.remove_if_due(&mut maintenance)?;
        self.checkpoint_alone(&mut maintenance)?;
        // At last: a table that cannot be removed is no reason to make no checkpoints.
        self.drop_dead_tables(&mut maintenance)
    }

    pub(crate) fn checkpoint_alone(&self, maintenance: &mut Maintenance) -> Result<()> {
        let allocator = self.allocator.load_full();
        let record = Record {
            identity: [self.identity, maintenance.numbers.map],
            number: maintenance.numbers.newest + 1,
            generation: allocator.generation,
            sequences: allocator.next(),
            previous: allocator.previous.as_ref().map(|previous| previous.next.clone()),
            version: self.versions.next(),
        };
        self.in_flight.wait(&*self.env);
        // A writer of them may not know whether its transaction took place, and has published nothing.
        self.check_writable()?;
        if self.map.delta_bytes() == 0 && maintenance.last.as_ref().is_some_and(|last| is_same(last, &record))
        {
            self.renew_base(maintenance);
            return Ok(());
        }
        let mut rows = self.seal(maintenance);
        let ends = Record { sequences: allocator.next(), ..record.clone() };
        let numbers = CheckpointNumbers { newest: record.number, ..maintenance.numbers };
        named::set_checkpoint_numbers(&*self.store, numbers)?;
        maintenance.numbers = numbers;
        self.sync_store()?;
        maintenance.map_store.write_ends(&ends)?;
        self.write_sealed(maintenance, &mut rows)?;
        drop(rows);
        maintenance.map_store.write_checkpoint(&record)?;
        self.use_written(maintenance);
        maintenance.renewal = Renewal::after(self.env.now());
        self.newest_checkpoint.store(numbers.newest, Ordering::Relaxed);
        maintenance.last = Some(record);
        Ok(())
    }

    /// Seals the active layer. If rows of runs may have gone, returns a snapshot of the rows of that moment. What has gone there
    /// is published, so the sealed layers say it, or earlier checkpoints.
    fn seal(&self, maintenance: &Maintenance) -> Option<SealedRows<'_>> {
        if !maintenance.map_store.has_runs() || !self.map.has_keys_below() {
            self.map.seal();
            return None;
        }
        let _alone = self.gate.write();
        self.map.seal();
        // Without it runs stay.
        let snapshot = self.store.snapshot().ok()?;
        Some(SealedRows::new(snapshot, self.layout))
    }

    /// Writes the sealed entries to the map's store. `rows` are those of [`seal`](Self::seal).
    pub(crate) fn write_sealed(
        &self,
        maintenance: &mut Maintenance,
        rows: &mut Option<SealedRows<'_>>,
    ) -> Result<()> {
        self.map.merge_sealed(BATCH_ENTRIES, |base, layer, entries| {
            maintenance.map_store.write_entries(entries, layer.came_in_order(), rows)?;
            Ok(base.apply(entries))
        })
    }

    /// Lets readers use what was written, instead of the sealed layers.
    pub(crate) fn use_written(&self, maintenance: &Maintenance) {
        let has_runs_of_writers = maintenance.map_store.has_runs_of_writers();
        self.has_runs_of_writers.store(has_runs_of_writers, Ordering::Relaxed);
        let base: Option<Base> = match self.options.map {
            MapPlace::Disk => Some(maintenance.map_store.base()),
            MapPlace::Memory => None,
        };
        self.map.forget_sealed(base);
    }

    /// Lets readers use the map's store as it is now, if an earlier state keeps files or memtables that flushes and merges have
    /// replaced. Otherwise a store that gets no new keys would go on reading them.
    fn renew_base(&self, maintenance: &Maintenance) {
        if self.may_renew_base() && maintenance.map_store.pins_replaced() {
            self.map.set_base(maintenance.map_store.base());
        }
    }

    /// Lets readers use the map's store as it is now, without what has been dropped from it. Flushes and merges go on, so the job
    /// will look as behind a checkpoint, once it is woken.
    pub(crate) fn use_newest_base(&self, maintenance: &mut Maintenance) {
        if self.may_renew_base() {
            self.map.set_base(maintenance.map_store.base());
            maintenance.renewal = Renewal::after(self.env.now());
        }
    }

    /// Whether the map's store says the same now as it did behind the last checkpoint. Of what a failed one has sealed, a part
    /// may be written.
    fn may_renew_base(&self) -> bool {
        self.options.map == MapPlace::Disk && !self.map.has_sealed()
    }

    /// Renews the state that readers use, when it is time to look. Returns after how long to ask again; `None`: not before the
    /// next checkpoint.
    pub(crate) fn renew_base_if_due(&self) -> Option<Duration> {
        if self.options.map == MapPlace::Memory {
            return None;
        }
        let mut maintenance = self.maintenance.lock();
        if maintenance.renewal.pause > RENEWAL_PAUSE_MAX {
            return None;
        }
        let now = self.env.now();
        let left = maintenance.renewal.at.saturating_sub(now);
        if !left.is_zero() {
            return Some(left);
        }
        self.renew_base(&maintenance);
        let pause = maintenance.renewal.pause * 2;
        maintenance.renewal = Renewal { at: now + pause, pause };
        (pause <= RENEWAL_PAUSE_MAX).then_some(pause)
    }
}

/// Whether a checkpoint would say no more than the last one.
fn is_same(last: &Record, record: &Record) -> bool {
    last.generation == record.generation
        && last.sequences == record.sequences
        && last.previous.is_some() == record.previous.is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pleach::env::{Env, SimEnv};

    use super::*;
    use crate::Options;
    use crate::store::model::{Failure, ModelStore};

    #[test]
    fn readers_leave_what_the_maps_store_has_replaced() {
        let (env, rows) = (SimEnv::new(1), ModelStore::without_history(false));
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).background(false);
        let store = options.open(Box::new(rows.clone()), "/map").unwrap();
        let inner = &store.inner;
        let key = |number: u32| number.wrapping_mul(0x9e37_79b9).to_le_bytes();
        let put = |numbers: std::ops::Range<u32>| {
            for number in numbers {
                store.put(key(number), "v").unwrap();
            }
        };
        let merge = || inner.maintenance.lock().map_store.db().compact().unwrap();
        let pins_replaced = || inner.maintenance.lock().map_store.pins_replaced();
        put(0..1000);
        store.checkpoint().unwrap();
        merge();
        assert!(pins_replaced());
        let left = inner.renew_base_if_due().unwrap();
        assert!(left <= RENEWAL_PAUSE, "it is too early: {left:?}");
        assert!(pins_replaced());
        env.sleep(RENEWAL_PAUSE);
        assert_eq!(inner.renew_base_if_due(), Some(RENEWAL_PAUSE * 2));
        assert!(!pins_replaced());

        put(1000..2000);
        store.checkpoint().unwrap();
        merge();
        store.checkpoint().unwrap();
        assert!(!pins_replaced(), "a checkpoint without changes does it too");

        // What a failed checkpoint has sealed may be there in part.
        put(2000..2500);
        store.checkpoint().unwrap();
        put(2500..3000);
        rows.fail(Some(Failure::Commit));
        store.checkpoint().unwrap_err();
        merge();
        assert!(pins_replaced());
        env.sleep(RENEWAL_PAUSE);
        let mut pause = inner.renew_base_if_due();
        assert!(pins_replaced());
        while let Some(wait) = pause {
            env.sleep(wait);
            pause = inner.renew_base_if_due();
        }
        assert!(pins_replaced());
        store.checkpoint().unwrap();
        assert!(inner.renew_base_if_due().is_some(), "behind a checkpoint it looks again");
        assert!((0..3000).all(|number| store.get(key(number)).unwrap().is_some()));
    }

    #[test]
    fn readers_leave_the_map_of_a_generation_that_is_dropped() {
        let (env, rows) = (SimEnv::new(1), ModelStore::without_history(false));
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).background(false);
        let store = options.open(Box::new(rows), "/map").unwrap();
        let inner = &store.inner;
        let pins_replaced = || inner.maintenance.lock().map_store.pins_replaced();
        for number in 0..1000_u32 {
            store.put(number.to_le_bytes(), "v").unwrap();
        }
        store.checkpoint().unwrap();
        inner.maintenance.lock().map_store.db().compact().unwrap();
        let snapshot = store.snapshot().unwrap();
        store.recluster::<&[u8]>(..).unwrap();
        assert!(pins_replaced(), "the snapshot does");
        drop(snapshot);
        // The job has looked for the last time.
        while let Some(pause) = inner.renew_base_if_due() {
            env.sleep(pause);
        }
        store.checkpoint().unwrap();
        assert!(!pins_replaced());
        assert!(inner.renew_base_if_due().is_some(), "it looks again");
    }
}
