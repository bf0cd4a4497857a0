//! Write path: latches, old places, ids and a version, one transaction of the store, publication to the map.
//!
//! # Order
//! Latches; lookup of the keys in the map; slot; gate, shared; version; ids; commit; publication; row cache; then all are given
//! back.
//! The version is taken before the ids: a checkpoint relies on it (`checkpoint`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use pleach::{Error, Result};
use smallvec::SmallVec;

use crate::group::{Transaction, commit_alone, commit_panicked, commit_together};
use crate::handle::{Inner, Reshaped};
use crate::ids::{Allocator, Id};
use crate::limits::{KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::map::{Answer, key_hash};
use crate::named::store_error;
use crate::options::Update;
use crate::row::Row;
use crate::store::{Change, Durability};
use crate::threads::thread_number;

/// How often a writer that waits for a checkpoint looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// An operation: a key, and its value or that it is deleted.
pub(crate) type Operation<'a> = (&'a [u8], Option<&'a [u8]>);

/// Puts and deletes that become visible and durable together. Of several operations of a key the last one wins.
#[derive(Debug)]
#[must_use = "a batch does nothing before it is committed"]
pub struct Batch<'a> {
    store: &'a Reshaped,
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    operations: Vec<Span>,
}

/// Where an operation is in the bytes of a batch. Its key ends where its value begins.
#[derive(Debug)]
struct Span {
    start: usize,
    value: usize,
    end: usize,
    is_put: bool,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(store: &'a Reshaped) -> Self {
        Self { store, bytes: Vec::new(), operations: Vec::new() }
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.add(key.as_ref(), Some(value.as_ref()));
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        self.add(key.as_ref(), None);
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let (value_start, end) = (start + key.len(), self.bytes.len());
        self.operations.push(Span { start, value: value_start, end, is_put: value.is_some() });
    }

    /// Operations in it, also those that a later one of the same key replaces.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether it has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Does all operations, in one transaction of the store.
    ///
    /// # Errors
    /// Those of [`Reshaped::put`].
    pub fn commit(self) -> Result<()> {
        self.commit_with(Durability::Buffered)
    }

    /// As [`commit`](Self::commit), as durable as wanted when it returns.
    ///
    /// # Errors
    /// Those of [`Reshaped::put`].
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        let operation = |span: &Span| {
            let (key, value) = (&self.bytes[span.start..span.value], &self.bytes[span.value..span.end]);
            (key, span.is_put.then_some(value))
        };
        let operations = last_of_each_key(self.operations.iter().map(operation).collect());
        self.store.write(&operations, false, durability)?;
        Ok(())
    }
}

/// Operations in the order of keys, of each key the last one.
pub(crate) fn last_of_each_key(mut operations: Vec<Operation<'_>>) -> Vec<Operation<'_>> {
    if !operations.is_sorted_by(|(key, _), (next, _)| key < next) {
        // A stable sort keeps the order of those of a key, and the later ones come first.
        operations.reverse();
        operations.sort_by_key(|(key, _)| *key);
        operations.dedup_by_key(|(key, _)| *key);
    }
    operations
}

impl std::fmt::Debug for Reshaped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reshaped").field("store", &self.inner.store).finish_non_exhaustive()
    }
}

/// What an attempt of a write came to.
enum Attempt {
    /// It is done; whether it changed anything.
    Done(bool),
    /// The ids of this generation do not suffice.
    Exhausted(u64),
}

impl Reshaped {
    /// Does operations, which have each key once. With `only_new`, there is one, and it does nothing if its key is there.
    pub(crate) fn write(
        &self,
        operations: &[Operation<'_>],
        only_new: bool,
        durability: Durability,
    ) -> Result<bool> {
        let inner = &self.inner;
        check(operations, inner.layout.sequence_last())?;
        let hashes: SmallVec<[u64; 4]> = operations.iter().map(|(key, _)| key_hash(key)).collect();
        loop {
            inner.check_writable()?;
            self.wait_for_room()?;
            match inner.attempt(operations, &hashes, only_new, durability)? {
                Attempt::Done(is_changed) => return Ok(is_changed),
                Attempt::Exhausted(generation) => {
                    inner.renew(generation)?;
                    self.wake_job();
                }
            }
        }
    }

    /// Wakes the job if a checkpoint is due, and waits while the map's changes take more memory than they may.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        let inner = &self.inner;
        if inner.is_checkpoint_due() || inner.is_removal_due() {
            self.wake_job();
        }
        let is_full = || inner.map.delta_bytes() > inner.delta_bytes_max() || inner.is_removal_far_behind();
        let mut failures = None;
        while self.has_job() && is_full() {
            let failures = *failures.get_or_insert_with(|| inner.job_errors.lock().room_failures);
            self.wake_job();
            inner.env.sleep(LOOK_AGAIN);
            inner.check_writable()?;
            let errors = inner.job_errors.lock();
            if let Some(error) = errors.room.as_ref().filter(|_| errors.room_failures > failures && is_full())
            {
                return Err(error.clone());
            }
        }
        Ok(())
    }
}

fn check(operations: &[Operation<'_>], sequence_last: u64) -> Result<()> {
    for (key, value) in operations {
        if key.len() > KEY_LEN_MAX {
            return Err(Error::invalid(format!(
                "a key of {} bytes; at most {KEY_LEN_MAX} are possible",
                key.len()
            )));
        }
        let value_len = value.map_or(0, <[u8]>::len);
        if value_len > VALUE_LEN_MAX {
            return Err(Error::invalid(format!(
                "a value of {value_len} bytes; at most {VALUE_LEN_MAX} are possible"
            )));
        }
    }
    if operations.len() as u64 > sequence_last {
        return Err(Error::invalid("a batch of more operations than a stripe has ids"));
    }
    Ok(())
}

fn row_of((key, value): Operation<'_>, version: u64) -> Row<'_> {
    Row { version, key, value }
}

/// What a transaction does with one key.
struct Step {
    old: Option<Id>,
    /// Appends a row.
    appends: bool,
    /// Removes the old row.
    removes: bool,
}

impl Inner {
    fn attempt(
        &self,
        operations: &[Operation<'_>],
        hashes: &[u64],
        only_new: bool,
        durability: Durability,
    ) -> Result<Attempt> {
        let held = self.latches.hold(hashes.iter().copied());
        let old = self.old_ids(operations, hashes)?;
        if only_new && self.is_there(operations[0].0, old[0])? {
            return Ok(Attempt::Done(false));
        }
        let _entered = self.in_flight.enter(thread_number(), &self.tickets);
        let _gate = self.gate.read();
        let allocator = self.allocator.load();
        let steps: SmallVec<[Step; 4]> = operations
            .iter()
            .zip(old)
            .map(|((_, value), old)| self.plan(&allocator, old, value.is_some()))
            .collect();
        let version = self.versions.take(&*self.store)?;
        let appends = steps.iter().filter(|step| step.appends).count() as u64;
        let stripe = thread_number() % self.layout.stripes;
        let Some(mut next) = allocator.take(stripe, appends) else {
            return Ok(Attempt::Exhausted(allocator.generation));
        };
        let bytes = operations.iter().map(|operation| row_of(*operation, version).encoded_len()).sum();
        let mut transaction = Transaction::with_capacity(operations.len(), bytes);
        let mut published: SmallVec<[(usize, Option<Id>); 4]> = SmallVec::with_capacity(operations.len());
        // The row that each key has in the end.
        let mut rows: SmallVec<[Option<Id>; 4]> = SmallVec::with_capacity(operations.len());
        // Rows that are left for later.
        let (mut replaced, mut tombstones) = (SmallVec::<[Id; 4]>::new(), SmallVec::<[Id; 4]>::new());
        for (index, (step, operation)) in steps.iter().zip(operations).enumerate() {
            let (value, row) = (operation.1, row_of(*operation, version));
            rows.push(value.and(if step.appends { Some(next) } else { step.old }));
            if step.appends {
                transaction.put(self.layout.place(next), |bytes| row.encode(bytes));
                published.push((index, value.map(|_| next)));
                if value.is_none() {
                    tombstones.push(next);
                }
                next = Id(next.0 + 1);
            } else if let Some(old) = step.old.filter(|_| value.is_some()) {
                transaction.put(self.layout.place(old), |bytes| row.encode(bytes));
            } else if step.old.is_some() {
                published.push((index, None));
            }
            match step.old {
                Some(old) if step.removes => transaction.remove(self.layout.place(old)),
                Some(old) if step.appends => replaced.push(old),
                _ => {}
            }
        }
        if transaction.is_empty() {
            return Ok(Attempt::Done(false));
        }
        let changes = published.iter().map(|(index, id)| (operations[*index].0, hashes[*index], *id));
        held.announce(version);
        let outcome = self.commit_and_publish(transaction, durability, version, changes);
        // Also behind an error: the transaction may have taken place.
        let changes =
            operations.iter().zip(hashes).enumerate().filter(|(index, _)| steps[*index].old.is_some());
        self.rows.refresh(changes.map(|(index, ((key, value), hash))| {
            (*key, *hash, rows[index].zip(*value).filter(|_| outcome.is_ok()))
        }));
        outcome?;
        self.replaced.note(&replaced, &tombstones);
        Ok(Attempt::Done(true))
    }

    /// Where the rows of the keys are. Requires: their latches are held.
    fn old_ids(&self, operations: &[Operation<'_>], hashes: &[u64]) -> Result<SmallVec<[Option<Id>; 4]>> {
        let keys = operations.iter().map(|(key, _)| *key).zip(hashes.iter().copied());
        let mut old: SmallVec<[Option<Id>; 4]> =
            keys.clone().map(|(key, hash)| self.rows.id(key, hash)).collect();
        if let ([(key, _)], [hash], [id]) = (operations, hashes, &mut *old) {
            if id.is_none() && !self.map.is_above_all(key) {
                *id = self.resolve(&self.map.get(key, *hash)?, key)?;
            }
            return Ok(old);
        }
        let is_wanted = |index: &usize| old[*index].is_none() && !self.map.is_above_all(operations[*index].0);
        let (indexes, wanted): (Vec<_>, Vec<_>) =
            keys.enumerate().filter(|(index, _)| is_wanted(index)).unzip();
        for (index, answer) in indexes.into_iter().zip(self.map.get_many(&wanted)?) {
            old[index] = self.resolve(&answer, operations[index].0)?;
        }
        Ok(old)
    }

    /// The row that a key has by an answer of the map. An answer that is not sure needs a look at the rows.
    ///
    /// Requires: the caller holds the key's latch, and has read the map under it.
    pub(crate) fn resolve(&self, answer: &Answer, key: &[u8]) -> Result<Option<Id>> {
        if answer.is_sure {
            return Ok(answer.ids.first().copied());
        }
        Ok(self.row_of(answer, key, true, |_| ())?.map(|(id, ..)| id))
    }

    /// Whether a key that the map knows is really there.
    fn is_there(&self, key: &[u8], id: Option<Id>) -> Result<bool> {
        Ok(match id {
            Some(id) => self.read_row(id, key, |_| ())?.is_some(),
            None => false,
        })
    }

    fn plan(&self, allocator: &Allocator, old: Option<Id>, is_put: bool) -> Step {
        // A run cannot say that a row is dead, so a row that may be in one goes in the same transaction.
        let may_be_in_run = old.is_some_and(|old| self.may_be_in_run(old));
        if !is_put {
            // Where older rows of the key may be, a row must say that they are not to come back.
            let appends = old.is_some() && self.garbage.load(Ordering::SeqCst);
            return Step {
                old,
                appends,
                removes: self.options.update != Update::Defer || !appends || may_be_in_run,
            };
        }
        let Some(id) = old else { return Step { old, appends: true, removes: false } };
        match self.options.update {
            Update::InPlace if id.is_of(allocator.generation) => Step { old, appends: false, removes: false },
            Update::InPlace | Update::Replace => Step { old, appends: true, removes: true },
            Update::Defer => Step { old, appends: true, removes: may_be_in_run || self.is_removal_behind() },
        }
    }

    /// Whether a row may be in a run of the map. It counts with [`Update::Defer`], with which no further rows of writers come
    /// into runs; otherwise replaced rows are removed anyway.
    fn may_be_in_run(&self, id: Id) -> bool {
        let end = self.runs_end_at_open.get(id.stripe()).copied().unwrap_or(0);
        let is_of_writers = self.has_runs_of_writers.load(Ordering::Relaxed) && id.sequence() < end;
        is_of_writers || id.stripe() == self.layout.stripe_of_moves()
    }

    /// Commits a transaction and publishes the places that it changes.
    ///
    /// Requires: the caller holds the latches of the keys, and has announced the version there; it has a slot, and the gate.
    pub(crate) fn commit_and_publish<'k>(
        &self,
        transaction: Transaction,
        durability: Durability,
        version: u64,
        changes: impl Iterator<Item = (&'k [u8], u64, Option<Id>)> + Clone,
    ) -> Result<()> {
        let unwinding = Unwinding(self);
        let (transaction, outcome) = if self.store.abilities().concurrent_writers {
            let outcome = commit_alone(&*self.store, &transaction, durability);
            (transaction, outcome)
        } else {
            commit_together(&self.group, &*self.store, &*self.env, transaction, durability)
        };
        drop(unwinding);
        if let Err(error) = &outcome
            && !self.took_place(&transaction, error)?
        {
            return outcome;
        }
        self.map.publish(changes, version);
        outcome
    }

    /// Whether a transaction took place though its commit returned an error. If so, or if nobody can say, writes are refused
    /// from now on.
    #[cold]
    fn took_place(&self, transaction: &Transaction, error: &Error) -> Result<bool> {
        // Transactions are whole, so any change that can be seen tells about all.
        for change in transaction.changes() {
            let (place, expected) = match change {
                Change::Put { place, row } => (place, Some(row)),
                Change::Remove { place } => (place, None),
                Change::SetMeta { .. } => continue,
            };
            let mut found = false;
            let is_there = self.store.get(place, &mut |row| found = Some(row) == expected).map_err(|e| {
                let unknown = store_error("say whether a failed commit took place", &e);
                self.poison(&unknown);
                let _ = self.unknown.set(unknown.clone());
                unknown
            })?;
            match expected {
                Some(_) if !found => return Ok(false),
                None if is_there => return Ok(false),
                _ => {}
            }
        }
        self.poison(error);
        Ok(true)
    }
}

/// Refuses reads and writes from now on if a panic drops it: nobody can say whether the transaction took place.
struct Unwinding<'a>(&'a Inner);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = commit_panicked();
            self.0.poison(&error);
            let _first_stays = self.0.unknown.set(error);
        }
    }
}
