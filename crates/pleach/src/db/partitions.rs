//! Creating, finding and dropping partitions: each one small edit of the manifest.
//!
//! # Invariants
//! 1. *Order*: the log is durable up to a creation or drop before its edit is, so that after a crash they too are part
//!    of the prefix: what was moved out of a partition before its drop is not lost with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pleach_env::{Error, ErrorKind, Result, failpoint};

use super::inner::{Inner, LivePartition};
use super::open::DEFAULT_PARTITION;
use super::partition::Partition;
use super::write::dropped_error;
use crate::keys::PartitionId;
use crate::limits::{PARTITION_NAME_LEN_MAX, PARTITIONS_MAX};
use crate::state::State;
use crate::version::edit::{Edit, EditItem};

impl Inner {
    pub(crate) fn find_partition(&self, name: &str) -> Option<Arc<LivePartition>> {
        self.names.read().get(name).cloned()
    }

    /// Creates a partition; returns the one there is if somebody was faster.
    pub(crate) fn create_partition(&self, name: &str) -> Result<Arc<LivePartition>> {
        if name.is_empty() || name.len() > PARTITION_NAME_LEN_MAX {
            return Err(Error::invalid(format!(
                "a partition's name has 1 to {PARTITION_NAME_LEN_MAX} bytes; this one has {}",
                name.len()
            )));
        }
        let mut names = self.names.write();
        self.check_writable()?;
        if let Some(live) = names.get(name) {
            return Ok(Arc::clone(live));
        }
        // Only creation changes the next number, and it holds `names`.
        let id = PartitionId(self.state.load().version.next_partition);
        if id.0 >= PARTITIONS_MAX {
            return Err(Error::new(ErrorKind::Unsupported, "the store has used up its partition numbers"));
        }
        self.sync_log()?;
        let mut edit = Edit::default();
        edit.push(EditItem::CreatePartition { id, name: name.to_owned() });
        self.commit_edit(edit, Vec::new(), State::with_version)?;
        let name: Arc<str> = name.into();
        let live = Arc::new(LivePartition { id, name: Arc::clone(&name), dropped: AtomicBool::new(false) });
        names.insert(name, Arc::clone(&live));
        Ok(live)
    }
}

/// Drops a partition.
pub(crate) fn drop_partition(inner: &Inner, partition: &Partition) -> Result<()> {
    let live = &partition.live;
    if &*live.name == DEFAULT_PARTITION {
        return Err(Error::invalid("the default partition cannot be dropped"));
    }
    let mut names = inner.names.write();
    // No commit is under way while the flag changes, so every batch is wholly before the drop or refused.
    let mut writer = inner.writer.lock();
    inner.check_writable()?;
    if live.dropped.load(Ordering::Relaxed) {
        return Err(dropped_error(&live.name));
    }
    if !failpoint::skipped("plant.drop_unordered") {
        inner.sync_writer(&mut writer)?;
    }
    let mut edit = Edit::default();
    edit.push(EditItem::DropPartition { id: live.id });
    inner.commit_edit(edit, Vec::new(), State::with_version)?;
    live.dropped.store(true, Ordering::Release);
    inner.drops.fetch_add(1, Ordering::Release);
    names.remove(&live.name);
    inner.note_progress(); // Its debts are gone.
    inner.wake_jobs();
    Ok(())
}
