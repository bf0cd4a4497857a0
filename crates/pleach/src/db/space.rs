//! Room on the disk: what is kept free so that a nearly full disk can still be emptied.
//!
//! A flush writes before it frees log segments, and a compaction writes before it removes inputs: somebody has to leave
//! them room. Writers do. Before they fill another memtable, there must be space for its log segment, for the flush of
//! all memtables, and for as much as a compaction writes before its first input can go. Until then writes fail with the
//! system's error for a full disk; reads, drops, flushes and compactions go on, and what they free lets writers go on
//! too.

use std::io;

use pleach_env::{Error, Result};

use crate::db::Inner;
use crate::options::Options;
use crate::state::State;
use crate::version::{Run, SubTree};

impl Inner {
    /// Whether the disk has room for little more than `bytes`, of which a few times as many are wanted.
    pub(crate) fn is_space_short(&self, bytes: u64) -> bool {
        const WANTED: u64 = 4;
        self.env.available_space(&self.dir).is_ok_and(|free| free < bytes.saturating_mul(WANTED))
    }

    /// Refuses when another memtable's writes would leave flush and compaction without room.
    pub(crate) fn check_room(&self) -> Result<()> {
        let kept = kept_free(&self.state.load(), &self.options, self.ledger.lock().step_bytes());
        let free = || self.env.available_space(&self.dir).unwrap_or(u64::MAX);
        if free() >= kept {
            return Ok(());
        }
        self.remove_obsolete();
        let free = free();
        if free >= kept {
            return Ok(());
        }
        let message = format!(
            "{free} bytes are free, {kept} are kept for flush and compaction; free some, drop partitions, or delete \
             and compact"
        );
        Err(Error::io("write", &self.dir, io::Error::new(io::ErrorKind::StorageFull, message)))
    }
}

/// Bytes that the logging of another memtable, the flush of all, and a step of the largest compaction may take before
/// they give any back.
fn kept_free(state: &State, options: &Options, step: u64) -> u64 {
    let sst_bytes = options.sst_bytes;
    // The one to come, and one more, for a flush starts a new one.
    let log = 2 * options.segment_bytes();
    let to_come = options.memtable_budget() as u64;
    let memtables = state.memtables().map(|memtable| memtable.used_bytes() as u64).chain([to_come]);
    let flush: u64 = memtables.map(|bytes| bytes + bytes.min(sst_bytes)).sum();
    (log + flush).saturating_add(step)
}

/// Bytes that a merge of all runs writes before the first input's file is behind it, and what it writes at a time.
pub(super) fn step_bytes(tree: &SubTree, sst_bytes: u64) -> u64 {
    let jobs = 1 + tree.jobs.len() as u64;
    tree.sum(Run::file_bytes_max).saturating_add(jobs * sst_bytes).min(tree.sum(Run::bytes))
}
