//! State: the memtables and the version of a store at one instant, swapped as one.
//!
//! Readers load the newest [`State`] from [`CurrentState`] without a lock, and pin it as long as they need it. The write path
//! and background work replace it. A [`ReadView`], and so a snapshot, is a state and a sequence number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};
use pleach_env::sync::Mutex;
use pleach_env::{FileId, failpoint};
use pleach_log::SeqNo;

use crate::memtable::Memtable;
use crate::shown::Shown;
use crate::tombstone_spans::TombstoneSpans;
use crate::version::Version;

/// A memtable and the first log segment that holds its writes.
pub(crate) struct LoggedMemtable {
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) first_segment: FileId,
}

/// Memtables and version. Immutable, except that the active memtable takes writes.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) active: Arc<LoggedMemtable>,
    /// Immutable memtables, newest first.
    pub(crate) immutable: Vec<Arc<LoggedMemtable>>,
    pub(crate) version: Arc<Version>,
    /// The last sequence number before the newest creation or drop of a partition. See [`ReadView`].
    pub(crate) partitions_since: SeqNo,
    /// The same in all states of a store.
    pub(crate) tombstone_spans: Arc<TombstoneSpans>,
    /// Whether the store has been closed; the same in all states of a store.
    pub(crate) closed: Arc<AtomicBool>,
}

impl State {
    /// The same memtables with another version.
    pub(crate) fn with_version(&self, version: Arc<Version>) -> Self {
        Self { version, ..self.clone() }
    }

    /// The same memtables with a version that has other partitions. `since` is the last write before the change.
    pub(crate) fn with_partitions(&self, version: Arc<Version>, since: SeqNo) -> Self {
        Self { version, partitions_since: since, ..self.clone() }
    }

    /// Whether the store has been closed, or is being closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The memtables, newest first.
    #[inline]
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.immutable).map(|logged| &logged.memtable)
    }
}

/// A state and the sequence number up to which its memtables are visible: a prefix of all changes.
///
/// Changes are ordered by sequence number. A creation or drop of a partition comes behind `partitions_since`, the last write
/// that was visible when it was committed; no write becomes visible meanwhile. A view is a prefix because
/// 1. it has no write behind a creation or drop that its state lacks: `visible` is loaded before the state,
/// 2. it lacks no write before the newest creation or drop of its state: `visible >= partitions_since`,
/// 3. the files of its state hold no newer write: `visible >= flushed_seq`.
///
/// A batch is wholly before a drop or refused: it is refused if one of its partitions was dropped before.
#[derive(Clone)]
pub(crate) struct ReadView {
    pub(crate) state: Arc<State>,
    pub(crate) visible: SeqNo,
}

/// The newest state of a store, and the last visible sequence number.
pub(crate) struct CurrentState {
    state: ArcSwap<State>,
    shown: Arc<Shown>,
    /// Number of immutable memtables of `state`.
    immutable: AtomicUsize,
    /// Serialises swaps of `state`. Only locks that the drop of an old state takes (`Trash`, memory pools) are taken inside.
    swap: Mutex<()>,
}

impl CurrentState {
    /// The first state of a store, which holds the writes that are visible in `shown`.
    pub(crate) fn new(state: State, shown: Arc<Shown>) -> Self {
        Self {
            shown,
            immutable: AtomicUsize::new(state.immutable.len()),
            swap: Mutex::new(()),
            state: ArcSwap::from_pointee(state),
        }
    }

    /// The newest state, for a short time.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<State>> {
        self.state.load()
    }

    /// The newest state, to keep.
    pub(crate) fn load_full(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Replaces the state by what `change` makes of it.
    pub(crate) fn swap(&self, change: impl FnOnce(&State) -> State) {
        let _one_at_a_time = self.swap.lock();
        let next = change(&self.state.load());
        let immutable = next.immutable.len();
        self.state.store(Arc::new(next));
        self.immutable.store(immutable, Ordering::Release);
    }

    /// Number of immutable memtables. Cheaper than loading the state.
    #[inline]
    pub(crate) fn immutable_count(&self) -> usize {
        self.immutable.load(Ordering::Acquire)
    }

    /// Last sequence number that readers may see.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        self.shown.visible()
    }

    /// Lets readers see the writes up to `seq`, all of which are in the memtables.
    #[inline]
    pub(crate) fn show_up_to(&self, seq: SeqNo) {
        self.shown.show_up_to(seq);
    }

    /// The numbers that each batch changes.
    #[inline]
    pub(crate) fn shown(&self) -> &Shown {
        &self.shown
    }

    /// A consistent view for snapshots and scans, as [`ReadView`] defines it.
    pub(crate) fn view(&self) -> ReadView {
        loop {
            let visible = self.visible();
            failpoint::reached("read_view.visible");
            let state = self.state.load_full();
            // Otherwise the state has a flush, creation or drop that came between the two loads: try again.
            if state.version.flushed_seq.max(state.partitions_since) <= visible {
                return ReadView { state, visible };
            }
        }
    }
}
