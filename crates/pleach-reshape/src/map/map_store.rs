//! The Pleach store of the map: what a checkpoint writes.
//!
//! The default partition has the records of the newest checkpoint. Each generation has a *half*: a partition for single keys, and
//! one for runs, which are dropped with the tables of the generation. Entries name rows of the generation of their half. While
//! rows move from one generation to the next, the halves of both are read.
//!
//! # On disk
//! Layout: docs/format/reshaped-rows.md.

use std::path::Path;
use std::sync::Arc;

use pleach::env::Env;
use pleach::{Db, Durability, Error, Partition, Result, WriteBatch};

use super::base::{Base, Disk, Half, encode_id};
use super::packed::Packed;
use super::records::{CHECKPOINT, ENDS, Record};
use super::runs::{self, Rows};
use super::{Direction, Entries, Key, Map, NEWEST};
use crate::ids::{Id, Layout};
use crate::named::Generation;
use crate::options::MapPlace;

/// Entries of a write batch: few enough for its memory not to count.
pub(crate) const BATCH_ENTRIES: usize = 4096;

/// What the names of the partitions of a half begin with; the number of the generation follows.
const SINGLES: &str = "keys-";
const RUNS: &str = "runs-";

/// The partitions of a half.
pub(crate) struct HalfStore {
    singles: Partition,
    runs: Partition,
    has_runs: bool,
}

/// The Pleach store of the map.
pub(crate) struct MapStore {
    db: Db,
    records: Partition,
    layout: Layout,
    /// Whether rows of moves become runs.
    forms_runs: bool,
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
        let has_runs = runs.iter().next_entry()?.is_some();
        Ok(Self { singles, runs, has_runs })
    }

    fn in_state(&self) -> Half {
        Half { singles: self.singles.clone(), runs: self.has_runs.then(|| self.runs.clone()) }
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
        (layout, place): (Layout, MapPlace),
        present: Present,
    ) -> Result<Self> {
        let db = options.env(Arc::clone(env)).open(dir)?;
        let records = db.default_partition();
        let Present { generation: Generation { number: generation, is_draining }, edge } = present;
        let half = HalfStore::open(&db, generation)?;
        let before = is_draining.then(|| HalfStore::open(&db, generation.wrapping_sub(1))).transpose()?;
        let older = before.map(|half| Older { half, edge });
        let store =
            Self { db, records, layout, forms_runs: place == MapPlace::Disk, generation, half, older };
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

    /// Whether rows of moves become runs from now on.
    pub(crate) fn set_forms_runs(&mut self, yes: bool) {
        self.forms_runs = yes;
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

    /// Writes entries, which ascend. Rows of moves become runs where they can.
    pub(crate) fn write_entries(&mut self, entries: &[(Key, Option<Id>)]) -> Result<()> {
        let mut batch = self.db.batch();
        let is_in_run = self.write_runs(&mut batch, entries)?;
        for ((key, id), is_in_run) in entries.iter().zip(is_in_run) {
            let (half, older) = (&self.half, self.older.as_ref());
            match id {
                Some(_) if is_in_run => {}
                Some(id) if id.is_of(self.generation) => batch.put(&half.singles, key, encode_id(*id)),
                // A row of the generation before. An open may have found that the key had none before it found this.
                Some(id) => {
                    let older =
                        older.ok_or_else(|| Error::invalid("an entry of a generation without rows"))?;
                    batch.put(&older.half.singles, key, encode_id(*id));
                    batch.delete(&half.singles, key);
                }
                // The older half may name a row.
                None if older.is_some() => batch.put(&half.singles, key, b""),
                None => batch.delete(&half.singles, key),
            }
        }
        batch.commit(Durability::Buffered)
    }

    /// Adds runs to a batch, and returns which entries are in them.
    fn write_runs(&mut self, batch: &mut WriteBatch, entries: &[(Key, Option<Id>)]) -> Result<Vec<bool>> {
        let of_moves = self.layout.stripe_of_moves();
        let may_run = |id: Id| id.stripe() == of_moves && id.is_of(self.generation);
        let mut is_in_run = vec![false; entries.len()];
        if !self.forms_runs {
            return Ok(is_in_run);
        }
        let formed = runs::form(entries, may_run);
        if formed.runs.is_empty() {
            return Ok(is_in_run);
        }
        let half = &mut self.half;
        let mut is_written = Vec::with_capacity(formed.runs.len());
        for run in &formed.runs {
            let is_apart = !half.has_runs || !runs::overlaps(&half.runs, run)?;
            if is_apart {
                batch.put(&half.runs, &run.first, run.encode());
            }
            is_written.push(is_apart);
        }
        let inside = (0..entries.len()).filter(|index| formed.of[*index].is_some_and(|run| is_written[run]));
        let inside: Vec<usize> = inside.collect();
        // Entries of before would count more than the runs. There are few while rows move to a new generation.
        let before = half.singles.get_many(inside.iter().map(|index| &entries[*index].0[..]))?;
        for (index, before) in inside.into_iter().zip(before) {
            is_in_run[index] = true;
            if before.is_some() {
                batch.delete(&half.singles, &entries[index].0);
            }
        }
        half.has_runs |= is_written.contains(&true);
        Ok(is_in_run)
    }

    /// Ends a checkpoint: after this, it and all entries before are durable.
    pub(crate) fn write_checkpoint(&self, checkpoint: &Record) -> Result<()> {
        self.records.put_with(CHECKPOINT, checkpoint.encode(CHECKPOINT), Durability::Sync)
    }

    /// The base as the store is now.
    pub(crate) fn base(&self) -> Base {
        let older = self.older.as_ref().map(|older| (older.half.in_state(), older.edge.clone()));
        Base::Disk(Arc::new(Disk { snapshot: self.db.snapshot(), half: self.half.in_state(), older }))
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
    use crate::options::Stripes;

    fn store(edge: Option<Key>) -> MapStore {
        let env: Arc<dyn Env> = SimEnv::new(1);
        let layout = Layout::new(Stripes::One, 56);
        let options = pleach::Options::new().memory(2 << 20);
        let present = Present { generation: Generation { number: 3, is_draining: true }, edge };
        MapStore::open(&env, Path::new("/map"), options, (layout, MapPlace::Disk), present).unwrap()
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
        store.write_entries(&[(key.clone(), None)]).unwrap();
        assert_eq!(ids(&store, "k"), []);
        store.write_entries(&[(key.clone(), Some(old))]).unwrap();
        assert_eq!(ids(&store, "k"), [old]);
        store.write_entries(&[(key, Some(Id::new(3, 0, 1)))]).unwrap();
        assert_eq!(ids(&store, "k"), [Id::new(3, 0, 1)]);
    }

    #[test]
    fn the_older_half_counts_above_the_edge_only() {
        let mut store = store(Some(Key::from_slice(b"m")));
        let entry = |key: &[u8], sequence| (Key::from_slice(key), Some(Id::new(2, 0, sequence)));
        store.write_entries(&[entry(b"a", 1), entry(b"m", 2), entry(b"ma", 3)]).unwrap();
        assert_eq!(["a", "m", "ma"].map(|key| ids(&store, key).len()), [0, 0, 1]);
    }
}
