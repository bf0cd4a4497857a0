//! The formats of a dump.

use std::io::Write;

use crate::bytes::{Form, shown};
use crate::failure::{Failure, Result};
use crate::output::Output;

/// Writes entries in one format.
pub(super) trait Writer {
    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes the buffered bytes.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// One JSON object a line.
pub(super) struct Jsonl {
    pub(super) output: Output,
    pub(super) hex: bool,
}

impl Writer for Jsonl {
    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.output.json_entry(key, Some(value), self.hex)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.output.finish()
    }
}

/// Key, tab, value.
pub(super) struct Tsv {
    pub(super) output: Output,
    pub(super) form: Form,
}

impl Writer for Tsv {
    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.output.text_entry(key, Some(value), self.form)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.output.finish()
    }
}

/// Comma-separated, with a header.
pub(super) struct Csv {
    rows: csv::Writer<Output>,
    hex: bool,
}

impl Csv {
    pub(super) fn new(output: Output, hex: bool) -> Result<Self> {
        let mut rows = csv::Writer::from_writer(output);
        rows.write_record(["key", "value"])?;
        Ok(Self { rows, hex })
    }
}

impl Writer for Csv {
    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.hex {
            return Ok(self.rows.write_record([Form::Hex.text(key), Form::Hex.text(value)])?);
        }
        Ok(self.rows.write_record([key, value])?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.rows.into_inner().map_err(csv::IntoInnerError::into_error)?.finish()
    }
}

/// Keys as lines, as `load --format lines` reads them.
pub(super) struct Lines {
    pub(super) output: Output,
    pub(super) hex: bool,
}

impl Writer for Lines {
    fn entry(&mut self, key: &[u8], _value: &[u8]) -> Result<()> {
        if self.hex {
            return self.output.line(Form::Hex.text(key));
        }
        if key.contains(&b'\n') {
            let key = shown(key, false);
            return Err(Failure::usage(format!("the key {key} has a newline, so it is not a line"))
                .hint("use --hex, or choose another format"));
        }
        self.output.write_all(key)?;
        Ok(self.output.write_all(b"\n")?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.output.finish()
    }
}

/// Values unchanged, with a newline or an empty line after each.
pub(super) struct Values {
    pub(super) output: Output,
    pub(super) stanzas: bool,
}

impl Writer for Values {
    fn entry(&mut self, _key: &[u8], value: &[u8]) -> Result<()> {
        self.output.write_all(value)?;
        // A stanza ends with a newline, except perhaps the last one of an input.
        if self.stanzas && !value.ends_with(b"\n") {
            self.output.write_all(b"\n")?;
        }
        Ok(self.output.write_all(b"\n")?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.output.finish()
    }
}
