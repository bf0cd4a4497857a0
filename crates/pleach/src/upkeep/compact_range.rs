//! The request to merge a key range, as callers make it.

use pleach_env::Result;

use super::Upkeep;
use crate::keys::{KeyRange, PartitionId, partition_key, split_partition_key};
use crate::picker::{self, RangeWork, Situation};

impl Upkeep {
    /// Flushes the memtables if they hold a key in `range`, merges what the runs hold of it, and waits for that.
    pub(crate) fn compact_range(&self, partition: PartitionId, range: KeyRange) -> Result<()> {
        self.ctx.status.check_writable()?;
        if range.is_empty() {
            return Ok(());
        }
        if self.is_in_memtable(partition, &range) {
            self.flush_memtables()?;
        }
        let is_due = {
            let state = self.version_set.state.load();
            let Some(tree) = state.version.tree(partition) else { return Ok(()) };
            let situation = Situation { tree, busy: &[], now: 0 };
            picker::pick_range(&self.ctx.options.policy(true), situation, &range) != RangeWork::Nothing
        };
        if !is_due {
            return Ok(());
        }
        let number = self.background.lock().ranges.insert(partition, range);
        let result = self.wait_watched(|| !self.background.lock().ranges.contains(number), &mut || true);
        self.background.lock().ranges.remove(number);
        result
    }

    /// Whether a memtable holds a key of the partition in `range`, as a value or as a tombstone.
    fn is_in_memtable(&self, partition: PartitionId, range: &KeyRange) -> bool {
        let state = self.version_set.state.load();
        let visible = self.version_set.state.visible();
        state.memtables().any(|memtable| {
            let mut cursor = memtable.cursor(visible);
            cursor.seek(&partition_key(partition, &range.lower));
            cursor.is_valid()
                && split_partition_key(cursor.key())
                    .is_some_and(|(of, key)| of == partition && !range.ends_before(key))
        })
    }
}
