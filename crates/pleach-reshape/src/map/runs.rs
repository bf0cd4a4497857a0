//! Runs: one entry of the map for neighbouring keys whose rows have ids in a row.
//!
//! A recluster writes rows in the order of their keys, so ids say the order of keys there, and the rows have the keys. A run
//! keeps the first and the last key of a few such rows, the id of the first, and 16 bits of the hash of each key, its
//! *fingerprint*. They say which of the rows may have a key. Whether it has, the row itself says.
//!
//! So a key takes some 5 bytes instead of 24, and most keys that are not there cost no read of a row: one in 4000 does.
//!
//! # Invariants
//! 1. Apart: the key ranges of two runs of a generation do not overlap.
//! 2. Live: a row of a run that is in the store is the row of its key, unless an entry of that key, a run of the next generation
//!    or the edge says otherwise. So whoever replaces or deletes a row of the stripe of moves removes it in the same transaction.
//!
//! # On disk
//! Layout: docs/format/reshaped-rows.md. This module owns the bytes.

use std::ops::Bound;

use pleach::{Error, ErrorKind, Partition, Range, Result, Snapshot};
use pleach_coding::{Decoder, common_prefix_len, put_varint};
use smallvec::SmallVec;

use super::{Bounds, Direction, Entries, Key, key_hash};
use crate::ids::{Id, Layout};
use crate::named::store_error;
use crate::row::Row;
use crate::store::{Place, RowSnapshot};

/// Rows of a run at most. A scan that begins inside a run reads its earlier rows too; a run costs some 45 bytes besides its
/// fingerprints.
const ROWS_MAX: usize = 16;
/// Rows of a run at least. Fewer take less as entries.
const ROWS_MIN: usize = 6;
const FINGERPRINT_LEN: usize = 2;

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: Key,
    last: Key,
    id: Id,
    fingerprints: SmallVec<[u8; FINGERPRINT_LEN * ROWS_MAX]>,
}

/// Ids that may be a key's.
pub(crate) type Candidates = SmallVec<[Id; 1]>;

fn fingerprint(hash: u64) -> [u8; FINGERPRINT_LEN] {
    // Shards and filters of layers use other bits too, but of other keys.
    let [first, second, ..] = (hash >> 16).to_le_bytes();
    [first, second]
}

fn damaged() -> Error {
    Error::new(ErrorKind::Corruption, "a run of the map has bytes that are not possible")
}

impl Run {
    /// The run of rows with these keys, ascending, the first of which has this id.
    fn new<'k>(id: Id, mut keys: impl Iterator<Item = &'k Key>) -> Option<Self> {
        let first = keys.next()?;
        let mut run = Self {
            first: first.clone(),
            last: first.clone(),
            id,
            fingerprints: SmallVec::from_slice(&fingerprint(key_hash(first))),
        };
        for key in keys {
            run.fingerprints.extend_from_slice(&fingerprint(key_hash(key)));
            run.last.clone_from(key);
        }
        Some(run)
    }

    /// The value under its first key.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.fingerprints.len() + self.last.len() + 16);
        let prefix_len = common_prefix_len(&self.first, &self.last);
        let [.., upper] = self.id.0.to_le_bytes();
        bytes.push(upper);
        put_varint(&mut bytes, self.id.sequence());
        put_varint(&mut bytes, self.len() as u64);
        bytes.extend_from_slice(&self.fingerprints);
        put_varint(&mut bytes, prefix_len as u64);
        bytes.extend_from_slice(&self.last[prefix_len..]);
        bytes
    }

    pub(super) fn decode(first: &[u8], value: &[u8]) -> Result<Self> {
        Self::parse(first, value).ok_or_else(damaged)
    }

    fn parse(first: &[u8], value: &[u8]) -> Option<Self> {
        let (upper, rest) = value.split_first()?;
        let mut decoder = Decoder(rest);
        let sequence = decoder.varint()?;
        let count = usize::try_from(decoder.varint()?).ok()?;
        let id = Id(u64::from(*upper) << 56 | sequence);
        if sequence >> 56 != 0 || !(1..=ROWS_MAX).contains(&count) {
            return None;
        }
        let (fingerprints, rest) = decoder.0.split_at_checked(count * FINGERPRINT_LEN)?;
        let mut decoder = Decoder(rest);
        let prefix = first.get(..usize::try_from(decoder.varint()?).ok()?)?;
        let mut last = Key::from_slice(prefix);
        last.extend_from_slice(decoder.0);
        let run = Self {
            first: Key::from_slice(first),
            last,
            id,
            fingerprints: SmallVec::from_slice(fingerprints),
        };
        (run.first <= run.last).then_some(run)
    }

    fn len(&self) -> usize {
        self.fingerprints.len() / FINGERPRINT_LEN
    }

    /// Appends the ids of the rows that may have a key.
    fn find(&self, key: &[u8], hash: u64, out: &mut Candidates) {
        if !(&self.first[..]..=&self.last[..]).contains(&key) {
            return;
        }
        let wanted = fingerprint(hash);
        let (fingerprints, _) = self.fingerprints.as_chunks::<FINGERPRINT_LEN>();
        let matching = (0u64..).zip(fingerprints).filter(|(_, found)| **found == wanted);
        out.extend(matching.map(|(position, _)| Id(self.id.0 + position)));
    }
}

/// What some entries become: runs, and which of the entries are in them.
pub(super) struct Formed {
    pub(super) runs: Vec<Run>,
    /// For each entry: the index of its run.
    pub(super) of: Vec<Option<usize>>,
}

/// Forms runs of entries, which ascend, whose ids follow one another. Other entries may lie between them. Only entries for which
/// `may_run` count.
pub(super) fn form(entries: &[(Key, Option<Id>)], may_run: impl Fn(Id) -> bool) -> Formed {
    let mut formed = Formed { runs: Vec::new(), of: vec![None; entries.len()] };
    let mut open: Vec<usize> = Vec::new();
    let id_at = |index: usize| entries[index].1;
    for index in 0..entries.len() {
        let Some(id) = id_at(index).filter(|id| may_run(*id)) else { continue };
        let before = open.last().and_then(|last| id_at(*last));
        if open.len() == ROWS_MAX || before.is_some_and(|before| before.0 + 1 != id.0) {
            formed.close(entries, &mut open);
        }
        open.push(index);
    }
    formed.close(entries, &mut open);
    formed
}

impl Formed {
    fn close(&mut self, entries: &[(Key, Option<Id>)], open: &mut Vec<usize>) {
        if open.len() >= ROWS_MIN
            && let Some(id) = entries[open[0]].1
            && let Some(run) = Run::new(id, open.iter().map(|index| &entries[*index].0))
        {
            for index in &*open {
                self.of[*index] = Some(self.runs.len());
            }
            self.runs.push(run);
        }
        open.clear();
    }
}

/// The run that begins last at or below a key.
fn floor(range: &mut Range) -> Result<Option<Run>> {
    range.next_back_entry()?.map(|(first, value)| Run::decode(first, value)).transpose()
}

/// Whether a run overlaps another one of a partition. A checkpoint that is tried again finds its own.
pub(super) fn overlaps(runs: &Partition, run: &Run) -> Result<bool> {
    let mut range = runs.range::<&[u8]>((Bound::Unbounded, Bound::Included(&run.last[..])));
    Ok(floor(&mut range)?.is_some_and(|other| other.last >= run.first && other != *run))
}

/// Appends the ids of rows that may have a key.
pub(super) fn find(
    snapshot: &Snapshot,
    runs: &Partition,
    key: &[u8],
    hash: u64,
    out: &mut Candidates,
) -> Result<()> {
    let mut range = snapshot.range::<&[u8]>(runs, (Bound::Unbounded, Bound::Included(key)));
    if let Some(run) = floor(&mut range)? {
        run.find(key, hash, out);
    }
    Ok(())
}

/// The rows of a moment, which have the keys of runs.
pub(crate) struct Rows<'r> {
    pub(crate) rows: &'r mut dyn RowSnapshot,
    pub(crate) layout: Layout,
}

impl Rows<'_> {
    /// Shows ids and keys of rows from an id on, until `visit` returns false.
    fn keys(&mut self, id: Id, count: u64, visit: &mut dyn FnMut(Id, &[u8]) -> bool) -> Result<()> {
        let place = self.layout.place(id);
        let mut failure = None;
        let mut show = |at: u64, bytes: &[u8]| {
            let at_place = Place { table: place.table, id: at };
            match Row::decode(at_place, bytes) {
                Ok(row) if row.value.is_some() => visit(Id(id.0 + (at - place.id)), row.key),
                Ok(_) => true,
                Err(error) => {
                    failure = Some(error);
                    false
                }
            }
        };
        let scanned = self.rows.scan(place.table, place.id, place.id + count - 1, &mut show);
        scanned.map_err(|e| store_error("read rows", &e))?;
        failure.map_or(Ok(()), Err)
    }
}

/// Rows with ids that follow one another.
struct Stretch {
    id: Id,
    count: u64,
}

/// Appends up to `limit` entries of a range, from one end, and returns whether there are no more.
pub(super) fn collect(
    (snapshot, runs): (&Snapshot, &Partition),
    rows: &mut Rows<'_>,
    bounds: Bounds<'_>,
    direction: Direction,
    limit: usize,
    out: &mut Entries,
) -> Result<bool> {
    let wanted = out.len() + limit;
    let begin = begin_of(snapshot, runs, bounds.0)?;
    let begin = begin.as_deref().map_or(Bound::Unbounded, Bound::Included);
    let mut range = snapshot.range::<&[u8]>(runs, (begin, bounds.1));
    loop {
        let (stretches, is_end) = next_stretches(&mut range, direction, wanted - out.len())?;
        for stretch in stretches {
            let start = out.len();
            let stops_at = if direction == Direction::Up { wanted } else { usize::MAX };
            let mut is_enough = false;
            rows.keys(stretch.id, stretch.count, &mut |id, key| {
                if is_inside(bounds, key) {
                    is_enough = out.len() == stops_at;
                    if !is_enough {
                        out.push((Key::from_slice(key), Some(id)));
                    }
                }
                !is_enough
            })?;
            if direction == Direction::Down {
                out[start..].reverse();
                is_enough = out.len() > wanted;
                out.truncate(wanted);
            }
            if is_enough {
                return Ok(false);
            }
        }
        if is_end {
            return Ok(true);
        }
        if out.len() == wanted {
            return Ok(false);
        }
    }
}

/// The first key of the run that the lower end of a range is in, or the lower end.
fn begin_of(snapshot: &Snapshot, runs: &Partition, lower: Bound<&[u8]>) -> Result<Option<Key>> {
    let (Bound::Included(key) | Bound::Excluded(key)) = lower else { return Ok(None) };
    let mut range = snapshot.range::<&[u8]>(runs, (Bound::Unbounded, Bound::Included(key)));
    Ok(Some(floor(&mut range)?.map_or_else(|| Key::from_slice(key), |run| run.first)))
}

/// The rows of the next runs, from one end, `wanted` and those of one run more; and whether there are no more.
fn next_stretches(range: &mut Range, direction: Direction, wanted: usize) -> Result<(Vec<Stretch>, bool)> {
    let (mut stretches, mut count) = (Vec::<Stretch>::new(), 0);
    while count < wanted + ROWS_MAX {
        let entry = match direction {
            Direction::Up => range.next_entry()?,
            Direction::Down => range.next_back_entry()?,
        };
        let Some((first, value)) = entry else { return Ok((stretches, true)) };
        let run = Run::decode(first, value)?;
        let len = run.len() as u64;
        count += run.len();
        match stretches.last_mut() {
            Some(last) if direction == Direction::Up && last.id.0 + last.count == run.id.0 => {
                last.count += len;
            }
            Some(last) if direction == Direction::Down && run.id.0 + len == last.id.0 => {
                (last.id, last.count) = (run.id, last.count + len);
            }
            _ => stretches.push(Stretch { id: run.id, count: len }),
        }
    }
    Ok((stretches, false))
}

fn is_inside(bounds: Bounds<'_>, key: &[u8]) -> bool {
    std::ops::RangeBounds::<[u8]>::contains(&bounds, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::from_slice(format!("key {number:04}").as_bytes())
    }

    fn entries(ids: &[u64]) -> Entries {
        (0..).zip(ids).map(|(number, id)| (key(number), (*id > 0).then_some(Id(*id)))).collect()
    }

    #[test]
    fn runs_come_back_and_find_their_keys() {
        let entries = entries(&(300..300 + ROWS_MAX as u64).collect::<Vec<_>>());
        let formed = form(&entries, |_| true);
        let [run] = &formed.runs[..] else { panic!("one run") };
        let bytes = run.encode();
        assert_eq!(Run::decode(&run.first, &bytes).unwrap(), *run);
        for (key, id) in &entries {
            let mut found = Candidates::new();
            run.find(key, key_hash(key), &mut found);
            assert!(found.contains(&id.unwrap()));
        }
        let mut found = Candidates::new();
        run.find(b"key 0", key_hash(&entries[1].0), &mut found);
        run.find(b"key 9", key_hash(&entries[1].0), &mut found);
        assert!(found.is_empty(), "below and above");
        for at in 0..bytes.len() - 1 {
            assert!(Run::decode(&run.first, &bytes[..at]).is_err() || at > bytes.len() - 3);
        }
        assert!(Run::decode(b"z", &bytes).is_err(), "it ends before it begins");
    }

    #[test]
    fn bytes_are_those_of_the_format_page() {
        let entries =
            (0..6).map(|number| (key(number), Some(Id::new(0, 1, 300 + number)))).collect::<Entries>();
        let bytes = form(&entries, |_| true).runs[0].encode();
        let fingerprints = [0xb5, 0xa2, 0x3f, 0x1e, 0xa5, 0x9a, 0xc6, 0xf2, 0xa3, 0x85, 0xe7, 0x0b];
        assert_eq!(bytes, [&[0x01, 0xac, 0x02, 0x06][..], &fingerprints, &[0x07, 0x35]].concat());
    }

    #[test]
    fn only_ids_in_a_row_form_runs_and_others_may_lie_between() {
        let mut ids: Vec<u64> = (10..10 + ROWS_MIN as u64).collect();
        ids.insert(2, 900);
        ids.insert(3, 0);
        ids.push(50);
        ids.extend(100..100 + ROWS_MIN as u64 - 1);
        let formed = form(&entries(&ids), |id| id.0 != 0);
        // 900 breaks the row, unless it may not run.
        assert!(formed.runs.is_empty());
        let formed = form(&entries(&ids), |id| id.0 < 900);
        assert_eq!(formed.runs.len(), 1);
        let inside: Vec<_> = (0..ids.len()).filter(|index| formed.of[*index] == Some(0)).collect();
        assert_eq!(inside, [0, 1, 4, 5, 6, 7]);
        let long = form(&entries(&(1..=2 * ROWS_MAX as u64 + 1).collect::<Vec<_>>()), |_| true);
        assert_eq!(long.runs.len(), 2, "the rest is too short");
    }
}
