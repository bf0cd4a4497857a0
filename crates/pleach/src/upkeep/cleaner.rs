//! The cleaner: removes files that nothing needs any more, reviews the filters, and flushes the memtable when no delete has come
//! for some time.
//!
//! Deletes free no space before they are in an SST and merged with what they delete. If the last writes to a store are deletes,
//! no further write fills the memtable. So many deletes that rest are flushed; then the pickers find the garbage.

use std::sync::{Arc, Weak};
use std::time::Duration;

use pleach_env::{Job, JobStep};

use super::{QUIET_AFTER, Upkeep};
use crate::memtable::{DELETES_WORTH_FLUSH, Memtable};

/// Deletes are flushed when none came for this long, so that a store with few deletes a second is not flushed again and again.
const DELETES_REST_AFTER: Duration = Duration::from_secs(10);

/// The job.
pub(super) struct Cleaner {
    upkeep: Arc<Upkeep>,
    /// The active memtable and its number of deletes when they were last seen to change, and when that was.
    seen: (Weak<Memtable>, u64, Duration),
}

impl Cleaner {
    pub(super) fn new(upkeep: &Arc<Upkeep>) -> Self {
        Self { upkeep: Arc::clone(upkeep), seen: (Weak::new(), 0, Duration::ZERO) }
    }

    /// Flushes the active memtable if it has many deletes and none came for a while. Returns how long to wait before the next
    /// look, if there is one.
    fn flush_resting_deletes(&mut self) -> Option<Duration> {
        let memtable = Arc::downgrade(&self.upkeep.version_set.state.load().active.memtable);
        let deletes = memtable.upgrade().map_or(0, |memtable| memtable.deletes());
        if deletes < DELETES_WORTH_FLUSH {
            return None;
        }
        let now = self.upkeep.ctx.env.now();
        let (seen, count, since) = &self.seen;
        if !Weak::ptr_eq(&memtable, seen) || deletes != *count {
            self.seen = (memtable, deletes, now);
            return Some(DELETES_REST_AFTER);
        }
        let due = *since + DELETES_REST_AFTER;
        if now < due {
            return Some(due.saturating_sub(now));
        }
        self.seen = (memtable, deletes, now);
        // Without room, memory or the lock there is no hurry. What must poison the store has done so.
        match self.upkeep.writes.switch_if_free() {
            Ok(true) => None,
            Ok(false) | Err(_) => Some(DELETES_REST_AFTER),
        }
    }
}

impl Job for Cleaner {
    fn step(&mut self) -> JobStep {
        let upkeep = &self.upkeep;
        upkeep.ctx.value_cache.populate();
        upkeep.version_set.remove_obsolete();
        let is_idle = upkeep.is_idle();
        let reviewed = upkeep.review_filters(is_idle);
        let looks_again = [(!is_idle).then_some(QUIET_AFTER), self.flush_resting_deletes()];
        match (reviewed, looks_again.into_iter().flatten().min()) {
            (JobStep::Idle, Some(wait)) => JobStep::IdleFor(wait),
            (step, _) => step,
        }
    }
}
