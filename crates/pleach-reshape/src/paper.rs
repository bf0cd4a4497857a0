//! The paper's own scheme, to measure it: one counter, one ordered tree behind one lock, and a remap file that is written, and
//! flushed, before each commit.
//!
//! Programs use [`Reshaped`](crate::Reshaped). This type shares its rows' format and its latches, because the paper does
//! not say what becomes of two threads that write one key.
//!
//! # Invariants
//! 1. Order: records of inserts are in the file in the order of their ids. So what is missing at the end of a file has ids
//!    above all that are there, and an open finds it by a scan of the rows above.
//!
//! # On disk
//! Layout of the remap file: docs/format/reshaped-rows.md.
//!
//! # Origin
//! Sections III-B (Figs. 4 to 7: an update is in place) and III-D. Departures: checksums, keys in rows, latches.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pleach::env::sync::Mutex;
use pleach::env::{Env, File, OpenOptions};
use pleach::{Error, ErrorKind, Result};
use pleach_coding::{Decoder, put_varint, u32_at};

use crate::group::{Transaction, commit_alone};
use crate::latches::{LATCH_COUNT, Latches};
use crate::map::key_hash;
use crate::named::{self, store_error};
use crate::row::Row;
use crate::snapshot::Pair;
use crate::store::{Durability, Place, RowStore, Table};

const TABLE: Table = Table(0);
const CHECKSUM_LEN: usize = 4;

/// What happens to the remap file before a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The operating system has it.
    Write,
    /// The medium has it.
    Sync,
}

/// A store that is reshaped as in the paper, for comparisons. (`ModelStore`, a store in memory, needs the feature `testing`.)
///
/// ```
/// use std::sync::Arc;
/// use pleach_reshape::paper::{Flush, PaperScheme};
/// use pleach_reshape::{Durability, store::model::ModelStore};
/// # let dir = tempfile::tempdir().unwrap();
/// let env: Arc<dyn pleach::env::Env> = Arc::new(pleach::env::RealEnv::new());
/// let rows = Box::new(ModelStore::new(true));
/// let store = PaperScheme::open(rows, &env, dir.path().join("remap"), Flush::Write)?;
/// store.write(&[(b"k", Some(b"v"))], Durability::Buffered)?;
/// assert_eq!(store.get(b"k")?.as_deref(), Some(&b"v"[..]));
/// # Ok::<(), pleach::Error>(())
/// ```
pub struct PaperScheme {
    store: Box<dyn RowStore>,
    latches: Latches,
    remap: Mutex<Remap>,
    path: PathBuf,
    flush: Flush,
    env: Arc<dyn Env>,
    spent: Spent,
}

/// Nanoseconds of all threads, summed; nothing depends on their order.
#[derive(Debug, Default)]
struct Spent {
    table: AtomicU64,
    file: AtomicU64,
}

/// What the remapping table has cost since the open, for all threads together: the rows of the paper's Tables 1 and 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemapTimes {
    /// In the tree: searches, inserts and deletes of puts and deletes, with the encoding of records.
    pub table: Duration,
    /// In the file: writes, and syncs with [`Flush::Sync`].
    pub file: Duration,
}

type Tree = BTreeMap<Box<[u8]>, u64>;

/// The remapping table, and its file.
struct Remap {
    tree: Tree,
    /// The paper's counter. The lock is held anyway.
    next: u64,
    file: Arc<dyn File>,
    end: u64,
    /// A write of the file has failed, so it may lack records of the tree.
    is_behind: bool,
}

impl std::fmt::Debug for PaperScheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PaperScheme")
            .field("path", &self.path)
            .field("flush", &self.flush)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Remap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remap").field("keys", &self.tree.len()).finish_non_exhaustive()
    }
}

impl PaperScheme {
    /// Opens the store, whose remap file is at `path`, or makes it. What a crash has cut off the file is found in the rows.
    ///
    /// # Errors
    /// - `InvalidArgument`: `store` is one of [`Reshaped`](crate::Reshaped).
    /// - `Corruption`: a row is damaged.
    /// - `Io`: the store, or the system, refused.
    pub fn open(
        store: Box<dyn RowStore>,
        env: &Arc<dyn Env>,
        path: impl Into<PathBuf>,
        flush: Flush,
    ) -> Result<Self> {
        let path = path.into();
        if named::identity(&*store)?.is_some() {
            return Err(Error::invalid("the store is a reshaped one, not one of the paper's scheme"));
        }
        store.create_table(TABLE).map_err(|e| store_error("make a table", &e))?;
        let file = open_file(&**env, &path)?;
        let (tree, next, end) = load(&*file, &path)?;
        let mut remap = Remap { tree, next, file, end, is_behind: false };
        remap.add_missing(&*store, &path)?;
        let (latches, remap) = (Latches::new(LATCH_COUNT), Mutex::new(remap));
        Ok(Self { store, latches, remap, path, flush, env: Arc::clone(env), spent: Spent::default() })
    }

    /// Puts, and deletes where there is no value, in one transaction. Each key comes once.
    ///
    /// # Errors
    /// - `Io`: the store, or the system, refused.
    /// - `Poisoned`: an earlier write of the remap file failed. The next open finds in the rows what the file lacks.
    pub fn write(&self, operations: &[(&[u8], Option<&[u8]>)], durability: Durability) -> Result<()> {
        let _held = self.latches.hold(operations.iter().map(|(key, _)| key_hash(key)));
        let mut transaction = Transaction::default();
        {
            let mut remap = self.remap.lock();
            if remap.is_behind {
                return Err(Error::new(ErrorKind::Poisoned, "an earlier write of the remap file failed"));
            }
            let mut records = Vec::new();
            let start = self.env.now();
            for (key, value) in operations {
                let Some(id) = remap.change(key, value.is_some(), &mut records) else { continue };
                let place = Place { table: TABLE, id };
                match value {
                    Some(_) => {
                        transaction.put(place, |bytes| Row { version: 0, key, value: *value }.encode(bytes));
                    }
                    None => transaction.remove(place),
                }
            }
            let changed = self.env.now();
            remap.append(&records, self.flush, &self.path)?;
            add(&self.spent.table, changed.saturating_sub(start));
            add(&self.spent.file, self.env.now().saturating_sub(changed));
        }
        if transaction.is_empty() {
            return Ok(());
        }
        commit_alone(&*self.store, &transaction, durability)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `Corruption`: the row is damaged. `Io`: the store refused.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        let Some(id) = self.remap.lock().tree.get(key).copied() else { return Ok(None) };
        let place = Place { table: TABLE, id };
        let mut found = Ok(None);
        let mut read = |bytes: &[u8]| {
            let row = Row::decode(place, bytes);
            found = row.map(|row| row.value.filter(|_| row.key == key).map(<[u8]>::to_vec));
        };
        self.store.get(place, &mut read).map_err(|e| store_error("read a row", &e))?;
        found
    }

    /// Up to `limit` pairs from a key on, each read by itself.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn scan(&self, first: impl AsRef<[u8]>, limit: usize) -> Result<Vec<Pair>> {
        let bounds = (Bound::Included(first.as_ref()), Bound::Unbounded);
        let keys: Vec<_> =
            self.remap.lock().tree.range::<[u8], _>(bounds).take(limit).map(|(key, _)| key.clone()).collect();
        let mut pairs = Vec::with_capacity(keys.len());
        for key in keys {
            pairs.extend(self.get(&key)?.map(|value| (key.into_vec(), value)));
        }
        Ok(pairs)
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// `Io`: the store, or the system, refused.
    pub fn sync(&self) -> Result<()> {
        let file = Arc::clone(&self.remap.lock().file);
        file.sync("remap.sync").map_err(|e| Error::io("sync", &self.path, e))?;
        self.store.sync().map_err(|e| store_error("sync", &e))
    }

    /// What the remapping table has cost since the open.
    pub fn remap_times(&self) -> RemapTimes {
        let time = |spent: &AtomicU64| Duration::from_nanos(spent.load(Ordering::Relaxed));
        RemapTimes { table: time(&self.spent.table), file: time(&self.spent.file) }
    }

    /// Bytes of the remap file.
    pub fn remap_file_bytes(&self) -> u64 {
        self.remap.lock().end
    }
}

fn add(spent: &AtomicU64, time: Duration) {
    spent.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl Remap {
    /// Gives a key an id, or takes it away, and appends the record; the id of its row, if there is one.
    fn change(&mut self, key: &[u8], is_put: bool, records: &mut Vec<u8>) -> Option<u64> {
        if !is_put {
            let id = self.tree.remove(key)?;
            encode(records, key, 0);
            return Some(id);
        }
        if let Some(id) = self.tree.get(key) {
            return Some(*id);
        }
        let id = self.next;
        self.next += 1;
        self.tree.insert(key.into(), id);
        encode(records, key, id);
        Some(id)
    }

    fn append(&mut self, records: &[u8], flush: Flush, path: &Path) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        self.is_behind = true;
        self.file.write_all_at(records, self.end).map_err(|e| Error::io("write", path, e))?;
        self.end += records.len() as u64;
        if flush == Flush::Sync {
            self.file.sync("remap.flush").map_err(|e| Error::io("sync", path, e))?;
        }
        self.is_behind = false;
        Ok(())
    }

    /// Adds the keys of rows above all ids of the file.
    fn add_missing(&mut self, store: &dyn RowStore, path: &Path) -> Result<()> {
        let mut snapshot = store.snapshot().map_err(|e| store_error("make a snapshot", &e))?;
        let (mut records, mut failure, first) = (Vec::new(), None, self.next);
        let mut visit = |id: u64, bytes: &[u8]| {
            match Row::decode(Place { table: TABLE, id }, bytes) {
                Ok(row) => {
                    self.tree.insert(row.key.into(), id);
                    self.next = id + 1;
                    encode(&mut records, row.key, id);
                }
                Err(error) => failure = Some(error),
            }
            failure.is_none()
        };
        snapshot.scan(TABLE, first, u64::MAX, &mut visit).map_err(|e| store_error("read rows", &e))?;
        failure.map_or(Ok(()), Err)?;
        self.append(&records, Flush::Sync, path)
    }
}

fn encode(out: &mut Vec<u8>, key: &[u8], id: u64) {
    let start = out.len();
    out.extend_from_slice(&[0; CHECKSUM_LEN]);
    put_varint(out, id);
    put_varint(out, key.len() as u64);
    out.extend_from_slice(key);
    let checksum = crc32c::crc32c(&out[start + CHECKSUM_LEN..]);
    out[start..start + CHECKSUM_LEN].copy_from_slice(&checksum.to_le_bytes());
}

/// A record's key and id, and its length.
fn decode(bytes: &[u8]) -> Option<(&[u8], u64, usize)> {
    let covered = bytes.get(CHECKSUM_LEN..)?;
    let mut decoder = Decoder(covered);
    let (id, key_len) = (decoder.varint()?, usize::try_from(decoder.varint()?).ok()?);
    let key = decoder.0.get(..key_len)?;
    let len = covered.len() - decoder.0.len() + key_len;
    (u32_at(bytes, 0) == crc32c::crc32c(&covered[..len])).then_some((key, id, CHECKSUM_LEN + len))
}

fn open_file(env: &dyn Env, path: &Path) -> Result<Arc<dyn File>> {
    let is_there = env.metadata(path).map_err(|e| Error::io("look for", path, e))?.is_some();
    if is_there {
        let options = OpenOptions { write: true, direct: false };
        return env.open_file(path, options).map_err(|e| Error::io("open", path, e));
    }
    let dir = path.parent().unwrap_or(path);
    env.create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
    let file = env.create_file(path).map_err(|e| Error::io("create", path, e))?;
    env.sync_dir(dir, "remap.create").map_err(|e| Error::io("sync", dir, e))?;
    Ok(file)
}

/// The table up to the first record that is not whole, the next id, and where that record is.
fn load(file: &dyn File, path: &Path) -> Result<(Tree, u64, u64)> {
    let len = file.len().map_err(|e| Error::io("read the length of", path, e))?;
    let too_long = || Error::invalid("the remap file does not fit into memory");
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| too_long())?];
    file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
    let (mut tree, mut at, mut next) = (BTreeMap::new(), 0, 1);
    while let Some((key, id, len)) = decode(&bytes[at..]) {
        if id == 0 {
            tree.remove(key);
        } else {
            tree.insert(key.into(), id);
            next = id + 1;
        }
        at += len;
    }
    file.set_len(at as u64).map_err(|e| Error::io("cut", path, e))?;
    Ok((tree, next, at as u64))
}

#[cfg(test)]
mod tests {
    use pleach::env::{Fault, FaultKind, SimEnv};

    use super::*;
    use crate::store::model::ModelStore;

    #[test]
    fn a_file_that_lacks_records_takes_no_further_ones() {
        let (sim, rows) = (SimEnv::new(1), ModelStore::new(true));
        let env: Arc<dyn Env> = Arc::<SimEnv>::clone(&sim);
        let open = || PaperScheme::open(Box::new(rows.clone()), &env, "/remap", Flush::Write).unwrap();
        let write = |store: &PaperScheme, key: &str| {
            store
                .write(&[(key.as_bytes(), Some(b"value"))], Durability::Buffered)
                .map_err(|error| error.kind())
        };
        let store = open();
        write(&store, "first").unwrap();
        sim.set_fault(Some(Fault { at_op: sim.op_count(), kind: FaultKind::Eio }));
        assert_eq!(write(&store, "second"), Err(ErrorKind::Io));
        sim.clear_faults();
        // The tree has a record for it that the file lacks, and a later record would hide its row from the next open.
        for key in ["second", "third"] {
            assert_eq!(write(&store, key), Err(ErrorKind::Poisoned));
        }
        assert!(store.get("first").unwrap().is_some() && store.get("second").unwrap().is_none());
        drop(store);
        let store = open();
        write(&store, "second").unwrap();
        write(&store, "third").unwrap();
        drop(store);
        let store = open();
        for key in ["first", "second", "third"] {
            assert!(store.get(key).unwrap().is_some(), "{key}");
        }
    }
}
