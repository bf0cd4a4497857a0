//! Context of an open store: what all of its parts use and none of them owns.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pleach_env::{Env, Error, Result, Site};

use crate::options::Options;
use crate::stats::Counters;
use crate::status::Status;

/// Longest sleep of a compaction before it looks whether there is a hurry, and of a writer before it looks whether it is
/// still to be slowed down.
const NAP_MAX: Duration = Duration::from_millis(20);

/// Where a store is, how it was opened, and how it fares.
pub(crate) struct Context {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) counters: Counters,
    pub(crate) status: Status,
    /// Searches in vain after which the choice of filters in memory is looked at again; 0 while all are. The highest number
    /// before the first look.
    pub(crate) filters_looked_at_after: AtomicU64,
}

impl Context {
    /// Whether the disk has room for little more than `bytes`, of which a few times as many are wanted.
    pub(crate) fn is_space_short(&self, bytes: u64) -> bool {
        const WANTED: u64 = 4;
        self.env.available_space(&self.dir).is_ok_and(|free| free < bytes.saturating_mul(WANTED))
    }

    /// Syncs the directory before something durable names new files in it.
    ///
    /// Where no descriptor was left to open it, nothing was synced and nothing is lost.
    pub(crate) fn sync_dir(&self, site: Site) -> Result<()> {
        self.env.sync_dir(&self.dir, site).map_err(|e| {
            let error = Error::io("sync the directory", &self.dir, e);
            if error.is_out_of_files() { error } else { self.status.set_poison(error) }
        })
    }

    /// Sleeps until it is over, or for `left`; `false` when it was over before.
    pub(crate) fn nap(&self, mut left: Duration, is_over: impl Fn() -> bool) -> bool {
        while !left.is_zero() {
            if is_over() {
                return false;
            }
            let nap = left.min(NAP_MAX);
            self.env.sleep(nap);
            left -= nap;
        }
        true
    }

    /// Counts a search in vain.
    pub(crate) fn note_wasted_probe(&self) {
        let before = self.counters.wasted_probes.fetch_add(1, Ordering::Relaxed);
        let look_after = self.filters_looked_at_after.load(Ordering::Relaxed);
        if look_after > 0
            && before.is_multiple_of(look_after)
            && let Some(wakers) = self.status.wakers()
        {
            wakers.cleaner.wake();
        }
    }
}
