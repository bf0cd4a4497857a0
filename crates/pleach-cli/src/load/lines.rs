//! The format `lines`: each line is a key.

use std::io;

use super::record::{Found, LineReader, Record, Records};
use super::source::Source;
use crate::bytes::Form;

pub(super) struct Lines {
    input: LineReader,
    number: bool,
    hex: bool,
    line: Vec<u8>,
}

impl Lines {
    pub(super) fn new(source: Source, number: bool, hex: bool) -> Self {
        Self { input: LineReader::new(source), number, hex, line: Vec::new() }
    }
}

impl Records for Lines {
    fn next(&mut self, record: &mut Record) -> io::Result<Found> {
        if !self.input.read(&mut self.line)? {
            return Ok(Found::End);
        }
        record.line = self.input.number;
        record.key.clear();
        record.value.clear();
        if self.number {
            record.value.extend_from_slice(record.line.to_string().as_bytes());
        }
        if self.hex {
            return Ok(Form::Hex
                .read(&self.line, &mut record.key)
                .map_or_else(Found::Malformed, |()| Found::Entry));
        }
        record.key.extend_from_slice(&self.line);
        Ok(Found::Entry)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::all;
    use super::*;

    fn lines(text: &'static str, number: bool, hex: bool) -> Vec<String> {
        all(&mut Lines::new(io::BufReader::new(Box::new(text.as_bytes())), number, hex))
    }

    #[test]
    fn a_line_is_a_key() {
        assert_eq!(lines("b\na\n\nc", false, false), ["1 b=", "2 a=", "3 =", "4 c="]);
        assert_eq!(lines("b\na\n", true, false), ["1 b=1", "2 a=2"]);
        assert_eq!(lines("62\nx\n", false, true), ["1 b=", "2!"]);
    }
}
