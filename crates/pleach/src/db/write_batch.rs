//! Write batch: operations that a user collects and commits together.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_env::{Error, Result};
use pleach_log::Durability;

use super::handle::{Db, Shared};
use super::partition::Partition;
use crate::operations::Operations;
use crate::write_path::{TouchedPartitions, WriteRequest};

/// Puts and deletes over any partitions that become visible and durable together. They take effect in the order in which they
/// were added: of two operations on a key the later one counts.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use pleach::Durability;
/// let db = pleach::Db::open(dir.path())?;
/// let (users, emails) = (db.partition("users")?, db.partition("emails")?);
/// let mut batch = db.batch();
/// batch.put(&users, b"alice", b"1");
/// batch.put(&emails, b"a@example.org", b"alice");
/// batch.commit(Durability::Sync)?;
/// # Ok::<(), pleach::Error>(())
/// ```
pub struct WriteBatch {
    shared: Arc<Shared>,
    operations: Operations,
    partitions: TouchedPartitions,
    /// The error of the first operation that was refused. The commit returns it and writes nothing.
    error: Option<Error>,
}

impl WriteBatch {
    pub(crate) fn new(db: &Db) -> Self {
        let shared = Arc::clone(&db.shared);
        let partitions = TouchedPartitions::since(shared.inner.writes.drops.load(Ordering::Acquire));
        Self { shared, operations: Operations::in_kept_memory(), partitions, error: None }
    }

    /// Adds a put. [`WriteBatch::commit`] reports an argument that is out of range.
    pub fn put(&mut self, partition: &Partition, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(partition, key.as_ref(), Some(value.as_ref()));
    }

    /// Adds a delete. [`WriteBatch::commit`] reports an argument that is out of range.
    pub fn delete(&mut self, partition: &Partition, key: impl AsRef<[u8]>) {
        self.push(partition, key.as_ref(), None);
    }

    fn push(&mut self, partition: &Partition, key: &[u8], value: Option<&[u8]>) {
        if !partition.is_of(&self.shared) {
            self.error.get_or_insert_with(|| {
                Error::invalid("the partition belongs to another store than the batch")
            });
            return;
        }
        let sizes = self.shared.inner.ctx.options.value_sizes();
        if let Err(error) = self.operations.push(partition.id(), key, value, sizes) {
            self.error.get_or_insert(error);
        }
        self.partitions.add(&partition.live);
    }

    /// Removes all operations, and the error of a refused one. Keeps the memory of the buffer.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = pleach::Db::open(dir.path())?;
    /// let users = db.default_partition();
    /// let mut batch = db.batch();
    /// batch.put(&users, b"alice", b"1");
    /// batch.clear();
    /// assert!(batch.is_empty());
    /// batch.commit(pleach::Durability::Sync)?;
    /// assert!(!users.contains(b"alice")?);
    /// # Ok::<(), pleach::Error>(())
    /// ```
    pub fn clear(&mut self) {
        self.operations.clear();
        self.partitions = TouchedPartitions::since(self.shared.inner.writes.drops.load(Ordering::Acquire));
        self.error = None;
    }

    /// Operations in it.
    pub fn len(&self) -> usize {
        self.operations.count() as usize
    }

    /// Whether it has no operations.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it will take in the log; at most [`crate::limits::BATCH_BYTES_MAX`]. Until it is committed, it also keeps the
    /// separated values that are compressed ([`Options::compression`](crate::Options::compression)) as they were.
    pub fn bytes(&self) -> usize {
        self.operations.payload_len()
    }

    /// Commits all operations, or none if it returns an error.
    ///
    /// An empty batch writes nothing. With [`Durability::Sync`] it makes all writes before it durable, as
    /// [`Db::sync`](crate::Db::sync) does.
    ///
    /// # Errors
    /// Those of [`Partition::put`], for any of the operations. Also `InvalidArgument` if the batch exceeds
    /// [`BATCH_BYTES_MAX`](crate::limits::BATCH_BYTES_MAX), or for a partition of another store.
    pub fn commit(self, durability: Durability) -> Result<()> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let request = WriteRequest::new(self.operations, self.partitions, durability);
        let (operations, result) = self.shared.inner.writes.commit(request);
        operations.keep_memory();
        result
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}
