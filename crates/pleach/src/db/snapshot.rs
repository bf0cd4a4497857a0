//! Snapshots: a pinned state and a sequence number.

use std::ops::RangeBounds;
use std::sync::Arc;

use pleach_env::{Error, ErrorKind, Result};

use super::handle::{Db, Shared};
use super::partition::Partition;
use crate::batch::check_key;
use crate::lookup::get_blocking;
use crate::scan::Range;
use crate::state::ReadView;
use crate::value::Value;
use crate::version::SubTree;

/// A consistent view of all partitions at one moment. Owned, `Send`, `Sync` and cheap to clone; it pins the memtables
/// and files of that moment (no older versions have to be kept for it in newer files) and keeps the store open.
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
        Self { shared: Arc::clone(&db.shared), view: db.inner().read_view() }
    }

    /// Reads the value `key` had.
    pub fn get(&self, partition: &Partition, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let tree = self.tree(partition)?;
        check_key(key.as_ref())?;
        let (inner, state) = (&self.shared.inner, &self.view.state);
        get_blocking(inner, state, (partition.id(), tree), key.as_ref(), self.view.visible)
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
        self.shared.inner.check_not_closed()?;
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
