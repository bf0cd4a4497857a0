//! The formats `tsv` and `csv`: rows of columns, two of which are the key and the value.

use std::io;

use csv::{ByteRecord, Reader, ReaderBuilder, Trim};

use super::LoadArgs;
use super::record::{Found, LineReader, Record, Records};
use super::source::Source;
use crate::bytes::Form;
use crate::failure::{Failure, Result};

/// Two columns, counted from zero, and how their bytes are written.
struct Columns {
    key: usize,
    value: usize,
    /// `None`: as they are.
    form: Option<Form>,
}

impl Columns {
    fn new(args: &LoadArgs, form: Option<Form>, header: Option<&ByteRecord>) -> Result<Self> {
        let column = |given: &Option<String>, default| match given {
            Some(given) => find_column(given, header),
            None => Ok(default),
        };
        Ok(Self { key: column(&args.key_column, 0)?, value: column(&args.value_column, 1)?, form })
    }

    /// Fills `record` from the row whose columns `get` gives.
    fn fill<'r>(&self, record: &mut Record, get: impl Fn(usize) -> Option<&'r [u8]>) -> Found {
        for (column, bytes) in [(self.key, &mut record.key), (self.value, &mut record.value)] {
            bytes.clear();
            let Some(text) = get(column) else {
                return Found::Malformed(format!("there is no column {}", column + 1));
            };
            let read = if let Some(form) = self.form {
                form.read(text, bytes)
            } else {
                bytes.extend_from_slice(text);
                Ok(())
            };
            if let Err(reason) = read {
                return Found::Malformed(format!("column {}: {reason}", column + 1));
            }
        }
        Found::Entry
    }
}

fn find_column(given: &str, header: Option<&ByteRecord>) -> Result<usize> {
    if let Some(at) = header.and_then(|names| names.iter().position(|name| name == given.as_bytes())) {
        return Ok(at);
    }
    match given.parse::<usize>() {
        Ok(number @ 1..) => Ok(number - 1),
        Ok(0) => Err(Failure::usage("columns are counted from 1")),
        Err(_) if header.is_some() => {
            let names: Vec<_> = header.into_iter().flatten().map(String::from_utf8_lossy).collect();
            Err(Failure::usage(format!("the csv header has no column {given:?}"))
                .hint(format!("it has: {}", names.join(", "))))
        }
        Err(_) => {
            Err(Failure::usage(format!("column {given:?}: there is no header, so give a number from 1")))
        }
    }
}

/// Rows of columns with a tab between them.
pub(super) struct Tsv {
    lines: LineReader,
    columns: Columns,
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
            lines: LineReader::new(source),
            columns: Columns::new(args, form, None)?,
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
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(self.columns.fill(record, |column| self.line.split(|&b| b == b'\t').nth(column)))
    }
}

/// Comma-separated rows, quoted as usual.
pub(super) struct Csv {
    rows: Reader<Source>,
    columns: Columns,
    row: ByteRecord,
}

impl Csv {
    pub(super) fn new(source: Source, args: &LoadArgs) -> Result<Self> {
        let mut rows = (ReaderBuilder::new().has_headers(!args.no_header).flexible(true).trim(Trim::None))
            .from_reader(source);
        let header = if args.no_header { None } else { Some(read_header(&mut rows, args)?) };
        let columns = Columns::new(args, args.hex.then_some(Form::Hex), header.as_ref())?;
        Ok(Self { rows, columns, row: ByteRecord::new() })
    }
}

fn read_header(rows: &mut Reader<Source>, args: &LoadArgs) -> Result<ByteRecord> {
    let header = rows.byte_headers().map_err(|e| Failure::io("read", args.input_name(), &e.into()))?;
    Ok(header.clone())
}

impl Records for Csv {
    fn next(&mut self, record: &mut Record) -> io::Result<Found> {
        // A flexible reader of bytes has no other errors than those of its input.
        if !self.rows.read_byte_record(&mut self.row).map_err(io::Error::from)? {
            return Ok(Found::End);
        }
        record.line = self.row.position().map_or(0, csv::Position::line);
        Ok(self.columns.fill(record, |column| self.row.get(column)))
    }
}
