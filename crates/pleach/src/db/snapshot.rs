//! Snapshot: a pinned state and a sequence number.

use std::ops::RangeBounds;
use std::sync::Arc;

use pleach_env::{Error, ErrorKind, Result};

use super::futures::{GetFuture, GetManyFuture, key_bytes};
use super::handle::{Db, Shared};
use super::partition::Partition;
use crate::lookup::get_blocking;
use crate::read_options::ReadOptions;
use crate::scan::{Cursor, Range};
use crate::state::ReadView;
use crate::value::Value;
use crate::version::SubTree;

/// A consistent view of all partitions at one instant. Owned, `Send`, `Sync` and cheap to clone. It keeps the store open
/// and pins the memtables and files of that instant. Compactions need not keep older versions of keys for it.
///
/// A pinned memtable stays in memory after its flush, on top of [`Options::memory`](crate::Options::memory).
/// [`Stats::pinned_memtable_bytes`](crate::Stats::pinned_memtable_bytes) counts this memory. If memory is short, drop
/// snapshots soon.
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

    /// The last sequence number that it sees: [`Db::last_sequence_number`] at its instant.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = pleach::Db::open(dir.path())?;
    /// let before = db.snapshot();
    /// db.default_partition().put(b"alice", b"1")?;
    /// assert_eq!(before.last_sequence_number() + 1, db.last_sequence_number());
    /// # Ok::<(), pleach::Error>(())
    /// ```
    pub fn last_sequence_number(&self) -> u64 {
        self.view.visible
    }

    /// Reads the value that `key` had.
    ///
    /// # Errors
    /// Those of [`Partition::get`], except that a partition that was dropped after the snapshot is still readable. Also
    /// `InvalidArgument` for a partition of another store, and `Closed` for a partition that is newer than the snapshot.
    pub fn get(&self, partition: &Partition, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_with(partition, key, &ReadOptions::new())
    }

    /// As [`Snapshot::get`], with options.
    ///
    /// # Errors
    /// Those of [`Snapshot::get`], and `TimedOut` after [`ReadOptions::timeout`].
    pub fn get_with(
        &self,
        partition: &Partition,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<Option<Value>> {
        let tree = self.tree(partition)?;
        let (inner, state) = (&self.shared.inner, &self.view.state);
        get_blocking(&inner.ctx, state, (partition.id(), tree), key.as_ref(), self.view.visible, options)
    }

    /// Whether `key` had a value.
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
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
    /// Those of [`Snapshot::get`], for any of the keys.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        partition: &Partition,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        self.get_many_with(partition, keys, &ReadOptions::new())
    }

    /// As [`Snapshot::get_many`], with options.
    ///
    /// # Errors
    /// Those of [`Snapshot::get_with`], for any of the keys.
    pub fn get_many_with<K: AsRef<[u8]>>(
        &self,
        partition: &Partition,
        keys: impl IntoIterator<Item = K>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.tree(partition)?;
        partition.get_many_in(&self.view, keys, options)
    }

    /// As [`Snapshot::get`], by a future ([rules](crate#reads-that-do-not-block)). The future copies the key and pins the
    /// snapshot until its first poll, and then what it reads.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # fn block_on<F: std::future::Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(ready) = future.as_mut().poll(&mut cx) {
    /// #             return ready;
    /// #         }
    /// #     }
    /// # }
    /// let db = pleach::Db::open(dir.path())?;
    /// let users = db.default_partition();
    /// users.put(b"alice", b"1")?;
    /// let before = db.snapshot();
    /// users.delete(b"alice")?;
    /// let value = block_on(before.get_async(&users, "alice"))?; // `.await` in a task
    /// assert_eq!(value.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), pleach::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
    pub fn get_async(&self, partition: &Partition, key: impl AsRef<[u8]>) -> GetFuture {
        self.get_async_with(partition, key, &ReadOptions::new())
    }

    /// As [`Snapshot::get_async`], with options.
    ///
    /// # Errors
    /// Those of [`Snapshot::get_with`].
    pub fn get_async_with(
        &self,
        partition: &Partition,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> GetFuture {
        GetFuture::in_snapshot(self.clone(), partition.clone(), key.as_ref(), options)
    }

    /// As [`Snapshot::get_many`], by a future. It copies the keys and pins the snapshot; otherwise it is as
    /// [`Partition::get_many_async`].
    ///
    /// # Errors
    /// Those of [`Snapshot::get`], for any of the keys.
    pub fn get_many_async<K: AsRef<[u8]>>(
        &self,
        partition: &Partition,
        keys: impl IntoIterator<Item = K>,
    ) -> GetManyFuture {
        self.get_many_async_with(partition, keys, &ReadOptions::new())
    }

    /// As [`Snapshot::get_many_async`], with options.
    ///
    /// # Errors
    /// Those of [`Snapshot::get_with`], for any of the keys.
    pub fn get_many_async_with<K: AsRef<[u8]>>(
        &self,
        partition: &Partition,
        keys: impl IntoIterator<Item = K>,
        options: &ReadOptions,
    ) -> GetManyFuture {
        GetManyFuture::new(partition.clone(), key_bytes(keys), options).in_snapshot(self.clone())
    }

    /// All entries in key order, from either end. The range's first item is an error if the snapshot cannot be read.
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

    /// The entries whose keys lie in `bounds`, in key order, from either end, as [`Partition::range`]. The range's first item is
    /// an error if the snapshot cannot be read.
    pub fn range<K: AsRef<[u8]>>(&self, partition: &Partition, bounds: impl RangeBounds<K>) -> Range {
        Range::new(&self.shared.inner.ctx, self.view_of(partition), partition.id(), bounds)
    }

    /// The entries whose keys start with `prefix`, in key order, from either end.
    pub fn prefix(&self, partition: &Partition, prefix: impl AsRef<[u8]>) -> Range {
        Range::with_prefix(&self.shared.inner.ctx, self.view_of(partition), partition.id(), prefix.as_ref())
    }

    /// A cursor over all entries that the snapshot has of a partition, as [`Partition::cursor`].
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
    pub fn cursor(&self, partition: &Partition) -> Result<Cursor> {
        Ok(Cursor::new(&self.shared.inner.ctx, self.view_of(partition)?, partition.id()))
    }

    /// The view, if the partition is in it.
    pub(super) fn view_of(&self, partition: &Partition) -> Result<ReadView> {
        self.tree(partition).map(|_| self.view.clone())
    }

    /// The partition's sub-tree when the snapshot was taken. A partition that was dropped later is still readable.
    fn tree(&self, partition: &Partition) -> Result<&SubTree> {
        if !partition.is_of(&self.shared) {
            return Err(Error::invalid("the partition belongs to another store than the snapshot"));
        }
        self.shared.inner.ctx.status.check_not_closed()?;
        let Some(tree) = self.view.state.version.tree(partition.id()) else {
            let message =
                format!("partition {:?} did not exist when the snapshot was taken", partition.name());
            return Err(Error::new(ErrorKind::Closed, message));
        };
        Ok(tree)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("last_sequence_number", &self.view.visible).finish_non_exhaustive()
    }
}
