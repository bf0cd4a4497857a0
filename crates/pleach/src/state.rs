//! The store's state at one instant: memtables and version, swapped as one.
//!
//! Readers load the current [`State`] without a lock and keep what it refers to alive as long as they need it. A
//! snapshot is such a state plus the sequence number up to which its memtables are read.
//!
//! [`CurrentState`] is where write path and background work publish what they have made, and where readers find it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};
use pleach_env::sync::Mutex;
use pleach_env::{FileId, failpoint};
use pleach_log::SeqNo;

use crate::memtable::Memtable;
use crate::tombstone_spans::TombstoneSpans;
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
    /// The same memtables over another version.
    pub(crate) fn with_version(&self, version: Arc<Version>) -> Self {
        Self { version, ..self.clone() }
    }

    /// The same over a version with other partitions, which follow the write numbered `since`.
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

/// A state and the sequence number up to which its memtables are visible: a prefix of the order of all changes.
///
/// The order of all changes is that of sequence numbers; a creation or drop of a partition comes behind the last write that
/// was visible when it took place, which is `partitions_since`. No write becomes visible meanwhile. So a view is a prefix if
/// 1. no write of it comes behind a drop or creation that its state does not have: `visible` is loaded before the state,
/// 2. no write that comes before the newest drop or creation of its state is missing: `visible >= partitions_since`,
/// 3. no write in its state's files is newer than `visible`: `visible >= flushed_seq`.
///
/// A batch is wholly on one side of a drop: it is refused if one of its partitions has been dropped before it.
#[derive(Clone)]
pub(crate) struct ReadView {
    pub(crate) state: Arc<State>,
    pub(crate) visible: SeqNo,
}

/// The newest state of a store, and how far its writes are visible.
pub(crate) struct CurrentState {
    state: ArcSwap<State>,
    /// Last sequence number whose batch is wholly in the memtable. Release by the commit leader, acquire by readers.
    visible: AtomicU64,
    /// Number of immutable memtables of `state`.
    immutable: AtomicUsize,
    /// Serialises swaps of `state`. Only locks that the drop of an old state takes (`Trash`, memory pools) are taken inside.
    swap: Mutex<()>,
}

impl CurrentState {
    /// The first state of a store, whose writes up to `visible` are in it.
    pub(crate) fn new(state: State, visible: SeqNo) -> Self {
        Self {
            visible: AtomicU64::new(visible),
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

    /// How many immutable memtables there are: cheaper than a look at the state.
    #[inline]
    pub(crate) fn immutable_count(&self) -> usize {
        self.immutable.load(Ordering::Acquire)
    }

    /// Last sequence number that readers may see.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        self.visible.load(Ordering::Acquire)
    }

    /// Lets readers see the writes up to `seq`, all of which are in the memtables.
    #[inline]
    pub(crate) fn show_up_to(&self, seq: SeqNo) {
        self.visible.store(seq, Ordering::Release);
    }

    /// A consistent view for snapshots and scans, as [`ReadView`] defines it.
    pub(crate) fn view(&self) -> ReadView {
        loop {
            let visible = self.visible();
            failpoint::reached("read_view.visible");
            let state = self.state.load_full();
            // A flush, creation or drop that came in between brought newer writes, or follows newer ones.
            if state.version.flushed_seq.max(state.partitions_since) <= visible {
                return ReadView { state, visible };
            }
        }
    }
}
