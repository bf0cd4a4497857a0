//! The first pass of a sort: the old tables are read in the order of ids, and written as sorted runs.

use pleach::{Error, Result};
use pleach_coding::head;

use super::file::TemporaryFile;
use super::{HEADER_LEN, Run, SortedRows, id_of, put_record, row_len};
use crate::handle::Inner;
use crate::ids::{Id, Previous, is_behind};
use crate::map::Key;
use crate::named::store_error;
use crate::row::{Row, key_of_checked};

/// Rows that one snapshot of the store reads at most: while it is there, the store keeps what is overwritten. Arbitrary.
const SNAPSHOT_ROWS: usize = 1 << 16;
/// Most bytes of a run, whose rows are found by offsets of 32 bits.
const RUN_BYTES_MAX: usize = 1 << 30;
/// Bytes that are written at a time.
const WRITE_BYTES: usize = 256 << 10;

/// A row in memory: the head of its key, and where its record begins.
type Slot = (u64, u32);

/// Rows in memory that become a run.
#[derive(Default)]
pub(super) struct Collected {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

impl Collected {
    pub(super) fn add(&mut self, id: Id, row: &[u8], key: &[u8]) {
        self.slots.push((head(key), u32::try_from(self.bytes.len()).expect("a run has a limit")));
        put_record(&mut self.bytes, id, row);
    }

    fn memory(&self) -> usize {
        self.bytes.len() + self.slots.len() * size_of::<Slot>()
    }

    fn record(&self, slot: Slot) -> &[u8] {
        let record = &self.bytes[slot.1 as usize..];
        &record[..HEADER_LEN + row_len(record)]
    }

    fn sort(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        let place = |slot: Slot| {
            let record = self.record(slot);
            (key_of_checked(&record[HEADER_LEN..]), id_of(record))
        };
        slots.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| place(*a).cmp(&place(*b))));
        self.slots = slots;
    }

    /// Writes the rows as a run, and forgets them.
    pub(super) fn write(&mut self, file: &mut TemporaryFile) -> Result<Run> {
        self.sort();
        let start = file.end();
        let mut out = Vec::with_capacity(WRITE_BYTES.min(self.bytes.len()));
        for slot in &self.slots {
            let record = self.record(*slot);
            if !out.is_empty() && out.len() + record.len() > WRITE_BYTES {
                file.append(&out)?;
                out.clear();
            }
            out.extend_from_slice(record);
        }
        file.append(&out)?;
        self.bytes.clear();
        self.slots.clear();
        Ok(Run { start, end: file.end() })
    }

    /// The records in their order.
    fn into_sorted(mut self) -> Vec<u8> {
        self.sort();
        let mut sorted = Vec::with_capacity(self.bytes.len());
        for slot in &self.slots {
            sorted.extend_from_slice(self.record(*slot));
        }
        sorted
    }
}

/// Reads the rows of the generation before that have not moved, and sorts them. `None` if there is no room for the file, or it
/// cannot be written.
///
/// Requires: the caller holds `moving`, so that no other generation begins.
pub(crate) fn sort_rows(inner: &Inner, generation: u64, previous: &Previous) -> Result<Option<SortedRows>> {
    let edge = previous.edge();
    let all = previous.next.iter().sum();
    let (rows, runs) = (Collected::default(), Vec::new());
    let mut collecting = Collecting { inner, edge, rows, runs, file: None, read: 0, all };
    for stripe in 0..previous.next.len() {
        if !collecting.read_stripe(generation, stripe)? {
            return Ok(None);
        }
    }
    Ok(collecting.finish().ok())
}

/// What the first pass has come to.
struct Collecting<'i> {
    inner: &'i Inner,
    /// Rows of keys up to this have moved.
    edge: Option<Key>,
    rows: Collected,
    runs: Vec<Run>,
    file: Option<TemporaryFile>,
    /// Rows that were read, and how many there are at most.
    read: u64,
    all: u64,
}

impl Collecting<'_> {
    fn budget(&self) -> usize {
        self.inner.options.move_bytes.min(RUN_BYTES_MAX)
    }

    /// Reads the rows of a stripe; whether the file took them.
    fn read_stripe(&mut self, generation: u64, stripe: usize) -> Result<bool> {
        let layout = self.inner.layout;
        let (table, mut first, last) = layout.stripe_range(generation, stripe, 0);
        let budget = self.budget();
        while first <= last {
            self.inner.check_not_closing()?;
            let (mut seen, mut at, mut failure) = (0, last, None);
            let (rows, edge) = (&mut self.rows, self.edge.as_ref());
            let mut visit = |id: u64, bytes: &[u8]| {
                let id_in_all = layout.id_in(generation, stripe, id);
                match Row::decode(layout.place(id_in_all), bytes) {
                    Ok(row) if row.value.is_some() && !is_behind(edge, row.key) => {
                        rows.add(id_in_all, bytes, row.key);
                    }
                    Ok(_) => {}
                    Err(error) => failure = Some(error),
                }
                seen += 1;
                let goes_on = seen < SNAPSHOT_ROWS && rows.memory() < budget && failure.is_none();
                if !goes_on {
                    at = id;
                }
                goes_on
            };
            let mut snapshot = self.inner.store.snapshot().map_err(|e| store_error("make a snapshot", &e))?;
            snapshot.scan(table, first, last, &mut visit).map_err(|e| store_error("read rows", &e))?;
            drop(snapshot);
            failure.map_or(Ok(()), Err)?;
            self.read += seen as u64;
            if self.rows.memory() >= budget && !self.spill().unwrap_or(false) {
                return Ok(false);
            }
            first = at + 1;
        }
        Ok(true)
    }

    /// Writes the rows in memory as a run; false, and writes none, if the disk has too little room for all.
    fn spill(&mut self) -> Result<bool> {
        if self.file.is_none() {
            if !self.has_room()? {
                return Ok(false);
            }
            self.file = Some(TemporaryFile::create(&*self.inner.env, &self.inner.dir)?);
        }
        let Some(file) = &mut self.file else { return Ok(false) };
        self.runs.push(self.rows.write(file)?);
        Ok(true)
    }

    /// Whether the disk has room for the file and as much again, so that the sort leaves some to others.
    fn has_room(&self) -> Result<bool> {
        let (env, dir) = (&self.inner.env, &self.inner.dir);
        let free = env.available_space(dir).map_err(|e| Error::io("find the free space of", dir, e))?;
        let rest = self.all.max(self.read) / self.read.max(1) + 1;
        Ok(free / 2 >= (self.rows.bytes.len() as u64).saturating_mul(rest))
    }

    fn finish(mut self) -> Result<SortedRows> {
        let Some(mut file) = self.file else {
            return SortedRows::of_memory(self.rows.into_sorted());
        };
        if !self.rows.slots.is_empty() {
            self.runs.push(self.rows.write(&mut file)?);
        }
        drop(self.rows);
        // The other half of the memory is for the rows that move.
        let (env, dir, memory) = (&*self.inner.env, &self.inner.dir, self.inner.options.move_bytes / 2);
        SortedRows::of_runs((env, dir), file, self.runs, memory)
    }
}
