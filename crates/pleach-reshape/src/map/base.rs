//! The base of the map: a state of its Pleach store, or a tree in memory.
//!
//! A state has a *half* for each generation whose rows may be there: entries of single keys, and runs. What the newer half says
//! of a key counts; an entry without a row says that the key has none, whatever the older half says.
//!
//! Of keys whose rows had moved when the store was opened, the older half counts for nothing. Their old rows are there and dead;
//! if a new one has gone again, a crash may have lost the entry that said so. Of what moves later, nothing is lost while the
//! store is open.

use std::ops::Bound;
use std::sync::Arc;

use pleach::env::sync::Mutex;
use pleach::{Cursor, Error, ErrorKind, Partition, Result, Snapshot};
use smallvec::SmallVec;

use super::merge::frontier_of;
use super::packed::Packed;
use super::runs::{self, Candidates, Rows};
use super::{Answer, Bounds, Direction, Entries, Key, is_empty};
use crate::ids::{Id, is_behind};

/// From so many entries on, a range says how many it takes, so that they are read at once and in the background: several blocks.
/// For one block or two, which the page cache has mostly, the other thread costs more than the read (measured: 20 us a scan).
const EXPECTED_MIN: usize = 1024;

/// Cursors that a state keeps at most: each pins some blocks.
const CURSORS_MAX: usize = 16;

/// What the layers stand on.
#[derive(Clone)]
pub(crate) enum Base {
    /// A state of the map's store.
    Disk(Arc<Disk>),
    /// All entries, in memory.
    Memory(Packed),
}

/// A state of the map's store.
pub(crate) struct Disk {
    pub(super) snapshot: Snapshot,
    pub(super) half: Half,
    /// The half of the generation before, while its rows move. It counts above this key.
    pub(super) older: Option<(Half, Option<Key>)>,
}

/// What a state has of one generation.
pub(super) struct Half {
    pub(super) singles: Partition,
    /// No single entry is above it. `None`: it is not known.
    pub(super) singles_end: Option<Key>,
    /// `None`: there have been none.
    pub(super) runs: Option<HalfRuns>,
}

/// The runs of a generation, if it has some.
pub(super) struct HalfRuns {
    pub(super) partition: Partition,
    /// No run has keys above it.
    pub(super) end: Key,
    /// Cursors that nobody uses now. To make one takes longer than to move it.
    pub(super) cursors: Mutex<Vec<Cursor>>,
}

/// What entries of the base come from.
#[derive(Clone, Copy)]
pub(super) enum Source<'b> {
    Tree(&'b Packed),
    Singles(&'b Snapshot, &'b Partition),
    Runs(&'b Snapshot, &'b Partition),
}

impl Base {
    pub(super) fn get(&self, key: &[u8], hash: u64) -> Result<Answer> {
        match self {
            Base::Memory(tree) => Ok(Answer::of(tree.get(key), 0)),
            Base::Disk(disk) => {
                let single = disk.half.single(&disk.snapshot, key)?;
                disk.answer(key, hash, single.as_deref())
            }
        }
    }

    /// The same for some keys, with their hashes. Blocks of entries that are not in memory are read at the same time.
    pub(super) fn get_many<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = (&'k [u8], u64)> + Clone,
    ) -> Result<Vec<Answer>> {
        match self {
            Base::Disk(disk) if keys.len() > 1 => {
                let may_be_there = |key: &&[u8]| disk.half.may_have_single(key);
                let wanted = keys.clone().map(|(key, _)| key).filter(may_be_there);
                let mut singles = disk.snapshot.get_many(&disk.half.singles, wanted)?.into_iter();
                let answer = |(key, hash)| {
                    let single = if may_be_there(&key) { singles.next().flatten() } else { None };
                    disk.answer(key, hash, single.as_deref())
                };
                keys.map(answer).collect()
            }
            _ => keys.map(|(key, hash)| self.get(key, hash)).collect(),
        }
    }

    /// What has entries, the newest first, and above which key it counts.
    pub(super) fn sources(&self) -> SmallVec<[(Source<'_>, Option<&Key>); 4]> {
        let disk = match self {
            Base::Memory(tree) => return std::iter::once((Source::Tree(tree), None)).collect(),
            Base::Disk(disk) => disk,
        };
        let newer = disk.half.sources(&disk.snapshot).map(|source| (source, None));
        let older = disk
            .older
            .iter()
            .flat_map(|(half, edge)| half.sources(&disk.snapshot).map(move |source| (source, edge.as_ref())));
        newer.chain(older).collect()
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

impl Half {
    /// Whether there may be a single entry of a key. Inserts in the order of keys ask for keys above all of them.
    fn may_have_single(&self, key: &[u8]) -> bool {
        self.singles_end.as_ref().is_none_or(|end| key <= &end[..])
    }

    fn single(&self, snapshot: &Snapshot, key: &[u8]) -> Result<Option<impl std::ops::Deref<Target = [u8]>>> {
        if self.may_have_single(key) { snapshot.get(&self.singles, key) } else { Ok(None) }
    }

    fn sources<'b>(&'b self, snapshot: &'b Snapshot) -> impl Iterator<Item = Source<'b>> {
        let runs = self.runs.as_ref().map(|runs| Source::Runs(snapshot, &runs.partition));
        std::iter::once(Source::Singles(snapshot, &self.singles)).chain(runs)
    }
}

impl Disk {
    /// What the halves say of a key, of which the newer half has the entry `single`.
    fn answer(&self, key: &[u8], hash: u64, single: Option<&[u8]>) -> Result<Answer> {
        let mut answer = Answer { ids: Candidates::new(), is_sure: true, version: 0 };
        if self.ask(&self.half, (key, hash), single, &mut answer)? {
            return Ok(answer);
        }
        let counts = |edge: &Option<Key>| !is_behind(edge.as_ref(), key);
        if let Some((half, _)) = self.older.as_ref().filter(|(_, edge)| counts(edge)) {
            let single = half.single(&self.snapshot, key)?;
            self.ask(half, (key, hash), single.as_deref(), &mut answer)?;
        }
        Ok(answer)
    }

    /// Adds what a half says of a key to an answer; whether it has an entry for the key.
    fn ask(
        &self,
        half: &Half,
        (key, hash): (&[u8], u64),
        single: Option<&[u8]>,
        answer: &mut Answer,
    ) -> Result<bool> {
        if let Some(single) = single {
            answer.ids.extend(decode_entry(single)?);
        } else if let Some(runs) = half.runs.as_ref().filter(|runs| key <= &runs.end[..]) {
            let kept = runs.cursors.lock().pop();
            let mut cursor = kept.map_or_else(|| self.snapshot.cursor(&runs.partition), Ok)?;
            runs::find(&mut cursor, key, hash, &mut answer.ids)?;
            let mut cursors = runs.cursors.lock();
            if cursors.len() < CURSORS_MAX {
                cursors.push(cursor);
            }
            answer.is_sure = answer.ids.is_empty();
        }
        Ok(single.is_some())
    }
}

impl Source<'_> {
    /// Whether rows have to be read for its entries.
    pub(super) fn has_runs(self) -> bool {
        matches!(self, Source::Runs(..))
    }

    /// A key that none of its entries is above, those of deleted keys included; `None`: it has none. No row is read.
    pub(super) fn upper_end(self) -> Result<Option<Key>> {
        match self {
            Source::Tree(tree) => {
                let mut last = Entries::new();
                tree.collect((Bound::Unbounded, Bound::Unbounded), Direction::Down, 1, &mut last);
                Ok(last.pop().map(|(key, _)| key))
            }
            Source::Singles(snapshot, singles) => {
                let mut range = snapshot.range::<&[u8]>(singles, ..);
                Ok(range.next_back_entry()?.map(|(key, _)| Key::from_slice(key)))
            }
            Source::Runs(snapshot, runs) => runs::upper_end(snapshot, runs),
        }
    }

    /// Appends up to `limit` entries of a range, from one end, and returns up to which key these are all; `None`: the range has
    /// no more.
    pub(super) fn collect(
        self,
        rows: &mut Rows<'_>,
        bounds: Bounds<'_>,
        direction: Direction,
        limit: usize,
        out: &mut Entries,
    ) -> Result<Option<Key>> {
        if is_empty(bounds) {
            return Ok(None);
        }
        let (snapshot, singles) = match self {
            Source::Tree(tree) => {
                let is_end = tree.collect(bounds, direction, limit, out);
                return Ok(frontier_of(out, is_end));
            }
            Source::Runs(snapshot, runs) => {
                return runs::collect((snapshot, runs), rows, bounds, direction, limit, out);
            }
            Source::Singles(snapshot, singles) => (snapshot, singles),
        };
        let range = snapshot.range::<&[u8]>(singles, bounds);
        let mut range = if limit < EXPECTED_MIN { range } else { range.expect_entries(limit as u64) };
        for _ in 0..limit {
            let entry = match direction {
                Direction::Up => range.next_entry()?,
                Direction::Down => range.next_back_entry()?,
            };
            let Some((key, value)) = entry else { return Ok(None) };
            out.push((Key::from_slice(key), decode_entry(value)?));
        }
        Ok(frontier_of(out, false))
    }
}

/// Fewest bytes of a sequence in an entry. With values of one length the partition stores its entries in columns, which take
/// half as many bytes.
const SEQUENCE_LEN_MIN: usize = 4;

/// Generation and stripe in the first byte, then the sequence without the zeros at its upper end, but at least four bytes of it.
pub(super) fn encode_id(id: Id) -> impl AsRef<[u8]> {
    let [sequence @ .., upper] = id.0.to_le_bytes();
    let len = sequence.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1).max(SEQUENCE_LEN_MIN);
    let mut bytes = SmallVec::<[u8; 8]>::new();
    bytes.push(upper);
    bytes.extend_from_slice(&sequence[..len]);
    bytes
}

/// The value of an entry. An empty one says that its key has no row.
fn decode_entry(bytes: &[u8]) -> Result<Option<Id>> {
    if bytes.is_empty() { Ok(None) } else { decode_id(bytes).map(Some) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_entries_come_back() {
        assert_eq!(encode_id(Id::new(1, 3, 300)).as_ref(), [0x83, 0x2c, 0x01, 0, 0]);
        let ids =
            [Id::new(0, 0, 1), Id::new(1, 127, 255), Id::new(0, 3, 1 << 32), Id::new(1, 0, (1 << 56) - 1)];
        for (id, len) in ids.into_iter().zip([5, 5, 6, 8]) {
            let bytes = encode_id(id);
            assert_eq!(bytes.as_ref().len(), len);
            assert_eq!(decode_id(bytes.as_ref()).unwrap(), id);
        }
        assert_eq!(decode_id(&[0x83, 0x2c, 0x01]).unwrap(), Id::new(1, 3, 300), "of an older build");
        for bytes in [&[][..], &[1], &[0; 9]] {
            assert!(decode_id(bytes).is_err());
        }
    }
}
