//! The model: a store of rows in memory that may lose any suffix of its unsynced commits.
//!
//! For tests. It keeps the state after every commit, so a test can take a store as a crash might leave it
//! ([`ModelStore::crash`]). It can fail commits and syncs, and calls a hook around its calls. It keeps the contract of
//! [`RowStore`] and nothing more.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use imbl::OrdMap;
use pleach::env::sync::Mutex;

use super::{Abilities, Change, Durability, Error, Place, Result, RowSnapshot, RowStore, Table};

/// What a hook is told: that a call begins, or that a commit is there and its caller does not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A commit begins.
    Commit,
    /// A commit is visible; its call has not returned.
    Committed,
    /// A sync begins.
    Sync,
    /// A table is going to be made.
    CreateTable,
    /// A table is going to be removed.
    DropTable,
    /// A row is going to be read.
    Get,
}

/// A planted failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The next commit fails without an effect.
    Commit,
    /// The next commit takes effect and returns an error.
    CommitAfterEffect,
    /// The next sync, or the next commit that syncs, fails. The commit takes effect.
    Sync,
    /// The next removal of a table has no effect and returns an error. Another one takes it for done, until the table is made
    /// again.
    DropTable,
}

type Hook = Arc<dyn Fn(Call) + Send + Sync>;

/// A store of rows in memory. Clones share it.
#[derive(Clone)]
pub struct ModelStore {
    abilities: Abilities,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
    /// Rows that scans of snapshots have shown.
    scanned: AtomicU64,
    scans: AtomicU64,
}

struct ModelSnapshot<'s> {
    image: Image,
    shared: &'s Shared,
}

struct State {
    /// The states after each commit that a crash may leave, the oldest first; the last one is the present.
    images: Vec<Image>,
    /// Index of the newest image that is durable.
    durable: usize,
    keeps_all: bool,
    failure: Option<Failure>,
    /// Tables whose removal has failed.
    forgotten: Vec<Table>,
}

#[derive(Clone, Default)]
struct Image {
    tables: BTreeMap<Table, OrdMap<u64, Arc<[u8]>>>,
    named: OrdMap<String, Arc<[u8]>>,
}

impl Image {
    fn apply(&mut self, change: Change<'_>) -> Result<()> {
        match change {
            Change::Put { place, row } => {
                self.table(place.table)?.insert(place.id, row.into());
            }
            Change::Remove { place } => {
                self.table(place.table)?.remove(&place.id);
            }
            Change::SetMeta { name, value } => {
                self.named.insert(name.into(), value.into());
            }
        }
        Ok(())
    }

    fn table(&mut self, table: Table) -> Result<&mut OrdMap<u64, Arc<[u8]>>> {
        self.tables.get_mut(&table).ok_or_else(|| Error::from(format!("there is no table {}", table.0)))
    }

    fn row(&self, place: Place) -> Option<&Arc<[u8]>> {
        self.tables.get(&place.table)?.get(&place.id)
    }
}

impl ModelStore {
    /// An empty store, whose transactions run side by side if `concurrent_writers`.
    pub fn new(concurrent_writers: bool) -> Self {
        Self::of(concurrent_writers, Image::default(), true)
    }

    /// As [`ModelStore::new`], but it keeps no state that it could lose: for measurements.
    pub fn without_history(concurrent_writers: bool) -> Self {
        Self::of(concurrent_writers, Image::default(), false)
    }

    fn of(concurrent_writers: bool, image: Image, keeps_all: bool) -> Self {
        let state =
            State { images: vec![image], durable: 0, keeps_all, failure: None, forgotten: Vec::new() };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            hook: Mutex::new(None),
            scanned: AtomicU64::new(0),
            scans: AtomicU64::new(0),
        });
        Self { abilities: Abilities { concurrent_writers, buffered_survives_kill: true }, shared }
    }

    /// Commits so far. What was there before a crash counts as none.
    pub fn commits(&self) -> usize {
        self.shared.state.lock().images.len() - 1
    }

    /// Rows that scans of snapshots have shown so far.
    pub fn scanned_rows(&self) -> u64 {
        self.shared.scanned.load(Ordering::Relaxed)
    }

    /// Scans of snapshots so far.
    pub fn scans(&self) -> u64 {
        self.shared.scans.load(Ordering::Relaxed)
    }

    /// The first so many commits are durable.
    pub fn durable_commits(&self) -> usize {
        self.shared.state.lock().durable
    }

    /// The store as a crash leaves it that keeps the first `commits` commits, whether they were durable or not.
    ///
    /// # Panics
    /// If there were fewer.
    #[must_use]
    pub fn crash(&self, commits: usize) -> Self {
        let image = self.shared.state.lock().images[commits].clone();
        Self::of(self.abilities.concurrent_writers, image, true)
    }

    /// Plants a failure, or removes it.
    pub fn fail(&self, failure: Option<Failure>) {
        self.shared.state.lock().failure = failure;
    }

    /// Sets the function that is called around calls, with no lock held.
    pub fn on_call(&self, hook: Option<Hook>) {
        *self.shared.hook.lock() = hook;
    }

    /// Changes a row's bytes behind the back of all.
    pub fn damage(&self, place: Place, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.shared.state.lock();
        let image = state.present();
        if let Some(row) = image.tables.get_mut(&place.table).and_then(|rows| rows.get_mut(&place.id)) {
            let mut bytes = row.to_vec();
            change(&mut bytes);
            *row = bytes.into();
        }
    }

    /// Places of all rows, in order.
    pub fn places(&self) -> Vec<Place> {
        let mut state = self.shared.state.lock();
        let tables = state.present().tables.iter();
        tables.flat_map(|(table, rows)| rows.keys().map(|id| Place { table: *table, id: *id })).collect()
    }

    /// All tables.
    pub fn tables(&self) -> Vec<Table> {
        self.shared.state.lock().present().tables.keys().copied().collect()
    }

    fn call(&self, call: Call) {
        let hook = self.shared.hook.lock().clone();
        if let Some(hook) = hook {
            hook(call);
        }
    }

    /// Makes a further state from the present one.
    fn advance(&self, change: impl FnOnce(&mut Image) -> Result<()>) -> Result<()> {
        let mut state = self.shared.state.lock();
        if !state.keeps_all {
            return change(state.present());
        }
        let mut image = state.present().clone();
        change(&mut image)?;
        state.images.push(image);
        Ok(())
    }
}

impl State {
    fn present(&mut self) -> &mut Image {
        self.images.last_mut().expect("there is always a present state")
    }

    fn take_failure(&mut self, failure: Failure) -> Result<()> {
        if self.failure == Some(failure) {
            self.failure = None;
            return Err(format!("planted: {failure:?}").into());
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.take_failure(Failure::Sync)?;
        self.durable = self.images.len() - 1;
        Ok(())
    }
}

impl fmt::Debug for ModelStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelStore").field("commits", &self.commits()).finish_non_exhaustive()
    }
}

impl RowStore for ModelStore {
    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn create_table(&self, table: Table) -> Result<()> {
        self.call(Call::CreateTable);
        self.shared.state.lock().forgotten.retain(|forgotten| *forgotten != table);
        self.advance(|image| {
            image.tables.entry(table).or_default();
            Ok(())
        })
    }

    fn drop_table(&self, table: Table) -> Result<()> {
        self.call(Call::DropTable);
        {
            let mut state = self.shared.state.lock();
            if state.failure == Some(Failure::DropTable) {
                state.forgotten.push(table);
            }
            state.take_failure(Failure::DropTable)?;
            if state.forgotten.contains(&table) {
                return Ok(());
            }
        }
        self.advance(|image| {
            image.tables.remove(&table);
            Ok(())
        })
    }

    fn commit(&self, changes: &[Change<'_>], durability: Durability) -> Result<()> {
        self.call(Call::Commit);
        self.shared.state.lock().take_failure(Failure::Commit)?;
        self.advance(|image| changes.iter().try_for_each(|change| image.apply(*change)))?;
        let mut state = self.shared.state.lock();
        let synced = if durability == Durability::Sync { state.sync() } else { Ok(()) };
        let failed = state.take_failure(Failure::CommitAfterEffect);
        drop(state);
        self.call(Call::Committed);
        synced.and(failed)
    }

    fn sync(&self) -> Result<()> {
        self.call(Call::Sync);
        self.shared.state.lock().sync()
    }

    fn get(&self, place: Place, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.call(Call::Get);
        let row = self.shared.state.lock().present().row(place).cloned();
        Ok(row.inspect(|row| read(row)).is_some())
    }

    fn meta(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.shared.state.lock().present().named.get(name).map(|value| value.to_vec()))
    }

    fn snapshot(&self) -> Result<Box<dyn RowSnapshot + '_>> {
        let image = self.shared.state.lock().present().clone();
        Ok(Box::new(ModelSnapshot { image, shared: &self.shared }))
    }
}

impl RowSnapshot for ModelSnapshot<'_> {
    fn get(&mut self, place: Place, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.image.row(place).inspect(|row| read(row)).is_some())
    }

    fn scan(
        &mut self,
        table: Table,
        first: u64,
        last: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        self.shared.scans.fetch_add(1, Ordering::Relaxed);
        if let Some(rows) = self.image.tables.get(&table).filter(|_| first <= last) {
            rows.range(first..=last).all(|(id, row)| {
                self.shared.scanned.fetch_add(1, Ordering::Relaxed);
                visit(*id, row)
            });
        }
        Ok(())
    }

    fn last(&mut self, table: Table, first: u64, last: u64) -> Result<Option<u64>> {
        let rows = self.image.tables.get(&table).filter(|_| first <= last);
        Ok(rows.and_then(|rows| rows.range(first..=last).next_back()).map(|(id, _)| *id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { table: Table(0), id: 7 };

    fn row_of(store: &ModelStore) -> Option<Vec<u8>> {
        let mut row = None;
        store.get(PLACE, &mut |bytes| row = Some(bytes.to_vec())).unwrap();
        row
    }

    #[test]
    fn a_crash_leaves_any_prefix_of_the_commits() {
        let store = ModelStore::new(false);
        store.create_table(Table(0)).unwrap();
        for row in [b"a", b"b"] {
            store.commit(&[Change::Put { place: PLACE, row }], Durability::Buffered).unwrap();
        }
        store.sync().unwrap();
        store.commit(&[Change::Remove { place: PLACE }], Durability::Buffered).unwrap();
        assert_eq!((store.commits(), store.durable_commits()), (4, 3));
        assert_eq!(row_of(&store.crash(1)), None);
        assert_eq!(row_of(&store.crash(2)), Some(b"a".to_vec()));
        assert_eq!(row_of(&store.crash(3)), Some(b"b".to_vec()));
        assert_eq!(row_of(&store.crash(4)), None);
    }

    #[test]
    fn planted_failures_strike_once() {
        let store = ModelStore::new(false);
        store.create_table(Table(0)).unwrap();
        let put = [Change::Put { place: PLACE, row: b"a" }];
        store.fail(Some(Failure::Commit));
        assert!(store.commit(&put, Durability::Sync).is_err());
        assert_eq!(row_of(&store), None);
        store.fail(Some(Failure::CommitAfterEffect));
        assert!(store.commit(&put, Durability::Buffered).is_err());
        assert_eq!(row_of(&store), Some(b"a".to_vec()));
        store.fail(Some(Failure::Sync));
        assert!(store.sync().is_err());
        assert_eq!(store.durable_commits(), 0);
        store.sync().unwrap();
    }
}
