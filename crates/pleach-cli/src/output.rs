//! The output: standard output or a file for data, standard error for people.
//!
//! Only data and `--json` documents go to standard output. Messages, questions and progress go to standard error. If the
//! reader of the output goes away (`| head`), the command ends quietly with success.

use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, IntoInnerError, IsTerminal, Write};
use std::path::Path;

use console::Style;
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Map, Value};

use crate::bytes::{Form, put_json};
use crate::failure::{Failure, Result};
use crate::replaced::Replacement;

/// Where data goes, buffered.
pub(crate) struct Output(BufWriter<Sink>);

enum Sink {
    /// Written as it comes.
    Direct(Box<dyn Write>),
    /// In its place at the end.
    Replacement(Replacement),
}

impl Output {
    /// Standard output.
    pub(crate) fn stdout() -> Self {
        Self::over(Sink::Direct(Box::new(io::stdout())))
    }

    /// The file at `path`, which is created or replaced by [`Output::finish`]. A device or a pipe is written as the data comes.
    pub(crate) fn file(path: &Path) -> Result<Self> {
        if let Some(replacement) = Replacement::begin(path)? {
            return Ok(Self::over(Sink::Replacement(replacement)));
        }
        let file = File::create(path).map_err(|e| Failure::io("create the output", path, &e))?;
        Ok(Self::over(Sink::Direct(Box::new(file))))
    }

    fn over(sink: Sink) -> Self {
        Self(BufWriter::with_capacity(64 << 10, sink))
    }

    /// Whether nothing is at the output's path until [`Output::finish`], or what was there before.
    pub(crate) fn is_replacement(&self) -> bool {
        matches!(self.0.get_ref(), Sink::Replacement(_))
    }

    /// A line of text.
    pub(crate) fn line(&mut self, text: impl Display) -> Result<()> {
        Ok(writeln!(self.0, "{text}")?)
    }

    /// A JSON document over several lines.
    pub(crate) fn document(&mut self, document: &Value) -> Result<()> {
        serde_json::to_writer_pretty(&mut self.0, document)?;
        self.line("")
    }

    /// An entry as one line of JSON.
    pub(crate) fn json_entry(&mut self, key: &[u8], value: Option<&[u8]>, hex: bool) -> Result<()> {
        let mut object = Map::new();
        put_json(&mut object, "key", key, hex);
        if let Some(value) = value {
            put_json(&mut object, "value", value, hex);
        }
        serde_json::to_writer(&mut self.0, &object)?;
        self.line("")
    }

    /// An entry as key, tab and value, or the key alone.
    pub(crate) fn text_entry(&mut self, key: &[u8], value: Option<&[u8]>, form: Form) -> Result<()> {
        let mut line = Vec::with_capacity(key.len() + value.map_or(0, <[u8]>::len) + 2);
        form.write(key, &mut line);
        if let Some(value) = value {
            line.push(b'\t');
            form.write(value, &mut line);
        }
        line.push(b'\n');
        Ok(self.0.write_all(&line)?)
    }

    /// Writes the buffered bytes, and puts a file in its place. Requires: called at the end, because a drop ignores errors.
    pub(crate) fn finish(self) -> Result<()> {
        match self.0.into_inner().map_err(IntoInnerError::into_error)? {
            Sink::Direct(mut sink) => Ok(sink.flush()?),
            Sink::Replacement(replacement) => replacement.commit(),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Direct(sink) => sink.write(bytes),
            Self::Replacement(replacement) => replacement.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Direct(sink) => sink.flush(),
            Self::Replacement(replacement) => replacement.flush(),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether standard output is a terminal.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// One JSON document on standard output.
pub(crate) fn print_document(document: &Value) -> Result<()> {
    let mut output = Output::stdout();
    output.document(document)?;
    output.finish()
}

/// A message for people. If it cannot be written, the command does what it would do, and its exit code says so.
pub(crate) fn note(message: impl Display) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// A warning: something failed, but the command goes on or prints what it has.
pub(crate) fn complain(message: impl Display) {
    note(format_args!("{}{message}", label("error: ", &Style::new().for_stderr().red().bold())));
}

/// A note: the user should know it, but nothing failed.
pub(crate) fn warn(message: impl Display) {
    note(format_args!("{}{message}", label("warning: ", &Style::new().for_stderr().yellow().bold())));
}

/// The message and hint of a failure.
pub(crate) fn complain_of(failure: &Failure) {
    if !failure.message.is_empty() {
        complain(&failure.message);
    }
    if let Some(hint) = &failure.hint {
        note(format_args!("{}{hint}", label("hint:  ", &Style::new().for_stderr().cyan())));
    }
}

fn label(text: &str, style: &Style) -> String {
    style.apply_to(text).to_string()
}

/// `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// `1.21 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    HumanBytes(number).to_string()
}

/// A number and its noun: `1 line`, `1,234 lines`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// `1 entry` or `2 entries`.
pub(crate) fn entries(number: u64) -> String {
    counted(number, "entry", "entries")
}

/// `1 file` or `2 files`.
pub(crate) fn files(number: u64) -> String {
    counted(number, "file", "files")
}

/// A rate for people; "-" when no time passed.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "rounded for people"
)]
pub(crate) fn per_second(number: u64, seconds: f64) -> u64 {
    if seconds > 0.0 { (number as f64 / seconds).round() as u64 } else { 0 }
}

/// Rows in aligned columns; the first is the heading.
pub(crate) struct Table {
    rows: Vec<Vec<Cow<'static, str>>>,
    /// Columns from this one on are numbers, aligned to the right.
    numbers_from: usize,
}

impl Table {
    pub(crate) fn new(heading: &[&'static str], numbers_from: usize) -> Self {
        Self { rows: vec![heading.iter().map(|&cell| cell.into()).collect()], numbers_from }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into_iter().map(Cow::Owned).collect());
    }

    pub(crate) fn print(&self, output: &mut Output) -> Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| console::measure_text_width(cell))
                .max()
        };
        let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let heading = Style::new().bold();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let padding = " ".repeat(widths[column] - console::measure_text_width(cell));
                line.push_str(if column == 0 { "" } else { "  " });
                let (before, after) = if column >= self.numbers_from {
                    (padding, String::new())
                } else {
                    (String::new(), padding)
                };
                line.push_str(&before);
                line.push_str(cell);
                line.push_str(&after);
            }
            let line = line.trim_end();
            if number == 0 { output.line(heading.apply_to(line))? } else { output.line(line)? }
        }
        Ok(())
    }
}
