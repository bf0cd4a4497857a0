//! Shape of the files: how a user chooses it and when values are put in order, the numbers of its stages, and the policy of the
//! pickers.
//!
//! Stages are numbered by age: sections and late flushes, then the stages of runs, and the bottom run last.

use crate::limits;

/// How the files of a partition are arranged. It balances the cost of writes against that of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// A split forest: each stage holds up to [`Options::runs_per_stage`](crate::Options::runs_per_stage) runs, which are then
    /// merged into one run of the next stage. A key that is overwritten again and again may take the space of as many versions
    /// as there are runs.
    Forest,
    /// A split forest above one large run. Writes least, because its stages hold more runs, most of all the first stage while
    /// data is being written. All runs are merged into one once reads have spent as much time on further runs as the merge
    /// takes, or once overwritten and deleted data takes more than a bounded share of the space.
    #[default]
    ForestOverBottom,
    /// One run a stage, each ten times as large as the one above, merged file by file. Reads least, writes most.
    Leveled,
}

/// When separated values are copied into the order of their keys without [`Db::convert`](crate::Db::convert).
///
/// Scans read values in order many at a time. Values that were written in random order are read one by one, each at another
/// place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conversion {
    /// Never.
    Never,
    /// Once scans of a partition have lost as much time to values in disorder as it takes to copy them. So scans and copies
    /// together take at most about twice the time of the better choice.
    ///
    /// After `LearnedKV` (section 4.6.1), which moves pointers alone if there are few scans.
    #[default]
    ForScans,
    /// At each merge of everything, and instead of moving values of files with much garbage: everything is copied, as
    /// `LearnedKV` does at each garbage collection (section 4.2). Writes most. The files of values exceed
    /// [`Options::space_target`](crate::Options::space_target) meanwhile, by up to the length of all live values.
    Always,
}

/// The intended shape of a store, and the numbers by which pickers judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) shape: Shape,
    /// Runs a stage holds before they are merged.
    pub(crate) k: usize,
    /// Whether nothing is being written, so that there is time for merges that make reads cheaper.
    pub(crate) is_quiet: bool,
    /// Bytes of a memtable, the unit of sizes.
    pub(crate) memtable_bytes: u64,
    /// Seconds after which a tombstone is merged with the entries that it shadows.
    pub(crate) tombstone_age_max: u64,
    pub(crate) conversion: Conversion,
    /// Space of separated values, as a multiple of what is live: above 1.
    pub(crate) space_target: f64,
}

/// Stage of sections, and of flushed runs that are newer than sections.
pub(crate) const STAGE_SECTIONS: u8 = 0;

/// First stage of runs.
pub(crate) const STAGE_FIRST: u8 = 1;

/// The stage of the bottom run.
pub(crate) const STAGE_BOTTOM: u8 = limits::STAGE_MAX;
