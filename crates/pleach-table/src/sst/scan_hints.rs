//! Hints for a cursor about the scan that it serves.

use std::sync::Arc;

use pleach_coding::prefix_end;

use super::reader::Sst;
use super::window_read::BackgroundReads;

/// Bytes of a prefix: a partition's number.
const PREFIX_LEN: usize = 4;

/// Hints about a scan. They change no entry.
#[derive(Clone)]
pub struct ScanHints {
    /// Who reads ahead.
    pub reads: Arc<dyn BackgroundReads>,
    /// Whether the blocks of a long scan enter the cache too.
    pub fills_cache: bool,
    /// Where the walk ends: the first key at which or behind which no entry is wanted, without the cursor's prefix.
    pub bound: Option<Arc<[u8]>>,
}

/// Hints about one cursor of a scan.
#[derive(Clone)]
pub struct CursorHints {
    /// Hints about the scan.
    pub scan: Arc<ScanHints>,
    /// The bytes with which all stored keys begin that the cursor will walk over.
    pub prefix: Option<[u8; PREFIX_LEN]>,
    /// How many of the cursor's entries are wanted, about; 0 if unknown.
    pub entries: u64,
}

impl CursorHints {
    /// The last block that a walk may reach.
    pub(super) fn limit(&self, sst: &Sst, forward: bool) -> Option<u32> {
        let bound = self.scan.bound.as_deref();
        let Some(prefix) = self.prefix else { return bound.map(|bound| sst.block_for(bound)) };
        let stored = match (bound, forward) {
            (None, true) => prefix_end(&prefix)?,
            (bound, _) => [&prefix, bound.unwrap_or_default()].concat(),
        };
        Some(sst.block_for(&stored))
    }

    /// Bytes of the entries that are wanted, on average and a quarter more.
    pub(super) fn wanted_bytes(&self, sst: &Sst) -> u64 {
        let data = sst.data_end();
        let entries = sst.summary().entries.max(1);
        let wanted = self.entries.min(entries);
        (u128::from(data) * u128::from(wanted) * 5 / 4 / u128::from(entries)).try_into().unwrap_or(u64::MAX)
    }
}
