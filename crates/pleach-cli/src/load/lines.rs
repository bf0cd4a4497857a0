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
    pub(super) fn new(source: Source, number: bool, hex: bool, crlf: bool) -> Self {
        Self { input: LineReader::new(source, crlf), number, hex, line: Vec::new() }
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

    fn kept_returns(&self) -> u64 {
        self.input.kept_returns
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::all;
    use super::*;

    fn lines(text: &'static str, number: bool, hex: bool) -> Vec<String> {
        all(&mut Lines::new(io::BufReader::new(Box::new(text.as_bytes())), number, hex, false))
    }

    #[test]
    fn a_carriage_return_is_part_of_the_key_unless_it_is_said_to_end_the_line() {
        let lines = |crlf| Lines::new(io::BufReader::new(Box::new(&b"a\r\nb\nc\r"[..])), false, false, crlf);
        let (mut kept, mut ended) = (lines(false), lines(true));
        assert_eq!(all(&mut kept), ["1 a\r=", "2 b=", "3 c\r="]);
        assert_eq!(all(&mut ended), ["1 a=", "2 b=", "3 c\r="]);
        assert_eq!((kept.kept_returns(), ended.kept_returns()), (1, 0));
    }

    #[test]
    fn a_line_is_a_key() {
        assert_eq!(lines("b\na\n\nc", false, false), ["1 b=", "2 a=", "3 =", "4 c="]);
        assert_eq!(lines("b\na\n", true, false), ["1 b=1", "2 a=2"]);
        assert_eq!(lines("62\nx\n", false, true), ["1 b=", "2!"]);
    }
}
