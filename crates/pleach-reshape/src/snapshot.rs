//! Snapshot: the store's state and the map's of one moment.
//!
//! It is taken while nobody holds the gate, so no transaction is between its commit and its publication. The map keeps what
//! it supersedes for as long as a snapshot may ask for it.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use pleach::Result;

use crate::handle::{Inner, Reshaped};
use crate::ids::Id;
use crate::map::{Bounds, Direction, Key, Rows, Version, key_hash};
use crate::named::store_error;
use crate::range::{Chunk, RangeEnds, SnapshotRange, Source};
use crate::row::Row;
use crate::store::{Place, RowSnapshot};

/// A consistent view of a store, for as long as it is held.
///
/// ```
/// # use pleach_reshape::{Options, store::model::ModelStore};
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Options::new().open(Box::new(ModelStore::new(false)), dir.path())?;
/// store.put(b"k", b"1")?;
/// let mut before = store.snapshot()?;
/// store.put(b"k", b"2")?;
/// assert_eq!(before.get(b"k")?.as_deref(), Some(&b"1"[..]));
/// assert_eq!(before.all().count(), 1);
/// # Ok::<(), pleach::Error>(())
/// ```
pub struct Snapshot<'a> {
    inner: &'a Inner,
    rows: Box<dyn RowSnapshot + 'a>,
    map: Arc<Version>,
    /// The newest version that it sees.
    at: u64,
}

impl Reshaped {
    /// The state as of now.
    ///
    /// # Errors
    /// `Io`: the store refused.
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        self.inner.check_readable()?;
        self.inner.snapshot()
    }
}

impl Inner {
    pub(crate) fn snapshot(&self) -> Result<Snapshot<'_>> {
        let _alone = self.gate.write();
        let rows = self.store.snapshot().map_err(|e| store_error("make a snapshot", &e))?;
        let at = self.versions.next() - 1;
        self.map.horizon().hold(at);
        Ok(Snapshot { inner: self, rows, map: self.map.current(), at })
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        self.inner.map.horizon().release(self.at);
    }
}

impl Snapshot<'_> {
    /// The value that a key had.
    ///
    /// # Errors
    /// Those of [`Reshaped::get`].
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        Ok(self.get_many(std::iter::once(key))?.pop().flatten())
    }

    /// The values that some keys had.
    ///
    /// # Errors
    /// Those of [`Reshaped::get`].
    pub fn get_many<K: AsRef<[u8]>>(
        &mut self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<_> = keys.into_iter().map(|key| Key::from_slice(key.as_ref())).collect();
        let hashed: Vec<_> = keys.iter().map(|key| (&key[..], key_hash(key))).collect();
        let answers = self.map.get_many(&hashed, self.at)?;
        let mut indexes = Vec::with_capacity(keys.len());
        let mut wanted = Vec::with_capacity(keys.len());
        for (index, (key, answer)) in keys.iter().zip(answers).enumerate() {
            for id in answer.ids {
                indexes.push(index);
                wanted.push((key.clone(), id));
            }
        }
        // Of several rows that may be a key's, the first one that is there counts.
        let mut values: Vec<Option<(usize, Vec<u8>)>> = vec![None; keys.len()];
        self.read_rows(&wanted, |at, _, row| {
            let value = &mut values[indexes[at]];
            if value.as_ref().is_none_or(|(first, _)| at < *first) {
                *value = row.value.map(|value| (at, value.to_vec()));
            }
        })?;
        Ok(values.into_iter().map(|value| Some(value?.1)).collect())
    }

    /// The pairs of a key range that were there, in the order of keys, from either end.
    pub fn range<K: AsRef<[u8]>>(&mut self, bounds: impl RangeBounds<K>) -> SnapshotRange<'_> {
        SnapshotRange::new(self.view(), RangeEnds::new(bounds))
    }

    fn view(&mut self) -> View<'_> {
        View { rows: &mut *self.rows, inner: self.inner, map: Arc::clone(&self.map), at: self.at }
    }

    /// All pairs that were there, in the order of keys, from either end.
    pub fn all(&mut self) -> SnapshotRange<'_> {
        self.range::<&[u8]>(..)
    }

    /// Entries of the map.
    pub(crate) fn entries(
        &mut self,
        bounds: Bounds<'_>,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<(Key, Id)>> {
        let rows = &mut Rows { snapshot: &mut *self.rows, layout: self.inner.layout, seen: &mut |_, _| {} };
        self.map.entries(rows, bounds, direction, self.at, limit)
    }

    /// Shows the rows of these keys that are there, in the order of their places, each with its index.
    pub(crate) fn read_rows(
        &mut self,
        wanted: &[(Key, Id)],
        read: impl FnMut(usize, &[u8], Row<'_>),
    ) -> Result<()> {
        read_rows(&mut *self.rows, self.inner, (wanted, 0..wanted.len()), read)
    }

    pub(crate) fn rows(&mut self) -> &mut dyn RowSnapshot {
        &mut *self.rows
    }

    /// What the map says of a key, of rows that are there if it is not sure.
    pub(crate) fn id_of(&mut self, key: &[u8]) -> Result<Option<Id>> {
        let answer = self.map.get(key, key_hash(key), self.at)?;
        if answer.is_sure {
            return Ok(answer.ids.first().copied());
        }
        let wanted: Vec<_> = answer.ids.iter().map(|id| (Key::from_slice(key), *id)).collect();
        let mut found = None;
        // The first one that is there counts.
        self.read_rows(&wanted, |index, _, _| found = found.into_iter().chain([index]).min())?;
        Ok(found.map(|index| wanted[index].1))
    }

    /// The newest version that it sees.
    pub(crate) fn version(&self) -> u64 {
        self.at
    }
}

/// What a range needs of a snapshot.
pub(crate) struct View<'s> {
    rows: &'s mut dyn RowSnapshot,
    inner: &'s Inner,
    map: Arc<Version>,
    at: u64,
}

impl Source for View<'_> {
    fn fill(
        &mut self,
        chunk: &mut Chunk,
        bounds: Bounds<'_>,
        direction: Direction,
        limit: usize,
    ) -> Result<Option<Key>> {
        chunk.clear();
        chunk.reserve(limit);
        // Pairs of runs, whose rows are read for their keys. Not all: most of those that are read may turn out to be deleted.
        let mut pairs = Vec::new();
        let mut seen = |id: Id, row: &Row<'_>| {
            let value = row.value.filter(|_| pairs.len() < 2 * limit && !chunk.is_full());
            pairs.extend(value.map(|value| (id, chunk.add(row.key, value))));
        };
        let rows = &mut Rows { snapshot: &mut *self.rows, layout: self.inner.layout, seen: &mut seen };
        let mut entries = self.map.entries(rows, bounds, direction, self.at, limit)?;
        pairs.sort_unstable_by_key(|(id, _)| *id);
        let pair_of = |(key, id): &(Key, Id)| {
            let (_, span) = pairs[pairs.binary_search_by_key(id, |(id, _)| *id).ok()?];
            (chunk.key(span) == &key[..]).then_some(span)
        };
        let mut spans: Vec<_> = entries.iter().map(pair_of).collect();
        let unread: Vec<_> = (0..spans.len()).filter(|index| spans[*index].is_none()).collect();
        // Rows come in the order of their places, so those that no memory is left for are anywhere. The chunk ends before the
        // first.
        let mut count = entries.len();
        read_rows(self.rows, self.inner, (&entries, unread.into_iter()), |index, _, row| match row.value {
            Some(_) if chunk.is_full() => count = count.min(index),
            value => spans[index] = value.map(|value| chunk.add(row.key, value)),
        })?;
        if count == 0 && !entries.is_empty() {
            count = 1;
            read_rows(self.rows, self.inner, (&entries, 0..1), |_, _, row| {
                spans[0] = row.value.map(|value| chunk.add(row.key, value));
            })?;
        }
        let is_end = entries.len() < limit && count == entries.len();
        entries.truncate(count);
        chunk.set_order(spans.into_iter().take(count).flatten());
        Ok(entries.pop().filter(|_| !is_end).map(|(key, _)| key))
    }
}

impl Source for Snapshot<'_> {
    fn fill(
        &mut self,
        chunk: &mut Chunk,
        bounds: Bounds<'_>,
        direction: Direction,
        limit: usize,
    ) -> Result<Option<Key>> {
        self.view().fill(chunk, bounds, direction, limit)
    }
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Shows the rows, of some of the wanted, that are there.
fn read_rows(
    rows: &mut dyn RowSnapshot,
    inner: &Inner,
    (wanted, indexes): (&[(Key, Id)], impl Iterator<Item = usize>),
    mut read: impl FnMut(usize, &[u8], Row<'_>),
) -> Result<()> {
    let mut order: Vec<(Place, usize)> =
        indexes.map(|index| (inner.layout.place(wanted[index].1), index)).collect();
    order.sort_unstable();
    let places: Vec<_> = order.iter().map(|(place, _)| *place).collect();
    let mut damaged = None;
    let mut show = |at: usize, bytes: &[u8]| {
        let index = order[at].1;
        match Row::decode(places[at], bytes) {
            // A row of another key: the entry is stale.
            Ok(row) if row.key == &wanted[index].0[..] => read(index, bytes, row),
            Ok(_) => {}
            Err(error) => damaged = Some(error),
        }
    };
    rows.get_many(&places, &mut show).map_err(|e| store_error("read rows", &e))?;
    damaged.map_or(Ok(()), Err)
}

/// Bounds as owned bytes.
pub(crate) fn owned<K: AsRef<[u8]>>(bounds: &impl RangeBounds<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (owned(bounds.start_bound()), owned(bounds.end_bound()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::range::CHUNK_BYTES;
    use crate::store::model::ModelStore;

    #[test]
    fn a_chunk_of_a_range_takes_a_bounded_number_of_bytes() {
        const VALUE: usize = 300 << 10;
        let (dir, rows) = (tempfile::tempdir().unwrap(), ModelStore::without_history(false));
        let store = Options::new().background(false).open(Box::new(rows), dir.path()).unwrap();
        // Rows lie in the order that is opposite to that of the keys: those for which no memory is left are the first ones.
        for number in (0..40_u8).rev() {
            store.put([number], vec![number; VALUE]).unwrap();
        }
        let (mut snapshot, mut chunk) = (store.snapshot().unwrap(), Chunk::default());
        let all = (Bound::Unbounded, Bound::Unbounded);
        for (direction, counts) in [(Direction::Up, 1..=1), (Direction::Down, 14..=15)] {
            let edge = snapshot.fill(&mut chunk, all, direction, 40).unwrap();
            assert!(edge.is_some());
            assert!(counts.contains(&chunk.len()), "{direction:?}: {} pairs", chunk.len());
            assert!(chunk.bytes_len() < CHUNK_BYTES + 2 * (VALUE + 1), "{} bytes", chunk.bytes_len());
        }
        let pairs: Vec<_> = snapshot.all().map(Result::unwrap).collect();
        assert!(pairs.iter().map(|(key, _)| key[0]).eq(0..40));
    }
}
