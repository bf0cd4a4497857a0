//! Files of separated values that the jobs write, and the room that they may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pleach_env::{FileId, Result};

use super::Upkeep;
use crate::file_names::values_path;
use crate::keys::PartitionId;
use crate::values::ValueFileBuilder;

/// A wait for room ends when writers have written so many times what is wanted, or as many memtables: they make garbage as fast
/// as it is taken away, and relocation may never settle. Arbitrary.
const WRITTEN_MAX: u64 = 4;

/// Room that copies take before a version has them. Ends when it is dropped.
#[derive(Default)]
pub(super) struct RoomClaim {
    bytes: u64,
    /// Of all claims.
    sum: Option<Arc<AtomicU64>>,
}

impl RoomClaim {
    /// Claims `bytes` more.
    pub(super) fn add(&mut self, upkeep: &Upkeep, bytes: u64) {
        let sum = self.sum.get_or_insert_with(|| Arc::clone(&upkeep.copies));
        sum.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// Ends it: a version has the copies, or they are gone.
    pub(super) fn end(&mut self) {
        if let Some(sum) = &self.sum {
            sum.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        self.bytes = 0;
    }
}

impl Drop for RoomClaim {
    fn drop(&mut self) {
        self.end();
    }
}

impl Upkeep {
    /// Begins a file of values. Until an edit names it, a crash leaves a file that the next open removes.
    pub(super) fn new_value_file(&self) -> Result<ValueFileBuilder> {
        ValueFileBuilder::create(&self.ctx.env, &self.ctx.dir, self.version_set.new_file_id())
    }

    /// Removes a file of values that no version names. Best effort: the next open removes what is left.
    pub(super) fn remove_value_file(&self, id: FileId) {
        let _left_for_the_next_open = self.ctx.env.remove_file(&values_path(&self.ctx.dir, id));
    }

    /// Up to `wanted` bytes: what separated values may take in addition. The space target bounds it, unless everything is always
    /// copied, and half of what is free on the disk beyond two SSTs. Pinned files and copies that no version has yet are
    /// subtracted.
    pub(super) fn room_for_values(&self, wanted: u64) -> u64 {
        let version = Arc::clone(&self.version_set.state.load().version);
        let space = self.estimated_space(&version);
        let room = if self.ctx.options.always_converts() {
            u64::MAX
        } else {
            space.room(self.ctx.options.space_target)
        };
        let copies = self.copies.load(Ordering::Relaxed);
        // The SST that is being written needs room too, and that of a flush. Some of the copies may be in buffers yet.
        let kept = copies + 2 * self.ctx.options.compacted_sst_bytes(space.ssts);
        let free = self.ctx.env.available_space(&self.ctx.dir).unwrap_or(u64::MAX).saturating_sub(kept);
        let taken = self.version_set.trash.pinned_bytes() + copies;
        wanted.min(room.saturating_sub(taken)).min(free / 2)
    }

    /// Has garbage of separated values removed, to make room for copies of `bytes` of a partition, and waits until there is room,
    /// or no more can be freed, or writers have taken what was freed, or `watch` returns false.
    pub(super) fn make_room_for_values(
        &self,
        partition: PartitionId,
        bytes: u64,
        watch: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let space = self.estimated_space(&self.version_set.state.load().version);
        let freed = bytes.min(space.garbage_max(self.ctx.options.space_target) / 2);
        self.want_space(partition, freed);
        let logged = || self.version_set.state.shown().log_bytes();
        let written_max = freed.max(self.ctx.options.memtable_budget() as u64).saturating_mul(WRITTEN_MAX);
        let gives_up_at = logged().saturating_add(written_max);
        let is_done = || {
            let version = Arc::clone(&self.version_set.state.load().version);
            self.room_for_values(freed) >= freed
                || self.is_relocation_settled(&version)
                || logged() > gives_up_at
        };
        self.wait_watched(is_done, watch)
    }
}
