//! Trace: the spans and events by which a store reports its cold paths to the `tracing` crate.
//!
//! Each span and event is a function of this module, so that names and fields are in one place. The crate's documentation has
//! the table for users. Reads, writes that do not wait, and accesses to blocks call nothing here.
//!
//! # Invariants
//! 1. *Free when off*: without the feature `tracing` the macros check the types of their arguments and evaluate nothing.
//! 2. *Once*: an error that a call returns is not reported here. Failures of background work, the first poison and a failed
//!    close are reported, because the caller may not see them.
//!
//! # Concurrency
//! A subscriber runs on the reporting thread, which may hold locks of the store. So it must not use the store.

use std::path::Path;
use std::time::Duration;

use pleach_env::Error;
use pleach_log::Recovery;

use crate::keys::PartitionId;

#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $name:literal, $message:literal, $($field:ident = $value:expr),*) => {
        tracing::event!(name: $name, target: $name, tracing::Level::$level, $($field = $value,)* $message)
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $name:literal, $message:literal, $($field:ident = $value:expr),*) => {
        if false {
            $(let _checked = &$value;)*
        }
    };
}

/// A span with fields known at its beginning and, behind the semicolon, fields that [`Span::record`] fills in.
#[cfg(feature = "tracing")]
macro_rules! span {
    ($level:ident, $name:literal, $($field:ident = $value:expr),*; $($later:ident),*) => {
        Span(
            tracing::span!(
                target: $name,
                tracing::Level::$level,
                $name,
                $($field = $value,)*
                $($later = tracing::field::Empty,)*
            )
            .entered(),
        )
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! span {
    ($level:ident, $name:literal, $($field:ident = $value:expr),*; $($later:ident),*) => {{
        if false {
            $(let _checked = &$value;)*
        }
        Span()
    }};
}

/// A span that lasts until it is dropped.
#[must_use = "the span ends when this is dropped"]
pub(crate) struct Span(#[cfg(feature = "tracing")] tracing::span::EnteredSpan);

impl Span {
    /// Fills in a field that was not known when the span began.
    #[cfg(feature = "tracing")]
    fn record(&self, field: &'static str, value: u64) {
        self.0.record(field, value);
    }

    #[cfg(not(feature = "tracing"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    fn record(&self, _field: &'static str, _value: u64) {}

    /// Output of a flush or of a step of a compaction: SSTs, moved ones included, and bytes written.
    pub(crate) fn made(&self, outputs: usize, written_bytes: u64) {
        self.record("outputs", outputs as u64);
        self.record("written_bytes", written_bytes);
    }
}

/// The opening of a store, recovery included.
pub(crate) fn open(dir: &Path) -> Span {
    span!(INFO, "pleach::open", path = dir.display().to_string().as_str();)
}

/// The log was read and its batches stand in fresh segments.
pub(crate) fn recovery(recovery: &Recovery) {
    event!(
        INFO,
        "pleach::recovery",
        "recovered the log",
        records = recovery.records,
        bytes = recovery.bytes,
        torn_segment = recovery.torn.map(|(segment, _)| segment.0),
        torn_offset = recovery.torn.map(|(_, offset)| offset)
    );
}

/// The flush of one memtable.
pub(crate) fn flush(memtable_bytes: usize, last_seq: u64) -> Span {
    span!(INFO, "pleach::flush", memtable_bytes = memtable_bytes, last_seq = last_seq; outputs, written_bytes)
}

/// One step of a compaction; `inputs` is the number of runs that it merges.
pub(crate) fn compaction(partition: PartitionId, stage: u8, inputs: usize) -> Span {
    span!(
        DEBUG, "pleach::compaction", partition = partition.get(), stage = stage, inputs = inputs;
        outputs, written_bytes
    )
}

/// A write waited for a flush, because all memtables were full.
pub(crate) fn stall(waited: Duration) {
    event!(WARN, "pleach::stall", "a write waited for a flush", waited_ms = millis(waited));
}

/// A write was slowed down, because flush or compaction is behind.
pub(crate) fn slowdown(waited: Duration) {
    event!(DEBUG, "pleach::slowdown", "a write was slowed down", waited_ms = millis(waited));
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// A partition was created.
pub(crate) fn partition_created(id: PartitionId, name: &str) {
    event!(INFO, "pleach::partition_created", "created a partition", partition = id.get(), name = name);
}

/// A partition was dropped.
pub(crate) fn partition_dropped(id: PartitionId, name: &str) {
    event!(INFO, "pleach::partition_dropped", "dropped a partition", partition = id.get(), name = name);
}

/// The closing of a store.
pub(crate) fn close(dir: &Path) -> Span {
    span!(INFO, "pleach::close", path = dir.display().to_string().as_str();)
}

/// A close ended with an error.
pub(crate) fn close_failed(error: &Error) {
    event!(ERROR, "pleach::close_failed", "the close failed", error = error.to_string().as_str());
}

/// The store refuses writes from now on.
pub(crate) fn poisoned(error: &Error) {
    event!(ERROR, "pleach::poisoned", "the store refuses writes now", error = error.to_string().as_str());
}

/// A flush or compaction found the disk full, or no descriptor left. It is tried again when something has changed.
pub(crate) fn shortage(error: &Error) {
    event!(ERROR, "pleach::shortage", "background work cannot go on", error = error.to_string().as_str());
}

/// A file of separated values is damaged or cannot be read, and is left as it is.
pub(crate) fn value_file_damaged(error: &Error) {
    event!(
        ERROR,
        "pleach::value_file_damaged",
        "a file of values is left as it is, because it is damaged or cannot be read",
        error = error.to_string().as_str()
    );
}

/// The files that deletes have left could not be cleaned. The space target still bounds their garbage.
pub(crate) fn cleaning_failed(error: &Error) {
    event!(
        WARN,
        "pleach::cleaning_failed",
        "the space of what was deleted is not taken back now",
        error = error.to_string().as_str()
    );
}

/// A background job panicked; [`poisoned`] follows.
pub(crate) fn job_panicked(job: &str, message: &str) {
    event!(ERROR, "pleach::job_panicked", "a background job panicked", job = job, panic = message);
}
