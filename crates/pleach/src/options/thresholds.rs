//! Thresholds: sizes that users need not set and tests lower, and the lengths from which values are stored differently.

use std::time::Duration;

/// Sizes above which a store takes paths that small stores never reach. Tests lower them.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// Values of this length or more get a memory region, a block and log calls of their own. The cost of mapping a region
    /// is small against that of copying so many bytes.
    pub large_value_len: usize,
    /// A manifest longer than this, and than `manifest_growth` times its first edit, is replaced by a new one.
    pub manifest_len: u64,
    /// See `manifest_len`.
    pub manifest_growth: u64,
    /// Most bytes of filters in memory, however much memory there is.
    pub filter_bytes: u64,
    /// Wasted probes between two reviews of the filters in memory, while some filter is not there: at least the first
    /// number, and the second for each file.
    pub filter_review_interval: [u64; 2],
    /// Where models are wanted, one is taken even if it is larger than separators. So SSTs of few blocks have one.
    pub larger_models: bool,
    /// See [`LearnedIndex::Adaptive`](crate::LearnedIndex::Adaptive): from so many writing threads on, flushes do not
    /// train.
    pub training_writers: usize,
    /// A model that is trained while reading must be less than so many blocks from the boundaries.
    pub training_error: u32,
    /// A model whose training took so long is not used.
    pub training_time: Duration,
    /// In place of [`Options::space_target`](super::Options::space_target), with lower bound 1: values are moved wherever that
    /// frees space.
    pub space_target: Option<f64>,
    /// A conversion leaves values that are at most so many bytes apart: a scan reads both at once.
    pub ordered_gap: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            large_value_len: LARGE_VALUE_LEN,
            manifest_len: 1 << 20,
            manifest_growth: 8,
            filter_bytes: u64::MAX,
            filter_review_interval: [4096, 64],
            larger_models: false,
            training_writers: 8,
            training_error: 6,
            training_time: Duration::from_secs(1),
            space_target: None,
            ordered_gap: 16 << 10,
        }
    }
}

/// [`Thresholds::large_value_len`] of a store. The memtable has a chunk for each value (asserted in `operations`).
pub(crate) const LARGE_VALUE_LEN: usize = 4 << 20;

/// Lengths from which on values are treated in other ways.
#[derive(Clone, Copy)]
pub(crate) struct ValueSizes {
    /// From this length on a value gets a memory region, a block and log calls of its own.
    pub(crate) large: usize,
    /// From this length on a value is separated.
    pub(crate) separated: usize,
    /// Whether separated values are packed, but for large ones.
    pub(crate) packed: bool,
}

impl ValueSizes {
    /// All values are small.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) const ALL_SMALL: Self = Self { large: usize::MAX, separated: usize::MAX, packed: false };

    /// Whether a separated value of this length may be packed. A large one is not: as in SSTs, it is written from memory that
    /// it has alone, and the system may not have as much again.
    pub(crate) fn packs(self, len: usize) -> bool {
        self.packed && len < self.large
    }
}
