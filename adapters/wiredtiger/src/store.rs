//! Rows in WiredTiger: a table of 8-byte keys for each number.
//!
//! Transactions of several threads may run side by side. Where each commit writes the log, writers share them. What makes them
//! durable is the log, or without one a checkpoint.
//!
//! # Concurrency
//! Sessions, with their cursors, are pooled: a call takes one and gives it back. A table that is removed must have no cursor
//! left, so pooled sessions are closed then, and those in use are closed when they come back.
//!
//! # On disk
//! Layout: docs/format/row-stores.md.

#![expect(
    clippy::disallowed_methods,
    reason = "WiredTiger knows no other file system, clock and threads than the real ones"
)]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use pleach_reshape::store::{Abilities, Change, Durability, Place, Result, RowSnapshot, RowStore, Table};

use crate::connection::{Connection, Direction, Session};

/// The table of named values. Its name is the mark of such a store and of its layout's version.
const META: &CStr = c"table:pleach-rows-1";
/// The number by which sessions know it.
const META_AT: usize = 0;
/// What the name of a table of rows begins with.
const ROWS: &str = "table:rows-";
/// How long a table that is to be removed may be in use by background threads and by reads, and how often that is tried.
const DROP_PATIENCE: Duration = Duration::from_secs(30);
const DROP_PAUSE: Duration = Duration::from_millis(1);
/// How long a transaction is tried that WiredTiger rolls back. Conflicts end soon. A transaction that does not fit into its cache
/// is rolled back each time.
const COMMIT_PATIENCE: Duration = Duration::from_secs(5);

/// What makes commits durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// No log: a sync is a checkpoint, and each synced commit makes one.
    Off,
    /// A log in memory, which is written when its buffer is full: a killed process loses buffered commits.
    Unwritten,
    /// A log that each commit writes. Writers share transactions, so a buffered write may wait for another thread's sync. A new
    /// store has one stripe unless the options say otherwise, and keeps it under another log setting.
    #[default]
    Written,
}

/// How a store in WiredTiger is opened.
#[derive(Clone, Debug)]
pub struct WiredTigerOptions {
    /// Memory of WiredTiger's cache (default: 64 MiB). A transaction must fit into a part of it.
    pub cache_bytes: u64,
    /// What makes commits durable.
    pub log: Log,
    /// Further configuration of the connection, in WiredTiger's syntax.
    pub connection: String,
    /// Further configuration of tables that are made, in WiredTiger's syntax.
    pub tables: String,
}

impl Default for WiredTigerOptions {
    fn default() -> Self {
        Self { cache_bytes: 64 << 20, log: Log::default(), connection: String::new(), tables: String::new() }
    }
}

/// Pages of tables of rows are small, because a read of a row has no neighbours to gain from, and are filled: rows are appended.
/// The system's read-ahead is off: after two adjacent pages it reads several times the bytes that a scan of 100 rows needs.
/// Tables keep the setting that they were made with.
const TABLES: &str = "key_format=u,value_format=u,leaf_page_max=8KB,memory_page_max=10MB,split_pct=100,access_pattern_hint=random";

/// A scan of rows that lie in the order of keys reads fewer pages if these are larger; reads of single rows become slower.
const CLUSTERED: &str = "leaf_page_max=12KB";

/// An open after a kill repeats what the log has since the last checkpoint. Updates at random take as long again: a read of a
/// page each (measured: 12 to 17 s for those of 16 to 20 s). Checkpoints also bound the log's space.
const CHECKPOINTS: &str = "checkpoint=(wait=8,log_size=128MB)";

/// A store of rows in WiredTiger.
#[derive(Debug)]
pub struct WiredTigerStore {
    connection: Connection,
    log: Log,
    /// Further configuration of tables.
    table_config: String,
    tables: RwLock<Tables>,
    pool: Mutex<Pool>,
    drop_patience: Duration,
    commit_patience: Duration,
}

/// A table's name, and the number by which sessions know it. A number is never used again.
type Known = Arc<(usize, CString)>;

#[derive(Debug, Default)]
struct Tables {
    by_number: BTreeMap<Table, Known>,
    made: usize,
}

impl Tables {
    fn know(&mut self, table: Table, name: CString) {
        self.made += 1;
        self.by_number.insert(table, Arc::new((META_AT + self.made, name)));
    }
}

#[derive(Debug, Default)]
struct Pool {
    idle: Vec<Session>,
    /// Counts removals of tables. A session that was taken before one is closed when it comes back.
    epoch: u64,
}

impl WiredTigerStore {
    /// Opens the store in a folder, or makes one if the folder is missing or empty.
    ///
    /// # Errors
    /// If the folder holds something else or cannot be written to, if the store is in use, or damaged.
    pub fn open(folder: &Path, options: &WiredTigerOptions) -> Result<Self> {
        let shown = folder.display();
        fs::create_dir_all(folder).map_err(|error| format!("cannot make the folder {shown}: {error}"))?;
        let is_new = fs::read_dir(folder)?.next().is_none();
        if !is_new && !fs::exists(folder.join("WiredTiger"))? {
            return Err(format!("{shown} holds other files, and no store of WiredTiger").into());
        }
        let connection = Connection::open(folder, &connection_config(options))
            .map_err(|error| format!("cannot open {shown} with WiredTiger: {error}"))?;
        let session = connection.isolated_session()?;
        let names = session.tables()?;
        let meta = META.to_string_lossy();
        // A crash may have left a store without any table.
        if !names.is_empty() && !names.iter().any(|name| *name == meta) {
            return Err(format!("{shown} is a store of WiredTiger, but not of rows").into());
        }
        session.create(META, "key_format=u,value_format=u")?;
        let mut tables = Tables::default();
        for name in names {
            if let Some(Ok(number)) = name.strip_prefix(ROWS).map(str::parse) {
                tables.know(Table(number), CString::new(name)?);
            }
        }
        Ok(Self {
            connection,
            log: options.log,
            table_config: options.tables.clone(),
            tables: RwLock::new(tables),
            pool: Mutex::new(Pool { idle: vec![session], epoch: 0 }),
            drop_patience: DROP_PATIENCE,
            commit_patience: COMMIT_PATIENCE,
        })
    }

    /// The connection, for statistics.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    fn known(&self, table: Table) -> Option<Known> {
        self.tables.read().by_number.get(&table).cloned()
    }

    /// Takes a session out of the pool, or opens one.
    fn session(&self) -> Result<Pooled<'_>> {
        let (session, epoch) = {
            let mut pool = self.pool.lock();
            (pool.idle.pop(), pool.epoch)
        };
        let session = session.map_or_else(|| self.connection.isolated_session(), Ok)?;
        Ok(Pooled { store: self, session: Some(session), epoch })
    }

    /// Makes all changes in one transaction; false on a conflict, after which none is made.
    fn try_commit(&self, session: &mut Pooled<'_>, changes: &[Change<'_>]) -> Result<bool> {
        // Other isolation finds no conflicts: two transactions could write a row in one order and commit in the other. A single
        // change is a transaction of its own, with the isolation of its session.
        if let [change] = changes {
            return self.apply(session, change, &mut None);
        }
        session.begin_snapshot()?;
        let mut last = None;
        for change in changes {
            let done = self.apply(session, change, &mut last);
            if !matches!(done, Ok(true)) {
                if let Err(error) = session.roll_back() {
                    // It may still be in the transaction.
                    session.session = None;
                    return Err(error);
                }
                return done;
            }
        }
        session.commit().map(|()| true)
    }

    /// Makes one change; false on a conflict. `last` is the table of the change before.
    fn apply(
        &self,
        session: &mut Session,
        change: &Change<'_>,
        last: &mut Option<(Table, Known)>,
    ) -> Result<bool> {
        let place = match *change {
            Change::SetMeta { name, value } => return session.insert(META_AT, META, &meta_key(name), value),
            Change::Put { place, .. } | Change::Remove { place } => place,
        };
        if last.as_ref().is_none_or(|(table, _)| *table != place.table) {
            let known =
                self.known(place.table).ok_or_else(|| format!("there is no table {}", place.table.0))?;
            *last = Some((place.table, known));
        }
        let Some((_, known)) = last else { return Ok(false) };
        match *change {
            Change::Put { row, .. } => session.insert(known.0, &known.1, &key(place.id), row),
            _ => session.remove(known.0, &known.1, &key(place.id)),
        }
    }

    /// Removes a table as soon as nobody uses it.
    fn remove_unused(&self, name: &CStr) -> Result<()> {
        let start = Instant::now();
        loop {
            let idle = {
                let mut pool = self.pool.lock();
                pool.epoch += 1;
                std::mem::take(&mut pool.idle)
            };
            drop(idle);
            if self.connection.session()?.drop_table(name)? {
                return Ok(());
            }
            if start.elapsed() > self.drop_patience {
                return Err("it stays in use".into());
            }
            thread::sleep(DROP_PAUSE);
        }
    }

    fn create_table_with(&self, table: Table, config: &str) -> Result<()> {
        let mut tables = self.tables.write();
        if !tables.by_number.contains_key(&table) {
            let name = CString::new(format!("{ROWS}{}", table.0))?;
            // Of a setting that comes twice, the last counts.
            self.session()?.create(&name, &format!("{TABLES},{config},{}", self.table_config))?;
            tables.know(table, name);
        }
        Ok(())
    }

    fn make_durable(&self, session: &Session) -> Result<()> {
        match self.log {
            Log::Off => session.checkpoint(),
            Log::Unwritten | Log::Written => session.flush_log(),
        }
    }
}

fn connection_config(options: &WiredTigerOptions) -> String {
    let log = match options.log {
        Log::Off => "log=(enabled=false)",
        Log::Unwritten => "log=(enabled=true),transaction_sync=(enabled=false)",
        Log::Written => "log=(enabled=true),transaction_sync=(enabled=true,method=none)",
    };
    format!(
        "create,cache_size={},{log},{CHECKPOINTS},session_max=1024,statistics=(fast),{}",
        options.cache_bytes.max(1 << 20),
        options.connection
    )
}

#[expect(clippy::big_endian_bytes, reason = "WiredTiger compares keys as bytes")]
fn key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

#[expect(clippy::big_endian_bytes, reason = "as above")]
fn id(key: &[u8]) -> Result<u64> {
    let bytes = key.try_into().map_err(|_| format!("a key of {} bytes in a table of rows", key.len()))?;
    Ok(u64::from_be_bytes(bytes))
}

/// WiredTiger takes no empty keys.
fn meta_key(name: &str) -> Vec<u8> {
    let mut key = vec![b'n'];
    key.extend_from_slice(name.as_bytes());
    key
}

impl RowStore for WiredTigerStore {
    /// With a written log, threads spin while they wait for each other's log writes: 16 threads on two processors made 2,800
    /// commits a second. So writers share transactions there.
    fn abilities(&self) -> Abilities {
        let is_written = self.log == Log::Written;
        Abilities { concurrent_writers: !is_written, buffered_survives_kill: is_written }
    }

    fn create_table(&self, table: Table) -> Result<()> {
        self.create_table_with(table, "")
    }

    fn create_clustered_table(&self, table: Table) -> Result<()> {
        self.create_table_with(table, CLUSTERED)
    }

    /// A removal is no transaction: it is durable at once. So everything before it is made durable first.
    fn drop_table(&self, table: Table) -> Result<()> {
        self.sync()?;
        // Nobody begins to use it from here on.
        let Some(known) = self.tables.write().by_number.remove(&table) else { return Ok(()) };
        let removed = self.remove_unused(&known.1);
        if removed.is_err() {
            // WiredTiger removes a table whole or not at all.
            self.tables.write().by_number.insert(table, known);
        }
        removed.map_err(|error| format!("table {} cannot be removed: {error}", table.0).into())
    }

    fn commit(&self, changes: &[Change<'_>], durability: Durability) -> Result<()> {
        let mut session = self.session()?;
        let mut start = None;
        while !self.try_commit(&mut session, changes)? {
            if start.get_or_insert_with(Instant::now).elapsed() > self.commit_patience {
                return Err("WiredTiger has rolled the transaction back again and again: if it is large, make it smaller, or open the \
                            store with a greater `cache_bytes`"
                    .into());
            }
            thread::yield_now();
        }
        if durability == Durability::Sync { self.make_durable(&session) } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        self.make_durable(&*self.session()?)
    }

    fn get(&self, place: Place, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut session = self.session()?;
        let Some(known) = self.known(place.table) else { return Ok(false) };
        session.get(known.0, &known.1, &key(place.id), read)
    }

    fn meta(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.session()?.get(META_AT, META, &meta_key(name), &mut |bytes| value = Some(bytes.to_vec()))?;
        Ok(value)
    }

    fn snapshot(&self) -> Result<Box<dyn RowSnapshot + '_>> {
        let mut session = self.session()?;
        // Of tables that the snapshot may never read, and that may be removed meanwhile.
        session.close_cursors()?;
        session.begin_snapshot()?;
        Ok(Box::new(Snapshot { session }))
    }
}

/// A session that goes back to the pool.
struct Pooled<'s> {
    store: &'s WiredTigerStore,
    session: Option<Session>,
    epoch: u64,
}

impl std::ops::Deref for Pooled<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("it is there until this is dropped")
    }
}

impl std::ops::DerefMut for Pooled<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("it is there until this is dropped")
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        let mut pool = self.store.pool.lock();
        if self.epoch == pool.epoch {
            pool.idle.extend(self.session.take());
        }
    }
}

/// A session with a transaction that sees one state.
struct Snapshot<'s> {
    session: Pooled<'s>,
}

impl RowSnapshot for Snapshot<'_> {
    fn get(&mut self, place: Place, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(known) = self.session.store.known(place.table) else { return Ok(false) };
        self.session.get(known.0, &known.1, &key(place.id), read)
    }

    fn scan(
        &mut self,
        table: Table,
        first: u64,
        last: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        let Some(known) = self.session.store.known(table) else { return Ok(()) };
        let mut bad = None;
        self.session.scan(
            known.0,
            &known.1,
            Some(&key(first)),
            Direction::Forward,
            &mut |key, row| match id(key) {
                Ok(id) => id <= last && visit(id, row),
                Err(error) => {
                    bad = Some(error);
                    false
                }
            },
        )?;
        bad.map_or(Ok(()), Err)
    }

    fn last(&mut self, table: Table, first: u64, last: u64) -> Result<Option<u64>> {
        let Some(known) = self.session.store.known(table) else { return Ok(None) };
        let mut found = Ok(None);
        self.session.scan(known.0, &known.1, Some(&key(last)), Direction::Reverse, &mut |key, _| {
            found = id(key).map(Some);
            false
        })?;
        Ok(found?.filter(|id| (first..=last).contains(id)))
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        if self.session.roll_back().is_err() {
            // A session with a transaction that does not end is of no use to others.
            self.session.session = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_stays_in_use_keeps_its_rows_and_can_be_removed_later() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || WiredTigerStore::open(folder.path(), &WiredTigerOptions::default()).expect("a store");
        let mut store = open();
        store.drop_patience = Duration::from_millis(5);
        let place = Place { table: Table(3), id: 7 };
        store.create_table(place.table).expect("a table");
        store.commit(&[Change::Put { place, row: b"seven" }], Durability::Buffered).expect("a commit");
        let is_there = |store: &WiredTigerStore| store.get(place, &mut |_| {}).expect("a read");
        let mut snapshot = store.snapshot().expect("a snapshot");
        assert!(snapshot.get(place, &mut |_| {}).expect("a read"));
        let error = store.drop_table(place.table).expect_err("it is in use");
        assert!(error.to_string().contains("in use"), "{error}");
        assert!(is_there(&store));
        drop(snapshot);
        store.drop_table(place.table).expect("a removal");
        assert!(!is_there(&store));
        drop(store);
        assert!(!is_there(&open()));
    }

    #[test]
    fn a_transaction_that_is_rolled_back_each_time_ends_with_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut store = WiredTigerStore::open(folder.path(), &WiredTigerOptions::default()).expect("a store");
        store.commit_patience = Duration::from_millis(5);
        let table = Table(1);
        store.create_table(table).expect("a table");
        let put = |id| Change::Put { place: Place { table, id }, row: b"row" };
        let mut other = store.session().expect("a session");
        other.begin_snapshot().expect("a transaction");
        assert!(store.apply(&mut other, &put(1), &mut None).expect("a put"));
        // Behind a single change WiredTiger itself would try until the other one ends.
        let error = store.commit(&[put(2), put(1)], Durability::Buffered).expect_err("another has the row");
        assert!(error.to_string().contains("cache_bytes"), "{error}");
        other.roll_back().expect("an end");
        drop(other);
        let is_there = |id| store.get(Place { table, id }, &mut |_| {}).expect("a read");
        assert!(!is_there(1) && !is_there(2));
        store.commit(&[put(2), put(1)], Durability::Buffered).expect("a commit");
        assert!(is_there(1) && is_there(2));
    }
}
