//! Context of an open store: environment, directory, options, counters and status, which all its parts share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pleach_env::{
    Env, Error, JobWaker, LazyReadService, OpenOptions, ReadBuffer, ReadDriver, ReadQueue, ReadService,
    Result, Site,
};
use pleach_table::{BackgroundReads, WindowRead};

use crate::loads::Loads;
use crate::manifest::CURRENT;
use crate::options::Options;
use crate::stats::Counters;
use crate::status::Status;
use crate::values::{ValueCache, ValueRead};
use crate::version::reads::ReadCost;

/// Longest sleep of a throttled compaction or writer before it checks again whether to go on sleeping.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// See the module's text.
pub(crate) struct Context {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) counters: Counters,
    pub(crate) status: Status,
    /// Blocks that are being read for tasks.
    pub(crate) loads: Loads,
    /// Reads what scans will want next.
    pub(crate) read_ahead: LazyReadService<WindowRead>,
    /// Reads separated values for tasks.
    pub(crate) value_reads: LazyReadService<ValueRead>,
    /// By how much separated values exceed their space: a debt ratio, as bits. Relaxed: writers may see it late.
    pub(crate) value_debt: AtomicU64,
    /// Separated values in memory.
    pub(crate) value_cache: Arc<ValueCache>,
    /// Whether the cost of reads of a partition has risen, so that a merge may be due.
    pub(crate) reads_cost_more: AtomicBool,
    /// Chosen at the end of an open.
    pub(crate) read_driver: OnceLock<ReadDriver>,
    /// Wasted probes (a file was searched and did not hold the key) between two reviews of the filters in memory. 0 while all
    /// filters are in memory; `u64::MAX` before the first review.
    pub(crate) filter_review_interval: AtomicU64,
}

impl Context {
    /// Finds the driver that reads many blocks at once.
    ///
    /// # Errors
    /// When the one asked for does not work.
    pub(crate) fn choose_read_driver(&self) -> Result<()> {
        let path = self.dir.join(CURRENT);
        let wanted = self.options.read_driver;
        let opened = OpenOptions { direct: self.options.direct_reads, ..OpenOptions::default() };
        let driver = ReadDriver::choose(&*self.env, wanted, &path, opened).map_err(|e| {
            let driver = wanted.map_or_else(|| "any driver".to_owned(), |wanted| format!("`{wanted}`"));
            let action =
                format!("read by {driver}; without `Options::read_driver` the open chooses one that can");
            Error::io(&action, &path, e)
        })?;
        self.read_driver.get_or_init(|| driver);
        Ok(())
    }

    /// The driver that reads many blocks at once.
    pub(crate) fn read_driver(&self) -> ReadDriver {
        self.read_driver.get().copied().unwrap_or(ReadDriver::Blocking)
    }

    /// A queue of reads of the calling thread.
    pub(crate) fn read_queue<B: ReadBuffer>(&self, depth: u32) -> Result<ReadQueue<'_, B>> {
        ReadQueue::new(&*self.env, self.read_driver(), depth)
            // This thread gets no ring, for want of memory or descriptors, and then perhaps no other thread.
            .or_else(|_| ReadQueue::new(&*self.env, ReadDriver::Threads, depth))
            .or_else(|_| ReadQueue::new(&*self.env, ReadDriver::Blocking, depth))
            .map_err(|e| Error::io("read blocks of", &self.dir, e))
    }

    /// Waits for all reads of the store's services, and begins no more.
    pub(crate) fn close_reads(&self) {
        self.loads.close();
        self.read_ahead.close();
        self.value_reads.close();
    }

    /// Whether less than four times `bytes` are free on the disk.
    pub(crate) fn is_space_short(&self, bytes: u64) -> bool {
        const WANTED: u64 = 4;
        self.env.available_space(&self.dir).is_ok_and(|free| free < bytes.saturating_mul(WANTED))
    }

    /// Syncs the directory. Call it before a durable record names new files.
    ///
    /// Without a free descriptor the sync was not tried, so the store is not poisoned.
    pub(crate) fn sync_dir(&self, site: Site) -> Result<()> {
        self.env.sync_dir(&self.dir, site).map_err(|e| {
            let error = Error::io("sync the directory", &self.dir, e);
            if error.is_out_of_files() { error } else { self.status.set_poison(error) }
        })
    }

    /// Sleeps for `left`, or until `is_over`; returns whether it slept for all of `left`.
    pub(crate) fn sleep_unless(&self, mut left: Duration, is_over: impl Fn() -> bool) -> bool {
        while !left.is_zero() {
            if is_over() {
                return false;
            }
            let step = left.min(SLEEP_MAX);
            self.env.sleep(step);
            left -= step;
        }
        true
    }

    /// Has a worker look for merges that reads have made due, if the cost of a sub-tree has risen noticeably.
    pub(crate) fn look_at_reads(&self, cost: &ReadCost) {
        if cost.take_news()
            && let Some(wakers) = self.status.wakers()
        {
            self.reads_cost_more.store(true, Ordering::Release);
            wakers.compaction.iter().for_each(JobWaker::wake);
        }
    }

    /// Counts a wasted probe.
    pub(crate) fn note_wasted_probe(&self) {
        let before = self.counters.wasted_probes.fetch_add(1, Ordering::Relaxed);
        let interval = self.filter_review_interval.load(Ordering::Relaxed);
        if interval > 0
            && before.is_multiple_of(interval)
            && let Some(wakers) = self.status.wakers()
        {
            wakers.cleaner.wake();
        }
    }
}

impl BackgroundReads for Context {
    fn service(&self) -> Option<Arc<ReadService<WindowRead>>> {
        self.read_ahead.get(self.read_driver())
    }
}
