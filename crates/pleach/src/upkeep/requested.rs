//! Merges on request: callers wait for them.

use pleach_env::Result;

use super::Upkeep;
use crate::keys::{KeyRange, PartitionId, partition_key, split_partition_key};
use crate::picker::{self, RangeWork, Situation};

impl Upkeep {
    /// Requests that the partition's runs are merged into one, and waits until they are.
    pub(crate) fn compact_partition(&self, partition: PartitionId) -> Result<()> {
        self.request(partition, false, &mut || true).map(|_| ())
    }

    /// Requests a merge, and waits for it, or until `watch` returns false. Returns the bytes of values that a conversion has
    /// left, if there was one.
    pub(super) fn request(
        &self,
        partition: PartitionId,
        converts: bool,
        watch: &mut dyn FnMut() -> bool,
    ) -> Result<Option<u64>> {
        self.background.lock().begin_wait(partition, converts);
        let result = self.wait_watched(|| !self.background.lock().to_compact.contains(partition), watch);
        let left = self.background.lock().end_wait(partition);
        result.map(|()| left)
    }

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
