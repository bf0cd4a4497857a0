//! Moves: rows get new places, in the order of their keys, while reads and writes go on.
//!
//! A chunk of a key range that fits into memory is read in the order of places. Its rows are appended in the order of keys, to
//! a stripe of their own, a few at a time: latched, with a new version, and the old row is removed in the same transaction.
//! A crash leaves each row at one of its two places.

use std::ops::{Bound, RangeBounds};

use pleach::{Error, Result};
use smallvec::SmallVec;

use crate::group::Transaction;
use crate::handle::{Inner, Reshaped};
use crate::ids::Id;
use crate::map::{Bounds, Direction, Key, key_hash};
use crate::row::Row;
use crate::snapshot::owned;
use crate::store::Durability;
use crate::threads::thread_number;

/// Keys of the first chunk, before the size of rows is known.
const CHUNK_FIRST: usize = 256;
/// Keys of a chunk at most: their memory, besides the rows', is bounded.
const CHUNK_MAX: usize = 1 << 18;

/// What a move does when the ids do not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exhausted {
    /// It begins a new generation.
    Renews,
    /// It fails: it is what makes room for a new generation.
    Fails,
}

/// A row of a chunk.
struct Move {
    key: Key,
    id: Id,
    /// Its value, unless its entry is stale.
    value: Option<Vec<u8>>,
}

impl Reshaped {
    /// Rewrites the rows of a key range in the order of their keys, so that scans of it read neighbours. Returns how many rows
    /// it moved. Reads and writes go on. After a crash, or an error, the rows that were moved stay so.
    ///
    /// Memory: [`Options::moves`](crate::Options::moves) for the rows, and
    /// [`Options::delta_bytes`](crate::Options::delta_bytes) for what changes in the map: it waits for checkpoints. Without a
    /// background job nobody makes them meanwhile.
    ///
    /// # Errors
    /// Those of [`put`](Self::put) and [`get`](Self::get).
    pub fn recluster<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<u64> {
        self.inner.check_writable()?;
        let (lower, upper) = owned(&bounds);
        let bounds = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
        self.inner.move_rows(bounds, Exhausted::Renews, || self.wait_for_room(), |_| true)
    }
}

impl Inner {
    /// Moves the rows of a range whose places are `wanted`. Each move changes the map, so `make_room` is called before those that
    /// follow: it waits for a checkpoint, or makes one.
    pub(crate) fn move_rows(
        &self,
        bounds: Bounds<'_>,
        exhausted: Exhausted,
        mut make_room: impl FnMut() -> Result<()>,
        wanted: impl Fn(Id) -> bool,
    ) -> Result<u64> {
        let mut edge: Option<Key> = None;
        let (mut moved, mut limit) = (0, CHUNK_FIRST);
        loop {
            let lower = edge.as_deref().map_or(bounds.0, Bound::Excluded);
            let (moves, since, is_end) = {
                let mut snapshot = self.snapshot()?;
                let entries = snapshot.entries((lower, bounds.1), Direction::Up, limit)?;
                let is_end = entries.len() < limit;
                edge = entries.last().map(|(key, _)| key.clone());
                let entries: Vec<_> = entries.into_iter().filter(|(_, id)| wanted(*id)).collect();
                let mut values = vec![None; entries.len()];
                snapshot
                    .read_rows(&entries, |index, _, row| values[index] = row.value.map(<[u8]>::to_vec))?;
                let moves = entries.into_iter().zip(values);
                let moves: Vec<_> = moves.map(|((key, id), value)| Move { key, id, value }).collect();
                (moves, snapshot.version(), is_end)
            };
            limit = next_limit(&moves, limit, self.options.move_bytes);
            for group in moves.chunks(self.options.move_keys) {
                moved += self.move_group(group, since, exhausted)?;
                make_room()?;
            }
            if is_end {
                return Ok(moved);
            }
        }
    }

    /// Moves a few rows as they were read at the version `since`; those that have changed since then are read again.
    fn move_group(&self, group: &[Move], since: u64, exhausted: Exhausted) -> Result<u64> {
        loop {
            match self.try_move_group(group, since)? {
                Ok(moved) => return Ok(moved),
                Err(generation) if exhausted == Exhausted::Renews => self.renew(generation)?,
                Err(_) => return Err(Error::invalid("a generation has too few ids for all rows")),
            }
        }
    }

    fn try_move_group(&self, group: &[Move], since: u64) -> Result<Result<u64, u64>> {
        let hashes: SmallVec<[u64; 4]> = group.iter().map(|row| key_hash(&row.key)).collect();
        let held = self.latches.hold(hashes.iter().copied());
        // Rows that are still where they were, with their values as of now; stale entries have none.
        let mut present: Vec<(usize, Option<Vec<u8>>)> = Vec::with_capacity(group.len());
        for (index, (row, hash)) in group.iter().zip(&hashes).enumerate() {
            if self.map.get(&row.key, *hash)?.id != Some(row.id) {
                continue;
            }
            let is_current = row.value.is_some() && self.latches.last_version(*hash) <= since;
            let value = if is_current {
                row.value.clone()
            } else {
                self.read_row(row.id, &row.key)?.map(|(value, _)| value)
            };
            present.push((index, value));
        }
        let _entered = self.in_flight.enter(thread_number(), &self.tickets);
        let _gate = self.gate.read();
        let allocator = self.allocator.load();
        let version = self.versions.take(&*self.store)?;
        let appends = present.iter().filter(|(_, value)| value.is_some()).count() as u64;
        let Some(mut next) = allocator.take(self.layout.stripe_of_moves(), appends) else {
            return Ok(Err(allocator.generation));
        };
        let mut transaction = Transaction::default();
        let mut published = Vec::with_capacity(present.len());
        for (index, value) in &present {
            let row = &group[*index];
            let id = value.as_ref().map(|value| {
                let encoded = Row { version, key: &row.key, value: Some(value) };
                transaction.put(self.layout.place(next), |bytes| encoded.encode(bytes));
                transaction.remove(self.layout.place(row.id));
                next = Id(next.0 + 1);
                Id(next.0 - 1)
            });
            published.push((&row.key[..], hashes[*index], id));
        }
        if transaction.is_empty() {
            self.map.publish(published.into_iter(), version);
        } else {
            held.announce_move(version);
            self.commit_and_publish(transaction, Durability::Buffered, version, published.into_iter())?;
        }
        Ok(Ok(appends))
    }
}

/// Keys of the next chunk, so that its rows take about `bytes`.
fn next_limit(moves: &[Move], limit: usize, bytes: usize) -> usize {
    if moves.is_empty() {
        return limit;
    }
    let taken: usize =
        moves.iter().map(|row| row.key.len() + row.value.as_ref().map_or(0, Vec::len) + 64).sum();
    (bytes / (taken / moves.len())).clamp(1, CHUNK_MAX).min(limit * 4)
}
