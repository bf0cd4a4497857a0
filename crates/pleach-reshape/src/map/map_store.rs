//! The Pleach store of the map: what a checkpoint writes.
//!
//! The default partition has the records of the newest checkpoint, and whether rows of writers may be in runs. Each generation
//! has a *half*: a partition for single keys, and one for runs, which are dropped with the tables of the generation. Entries name
//! rows of the generation of their half. While rows move from one generation to the next, the halves of both are read.
//!
//! # On disk
//! Layout: docs/format/reshaped-rows.md.

use std::path::Path;
use std::sync::Arc;

use pleach::env::Env;
use pleach::env::sync::Mutex;
use pleach::{Db, Durability, Error, Partition, Result, Snapshot, WriteBatch};

use super::base::{Base, Disk, Half, HalfRuns, Source, encode_id};
use super::packed::Packed;
use super::records::{
    CHECKPOINT, ENDS, RUNS_OF_WRITERS, Record, decode_runs_of_writers, encode_runs_of_writers,
};
use super::runs::{self, Formed, OVERLAPPED_MAX, Rows, Run};
use super::{Direction, Entries, Key, Map, NEWEST, SealedRows};
use crate::ids::{Id, Layout};
use crate::named::Generation;

/// Entries of a write batch: few enough for its memory not to count.
pub(crate) const BATCH_ENTRIES: usize = 4096;

/// A run is looked at, whether it has rows, if so many neighbours among the entries of a batch are in its range, or one of its
/// ends is among them.
const DEAD_GROUP_MIN: usize = 3;
/// Of a large batch, one of so many entries is looked for in runs, because keys that come at random are mostly new. All deleted
/// ones are.
const DEAD_STEP: usize = 4;
/// Entries of a large batch.
const DEAD_STEP_FROM: usize = 1024;

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

    /// Writes entries, which ascend. Rows become runs where they can; those of writers only if `came_in_order`. `rows` are of
    /// before the store was synced, when nobody was between commit and publication: runs go of which they have none.
    pub(crate) fn write_entries(
        &mut self,
        entries: &[(Key, Option<Id>)],
        came_in_order: bool,
        rows: &mut Option<SealedRows<'_>>,
    ) -> Result<()> {
        let mut batch = self.db.batch();
        if let Some(rows) = rows {
            self.drop_dead_runs(&mut batch, entries, rows)?;
        }
        let above = if came_in_order { self.above_all(entries) } else { entries.len() };
        let (below, above) = entries.split_at(above);
        let (mut is_in_run, mut runs) = self.form_runs(&mut batch, below, rows)?;
        let formed = if above.is_empty() { Formed::default() } else { self.form_runs_of_writers(above)? };
        is_in_run.extend(above.iter().enumerate().map(|(index, _)| formed.has(index)));
        runs.extend(formed.runs);
        for run in &runs {
            batch.put(&self.half.runs, &run.first, run.encode());
        }
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
        batch.commit(Durability::Buffered)?;
        let end = runs.into_iter().map(|run| run.last).max();
        self.half.runs_end = self.half.runs_end.take().max(end);
        Ok(())
    }

    /// Removes runs without rows, of which entries in a row say that their rows may have gone: their keys were deleted, or have
    /// other rows. Others stay as long as the generation. What cannot be read stays: damage is an error of who needs it.
    fn drop_dead_runs(
        &self,
        batch: &mut WriteBatch,
        entries: &[(Key, Option<Id>)],
        rows: &mut SealedRows<'_>,
    ) -> Result<()> {
        let Some(end) = &self.half.runs_end else { return Ok(()) };
        let entries = &entries[..entries.partition_point(|(key, _)| key <= end)];
        let step = if entries.len() < DEAD_STEP_FROM { 1 } else { DEAD_STEP };
        let mut cursor = self.half.runs.cursor()?;
        let mut index = 0;
        while let Some((key, id)) = entries.get(index) {
            let is_passed = id.is_some() && !index.is_multiple_of(step);
            let Some(run) = (if is_passed { None } else { runs::find_run(&mut cursor, key).ok().flatten() })
            else {
                index += 1;
                continue;
            };
            let group = entries[index..].iter().take_while(|(key, _)| *key <= run.last).count();
            let has_end = *key == run.first || entries[index + group - 1].0 == run.last;
            if (group >= DEAD_GROUP_MIN || has_end) && !run.is_live(rows) {
                batch.delete(&self.half.runs, &run.first);
            }
            index += group;
        }
        Ok(())
    }

    /// Which of some entries are in runs of moved rows, and the runs. Those that they overlap go, if they have no rows any more.
    fn form_runs(
        &self,
        batch: &mut WriteBatch,
        entries: &[(Key, Option<Id>)],
        rows: &mut Option<SealedRows<'_>>,
    ) -> Result<(Vec<bool>, Vec<Run<'static>>)> {
        let mut is_in_run = vec![false; entries.len()];
        if self.runs_of == RunsOf::Nobody {
            return Ok((is_in_run, Vec::new()));
        }
        let of_moves = self.layout.stripe_of_moves();
        let formed = runs::form(entries, |id| id.stripe() == of_moves && id.is_of(self.generation));
        let half = &self.half;
        let mut is_written = Vec::with_capacity(formed.runs.len());
        for run in &formed.runs {
            let is_above = half.runs_end.as_ref() < Some(&run.first);
            let others = if is_above { Vec::new() } else { runs::overlapped(&half.runs, run)? };
            let mut is_apart = others.len() <= OVERLAPPED_MAX;
            for other in &others {
                let is_dead = rows.as_mut().is_some_and(|rows| !other.is_live(rows));
                is_apart &= is_dead;
                if is_dead {
                    batch.delete(&half.runs, &other.first);
                }
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
        let written = formed.runs.into_iter().zip(is_written).filter(|(_, is_written)| *is_written);
        Ok((is_in_run, written.map(|(run, _)| run).collect()))
    }

    /// The index from which on entries may be in runs of writers: their keys are above all that the map has. So nothing in it
    /// overlaps the runs, or counts more.
    fn above_all(&self, entries: &[(Key, Option<Id>)]) -> usize {
        let end_of_singles = match (self.runs_of, &self.older) {
            (RunsOf::All, None) => Source::Singles(&self.db.snapshot(), &self.half.singles).upper_end(),
            _ => return entries.len(),
        };
        // Damage is an error of who comes to it.
        let Ok(end_of_singles) = end_of_singles else { return entries.len() };
        let end = end_of_singles.as_ref().max(self.half.runs_end.as_ref());
        entries.partition_point(|(key, _)| Some(key) <= end)
    }

    /// Forms runs of entries that are above all that the map has.
    fn form_runs_of_writers(&mut self, entries: &[(Key, Option<Id>)]) -> Result<Formed> {
        let formed = runs::form(entries, |id| id.is_of(self.generation));
        if !formed.runs.is_empty() && self.runs_of_writers != Some(self.generation) {
            // The log keeps the order, so no such run is there without it.
            self.records.put(RUNS_OF_WRITERS, encode_runs_of_writers(self.generation))?;
            self.runs_of_writers = Some(self.generation);
        }
        Ok(formed)
    }

    /// Ends a checkpoint: after this, it and all entries before are durable.
    pub(crate) fn write_checkpoint(&self, checkpoint: &Record) -> Result<()> {
        self.records.put_with(CHECKPOINT, checkpoint.encode(CHECKPOINT), Durability::Sync)
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
