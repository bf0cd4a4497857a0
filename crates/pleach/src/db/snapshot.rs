//! Snapshots: a pinned state and a sequence number.

use std::ops::RangeBounds;
use std::sync::Arc;

use pleach_env::{Error, ErrorKind, Result};

use super::handle::{Db, Shared};
use super::partition::Partition;
use crate::lookup::get_blocking;
use crate::operations::check_key;
use crate::scan::Range;
use crate::state::ReadView;
use crate::value::Value;
use crate::version::SubTree;

/// A consistent view of all partitions at one moment. Owned, `Send`, `Sync` and cheap to clone; it pins the memtables
/// and files of that moment (no older versions have to be kept for it in newer files) and keeps the store open.
///
/// A memtable that it pins stays in memory after its flush, on top of [`Options::memory`](crate::Options::memory):
/// [`Stats::pinned_memtable_bytes`](crate::Stats::pinned_memtable_bytes) says how much that is. Drop snapshots soon where
/// memory is short.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = pleach::Db::open(dir.path())?;
/// let users = db.default_partition();
/// users.put(b"alice", b"1")?;
/// let before = db.snapshot();
/// users.put(b"alice", b"2")?;
/// assert_eq!(before.get(&users, b"alice")?.as_deref(), Some(&b"1"[..]));
/// # Ok::<(), pleach::Error>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    shared: Arc<Shared>,
    view: ReadView,
}

impl Snapshot {
    pub(crate) fn new(db: &Db) -> Self {
        Self { shared: Arc::clone(&db.shared), view: db.inner().version_set.state.view() }
    }

    /// Reads the value `key` had.
    pub fn get(&self, partition: &Partition, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let tree = self.tree(partition)?;
        check_key(key.as_ref())?;
        let (inner, state) = (&self.shared.inner, &self.view.state);
        get_blocking(&inner.ctx, state, (partition.id(), tree), key.as_ref(), self.view.visible)
    }

    /// Whether `key` had a value.
    ///
    /// # Errors
    /// Those of [`Partition::get`].
    pub fn contains(&self, partition: &Partition, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(partition, key)?.is_some())
    }

    /// Reads the values that many keys had, in the order of the keys.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = pleach::Db::open(dir.path())?;
    /// let users = db.default_partition();
    /// users.put(b"alice", b"1")?;
    /// let before = db.snapshot();
    /// users.put(b"bob", b"2")?;
    /// let values = before.get_many(&users, ["alice", "bob"])?;
    /// assert_eq!((values[0].as_deref(), values[1].as_deref()), (Some(&b"1"[..]), None));
    /// assert!(before.contains(&users, "alice")? && before.iter(&users).count() == 1);
    /// # Ok::<(), pleach::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Partition::get`], for any of the keys.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        partition: &Partition,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        keys.into_iter().map(|key| self.get(partition, key)).collect()
    }

    /// All entries there were, in key order, from either end. An error comes as the range's first item.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = pleach::Db::open(dir.path())?;
    /// let users = db.default_partition();
    /// users.put(b"alice", b"1")?;
    /// let before = db.snapshot();
    /// users.put(b"bob", b"2")?;
    /// let keys: Vec<_> = before.iter(&users).map(|entry| Ok(entry?.0)).collect::<pleach::Result<_>>()?;
    /// assert_eq!(keys, [&b"alice"[..]]);
    /// # Ok::<(), pleach::Error>(())
    /// ```
    pub fn iter(&self, partition: &Partition) -> Range {
        self.prefix(partition, b"")
    }

    /// The entries that were in `bounds`.
    pub fn range<K: AsRef<[u8]>>(&self, partition: &Partition, bounds: impl RangeBounds<K>) -> Range {
        match self.tree(partition) {
            Ok(_) => Range::new(self.view.clone(), partition.id(), bounds),
            Err(error) => Range::failed(partition.id(), error),
        }
    }

    /// The entries whose keys start with `prefix`.
    pub fn prefix(&self, partition: &Partition, prefix: impl AsRef<[u8]>) -> Range {
        match self.tree(partition) {
            Ok(_) => Range::with_prefix(self.view.clone(), partition.id(), prefix.as_ref()),
            Err(error) => Range::failed(partition.id(), error),
        }
    }

    /// Sequence number up to which writes are in it.
    pub fn sequence_number(&self) -> u64 {
        self.view.visible
    }

    /// A partition that was dropped since then is still readable here; one created since then is not there.
    fn tree(&self, partition: &Partition) -> Result<&SubTree> {
        if !partition.is_of(&self.shared) {
            return Err(Error::invalid("the partition belongs to another store than the snapshot"));
        }
        self.shared.inner.ctx.status.check_not_closed()?;
        if let Some(tree) = self.view.state.version.tree(partition.id()) {
            return Ok(tree);
        }
        let name = partition.name();
        Err(Error::new(
            ErrorKind::Closed,
            format!("partition {name:?} was not there when the snapshot was taken"),
        ))
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("sequence_number", &self.sequence_number()).finish_non_exhaustive()
    }
}
