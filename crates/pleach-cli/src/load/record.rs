//! Records: the entries into which a format cuts its input.

use std::io::{self, BufRead};

use super::source::Source;

/// One entry of the input.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// The line where it begins, from one.
    pub(super) line: u64,
}

/// What a format found next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The record has been filled.
    Entry,
    /// The text at the record's line is malformed, for this reason. Reading can go on behind it.
    Malformed(String),
    End,
}

/// A format: cuts its input into records.
pub(super) trait Records {
    /// Fills `record` with the next entry.
    fn next(&mut self, record: &mut Record) -> io::Result<Found>;

    /// How many lines ended with a carriage return that was kept.
    fn kept_returns(&self) -> u64 {
        0
    }
}

/// Lines of the input with their numbers.
pub(super) struct LineReader {
    source: Source,
    /// Lines read so far, which is the number of the last one.
    pub(super) number: u64,
    /// Whether a carriage return before the newline is part of the line's end.
    crlf: bool,
    /// Lines that ended with a carriage return that was kept.
    pub(super) kept_returns: u64,
}

impl LineReader {
    pub(super) fn new(source: Source, crlf: bool) -> Self {
        Self { source, number: 0, crlf, kept_returns: 0 }
    }

    /// Appends the next line with its newline to `line`; returns its length, 0 at the end.
    pub(super) fn append(&mut self, line: &mut Vec<u8>) -> io::Result<usize> {
        let len = self.source.read_until(b'\n', line)?;
        self.number += u64::from(len > 0);
        Ok(len)
    }

    /// Puts the next line, without its end, into `line`; returns whether there was one.
    pub(super) fn read(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        let len = self.append(line)?;
        if line.last() == Some(&b'\n') {
            line.pop();
            let has_return = line.last() == Some(&b'\r');
            if has_return && self.crlf {
                line.pop();
            }
            self.kept_returns += u64::from(has_return && !self.crlf);
        }
        Ok(len > 0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Everything a format makes of an input: entries as `line key=value`, malformed ones as `line!`.
    pub(in crate::load) fn all(records: &mut dyn Records) -> Vec<String> {
        let (mut record, mut found) = (Record::default(), Vec::new());
        loop {
            match records.next(&mut record).unwrap() {
                Found::End => return found,
                Found::Malformed(_) => found.push(format!("{}!", record.line)),
                Found::Entry => {
                    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                    found.push(format!("{} {}={}", record.line, text(&record.key), text(&record.value)));
                }
            }
        }
    }
}
