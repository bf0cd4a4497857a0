//! Moves: rows get new places, in the order of their keys, while reads and writes go on.
//!
//! A chunk of a key range that fits into memory is read in the order of places, or from sorted rows (`sorted`). Its rows are
//! appended in the order of keys, to a stripe of their own, a few at a time: latched, with a new version.
//!
//! Rows of a range are removed at their old places in the same transaction. Rows of the generation before stay there, because
//! its tables are dropped whole: the transaction raises the *edge* instead, a named value, and old rows of keys up to it are
//! dead (`generations`). Either way a crash leaves each key one row that counts.

use std::borrow::Cow;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::atomic::Ordering;

use pleach::{Error, Result};
use smallvec::SmallVec;

use crate::group::Transaction;
use crate::handle::{Inner, Reshaped};
use crate::ids::Id;
use crate::map::{Bounds, Direction, Key, key_hash};
use crate::named;
use crate::row::Row;
use crate::snapshot::{Snapshot, owned};
use crate::sorted::SortedRows;
use crate::store::Durability;
use crate::threads::thread_number;

/// Keys of the first chunk, before the size of rows is known.
const CHUNK_FIRST: usize = 256;
/// Keys of a chunk at most: their memory, besides the rows', is bounded.
const CHUNK_MAX: usize = 1 << 18;
/// Bytes of values above which a transaction ends.
const GROUP_BYTES: usize = 1 << 20;

/// A row of a group that is still there: its index, and its value unless its entry is stale.
type Present<'r> = (usize, Option<Cow<'r, [u8]>>);

/// Which rows move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// All of a range. If the ids do not suffice, a new generation begins.
    Range,
    /// Those of the generation before. If the ids do not suffice, the move fails: it is what makes room for a new generation.
    ///
    /// Requires: the caller holds the lock of moves.
    Generation,
}

/// The rows of a chunk that move, as of a snapshot.
struct Chunk {
    rows: Vec<Move>,
    /// Values, one after the other: those of all rows, unless they are many more than the chunk before made one expect.
    bytes: Vec<u8>,
    /// With so many bytes it takes no further values.
    bytes_max: usize,
    /// Bytes of the longest value so far.
    longest: usize,
    /// The snapshot's version.
    since: u64,
    /// Moves of ranges before the snapshot.
    range_moves: u64,
}

/// A row of a chunk.
struct Move {
    key: Key,
    id: Id,
    /// Where its value is in the chunk's bytes. `None`: its entry is stale, or the value was not kept.
    value: Option<Range<usize>>,
}

impl Chunk {
    /// Keeps a value, unless the chunk has as much as it may. What it does not keep is read by itself when it moves.
    fn add(&mut self, index: usize, value: &[u8]) {
        if self.bytes.len() >= self.bytes_max {
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.longest = self.longest.max(value.len());
        self.rows[index].value = Some(start..self.bytes.len());
    }

    /// How many of these rows move in one transaction: `keys` at most, and fewer of long values. Those that were not kept count
    /// as if they were as long as the longest one that was.
    fn group_len(&self, rows: &[Move], keys: usize) -> usize {
        let mut bytes = 0;
        let is_full = |row: &Move| {
            bytes += row.value.as_ref().map_or(self.longest, Range::len);
            bytes > GROUP_BYTES
        };
        rows.iter().take(keys).position(is_full).unwrap_or(keys.min(rows.len())).max(1)
    }

    /// Reads the values of the rows from sorted rows, or, if there are none or they cannot be read, from the store.
    fn read(&mut self, snapshot: &mut Snapshot<'_>, sorted: &mut Option<SortedRows>) -> Result<()> {
        if let Some(rows) = sorted {
            if self.read_sorted(rows).is_ok() {
                return Ok(());
            }
            *sorted = None;
        }
        let entries: Vec<_> = self.rows.iter().map(|row| (row.key.clone(), row.id)).collect();
        snapshot.read_rows(&entries, |index, _, row| {
            if let Some(value) = row.value {
                self.add(index, value);
            }
        })
    }

    fn read_sorted(&mut self, sorted: &mut SortedRows) -> Result<()> {
        for index in 0..self.rows.len() {
            let row = &self.rows[index];
            if let Some(value) = sorted.value(&row.key, row.id)? {
                self.add(index, value);
            }
        }
        Ok(())
    }
}

impl Reshaped {
    /// Rewrites the rows of a key range in the order of their keys, so that scans of it read neighbours. Returns how many rows
    /// it moved. Reads and writes go on. After a crash, or an error, the rows that were moved stay so.
    ///
    /// Rows of *all* keys go to new tables, and the old ones are dropped at the end. That takes a fraction of the time, because
    /// no row is removed by itself, and as much space as the rows have, until the end and as long as a snapshot from before
    /// it is held. After a crash, or an error, the background job goes on with it, or [`drain`](Self::drain) does. While a
    /// snapshot keeps the tables of the recluster before, all rows move as those of a range do.
    ///
    /// If rows of all keys lie in another order and take more memory than a move has, they are sorted through a temporary file in
    /// the map's directory. It takes as much space as the rows, less what has moved. It has no name, so that it vanishes with an
    /// error or with the process. Where there is no room for twice as much, rows are read where they are, which takes longer.
    ///
    /// Memory: [`Options::moves`](crate::Options::moves) for the rows, and
    /// [`Options::delta_bytes`](crate::Options::delta_bytes) for what changes in the map: it waits for checkpoints. Without a
    /// background job it makes them itself if all rows move; for a range nobody makes them meanwhile.
    ///
    /// # Errors
    /// Those of [`put`](Self::put) and [`get`](Self::get).
    pub fn recluster<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<u64> {
        self.inner.check_writable()?;
        let (lower, upper) = owned(&bounds);
        let bounds = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
        if is_everything(bounds)
            && let Some(moved) = self.recluster_all()?
        {
            return Ok(moved);
        }
        self.inner.move_rows(bounds, Moved::Range, None, || self.wait_for_room(), |_| true)
    }
}

impl Inner {
    /// Moves the rows of a range whose places are `wanted`, and which are read from `sorted`, if that is given. Each move changes
    /// the map, so `make_room` is called before those that follow: it waits for a checkpoint, or makes one.
    ///
    /// Requires: `sorted` has rows of the generation before, if any.
    pub(crate) fn move_rows(
        &self,
        bounds: Bounds<'_>,
        which: Moved,
        mut sorted: Option<SortedRows>,
        mut make_room: impl FnMut() -> Result<()>,
        wanted: impl Fn(Id) -> bool,
    ) -> Result<u64> {
        let mut last: Option<Key> = None;
        let (mut moved, mut limit) = (0, CHUNK_FIRST);
        loop {
            // Half of the memory is that of sorted rows.
            let bytes_max = self.options.move_bytes / if sorted.is_some() { 2 } else { 1 };
            let lower = last.as_deref().map_or(bounds.0, Bound::Excluded);
            let (chunk, is_end) = {
                let range_moves = self.range_moves.load(Ordering::SeqCst);
                let mut snapshot = self.snapshot()?;
                let entries = snapshot.entries((lower, bounds.1), Direction::Up, limit)?;
                let is_end = entries.len() < limit;
                last = entries.last().map(|(key, _)| key.clone());
                let rows = entries.into_iter().filter(|(_, id)| wanted(*id));
                let rows = rows.map(|(key, id)| Move { key, id, value: None }).collect();
                let (bytes, since) = (Vec::new(), snapshot.version());
                let mut chunk = Chunk { rows, bytes, bytes_max, longest: 0, since, range_moves };
                chunk.read(&mut snapshot, &mut sorted)?;
                (chunk, is_end)
            };
            limit = next_limit(&chunk, limit, bytes_max);
            let mut rows = &chunk.rows[..];
            while !rows.is_empty() {
                let group;
                (group, rows) = rows.split_at(chunk.group_len(rows, self.options.move_keys));
                moved += self.move_group(group, &chunk, which)?;
                make_room()?;
            }
            if is_end {
                return Ok(moved);
            }
        }
    }

    /// Moves a few rows of a chunk; those that have changed since it was read are read again.
    fn move_group(&self, group: &[Move], chunk: &Chunk, which: Moved) -> Result<u64> {
        loop {
            match self.try_move_group(group, chunk, which)? {
                Ok(moved) => return Ok(moved),
                Err(generation) if which == Moved::Range => self.renew(generation)?,
                Err(_) => return Err(Error::invalid("a generation has too few ids for all rows")),
            }
        }
    }

    /// Rows of a group that are still where they were, with their values as of now; stale entries have none.
    ///
    /// Requires: the caller holds the latches of the keys.
    fn still_there<'r>(
        &self,
        group: &'r [Move],
        hashes: &[u64],
        chunk: &'r Chunk,
        which: Moved,
    ) -> Result<Vec<Present<'r>>> {
        let mut present = Vec::with_capacity(group.len());
        // Moves change the map, and no value. Those of all rows are ours alone, if this is one.
        let moves_alone =
            which == Moved::Generation && self.range_moves.load(Ordering::SeqCst) == chunk.range_moves;
        for (index, (row, hash)) in group.iter().zip(hashes).enumerate() {
            let is_unwritten = self.latches.last_version(*hash) <= chunk.since;
            let is_unmoved = is_unwritten && moves_alone;
            if !is_unmoved && self.resolve(&self.map.get(&row.key, *hash)?, &row.key)? != Some(row.id) {
                continue;
            }
            // An old row does not change while it is there.
            let is_valid = is_unwritten || which == Moved::Generation;
            let value = match &row.value {
                Some(value) if is_valid => Some(Cow::Borrowed(&chunk.bytes[value.clone()])),
                _ => self.read_row(row.id, &row.key, <[u8]>::to_vec)?.map(|(value, _)| Cow::Owned(value)),
            };
            present.push((index, value));
        }
        Ok(present)
    }

    fn try_move_group(&self, group: &[Move], chunk: &Chunk, which: Moved) -> Result<Result<u64, u64>> {
        let hashes: SmallVec<[u64; 4]> = group.iter().map(|row| key_hash(&row.key)).collect();
        let held = self.latches.hold(hashes.iter().copied());
        let present = self.still_there(group, &hashes, chunk, which)?;
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
                if which == Moved::Range {
                    transaction.remove(self.layout.place(row.id));
                }
                next = Id(next.0 + 1);
                Id(next.0 - 1)
            });
            published.push((&row.key[..], hashes[*index], id));
        }
        if transaction.is_empty() {
            self.map.publish(published.into_iter(), version);
            self.range_moves.fetch_add(u64::from(which == Moved::Range), Ordering::SeqCst);
            return Ok(Ok(appends));
        }
        held.announce_move(version);
        let edge = group.last().filter(|_| which == Moved::Generation).map(|row| &row.key);
        if let Some(edge) = edge {
            transaction.set_named(named::EDGE, named::encode_edge(allocator.generation, edge));
        }
        let outcome =
            self.commit_and_publish(transaction, Durability::Buffered, version, published.into_iter());
        let keys = present.iter().map(|(index, _)| (&group[*index].key[..], hashes[*index]));
        self.rows.invalidate(keys);
        // After the publication and under the latches: who takes one of these later, and has read the map before the
        // publication, sees it.
        self.range_moves.fetch_add(u64::from(which == Moved::Range), Ordering::SeqCst);
        // A commit that failed and took place refuses further writes.
        if let (Some(previous), Some(edge)) = (&allocator.previous, edge)
            && (outcome.is_ok() || self.poison.get().is_some())
        {
            previous.set_edge(edge.clone());
        }
        outcome?;
        Ok(Ok(appends))
    }
}

/// Whether all keys are in a range.
fn is_everything(bounds: Bounds<'_>) -> bool {
    matches!(bounds, (Bound::Unbounded | Bound::Included([]), Bound::Unbounded))
}

/// Keys of the next chunk, so that its rows take about `bytes`.
fn next_limit(chunk: &Chunk, limit: usize, bytes: usize) -> usize {
    if chunk.rows.is_empty() {
        return limit;
    }
    let keys: usize = chunk.rows.iter().map(|row| row.key.len() + size_of::<Move>()).sum();
    let taken = chunk.bytes.len() + keys;
    (bytes / (taken / chunk.rows.len())).clamp(1, CHUNK_MAX).min(limit * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_and_a_transaction_take_a_bounded_number_of_bytes() {
        let row =
            |number: u8| Move { key: Key::from_slice(&[number]), id: Id(u64::from(number)), value: None };
        let (rows, bytes_max, value) = ((0..100).map(row).collect(), 4 << 20, vec![0; 300 << 10]);
        let mut chunk = Chunk { rows, bytes: Vec::new(), bytes_max, longest: 0, since: 0, range_moves: 0 };
        for index in 0..100 {
            chunk.add(index, &value);
        }
        assert!((bytes_max..bytes_max + (300 << 10)).contains(&chunk.bytes.len()));
        let kept = chunk.rows.iter().filter(|row| row.value.is_some()).count();
        assert_eq!(kept, 14);
        assert_eq!(chunk.group_len(&chunk.rows, 128), 3);
        assert_eq!(chunk.group_len(&chunk.rows[..2], 128), 2);
        assert_eq!(chunk.group_len(&chunk.rows, 1), 1);
        assert_eq!(chunk.group_len(&chunk.rows[kept..], 128), 3);
    }
}
