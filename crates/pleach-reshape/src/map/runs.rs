//! Runs: one entry of the map for neighbouring keys whose rows have ids in a row.
//!
//! A recluster writes rows in the order of their keys, and so does a writer whose keys come in order. There ids say the order of
//! keys, and the rows have the keys. A run keeps the first and the last key of a few such rows, the id of the first, and 16 bits
//! of the hash of each key, its *fingerprint*. They say which of the rows may have a key. Whether it has, the row itself says.
//!
//! So a key takes some 3 bytes instead of 24, and most keys that are not there cost no read of a row: one in 1000 does.
//!
//! # Invariants
//! 1. Apart: the key ranges of two runs of a generation do not overlap.
//! 2. Live: a row of a run that is in the store is the row of its key, unless an entry of that key, a run of the next generation
//!    or the edge says otherwise. So whoever replaces or deletes a row that may be in a run removes it in the same transaction.
//! 3. Dead: a run goes only if it is durable that all its rows have gone, and published what has become of their keys.
//! 4. Singles: when a run is written, no single entry of its generation is left of its keys.
//!
//! # On disk
//! Layout: docs/format/reshaped-rows.md. This module owns the bytes.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Bound;

use pleach::{Cursor, Error, ErrorKind, Partition, Range, Result, Snapshot};
use pleach_coding::{Decoder, common_prefix_len, put_varint};
use smallvec::SmallVec;

use super::{Bounds, Direction, Entries, Key, SealedRows, key_hash};
use crate::ids::{Id, Layout};
use crate::named::store_error;
use crate::row::Row;
use crate::store::{Place, RowSnapshot};

/// Rows of a run at most. A run costs some 45 bytes besides its fingerprints; a key that is not there costs a read of a row with
/// a probability that grows with the rows.
const ROWS_MAX: usize = 64;
/// A search in a run for the lower end of a range ends at so many rows: to pass them costs less than another look.
const SEARCHED_MIN: u64 = 8;
/// A range visits so many rows of runs, beyond those that are wanted, before it asks other sources what they have there.
const VISITED_MAX: u64 = 1024;
/// Rows of a run at least. Fewer take less as entries.
const ROWS_MIN: usize = 6;
const FINGERPRINT_LEN: usize = 2;

/// So many runs, at most, go for one that is written over them.
pub(super) const OVERLAPPED_MAX: usize = 64;

/// A run, whose bytes may be lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run<'b> {
    pub(super) first: Key,
    pub(super) last: Key,
    id: Id,
    fingerprints: Cow<'b, [u8]>,
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

impl<'b> Run<'b> {
    /// The run of rows with these keys, ascending, the first of which has this id.
    fn new<'k>(id: Id, mut keys: impl Iterator<Item = &'k Key>) -> Option<Self> {
        let first = keys.next()?;
        let (mut last, mut fingerprints) = (first, fingerprint(key_hash(first)).to_vec());
        for key in keys {
            fingerprints.extend_from_slice(&fingerprint(key_hash(key)));
            last = key;
        }
        Some(Self { first: first.clone(), last: last.clone(), id, fingerprints: fingerprints.into() })
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

    pub(super) fn decode(first: &[u8], value: &'b [u8]) -> Result<Self> {
        Self::parse(first, value).ok_or_else(damaged)
    }

    fn parse(first: &[u8], value: &'b [u8]) -> Option<Self> {
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
        let run = Self { first: Key::from_slice(first), last, id, fingerprints: fingerprints.into() };
        (run.first <= run.last).then_some(run)
    }

    fn len(&self) -> usize {
        self.fingerprints.len() / FINGERPRINT_LEN
    }

    /// Whether a row of it is there. What cannot be read is taken for one: damage is an error of who needs it.
    pub(super) fn is_live(&self, rows: &mut SealedRows<'_>) -> bool {
        rows.has_rows(self.id, self.len() as u64).unwrap_or(true)
    }

    fn into_owned(self) -> Run<'static> {
        let fingerprints = Cow::Owned(self.fingerprints.into_owned());
        Run { first: self.first, last: self.last, id: self.id, fingerprints }
    }

    /// Appends the ids of the rows that may have a key, which is between the first and the last one.
    fn find(&self, key: &[u8], hash: u64, out: &mut Candidates) {
        if !(&self.first[..]..=&self.last[..]).contains(&key) {
            return;
        }
        out.extend(self.positions(hash).map(|position| Id(self.id.0 + position)));
    }

    /// Positions of the rows whose keys may have a hash.
    fn positions(&self, hash: u64) -> impl Iterator<Item = u64> {
        let wanted = fingerprint(hash);
        let (fingerprints, _) = self.fingerprints.as_chunks::<FINGERPRINT_LEN>();
        (0..).zip(fingerprints).filter(move |(_, found)| **found == wanted).map(|(position, _)| position)
    }
}

/// What some entries become: runs, and which of the entries are in them.
#[derive(Default)]
pub(super) struct Formed {
    pub(super) runs: Vec<Run<'static>>,
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
    /// Whether an entry is in a run.
    pub(super) fn has(&self, index: usize) -> bool {
        self.of[index].is_some()
    }

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
fn floor(range: &mut Range) -> Result<Option<Run<'_>>> {
    range.next_back_entry()?.map(|(first, value)| Run::decode(first, value)).transpose()
}

/// The last key of the last run.
pub(super) fn upper_end(snapshot: &Snapshot, runs: &Partition) -> Result<Option<Key>> {
    let mut range = snapshot.range::<&[u8]>(runs, ..);
    Ok(floor(&mut range)?.map(|run| run.last))
}

/// The other runs of a partition that a run overlaps, or [`OVERLAPPED_MAX`] of them and one more. A checkpoint that is tried
/// again finds its own, which does not count.
pub(super) fn overlapped(runs: &Partition, run: &Run<'_>) -> Result<Vec<Run<'static>>> {
    let mut range = runs.range::<&[u8]>((Bound::Unbounded, Bound::Included(&run.last[..])));
    let mut found = Vec::new();
    while found.len() <= OVERLAPPED_MAX
        && let Some(other) = floor(&mut range)?.filter(|other| other.last >= run.first)
    {
        if other != *run {
            found.push(other.into_owned());
        }
    }
    Ok(found)
}

/// The run that may have a key, if there is one.
pub(super) fn find_run<'c>(cursor: &'c mut Cursor, key: &[u8]) -> Result<Option<Run<'c>>> {
    if !cursor.seek_for_prev(key)? {
        return Ok(None);
    }
    match (cursor.key(), cursor.value()?) {
        (Some(first), Some(value)) => Ok(Some(Run::decode(first, value)?).filter(|run| key <= &run.last[..])),
        _ => Ok(None),
    }
}

/// Appends the ids of rows that may have a key.
pub(super) fn find(cursor: &mut Cursor, key: &[u8], hash: u64, out: &mut Candidates) -> Result<()> {
    if let Some(run) = find_run(cursor, key)? {
        run.find(key, hash, out);
    }
    Ok(())
}

/// The rows of a moment, which have the keys of runs.
pub(crate) struct Rows<'r> {
    pub(crate) snapshot: &'r mut dyn RowSnapshot,
    pub(crate) layout: Layout,
    /// Is shown the rows that entries of runs were read from, so that nobody need read them again.
    pub(crate) seen: &'r mut dyn FnMut(Id, &Row<'_>),
}

impl Rows<'_> {
    /// Shows rows from an id on, until `visit` returns false. `visit` gets `seen`, too.
    fn scan(
        &mut self,
        id: Id,
        count: u64,
        mut visit: impl FnMut(&mut dyn FnMut(Id, &Row<'_>), Id, &Row<'_>) -> bool,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let Self { snapshot, layout, seen } = self;
        let place = layout.place(id);
        let mut failure = None;
        let mut show = |at: u64, bytes: &[u8]| {
            let at_place = Place { table: place.table, id: at };
            match Row::decode(at_place, bytes) {
                Ok(row) if row.value.is_some() => visit(seen, Id(id.0 + (at - place.id)), &row),
                Ok(_) => true,
                Err(error) => {
                    failure = Some(error);
                    false
                }
            }
        };
        let scanned = snapshot.scan(place.table, place.id, place.id + count - 1, &mut show);
        scanned.map_err(|e| store_error("read rows", &e))?;
        failure.map_or(Ok(()), Err)
    }

    /// How many rows at the begin of a run may be passed by, because their keys are below the lower end of a range.
    fn passed(&mut self, run: &Run<'_>, lower: Bound<&[u8]>) -> Result<u64> {
        let (Bound::Included(lower) | Bound::Excluded(lower)) = lower else { return Ok(0) };
        let (mut from, mut to) = (0, run.len() as u64);
        if lower <= &run.first[..] {
            return Ok(0);
        }
        if lower > &run.last[..] {
            return Ok(to);
        }
        // If the key is there, this is its row, unless another one has its fingerprint.
        let mut probe = run.positions(key_hash(lower)).next();
        while to - from > SEARCHED_MIN {
            let at = probe.take().unwrap_or(from.midpoint(to));
            let mut next = None;
            self.scan(Id(run.id.0 + at), to - at, |_, id, row| {
                next = Some((id.0 - run.id.0, row.key.cmp(lower)));
                false
            })?;
            match next {
                Some((at, Ordering::Equal)) => return Ok(at),
                Some((at, Ordering::Less)) => from = at + 1,
                // Rows from `at` to that one are gone.
                Some((_, Ordering::Greater)) | None => to = at,
            }
        }
        Ok(from)
    }
}

/// Rows with ids that follow one another.
struct Stretch {
    id: Id,
    count: u64,
}

/// Appends up to `limit` entries of a range, from one end, and returns up to which key these are all; `None`: the range has no
/// more. It stops early where most rows of runs are gone, and other sources may have what is wanted.
pub(super) fn collect(
    (snapshot, runs): (&Snapshot, &Partition),
    rows: &mut Rows<'_>,
    bounds: Bounds<'_>,
    direction: Direction,
    limit: usize,
    out: &mut Entries,
) -> Result<Option<Key>> {
    let wanted = out.len() + limit;
    let mut cursor = snapshot.cursor(runs)?;
    seek(&mut cursor, bounds, direction)?;
    let mut visited = 0;
    loop {
        let (stretches, reached) = next_stretches(&mut cursor, rows, bounds, direction, wanted - out.len())?;
        for stretch in stretches {
            visited += stretch.count;
            let is_enough = match direction {
                Direction::Up => collect_up(rows, &stretch, bounds, wanted, out)?,
                Direction::Down => collect_down(rows, &stretch, bounds, wanted, out)?,
            };
            if is_enough {
                return Ok(out.last().map(|(key, _)| key.clone()));
            }
        }
        if reached.is_none() || out.len() == wanted || visited >= limit as u64 + VISITED_MAX {
            return Ok(reached);
        }
    }
}

/// Appends the entries of a stretch that are in a range. Whether there are more than are `wanted` in all.
fn collect_up(
    rows: &mut Rows<'_>,
    stretch: &Stretch,
    bounds: Bounds<'_>,
    wanted: usize,
    out: &mut Entries,
) -> Result<bool> {
    let mut is_enough = false;
    rows.scan(stretch.id, stretch.count, |seen, id, row| {
        if is_above(row.key, bounds.1) {
            return false;
        }
        is_enough = out.len() == wanted;
        if !is_enough && !is_below(row.key, bounds.0) {
            out.push((Key::from_slice(row.key), Some(id)));
            seen(id, row);
        }
        !is_enough
    })?;
    Ok(is_enough)
}

/// As [`collect_up`], from the upper end. Stores show rows upwards, so it reads one part after the other, each about as long as
/// what is wanted.
fn collect_down(
    rows: &mut Rows<'_>,
    stretch: &Stretch,
    bounds: Bounds<'_>,
    wanted: usize,
    out: &mut Entries,
) -> Result<bool> {
    let (mut left, mut part_len) = (stretch.count, 0);
    while left > 0 {
        // Twice as many if those before were gone.
        part_len =
            (wanted.saturating_sub(out.len()) as u64 + 1).max(SEARCHED_MIN).max(2 * part_len).min(left);
        left -= part_len;
        let start = out.len();
        rows.scan(Id(stretch.id.0 + left), part_len, |seen, id, row| {
            let is_inside = !is_above(row.key, bounds.1);
            if is_inside && !is_below(row.key, bounds.0) {
                out.push((Key::from_slice(row.key), Some(id)));
                seen(id, row);
            }
            is_inside
        })?;
        if out.len() > start {
            part_len = 0;
        }
        out[start..].reverse();
        if out.len() > wanted {
            out.truncate(wanted);
            return Ok(true);
        }
    }
    Ok(false)
}

/// Moves to the first run, from one end, that may have keys of a range.
fn seek(cursor: &mut Cursor, bounds: Bounds<'_>, direction: Direction) -> Result<()> {
    let begin = if direction == Direction::Up { bounds.0 } else { bounds.1 };
    let is_on_run = match (begin, direction) {
        (Bound::Unbounded, Direction::Up) => cursor.first()?,
        (Bound::Unbounded, Direction::Down) => cursor.last()?,
        (Bound::Included(key) | Bound::Excluded(key), _) => cursor.seek_for_prev(key)?,
    };
    if !is_on_run && direction == Direction::Up {
        cursor.first()?;
    }
    Ok(())
}

/// The rows of the next runs, from one end, `wanted` and those of one run more; and up to which key these are all, if there may
/// be more.
fn next_stretches(
    cursor: &mut Cursor,
    rows: &mut Rows<'_>,
    bounds: Bounds<'_>,
    direction: Direction,
    wanted: usize,
) -> Result<(Vec<Stretch>, Option<Key>)> {
    let (mut stretches, mut count, mut reached) = (Vec::<Stretch>::new(), 0, None);
    // The first run may lie outside.
    while count < wanted + ROWS_MAX || reached.is_none() {
        let (Some(first), Some(value)) = (cursor.key(), cursor.value()?) else {
            return Ok((stretches, None));
        };
        let run = Run::decode(first, value)?;
        let is_behind = match direction {
            Direction::Up => is_above(&run.first, bounds.1),
            Direction::Down => is_below(&run.last, bounds.0),
        };
        if is_behind {
            return Ok((stretches, None));
        }
        let passed = rows.passed(&run, bounds.0)?;
        let (id, len) = (Id(run.id.0 + passed), run.len() as u64 - passed);
        count += run.len();
        match stretches.last_mut() {
            Some(last) if direction == Direction::Up && last.id.0 + last.count == id.0 => {
                last.count += len;
            }
            Some(last) if direction == Direction::Down && id.0 + len == last.id.0 => {
                (last.id, last.count) = (id, last.count + len);
            }
            _ => stretches.push(Stretch { id, count: len }),
        }
        let is_last = match direction {
            Direction::Up => is_above(&run.last, bounds.1),
            Direction::Down => is_below(&run.first, bounds.0),
        };
        if is_last {
            return Ok((stretches, None));
        }
        match direction {
            Direction::Up => {
                reached = Some(run.last).filter(|last| !is_below(last, bounds.0));
                cursor.next()?
            }
            Direction::Down => {
                reached = Some(run.first).filter(|first| !is_above(first, bounds.1));
                cursor.prev()?
            }
        };
    }
    Ok((stretches, reached))
}

/// Whether a key is below a lower end.
fn is_below(key: &[u8], lower: Bound<&[u8]>) -> bool {
    match lower {
        Bound::Included(lower) => key < lower,
        Bound::Excluded(lower) => key <= lower,
        Bound::Unbounded => false,
    }
}

/// Whether a key is above an upper end.
fn is_above(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Included(upper) => key > upper,
        Bound::Excluded(upper) => key >= upper,
        Bound::Unbounded => false,
    }
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
