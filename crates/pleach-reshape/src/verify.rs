//! Verification: every row proves itself, and map and rows agree.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use pleach::{Error, ErrorKind, Result};

use crate::handle::Reshaped;
use crate::ids::{Previous, is_behind};
use crate::map::{Direction, Key};
use crate::named::store_error;
use crate::row::Row;
use crate::snapshot::Snapshot;
use crate::store::Place;

/// Rows, or entries, that are compared at a time.
const CHUNK: usize = 4096;

/// What [`Reshaped::verify`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Keys.
    pub keys: u64,
    /// Rows that a later row of their key replaced, or that say that their key was deleted.
    pub garbage_rows: u64,
    /// Entries of the map whose rows are gone: deletes that the last checkpoint did not know.
    pub stale_entries: u64,
}

impl Reshaped {
    /// Reads all rows and the whole map, and compares them.
    ///
    /// # Errors
    /// - `Corruption`: the first damaged row, or the first key whose row the map does not name.
    /// - `Io`: the store, or the map's store, refused.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.inner.check_readable()?;
        // Without the lock, so that checkpoints go on.
        let map_store = self.inner.maintenance.lock().map_store.db().clone();
        map_store.verify()?;
        let mut report = VerifyReport::default();
        let mut snapshot = self.snapshot()?;
        verify_entries(&mut snapshot, &mut report)?;
        let (rows, named) = self.verify_rows(&mut snapshot)?;
        if named > report.keys {
            let message = format!("{named} keys have rows, and ranges find only {} of them", report.keys);
            return Err(Error::new(ErrorKind::Corruption, message));
        }
        // A generation that begins meanwhile has rows that were not looked at.
        report.garbage_rows = rows.saturating_sub(report.keys);
        if report.garbage_rows > 0 && !self.inner.garbage.load(Ordering::SeqCst) {
            let message = format!("{} rows are of no use, and none should be", report.garbage_rows);
            return Err(Error::new(ErrorKind::Corruption, message));
        }
        Ok(report)
    }

    /// Rows in all tables, and how many of them the map names. Others are older than the one that it names. Those that have moved
    /// to another generation do not count: their tables are going to be dropped.
    fn verify_rows(&self, snapshot: &mut Snapshot<'_>) -> Result<(u64, u64)> {
        let inner = &self.inner;
        let allocator = inner.allocator.load_full();
        let before = allocator.previous.is_some().then(|| allocator.generation.wrapping_sub(1));
        let edge = allocator.previous.as_ref().and_then(Previous::edge);
        let (mut rows, mut keys) = (0, 0);
        for generation in before.into_iter().chain([allocator.generation]) {
            for stripe in 0..inner.layout.stripe_count() {
                let (table, mut first, last) = inner.layout.stripe_range(generation, stripe, 0);
                while first <= last {
                    let (mut chunk, mut failure, mut at) = (Vec::new(), None, last);
                    let mut visit = |id: u64, bytes: &[u8]| {
                        match Row::decode(Place { table, id }, bytes) {
                            Ok(row) => {
                                chunk.push((id, Key::from_slice(row.key), row.version, row.value.is_some()));
                            }
                            Err(error) => failure = Some(error),
                        }
                        at = id;
                        chunk.len() < CHUNK && failure.is_none()
                    };
                    let scanned = snapshot.rows().scan(table, first, last, &mut visit);
                    scanned.map_err(|e| store_error("read rows", &e))?;
                    failure.map_or(Ok(()), Err)?;
                    first = if chunk.len() < CHUNK { last + 1 } else { at + 1 };
                    for (id, key, version, is_put) in chunk {
                        if generation != allocator.generation && is_behind(edge.as_ref(), &key) {
                            continue;
                        }
                        rows += 1;
                        let id = inner.layout.id_in(generation, stripe, id);
                        let named = snapshot.id_of(&key)?;
                        keys += u64::from(named == Some(id) && is_put);
                        if named == Some(id) || !is_put {
                            continue;
                        }
                        check_replaced(snapshot, inner.layout.place(id), &key, version)?;
                    }
                }
            }
        }
        Ok((rows, keys))
    }
}

fn verify_entries(snapshot: &mut Snapshot<'_>, report: &mut VerifyReport) -> Result<()> {
    let mut edge: Option<Key> = None;
    loop {
        let lower = edge.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let entries = snapshot.entries((lower, Bound::Unbounded), Direction::Up, CHUNK)?;
        let mut found = Vec::with_capacity(entries.len());
        snapshot.read_rows(&entries, |index, _, row| found.extend(row.value.map(|_| index)))?;
        report.keys += found.len() as u64;
        report.stale_entries += (entries.len() - found.len()) as u64;
        for (key, id) in found.into_iter().map(|index| &entries[index]) {
            let named = snapshot.id_of(key)?;
            if named != Some(*id) {
                let message =
                    format!("a range finds row {id:?} of a key, and a read of the key finds {named:?}");
                return Err(Error::new(ErrorKind::Corruption, message));
            }
        }
        if entries.len() < CHUNK {
            return Ok(());
        }
        edge = entries.last().map(|(key, _)| key.clone());
    }
}

/// An error unless the row that the map names is newer, or the key's absence is.
fn check_replaced(snapshot: &mut Snapshot<'_>, place: Place, key: &Key, version: u64) -> Result<()> {
    let Some(id) = snapshot.id_of(key)? else { return Ok(()) };
    let mut is_newer = false;
    snapshot.read_rows(&[(key.clone(), id)], |_, _, row| is_newer = row.version > version)?;
    if is_newer {
        return Ok(());
    }
    let Place { table, id } = place;
    let message =
        format!("row {id} of table {} is the newest of its key, and the map does not name it", table.0);
    Err(Error::new(ErrorKind::Corruption, message))
}
