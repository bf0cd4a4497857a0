//! The format `csv`: comma-separated rows, quoted as usual.

use std::io;

use csv::{ByteRecord, Reader, ReaderBuilder, Trim};

use super::LoadArgs;
use super::columns::Columns;
use super::quotes::{Quotes, Watched};
use super::record::{Found, Record, Records};
use super::source::Source;
use crate::bytes::Form;
use crate::failure::{Failure, Result};

pub(super) struct Csv {
    rows: Reader<Watched>,
    quotes: Quotes,
    columns: Columns,
    whole_row: bool,
    row: ByteRecord,
}

impl Csv {
    pub(super) fn new(source: Source, args: &LoadArgs) -> Result<Self> {
        let quotes = Quotes::default();
        let watched = Watched::new(source, quotes.clone());
        let mut rows = (ReaderBuilder::new().has_headers(!args.no_header).flexible(true).trim(Trim::None))
            .from_reader(watched);
        let mut header = None;
        if !args.no_header {
            let read = rows.byte_headers();
            let names = read.map_err(|e| Failure::io("read", args.input_name(), &e.into()))?;
            header = Some(names.iter().map(<[u8]>::to_vec).collect());
            if let Some((line, reason)) = quotes.found_before(rows.position().byte()) {
                return Err(Failure::usage(format!(
                    "{}, line {line}: {reason}",
                    args.input_name().display()
                ))
                .hint("close the quote, or double it where it is part of the text"));
            }
        }
        let columns = Columns::new(args, args.hex.then_some(Form::Hex), header)?;
        Ok(Self { rows, quotes, columns, whole_row: args.whole_row, row: ByteRecord::new() })
    }
}

impl Records for Csv {
    fn next(&mut self, record: &mut Record) -> io::Result<Found> {
        // A flexible reader of bytes returns only the errors of its input.
        if !self.rows.read_byte_record(&mut self.row).map_err(io::Error::from)? {
            return Ok(Found::End);
        }
        record.line = self.row.position().map_or(0, csv::Position::line);
        if let Some((line, reason)) = self.quotes.found_before(self.rows.position().byte()) {
            record.line = line;
            return Ok(Found::Malformed(reason));
        }
        let row: Vec<_> = self.row.iter().collect();
        Ok(self.columns.fill(record, &row, self.whole_row))
    }
}
