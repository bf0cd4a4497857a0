//! Replaced rows: what writers have left for later, and the removal of it by checkpoints.
//!
//! With [`Update::Defer`](crate::Update::Defer) a writer notes the id of the row that it has replaced, and that of a row which
//! says that its key was deleted (a *tombstone*). When there are enough of these ids, a checkpoint removes the rows in the order
//! of their ids, so that rows of a page go together. It reads no row and does not ask the map. A crash loses the ids; then
//! [`Reshaped::clean`](crate::Reshaped::clean) finds the rows.
//!
//! # Invariants
//! 1. Published: an id is here only after what replaced it is committed and published. So no crash leaves a removal without it.
//! 2. Order: a tombstone is removed in the same transaction as the rows that it hides, or later. It stays while rows may be
//!    there whose ids are not noted.
//! 3. Generations: ids of tables that were dropped are forgotten before their numbers are given again.
//!
//! # Concurrency
//! Writers add while they hold the gate. The queue of removals is guarded by the lock of maintenance, which keeps the tables.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pleach::env::sync::Mutex;
use pleach::{ErrorKind, Result};

use crate::checkpoint::Maintenance;
use crate::group::{Transaction, commit_alone};
use crate::handle::Inner;
use crate::ids::Id;
use crate::named;
use crate::options::Update;
use crate::store::Durability;

/// Rows removed in one transaction at most, and as a part of those that may be there: a writer waits for one transaction where
/// the store has one writer.
const TRANSACTION_ROWS: usize = 1024;
const TRANSACTION_SHARE: usize = 64;
/// Rows that one checkpoint removes: few, because writers may wait for the checkpoint.
const CHECKPOINT_ROWS: usize = 16 * TRANSACTION_ROWS;

/// Rows that are to be removed.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    noted: Mutex<Noted>,
    /// How many are noted or in the queue.
    pending: AtomicUsize,
    /// Whether rows may be there that were replaced and not noted: those from before the open.
    has_unknown: AtomicBool,
    /// Whether tombstones were forgotten since the last cleaning began.
    has_forgotten: AtomicBool,
}

#[derive(Debug, Default)]
struct Noted {
    rows: Vec<Id>,
    /// Rows that say that their key was deleted.
    tombstones: Vec<Id>,
}

impl Replaced {
    pub(crate) fn new(has_unknown: bool) -> Self {
        Self { has_unknown: AtomicBool::new(has_unknown), ..Self::default() }
    }

    /// Notes rows that were replaced, and tombstones. Requires: invariant 1, and the caller holds the gate.
    pub(crate) fn note(&self, rows: &[Id], tombstones: &[Id]) {
        if rows.is_empty() && tombstones.is_empty() {
            return;
        }
        let mut noted = self.noted.lock();
        noted.rows.extend_from_slice(rows);
        noted.tombstones.extend_from_slice(tombstones);
        self.pending.fetch_add(rows.len() + tombstones.len(), Ordering::Relaxed);
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Forgets the ids that are of a generation, which is going to have its first rows now.
    pub(crate) fn forget(&self, queue: &mut VecDeque<Id>, generation: u64) {
        let mut noted = self.noted.lock();
        let is_other = |id: &Id| !id.is_of(generation);
        noted.rows.retain(is_other);
        noted.tombstones.retain(is_other);
        queue.retain(is_other);
        self.pending.store(noted.rows.len() + noted.tombstones.len() + queue.len(), Ordering::Relaxed);
    }

    /// A cleaning begins, which removes all tombstones that were forgotten before.
    pub(crate) fn begin_cleaning(&self) {
        self.has_forgotten.store(false, Ordering::SeqCst);
    }

    /// A cleaning has removed all that was replaced before the open.
    pub(crate) fn end_cleaning(&self) {
        self.has_unknown.store(false, Ordering::SeqCst);
    }

    /// Whether all replaced rows and all tombstones are noted.
    fn knows_all(&self) -> bool {
        !self.has_unknown.load(Ordering::SeqCst) && !self.has_forgotten.load(Ordering::SeqCst)
    }

    /// Moves what is noted to the queue, in the order of removal.
    fn enqueue(&self, queue: &mut VecDeque<Id>) {
        let Noted { mut rows, mut tombstones } = std::mem::take(&mut *self.noted.lock());
        rows.sort_unstable();
        tombstones.sort_unstable();
        queue.extend(rows);
        if self.has_unknown.load(Ordering::SeqCst) {
            self.has_forgotten.fetch_or(!tombstones.is_empty(), Ordering::SeqCst);
            self.pending.fetch_sub(tombstones.len(), Ordering::Relaxed);
        } else {
            queue.extend(tombstones);
        }
    }
}

impl Inner {
    /// Whether so many rows are replaced that they are to be removed.
    pub(crate) fn is_removal_due(&self) -> bool {
        self.replaced.pending() >= self.options.replaced_rows
    }

    /// Whether writers remove what they replace themselves.
    pub(crate) fn is_removal_behind(&self) -> bool {
        self.replaced.pending() >= self.options.replaced_rows.saturating_mul(2)
    }

    /// Whether writers wait for the removal: they delete faster than it removes.
    pub(crate) fn is_removal_far_behind(&self) -> bool {
        self.replaced.pending() >= self.options.replaced_rows.saturating_mul(4)
    }

    /// Removes a part of the replaced rows, if there are enough.
    pub(crate) fn remove_if_due(&self, maintenance: &mut Maintenance) -> Result<()> {
        if maintenance.removals.is_empty() && self.is_removal_due() {
            self.replaced.enqueue(&mut maintenance.removals);
        }
        self.remove_queued(maintenance, CHECKPOINT_ROWS)
    }

    /// Removes all replaced rows that are noted. Nobody writes meanwhile. If none are left, the store says so.
    pub(crate) fn remove_replaced(&self) -> Result<()> {
        if self.options.update != Update::Defer {
            return Ok(());
        }
        self.check_writable()?;
        let mut maintenance = self.maintenance.lock();
        self.remove_queued(&mut maintenance, usize::MAX)?;
        self.replaced.enqueue(&mut maintenance.removals);
        self.remove_queued(&mut maintenance, usize::MAX)?;
        if self.replaced.knows_all() {
            named::set_garbage(&*self.store, false)?;
        }
        Ok(())
    }

    fn remove_queued(&self, maintenance: &mut Maintenance, rows_max: usize) -> Result<()> {
        let transaction_rows = (self.options.replaced_rows / TRANSACTION_SHARE).clamp(1, TRANSACTION_ROWS);
        let mut left = rows_max;
        while left > 0 && !maintenance.removals.is_empty() {
            let count = maintenance.removals.len().min(transaction_rows).min(left);
            let allocator = self.allocator.load();
            let mut transaction = Transaction::default();
            for id in maintenance.removals.range(..count) {
                // The tables of a generation without rows may be gone.
                if id.is_of(allocator.generation) || allocator.previous.is_some() {
                    transaction.remove(self.layout.place(*id));
                }
            }
            if !transaction.is_empty() {
                let outcome = commit_alone(&*self.store, &transaction, Durability::Buffered);
                outcome.inspect_err(|error| {
                    if error.kind() == ErrorKind::Io {
                        self.poison(error);
                    }
                })?;
            }
            maintenance.removals.drain(..count);
            self.replaced.pending.fetch_sub(count, Ordering::Relaxed);
            left -= count;
        }
        Ok(())
    }
}
