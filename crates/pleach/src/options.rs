//! Options of a store: how a caller sets them, and which values are accepted.

use std::sync::Arc;
use std::time::Duration;

use pleach_env::{Env, Error, ReadDriver, RealEnv, Result};
use pleach_table::{Codec, IndexChoice};

use crate::shape::{Conversion, Shape};
use crate::training::{LearnedIndex, Limits};

mod creation;
mod sizes;
mod thresholds;
use creation::Creation;
pub use thresholds::Thresholds;
pub(crate) use thresholds::{LARGE_VALUE_LEN, ValueSizes};

/// How to open a store. Every option can be left alone.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = pleach::Options::new().memory(64 << 20).open(dir.path().join("data"))?;
/// # Ok::<(), pleach::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) env: Arc<dyn Env>,
    creation: Creation,
    pub(crate) read_only: bool,
    memory: Option<usize>,
    pub(crate) memtable_bytes: Option<usize>,
    pub(crate) codec: Codec,
    pub(crate) direct_reads: bool,
    pub(crate) read_driver: Option<ReadDriver>,
    pub(crate) shape: Shape,
    pub(crate) runs_per_stage: usize,
    pub(crate) compaction_threads: Option<usize>,
    pub(crate) compaction_bytes_per_second: u64,
    pub(crate) tombstone_age_max: Duration,
    pub(crate) sst_bytes: u64,
    pub(crate) clean_every: usize,
    pub(crate) filter_bits_per_key: f32,
    learned_index: LearnedIndex,
    separate_at: usize,
    pub(crate) space_target: f64,
    conversion: Conversion,
    pub(crate) thresholds: Thresholds,
}

/// Smallest memory budget that [`Options::memory`] takes: 1 MiB.
const MEMORY_MIN: usize = 1 << 20;

/// Largest memtable that can be asked for.
pub(crate) const MEMTABLE_BYTES_LIMIT: usize = 1 << 30;

/// Immutable memtables before writers wait for a flush.
pub(crate) const IMMUTABLE_MEMTABLES_MAX: usize = 2;

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            env: Arc::new(RealEnv::new()),
            creation: Creation::default(),
            read_only: false,
            memory: None,
            memtable_bytes: None,
            codec: Codec::None,
            direct_reads: false,
            read_driver: None,
            shape: Shape::ForestOverBottom,
            runs_per_stage: 4,
            compaction_threads: None,
            compaction_bytes_per_second: 0,
            tombstone_age_max: Duration::from_secs(7 * 24 * 60 * 60),
            sst_bytes: 64 << 20,
            clean_every: 10,
            filter_bits_per_key: 10.0,
            learned_index: LearnedIndex::Adaptive,
            separate_at: 1024,
            space_target: 1.3,
            conversion: Conversion::default(),
            thresholds: Thresholds::default(),
        }
    }

    /// Whether the store is opened for reading only (default: no). Such an open needs no permission to write and changes no
    /// byte of the directory. It reads the whole log into memory, usually at most three memtables. Any number of readers
    /// can have a store open together. While a writer has it open, the open returns `Conflict`. A missing store is not
    /// created. Writes, and calls that wait for background work, return `Io` with the system's error for a read-only file
    /// system.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let db = pleach::Db::open(&path)?;
    /// db.default_partition().put(b"k", b"v")?;
    /// db.close()?;
    /// // Two readers at the same time.
    /// let readers = [(); 2].map(|()| pleach::Options::new().read_only(true).open(&path));
    /// for reader in readers {
    ///     let reader = reader?;
    ///     assert_eq!(reader.default_partition().get(b"k")?.as_deref(), Some(&b"v"[..]));
    ///     assert!(reader.default_partition().put(b"k", b"w").is_err());
    /// }
    /// # Ok::<(), pleach::Error>(())
    /// ```
    #[must_use]
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }

    /// Memory budget in bytes: 1 MiB to 1 PiB. Default: a quarter of the memory that the process may use, from 64 MiB to 1
    /// GiB; 512 MiB if that is unknown. A limit of its control group counts, so a container's does.
    ///
    /// Each memtable takes up to an eighth (at most 64 MiB), and there are up to three. Indexes and filters take what they
    /// need, and cached blocks the rest, at least a quarter. When nothing was written for two seconds, cached blocks also have
    /// what the memtables do not hold; as memtables grow, blocks are evicted. The system gives memory when it is used, so a
    /// small store takes little.
    ///
    /// If there is not enough for all filters beside that quarter, new ones have fewer bits a key
    /// ([`Options::filter_bits_per_key`]), and if that does not suffice, those that save the fewest searches for their size stay
    /// on the disk ([`Stats::filters_missing`](crate::Stats::filters_missing)). Indexes are always in memory: 0.1 % of the data
    /// where they are learned, up to 0.7 % otherwise, more of compressed data with long keys. So are the filters that open ranges
    /// and snapshots pin.
    ///
    /// These come on top of this budget:
    /// - memtables that snapshots, ranges and values pin after their flush
    ///   ([`Stats::pinned_memtable_bytes`](crate::Stats::pinned_memtable_bytes));
    /// - a write batch larger than a memtable, and the excess of [`Options::memtable_bytes`] over an eighth of the budget;
    /// - the blocks that a long scan reads ahead: up to 1 MiB for each run;
    /// - blocks that are not cached ([`ReadOptions::fill_cache`](crate::ReadOptions::fill_cache)), as long as values pin them;
    /// - the buffers of compactions: about 1 MiB for each run that is merged, and for the SST that is written, whose index and
    ///   filter are in memory too;
    /// - up to 1 MiB that each writing thread keeps for its next batch.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Whether data blocks of new files, and new separated values ([`Options::separate_at`]), are compressed with LZ4 (default:
    /// no). What saves less than an eighth, or has 4 MiB or more, is stored as it is. The option can change with each open.
    #[must_use]
    pub fn compression(mut self, yes: bool) -> Self {
        self.codec = if yes { Codec::Lz4 } else { Codec::None };
        self
    }

    /// Whether reads of blocks and of separated values bypass the system's page cache (`O_DIRECT`; default: no). Use it if the
    /// store's memory budget is large and the data far larger.
    #[must_use]
    pub fn direct_reads(mut self, yes: bool) -> Self {
        self.direct_reads = yes;
        self
    }

    /// How futures, and calls that want many blocks, such as [`Partition::get_many`](crate::Partition::get_many), read
    /// them. A blocking get reads by itself. By default the open tries an `io_uring`, and takes threads where the system
    /// refuses it. [`Stats::read_driver`](crate::Stats) says which it is. If the system refuses the `driver` given here, the
    /// open fails with `Io`. Polled drivers are the exception: where the system or the device does not poll,
    /// [`ReadDriver::DevicePolled`] becomes [`ReadDriver::KernelPolled`], and that becomes [`ReadDriver::Ring`].
    #[must_use]
    pub fn read_driver(mut self, driver: ReadDriver) -> Self {
        self.read_driver = Some(driver);
        self
    }

    /// Size of a memtable in bytes, and of a log segment: 16 KiB to 1 GiB. Default: an eighth of [`Options::memory`], at most 64
    /// MiB.
    ///
    /// A larger memtable makes flushes fewer and larger, which helps heavy random writes. What exceeds an eighth of the
    /// memory comes on top of the budget, for each of up to three memtables. An open after a crash replays up to about three
    /// memtables. More disk space is kept free for flushes.
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.memtable_bytes = Some(bytes);
        self
    }

    /// How files are arranged: see [`Shape`]. Default [`Shape::ForestOverBottom`]. Later compactions bring a store of
    /// another shape into this one.
    #[must_use]
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// Threads that compact: 1 to 64; by default one for each processor, at most 4. They run at low priority.
    #[must_use]
    pub fn compaction_threads(mut self, threads: usize) -> Self {
        self.compaction_threads = Some(threads);
        self
    }

    /// Bytes that all compaction threads together may write in a second, which keeps reads fast; default 0, no limit. Copies of
    /// separated values count. The limit is lifted while compactions are so far behind that writers are slowed down, and while a
    /// thread waits in `compact`, `convert` or `settle` of a [`Db`](crate::Db) or partition, or in a close.
    #[must_use]
    pub fn compaction_bytes_per_second(mut self, bytes: u64) -> Self {
        self.compaction_bytes_per_second = bytes;
        self
    }

    /// Age at which a tombstone is merged with the entries that it shadows, so that deleted data leaves the disk: default
    /// seven days. Counted in seconds from the tombstone's flush; checked whenever a flush or a compaction ends, and every
    /// minute while nothing is written. Only the whole seconds of `age` count.
    #[must_use]
    pub fn tombstone_age_max(mut self, age: Duration) -> Self {
        self.tombstone_age_max = age;
        self
    }

    /// Runs that a stage holds before they are merged into one run of the next stage: k, 2 to 64, default 4 (`SifrDB`'s k).
    /// A larger k writes less and reads more. With [`Shape::ForestOverBottom`] the first stage holds k * k runs while data
    /// is written, and later stages 2.5 * k.
    #[must_use]
    pub fn runs_per_stage(mut self, k: usize) -> Self {
        self.runs_per_stage = k;
        self
    }

    /// Target length of an SST in bytes: 4 KiB to 2 GiB, default 64 MiB. A partition with fewer than 64 of them has smaller
    /// ones, down to an eighth of a memtable.
    #[must_use]
    pub fn sst_bytes(mut self, bytes: u64) -> Self {
        self.sst_bytes = bytes;
        self
    }

    /// Most SSTs that a compaction writes between two commits of its progress: 1 to 1000, default 10 (`SifrDB`'s early
    /// cleaning). A large compaction needs about this many SSTs of extra space. A small one commits more often.
    #[must_use]
    pub fn clean_every(mut self, ssts: usize) -> Self {
        self.clean_every = ssts;
        self
    }

    /// Bits per key of the in-memory filters, on average over a partition: 0 (none) to 32, default 10 (about 1 % false
    /// positives). Large runs get fewer than the average, down to 4, and small runs more, up to 20; the memory is the same in
    /// all, and lookups of missing keys are faster. If the memory is too short for all filters, new ones have fewer, down to
    /// 5 on average (about 10 %), until their SSTs are compacted again.
    #[must_use]
    pub fn filter_bits_per_key(mut self, bits: f32) -> Self {
        self.filter_bits_per_key = bits;
        self
    }

    /// Whether new SSTs get a learned index: default [`LearnedIndex::Adaptive`]. A model of the keys takes the place of the keys
    /// between blocks. It needs about 1.4 bytes of memory for each block of 4 KiB on random numbers, UUIDs or hashes, separators
    /// 14 to 16; next to nothing on consecutive numbers. The files are up to 3 % longer. Keys with long equal parts inside,
    /// such as URLs, keep separators ([`Stats::index_ties`](crate::Stats::index_ties)).
    ///
    /// Every build that has this option reads both kinds. Builds from before it refuse a store with a learned index
    /// (`Unsupported`).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use pleach::{LearnedIndex, Options};
    ///
    /// let db = Options::new().learned_index(LearnedIndex::Never).open(dir.path().join("data"))?;
    /// # Ok::<(), pleach::Error>(())
    /// ```
    #[must_use]
    pub fn learned_index(mut self, when: LearnedIndex) -> Self {
        self.learned_index = when;
        self
    }

    /// Length in bytes, before compression, from which on values are *separated*: they stay in the log segment to which they
    /// were written, or are copied if most of it is something else. SSTs have pointers of about ten bytes. So a large value is
    /// written once, and merges move only pointers. A read of it takes one read more. Default 1024; with 0 none is separated.
    ///
    /// The option can change with each open; values that are separated stay so. Builds from before this option refuse a store
    /// with separated values, and one that was opened, with this option above 0, and not closed (`Unsupported`).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// pleach::Options::new().separate_at(512).open(dir.path())?.default_partition().put("large", [7; 600])?;
    /// # Ok::<(), pleach::Error>(())
    /// ```
    #[must_use]
    pub fn separate_at(mut self, bytes: usize) -> Self {
        self.separate_at = bytes;
        self
    }

    /// Space that a store with separated values may take, as a multiple of its live data: 1.1 to 4, default 1.3. Above it, live
    /// values of files with much garbage are moved to new files. A lower target writes more. Files that snapshots pin, and the
    /// log of what is not flushed, come on top. Fast writers exceed it, by 0.06 at 1.3 and by a third at 1.1, until they are
    /// slowed down. It is not stored: a store that is opened with a lower one is cleaned at once.
    ///
    /// Behind a thousand deletes or more, or the drop of a partition, space comes back although the target is kept: when the
    /// store is quiet, files of which a third or more is garbage are cleaned, unless that is little beside the SSTs, and not
    /// with [`Conversion::Always`].
    #[must_use]
    pub fn space_target(mut self, ratio: f64) -> Self {
        self.space_target = ratio;
        self
    }

    /// When separated values are copied into the order of their keys. Default: [`Conversion::ForScans`].
    #[must_use]
    pub fn conversion(mut self, conversion: Conversion) -> Self {
        self.conversion = conversion;
        self
    }

    /// The space target above which values are moved.
    pub(crate) fn relocation_target(&self) -> f64 {
        self.thresholds.space_target.unwrap_or(self.space_target)
    }

    /// Whether everything is copied to clean values.
    pub(crate) fn always_converts(&self) -> bool {
        self.conversion == Conversion::Always
    }

    /// Whether values of any length are separated.
    pub(crate) fn separates(&self) -> bool {
        self.separate_at > 0
    }

    /// How values are treated by their lengths.
    pub(crate) fn value_sizes(&self) -> ValueSizes {
        let separated = if self.separates() { self.separate_at } else { usize::MAX };
        ValueSizes { large: self.thresholds.large_value_len, separated, packed: self.codec == Codec::Lz4 }
    }

    /// When SSTs get a learned index.
    pub(crate) fn when_learned(&self) -> LearnedIndex {
        self.learned_index
    }

    /// Whether training is adaptive.
    pub(crate) fn is_adaptive(&self) -> bool {
        self.learned_index == LearnedIndex::Adaptive
    }

    /// Which models an SST takes that is trained.
    pub(crate) fn learned_choice(&self) -> IndexChoice {
        if self.thresholds.larger_models { IndexChoice::Learned } else { IndexChoice::Smallest }
    }

    /// The thresholds of adaptive training. Without it, nothing is limited.
    pub(crate) fn training_limits(&self) -> Limits {
        let Thresholds { training_writers, training_error, training_time, .. } = self.thresholds;
        let time = if self.is_adaptive() { training_time } else { Duration::MAX };
        Limits { writers: training_writers, error: training_error, time }
    }

    /// Other thresholds, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn thresholds(mut self, thresholds: Thresholds) -> Self {
        self.thresholds = thresholds;
        self
    }

    /// The environment: the machine by default. In a [`MemEnv`](pleach_env::MemEnv) a store lasts as long as the environment.
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// An error that says which option is out of its range.
    pub(crate) fn check(&self) -> Result<()> {
        let ranges = [
            ("memory", self.memory_budget() as u64, MEMORY_MIN as u64..=1 << 50, " bytes"),
            (
                "memtable_bytes",
                self.memtable_budget() as u64,
                16 << 10..=MEMTABLE_BYTES_LIMIT as u64,
                " bytes",
            ),
            ("compaction_threads", self.compaction_worker_count() as u64, 1..=64, ""),
            ("runs_per_stage", self.runs_per_stage as u64, 2..=64, ""),
            ("sst_bytes", self.sst_bytes, 4 << 10..=2 << 30, " bytes"),
            ("clean_every", self.clean_every as u64, 1..=1000, ""),
        ];
        for (name, value, range, unit) in ranges {
            if !range.contains(&value) {
                let (low, high) = range.into_inner();
                let message = format!("option {name} is {value}; it must be between {low} and {high}{unit}");
                return Err(Error::invalid(message));
            }
        }
        if !(1.1..=4.0).contains(&self.space_target) {
            let target = self.space_target;
            return Err(Error::invalid(format!(
                "option space_target is {target}; it must be between 1.1 and 4"
            )));
        }
        if !(0.0..=32.0).contains(&self.filter_bits_per_key) {
            let bits = self.filter_bits_per_key;
            return Err(Error::invalid(format!(
                "option filter_bits_per_key is {bits}; it must be between 0 and 32"
            )));
        }
        Ok(())
    }
}
