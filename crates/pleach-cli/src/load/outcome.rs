//! The outcome of a load: its summary for people or as JSON. It is printed also if the load failed.

use std::path::Path;

use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::output::{bytes, complain_of, count, counted, entries, note, per_second, print_document};

/// Most line numbers of malformed input that are listed.
const LINES_TOLD_MAX: usize = 5;

#[derive(Default)]
pub(super) struct LoadOutcome {
    partition: String,
    /// Entries committed.
    pub(super) entries: u64,
    /// Bytes of their keys and values.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Repeated keys of the input; `None` if there were too many keys to count them.
    pub(super) repeated_keys: Option<u64>,
    /// Whether the input began with a byte order mark.
    pub(super) skipped_mark: bool,
    /// Lines whose carriage return was kept.
    pub(super) kept_returns: u64,
    malformed: u64,
    malformed_lines: Vec<u64>,
}

impl LoadOutcome {
    /// Of a load into `partition`.
    pub(super) fn of(partition: &str) -> Self {
        Self { partition: partition.to_owned(), ..Self::default() }
    }

    /// A malformed record at `line` was skipped.
    pub(super) fn skip(&mut self, line: u64) {
        self.malformed += 1;
        if self.malformed_lines.len() < LINES_TOLD_MAX {
            self.malformed_lines.push(line);
        }
    }

    /// Prints the summary and returns the result of the load.
    pub(super) fn report(&self, result: Result<()>, json: bool, input: &Path) -> Result<()> {
        let result = match result {
            Err(failure) if failure.exit == Exit::Interrupted => {
                complain_of(&failure);
                Err(Failure::quiet(Exit::Interrupted))
            }
            Err(failure) => {
                complain_of(&failure);
                let verb = if self.entries == 1 { "is" } else { "are" };
                note(format!("{} before that {verb} in the store", entries(self.entries)));
                Err(Failure::quiet(failure.exit))
            }
            Ok(()) => Ok(()),
        };
        if json {
            self.print_json(&result)?;
        } else if result.is_ok() || matches!(&result, Err(failure) if failure.exit == Exit::Interrupted) {
            self.tell(input);
        }
        result
    }

    fn print_json(&self, result: &Result<()>) -> Result<()> {
        print_document(&json!({
            "partition": self.partition,
            "complete": result.is_ok(),
            "entries": self.entries,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "entries_per_second": per_second(self.entries, self.seconds),
            "repeated_keys": self.repeated_keys,
            "skipped_byte_order_mark": self.skipped_mark,
            "kept_carriage_returns": self.kept_returns,
            "malformed": self.malformed,
            "malformed_first_lines": self.malformed_lines,
        }))
    }

    fn tell(&self, input: &Path) {
        let rate = count(per_second(self.entries, self.seconds));
        let size = bytes(self.bytes);
        note(format!("loaded {} ({size}) in {:.2} s: {rate} a second", entries(self.entries), self.seconds));
        match self.repeated_keys {
            Some(0) => {}
            Some(repeated) => {
                let distinct =
                    counted(self.entries.saturating_sub(repeated), "distinct key", "distinct keys");
                let keys = counted(repeated, "key", "keys");
                note(format!("{keys} came again, the later value won: {distinct}"));
            }
            None => note("repeated keys were not counted, there were too many keys; the later value wins"),
        }
        if self.skipped_mark {
            note("skipped the byte order mark at the beginning");
        }
        if self.kept_returns > 0 {
            let lines = counted(self.kept_returns, "line", "lines");
            note(format!("kept the carriage return at the end of {lines}; --crlf takes it as a line's end"));
        }
        if self.malformed > 0 {
            let lines: Vec<_> = self.malformed_lines.iter().map(ToString::to_string).collect();
            let more = if self.malformed > lines.len() as u64 { ", ..." } else { "" };
            let noun = if self.malformed == 1 { "line" } else { "lines" };
            let (malformed, lines) = (entries(self.malformed), lines.join(", "));
            note(format!(
                "skipped {malformed} of {} that could not be read: {noun} {lines}{more}",
                input.display()
            ));
        }
    }
}
