//! The filters in memory: all of them while there is room, else those that spare the most searches.
//!
//! Which these are is decided in [`crate::filters`]; here it is carried out, by the cleaner after each flush and
//! compaction and now and then while lookups make wasted probes. Versions hold their files' filters, so a change shows in a
//! new version, and readers, who pin theirs, take no lock.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleach_env::{Env, Error, JobStep, Result, failpoint};
use pleach_table::{FrameCache, Sst};

use super::Upkeep;
use crate::filters;
use crate::options::Options;
use crate::version::{SstFile, Version};
use crate::version_set::sst_path;

/// Bytes of filters that are read before the cleaner looks for other work.
const LOADED_AT_ONCE: u64 = 8 << 20;

/// Wasted probes after which the choice is reviewed, in a small store and for each file of a large one. Only
/// where some filter is not in memory.
const LOOKED_AT_AFTER: u64 = 4096;
const LOOKED_AT_AFTER_PER_FILE: u64 = 64;

/// Opens all SSTs of a version, each with one read that brings its index and its filter, and gives the version with the
/// filters that there is memory for, and the cache.
pub(crate) fn open_ssts(
    env: &Arc<dyn Env>,
    dir: &Path,
    version: &Version,
    options: &Options,
) -> Result<(Version, Arc<FrameCache>)> {
    let files = version.live_files();
    let demands: Vec<_> = files.iter().map(|file| file.filter_demand()).collect();
    let indexes = index_bytes(&files);
    let cache_bytes =
        options.cache_bytes(demands.iter().map(|demand| demand.bytes).fold(indexes, u64::saturating_add));
    let cache = FrameCache::try_new(cache_bytes).ok_or_else(|| no_memory(dir, cache_bytes))?;
    let chosen = filters::choose(budget(options, cache_bytes as u64, indexes), &demands);
    for (file, keeps_filter) in files.iter().zip(chosen) {
        let path = sst_path(dir, file.id);
        let metadata = env.metadata(&path).map_err(|e| Error::io("look for", &path, e))?;
        if metadata.is_none() {
            return Err(Error::corruption(&path, 0, "the manifest names this SST, but it is missing"));
        }
        if file.summary.value_pointers > 0 {
            return Err(Error::unsupported(
                &path,
                "the SST points to separated values, which this build cannot read",
            ));
        }
        let (summary, cache) = (Some(&file.summary), Arc::clone(&cache));
        let sst = Sst::open(env, &path, file.id, summary, cache, options.direct_reads)?;
        file.opened(sst, keeps_filter);
    }
    Ok((version.with_filters(), cache))
}

fn no_memory(dir: &Path, cache_bytes: usize) -> Error {
    let action =
        format!("reserve {cache_bytes} bytes of memory for cached blocks (ulimit -v, or a smaller memory)");
    Error::io(&action, dir, io::ErrorKind::OutOfMemory.into())
}

fn is_short_for_tests() -> bool {
    failpoint::skipped("tune.short_filters")
}

fn index_bytes(files: &[Arc<SstFile>]) -> u64 {
    files.iter().map(|file| file.index_bytes()).fold(0, u64::saturating_add)
}

/// Bytes of memory for filters.
fn budget(options: &Options, cache_bytes: u64, index_bytes: u64) -> u64 {
    if is_short_for_tests() {
        return 1 << 10;
    }
    options.filter_bytes_max(cache_bytes, index_bytes)
}

impl Upkeep {
    /// Brings the filters into memory that belong there, and lets go of the others.
    pub(super) fn tend_filters(&self) -> JobStep {
        let (filter_bytes, all_index_bytes) = self.version_set.lock().files.table_bytes();
        let cache_bytes = self.cache.stats().capacity;
        // Where none was missing and all fit, there is nothing to choose.
        if self.ctx.filter_review_interval.load(Ordering::Relaxed) == 0
            && filter_bytes <= budget(&self.ctx.options, cache_bytes, all_index_bytes)
        {
            return JobStep::Idle;
        }
        let files = self.version_set.state.load().version.live_files();
        let demands: Vec<_> = files.iter().map(|file| file.filter_demand()).collect();
        let budget = budget(&self.ctx.options, cache_bytes, index_bytes(&files));
        let chosen = filters::choose(budget, &demands);
        let plan = || {
            files.iter().zip(&demands).zip(&chosen).map(|((file, demand), &chosen)| (file, demand, chosen))
        };
        if filters::is_due_to_fade(&demands) {
            for file in &files {
                file.age_absences();
            }
        }
        let (least, per_file) =
            if is_short_for_tests() { (16, 0) } else { (LOOKED_AT_AFTER, LOOKED_AT_AFTER_PER_FILE) };
        let look_after = least.max(per_file * files.len() as u64);
        let is_short = plan().any(|(_, demand, chosen)| !demand.is_kept || !chosen);
        self.ctx.filter_review_interval.store(if is_short { look_after } else { 0 }, Ordering::Relaxed);
        let mut is_changed = false;
        for (file, ..) in plan().filter(|(_, demand, chosen)| demand.is_kept && !chosen) {
            file.drop_filter();
            is_changed = true;
        }
        if is_changed {
            self.show_filters();
        }
        let mut loaded = 0;
        for (file, demand, _) in plan().filter(|(_, demand, chosen)| !demand.is_kept && *chosen) {
            if loaded >= LOADED_AT_ONCE {
                break;
            }
            file.load_filter();
            loaded += demand.bytes;
        }
        if loaded == 0 {
            return JobStep::Idle;
        }
        self.show_filters();
        JobStep::Again
    }

    /// Lets readers see which filters there are.
    fn show_filters(&self) {
        let mut versions = self.version_set.lock();
        let next = Arc::new(versions.version.with_filters());
        versions.version = Arc::clone(&next);
        self.version_set.state.swap(|state| state.with_version(next));
    }
}
