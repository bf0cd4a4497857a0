//! The base of the map, and the Pleach store that keeps it.
//!
//! The partition `map` has an entry for each key, the default partition the records of the checkpoint.
//!
//! # On disk
//! Layout: docs/format/reshaped-rows.md.

use std::path::Path;
use std::sync::Arc;

use pleach::env::Env;
use pleach::{Db, Durability, Error, ErrorKind, Partition, Result, Snapshot};

use super::packed::Packed;
use super::records::{CHECKPOINT, ENDS, Record};
use super::{Bounds, Direction, Key, is_empty};
use crate::ids::Id;

/// The name of the partition with the entries.
const MAP: &str = "map";
/// Entries of a write batch: few enough for its memory not to count.
pub(crate) const BATCH_ENTRIES: usize = 4096;

/// From so many entries on, a range says how many it takes, so that they are read at once and in the background: several blocks.
/// For one block or two, which the page cache has mostly, the other thread costs more than the read (measured: 20 us a scan).
const EXPECTED_MIN: usize = 1024;

/// What the layers stand on.
#[derive(Clone)]
pub(crate) enum Base {
    /// A state of the partition.
    Disk { partition: Partition, snapshot: Snapshot },
    /// The same in memory.
    Memory(Packed),
}

impl Base {
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Id>> {
        match self {
            Base::Memory(tree) => Ok(tree.get(key)),
            Base::Disk { partition, snapshot } => {
                snapshot.get(partition, key)?.map(|value| decode_id(&value)).transpose()
            }
        }
    }

    /// The same for some keys. Blocks that are not in memory are read at the same time.
    pub(super) fn get_many<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
    ) -> Result<Vec<Option<Id>>> {
        match self {
            Base::Disk { partition, snapshot } if keys.len() > 1 => {
                let values = snapshot.get_many(partition, keys)?;
                values.iter().map(|value| value.as_deref().map(decode_id).transpose()).collect()
            }
            _ => keys.map(|key| self.get(key)).collect(),
        }
    }

    /// Appends up to `limit` entries of a range, from one end, and returns whether there are no more.
    pub(super) fn collect(
        &self,
        bounds: Bounds<'_>,
        direction: Direction,
        limit: usize,
        out: &mut Vec<(Key, Option<Id>)>,
    ) -> Result<bool> {
        if is_empty(bounds) {
            return Ok(true);
        }
        let (partition, snapshot) = match self {
            Base::Memory(tree) => return Ok(tree.collect(bounds, direction, limit, out)),
            Base::Disk { partition, snapshot } => (partition, snapshot),
        };
        let range = snapshot.range::<&[u8]>(partition, bounds);
        let mut range = if limit < EXPECTED_MIN { range } else { range.expect_entries(limit as u64) };
        for _ in 0..limit {
            let entry = match direction {
                Direction::Up => range.next_entry()?,
                Direction::Down => range.next_back_entry()?,
            };
            let Some((key, value)) = entry else { return Ok(true) };
            out.push((Key::from_slice(key), Some(decode_id(value)?)));
        }
        Ok(false)
    }

    /// Bytes in memory, if it is there.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Base::Memory(tree) => tree.bytes(),
            Base::Disk { .. } => 0,
        }
    }

    /// The base with further entries, if it is in memory.
    pub(crate) fn apply(&self, entries: &[(Key, Option<Id>)]) -> Option<Self> {
        match self {
            Base::Memory(tree) => Some(Base::Memory(tree.apply(entries))),
            Base::Disk { .. } => None,
        }
    }
}

/// Generation and stripe in the first byte, then the sequence without the zeros at its upper end.
fn encode_id(id: Id) -> impl AsRef<[u8]> {
    let [sequence @ .., upper] = id.0.to_le_bytes();
    let len = sequence.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut bytes = smallvec::SmallVec::<[u8; 8]>::new();
    bytes.push(upper);
    bytes.extend_from_slice(&sequence[..len]);
    bytes
}

fn decode_id(bytes: &[u8]) -> Result<Id> {
    let mut whole = [0; 8];
    match bytes {
        [upper, sequence @ ..] if (1..8).contains(&sequence.len()) => {
            whole[..sequence.len()].copy_from_slice(sequence);
            whole[7] = *upper;
            Ok(Id(u64::from_le_bytes(whole)))
        }
        _ => Err(Error::new(ErrorKind::Corruption, "an entry of the map has a place that is not possible")),
    }
}

/// The Pleach store of the map.
pub(crate) struct MapStore {
    db: Db,
    records: Partition,
    map: Partition,
}

impl MapStore {
    pub(crate) fn open(env: &Arc<dyn Env>, dir: &Path, options: pleach::Options) -> Result<Self> {
        let db = options.env(Arc::clone(env)).open(dir)?;
        let (records, map) = (db.default_partition(), db.partition(MAP)?);
        Ok(Self { db, records, map })
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
        self.db.drop_partition(self.map.clone())?;
        self.map = self.db.partition(MAP)?;
        Ok(())
    }

    /// Writes what the ids of entries that follow are below. The log keeps the order, so no entry is there without it.
    pub(crate) fn write_ends(&self, ends: &Record) -> Result<()> {
        self.records.put(ENDS, ends.encode(ENDS))
    }

    pub(crate) fn write_entries(&self, entries: &[(Key, Option<Id>)]) -> Result<()> {
        let mut batch = self.db.batch();
        for (key, id) in entries {
            match id {
                Some(id) => batch.put(&self.map, key, encode_id(*id)),
                None => batch.delete(&self.map, key),
            }
        }
        batch.commit(Durability::Buffered)
    }

    /// Ends a checkpoint: after this, it and all entries before are durable.
    pub(crate) fn write_checkpoint(&self, checkpoint: &Record) -> Result<()> {
        self.records.put_with(CHECKPOINT, checkpoint.encode(CHECKPOINT), Durability::Sync)
    }

    /// The base as the partition is now.
    pub(crate) fn base(&self) -> Base {
        Base::Disk { partition: self.map.clone(), snapshot: self.db.snapshot() }
    }

    /// The base as the partition is now, in memory.
    pub(crate) fn load(&self) -> Result<Base> {
        let mut tree = Packed::default();
        let mut entries = Vec::with_capacity(BATCH_ENTRIES);
        let mut range = self.map.iter();
        while let Some((key, value)) = range.next_entry()? {
            entries.push((Key::from_slice(key), Some(decode_id(value)?)));
            if entries.len() == BATCH_ENTRIES {
                tree = tree.apply(&entries);
                entries.clear();
            }
        }
        Ok(Base::Memory(tree.apply(&entries)))
    }

    pub(crate) fn db(&self) -> &Db {
        &self.db
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_entries_come_back() {
        assert_eq!(encode_id(Id::new(1, 3, 300)).as_ref(), [0x83, 0x2c, 0x01]);
        let ids = [Id::new(0, 0, 1), Id::new(1, 127, 255), Id::new(0, 3, 256), Id::new(1, 0, (1 << 56) - 1)];
        for (id, len) in ids.into_iter().zip([2, 2, 3, 8]) {
            let bytes = encode_id(id);
            assert_eq!(bytes.as_ref().len(), len);
            assert_eq!(decode_id(bytes.as_ref()).unwrap(), id);
        }
        for bytes in [&[][..], &[1], &[0; 9]] {
            assert!(decode_id(bytes).is_err());
        }
    }
}
