//! The structures inside a store that its statistics show.

use pleach::Db;

use super::world::NAMES;

/// Which of the structures that a rig must meet the store has.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a list of things to have seen")]
pub(crate) struct Shape {
    pub(crate) sections: bool,
    /// More SSTs than runs.
    pub(crate) long_runs: bool,
    /// Several stages in one partition.
    pub(crate) stages: bool,
    /// A compaction in progress.
    pub(crate) compactions: bool,
    /// A compaction in progress that has already raised its clip.
    pub(crate) clips: bool,
}

impl Shape {
    pub(crate) fn of(db: &Db) -> Self {
        let stats = db.stats();
        let parts = NAMES.iter().filter_map(|name| db.find_partition(name)?.stats().ok());
        let parts: Vec<_> = parts.collect();
        Self {
            sections: parts.iter().any(|p| p.sections > 0),
            long_runs: parts.iter().any(|p| p.runs > p.sections) && stats.ssts > stats.runs,
            stages: parts.iter().any(|p| p.stages > 1),
            compactions: stats.compactions_running > 0,
            clips: parts.iter().any(|p| p.clipped > 0),
        }
    }

    /// The union of both.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            sections: self.sections | other.sections,
            long_runs: self.long_runs | other.long_runs,
            stages: self.stages | other.stages,
            compactions: self.compactions | other.compactions,
            clips: self.clips | other.clips,
        }
    }

    /// Whether nothing is missing.
    pub(crate) fn is_complete(self) -> bool {
        self.sections && self.long_runs && self.stages && self.compactions && self.clips
    }
}
