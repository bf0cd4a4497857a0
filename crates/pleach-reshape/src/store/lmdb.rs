//! Rows in LMDB, by way of heed: a database with keys of 64 bits for each number, in one file of a folder.
//!
//! LMDB has one writer. A row whose id is above all of its table is appended (`MDB_APPEND`): without that LMDB splits the last
//! page in the middle, and pages of rows that only grow stay half empty.
//!
//! A commit is synced, also a buffered one, unless [`LmdbOptions::unsynced_commits`] is set.
//!
//! # Concurrency
//! Reads of single rows take a read transaction from a pool and give it back, as long as nothing newer is committed. Idle ones
//! are closed by each commit: they would keep pages from being used again. A commit holds `writer` from its begin to its end;
//! all other calls hold `tables` shared, and calls that make or remove a table hold it alone, after `writer`.
//!
//! # On disk
//! Layout: docs/format/row-stores.md.

#![expect(
    unsafe_code,
    reason = "opening a mapped environment, changing its flags and removing a database are unsafe in heed"
)]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use heed::types::{Bytes, DecodeIgnore, Str};
use heed::{
    CommitOrAbort, Env, EnvFlags, EnvOpenOptions, FlagSetMode, MdbError, PutFlags, RoTxn, RwTxn, WithoutTls,
};
use parking_lot::{Mutex, RwLock};

use super::folder::Folder;
use super::read_ahead::ReadAhead;
use super::{Abilities, Change, Durability, Place, Result, RowSnapshot, RowStore, Table};

const FILE: &str = "rows.lmdb";
/// The database of named values. Its name is the mark of such a store and of its layout's version.
const META: &str = "pleach-rows-1";
/// What the name of a table of rows begins with.
const ROWS: &str = "rows-";
/// Tables at a time. Each makes all transactions larger by 50 bytes; a reshaped store has two for each stripe at most.
const TABLES_MAX: u32 = 128;
/// Readers at a time, snapshots included. A slot takes 64 bytes of the lock file. Arbitrary.
const READERS_MAX: u32 = 1024;
/// Idle read transactions. More threads than this that read at the same moment begin their own. Arbitrary.
const IDLE_READERS_MAX: usize = 64;

/// Ids are keys of 8 bytes, big-endian. heed's own type for them allocates for each call.
type Rows = heed::Database<'static, Bytes, Bytes>;
type Meta = heed::Database<'static, Str, Bytes>;
type Reader = RoTxn<'static, WithoutTls>;

/// How a store in LMDB is opened.
#[derive(Clone, Debug)]
pub struct LmdbOptions {
    /// Most bytes that the store may have: address space, not memory, and with `write_map` the length of a sparse file (default:
    /// 256 GiB).
    pub map_bytes: usize,
    /// Buffered commits are not synced, which makes them ten times as fast and more. They survive a killed process. **After a
    /// power cut the store may be damaged**, not just shorter: LMDB has no checksums and keeps one older state, which unsynced
    /// commits overwrite. Default: off.
    pub unsynced_commits: bool,
    /// Pages are changed in the map and not written by calls. Default: off, because stray writes of the process reach the
    /// store.
    pub write_map: bool,
    /// The system reads around each page, which costs random reads. Default: off; long scans ask for what they need.
    pub read_ahead: bool,
}

impl Default for LmdbOptions {
    fn default() -> Self {
        Self { map_bytes: 256 << 30, unsynced_commits: false, write_map: false, read_ahead: false }
    }
}

/// A store of rows in LMDB.
#[derive(Debug)]
pub struct LmdbStore {
    env: Env<WithoutTls>,
    meta: Meta,
    unsynced_commits: bool,
    /// Held from the begin of a write transaction to its end; before `tables`.
    writer: Mutex<Writer>,
    tables: RwLock<BTreeMap<Table, Rows>>,
    /// Commits that are visible. Raised before a commit's caller goes on, so that a reader that is as new as this number sees
    /// everything that was acknowledged before the number was read.
    commits: AtomicU64,
    idle: Idle,
    /// Held shared while a read transaction begins. See [`Self::committed`].
    begins: RwLock<()>,
    _folder: Folder,
}

/// What only the writer needs.
#[derive(Debug)]
struct Writer {
    /// For each table an id that none of its rows is above.
    last: BTreeMap<Table, u64>,
    /// Whether the environment's commits are synced at present.
    is_synced: bool,
}

/// Read transactions that nobody uses, each with a number of commits that it sees at least.
#[derive(Default)]
struct Idle(Mutex<Vec<(u64, Reader)>>);

impl std::fmt::Debug for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Idle").field(&self.0.lock().len()).finish()
    }
}

impl LmdbStore {
    /// Opens the store in a folder, or makes one if the folder is missing or empty.
    ///
    /// # Errors
    /// If the folder holds something else or cannot be written to, or if the store is in use. LMDB cannot tell a damaged file.
    ///
    /// # Examples
    /// ```
    /// use pleach_reshape::store::{Change, Durability, Place, RowStore, Table};
    /// use pleach_reshape::store::lmdb::{LmdbOptions, LmdbStore};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let store = LmdbStore::open(folder.path(), &LmdbOptions::default())?;
    /// let place = Place { table: Table(0), id: 7 };
    /// store.create_table(Table(0))?;
    /// store.commit(&[Change::Put { place, row: b"seven" }], Durability::Sync)?;
    /// assert!(store.get(place, &mut |row| assert_eq!(row, b"seven"))?);
    /// # Ok::<(), pleach_reshape::store::Error>(())
    /// ```
    pub fn open(folder: &Path, options: &LmdbOptions) -> Result<Self> {
        let locked = Folder::open(folder, FILE)?;
        let file = locked.main_file(build)?;
        let env = open_env(&file, options)?;
        let (meta, tables) = open_tables(&env)?
            .ok_or_else(|| format!("{} is a file of LMDB, but not of rows", file.display()))?;
        let txn = env.read_txn()?;
        let mut last = BTreeMap::new();
        for (table, rows) in &tables {
            last.extend(last_id(rows, &txn)?.map(|id| (*table, id)));
        }
        drop(txn);
        Ok(Self {
            env,
            meta,
            unsynced_commits: options.unsynced_commits,
            writer: Mutex::new(Writer { last, is_synced: true }),
            tables: RwLock::new(tables),
            commits: AtomicU64::new(0),
            idle: Idle::default(),
            begins: RwLock::new(()),
            _folder: locked,
        })
    }

    /// Takes an idle reader or begins one; it sees all that is committed. With the number of commits that it sees at least.
    fn reader(&self) -> Result<(u64, Reader)> {
        // Before the transaction begins, which may then see more, but never less.
        let commits = self.commits.load(Ordering::Acquire);
        let idle = self.idle.0.lock().pop();
        match idle {
            Some(reader) if reader.0 == commits => Ok(reader),
            _ => {
                let _begins = self.begins.read();
                Ok((commits, self.env.clone().static_read_txn().map_err(explained)?))
            }
        }
    }

    /// Gives a reader back.
    fn release(&self, reader: (u64, Reader)) {
        let mut idle = self.idle.0.lock();
        if reader.0 == self.commits.load(Ordering::Acquire) && idle.len() < IDLE_READERS_MAX {
            idle.push(reader);
        }
    }

    /// Takes note of a commit, and waits for read transactions that are just beginning.
    ///
    /// LMDB lets a reader look up the number of the newest transaction and then copy its meta page, one of two. If two commits
    /// come in between, the second one overwrites that page: the reader sees a state that is not committed yet, or half of a
    /// page. So the next commit, which needs the lock around `writer`, waits for readers that may have looked before this one.
    fn committed(&self) {
        drop(self.begins.write());
        self.commits.fetch_add(1, Ordering::Release);
        let ended = std::mem::take(&mut *self.idle.0.lock());
        drop(ended);
    }

    /// Chooses whether the next commits are synced.
    fn set_synced(&self, writer: &mut Writer, is_synced: bool) -> Result<()> {
        if writer.is_synced != is_synced {
            let mode = if is_synced { FlagSetMode::Disable } else { FlagSetMode::Enable };
            // SAFETY: no write transaction is open, which the lock around `writer` sees to. What the flag means for a power cut
            // is told at the option that asks for it.
            unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode)? };
            writer.is_synced = is_synced;
        }
        Ok(())
    }

    /// Whether a commit of this durability is synced.
    fn is_synced(&self, wanted: Durability) -> bool {
        wanted == Durability::Sync || !self.unsynced_commits
    }
}

/// Makes an empty store of rows, durable.
fn build(file: &Path) -> Result<()> {
    let env = open_env(file, &LmdbOptions::default())?;
    env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let database = opener.create_database::<Str, Bytes>(txn, Some(META))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(database))
    })?;
    env.prepare_for_closing().wait();
    Ok(())
}

fn open_env(file: &Path, options: &LmdbOptions) -> Result<Env<WithoutTls>> {
    let mut flags = EnvFlags::NO_SUB_DIR;
    flags.set(EnvFlags::WRITE_MAP, options.write_map);
    flags.set(EnvFlags::NO_READ_AHEAD, !options.read_ahead);
    let mut env = EnvOpenOptions::new().read_txn_without_tls();
    env.map_size(options.map_bytes).max_readers(READERS_MAX).max_dbs(TABLES_MAX);
    // SAFETY: none of the flags weakens what LMDB promises; what `write_map` allows is told at the option.
    unsafe { env.flags(flags) };
    // SAFETY: the folder's lock keeps others from changing the file while it is mapped.
    let env = unsafe { env.open(file) };
    env.map_err(|error| format!("cannot open {} with LMDB: {error}", file.display()).into())
}

/// The database of named values and those of rows; none if the file has other things.
fn open_tables(env: &Env<WithoutTls>) -> Result<Option<(Meta, BTreeMap<Table, Rows>)>> {
    let txn = env.read_txn()?;
    let mut names = Vec::new();
    let opened = env.open_databases_and_commit(txn, |opener, txn| {
        let Some(meta) = opener.open_database::<Str, Bytes>(txn, Some(META))? else {
            return Ok(CommitOrAbort::Abort(()));
        };
        if let Some(all) = opener.open_database::<Str, DecodeIgnore>(txn, None)? {
            for entry in all.iter(txn)? {
                names.extend(number(entry?.0));
            }
        }
        Ok::<_, heed::Error>(CommitOrAbort::Commit(meta))
    })?;
    let Some(meta) = opened.commit() else { return Ok(None) };
    let mut tables = BTreeMap::new();
    for table in names {
        tables.extend(open_table(env, table)?.map(|rows| (table, rows)));
    }
    Ok(Some((meta, tables)))
}

/// The database of a table, if it is there.
fn open_table(env: &Env<WithoutTls>, table: Table) -> Result<Option<Rows>> {
    let opened = env.open_databases_and_commit(env.read_txn()?, |opener, txn| {
        let rows = opener.open_database::<Bytes, Bytes>(txn, Some(&name(table)))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(rows))
    })?;
    Ok(opened.unwrap_commit())
}

fn name(table: Table) -> String {
    format!("{ROWS}{}", table.0)
}

/// The table of a name; none if the name is of something else.
fn number(name: &str) -> Option<Table> {
    name.strip_prefix(ROWS)?.parse().ok().map(Table)
}

fn last_id(rows: &Rows, txn: &RoTxn<'_>) -> Result<Option<u64>> {
    rows.remap_data_type::<DecodeIgnore>().last(txn)?.map(|(key, ())| id_of(key)).transpose()
}

/// The key of a row: LMDB compares bytes.
#[expect(clippy::big_endian_bytes, reason = "keys are in the order of ids")]
fn key_of(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// The id of a row's key.
#[expect(clippy::big_endian_bytes, reason = "keys are in the order of ids")]
fn id_of(key: &[u8]) -> Result<u64> {
    let key = key.try_into().map_err(|_| format!("a key of {} bytes is no id of a row", key.len()))?;
    Ok(u64::from_be_bytes(key))
}

/// An error with what to do about it.
fn explained(error: heed::Error) -> super::Error {
    match error {
        heed::Error::Mdb(MdbError::MapFull) => "the store is full: open it with a greater `map_bytes`".into(),
        heed::Error::Mdb(MdbError::DbsFull) => format!("more than {TABLES_MAX} tables").into(),
        heed::Error::Mdb(MdbError::ReadersFull) => {
            format!("more than {READERS_MAX} snapshots are open").into()
        }
        error => error.into(),
    }
}

impl RowStore for LmdbStore {
    fn abilities(&self) -> Abilities {
        Abilities { concurrent_writers: false, buffered_survives_kill: true }
    }

    fn create_table(&self, table: Table) -> Result<()> {
        let mut writer = self.writer.lock();
        let mut tables = self.tables.write();
        if tables.contains_key(&table) {
            return Ok(());
        }
        self.set_synced(&mut writer, self.is_synced(Durability::Buffered))?;
        let created = self.env.create_databases_and_commit(self.env.write_txn()?, |opener, txn| {
            let rows = opener.create_database::<Bytes, Bytes>(txn, Some(&name(table)))?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(rows))
        });
        tables.insert(table, created.map_err(explained)?.unwrap_commit());
        self.committed();
        Ok(())
    }

    fn drop_table(&self, table: Table) -> Result<()> {
        let mut writer = self.writer.lock();
        let mut tables = self.tables.write();
        if !tables.contains_key(&table) {
            return Ok(());
        }
        self.idle.0.lock().clear();
        self.set_synced(&mut writer, self.is_synced(Durability::Buffered))?;
        let mut txn = self.env.write_txn()?;
        let Some(rows) = tables.remove(&table) else { return Ok(()) };
        // SAFETY: no other copy is used from here on: `tables` is locked and has none any more, readers of single rows hold that
        // lock, and LMDB itself refuses a removed database to a snapshot. The transaction has not changed it.
        let removed = unsafe { rows.remove(&mut txn) };
        if let Err(error) = removed.and_then(|()| txn.commit()) {
            // LMDB forgets the handle even if the transaction fails, and the table is there with all rows.
            tables.extend(open_table(&self.env, table)?.map(|rows| (table, rows)));
            return Err(explained(error));
        }
        writer.last.remove(&table);
        self.committed();
        Ok(())
    }

    fn commit(&self, changes: &[Change<'_>], durability: Durability) -> Result<()> {
        let mut writer = self.writer.lock();
        self.set_synced(&mut writer, self.is_synced(durability))?;
        let tables = self.tables.read_recursive();
        let mut txn = self.env.write_txn()?;
        for change in changes {
            self.apply(change, &tables, &mut writer.last, &mut txn)?;
        }
        txn.commit().map_err(explained)?;
        self.committed();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn get(&self, place: Place, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        // Until the row has been shown, so that its table is not removed meanwhile.
        let tables = self.tables.read_recursive();
        let Some(rows) = tables.get(&place.table) else { return Ok(false) };
        let reader = self.reader()?;
        let found = rows.get(&reader.1, &key_of(place.id))?.map(read).is_some();
        self.release(reader);
        Ok(found)
    }

    fn meta(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let reader = self.reader()?;
        let value = self.meta.get(&reader.1, name)?.map(<[u8]>::to_vec);
        self.release(reader);
        Ok(value)
    }

    fn snapshot(&self) -> Result<Box<dyn RowSnapshot + '_>> {
        let tables = self.tables.read_recursive();
        let _begins = self.begins.read();
        let txn = self.env.read_txn().map_err(explained)?;
        Ok(Box::new(Snapshot { txn, tables: tables.clone() }))
    }
}

impl LmdbStore {
    /// Makes one change in a transaction.
    fn apply(
        &self,
        change: &Change<'_>,
        tables: &BTreeMap<Table, Rows>,
        last: &mut BTreeMap<Table, u64>,
        txn: &mut RwTxn<'_>,
    ) -> Result<()> {
        let rows = |table: Table| tables.get(&table).ok_or_else(|| format!("there is no table {}", table.0));
        match *change {
            Change::Put { place, row } => {
                let rows = rows(place.table)?;
                let is_above = last.get(&place.table).is_none_or(|last| place.id > *last);
                if is_above {
                    // Also if the transaction fails: an id that no row is above may be too great.
                    last.insert(place.table, place.id);
                }
                let flags = if is_above { PutFlags::APPEND } else { PutFlags::empty() };
                rows.put_with_flags(txn, flags, &key_of(place.id), row).map_err(explained)
            }
            Change::Remove { place } => {
                rows(place.table)?.delete(txn, &key_of(place.id)).map_err(explained)?;
                Ok(())
            }
            Change::SetMeta { name, value } => self.meta.put(txn, name, value).map_err(explained),
        }
    }
}

/// A read transaction, and the tables that were there when it began.
struct Snapshot<'s> {
    txn: RoTxn<'s, WithoutTls>,
    tables: BTreeMap<Table, Rows>,
}

impl RowSnapshot for Snapshot<'_> {
    fn get(&mut self, place: Place, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(rows) = self.tables.get(&place.table) else { return Ok(false) };
        Ok(rows.get(&self.txn, &key_of(place.id))?.map(read).is_some())
    }

    fn scan(
        &mut self,
        table: Table,
        first: u64,
        last: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        let Some(rows) = self.tables.get(&table).filter(|_| first <= last) else { return Ok(()) };
        let mut ahead = ReadAhead::default();
        let (first, last) = (key_of(first), key_of(last));
        for entry in rows.range(&self.txn, &(Bound::Included(&first[..]), Bound::Included(&last[..])))? {
            let (key, row) = entry?;
            ahead.visit(row);
            if !visit(id_of(key)?, row) {
                break;
            }
        }
        Ok(())
    }

    fn last(&mut self, table: Table, first: u64, last: u64) -> Result<Option<u64>> {
        let Some(rows) = self.tables.get(&table) else { return Ok(None) };
        let found =
            rows.remap_data_type::<DecodeIgnore>().get_lower_than_or_equal_to(&self.txn, &key_of(last))?;
        let id = found.map(|(key, ())| id_of(key)).transpose()?;
        Ok(id.filter(|id| *id >= first))
    }
}
