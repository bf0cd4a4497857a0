//! Checks the quotes of a CSV input while the bytes pass on to the reader of rows.
//!
//! The reader of rows accepts wrong quotes: it ends an unclosed quoted field at the end of the input, and appends bytes behind a
//! closing quote to the field. Both lose or change data silently, so this module finds them and reports their lines.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::rc::Rc;

use pleach::limits::VALUE_LEN_MAX;

use super::source::Source;

/// Where the bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote in a quoted field: it closes the field, unless another quote follows.
    Closing,
}

#[derive(Debug, Default)]
struct Watch {
    at: At,
    /// Bytes and newlines so far.
    byte: u64,
    newlines: u64,
    /// Byte and line of the quote that opened last.
    opened: (u64, u64),
    /// Byte, line and reason of what is wrong.
    found: VecDeque<(u64, u64, String)>,
}

/// The state of quotes. Shared by the input and its reader.
#[derive(Clone, Debug, Default)]
pub(super) struct Quotes(Rc<RefCell<Watch>>);

impl Quotes {
    /// The line and the reason of the first mistake in the bytes before `end`. Each mistake is returned once.
    pub(super) fn found_before(&self, end: u64) -> Option<(u64, String)> {
        let mut watch = self.0.borrow_mut();
        let mut first = None;
        while watch.found.front().is_some_and(|(byte, ..)| *byte < end) {
            let found = watch.found.pop_front();
            first = first.or(found);
        }
        first.map(|(_, line, reason)| (line, reason))
    }
}

impl Watch {
    fn see(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.at = self.after(b);
            self.byte += 1;
            self.newlines += u64::from(b == b'\n');
        }
    }

    fn after(&mut self, b: u8) -> At {
        match (self.at, b) {
            (At::FieldStart | At::Plain | At::Closing, b',' | b'\n' | b'\r') => At::FieldStart,
            (At::FieldStart, b'"') => {
                self.opened = (self.byte, self.newlines + 1);
                At::Quoted
            }
            (At::Closing, b'"') | (At::Quoted, _) if b != b'"' || self.at == At::Closing => At::Quoted,
            (At::Quoted, _) => At::Closing,
            (At::Closing, _) => {
                let ((_, opened), closed) = (self.opened, self.newlines + 1);
                let reason = format!(
                    "the quote that opens here closes in line {closed} with text right behind it; close it before, or \
                     double the quotes that are part of the text"
                );
                self.found.push_back((self.byte, opened, reason));
                At::Plain
            }
            (At::FieldStart | At::Plain, _) => At::Plain,
        }
    }

    fn end(&mut self) {
        if self.at == At::Quoted {
            let (byte, line) = self.opened;
            let swallowed = self.newlines + 1 - line;
            let reason = format!(
                "the quote that opens here is never closed, so {swallowed} line breaks up to the end of the input \
                 belong to its field; close it, or double it where it is part of the text"
            );
            self.found.push_back((byte, line, reason));
            self.at = At::FieldStart;
        }
    }

    /// Limits the length of a field whose quote is never closed.
    fn check_len(&self) -> io::Result<()> {
        let (byte, line) = self.opened;
        if self.at != At::Quoted || self.byte - byte <= VALUE_LEN_MAX as u64 + (1 << 20) {
            return Ok(());
        }
        let message =
            format!("the quote in line {line} is not closed within the length of the longest value");
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }
}

/// The input, watched.
pub(super) struct Watched {
    source: Source,
    quotes: Quotes,
}

impl Watched {
    pub(super) fn new(source: Source, quotes: Quotes) -> Self {
        Self { source, quotes }
    }
}

impl Read for Watched {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.source.read(out)?;
        let mut watch = self.quotes.0.borrow_mut();
        match len {
            0 if !out.is_empty() => watch.end(),
            _ => watch.see(&out[..len]),
        }
        watch.check_len()?;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> Vec<(u64, u64)> {
        let mut watch = Watch::default();
        watch.see(text.as_bytes());
        watch.end();
        watch.found.iter().map(|(byte, line, _)| (*byte, *line)).collect()
    }

    #[test]
    fn only_open_quotes_and_text_behind_closed_ones_are_wrong() {
        for right in ["a,b\n", "\"a,\"\"b\"\"\n\",c\r\n", "a\"b,c\"\n", "\"\",\"\"", ""] {
            assert_eq!(wrong(right), [], "{right:?}");
        }
        assert_eq!(wrong("a,b\n1,\"x\n2,y\n"), [(6, 2)]);
        assert_eq!(wrong("\"a\"b,\"c\" \n"), [(3, 1), (8, 1)]);
    }
}
