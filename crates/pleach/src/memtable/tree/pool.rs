//! Nodes by number: the memory of the memtable's tree.
//!
//! The tree takes the memory of a batch before the batch is logged ([`Pool::reserve`]), so that [`Pool::push`] does not fail.
//!
//! # Concurrency
//! One writer adds nodes. Any thread reads a node whose number it has: the number was published after the node's slab.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use pleach_env::sync::Mutex;

use super::{FANOUT, INNER};

/// Nodes by number, in slabs that never move. The first slabs are small, for small memtables; the others have equal sizes, so
/// that adding one never takes long. The table of slabs is short too; a batch of very many keys makes a second table.
pub(super) struct Pool<T> {
    slabs: Box<[Slab<T>]>,
    far: OnceLock<Box<[Slab<T>]>>,
    len: AtomicU32,
    /// Number of nodes that memory is reserved for. The writer alone uses it.
    ready: AtomicU32,
    /// Memory of the next slabs, in their order, not yet written. The writer alone locks it.
    spare: Mutex<VecDeque<Vec<T>>>,
}

type Slab<T> = OnceLock<Box<[T]>>;

/// Nodes in the first slab. Each further slab has twice as many, up to [`SLAB_MAX`].
const SLAB_MIN: u32 = 16;
const SLAB_MAX: u32 = 256;

/// Nodes in the slabs that are shorter than [`SLAB_MAX`].
const IN_SHORT_SLABS: u32 = SLAB_MAX - SLAB_MIN;
const SHORT_SLABS: u32 = SLAB_MAX.ilog2() - SLAB_MIN.ilog2();

/// Slabs of the first table. Half full leaves in them hold two million keys, more than a memtable of the default size. Debug
/// tests have fewer, so that they reach the second table.
const SLABS: u32 = if cfg!(all(test, debug_assertions)) { 16 } else { 256 };

/// Nodes in the slabs of the first table.
const IN_SLABS: u32 = IN_SHORT_SLABS + (SLABS - SHORT_SLABS) * SLAB_MAX;

/// Nodes in a slab of the second table, and slabs of it.
const FAR_SLAB: u32 = 4096;
const FAR_SLABS: u32 = 4096;

const _: () = assert!(
    (IN_SLABS as usize + FAR_SLAB as usize * FAR_SLABS as usize) * (FANOUT / 2)
        > crate::limits::OPERATIONS_MAX,
    "leaves are at least half full, so the pool holds the keys of any batch"
);
const _: () =
    assert!(IN_SLABS + FAR_SLAB * FAR_SLABS < INNER, "a node's number leaves the mark of inner nodes free");

impl<T: Default> Pool<T> {
    pub(super) fn new() -> Self {
        let slabs = Self::table(SLABS).expect("it is short");
        Self {
            slabs,
            far: OnceLock::new(),
            len: AtomicU32::new(0),
            ready: AtomicU32::new(0),
            spare: Mutex::new(VecDeque::new()),
        }
    }

    /// An empty table; `None` without memory.
    fn table(slabs: u32) -> Option<Box<[Slab<T>]>> {
        let mut table = Vec::new();
        table.try_reserve_exact(slabs as usize).ok()?;
        table.resize_with(slabs as usize, OnceLock::new);
        Some(table.into_boxed_slice())
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    /// The slab of a node of the first table, and its index there.
    #[inline]
    fn place(id: u32) -> (u32, u32) {
        if id >= IN_SHORT_SLABS {
            let rest = id - IN_SHORT_SLABS;
            return (SHORT_SLABS + rest / SLAB_MAX, rest % SLAB_MAX);
        }
        let shifted = id + SLAB_MIN;
        let slab = shifted.ilog2() - SLAB_MIN.ilog2();
        (slab, shifted - (SLAB_MIN << slab))
    }

    /// Number of nodes in the slab of node `id`.
    fn slab_len(id: u32) -> u32 {
        if id >= IN_SLABS { FAR_SLAB } else { (SLAB_MIN << Self::place(id).0.min(SHORT_SLABS)).min(SLAB_MAX) }
    }

    /// For the writer: takes memory for `count` more nodes. Returns whether the system gave it.
    pub(super) fn reserve(&self, count: usize) -> bool {
        let wanted = self.len() + count;
        let mut spare = self.spare.lock();
        let mut ready = self.ready.load(Ordering::Relaxed);
        while (ready as usize) < wanted {
            let mut slab = Vec::new();
            let slab_len = Self::slab_len(ready);
            let is_given = self.has_slot(ready)
                && slab.try_reserve_exact(slab_len as usize).is_ok()
                && spare.try_reserve(1).is_ok();
            if !is_given {
                return false;
            }
            spare.push_back(slab);
            ready += slab_len;
            self.ready.store(ready, Ordering::Relaxed);
        }
        true
    }

    /// For the writer: whether a table has a slot for the slab of node `id`. Makes the second table when it is needed.
    fn has_slot(&self, id: u32) -> bool {
        if id < IN_SLABS {
            return true;
        }
        let has_table = self.far.get().is_some()
            || Self::table(FAR_SLABS).is_some_and(|table| self.far.set(table).is_ok());
        has_table && (id - IN_SLABS) / FAR_SLAB < FAR_SLABS
    }

    /// For the writer: the number of a new node. Requires: a reservation that covers it.
    pub(super) fn push(&self) -> u32 {
        let id = self.len.load(Ordering::Relaxed);
        let slot = if id < IN_SLABS {
            &self.slabs[Self::place(id).0 as usize]
        } else {
            let far = self.far.get().expect("made by the reservation");
            &far[((id - IN_SLABS) / FAR_SLAB) as usize]
        };
        slot.get_or_init(|| {
            let spare = self.spare.lock().pop_front();
            let mut slab = spare.expect("the memory of a batch is reserved before it is logged");
            slab.resize_with(Self::slab_len(id) as usize, T::default);
            slab.into_boxed_slice()
        });
        self.len.store(id + 1, Ordering::Relaxed);
        id
    }

    #[inline]
    pub(super) fn at(&self, id: u32) -> &T {
        if id >= IN_SLABS {
            return self.far_at(id - IN_SLABS);
        }
        let (slab, index) = Self::place(id);
        &self.slabs[slab as usize].get().expect("node numbers come from push")[index as usize]
    }

    #[cold]
    fn far_at(&self, id: u32) -> &T {
        let far = self.far.get().expect("node numbers come from push");
        &far[(id / FAR_SLAB) as usize].get().expect("node numbers come from push")[(id % FAR_SLAB) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_places_of_their_own() {
        let pool = Pool::<AtomicU32>::new();
        let count = if cfg!(miri) { IN_SHORT_SLABS + SLAB_MAX + 1 } else { IN_SLABS + 2 * FAR_SLAB + 1 };
        for id in 0..count {
            assert!(pool.reserve(1));
            assert_eq!(pool.push(), id);
            pool.at(id).store(id, Ordering::Relaxed);
        }
        assert!((0..count).all(|id| pool.at(id).load(Ordering::Relaxed) == id));
    }
}
