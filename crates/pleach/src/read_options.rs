//! Options of one read.

use std::time::Duration;

/// How many runs a point lookup reads at the same time.
///
/// A lookup first excludes runs by key range and filter. The runs that are left are its *candidates*. The newest candidate
/// that holds the key has the answer, so blocks of older candidates may be read and not used:
/// [`Stats::wasted_reads`](crate::Stats::wasted_reads). Blocks in the cache cost no read under any policy.
///
/// Source: `SifrDB`, section 4.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadPolicy {
    /// A candidate whose filter is in memory very likely holds the key, so its answer is waited for. Candidates without a
    /// filter are read at the same time, up to 16, if that makes lookups faster. The store measures both modes in turn.
    #[default]
    Auto,
    /// One candidate after the other.
    Serial,
    /// This many candidates at the same time, newest first; the next one starts when the newest has missed. `SifrDB`'s FC,
    /// whose default is 16. Zero counts as one.
    FixedCount(u32),
    /// All candidates of a stage at the same time; the next stage only if none of them holds the key. `SifrDB`'s PA.
    PriorityAware,
}

impl ReadPolicy {
    /// The policy of each of many keys that are read together: they keep the device busy.
    pub(crate) fn of_many(self) -> Self {
        if self == Self::Auto { Self::Serial } else { self }
    }

    /// Whether it was chosen to read several candidates at the same time.
    pub(crate) fn is_parallel(self) -> bool {
        matches!(self, Self::FixedCount(2..) | Self::PriorityAware)
    }
}

/// Options of one read. Each has a default.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use pleach::{ReadOptions, ReadPolicy};
///
/// let db = pleach::Db::open(dir.path())?;
/// let users = db.default_partition();
/// users.put("alice", "1")?;
/// let options = ReadOptions::new().policy(ReadPolicy::FixedCount(16)).fill_cache(false);
/// assert_eq!(users.get_with("alice", &options)?.as_deref(), Some(&b"1"[..]));
/// # Ok::<(), pleach::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ReadOptions {
    pub(crate) policy: ReadPolicy,
    pub(crate) fill_cache: bool,
    pub(crate) timeout: Option<Duration>,
}

impl ReadOptions {
    /// The defaults.
    pub const fn new() -> Self {
        Self { policy: ReadPolicy::Auto, fill_cache: true, timeout: None }
    }

    /// How many runs are read at the same time. The default is [`ReadPolicy::Auto`].
    pub const fn policy(mut self, policy: ReadPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Whether blocks that are read are put into the cache. The default is `true`. Blocks that are in the cache are used in
    /// any case. A block that another read, at the same time, puts into the cache is shared with it.
    pub const fn fill_cache(mut self, fill_cache: bool) -> Self {
        self.fill_cache = fill_cache;
        self
    }

    /// The longest time that the call waits for the device; then it fails with [`ErrorKind::TimedOut`](crate::ErrorKind).
    /// For a future, the time begins with the first poll. By default there is no limit.
    ///
    /// The limit does not apply to an answer from memory. A read that was begun goes on, and its block goes to the cache, if
    /// [`ReadOptions::fill_cache`] admits it. A get that is repeated may then find it there.
    /// With [`ReadDriver::Blocking`](crate::ReadDriver) the waiting thread reads by itself, and looks at the clock between
    /// two reads. With other drivers, another thread makes the reads of a blocking call that has a limit, so the call costs more
    /// than one without.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self::new()
    }
}
