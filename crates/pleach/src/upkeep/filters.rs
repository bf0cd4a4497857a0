//! The filters in memory: loads and evicts what [`crate::filter_policy`] decides. The cache has what they leave.
//!
//! The cleaner reviews the filters after each flush and compaction, and after a number of wasted probes. A version holds the
//! filters of its files, so a change makes a new version, and readers, who pin theirs, take no lock.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_env::{Env, Error, JobStep, Result};
use pleach_table::{Encoders, FrameCache, Sst};

use super::Upkeep;
use crate::file_names::sst_path;
use crate::filter_policy;
use crate::options::Options;
use crate::version::{SstFile, Version};

/// Bytes of filters that one step of the cleaner loads.
const LOADED_AT_ONCE: u64 = 8 << 20;

/// Opens all SSTs of a version: one read each, for index and filter. Returns the version with the filters that fit in memory,
/// and the cache.
pub(crate) fn open_ssts(
    env: &Arc<dyn Env>,
    dir: &Path,
    version: &Version,
    options: &Options,
    encoders: &Encoders,
) -> Result<(Version, Arc<FrameCache>)> {
    let files = version.live_files();
    let uses: Vec<_> = files.iter().map(|file| file.filter_use()).collect();
    let filter_bytes = uses.iter().map(|filter_use| filter_use.bytes).fold(0, u64::saturating_add);
    let indexes = index_bytes(&files);
    let cache_bytes = options.cache_bytes(indexes.saturating_add(filter_bytes));
    let cache_bytes_max = options.cache_bytes(0) + options.memtables_share();
    let cache = FrameCache::try_new(cache_bytes_max).ok_or_else(|| no_memory(dir, cache_bytes_max))?;
    cache.set_capacity(cache_bytes);
    let chosen = filter_policy::choose(options.filter_bytes_max(cache_bytes as u64, indexes), &uses);
    for (file, keeps_filter) in files.iter().zip(chosen) {
        let path = sst_path(dir, file.id);
        let metadata = env.metadata(&path).map_err(|e| Error::io("look for the file", &path, e))?;
        if metadata.is_none() {
            return Err(Error::corruption(&path, 0, "the manifest names this SST, but it is missing"));
        }
        let (summary, cache) = (Some(&file.summary), Arc::clone(&cache));
        let mut sst = Sst::open(env, &path, file.id, summary, cache, options.direct_reads)?;
        sst.share_encoder(encoders);
        file.opened(sst, keeps_filter);
    }
    cache.set_capacity(options.cache_bytes(index_bytes(&files).saturating_add(filter_bytes)));
    Ok((version.refreshed(), cache))
}

fn no_memory(dir: &Path, cache_bytes: usize) -> Error {
    let action =
        format!("reserve {cache_bytes} bytes of memory for cached blocks (ulimit -v, or a smaller memory)");
    Error::io(&action, dir, io::ErrorKind::OutOfMemory.into())
}

fn index_bytes(files: &[Arc<SstFile>]) -> u64 {
    files.iter().map(|file| file.index_bytes()).fold(0, u64::saturating_add)
}

impl Upkeep {
    /// Gives the cache what indexes and filters leave, and, if the store `is_idle`, what memtables do not hold. Evicts the
    /// filters that the policy does not choose, and loads some of those that it does.
    pub(super) fn review_filters(&self, is_idle: bool) -> JobStep {
        let (filter_bytes, all_index_bytes) = self.version_set.lock().files.table_bytes();
        let cache_bytes = self.ctx.options.cache_bytes(filter_bytes.saturating_add(all_index_bytes));
        self.writes.shares.review(cache_bytes, is_idle);
        let cache_bytes = cache_bytes as u64;
        // All are in memory and fit: there is nothing to choose.
        if self.ctx.filter_review_interval.load(Ordering::Relaxed) == 0
            && filter_bytes <= self.ctx.options.filter_bytes_max(cache_bytes, all_index_bytes)
        {
            return JobStep::Idle;
        }
        let files = self.version_set.state.load().version.live_files();
        let uses: Vec<_> = files.iter().map(|file| file.filter_use()).collect();
        let budget = self.ctx.options.filter_bytes_max(cache_bytes, index_bytes(&files));
        let chosen = filter_policy::choose(budget, &uses);
        let select = |is_kept: bool, is_chosen: bool| {
            let files = files.iter().zip(&uses).zip(&chosen);
            files.filter(move |((_, filter), chosen)| filter.is_kept == is_kept && **chosen == is_chosen)
        };
        if filter_policy::should_decay(&uses) {
            for file in &files {
                file.decay_negative_lookups();
            }
        }
        let [least, per_file] = self.ctx.options.thresholds.filter_review_interval;
        let interval = least.max(per_file * files.len() as u64);
        let is_short = select(true, true).count() < files.len();
        self.ctx.filter_review_interval.store(if is_short { interval } else { 0 }, Ordering::Relaxed);
        for ((file, _), _) in select(true, false) {
            file.evict_filter();
        }
        if select(true, false).next().is_some() {
            self.version_set.show_files();
        }
        let mut loaded = 0;
        for ((file, filter), _) in select(false, true) {
            if loaded >= LOADED_AT_ONCE {
                break;
            }
            file.load_filter();
            loaded += filter.bytes;
        }
        if loaded == 0 {
            return JobStep::Idle;
        }
        self.version_set.show_files();
        JobStep::Again
    }
}
