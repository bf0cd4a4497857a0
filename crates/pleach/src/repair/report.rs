//! The report of a repair: what it read, and what is damaged or missing.

use std::path::{Path, PathBuf};

use pleach_env::{Error, ErrorKind};

use super::RepairProgress;
use super::sink::Sink;
use crate::damage::DamagedPlace;

/// Most damaged places that a report lists; further ones are only counted.
const PLACES_MAX: usize = 10_000;

/// The findings of [`repair`](crate::repair) and [`survey`](crate::survey).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// Whether everything was gone through; `false` when `progress` asked to stop.
    pub complete: bool,
    /// Why the manifest could not be used. Then ages and partitions were guessed from what the files say: values that were
    /// overwritten or deleted, and partitions that were dropped, may have come back.
    pub guessed: Option<Error>,
    /// All damage, in the order in which it was found; at most 10 000 places.
    pub damage: Vec<DamagedPlace>,
    /// How many damaged places there are.
    pub damaged_places: u64,
    /// SSTs of which entries were read.
    pub ssts: u64,
    /// Log records that were read.
    pub log_records: u64,
    /// Entries that were read, older versions and deletes included. A separated value that cannot be read is not among them.
    pub entries: u64,
    /// Bytes of SSTs, of log segments up to the last record, and of separated values that were read.
    pub bytes: u64,
    /// Names of the partitions that got entries, or that the manifest has.
    pub partitions: Vec<String>,
    /// The names among them that were made up, because theirs are not known.
    pub recovered_names: Vec<String>,
    /// Entries of dropped partitions, which were passed over.
    pub dropped_entries: u64,
    /// Files of the store that nothing refers to, and which were passed over.
    pub ignored: Vec<PathBuf>,
}

impl RepairReport {
    /// Whether the store was read whole, with nothing guessed.
    pub fn is_clean(&self) -> bool {
        self.complete && self.damaged_places == 0 && self.guessed.is_none()
    }
}

/// Gathers the report while a store is read.
pub(super) struct Reporter<'p> {
    progress: &'p mut RepairProgress<'p>,
    pub(super) report: RepairReport,
    /// Bytes to be read in all.
    pub(super) total: u64,
    done: u64,
    /// Whether to end.
    pub(super) stopped: bool,
}

impl<'p> Reporter<'p> {
    pub(super) fn new(progress: &'p mut RepairProgress<'p>) -> Self {
        Self { progress, report: RepairReport::default(), total: 0, done: 0, stopped: false }
    }

    pub(super) fn damage(&mut self, place: DamagedPlace) {
        self.report.damaged_places += 1;
        if self.report.damage.len() < PLACES_MAX {
            self.report.damage.push(place);
        }
    }

    pub(super) fn guess(&mut self, why: Error) {
        self.report.guessed.get_or_insert(why);
    }

    /// Reports that `in_file` bytes of the current file are done; returns whether to go on.
    pub(super) fn advance(&mut self, in_file: u64) -> bool {
        let done = self.done + in_file;
        self.stopped = self.stopped || !(self.progress)(done.min(self.total), self.total);
        !self.stopped
    }

    /// A file of `len` bytes is done.
    pub(super) fn end_file(&mut self, len: u64) -> bool {
        self.done += len;
        self.advance(0)
    }

    pub(super) fn finish(mut self, sink: &Sink<'_>) -> RepairReport {
        self.report.complete = !self.stopped;
        (self.report.partitions, self.report.recovered_names) = sink.names();
        self.report
    }
}

/// An error about a file that the manifest or the log need.
pub(super) fn missing(path: &Path, what: &str) -> DamagedPlace {
    DamagedPlace::of(path, Error::new(ErrorKind::Corruption, what).at_path(path))
}
