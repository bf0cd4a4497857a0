//! The store's state at one instant: memtables and version, swapped as one.
//!
//! Readers load the current [`State`] without a lock and keep what it refers to alive as long as they need it. A
//! snapshot is such a state plus the sequence number up to which its memtables are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pleach_env::FileId;
use pleach_log::SeqNo;

use crate::memtable::Memtable;
use crate::scan::DeletedStretches;
use crate::version::Version;

/// A memtable and the first log segment that holds its writes.
pub(crate) struct LoggedMemtable {
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) first_segment: FileId,
}

/// Memtables and version. Immutable, but for the writes that the active memtable takes.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) active: Arc<LoggedMemtable>,
    /// Sealed memtables, newest first.
    pub(crate) sealed: Vec<Arc<LoggedMemtable>>,
    pub(crate) version: Arc<Version>,
    /// What scans know of deleted keys; the same in all states of a store.
    pub(crate) stretches: Arc<DeletedStretches>,
    /// Whether the store has been closed; the same in all states of a store.
    pub(crate) closed: Arc<AtomicBool>,
}

impl State {
    /// The same memtables over another version.
    pub(crate) fn with_version(&self, version: Arc<Version>) -> Self {
        Self { version, ..self.clone() }
    }

    /// Whether the store has been closed, or is being closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The memtables, newest first.
    #[inline]
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.sealed).map(|logged| &logged.memtable)
    }
}

/// A state and the sequence number up to which its memtables are visible.
#[derive(Clone)]
pub(crate) struct ReadView {
    pub(crate) state: Arc<State>,
    pub(crate) visible: SeqNo,
}
