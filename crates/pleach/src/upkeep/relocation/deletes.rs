//! When the files that deletes have left are cleaned, although the space target is kept.
//!
//! Many deletes in a flush, or the drop of a partition with values, are *noted*. When the store is quiet and merges have found
//! what was deleted, the relocator looks once for what is noted: it cleans the files with a large share of garbage, or finds that
//! it is not worth it. What was noted is only in memory.

use std::time::Duration;

use super::Upkeep;
use super::space::marked_bytes;
use crate::picker::value_files::is_worth_marking;
use crate::upkeep::QUIET_AFTER;
use crate::version::Version;

/// After a pass that took some time, none begins for so many times as long (arbitrary): a store that is hardly ever quiet, and
/// deletes all the time, should not clean all the time.
const PAUSE: u32 = 10;

/// What was noted, and what was done for it.
#[derive(Default)]
pub(super) struct NotedDeletes {
    /// How often something was noted, the last time of it, and up to which number the relocator has looked.
    noted: u64,
    noted_at: Duration,
    done: u64,
    /// When the next pass may begin.
    not_before: Duration,
    /// Number and time of the note for which files are being cleaned.
    cleaning: Option<(u64, Duration)>,
}

/// What the relocator does for noted deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeletesDue {
    Nothing,
    /// The store is not quiet, merges are due, or the last pass was a short time ago.
    Later,
    /// For what was noted up to this number nothing is worth cleaning.
    NotWorth(u64),
    Clean,
}

impl Upkeep {
    /// Notes that much was deleted: its space is to come back without further writes.
    pub(crate) fn note_deletes(&self) {
        let now = self.ctx.env.now();
        let mut state = self.relocation.lock();
        state.deletes.noted += 1;
        state.deletes.noted_at = now;
    }

    /// What is due for noted deletes. While a thread waits for compactions, nothing is put off.
    pub(super) fn deletes_due(&self, version: &Version) -> DeletesDue {
        let (noted, not_before, is_cleaning) = {
            let NotedDeletes { noted, noted_at, done, not_before, cleaning } =
                &self.relocation.lock().deletes;
            if noted == done {
                return DeletesDue::Nothing;
            }
            (*noted, (*noted_at + QUIET_AFTER).max(*not_before), cleaning.is_some())
        };
        if version.values.is_empty() || self.ctx.options.always_converts() {
            return DeletesDue::NotWorth(noted);
        }
        let is_time = self.has_settle_waiters() || self.ctx.env.now() >= not_before;
        if !is_time || !self.is_quiet() || self.version_set.ledger.lock().is_busy() {
            return DeletesDue::Later;
        }
        // The old files stay as long as snapshots pin them, so cleaning would take space.
        if self.version_set.trash.pinned_bytes() > self.ctx.options.memtable_budget() as u64 {
            return DeletesDue::Later;
        }
        if is_cleaning {
            return DeletesDue::Clean;
        }
        let state = self.relocation.lock();
        let mut files = state.states_of(version, 1.0);
        files.retain(|file| !state.damaged.contains(&file.file));
        drop(state);
        if is_worth_marking(&files, marked_bytes(version)) {
            DeletesDue::Clean
        } else {
            DeletesDue::NotWorth(noted)
        }
    }

    /// Notes that files are marked for what has been noted so far.
    pub(super) fn begin_deletes(&self) {
        let now = self.ctx.env.now();
        let deletes = &mut self.relocation.lock().deletes;
        let began = deletes.cleaning.map_or(now, |(_, began)| began);
        deletes.cleaning = Some((deletes.noted, began));
    }

    /// Notes that files were cleaned for what was noted when the last marking began, or could not be.
    pub(super) fn end_deletes(&self) {
        let now = self.ctx.env.now();
        let deletes = &mut self.relocation.lock().deletes;
        if let Some((noted, began)) = deletes.cleaning.take() {
            deletes.done = noted;
            deletes.not_before = now + PAUSE * now.saturating_sub(began);
        }
    }

    /// Notes that nothing is worth cleaning for what was noted up to number `noted`.
    pub(super) fn pass_over_deletes(&self, noted: u64) {
        self.relocation.lock().deletes.done = noted;
    }
}
