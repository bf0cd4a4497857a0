//! Size, statistics, merges and conversions of a partition: the calls of its handle beside reads and writes.

use std::ops::{Bound, RangeBounds};

use pleach_env::{Result, failpoint};

use super::Partition;
use crate::db::collect_stats::tree_stats;
use crate::keys::KeyRange;
use crate::stats::{PartitionStats, SizeEstimate};
use crate::version::size;

impl Partition {
    /// An estimate of the entries in `bounds` and of their bytes. It reads no data: it searches the indexes of all runs,
    /// which are in memory. Entries in memtables are not counted. Shadowed versions and tombstones are counted until a
    /// compaction removes them. The error is about a block (usually 4 to 16 KiB) for each run and bound.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = pleach::Db::open(dir.path())?;
    /// let users = db.default_partition();
    /// for n in 0..1_000 {
    ///     users.put(format!("user{n:03}"), [b'x'; 100])?;
    /// }
    /// db.flush()?;
    /// assert_eq!(users.approximate_size::<&str>(..)?.entries, 1_000);
    /// let half = users.approximate_size("user500"..)?;
    /// assert!((300..700).contains(&half.entries));
    /// # Ok::<(), pleach::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed` after a drop or a close.
    pub fn approximate_size<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<SizeEstimate> {
        let state = self.view()?.state;
        let key = |bound: Bound<&K>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        let (lower, upper) = (key(bounds.start_bound()), key(bounds.end_bound()));
        Ok(size::estimate(self.tree(&state)?, self.live.id, (lower.as_deref(), upper.as_deref())))
    }

    /// Merges the partition into one run, and waits for that. Its cost is that of [`Db::compact`](crate::Db::compact) for this
    /// partition; memtables are flushed first.
    ///
    /// # Errors
    /// Those of [`Db::compact`](crate::Db::compact). `Closed` also if the partition was dropped, before or meanwhile.
    pub fn compact(&self) -> Result<()> {
        self.check_live()?;
        self.inner().upkeep.flush_all()?;
        self.inner().upkeep.compact_partition(self.live.id)?;
        self.check_live()
    }

    /// Merges what the partition holds of `bounds`, and waits for that. Afterwards one run holds the range, without tombstones
    /// and shadowed entries. Snapshots keep reading what they read before.
    ///
    /// Nothing outside of the range is merged. Besides the range it writes only rests of files that would be too small, up to an
    /// eighth of the length of an SST at each end. Separated values stay where they are. A range that is in one run without
    /// tombstones is left alone: a second call writes nothing. Writes that come meanwhile are not merged.
    ///
    /// Memtables are flushed if they hold a key of the range. It waits for compactions that work on the same runs. Without
    /// work to do, it looks at the key ranges of all runs, and reads at most four blocks of each that may have keys in the
    /// range.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = pleach::Db::open(dir.path())?;
    /// let queue = db.partition("queue")?;
    /// for n in 0..1000u32 {
    ///     queue.put(n.to_be_bytes(), "job")?;
    /// }
    /// db.flush()?;
    /// for n in 0..500u32 {
    ///     queue.delete(n.to_be_bytes())?;
    /// }
    /// queue.compact_range(..500u32.to_be_bytes())?; // Scans pass no tombstones any more.
    /// assert_eq!(queue.iter().count(), 500);
    /// # Ok::<(), pleach::Error>(())
    /// ```
    ///
    /// If the lower bound is above the upper one, nothing is merged.
    ///
    /// # Errors
    /// Those of [`Partition::compact`]. What was merged before an error stays so.
    pub fn compact_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        self.check_live()?;
        self.inner().upkeep.compact_range(self.live.id, KeyRange::of(&bounds))?;
        self.check_live()
    }

    /// As [`Partition::compact`], and copies separated values in the order of their keys: see
    /// [`Db::convert`](crate::Db::convert), also for what it returns.
    ///
    /// # Errors
    /// Those of [`Partition::compact`].
    pub fn convert(&self) -> Result<u64> {
        self.convert_with(&mut |_, _| true)
    }

    /// As [`Partition::convert`]. Whenever some of it is done, it calls `progress` with the bytes of the values that were
    /// passed and the bytes of all values, and stops if that returns `false`. If the space target makes several passes
    /// necessary, each begins at 0 again, and ends with all bytes. What was copied stays. After a stop the store ends the
    /// pass by itself, unless it is closed.
    ///
    /// Returns the bytes of values that were left where they are because there was no room for copies: the space target, the
    /// disk, or snapshots that pin old copies did not allow more. After a stop these are the bytes that the last whole pass has
    /// left: 0 in the first pass, whatever there is to do.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = pleach::Options::new().separate_at(512).open(dir.path())?;
    /// let users = db.partition("users")?;
    /// users.put("alice", [7; 1000])?;
    /// let left = users.convert_with(&mut |passed, all| {
    ///     eprintln!("{passed} of {all} bytes");
    ///     true
    /// })?;
    /// assert_eq!(left, 0);
    /// # Ok::<(), pleach::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Partition::compact`].
    pub fn convert_with(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<u64> {
        self.check_live()?;
        self.inner().upkeep.flush_all()?;
        let left = self.inner().upkeep.convert_partition(self.live.id, progress)?;
        self.check_live()?;
        Ok(left)
    }

    /// Its statistics. It reads no file.
    ///
    /// # Errors
    /// `Closed` after a drop or a close.
    pub fn stats(&self) -> Result<PartitionStats> {
        failpoint::reached("partition.read");
        Ok(tree_stats(self.tree(&self.inner().version_set.state.load())?))
    }
}
