//! Shape of the files: how a user chooses it, and the numbers of its stages.
//!
//! Stages are numbered by age: sections and late flushes, then the stages of runs, and the bottom run last.

use crate::limits;

/// How a partition's files are arranged: what is written and read to keep them in order. One end writes least, the other
/// reads least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// A split forest: each stage holds up to [`Options::runs_per_stage`](crate::Options::runs_per_stage) runs, which are then
    /// merged into one run of the next stage. A key that is overwritten again and again may take the space of as many versions
    /// as there are runs.
    Forest,
    /// A split forest above one large run. Writes least, for its stages take more runs, the first of them most while data
    /// is being written; once reads have spent as much time on further runs as a merge takes, all become one. The space of
    /// overwritten and deleted data is bounded.
    #[default]
    ForestOverBottom,
    /// One run a stage, each ten times as large as the one above, merged part by part. Reads least, writes most.
    Leveled,
}

/// The intended shape of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) shape: Shape,
    /// Runs a stage holds before they are merged.
    pub(crate) k: usize,
    /// Whether nothing is being written, so that there is time for what makes reads cheaper.
    pub(crate) is_quiet: bool,
    /// Bytes of a memtable, by which sizes are judged.
    pub(crate) memtable_bytes: u64,
    /// Seconds after which a tombstone is to be merged with what it hides.
    pub(crate) tombstone_age_max: u64,
}

/// Stage of sections, and of flushed runs that are newer than sections.
pub(crate) const STAGE_SECTIONS: u8 = 0;

/// First stage of runs.
pub(crate) const STAGE_FIRST: u8 = 1;

/// The stage of the bottom run.
pub(crate) const STAGE_BOTTOM: u8 = limits::STAGE_MAX;
