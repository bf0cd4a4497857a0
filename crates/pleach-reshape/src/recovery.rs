//! Recovery: the rows that the map misses are read, and published as if they had been written again.
//!
//! The rows at and above the checkpoint's marks are read, stripe by stripe. Those with a version before the checkpoint's are
//! in the map already, or what replaced them is. Of the others the one with the greatest version wins. Without a checkpoint
//! all rows are read, and what is found goes to the map's store whenever the layer is full, so memory is bounded, apart from
//! the keys that rows say were deleted.
//!
//! While all rows move to a new generation, the old rows of keys up to the edge are dead, though they are there. They are not
//! taken, and the map asks its older half for no such key: of a key that was moved and then deleted, nothing else is left.

use std::collections::BTreeMap;
use std::sync::Arc;

use pleach::{Error, Result};

use crate::handle::Inner;
use crate::ids::{Allocator, Id, Previous, is_behind};
use crate::map::records::Record;
use crate::map::{Key, RunsOf, key_hash};
use crate::named::{Generation, store_error};
use crate::open::runs_of;
use crate::row::Row;
use crate::store::RowSnapshot;

/// Rows that are read at a time.
const CHUNK_ROWS: usize = 4096;

/// A row that was read.
struct Found {
    /// Its id in its table.
    at: u64,
    id: Id,
    key: Key,
    version: u64,
    is_put: bool,
}

/// Where sequences of a generation are read from and go on.
struct Sequences {
    generation: u64,
    first: Vec<u64>,
    next: Vec<u64>,
}

/// The reading of rows at an open.
pub(crate) struct Recovery {
    generation: Generation,
    /// The generation before, if it may have rows, and the present one.
    sequences: Vec<Sequences>,
    /// Rows of the generation before are dead if their keys are not above this.
    edge: Option<Key>,
    /// All that earlier versions wrote is in the map.
    version: u64,
    is_rebuild: bool,
    /// Keys whose newest row so far says that they were deleted. Only in a rebuild.
    deleted: BTreeMap<Key, u64>,
    rows: u64,
}

impl Recovery {
    pub(crate) fn new(
        inner: &Inner,
        generation: Generation,
        edge: Option<Key>,
        records: Option<&(Record, Record)>,
    ) -> Self {
        let none = vec![0; inner.layout.stripe_count()];
        let sequences_of = |number: u64| {
            let of = |record: &Record| match () {
                () if record.generation == number => Some(record.sequences.clone()),
                () if record.generation == number + 1 => record.previous.clone(),
                () => None,
            };
            let (first, next) = records.map_or((None, None), |(mark, end)| (of(mark), of(end)));
            let or_none = |sequences: Option<Vec<u64>>| sequences.unwrap_or_else(|| none.clone());
            Sequences { generation: number, first: or_none(first), next: or_none(next) }
        };
        let before = generation.is_draining.then(|| generation.number.wrapping_sub(1));
        let sequences = before.into_iter().chain([generation.number]).map(sequences_of).collect();
        let version = records.map_or(0, |(checkpoint, _)| checkpoint.version);
        let is_rebuild = records.is_none();
        let deleted = BTreeMap::new();
        Self { generation, sequences, edge, version, is_rebuild, deleted, rows: 0 }
    }

    /// Reads, publishes, and sets the counters of ids. Returns how many rows it read.
    pub(crate) fn run(mut self, inner: &mut Inner) -> Result<u64> {
        // Of rows that a store of before has left to be cleaned, some may be dead and look as if they were moved rows.
        let may_be_dead = self.is_rebuild && inner.garbage.load(std::sync::atomic::Ordering::Relaxed);
        if may_be_dead {
            inner.maintenance.lock().map_store.set_runs_of(RunsOf::Nobody);
        }
        let mut snapshot = inner.store.snapshot().map_err(|e| store_error("make a snapshot", &e))?;
        for index in 0..self.sequences.len() {
            for stripe in 0..inner.layout.stripe_count() {
                self.read_stripe(inner, &mut *snapshot, index, stripe)?;
            }
        }
        drop(snapshot);
        let present = self.sequences.pop().expect("there is always a present generation");
        let edge = self.edge;
        let previous = self.sequences.pop().map(|before| Previous::new(before.next, edge));
        let allocator = Allocator::new(inner.layout, self.generation.number, &present.next, previous);
        inner.allocator.store(Arc::new(allocator));
        if self.is_rebuild {
            inner.checkpoint()?;
        }
        if may_be_dead {
            inner.maintenance.lock().map_store.set_runs_of(runs_of(&inner.options));
        }
        Ok(self.rows)
    }

    fn read_stripe(
        &mut self,
        inner: &Inner,
        snapshot: &mut dyn RowSnapshot,
        index: usize,
        stripe: usize,
    ) -> Result<()> {
        let generation = self.sequences[index].generation;
        let of_first = inner.layout.stripe_range(generation, stripe, 0);
        let (table, first, last) = of_first;
        let found = snapshot.last(table, first, last).map_err(|e| store_error("find the last row", &e))?;
        let behind = found.map_or(0, |id| inner.layout.id_in(generation, stripe, id).sequence() + 1);
        let next = &mut self.sequences[index].next[stripe];
        *next = behind.max(*next);
        let mark = self.sequences[index].first[stripe];
        if mark > inner.layout.sequence_last() {
            return Ok(());
        }
        let (_, mut first, _) = inner.layout.stripe_range(generation, stripe, mark);
        while first <= last {
            // Rows are shown while the store may hold a lock, and taking one may read another, so they are taken afterwards.
            let (mut found, mut failure): (Vec<Found>, Option<Error>) = (Vec::new(), None);
            let mut visit = |id: u64, bytes: &[u8]| {
                let id_in_all = inner.layout.id_in(generation, stripe, id);
                match Row::decode(inner.layout.place(id_in_all), bytes) {
                    Ok(row) => found.push(Found {
                        at: id,
                        id: id_in_all,
                        key: Key::from_slice(row.key),
                        version: row.version,
                        is_put: row.value.is_some(),
                    }),
                    Err(error) => failure = Some(error),
                }
                found.len() < CHUNK_ROWS && failure.is_none()
            };
            snapshot.scan(table, first, last, &mut visit).map_err(|e| store_error("read rows", &e))?;
            failure.map_or(Ok(()), Err)?;
            let is_end = found.len() < CHUNK_ROWS;
            for row in &found {
                self.take(inner, row)?;
            }
            match found.last() {
                Some(row) if !is_end => first = row.at + 1,
                _ => break,
            }
        }
        Ok(())
    }

    fn take(&mut self, inner: &Inner, row: &Found) -> Result<()> {
        self.rows += 1;
        let is_dead = !row.id.is_of(self.generation.number) && is_behind(self.edge.as_ref(), &row.key);
        if row.version < self.version || is_dead {
            return Ok(());
        }
        let hash = key_hash(&row.key);
        if self.known_version(inner, &row.key, hash)?.is_some_and(|known| known >= row.version) {
            return Ok(());
        }
        if self.is_rebuild && row.is_put {
            self.deleted.remove(&row.key);
        } else if self.is_rebuild {
            self.deleted.insert(row.key.clone(), row.version);
        }
        let change = (&row.key[..], hash, row.is_put.then_some(row.id));
        inner.map.publish(std::iter::once(change), row.version);
        let is_full = inner.map.active_bytes() > inner.options.delta_bytes;
        if self.is_rebuild && is_full {
            // Without a checkpoint's record, nobody will use the entries if a crash follows.
            inner.map.seal();
            let mut maintenance = inner.maintenance.lock();
            inner.write_sealed(&mut maintenance, &mut None)?;
            inner.use_written(&maintenance);
        }
        Ok(())
    }

    /// The version of the newest row of a key that was read so far.
    fn known_version(&self, inner: &Inner, key: &[u8], hash: u64) -> Result<Option<u64>> {
        if let Some(published) = inner.map.get_active(key, hash) {
            return Ok(Some(published.version));
        }
        if !self.is_rebuild {
            return Ok(None);
        }
        if let Some(version) = self.deleted.get(key) {
            return Ok(Some(*version));
        }
        // Two rows of a key are only there if some were to be cleaned later.
        if !inner.garbage.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(None);
        }
        let answer = inner.map.get(key, hash)?;
        Ok(inner.row_of(&answer, key, true, |_| ())?.map(|(_, (), version)| version))
    }
}
