//! Statistics that a store reports, and the counters behind them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pleach_env::ReadDriver;
use pleach_table::Obstacle;

use crate::training::Verdict;

mod counts;

/// Running counts. Relaxed: no counter orders other memory.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) log_is_mapped: AtomicBool,
    pub(crate) flushes: AtomicU64,
    pub(crate) flush_bytes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) partial_compactions: AtomicU64,
    pub(crate) range_compactions: AtomicU64,
    pub(crate) compaction_read_bytes: AtomicU64,
    pub(crate) compaction_written_bytes: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
    pub(crate) removed_files: AtomicU64,
    /// Bytes of value files that flushes, relocation and conversions wrote.
    pub(crate) value_copied_bytes: AtomicU64,
    pub(crate) value_moved_bytes: AtomicU64,
    pub(crate) value_moves: AtomicU64,
    pub(crate) value_converted_bytes: AtomicU64,
    pub(crate) values_converted: AtomicU64,
    pub(crate) stall_ns: AtomicU64,
    /// Counted after a block was searched without a hit, so other lookups pay nothing.
    pub(crate) wasted_probes: AtomicU64,
    /// SSTs written with separators though a model was wanted, by [`Obstacle`].
    index_ties: AtomicU64,
    index_larger: AtomicU64,
    index_one_block: AtomicU64,
    index_timed_out: AtomicU64,
    index_inexact: AtomicU64,
    /// SSTs that flushes did not train.
    pub(crate) index_many_writers: AtomicU64,
    pub(crate) trained_while_writing: AtomicU64,
    pub(crate) trained_while_reading: AtomicU64,
    training_ns: AtomicU64,
    /// Times that training while reading was put off.
    pub(crate) training_waits: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Adds to a counter that no other thread adds to at the same time. Cheaper: it does not wait for stores before it.
#[inline]
pub(crate) fn add_alone(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

/// Statistics of a store. Counts of work start at zero with each open.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Partitions, the default one included.
    pub partitions: u64,
    /// Live SSTs.
    pub ssts: u64,
    /// Those of [`Stats::ssts`] that have a learned index ([`Options::learned_index`](crate::Options::learned_index)).
    pub ssts_learned: u64,
    /// SSTs that were left without a learned index because their keys have long equal parts inside, so that no model can tell
    /// them apart. This and the next two count when an SST is written, and again when a later training fails.
    pub index_ties: u64,
    /// SSTs that were left without a learned index because a model would be larger than separators.
    pub index_larger: u64,
    /// SSTs that were left without a learned index because they have one block.
    pub index_one_block: u64,
    /// SSTs that flushes wrote without training because many threads wrote
    /// ([`LearnedIndex::Adaptive`](crate::LearnedIndex::Adaptive)).
    pub index_many_writers: u64,
    /// Trained models that were not used because training took too long.
    pub index_timed_out: u64,
    /// Models trained while reading that were not used because they are too far from the boundaries of blocks.
    pub index_inexact: u64,
    /// SSTs that got a learned index when they were written.
    pub trained_while_writing: u64,
    /// SSTs that got a learned index later, while the machine was idle. It is in memory only.
    pub trained_while_reading: u64,
    /// Time that training took, at the end of SSTs and while the machine was idle.
    pub training_time: Duration,
    /// How often training was put off because the machine was busy or an SST was being written.
    pub training_waits: u64,
    /// Bytes of the residuals of learned indexes: a part of [`Stats::index_bytes`].
    pub residual_bytes: u64,
    /// Largest distance, in blocks, between the line of a model and the right block before residuals correct it: 0 to 4.
    /// Lookups always read the right block.
    pub index_error_max: u64,
    /// Length of all live SSTs in bytes.
    pub sst_bytes: u64,
    /// Data blocks of all live SSTs. [`Stats::index_bytes`] divided by them are the index bytes of a block.
    pub data_blocks: u64,
    /// Entries in SSTs: every version and tombstone counts.
    pub sst_entries: u64,
    /// Files in which separated values are ([`Options::separate_at`](crate::Options::separate_at)): log segments that live on for
    /// them, and files to which values were copied or moved.
    pub value_files: u64,
    /// Length of [`Stats::value_files`] in bytes, without space that is reserved behind their ends.
    pub value_file_bytes: u64,
    /// Those of [`Stats::value_files`] that conversions and relocation have found damaged, or could not read, since the open.
    /// They are left where they are, with their garbage; [`Db::verify_all`](crate::Db::verify_all) tells which values are lost.
    pub value_files_damaged: u64,
    /// Separated values to which entries of SSTs refer.
    pub values: u64,
    /// Their bytes as they are stored, four of checksum for each included. Values of entries that newer ones shadow count until
    /// a compaction removes these entries.
    pub value_bytes: u64,
    /// Memory in bytes of the tables by which moved values are found.
    pub value_table_bytes: u64,
    /// Memory in bytes of separated values that are cached. With [`Stats::cache_bytes`] it stays within what memtables, indexes
    /// and filters leave of the budget.
    pub value_cache_bytes: u64,
    /// Separated values that gets, ranges and chunks have read from files because they were not cached.
    pub value_reads: u64,
    /// Bytes of separated values that flushes have copied, because most of their log segments was something else.
    pub value_copied_bytes: u64,
    /// Bytes of separated values that were moved to free the space of values that are gone.
    pub value_moved_bytes: u64,
    /// How often values were moved. Each time the live values of some files go to a new one.
    pub value_moves: u64,
    /// Bytes of separated values that were copied in the order of their keys.
    pub value_converted_bytes: u64,
    /// Separated values that were copied in the order of their keys.
    pub values_converted: u64,
    /// Runs and sections of all partitions.
    pub runs: u64,
    /// Most runs in one partition: about the number of filters that the lookup of a missing key tests.
    pub runs_max: u64,
    /// Compactions in progress.
    pub compactions_running: u64,
    /// Memtables in memory, the active one included.
    pub memtables: u64,
    /// Memory of the memtables in bytes, and what is kept for the next ones.
    pub memtable_bytes: u64,
    /// Memory in bytes of flushed memtables that snapshots, ranges or values pin. It comes on top of
    /// [`Options::memory`](crate::Options::memory).
    pub pinned_memtable_bytes: u64,
    /// SSTs and files of separated values that are open now, in all stores of this process; at most [`Stats::open_files_max`].
    /// Others are opened when they are read.
    pub open_files: u64,
    /// Limit of [`Stats::open_files`]: half of the descriptors that the process may have (`ulimit -Hn`).
    pub open_files_max: u64,
    /// How futures, and calls that want many blocks, read them: [`Options::read_driver`](crate::Options::read_driver).
    pub read_driver: ReadDriver,
    /// Memory budget in bytes: [`Options::memory`](crate::Options::memory) or its default.
    pub memory_bytes: u64,
    /// Memory of cached blocks in bytes. [`Stats::cache_capacity_bytes`] is its limit.
    pub cache_bytes: u64,
    /// Limit of [`Stats::cache_bytes`]: what memtables, indexes and filters leave of the budget.
    pub cache_capacity_bytes: u64,
    /// Memory of the cache that is locked for blocks being read, in bytes. A block whose future was forgotten keeps its memory
    /// locked until the store is closed.
    pub cache_locked_bytes: u64,
    /// Memory of open SSTs in bytes: indexes, filters, and 4 bytes for each data block, by which the cache finds it.
    pub index_filter_bytes: u64,
    /// Memory of indexes alone in bytes, the places of blocks included: a part of [`Stats::index_filter_bytes`].
    pub index_bytes: u64,
    /// Memory of filters alone in bytes: a part of [`Stats::index_filter_bytes`].
    pub filter_bytes: u64,
    /// SSTs whose filters found no room in memory. Lookups search them without a filter.
    pub filters_missing: u64,
    /// Last sequence number. Each put and delete takes one.
    pub last_sequence_number: u64,
    /// Puts and deletes committed.
    pub operations: u64,
    /// Bytes appended to the log.
    pub log_bytes: u64,
    /// Whether small writes reach the log by stores into the page cache instead of system calls. `false` on file systems other
    /// than ext4, XFS and tmpfs, and where the system refuses it.
    pub log_is_mapped: bool,
    /// Memtables flushed.
    pub flushes: u64,
    /// Bytes of SSTs written by flushes.
    pub flush_bytes: u64,
    /// Compactions ended.
    pub compactions: u64,
    /// Compactions that merged one file of a run into the next stage.
    pub partial_compactions: u64,
    /// Compactions of key ranges: see [`Partition::compact_range`](crate::Partition::compact_range).
    pub range_compactions: u64,
    /// Bytes of entries read by compactions.
    pub compaction_read_bytes: u64,
    /// Bytes of SSTs written by compactions.
    pub compaction_written_bytes: u64,
    /// Bytes of SSTs that compactions moved by an edit alone.
    pub moved_bytes: u64,
    /// Length in bytes of obsolete SSTs, and of obsolete files of separated values, that readers, ranges or snapshots pin.
    pub pinned_bytes: u64,
    /// About how many of [`Stats::sst_entries`] are garbage, which compactions will remove: tombstones and shadowed
    /// entries.
    pub sst_garbage: u64,
    /// Tombstones that scans passed.
    pub tombstones_passed: u64,
    /// Obsolete files removed.
    pub removed_files: u64,
    /// Time that writers waited for a flush, or slept because background work was behind.
    pub stalled: Duration,
    /// Runs that lookups searched without finding the key, because the filter answered maybe or was not in memory.
    pub wasted_probes: u64,
    /// Reads of SSTs that point lookups, and seeks of [`RangeChunks`](crate::RangeChunks), made because blocks were not in
    /// the cache. A read may bring several blocks.
    pub lookup_reads: u64,
    /// Blocks that were read for point lookups and not used, because a newer run held the key
    /// ([`ReadPolicy`](crate::ReadPolicy)) or because a future was dropped.
    pub wasted_reads: u64,
    /// Why writes are refused, if they are.
    pub poisoned: Option<String>,
    /// Whether the open cut off a torn tail of the log, which a crash or a failed write leaves behind. Nothing durable was
    /// in it.
    pub log_was_torn: bool,
    /// Whole batches in the torn tail, which were dropped because bytes before them are missing. A lower bound: a small
    /// batch behind a gap cannot be recognised.
    pub log_dropped_records: u64,
    /// Bytes of the torn tail: in each file of the log, from the first byte that was not recovered to the last that is not
    /// zero.
    pub log_dropped_bytes: u64,
}

/// Estimated size of a range of keys. See [`Partition::approximate_size`](crate::Partition::approximate_size).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SizeEstimate {
    /// Bytes as they are stored; of a file that several partitions share, bytes of keys and values before compression.
    /// Separated values count as they are stored.
    pub bytes: u64,
    /// Entries in SSTs: every version and tombstone counts.
    pub entries: u64,
}

/// Statistics of one partition.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PartitionStats {
    /// Entries in its runs: every version and tombstone counts. Entries in memtables do not.
    pub entries: u64,
    /// Bytes in its runs, with its share of shared flush files. Separated values are not in runs.
    pub bytes: u64,
    /// Bytes of the separated values to which its entries refer. Those of shadowed entries count.
    pub value_bytes: u64,
    /// Runs, sections included.
    pub runs: u64,
    /// Sections: slices of shared flush files.
    pub sections: u64,
    /// Stages in use.
    pub stages: u64,
    /// Runs of which a running compaction has already merged a part.
    pub clipped: u64,
}

impl Counters {
    /// Counts an SST that has separators though a model was wanted.
    pub(crate) fn note_obstacle(&self, obstacle: Obstacle) {
        let counter = match obstacle {
            Obstacle::Ties => &self.index_ties,
            Obstacle::Larger => &self.index_larger,
            Obstacle::OneBlock => &self.index_one_block,
            // Counted by its verdict.
            Obstacle::TimedOut => return,
        };
        add(counter, 1);
    }

    /// Counts a training.
    pub(crate) fn note_training(&self, time: Duration, verdict: Verdict) {
        add(&self.training_ns, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        match verdict {
            Verdict::Used => {}
            Verdict::TimedOut => add(&self.index_timed_out, 1),
            Verdict::TooInexact => add(&self.index_inexact, 1),
        }
    }

    /// Copies the counts into `stats`.
    pub(crate) fn report(&self, stats: &mut Stats) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        stats.log_is_mapped = self.log_is_mapped.load(Ordering::Relaxed);
        stats.flushes = get(&self.flushes);
        stats.flush_bytes = get(&self.flush_bytes);
        stats.compactions = get(&self.compactions);
        stats.partial_compactions = get(&self.partial_compactions);
        stats.range_compactions = get(&self.range_compactions);
        stats.compaction_read_bytes = get(&self.compaction_read_bytes);
        stats.compaction_written_bytes = get(&self.compaction_written_bytes);
        stats.moved_bytes = get(&self.moved_bytes);
        stats.value_copied_bytes = get(&self.value_copied_bytes);
        stats.value_moved_bytes = get(&self.value_moved_bytes);
        stats.value_moves = get(&self.value_moves);
        stats.value_converted_bytes = get(&self.value_converted_bytes);
        stats.values_converted = get(&self.values_converted);
        stats.removed_files = get(&self.removed_files);
        stats.wasted_probes = get(&self.wasted_probes);
        stats.index_ties = get(&self.index_ties);
        stats.index_larger = get(&self.index_larger);
        stats.index_timed_out = get(&self.index_timed_out);
        stats.index_inexact = get(&self.index_inexact);
        stats.index_many_writers = get(&self.index_many_writers);
        stats.trained_while_writing = get(&self.trained_while_writing);
        stats.trained_while_reading = get(&self.trained_while_reading);
        stats.training_time = Duration::from_nanos(get(&self.training_ns));
        stats.training_waits = get(&self.training_waits);
        stats.index_one_block = get(&self.index_one_block);
        stats.stalled = Duration::from_nanos(get(&self.stall_ns));
    }
}
