//! RocksDB's options: what a careful user sets for a given memory, and what differs among the four configurations.
//! Each choice and its reason stands in docs/benchmarks.md.
//!
//! Settings by name: `memtable_bytes`, `level_multiplier`, `filter_bits`, `block_bytes`, `cache` (`hyper` or `lru`),
//! `metadata` (`pinned` in the cache, `cached` without pinning, or `heap` outside it), `hash_index`, `min_blob_bytes`,
//! `blob_file_bytes`, `blob_gc_age_cutoff`, `blob_gc_force_threshold`, `blob_space_target` (sets the two before it), and
//! `options`, which takes any of RocksDB's own in its own syntax: `a=1;b=2;block_based_table_factory={c=3}`.

use std::ffi::c_int;

use pleach_bench::{EngineConfig, Result};
use rocksdb::{
    BlockBasedOptions, BlockBasedTablePinningTier, Cache, DBCompactionStyle, DBCompressionType,
    DataBlockIndexType, Options, UniversalCompactOptions, WriteBufferManager,
};

use super::stats::Caches;

const MIB: u64 = 1 << 20;
const FILTER_BITS_PER_KEY: f64 = 10.0;
/// Memtables of one column family: one that is written, others on their way to disk.
const MEMTABLES_MAX: c_int = 4;
/// Files in L0, or runs with universal compaction, that start a compaction.
const L0_TRIGGER: u64 = 4;
const UNIVERSAL_TRIGGER: c_int = 8;
/// Deleted or overwritten entries of a memtable that a scan may pass over before the memtable is flushed.
const HIDDEN_IN_MEMTABLE_MAX: usize = 2000;
/// An SST in which half of so many neighbouring entries are tombstones is compacted at once.
const TOMBSTONE_WINDOW: usize = 1024;

/// Space of values over that of live ones, where the collector is bound by it: as LearnedKV over-provisions.
const SPACE_TARGET: f64 = 1.3;
/// What RocksDB has by default and its authors advise to begin with: the oldest quarter of the blob files is collected, and
/// nothing is forced.
const BLOB_AGE_CUTOFF: f64 = 0.25;
const BLOB_FORCE_THRESHOLD: f64 = 1.0;

/// Which of the configurations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Levelled,
    Universal,
    Blob,
    BlobWithinSpace,
}

/// Options ready for opening, and what they share.
pub(super) struct Prepared {
    pub(super) options: Options,
    pub(super) caches: Caches,
}

/// Translates the common configuration into RocksDB's options.
pub(super) fn prepare(mut config: EngineConfig, style: Style) -> Result<Prepared> {
    // Four memtables are half of the memory at most.
    let memtable_bytes = config.take_tuning("memtable_bytes")?;
    let memtable_bytes = memtable_bytes.unwrap_or((config.memory_bytes / 8).clamp(MIB, 128 * MIB));
    let memory_bytes = usize::try_from(config.memory_bytes)?;
    let cache = match config.take_tuning::<String>("cache")?.as_deref() {
        None | Some("hyper") => Cache::new_hyper_clock_cache(memory_bytes, 0),
        Some("lru") => Cache::new_lru_cache(memory_bytes),
        Some(other) => return Err(format!("there is no cache {other}").into()),
    };
    // Memtables take their memory out of the cache, so that the cache's size bounds both.
    let write_buffers =
        WriteBufferManager::new_write_buffer_manager_with_cache(memory_bytes / 2, false, cache.clone());

    let mut options = Options::default();
    set_general(&mut options, &config, memtable_bytes)?;
    options.set_write_buffer_manager(&write_buffers);
    options.set_block_based_table_factory(&table_options(&mut config, &cache)?);
    if let Some(multiplier) = config.take_tuning("level_multiplier")? {
        options.set_max_bytes_for_level_multiplier(multiplier);
    }
    match style {
        Style::Levelled => {}
        Style::Universal => set_universal(&mut options),
        Style::Blob | Style::BlobWithinSpace => {
            let space_target = (style == Style::BlobWithinSpace).then_some(SPACE_TARGET);
            set_blob(&mut options, &mut config, &cache, memtable_bytes, space_target)?;
        }
    }
    // The crate has no call for it.
    options = options
        .get_options_from_string(format!("memtable_op_scan_flush_trigger={HIDDEN_IN_MEMTABLE_MAX}"))?;
    if let Some(text) = config.take_tuning::<String>("options")? {
        options = options.get_options_from_string(text)?;
    }
    config.no_tuning_left()?;
    Ok(Prepared { options, caches: Caches { cache, write_buffers } })
}

fn set_general(options: &mut Options, config: &EngineConfig, memtable_bytes: u64) -> Result<()> {
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_write_buffer_size(usize::try_from(memtable_bytes)?);
    options.set_max_write_buffer_number(MEMTABLES_MAX);
    options.set_max_bytes_for_level_base(memtable_bytes * L0_TRIGGER);
    options.set_target_file_size_base(memtable_bytes.clamp(16 * MIB, 64 * MIB));
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_max_background_jobs(c_int::try_from(config.background_threads.max(2))?);
    options.set_max_subcompactions(u32::try_from(config.background_threads.max(1))?);
    options.set_bytes_per_sync(MIB);
    options.set_compaction_readahead_size(2 << 20);
    options.set_use_direct_reads(config.direct_reads);
    options.set_use_direct_io_for_flush_and_compaction(config.direct_reads);
    options.set_compression_type(compression(config));
    options.add_compact_on_deletion_collector_factory(TOMBSTONE_WINDOW, TOMBSTONE_WINDOW / 2, 0.0);
    Ok(())
}

fn compression(config: &EngineConfig) -> DBCompressionType {
    if config.compression { DBCompressionType::Lz4 } else { DBCompressionType::None }
}

fn table_options(config: &mut EngineConfig, cache: &Cache) -> Result<BlockBasedOptions> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(config.take_tuning("block_bytes")?.unwrap_or(4096));
    table.set_format_version(7);
    table.set_bloom_filter(config.take_tuning("filter_bits")?.unwrap_or(FILTER_BITS_PER_KEY), false);
    match config.take_tuning::<String>("metadata")?.as_deref() {
        None | Some("pinned") => {
            table.set_cache_index_and_filter_blocks(true);
            table.set_unpartitioned_pinning_tier(BlockBasedTablePinningTier::All);
        }
        Some("cached") => {
            table.set_cache_index_and_filter_blocks(true);
            table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        }
        Some("heap") => table.set_cache_index_and_filter_blocks(false),
        Some(other) => return Err(format!("there is no place {other} for indexes and filters").into()),
    }
    if config.take_tuning("hash_index")?.unwrap_or(false) {
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    }
    Ok(table)
}

fn set_universal(options: &mut Options) {
    options.set_compaction_style(DBCompactionStyle::Universal);
    options.set_level_zero_file_num_compaction_trigger(UNIVERSAL_TRIGGER);
    // A place for each sorted run, so that runs are split into files and compactions into threads.
    options.set_num_levels(40);
    let mut universal = UniversalCompactOptions::default();
    universal.set_max_merge_width(20);
    options.set_universal_compaction_options(&universal);
}

fn set_blob(
    options: &mut Options,
    config: &mut EngineConfig,
    cache: &Cache,
    memtable_bytes: u64,
    space_target: Option<f64>,
) -> Result<()> {
    options.set_enable_blob_files(true);
    options.set_min_blob_size(config.take_tuning("min_blob_bytes")?.unwrap_or(512));
    options.set_blob_compression_type(compression(config));
    options.set_blob_cache(cache);
    options.set_enable_blob_gc(true);
    options.set_blob_compaction_readahead_size(2 * MIB);
    // What RocksDB's authors advise: a blob file for each memtable, and SSTs smaller in proportion, for they hold
    // little more than keys.
    options.set_blob_file_size(config.take_tuning("blob_file_bytes")?.unwrap_or(memtable_bytes));
    let sst_bytes = (memtable_bytes / 8).max(2 * MIB);
    options.set_target_file_size_base(sst_bytes);
    options.set_max_bytes_for_level_base(sst_bytes * 8);
    set_blob_collector(options, config, space_target)
}

/// Which blob files are collected, and when. A space target of `s` times the live bytes is a share of garbage of `1 - 1/s`: all
/// blob files are eligible, and above that share RocksDB compacts whatever refers to the oldest ones.
fn set_blob_collector(
    options: &mut Options,
    config: &mut EngineConfig,
    space_target: Option<f64>,
) -> Result<()> {
    let space_target: Option<f64> = config.take_tuning("blob_space_target")?.or(space_target);
    let (cutoff, threshold) = match space_target {
        Some(target) if target > 1.0 => (1.0, 1.0 - 1.0 / target),
        Some(target) => return Err(format!("blob_space_target={target} must be above 1").into()),
        None => (BLOB_AGE_CUTOFF, BLOB_FORCE_THRESHOLD),
    };
    options.set_blob_gc_age_cutoff(config.take_tuning("blob_gc_age_cutoff")?.unwrap_or(cutoff));
    options.set_blob_gc_force_threshold(config.take_tuning("blob_gc_force_threshold")?.unwrap_or(threshold));
    Ok(())
}
