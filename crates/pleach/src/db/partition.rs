//! The handle of a partition: reads and writes of one independent key space.

mod upkeep;

use std::ops::RangeBounds;
use std::sync::Arc;

use pleach_env::{Error, Result, failpoint};
use pleach_log::Durability;

use super::futures::{GetFuture, GetManyFuture, key_bytes};
use super::handle::{Db, Shared};
use super::inner::Inner;
use crate::keys::PartitionId;
use crate::lookup::{Search, begin, get_blocking, get_many};
use crate::operations::Operations;
use crate::read_options::ReadOptions;
use crate::scan::{Cursor, Range};
use crate::state::{ReadView, State};
use crate::value::Value;
use crate::version::SubTree;
use crate::write_path::{LivePartition, TouchedPartitions, WriteRequest, dropped_error};

/// A partition: an independent, ordered key space that can be dropped at once. Cheap to clone, `Send`, `Sync` and
/// `'static`; it keeps the store open.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = pleach::Db::open(dir.path())?;
/// let users = db.partition("users")?;
/// users.put("alice", "1")?;
/// users.put("bob", "2")?;
/// assert_eq!(users.get("alice")?.as_deref(), Some(&b"1"[..]));
/// users.delete("alice")?;
/// assert!(!users.contains("alice")?);
/// for entry in users.prefix("b") {
///     let (key, value) = entry?;
///     assert_eq!((&key[..], &value[..]), (&b"bob"[..], &b"2"[..]));
/// }
/// # Ok::<(), pleach::Error>(())
/// ```
#[derive(Clone)]
pub struct Partition {
    shared: Arc<Shared>,
    pub(crate) live: Arc<LivePartition>,
}

impl Partition {
    pub(crate) fn new(db: &Db, live: Arc<LivePartition>) -> Self {
        Self { shared: Arc::clone(&db.shared), live }
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.shared.inner
    }

    /// Whether both belong to the same open store.
    pub(crate) fn is_of(&self, db: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, db)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.live.name
    }

    /// Its number, which is never reused.
    pub fn id(&self) -> PartitionId {
        self.live.id
    }

    /// Its sub-tree in `state`; an error when it has been dropped.
    #[inline]
    fn tree<'s>(&self, state: &'s State) -> Result<&'s SubTree> {
        match state.version.tree(self.live.id) {
            Some(tree) => Ok(tree),
            None => Err(self.gone()),
        }
    }

    fn check_live(&self) -> Result<()> {
        self.tree(&self.inner().version_set.state.load()).map(|_| ())
    }

    /// The view that reads use now; an error when the partition is not in it.
    pub(super) fn view(&self) -> Result<ReadView> {
        failpoint::reached("partition.read");
        let view = self.inner().version_set.state.view();
        self.tree(&view.state)?;
        Ok(view)
    }

    /// Why the partition no longer exists.
    #[cold]
    fn gone(&self) -> Error {
        if self.inner().ctx.status.is_closed() { Error::closed() } else { dropped_error(&self.live.name) }
    }

    /// Reads the value of `key`.
    ///
    /// # Errors
    /// `InvalidArgument` for a too long key, `Closed` after a drop or a close, `Io` or `Corruption` when a block
    /// cannot be read.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_with(key, &const { ReadOptions::new() })
    }

    /// As [`Partition::get`], with options.
    ///
    /// # Errors
    /// Those of [`Partition::get`], and `TimedOut` after [`ReadOptions::timeout`].
    #[inline]
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        failpoint::reached("partition.read");
        let inner = self.inner();
        let state = inner.version_set.state.load();
        let tree = self.tree(&state)?;
        get_blocking(
            &inner.ctx,
            &state,
            (self.live.id, tree),
            key.as_ref(),
            inner.version_set.state.visible(),
            options,
        )
    }

    /// Reads the values of many keys, in their order, from one consistent view. Blocks that are not in the cache are read
    /// at the same time, neighbouring ones at once, each once.
    ///
    /// # Errors
    /// Those of [`Partition::get`], for any of the keys.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Value>>> {
        self.get_many_with(keys, &ReadOptions::new())
    }

    /// As [`Partition::get_many`], with options. [`ReadPolicy::Auto`](crate::ReadPolicy) searches for each key serially:
    /// many keys keep the device busy. With a timeout or a parallel policy it reads as [`Partition::get_many_async`] does, each
    /// block by a read of its own.
    ///
    /// # Errors
    /// Those of [`Partition::get_with`], for any of the keys.
    pub fn get_many_with<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.get_many_in(&self.view()?, keys, options)
    }

    /// The same in a view.
    pub(super) fn get_many_in<K: AsRef<[u8]>>(
        &self,
        view: &ReadView,
        keys: impl IntoIterator<Item = K>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        let ctx = &self.inner().ctx;
        if options.timeout.is_some() || options.policy.is_parallel() {
            // Only reads of the service can be left behind: after a timeout, or when a newer run has the answer.
            let mut future = GetManyFuture::new(self.clone(), key_bytes(keys), options).in_view(view.clone());
            return future.run();
        }
        let partition = (self.live.id, self.tree(&view.state)?);
        get_many(ctx, &view.state, partition, keys, view.visible, options)
    }

    /// As [`Partition::get`], by a future: while the device reads, the thread is free for other tasks. The future copies
    /// the key and reads the newest value at its first poll ([rules](crate#reads-that-do-not-block)).
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
    /// users.put("alice", "1")?;
    /// let value = block_on(users.get_async("alice"))?; // `.await` in a task
    /// assert_eq!(value.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), pleach::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Partition::get`].
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> GetFuture {
        self.get_async_with(key, &ReadOptions::new())
    }

    /// As [`Partition::get_async`], with options.
    ///
    /// # Errors
    /// Those of [`Partition::get_with`].
    pub fn get_async_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> GetFuture {
        GetFuture::new(self.clone(), key.as_ref(), options)
    }

    /// As [`Partition::get_many`], by a future. It copies the keys and takes its view at the first poll
    /// ([rules](crate#reads-that-do-not-block)). Equal blocks are read once; unlike `get_many`, each block is a read of its
    /// own.
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
    /// users.put("alice", "1")?;
    /// let values = block_on(users.get_many_async(["bob", "alice"]))?; // `.await` in a task
    /// assert_eq!((values[0].as_deref(), values[1].as_deref()), (None, Some(&b"1"[..])));
    /// # Ok::<(), pleach::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Partition::get`], for any of the keys.
    pub fn get_many_async<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> GetManyFuture {
        self.get_many_async_with(keys, &ReadOptions::new())
    }

    /// As [`Partition::get_many_async`], with options. [`ReadPolicy::Auto`](crate::ReadPolicy) searches for each key
    /// serially.
    ///
    /// # Errors
    /// Those of [`Partition::get_with`], for any of the keys.
    pub fn get_many_async_with<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: &ReadOptions,
    ) -> GetManyFuture {
        GetManyFuture::new(self.clone(), key_bytes(keys), options)
    }

    /// Begins to read the value of `key`: the error is the answer, where no block must be waited for.
    pub(super) fn begin_get(
        &self,
        key: &[u8],
        options: &ReadOptions,
    ) -> std::result::Result<Search, Result<Option<Value>>> {
        failpoint::reached("partition.read");
        let inner = self.inner();
        let state = inner.version_set.state.load();
        let tree = self.tree(&state).map_err(Err)?;
        let visible = inner.version_set.state.visible();
        begin(&inner.ctx, &state, (self.live.id, tree), key, visible, options)
    }

    /// The same in a view.
    pub(super) fn begin_get_in(
        &self,
        view: &ReadView,
        key: &[u8],
        options: &ReadOptions,
    ) -> std::result::Result<Search, Result<Option<Value>>> {
        let tree = self.tree(&view.state).map_err(Err)?;
        begin(&self.inner().ctx, &view.state, (self.live.id, tree), key, view.visible, options)
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// Those of [`Partition::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Sets the value of `key`, with [`Durability::Buffered`].
    ///
    /// # Errors
    /// - `InvalidArgument` if key or value exceed the [limits](crate::limits), or need more memory than the system gives.
    /// - `Io` if the disk is full: nothing is lost, and writes succeed again after space was freed. `Io` also if the device
    ///   refuses a call, which poisons the store, and if the store is open for reading only
    ///   ([`Db::read_only`](crate::Db::read_only)).
    /// - `Poisoned` after a failure that stopped all writes: a failed sync, or another one of
    ///   [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned).
    /// - `Closed` after a drop or a close.
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(key.as_ref(), Some(value.as_ref()), Durability::Buffered, true)
    }

    /// As [`Partition::put`], with the given durability.
    ///
    /// # Errors
    /// Those of [`Partition::put`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.write(key.as_ref(), Some(value.as_ref()), durability, true)
    }

    /// As [`Partition::put`], but it returns a `Conflict` error instead of waiting for a flush, or for more than a
    /// millisecond of back-pressure.
    ///
    /// # Errors
    /// Those of [`Partition::put`], and `Conflict` if it would have to wait.
    pub fn try_put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(key.as_ref(), Some(value.as_ref()), Durability::Buffered, false)
    }

    /// Removes `key`, if it has a value, with [`Durability::Buffered`].
    ///
    /// # Errors
    /// Those of [`Partition::put`]. On a full disk deletes are accepted longer than puts.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(key.as_ref(), None, Durability::Buffered, true)
    }

    /// As [`Partition::delete`], with the given durability.
    ///
    /// # Errors
    /// Those of [`Partition::delete`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.write(key.as_ref(), None, durability, true)
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, durability: Durability, may_wait: bool) -> Result<()> {
        let mut operations = Operations::in_kept_memory();
        operations.push(self.live.id, key, value, self.inner().ctx.options.value_sizes())?;
        let partitions = TouchedPartitions::one(&self.live);
        let request = WriteRequest { may_wait, ..WriteRequest::new(operations, partitions, durability) };
        let (operations, result) = self.inner().writes.commit(request);
        operations.keep_memory();
        result
    }

    /// The entries whose keys lie in `bounds`, in key order, from either end. If the lower bound is above the upper one,
    /// there are none. The first item of a range is an error if the partition was dropped or the store closed.
    ///
    /// The call itself reads nothing. The first step from an end seeks in each run that may have keys of the range: about one
    /// block of each is read, unless it is cached.
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Range {
        Range::new(&self.inner().ctx, self.view(), self.live.id, bounds)
    }

    /// The entries whose keys start with `prefix`, in key order, from either end.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        Range::with_prefix(&self.inner().ctx, self.view(), self.live.id, prefix.as_ref())
    }

    /// All entries in key order, from either end.
    pub fn iter(&self) -> Range {
        self.prefix(b"")
    }

    /// A cursor over all entries, which moves both ways: for callers that want a position rather than an iterator. It is on no
    /// entry yet, and reads the partition as it is now.
    ///
    /// # Errors
    /// `Closed`: the store was closed or the partition dropped.
    pub fn cursor(&self) -> Result<Cursor> {
        Ok(Cursor::new(&self.inner().ctx, self.view()?, self.live.id))
    }
}

impl IntoIterator for &Partition {
    type Item = <Range as Iterator>::Item;
    type IntoIter = Range;

    fn into_iter(self) -> Range {
        self.iter()
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partition")
            .field("name", &self.name())
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
