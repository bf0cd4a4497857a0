//! The bytes that recovery dropped from the end of the log, for people and for `--json`.
//!
//! After a crash recovery drops the unsynced end of the log from the first gap on. Each command opens the store, so only the
//! first command after the crash can report it.

use pleach::Stats;
use serde_json::{Map, Value};

use crate::output::{bytes, count};

/// The dropped bytes and writes in a sentence; `None` if nothing was dropped.
pub(crate) fn describe(stats: &Stats) -> Option<String> {
    let (records, size) = (stats.log_dropped_records, bytes(stats.log_dropped_bytes));
    match records {
        _ if !stats.log_was_torn => None,
        0 => Some(format!(
            "the log ended in {size} of an unfinished write, which were dropped: an earlier process or machine had crashed, or \
             a write had failed; nothing that was synced is missing"
        )),
        _ => Some(format!(
            "the log had a gap, and what followed was dropped: {size} with at least {} whole {} that were never synced; \
             nothing that was synced is missing",
            count(records),
            if records == 1 { "write" } else { "writes" },
        )),
    }
}

/// The same as fields.
pub(crate) fn put_json(object: &mut Map<String, Value>, stats: &Stats) {
    object.insert("log_was_torn".to_owned(), stats.log_was_torn.into());
    object.insert("log_dropped_records".to_owned(), stats.log_dropped_records.into());
    object.insert("log_dropped_bytes".to_owned(), stats.log_dropped_bytes.into());
}
