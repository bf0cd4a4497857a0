//! Creation and drop of partitions: each is one small edit of the manifest.
//!
//! # Invariants
//! 1. *Order*: a creation or drop comes behind the last write that is visible when it is committed. The thread holds `writer`
//!    from then until readers see the change, so no write becomes visible or durable meanwhile.
//!    [`crate::state::ReadView`] says what that means for readers.
//! 2. *Prefix*: the log is synced before the edit, so that a crash leaves a prefix of writes, creations and drops together. A
//!    key that was moved to another partition before the drop is not lost with the partition.
//!
//! # Cost
//! Writers wait for the sync of the manifest, and for the sync of the records since the last sync. Finding a partition
//! waits for nothing.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pleach_env::{Error, ErrorKind, Result, failpoint};

use super::inner::Inner;
use super::open::DEFAULT_PARTITION;
use super::partition::Partition;
use crate::keys::PartitionId;
use crate::limits::{PARTITION_NAME_LEN_MAX, PARTITIONS_MAX};
use crate::trace;
use crate::version::edit::{Edit, EditItem};
use crate::write_path::{LivePartition, Writer, dropped_error};

impl Inner {
    pub(crate) fn find_partition(&self, name: &str) -> Option<Arc<LivePartition>> {
        self.names.read().get(name).cloned()
    }

    /// The partitions called `names`. Those that are missing are created by one edit.
    pub(crate) fn create_partitions(&self, names: &[&str]) -> Result<Vec<Arc<LivePartition>>> {
        names.iter().try_for_each(|name| check_name(name))?;
        let _one_at_a_time = self.naming.lock();
        self.ctx.status.check_writable()?;
        let created = self.create_missing(names)?;
        let mut known = self.names.write();
        known.extend(created.into_iter().map(|live| (Arc::clone(&live.name), live)));
        Ok(names.iter().map(|name| Arc::clone(&known[*name])).collect())
    }

    /// Requires: `naming` is held.
    fn create_missing(&self, names: &[&str]) -> Result<Vec<Arc<LivePartition>>> {
        let mut seen = HashSet::new();
        let missing =
            names.iter().copied().filter(|name| self.find_partition(name).is_none() && seen.insert(*name));
        let missing: Vec<&str> = missing.collect();
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        // Only creations change the next number, and they hold `naming`.
        let first = self.version_set.state.load().version.next_partition;
        let last = u32::try_from(missing.len()).ok().and_then(|count| first.checked_add(count));
        if last.is_none_or(|last| last > PARTITIONS_MAX) {
            return Err(Error::new(ErrorKind::Unsupported, "the store has used up its partition numbers"));
        }
        let created = (first..).zip(missing).map(|(id, name)| LivePartition {
            id: PartitionId(id),
            name: Arc::from(name),
            dropped: AtomicBool::new(false),
        });
        let created: Vec<_> = created.map(Arc::new).collect();
        let mut edit = Edit::default();
        for live in &created {
            edit.push(EditItem::CreatePartition { id: live.id, name: live.name.to_string() });
        }
        self.writes.sync_log()?;
        self.commit_partitions(&mut self.writes.lock(), edit)?;
        for live in &created {
            trace::partition_created(live.id, &live.name);
        }
        Ok(created)
    }

    /// Commits the creation or drop of partitions behind the last write.
    fn commit_partitions(&self, writer: &mut Writer, edit: Edit) -> Result<()> {
        self.ctx.status.check_writable()?;
        failpoint::report_order("partition.order");
        failpoint::report("partition.last_seq", writer.next_seq - 1);
        self.writes.sync_writer(writer)?;
        let since = writer.next_seq - 1;
        self.version_set.commit_edit(edit, Vec::new(), |state, version| state.with_partitions(version, since))
    }
}

fn check_name(name: &str) -> Result<()> {
    if (1..=PARTITION_NAME_LEN_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a partition's name has 1 to {PARTITION_NAME_LEN_MAX} bytes; this one has {}",
        name.len()
    )))
}

/// Drops a partition.
pub(crate) fn drop_partition(inner: &Inner, partition: &Partition) -> Result<()> {
    let live = &partition.live;
    if &*live.name == DEFAULT_PARTITION {
        return Err(Error::invalid("the default partition cannot be dropped"));
    }
    let naming = inner.naming.lock();
    inner.ctx.status.check_writable()?;
    if live.dropped.load(Ordering::Relaxed) {
        return Err(dropped_error(&live.name));
    }
    // Most of the log is synced before writers have to wait.
    inner.writes.sync_log()?;
    // The flag changes under `writer`, so every batch is either before the drop or refused.
    let mut writer = inner.writes.lock();
    let mut edit = Edit::default();
    edit.push(EditItem::DropPartition { id: live.id });
    let has_values = {
        let state = inner.version_set.state.load();
        state.version.tree(live.id).is_some_and(|tree| tree.sum(|run| run.totals.value_bytes) > 0)
    };
    inner.commit_partitions(&mut writer, edit)?;
    live.dropped.store(true, Ordering::Release);
    inner.writes.drops.fetch_add(1, Ordering::Release);
    drop(writer);
    inner.names.write().remove(&live.name);
    drop(naming);
    trace::partition_dropped(live.id, &live.name);
    if has_values {
        inner.upkeep.note_deletes();
    }
    inner.upkeep.note_progress(); // Its debts are gone.
    inner.ctx.status.wake_jobs();
    Ok(())
}
