//! Entries of a checkpoint: each key gets one of its own, or is part of a run. Runs whose rows have all gone are removed.
//!
//! # On disk
//! Layout: docs/format/reshaped-rows.md.

use pleach::{Durability, Error, Result, WriteBatch};

use super::MapStore;
use crate::ids::Id;
use crate::map::base::{Source, encode_id};
use crate::map::records::{RUNS_OF_WRITERS, encode_runs_of_writers};
use crate::map::runs::{self, Formed, OVERLAPPED_MAX, Run};
use crate::map::{Key, RunsOf, SealedRows};

/// A run is looked at, whether it has rows, if so many neighbours among the entries of a batch are in its range, or one of its
/// ends is among them.
const DEAD_GROUP_MIN: usize = 3;
/// Of a large batch, one of so many entries is looked for in runs, because keys that come at random are mostly new. All deleted
/// ones are.
const DEAD_STEP: usize = 4;
/// Entries of a large batch.
const DEAD_STEP_FROM: usize = 1024;

impl MapStore {
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
}
