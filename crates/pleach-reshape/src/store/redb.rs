//! Rows in redb: a table with keys of 64 bits for each number, in one file of a folder.
//!
//! redb has one writer. What is committed without a sync is in its memory alone, so that a killed process loses it, down to
//! the last commit with a sync. Every [`RedbOptions::sync_every`]th buffered commit is made with one: what unsynced commits
//! have freed waits for it, and the more there is, the slower each commit.
//!
//! # Concurrency
//! Reads of single rows share one read transaction and its open tables until something is committed. A commit takes it away,
//! so that it keeps no pages from being used again.
//!
//! # On disk
//! Layout: docs/format/row-stores.md.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::RwLock;
use redb::{
    Database, DatabaseError, ReadOnlyTable, ReadTransaction, ReadableDatabase, StorageError, TableDefinition,
    TableError, WriteTransaction,
};

use super::folder::Folder;
use super::{Abilities, Change, Durability, Place, Result, RowSnapshot, RowStore, Table};

const FILE: &str = "rows.redb";
/// The table of named values. Its name is the mark of such a store and of its layout's version.
const META: TableDefinition<'static, &'static str, &'static [u8]> = TableDefinition::new("pleach-rows-1");

type MetaTable = ReadOnlyTable<&'static str, &'static [u8]>;
type RowTable = ReadOnlyTable<u64, &'static [u8]>;

/// How a store in redb is opened.
#[derive(Clone, Debug)]
pub struct RedbOptions {
    /// Memory of redb's cache (default: 64 MiB).
    pub cache_bytes: usize,
    /// Every n-th buffered commit is synced (default: 50; 0: none). A killed process loses those behind the last synced one.
    pub sync_every: u64,
}

impl Default for RedbOptions {
    fn default() -> Self {
        Self { cache_bytes: 64 << 20, sync_every: 50 }
    }
}

/// A store of rows in redb.
#[derive(Debug)]
pub struct RedbStore {
    db: Database,
    sync_every: u64,
    /// Commits that are visible. Raised before a commit's caller goes on, so that a reader that is as new as this number sees
    /// everything that was acknowledged before the number was read.
    commits: AtomicU64,
    /// The reader of single rows, or none since the last commit.
    reader: ArcSwapOption<Reader>,
    _folder: Folder,
}

impl RedbStore {
    /// Opens the store in a folder, or makes one if the folder is missing or empty.
    ///
    /// # Errors
    /// If the folder holds something else or cannot be written to, if the store is in use, or damaged.
    ///
    /// # Examples
    /// ```
    /// use pleach_reshape::store::{Change, Durability, Place, RowStore, Table};
    /// use pleach_reshape::store::redb::{RedbOptions, RedbStore};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let store = RedbStore::open(folder.path(), &RedbOptions::default())?;
    /// let place = Place { table: Table(0), id: 7 };
    /// store.create_table(Table(0))?;
    /// store.commit(&[Change::Put { place, row: b"seven" }], Durability::Sync)?;
    /// assert!(store.get(place, &mut |row| assert_eq!(row, b"seven"))?);
    /// # Ok::<(), pleach_reshape::store::Error>(())
    /// ```
    pub fn open(folder: &Path, options: &RedbOptions) -> Result<Self> {
        let locked = Folder::open(folder, FILE)?;
        let file = locked.main_file(build)?;
        let opened = Database::builder().set_cache_size(options.cache_bytes).open(&file);
        let db = opened.map_err(|error| explained(&error, &file))?;
        match db.begin_read()?.open_table(META) {
            Ok(_) => {}
            Err(TableError::TableDoesNotExist(_)) => {
                return Err(format!("{} is a file of redb, but not of rows", file.display()).into());
            }
            Err(error) => return Err(error.into()),
        }
        let (commits, reader) = (AtomicU64::new(0), ArcSwapOption::empty());
        Ok(Self { db, sync_every: options.sync_every, commits, reader, _folder: locked })
    }

    /// Makes changes in a transaction and commits it.
    fn change(
        &self,
        durability: redb::Durability,
        change: impl FnOnce(&WriteTransaction) -> Result<()>,
    ) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(durability)?;
        change(&txn)?;
        txn.commit()?;
        self.commits.fetch_add(1, Ordering::Release);
        self.reader.store(None);
        Ok(())
    }

    fn durability(&self, wanted: Durability) -> redb::Durability {
        let due = || {
            self.sync_every > 0
                && self.commits.load(Ordering::Relaxed) % self.sync_every == self.sync_every - 1
        };
        if wanted == Durability::Sync || due() { redb::Durability::Immediate } else { redb::Durability::None }
    }

    /// A reader that sees all that is committed.
    fn reader(&self) -> Result<Arc<Reader>> {
        // Before the transaction begins, which may then see more, but never less.
        let commits = self.commits.load(Ordering::Acquire);
        if let Some(reader) = self.reader.load_full().filter(|reader| reader.commits == commits) {
            return Ok(reader);
        }
        let (txn, meta) = begin(&self.db)?;
        let reader = Arc::new(Reader { txn, commits, tables: RwLock::default(), meta });
        self.reader.store(Some(Arc::clone(&reader)));
        Ok(reader)
    }
}

/// Makes an empty store of rows, durable.
fn build(file: &Path) -> Result<()> {
    let db = Database::create(file).map_err(|error| explained(&error, file))?;
    let txn = db.begin_write()?;
    txn.open_table(META)?;
    Ok(txn.commit()?)
}

/// Begins a read transaction and opens the table of named values.
///
/// Requires: the table is dropped after the transaction. A transaction that is alone gives up its claim on pages before the pages
/// themselves, and redb's checks of debug builds then find pages in use that another thread frees.
fn begin(db: &Database) -> Result<(ReadTransaction, MetaTable)> {
    let txn = db.begin_read()?;
    let meta = txn.open_table(META)?;
    Ok((txn, meta))
}

fn explained(error: &DatabaseError, file: &Path) -> String {
    let file = file.display();
    match error {
        DatabaseError::DatabaseAlreadyOpen => format!("the store in {file} is in use"),
        DatabaseError::Storage(StorageError::Io(error)) => format!("cannot open {file} with redb: {error}"),
        error => format!("{file} is damaged, or no file of this redb: {error}"),
    }
}

/// The name of a table of rows.
fn name(table: Table) -> String {
    format!("rows-{}", table.0)
}

fn definition(name: &str) -> TableDefinition<'_, u64, &'static [u8]> {
    TableDefinition::new(name)
}

fn open_table(txn: &ReadTransaction, table: Table) -> Result<Option<RowTable>> {
    match txn.open_table(definition(&name(table))) {
        Ok(opened) => Ok(Some(opened)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A read transaction of single rows, shared by threads. The order of the fields is that of [`begin`].
struct Reader {
    txn: ReadTransaction,
    /// It sees so many commits, or more.
    commits: u64,
    /// The tables that were read so far.
    tables: RwLock<Vec<(Table, Arc<RowTable>)>>,
    meta: MetaTable,
}

impl Reader {
    fn table(&self, table: Table) -> Result<Option<Arc<RowTable>>> {
        if let Some((_, opened)) = self.tables.read().iter().find(|(number, _)| *number == table) {
            return Ok(Some(Arc::clone(opened)));
        }
        let opened = open_table(&self.txn, table)?.map(Arc::new);
        self.tables.write().extend(opened.clone().map(|opened| (table, opened)));
        Ok(opened)
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("commits", &self.commits).finish_non_exhaustive()
    }
}

impl RowStore for RedbStore {
    fn abilities(&self) -> Abilities {
        Abilities { concurrent_writers: false, buffered_survives_kill: false }
    }

    fn create_table(&self, table: Table) -> Result<()> {
        self.change(redb::Durability::None, |txn| {
            txn.open_table(definition(&name(table)))?;
            Ok(())
        })
    }

    fn drop_table(&self, table: Table) -> Result<()> {
        self.change(redb::Durability::None, |txn| {
            txn.delete_table(definition(&name(table)))?;
            Ok(())
        })
    }

    fn commit(&self, changes: &[Change<'_>], durability: Durability) -> Result<()> {
        self.change(self.durability(durability), |txn| {
            let mut open = OpenTables { txn, rows: Vec::new() };
            for same in changes.chunk_by(|a, b| target(a) == target(b)) {
                open.change(same)?;
            }
            Ok(())
        })
    }

    fn sync(&self) -> Result<()> {
        self.change(redb::Durability::Immediate, |_| Ok(()))
    }

    fn get(&self, place: Place, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let reader = self.reader()?;
        let Some(table) = reader.table(place.table)? else { return Ok(false) };
        let row = table.get(place.id)?;
        Ok(row.map(|row| read(row.value())).is_some())
    }

    fn meta(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let reader = self.reader()?;
        let value = reader.meta.get(name)?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    fn snapshot(&self) -> Result<Box<dyn RowSnapshot + '_>> {
        let (txn, meta) = begin(&self.db)?;
        Ok(Box::new(Snapshot { txn, tables: Vec::new(), _meta: meta }))
    }
}

/// The table that a change is of; none for named values.
fn target(change: &Change<'_>) -> Option<Table> {
    match change {
        Change::Put { place, .. } | Change::Remove { place } => Some(place.table),
        Change::SetMeta { .. } => None,
    }
}

/// The tables that a transaction has opened: opening searches for the table's name.
struct OpenTables<'t> {
    txn: &'t WriteTransaction,
    rows: Vec<(Table, redb::Table<'t, u64, &'static [u8]>)>,
}

impl<'t> OpenTables<'t> {
    /// Makes changes of one target.
    fn change(&mut self, changes: &[Change<'_>]) -> Result<()> {
        let Some(table) = changes.first().and_then(target) else {
            let mut meta = self.txn.open_table(META)?;
            for change in changes {
                if let Change::SetMeta { name, value } = change {
                    meta.insert(name, value)?;
                }
            }
            return Ok(());
        };
        let rows = self.rows(table)?;
        for change in changes {
            match change {
                Change::Put { place, row } => drop(rows.insert(place.id, *row)?),
                Change::Remove { place } => drop(rows.remove(place.id)?),
                Change::SetMeta { .. } => {}
            }
        }
        Ok(())
    }

    fn rows(&mut self, table: Table) -> Result<&mut redb::Table<'t, u64, &'static [u8]>> {
        let known = self.rows.iter().position(|(number, _)| *number == table);
        let at = known.unwrap_or(self.rows.len());
        if known.is_none() {
            self.rows.push((table, self.txn.open_table(definition(&name(table)))?));
        }
        Ok(&mut self.rows[at].1)
    }
}

/// A read transaction and the tables that it has opened. The order of the fields is that of [`begin`].
struct Snapshot {
    txn: ReadTransaction,
    tables: Vec<(Table, RowTable)>,
    _meta: MetaTable,
}

impl Snapshot {
    fn table(&mut self, table: Table) -> Result<Option<&RowTable>> {
        let known = self.tables.iter().position(|(number, _)| *number == table);
        let at = known.unwrap_or(self.tables.len());
        if known.is_none() {
            let Some(opened) = open_table(&self.txn, table)? else { return Ok(None) };
            self.tables.push((table, opened));
        }
        Ok(Some(&self.tables[at].1))
    }
}

impl RowSnapshot for Snapshot {
    fn get(&mut self, place: Place, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(table) = self.table(place.table)? else { return Ok(false) };
        let row = table.get(place.id)?;
        Ok(row.map(|row| read(row.value())).is_some())
    }

    fn scan(
        &mut self,
        table: Table,
        first: u64,
        last: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        let Some(table) = self.table(table)?.filter(|_| first <= last) else { return Ok(()) };
        for entry in table.range(first..=last)? {
            let (id, row) = entry?;
            if !visit(id.value(), row.value()) {
                break;
            }
        }
        Ok(())
    }

    fn last(&mut self, table: Table, first: u64, last: u64) -> Result<Option<u64>> {
        let Some(table) = self.table(table)?.filter(|_| first <= last) else { return Ok(None) };
        let entry = table.range(first..=last)?.next_back().transpose()?;
        Ok(entry.map(|(id, _)| id.value()))
    }
}
