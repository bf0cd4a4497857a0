//! Close of a store: its contract and its steps.
//!
//! # The contract
//! 1. *Durable*: when `close` returns `Ok`, every write is durable.
//! 2. *Failures are returned*: after a failure of background work, `close` still makes the log durable, and then returns
//!    that failure. A failed sync is never repeated. Each later `close`, of any handle, returns the result of the first.
//! 3. *Closed for all*: when `close` returns, every handle of the store (partition, snapshot, range, batch) returns
//!    [`ErrorKind::Closed`]. Keys and values that were returned before stay valid.
//! 4. *Free*: when `close` returns, no job runs, nothing writes to the store's files, the files are closed, and the lock is
//!    released. Any process can open the directory again at once, this one too. This holds also if handles or futures are kept
//!    or forgotten: they keep only memory.
//!
//! A read that began before the close returns the right answer or `Closed`. A system call in progress keeps its descriptor
//! until it ends; a read that needs another block from a file returns `Closed`.
//! Obsolete files that a snapshot or a range pinned stay on the disk until the next open.
//!
//! # Concurrency
//! One thread closes; other threads that call `close` wait for it. The closing thread takes `naming`, `WritePath::writer` and
//! `VersionSet::lock` before it ends the store. A thread that takes one of them afterwards and calls
//! `Status::check_not_ended` gets an error and writes nothing.
//!
//! A close waits for the threads that wake tasks, and may wake tasks itself. So a waker that calls `close` while another
//! thread closes must not wait: it gets [`ErrorKind::Conflict`]. If no close has begun, the waker closes the store and does not
//! wait for the thread it runs on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_env::{Error, ErrorKind, Result, failpoint, is_in_waker};

use super::handle::Shared;
use super::inner::Inner;
use crate::manifest::Layout;
use crate::memtable::{Memtable, MemtableMemory, MemtableWriter};
use crate::state::{LoggedMemtable, State};
use crate::trace;
use crate::version::FileTable;
use crate::version_set::Ledger;
use crate::write_path::Writer;

/// Budget of the memtable of a closed store, which stays empty.
const EMPTY_MEMTABLE_BYTES: usize = 16 << 10;

impl Shared {
    /// Closes the store, or returns the result of the first close. See the module's contract.
    pub(super) fn close(&self) -> Result<()> {
        let mut closed =
            if is_in_waker() { self.closed.try_lock().ok_or_else(being_closed)? } else { self.closed.lock() };
        if let Some(result) = &*closed {
            return result.clone();
        }
        failpoint::reached("close.begun");
        let _span = trace::close(&self.inner.ctx.dir);
        self.inner.ctx.status.set_closed();
        // Otherwise the next open reads a large memtable from the log, which takes long. A failed flush loses nothing.
        if self.inner.ctx.status.read_only().is_none() {
            let _stays_in_the_log = self.inner.upkeep.flush_if_large();
        }
        self.jobs.lock().clear();
        // A commit leader may be waiting for a flush, with `writer` locked.
        self.inner.ctx.status.note_jobs_stopped();
        self.inner.ctx.close_reads();
        let result = self.inner.end();
        if let Err(error) = &result {
            trace::close_failed(error);
        }
        self.inner.writes.end_preparing();
        self.files.close_files();
        drop(self.lock.lock().take());
        *closed = Some(result.clone());
        result
    }
}

impl Inner {
    /// Makes the log durable, notes that in `CURRENT`, and releases the memtables and files that readers see.
    fn end(&self) -> Result<()> {
        let _no_new_ones = self.naming.lock();
        let mut writer = self.writes.lock();
        let mut result = Ok(());
        if self.ctx.status.read_only().is_none() {
            result = self.make_close_durable(&mut writer);
            self.version_set.remove_obsolete();
        }
        self.names.read().values().for_each(|live| live.dropped.store(true, Ordering::Release));
        self.writes.drops.fetch_add(1, Ordering::Release);
        let mut versions = self.version_set.lock();
        self.ctx.status.set_ended();
        let version = Arc::new(versions.version.without_partitions());
        versions.version = Arc::clone(&version);
        *self.version_set.ledger.lock() = Ledger::new(&self.ctx.options, &version, 0);
        versions.files = FileTable::new(Arc::clone(&self.version_set.trash));
        // Without memory for an empty memtable the old one stays until the handles are dropped. Its partitions are gone.
        let mut active = Arc::clone(&self.version_set.state.load().active);
        if let Some(memtable) = empty_memtable() {
            let first_segment = active.first_segment;
            active = Arc::new(LoggedMemtable { memtable: Arc::clone(&memtable), first_segment });
            writer.memtable = memtable;
        }
        // Not `next_seq`: after a panic of a commit leader it is ahead, and readers would wait for the rest forever.
        let partitions_since = self.version_set.state.visible();
        self.version_set.state.swap(|state| State {
            active,
            immutable: Vec::new(),
            version,
            partitions_since,
            ..state.clone()
        });
        result
    }

    fn make_close_durable(&self, writer: &mut Writer) -> Result<()> {
        let Some(cause) = self.ctx.status.poison().cloned() else { return self.close_healthy(writer) };
        if writer.log.is_poisoned() || self.writes.may_have_lost_values() {
            let message = format!("the store was closed, but writes may be lost after a failure: {cause}");
            return Err(Error::poisoned(&cause, message));
        }
        self.writes.forget_flushed(writer);
        let what = match writer.log.sync() {
            Ok(()) => {
                "every write is durable in the log, but an earlier failure had stopped the store".to_owned()
            }
            Err(error) => format!("writes may be lost ({error}) after an earlier failure"),
        };
        Err(Error::poisoned(&cause, format!("the store was closed; {what}: {cause}")))
    }

    fn close_healthy(&self, writer: &mut Writer) -> Result<()> {
        self.writes.sync_writer(writer)?;
        let versions = self.version_set.lock();
        let state = self.version_set.state.load();
        let has_separated = |memtable: &Arc<Memtable>| memtable.has_separated();
        let may_separate = versions.version.has_value_pointers() || state.memtables().any(has_separated);
        let (layout, last_seq) = (Layout::of(may_separate), writer.log.last_seq());
        let noted = versions.manifest.note_closed(&*self.ctx.env, &self.ctx.dir, layout, last_seq);
        // Without the note the store is as durable, but the next open notices less damage.
        noted.or_else(|error| if error.is_shortage() { Ok(()) } else { Err(error) })
    }
}

/// The error of a waker that would have to wait for another close.
#[cold]
fn being_closed() -> Error {
    Error::new(ErrorKind::Conflict, "the store is being closed, and a waker cannot wait for that")
}

/// The memtable of a closed store.
fn empty_memtable() -> Option<MemtableWriter> {
    MemtableWriter::new(EMPTY_MEMTABLE_BYTES, &MemtableMemory::new(EMPTY_MEMTABLE_BYTES, 0)).ok()
}
