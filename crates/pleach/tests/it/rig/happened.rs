//! Counts of events in a run of a rig: a rig that never meets a group of batches proves nothing about groups.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::driver::Driver;

pub(crate) const GROUPS: &str = "commits of several batches";
pub(crate) const SNAPSHOTS: &str = "snapshots kept";
pub(crate) const MERGES: &str = "actions that merged files of levels one by one";
pub(crate) const CUTS: &str = "actions whose range compactions have left parts of files";
pub(crate) const LEARNED: &str = "SSTs with a learned index at the end of a history";
pub(crate) const TRAINED_LATER: &str = "SSTs that got a learned index while the machine was idle";
pub(crate) const SEGMENTS: &str = "files of separated values at the end of a history";
pub(crate) const COPIES: &str = "histories whose flushes have copied separated values";
pub(crate) const MOVES: &str = "histories whose separated values were moved";
pub(crate) const CONVERSIONS: &str = "histories whose separated values were put in order";
pub(crate) const PACKED: &str = "histories whose packed values were read";
pub(crate) const STORES: &str = "writes by stores into mapped files";
pub(crate) const FULL_DISKS: &str = "full disks met";
pub(crate) const KEPT_MANIFESTS: &str = "manifests kept because the next one found no room";

/// Counts by name, of all threads.
#[derive(Default)]
pub(crate) struct Happened(Mutex<BTreeMap<&'static str, u64>>);

impl Happened {
    pub(crate) fn add(&self, what: &'static str, count: u64) {
        *self.0.lock().unwrap().entry(what).or_default() += count;
    }

    /// Adds the counts of the history of `driver`.
    pub(crate) fn add_history(&self, driver: &Driver) {
        for (what, count) in driver.happened() {
            self.add(what, count);
        }
    }

    /// Prints all counts. Panics if one of `needed` is zero and the run `is_complete`.
    pub(crate) fn check(&self, needed: &[&'static str], is_complete: bool) {
        let counts = self.0.lock().unwrap();
        for (what, count) in &*counts {
            println!("{count:>9} {what}");
        }
        let is_missing = |what: &&&str| counts.get(**what).is_none_or(|count| *count == 0);
        let missing: Vec<_> = needed.iter().filter(is_missing).collect();
        assert!(!is_complete || missing.is_empty(), "these never came up: {missing:?}");
    }
}
