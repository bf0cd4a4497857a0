//! Hints: what a cursor knows of the scan that it serves.

use std::sync::Arc;

use super::reader::Sst;
use super::window::BackgroundReads;

/// What is known of a scan. None of it changes an entry.
#[derive(Clone)]
pub struct ScanHints {
    /// Who reads ahead.
    pub reads: Arc<dyn BackgroundReads>,
    /// Whether the blocks of a long scan enter the cache too.
    pub fills_cache: bool,
    /// Where the walk ends: the first key, as the SST stores it, at which or behind which no entry is wanted.
    pub bound: Option<Arc<[u8]>>,
}

impl ScanHints {
    /// The last block that a walk may reach.
    pub(super) fn limit(&self, sst: &Sst) -> Option<u32> {
        self.bound.as_deref().map(|bound| sst.block_for(bound))
    }
}

/// Hints, and how many entries of this cursor are wanted; 0 if unknown.
#[derive(Clone)]
pub(super) struct CursorHints {
    pub(super) scan: Arc<ScanHints>,
    pub(super) entries: u64,
}

impl CursorHints {
    /// Bytes of the entries that are wanted, on average and a quarter more.
    pub(super) fn wanted_bytes(&self, sst: &Sst) -> u64 {
        let data = sst.data_end();
        let entries = sst.summary().entries.max(1);
        let wanted = self.entries.min(entries);
        (u128::from(data) * u128::from(wanted) * 5 / 4 / u128::from(entries)).try_into().unwrap_or(u64::MAX)
    }
}
