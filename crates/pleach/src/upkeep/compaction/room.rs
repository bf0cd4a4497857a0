//! Room for conversions that nobody has requested: they begin when there is room for copies, and until then have space freed.
//!
//! A store that is overwritten is as large as its space target most of the time. A conversion that began at once would copy
//! nothing.
//!
//! # Invariants
//! 1. *Wanted while waiting*: what a partition on the list wants of relocation is wanted for that conversion alone, so the wait
//!    ends in [`Compactions::end_wait_for_room`]. Threads that convert a partition, in several passes, want space for it
//!    themselves: it is not on the list then.
//! 2. *Every wait ends*: relocation frees enough, or it has nothing left to free.
//!
//! # Concurrency
//! The lock of the workers' list is held.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::worker::{Compactions, List};
use crate::keys::PartitionId;
use crate::picker::copied_at_once;
use crate::version::{SubTree, Version};

/// Conversions that wait for room at the same time, at most (arbitrary): a look at each takes a pass over all partitions.
const WAITING_MAX: usize = 8;

/// Partitions whose conversion waits for room.
pub(super) type Waiting = BTreeSet<PartitionId>;

/// Whether a conversion that waits can begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Enough,
    /// Values are being moved.
    Comes,
    /// No more can be freed.
    TooLittle,
}

impl Compactions {
    /// Whether there is room for copies of a partition's values.
    pub(super) fn has_room(&self, tree: &SubTree) -> bool {
        let wanted = self.wanted(tree);
        self.upkeep.room_for_values(wanted) >= wanted / 2
    }

    /// The same. If there is none, its conversion waits, and space is freed for it.
    ///
    /// Requires: no merge of the partition is requested. A request does not wait for room, so the wait would end at the next look
    /// and begin again with each step of a worker, and each beginning makes relocation mark all values.
    pub(super) fn has_room_or_waits(&self, list: &mut List, partition: PartitionId, tree: &SubTree) -> bool {
        if list.waiting_for_room.contains(&partition) {
            return false; // `conversion_with_room` finds out when it can begin.
        }
        if self.upkeep.background.lock().converters.contains_key(&partition) {
            return false; // Between the passes of a thread that converts it.
        }
        if list.waiting_for_room.len() >= WAITING_MAX {
            return false; // It waits when another one has ended its wait.
        }
        let has_room = self.has_room(tree);
        if !has_room {
            list.waiting_for_room.insert(partition);
            self.upkeep.want_space(partition, self.wanted(tree));
        }
        has_room
    }

    /// A partition whose conversion has waited for room and can begin. The others go on waiting, or give up: then scans have to
    /// pay again.
    pub(super) fn conversion_with_room(&self, list: &mut List, version: &Version) -> Option<PartitionId> {
        for partition in list.waiting_for_room.clone() {
            let is_requested = {
                let background = self.upkeep.background.lock();
                background.waiters.contains_key(&partition) || background.converters.contains_key(&partition)
            };
            let has_values = |tree: &&Arc<SubTree>| tree.sum(|run| run.totals.value_bytes) > 0;
            let Some(tree) = version.tree(partition).filter(|tree| !is_requested && has_values(tree)) else {
                self.end_wait_for_room(list, partition);
                continue;
            };
            let is_free = tree.jobs.is_empty() && list.busy(partition).is_empty();
            match self.room(version, tree) {
                Room::Enough if is_free => return Some(partition),
                Room::Enough | Room::Comes => {}
                Room::TooLittle => {
                    tree.reads.reset_values();
                    self.end_wait_for_room(list, partition);
                    self.upkeep.version_set.refresh_ledger(self.upkeep.compaction_clock());
                    // Threads that settle wait for it.
                    self.upkeep.ctx.status.notify();
                }
            }
        }
        None
    }

    /// Ends the wait of a conversion.
    pub(super) fn end_wait_for_room(&self, list: &mut List, partition: PartitionId) {
        if list.waiting_for_room.remove(&partition) {
            self.upkeep.want_space(partition, 0);
        }
    }

    fn room(&self, version: &Version, tree: &SubTree) -> Room {
        let wanted = self.wanted(tree);
        let is_settled = self.upkeep.is_relocation_settled(version);
        match self.upkeep.room_for_values(wanted) {
            room if room >= wanted - wanted / 8 => Room::Enough,
            room if is_settled && room >= wanted / 4 => Room::Enough,
            _ if is_settled => Room::TooLittle,
            _ => Room::Comes,
        }
    }

    fn wanted(&self, tree: &SubTree) -> u64 {
        copied_at_once(tree.sum(|run| run.totals.value_bytes), self.upkeep.ctx.options.space_target)
    }
}
