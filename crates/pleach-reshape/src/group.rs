//! Group commit: writes that wait for a store with one writer share a transaction.
//!
//! The first writer that comes while nobody commits is the leader: it commits its own changes and those of all who wait. Those
//! who come meanwhile wait for the next leader. There is no timer, so a lone writer never waits.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::MutexGuard;
use pleach::Result;
use pleach::env::sync::{Condvar, Mutex};

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

struct Request {
    transaction: Transaction,
    durability: Durability,
    outcome: Mutex<Option<Result<()>>>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Arc<Request>>,
    has_leader: bool,
}

/// The queue of writes.
#[derive(Default)]
pub(crate) struct Group {
    queue: Mutex<Queue>,
    /// Notified when a leader has ended.
    ended: Condvar,
}

/// Commits alone.
pub(crate) fn commit_alone(
    store: &dyn RowStore,
    transaction: &Transaction,
    durability: Durability,
) -> Result<()> {
    let changes: Vec<_> = transaction.changes().collect();
    store.commit(&changes, durability).map_err(|e| store_error("commit", &e))
}

impl Group {
    /// Commits together with others. Gives the transaction back.
    pub(crate) fn commit(
        &self,
        store: &dyn RowStore,
        transaction: Transaction,
        durability: Durability,
    ) -> (Transaction, Result<()>) {
        let request = Arc::new(Request { transaction, durability, outcome: Mutex::new(None) });
        let mut queue = self.queue.lock();
        queue.waiting.push(Arc::clone(&request));
        let outcome = loop {
            if let Some(outcome) = request.outcome.lock().take() {
                break outcome;
            }
            if queue.has_leader {
                self.ended.wait(&mut queue);
            } else {
                queue = self.lead(store, queue);
            }
        };
        drop(queue);
        let request = Arc::into_inner(request).expect("the leader has given its copy back under the lock");
        (request.transaction, outcome)
    }

    fn lead<'a>(&'a self, store: &dyn RowStore, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let group = std::mem::take(&mut queue.waiting);
        queue.has_leader = true;
        drop(queue);
        let is_synced = group.iter().any(|request| request.durability == Durability::Sync);
        let durability = if is_synced { Durability::Sync } else { Durability::Buffered };
        let changes: Vec<_> = group.iter().flat_map(|request| request.transaction.changes()).collect();
        let outcome = store.commit(&changes, durability).map_err(|e| store_error("commit", &e));
        drop(changes);
        let mut queue = self.queue.lock();
        queue.has_leader = false;
        for request in group {
            *request.outcome.lock() = Some(outcome.clone());
        }
        self.ended.notify_all();
        queue
    }
}
