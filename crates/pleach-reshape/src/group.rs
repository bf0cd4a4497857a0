//! Group commit: writes that wait for a store with one writer share a transaction.

use std::ops::Range;

use pleach::env::Env;
use pleach::env::sync::{Combiner, Pace};
use pleach::{Error, ErrorKind, Result};

use crate::named::store_error;
use crate::store::{Change, Durability, Place, RowStore};

/// The changes of one write.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// The rows' bytes, one after the other.
    pub(crate) bytes: Vec<u8>,
    changes: Vec<(Place, Option<Range<usize>>)>,
    /// A named value that changes with the rows.
    named: Option<(&'static str, Vec<u8>)>,
}

impl Transaction {
    /// Has room for so many changes, and for rows of so many bytes.
    pub(crate) fn with_capacity(changes: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), changes: Vec::with_capacity(changes), named: None }
    }

    /// Adds a row that `encode` appends to the bytes.
    pub(crate) fn put(&mut self, place: Place, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        encode(&mut self.bytes);
        self.changes.push((place, Some(start..self.bytes.len())));
    }

    pub(crate) fn remove(&mut self, place: Place) {
        self.changes.push((place, None));
    }

    pub(crate) fn set_named(&mut self, name: &'static str, value: Vec<u8>) {
        self.named = Some((name, value));
    }

    /// Whether no row changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        let named = self.named.iter().map(|(name, value)| Change::SetMeta { name, value });
        let rows = self.changes.iter().map(|(place, row)| match row {
            Some(bytes) => Change::Put { place: *place, row: &self.bytes[bytes.clone()] },
            None => Change::Remove { place: *place },
        });
        rows.chain(named)
    }
}

/// Writes that wait, and how a transaction ended.
pub(crate) type Group = Combiner<(Transaction, Durability), Result<()>>;

/// Commits together with others. Gives the transaction back.
pub(crate) fn commit_together(
    group: &Group,
    store: &dyn RowStore,
    env: &dyn Env,
    transaction: Transaction,
    durability: Durability,
) -> (Transaction, Result<()>) {
    let ((transaction, _), outcome) = group.submit((transaction, durability), |writes| {
        let is_synced = writes.iter().any(|(_, durability)| *durability == Durability::Sync);
        let durability = if is_synced { Durability::Sync } else { Durability::Buffered };
        let started = env.now();
        let outcome =
            commit(store, writes.iter().flat_map(|(transaction, _)| transaction.changes()), durability);
        (outcome, Pace::of(env.now().saturating_sub(started)))
    });
    (transaction, outcome.unwrap_or_else(|| Err(commit_panicked())))
}

/// Commits alone.
pub(crate) fn commit_alone(
    store: &dyn RowStore,
    transaction: &Transaction,
    durability: Durability,
) -> Result<()> {
    commit(store, transaction.changes(), durability)
}

fn commit<'c>(
    store: &dyn RowStore,
    changes: impl Iterator<Item = Change<'c>>,
    durability: Durability,
) -> Result<()> {
    store.commit(&changes.collect::<Vec<_>>(), durability).map_err(|e| store_error("commit", &e))
}

/// The error of writes whose commit panicked, and of what comes later.
pub(crate) fn commit_panicked() -> Error {
    Error::new(ErrorKind::Poisoned, "a thread panicked while it was committing; open the store again")
}
