//! The format `tsv`: lines of columns with a tab between them.

use std::io;

use super::LoadArgs;
use super::columns::Columns;
use super::record::{Found, LineReader, Record, Records};
use super::source::Source;
use crate::bytes::Form;
use crate::failure::Result;

pub(super) struct Tsv {
    lines: LineReader,
    columns: Columns,
    whole_row: bool,
    line: Vec<u8>,
}

impl Tsv {
    pub(super) fn new(source: Source, args: &LoadArgs) -> Result<Self> {
        let form = match (args.hex, args.no_escapes) {
            (true, _) => Some(Form::Hex),
            (false, true) => None,
            (false, false) => Some(Form::Escaped),
        };
        Ok(Self {
            lines: LineReader::new(source, args.crlf),
            columns: Columns::new(args, form, None)?,
            whole_row: args.whole_row,
            line: Vec::new(),
        })
    }
}

impl Records for Tsv {
    fn next(&mut self, record: &mut Record) -> io::Result<Found> {
        if !self.lines.read(&mut self.line)? {
            return Ok(Found::End);
        }
        record.line = self.lines.number;
        let row: Vec<_> = self.line.split(|&b| b == b'\t').collect();
        Ok(self.columns.fill(record, &row, self.whole_row))
    }

    fn kept_returns(&self) -> u64 {
        self.lines.kept_returns
    }
}
