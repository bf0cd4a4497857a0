//! Columns of a row, for the formats `tsv` and `csv`: which one is the key, and what the value is.
//!
//! No column is dropped silently. Without `--value-column` the value of a row of two columns is the other column, and that of a
//! longer row is the whole row. A whole row is a JSON object with the names of the header, or a JSON array without a header.

use serde_json::{Map, Value, json};

use super::LoadArgs;
use super::record::{Found, Record};
use crate::bytes::{Form, put_json};
use crate::failure::{Failure, Result};

/// Where a row's value is.
enum ValueOf {
    /// No option was given: the first row decides.
    FirstRow,
    Column(usize),
    /// The other of two columns.
    Other(usize),
    WholeRow {
        columns: usize,
    },
}

/// Key and value of rows, columns counted from zero, and how their bytes are written.
pub(super) struct Columns {
    key: usize,
    value: ValueOf,
    /// Names of the columns; none without a header.
    header: Option<Vec<String>>,
    /// `None`: as they are.
    form: Option<Form>,
}

impl Columns {
    pub(super) fn new(args: &LoadArgs, form: Option<Form>, header: Option<Vec<Vec<u8>>>) -> Result<Self> {
        let column = |given: &Option<String>| match given {
            Some(given) => find_column(given, header.as_deref()).map(Some),
            None => Ok(None),
        };
        let key = column(&args.key_column)?.unwrap_or(0);
        let value = match (column(&args.value_column)?, &header) {
            (None, Some(names)) if names.len() == 1 && !args.whole_row => return Err(one_column(&names[0])),
            (Some(column), _) => ValueOf::Column(column),
            (None, Some(names)) => value_of(key, names.len(), args.whole_row),
            (None, None) => ValueOf::FirstRow,
        };
        let header = header.map(|names| names.iter().map(|name| lossy(name)).collect::<Vec<_>>());
        if let (ValueOf::WholeRow { .. }, Some(names)) = (&value, &header) {
            check_names(names)?;
        }
        Ok(Self { key, value, header, form })
    }

    /// Fills `record` from a row.
    pub(super) fn fill(&mut self, record: &mut Record, row: &[&[u8]], whole_row: bool) -> Found {
        let is_first = matches!(self.value, ValueOf::FirstRow);
        if is_first {
            self.value = value_of(self.key, row.len(), whole_row);
        }
        match self.try_fill(record, row) {
            Ok(()) => Found::Entry,
            Err(reason) => {
                // A malformed row decides nothing.
                if is_first {
                    self.value = ValueOf::FirstRow;
                }
                Found::Malformed(reason)
            }
        }
    }

    fn try_fill(&self, record: &mut Record, row: &[&[u8]]) -> Result<(), String> {
        self.read(row, self.key, &mut record.key)?;
        match self.value {
            ValueOf::FirstRow => unreachable!("the first row has decided"),
            ValueOf::Column(column) => self.read(row, column, &mut record.value),
            ValueOf::Other(column) => {
                check_width(row, 2)?;
                self.read(row, column, &mut record.value)
            }
            ValueOf::WholeRow { columns } => {
                check_width(row, columns)?;
                self.whole_row(row, &mut record.value)
            }
        }
    }

    /// The bytes of a column.
    fn read(&self, row: &[&[u8]], column: usize, bytes: &mut Vec<u8>) -> Result<(), String> {
        bytes.clear();
        let text = row.get(column).ok_or_else(|| format!("there is no column {}", column + 1))?;
        let Some(form) = self.form else {
            bytes.extend_from_slice(text);
            return Ok(());
        };
        form.read(text, bytes).map_err(|reason| format!("column {}: {reason}", column + 1))
    }

    /// The row as JSON. Bytes that are not UTF-8 are written in base64, as by `pleach dump`.
    fn whole_row(&self, row: &[&[u8]], out: &mut Vec<u8>) -> Result<(), String> {
        let mut cell = Vec::new();
        let document = if let Some(names) = &self.header {
            let mut object = Map::new();
            for (column, name) in names.iter().enumerate() {
                self.read(row, column, &mut cell)?;
                put_json(&mut object, name, &cell, false);
            }
            Value::Object(object)
        } else {
            let mut cells = Vec::new();
            for column in 0..row.len() {
                self.read(row, column, &mut cell)?;
                let text = std::str::from_utf8(&cell).map_err(|_| not_text(column))?;
                cells.push(json!(text));
            }
            Value::Array(cells)
        };
        out.clear();
        serde_json::to_writer(out, &document).map_err(|e| e.to_string())
    }
}

/// The form of the value of a row of so many columns, if no column was chosen.
fn value_of(key: usize, columns: usize, whole_row: bool) -> ValueOf {
    match (key, columns) {
        (0 | 1, 2) if !whole_row => ValueOf::Other(1 - key),
        // A row of one column has no value: `there is no column 2`.
        (_, 0 | 1) if !whole_row => ValueOf::Other(1),
        _ => ValueOf::WholeRow { columns },
    }
}

fn check_width(row: &[&[u8]], columns: usize) -> Result<(), String> {
    let found = row.len();
    if found < columns {
        return Err(format!("there is no column {}: the row has {found}, others have {columns}", found + 1));
    }
    if found > columns {
        return Err(format!("the row has {found} columns, others have {columns}"));
    }
    Ok(())
}

/// A header of one column: its rows have a key and no value.
fn one_column(name: &[u8]) -> Failure {
    Failure::usage(format!(
        "the csv header has only one column, {:?}, so there is no column for the value",
        lossy(name)
    ))
    .hint("separate columns by commas; if each line is a key without a value, use --format lines")
}

fn not_text(column: usize) -> String {
    format!("column {} is not UTF-8, so the row cannot become a JSON array; use --value-column", column + 1)
}

/// A JSON object has each name once.
fn check_names(names: &[String]) -> Result<()> {
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            return Err(Failure::usage(format!("the header has two columns called {name:?}"))
                .hint("choose one with --value-column NUMBER, or use --no-header"));
        }
    }
    Ok(())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn find_column(given: &str, header: Option<&[Vec<u8>]>) -> Result<usize> {
    if let Some(at) = header.and_then(|names| names.iter().position(|name| name == given.as_bytes())) {
        return Ok(at);
    }
    match given.parse::<usize>() {
        Ok(number @ 1..) => Ok(number - 1),
        Ok(0) => Err(Failure::usage("columns are counted from 1")),
        Err(_) => match header {
            Some(names) => {
                let names: Vec<_> = names.iter().map(|name| lossy(name)).collect();
                Err(Failure::usage(format!("the csv header has no column {given:?}"))
                    .hint(format!("it has: {}", names.join(", "))))
            }
            None => {
                Err(Failure::usage(format!("column {given:?}: there is no header, so give a number from 1")))
            }
        },
    }
}
