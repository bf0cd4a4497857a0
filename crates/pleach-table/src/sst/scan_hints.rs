//! Hints for a cursor about the scan that it serves.

use std::sync::Arc;

use pleach_coding::prefix_end;

use super::reader::Sst;
use super::window_read::BackgroundReads;
use crate::sizes::PAGE;

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
    /// How many of them a scan takes as a rule; 0 if unknown. Used where `entries` is unknown.
    pub usual: u64,
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

    /// Bytes of the entries that are wanted.
    pub(super) fn wanted_bytes(&self, sst: &Sst) -> u64 {
        bytes_of(sst, self.entries)
    }

    /// Bytes of the entries that a scan takes as a rule.
    pub(super) fn usual_bytes(&self, sst: &Sst) -> u64 {
        bytes_of(sst, self.usual)
    }
}

/// Bytes of so many entries: on average, an eighth more, and a page because the first entry may be anywhere in its block. 0 of
/// none.
fn bytes_of(sst: &Sst, entries: u64) -> u64 {
    let all = sst.summary().entries.max(1);
    if entries == 0 {
        return 0;
    }
    let bytes = u128::from(sst.data_end()) * u128::from(entries.min(all)) * 9 / 8 / u128::from(all);
    u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(PAGE as u64)
}
