//! The Pleach store of the map: its partitions, and the records of checkpoints.
//!
//! The default partition has the records of the newest checkpoint, and whether rows of writers may be in runs. Each generation
//! has a *half*: a partition for single keys, and one for runs, which are dropped with the tables of the generation. Entries name
//! rows of the generation of their half. While rows move from one generation to the next, the halves of both are read.
//!
//! # On disk
//! Layout: docs/format/reshaped-rows.md.

mod entries;

use std::path::Path;
use std::sync::Arc;

use pleach::env::Env;
use pleach::env::sync::Mutex;
use pleach::{Db, Durability, Partition, Result, Snapshot};

use super::base::{Base, Disk, Half, HalfRuns, Source};
use super::packed::Packed;
use super::records::{CHECKPOINT, ENDS, RUNS_OF_WRITERS, Record, decode_runs_of_writers};
use super::runs::Rows;
use super::{Direction, Entries, Key, Map, NEWEST};
use crate::ids::Layout;
use crate::named::Generation;

/// Entries of a write batch: few enough for its memory not to count.
pub(crate) const BATCH_ENTRIES: usize = 4096;

/// What the names of the partitions of a half begin with; the number of the generation follows.
const SINGLES: &str = "keys-";
const RUNS: &str = "runs-";

/// The partitions of a half.
pub(crate) struct HalfStore {
    singles: Partition,
    runs: Partition,
    /// No run has keys above it. It does not fall when runs go. `None`: there have been none since the open.
    runs_end: Option<Key>,
}

/// Whose rows become runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunsOf {
    Nobody,
    /// Rows that a recluster has moved.
    Moves,
    /// Those of writers too, where keys come in ascending order. Requires: whoever replaces or deletes a row removes it in the
    /// same transaction.
    All,
}

/// The Pleach store of the map.
pub(crate) struct MapStore {
    db: Db,
    records: Partition,
    layout: Layout,
    runs_of: RunsOf,
    /// The newest generation of which rows of writers may be in runs.
    runs_of_writers: Option<u64>,
    /// The present generation.
    generation: u64,
    half: HalfStore,
    /// While rows of the generation before may be there.
    older: Option<Older>,
}

/// What the generation before has.
struct Older {
    half: HalfStore,
    /// It counts above this key: the edge when the store was opened, if rows were moving then.
    edge: Option<Key>,
}

impl HalfStore {
    fn open(db: &Db, generation: u64) -> Result<Self> {
        let partition = |name: &str| db.partition(&format!("{name}{generation}"));
        let (singles, runs) = (partition(SINGLES)?, partition(RUNS)?);
        let runs_end = Source::Runs(&db.snapshot(), &runs).upper_end()?;
        Ok(Self { singles, runs, runs_end })
    }

    fn in_state(&self, snapshot: &Snapshot) -> Half {
        // Damage is an error of who comes to it.
        let singles_end = Source::Singles(snapshot, &self.singles).upper_end().ok();
        let singles_end = singles_end.map(Option::unwrap_or_default);
        let runs = self.runs_end.clone().map(|end| HalfRuns {
            partition: self.runs.clone(),
            end,
            cursors: Mutex::default(),
        });
        Half { singles: self.singles.clone(), singles_end, runs }
    }
}

/// Rows of which generation are there, for [`MapStore`].
#[derive(Clone, Debug)]
pub(crate) struct Present {
    pub(crate) generation: Generation,
    /// Up to which key rows of the generation before have moved, if they are moving.
    pub(crate) edge: Option<Key>,
}

impl MapStore {
    pub(crate) fn open(
        env: &Arc<dyn Env>,
        dir: &Path,
        options: pleach::Options,
        (layout, runs_of): (Layout, RunsOf),
        present: Present,
    ) -> Result<Self> {
        let db = options.env(Arc::clone(env)).open(dir)?;
        let records = db.default_partition();
        let Present { generation: Generation { number: generation, is_draining }, edge } = present;
        let half = HalfStore::open(&db, generation)?;
        let before = is_draining.then(|| HalfStore::open(&db, generation.wrapping_sub(1))).transpose()?;
        let older = before.map(|half| Older { half, edge });
        let runs_of_writers = records.get(RUNS_OF_WRITERS)?;
        let runs_of_writers = runs_of_writers.map(|bytes| decode_runs_of_writers(&bytes)).transpose()?;
        let store = Self { db, records, layout, runs_of, runs_of_writers, generation, half, older };
        store.drop_dead()?;
        Ok(store)
    }

    /// Drops the partitions that are of no generation whose rows may be there. A state of before can still be read.
    pub(crate) fn drop_dead(&self) -> Result<()> {
        let known = |half: &HalfStore| [half.singles.id(), half.runs.id()];
        let mut kept: Vec<_> = known(&self.half).into_iter().chain([self.records.id()]).collect();
        kept.extend(self.older.iter().flat_map(|older| known(&older.half)));
        for name in self.db.partitions() {
            if let Some(partition) = self.db.find_partition(&name).filter(|it| !kept.contains(&it.id())) {
                self.db.drop_partition(partition)?;
            }
        }
        Ok(())
    }

    /// The records of the newest checkpoint: what it names, and where sequences go on.
    pub(crate) fn records(&self) -> Result<Option<(Record, Record)>> {
        let (checkpoint, ends) = (self.records.get(CHECKPOINT)?, self.records.get(ENDS)?);
        let (Some(checkpoint), Some(ends)) = (checkpoint, ends) else { return Ok(None) };
        Ok(Some((Record::decode(CHECKPOINT, &checkpoint)?, Record::decode(ENDS, &ends)?)))
    }

    /// Removes all entries. Without records, whatever a crash leaves of them is not used.
    pub(crate) fn clear(&mut self) -> Result<()> {
        let mut batch = self.db.batch();
        batch.delete(&self.records, CHECKPOINT);
        batch.delete(&self.records, ENDS);
        batch.delete(&self.records, RUNS_OF_WRITERS);
        self.runs_of_writers = None;
        batch.commit(Durability::Sync)?;
        let clear = |half: &mut HalfStore, generation: u64| -> Result<()> {
            self.db.drop_partition(half.singles.clone())?;
            self.db.drop_partition(half.runs.clone())?;
            *half = HalfStore::open(&self.db, generation)?;
            Ok(())
        };
        clear(&mut self.half, self.generation)?;
        self.older.iter_mut().try_for_each(|older| clear(&mut older.half, self.generation.wrapping_sub(1)))
    }

    /// Says whose rows become runs from now on.
    pub(crate) fn set_runs_of(&mut self, runs_of: RunsOf) {
        self.runs_of = runs_of;
    }

    /// Whether the present generation has runs, or had some.
    pub(crate) fn has_runs(&self) -> bool {
        self.half.runs_end.is_some()
    }

    /// Whether rows of writers may be in runs.
    pub(crate) fn has_runs_of_writers(&self) -> bool {
        let before = self.older.as_ref().map(|_| self.generation.wrapping_sub(1));
        self.runs_of_writers.is_some_and(|of| of == self.generation || Some(of) == before)
    }

    /// Makes the partitions of a generation that is going to begin.
    pub(crate) fn open_half(&self, generation: u64) -> Result<HalfStore> {
        HalfStore::open(&self.db, generation)
    }

    /// Begins a generation, whose half is this.
    pub(crate) fn begin_generation(&mut self, generation: u64, half: HalfStore) {
        let half = std::mem::replace(&mut self.half, half);
        self.generation = generation;
        self.older = Some(Older { half, edge: None });
    }

    /// Leaves the half of the generation before, of which no row counts any more.
    pub(crate) fn end_generation_before(&mut self) {
        self.older = None;
    }

    /// Writes what the ids of entries that follow are below. The log keeps the order, so no entry is there without it.
    pub(crate) fn write_ends(&self, ends: &Record) -> Result<()> {
        self.records.put(ENDS, ends.encode(ENDS))
    }

    /// Ends a checkpoint: after this, it and all entries before are durable.
    pub(crate) fn write_checkpoint(&self, checkpoint: &Record) -> Result<()> {
        self.records.put_with(CHECKPOINT, checkpoint.encode(CHECKPOINT), Durability::Sync)
    }

    /// Whether an earlier state keeps files or memtables that flushes and merges have replaced.
    pub(crate) fn pins_replaced(&self) -> bool {
        let stats = self.db.stats();
        stats.pinned_bytes + stats.pinned_memtable_bytes > 0
    }

    /// The base as the store is now.
    pub(crate) fn base(&self) -> Base {
        let snapshot = self.db.snapshot();
        let older = self.older.as_ref().map(|older| (older.half.in_state(&snapshot), older.edge.clone()));
        let half = self.half.in_state(&snapshot);
        Base::Disk(Arc::new(Disk { snapshot, half, older }))
    }

    /// The base as the store is now, in memory. `rows` have the keys of runs.
    pub(crate) fn load(&self, rows: &mut Rows<'_>) -> Result<Base> {
        let (all, mut tree) = (Map::new(self.base()), Packed::default());
        let mut last: Option<Key> = None;
        loop {
            let lower = last.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let bounds = (lower, std::ops::Bound::Unbounded);
            let entries = all.current().entries(rows, bounds, Direction::Up, NEWEST, BATCH_ENTRIES)?;
            let is_end = entries.len() < BATCH_ENTRIES;
            let entries: Entries = entries.into_iter().map(|(key, id)| (key, Some(id))).collect();
            tree = tree.apply(&entries);
            if is_end {
                return Ok(Base::Memory(tree));
            }
            last = entries.into_iter().next_back().map(|(key, _)| key);
        }
    }

    pub(crate) fn db(&self) -> &Db {
        &self.db
    }
}

#[cfg(test)]
mod tests {
    use pleach::env::SimEnv;

    use super::super::{NEWEST, key_hash};
    use super::*;
    use crate::ids::Id;
    use crate::options::Stripes;

    fn store(edge: Option<Key>) -> MapStore {
        let env: Arc<dyn Env> = SimEnv::new(1);
        let layout = Layout::new(Stripes::One, 56);
        let options = pleach::Options::new().memory(2 << 20);
        let present = Present { generation: Generation { number: 3, is_draining: true }, edge };
        MapStore::open(&env, Path::new("/map"), options, (layout, RunsOf::All), present).unwrap()
    }

    fn ids(store: &MapStore, key: &str) -> Vec<Id> {
        let map = Map::new(store.base());
        let answer = map.current().get(key.as_bytes(), key_hash(key.as_bytes()), NEWEST).unwrap();
        answer.ids.to_vec()
    }

    #[test]
    fn what_a_rebuild_finds_last_in_the_older_half_counts() {
        let mut store = store(None);
        let (key, old) = (Key::from_slice(b"k"), Id::new(2, 0, 7));
        store.write_entries(&[(key.clone(), None)], false, &mut None).unwrap();
        assert_eq!(ids(&store, "k"), []);
        store.write_entries(&[(key.clone(), Some(old))], false, &mut None).unwrap();
        assert_eq!(ids(&store, "k"), [old]);
        store.write_entries(&[(key, Some(Id::new(3, 0, 1)))], false, &mut None).unwrap();
        assert_eq!(ids(&store, "k"), [Id::new(3, 0, 1)]);
    }

    #[test]
    fn the_older_half_counts_above_the_edge_only() {
        let mut store = store(Some(Key::from_slice(b"m")));
        let entry = |key: &[u8], sequence| (Key::from_slice(key), Some(Id::new(2, 0, sequence)));
        store.write_entries(&[entry(b"a", 1), entry(b"m", 2), entry(b"ma", 3)], false, &mut None).unwrap();
        assert_eq!(["a", "m", "ma"].map(|key| ids(&store, key).len()), [0, 0, 1]);
    }
}
