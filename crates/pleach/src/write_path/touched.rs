//! The partitions that a batch writes to, each once.
//!
//! # Cost
//! Adding costs one comparison if the operation before wrote to the same partition. Otherwise it costs up to
//! [`SEARCHED_MAX`] comparisons, or a lookup in a hash set if there are more partitions. The commit leader reads the list only
//! if a partition was dropped since the batch began.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::keys::PartitionId;

/// State that the handles of a partition share.
pub(crate) struct LivePartition {
    pub(crate) id: PartitionId,
    pub(crate) name: Arc<str>,
    /// Set, under `writer`, when the partition is dropped: later writes and reads are refused.
    pub(crate) dropped: AtomicBool,
}

/// Up to this many partitions a linear search is faster than hashing (arbitrary).
const SEARCHED_MAX: usize = 8;

/// The partitions of a batch.
#[derive(Default)]
pub(crate) struct TouchedPartitions {
    list: SmallVec<[Arc<LivePartition>; 1]>,
    /// The numbers of `list`, if it has more than [`SEARCHED_MAX`].
    known: Option<HashSet<PartitionId>>,
    last: Option<PartitionId>,
    /// How many partitions the store had dropped when the batch began, if all of `list` were live when they were added.
    drops_seen: Option<u64>,
    /// Partitions compared while adding.
    #[cfg(test)]
    compared: usize,
}

impl TouchedPartitions {
    /// One partition, not yet known to be live.
    #[inline]
    pub(crate) fn one(live: &Arc<LivePartition>) -> Self {
        let mut list = SmallVec::new();
        list.push(Arc::clone(live));
        Self { list, ..Self::default() }
    }

    /// No partition yet, in a store that has dropped `drops` partitions.
    pub(crate) fn since(drops: u64) -> Self {
        Self { drops_seen: Some(drops), ..Self::default() }
    }

    /// Adds a partition, unless it is there already.
    pub(crate) fn add(&mut self, live: &Arc<LivePartition>) {
        if self.last == Some(live.id) {
            return;
        }
        self.last = Some(live.id);
        if !self.is_new(live.id) {
            return;
        }
        if live.dropped.load(Ordering::Acquire) {
            self.drops_seen = None;
        }
        self.list.push(Arc::clone(live));
    }

    /// Whether `id` is not in the list. Adds it to the set.
    fn is_new(&mut self, id: PartitionId) -> bool {
        #[cfg(test)]
        {
            self.compared += self.list.len().min(SEARCHED_MAX);
        }
        if self.list.len() <= SEARCHED_MAX {
            return !self.list.iter().any(|live| live.id == id);
        }
        let list = &self.list;
        self.known.get_or_insert_with(|| list.iter().map(|live| live.id).collect()).insert(id)
    }

    /// One of the partitions that has been dropped, in a store that has dropped `drops` in all. Requires: `writer` is locked.
    #[inline]
    pub(crate) fn dropped(&self, drops: u64) -> Option<&LivePartition> {
        if self.drops_seen == Some(drops) {
            return None;
        }
        self.list.iter().map(|live| &**live).find(|live| live.dropped.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn partitions(count: u32) -> Vec<Arc<LivePartition>> {
        let live = |id| LivePartition {
            id: PartitionId(id),
            name: format!("p{id}").into(),
            dropped: AtomicBool::new(false),
        };
        (0..count).map(|id| Arc::new(live(id))).collect()
    }

    #[test]
    fn many_partitions_are_added_with_few_comparisons() {
        for count in [1, 8, 9, 10, 20_000] {
            let partitions = partitions(count);
            let mut touched = TouchedPartitions::since(0);
            for _ in 0..3 {
                for live in &partitions {
                    touched.add(live);
                    touched.add(live);
                }
            }
            assert_eq!(touched.list.len(), partitions.len(), "each once");
            assert!(touched.compared <= 3 * SEARCHED_MAX * partitions.len());
        }
    }

    #[test]
    fn a_drop_is_found_whenever_it_came() {
        let partitions = partitions(20);
        let add_all = |touched: &mut TouchedPartitions| partitions.iter().for_each(|live| touched.add(live));
        let mut before = TouchedPartitions::since(7);
        add_all(&mut before);
        assert!(before.dropped(7).is_none() && before.dropped(8).is_none());
        partitions[13].dropped.store(true, Ordering::Release);
        assert!(before.dropped(8).is_some_and(|gone| gone.id == PartitionId(13)));
        let mut after = TouchedPartitions::since(8);
        add_all(&mut after);
        assert!(after.dropped(8).is_some(), "dropped before it was added");
        assert!(TouchedPartitions::one(&partitions[13]).dropped(8).is_some());
    }
}
