//! The cleaner: removes files that nothing needs any more, reviews the filters, and flushes deletes that came to rest.
//!
//! Deletes free no space before they are in an SST and merged with what they delete. If the last writes to a store are deletes,
//! no further write fills the memtable. So many deletes that rest are flushed; then the pickers find the garbage.

use std::sync::Arc;
use std::time::Duration;

use pleach_env::{Job, JobStep, Result};

use super::{QUIET_AFTER, Upkeep};
use crate::memtable::DELETES_WORTH_FLUSH;

/// Deletes are flushed when none came for this long, so that a store with few deletes a second is not flushed again and again.
const DELETES_REST_AFTER: Duration = Duration::from_secs(10);

/// The job.
pub(super) struct Cleaner {
    upkeep: Arc<Upkeep>,
    /// Deletes of the active memtable when they were last seen to change, and when that was.
    deletes: (u64, Duration),
}

impl Cleaner {
    pub(super) fn new(upkeep: &Arc<Upkeep>) -> Self {
        Self { upkeep: Arc::clone(upkeep), deletes: (0, Duration::ZERO) }
    }

    /// Flushes the active memtable if it has many deletes and they rest. Returns when to look again, if not now.
    fn flush_resting_deletes(&mut self) -> Result<Option<Duration>> {
        let deletes = self.upkeep.version_set.state.load().active.memtable.deletes();
        if deletes < DELETES_WORTH_FLUSH {
            return Ok(None);
        }
        let now = self.upkeep.ctx.env.now();
        if deletes != self.deletes.0 {
            self.deletes = (deletes, now);
        }
        let due = self.deletes.1 + DELETES_REST_AFTER;
        if now < due {
            return Ok(Some(due.saturating_sub(now)));
        }
        self.deletes = (0, now);
        self.upkeep.switch_now()?;
        Ok(None)
    }
}

impl Job for Cleaner {
    fn step(&mut self) -> JobStep {
        let upkeep = &self.upkeep;
        upkeep.ctx.value_cache.populate();
        upkeep.version_set.remove_obsolete();
        let is_idle = upkeep.is_idle();
        let reviewed = upkeep.review_filters(is_idle);
        let rests_at = match self.flush_resting_deletes() {
            Ok(rests_at) => rests_at,
            // Room is short: whoever writes next is told so.
            Err(error) if error.is_shortage() => None,
            Err(error) => return self.upkeep.background_failed(error),
        };
        let wakes_at = (!is_idle).then_some(QUIET_AFTER).into_iter().chain(rests_at).min();
        match (reviewed, wakes_at) {
            (JobStep::Idle, Some(at)) => JobStep::IdleFor(at),
            (step, _) => step,
        }
    }
}
