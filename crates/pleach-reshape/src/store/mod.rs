//! Stores of rows: the B+tree stores under the map.
//!
//! A [`RowStore`] keeps rows by table and id, and a few named values. It knows nothing of keys. Writes come as whole
//! transactions and need no reads inside: who writes a key holds its latch.

#[cfg(any(feature = "redb", feature = "lmdb"))]
mod folder;
#[cfg(feature = "lmdb")]
pub mod lmdb;
#[cfg(feature = "testing")]
pub mod model;
#[cfg(feature = "lmdb")]
mod read_ahead;
#[cfg(feature = "redb")]
pub mod redb;

use std::fmt::Debug;

/// An error of a store, in its own words.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A result whose error is a store's.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A table of rows: a generation, or a stripe of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Table(pub u16);

/// Where a row is. Places order by table, then id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The table.
    pub table: Table,
    /// The row's id in its table.
    pub id: u64,
}

/// When a transaction counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the store has it. A power cut may take it, with everything after it; so may a killed process, unless
    /// [`Abilities::buffered_survives_kill`].
    #[default]
    Buffered,
    /// When the medium has it and all before it.
    Sync,
}

/// One change of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Writes a row, over another of that place if there is one.
    Put {
        /// Where.
        place: Place,
        /// Its bytes.
        row: &'a [u8],
    },
    /// Removes a row, if it is there.
    Remove {
        /// Where.
        place: Place,
    },
    /// Writes a named value.
    SetMeta {
        /// Its name.
        name: &'a str,
        /// Its bytes.
        value: &'a [u8],
    },
}

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Writers commit side by side. Otherwise writers that wait share a transaction. Several threads call `commit` even then:
    /// cleaning, checkpoints and named values do not join a group.
    pub concurrent_writers: bool,
    /// What is committed as [`Durability::Buffered`] survives a killed process.
    pub buffered_survives_kill: bool,
}

/// A B+tree store as a keeper of rows.
///
/// # Contract
/// 1. Atomic: a transaction is there whole or not at all, also after a crash.
/// 2. Prefix: after a crash the transactions that are there are a prefix of those that committed, in their order, and none
///    that was synced is missing. Where transactions ran side by side, one that began after another's commit comes later.
/// 3. Visible: a read that begins after a commit returned sees it.
/// 4. Empty: reads of a table that is not there find nothing.
///
/// Functions that are shown rows do not call the store: a lock may be held meanwhile.
pub trait RowStore: Send + Sync + Debug {
    /// What the store can do.
    fn abilities(&self) -> Abilities;

    /// Makes a table, unless it is there. It is durable with the next sync.
    fn create_table(&self, table: Table) -> Result<()>;

    /// As [`create_table`](Self::create_table), for a table whose rows will lie in the order of user keys, because they are moved
    /// there in it: scans read neighbours, so a store may choose larger pages.
    fn create_clustered_table(&self, table: Table) -> Result<()> {
        self.create_table(table)
    }

    /// Removes a table with all rows, if it is there. No snapshot of it may be in use. Behind an error the table may be there,
    /// and another removal may take it for removed; [`RowStore::create_table`] then finds it with its rows.
    fn drop_table(&self, table: Table) -> Result<()>;

    /// Does all changes in one transaction, in their order. The tables exist. A conflict with another transaction is retried
    /// inside.
    fn commit(&self, changes: &[Change<'_>], durability: Durability) -> Result<()>;

    /// Makes all that is committed durable.
    fn sync(&self) -> Result<()>;

    /// Shows a row's bytes; false if there is none, or no such table: a read may come after its row was moved and its table
    /// dropped.
    fn get(&self, place: Place, read: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// A named value.
    fn meta(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// The state as of now, for as long as it is held. It may go to another thread.
    fn snapshot(&self) -> Result<Box<dyn RowSnapshot + '_>>;
}

/// Ids between two rows that one scan reads: it passes so many other rows at most, which costs less than a search.
const GAP_MAX: u64 = 8;

/// Whether `next` is so soon behind `place` that a scan gets there sooner than a search.
fn is_near(place: &Place, next: &Place) -> bool {
    place.table == next.table && next.id.wrapping_sub(place.id) <= GAP_MAX
}

/// A store's state at one moment.
pub trait RowSnapshot: Send {
    /// Shows a row's bytes; false if there is none.
    fn get(&mut self, place: Place, read: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Shows the rows that are there of ascending places, in their order, each with its index in `places`. Cheaper than one
    /// [`get`](Self::get) each where places are neighbours: those are read by one scan.
    fn get_many(&mut self, places: &[Place], read: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let mut index = 0;
        for run in places.chunk_by(is_near) {
            let start = index;
            index += run.len();
            if let [place] = run {
                self.get(*place, &mut |row| read(start, row))?;
                continue;
            }
            let (first, last) = (run[0], run[run.len() - 1]);
            let mut at = 0;
            self.scan(first.table, first.id, last.id, &mut |id, row| {
                at += run[at..].iter().take_while(|place| place.id < id).count();
                while at < run.len() && run[at].id == id {
                    read(start + at, row);
                    at += 1;
                }
                at < run.len()
            })?;
        }
        Ok(())
    }

    /// Shows the rows of a table with ids from `first` to `last`, both included, in their order, until `visit` returns false.
    fn scan(
        &mut self,
        table: Table,
        first: u64,
        last: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()>;

    /// The greatest id of a table from `first` to `last`, both included.
    fn last(&mut self, table: Table, first: u64, last: u64) -> Result<Option<u64>>;
}
