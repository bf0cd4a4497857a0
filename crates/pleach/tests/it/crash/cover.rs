//! Coverage of the crash test: counts of the visited states by what they have. A rig that never sees a clip proves nothing
//! about clips.

use std::sync::Mutex;
use std::time::Duration;

use pleach::Db;
use pleach::env::failpoint;

use super::cut::Cut;
use crate::rig::driver::UNPACKED;
use crate::rig::shape::Shape;
use crate::rig::timeline::{Candidate, Timeline};

macro_rules! counters {
    ($($(#[doc = $text:literal])+ $name:ident,)+) => {
        /// Counts of states, apart from the first.
        #[derive(Default)]
        pub(super) struct Coverage {
            $($(#[doc = $text])+ pub(super) $name: u64,)+
        }

        impl Coverage {
            pub(super) fn add(&mut self, other: &Coverage) {
                $(self.$name += other.$name;)+
            }

            fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((concat!($($text),+), self.$name)),+]
            }
        }
    };
}

counters! {
    /// histories
    histories,
    /// states
    states,
    /// states of a second crash
    second_crashes,
    /// states of a third crash
    third_crashes,
    /// crashes before the store was created
    unborn,
    /// crashes inside a recovery
    in_recovery,
    /// crashes of the process alone
    killed,
    /// states that lost writes
    lost_writes,
    /// states that kept more than was durable
    kept_more,
    /// states with sections
    sections,
    /// states with runs of several SSTs
    long_runs,
    /// states with several stages
    stages,
    /// states with a compaction in progress
    compactions,
    /// states with a clip
    clips,
    /// states opened for reading only first
    read_only,
    /// states without any SST
    no_files,
    /// states after a drop
    drops,
    /// states in which a batch had failed on a full disk
    failures,
    /// states with a torn tail of the log
    torn_tails,
    /// crashes during the commit of a group of several batches
    groups,
    /// crashes while a snapshot was held
    snapshots,
    /// crashes while files of levels were merged one by one
    partial_merges,
    /// states with two candidates or more
    open_questions,
    /// states whose packed values were read
    packed,
    /// crashes during actions that wrote a record in several calls
    records_in_pieces,
    /// crashes in the middle of a store into a mapped file
    stores,
}

/// The counts that only the run with `tune.large_values` reaches.
fn needs_large_values(what: &str) -> bool {
    what.contains("in several calls")
}

impl Coverage {
    /// Counts a state: where the crash came, which candidates it had, and what the recovered store holds.
    pub(super) fn note(
        &mut self,
        timeline: &Timeline,
        cut: Cut,
        candidates: &[Candidate],
        found: &Candidate,
        db: &Db,
        depth: usize,
    ) {
        let (stats, shape) = (db.stats(), Shape::of(db));
        let mut count =
            |counter: fn(&mut Self) -> &mut u64, happened: bool| *counter(self) += u64::from(happened);
        count(|c| &mut c.states, true);
        count(|c| &mut c.second_crashes, depth == 2);
        count(|c| &mut c.third_crashes, depth == 3);
        count(|c| &mut c.unborn, depth == 1 && cut.op < timeline.opened());
        count(|c| &mut c.in_recovery, depth > 1 && cut.op < timeline.opened());
        count(|c| &mut c.killed, cut.kills_process_only());
        count(|c| &mut c.lost_writes, candidates.last().is_some_and(|last| !last.is_within(found)));
        count(|c| &mut c.kept_more, !found.is_within(&candidates[0]));
        count(|c| &mut c.sections, shape.sections);
        count(|c| &mut c.long_runs, shape.long_runs);
        count(|c| &mut c.stages, shape.stages);
        count(|c| &mut c.compactions, shape.compactions);
        count(|c| &mut c.clips, shape.clips);
        count(|c| &mut c.no_files, stats.ssts == 0);
        count(|c| &mut c.drops, timeline.dropped_by(found.changes));
        count(|c| &mut c.failures, timeline.failed_by(cut.op));
        count(|c| &mut c.torn_tails, stats.log_was_torn);
        count(|c| &mut c.groups, timeline.groups_at(cut.op));
        count(|c| &mut c.snapshots, timeline.keeps_at(cut.op));
        count(|c| &mut c.partial_merges, timeline.merges_at(cut.op));
        count(|c| &mut c.open_questions, candidates.len() > 1);
        count(|c| &mut c.packed, failpoint::take_report(UNPACKED).is_some());
        count(|c| &mut c.records_in_pieces, timeline.pieces_at(cut.op));
    }
}

/// The sum over all threads.
#[derive(Default)]
pub(super) struct Totals(Mutex<Coverage>);

impl Totals {
    pub(super) fn add(&self, cover: &Coverage) {
        self.0.lock().unwrap().add(cover);
    }

    pub(super) fn states(&self) -> u64 {
        self.0.lock().unwrap().states
    }

    pub(super) fn report(&self, took: Duration) -> String {
        let cover = self.0.lock().unwrap();
        let lines: Vec<_> = cover.list().iter().map(|(what, count)| format!("{count:>9}{what}")).collect();
        let rate = u128::from(cover.states) * 1000 / took.as_millis().max(1);
        format!("{}\n{rate:>9} states a second", lines.join("\n"))
    }

    /// Panics if a count is zero, except those that need large values.
    pub(super) fn check_complete(&self) {
        self.check(|what| !needs_large_values(what));
    }

    /// Panics if a count that needs large values is zero.
    pub(super) fn check_large_values(&self) {
        self.check(needs_large_values);
    }

    fn check(&self, is_needed: impl Fn(&str) -> bool) {
        let cover = self.0.lock().unwrap();
        let is_missing = |(what, count): &(&str, u64)| *count == 0 && is_needed(what);
        let missing: Vec<_> = cover.list().into_iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "these never came up: {missing:?}");
    }
}
