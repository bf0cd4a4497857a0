//! The format `stanzas`: groups of `Field: value` lines with empty lines between them (RFC 822, Debian control files).
//!
//! The value of an entry is its stanza, byte for byte with all its newlines, without the empty lines between stanzas.

use std::io;

use super::record::{Found, LineReader, Record, Records};
use super::source::Source;

pub(super) struct Stanzas {
    lines: LineReader,
    key_field: String,
}

impl Stanzas {
    pub(super) fn new(source: Source, key_field: &str) -> Self {
        Self { lines: LineReader::new(source, false), key_field: key_field.to_owned() }
    }

    /// The value of the key field, if `line` is that field. Names are compared without case.
    fn key_in<'l>(&self, line: &'l [u8]) -> Option<&'l [u8]> {
        let colon = line.iter().position(|&b| b == b':')?;
        line[..colon].eq_ignore_ascii_case(self.key_field.as_bytes()).then(|| line[colon + 1..].trim_ascii())
    }
}

impl Records for Stanzas {
    fn next(&mut self, record: &mut Record) -> io::Result<Found> {
        record.key.clear();
        record.value.clear();
        let mut keys = 0;
        loop {
            let start = record.value.len();
            let len = self.lines.append(&mut record.value)?;
            let line = &record.value[start..];
            if line.trim_ascii().is_empty() {
                record.value.truncate(start);
                match (start, len) {
                    (0, 0) => return Ok(Found::End),
                    (0, _) => continue,
                    _ => break,
                }
            }
            if start == 0 {
                record.line = self.lines.number;
            }
            if let Some(key) = self.key_in(line) {
                keys += 1;
                record.key = key.to_vec();
            }
        }
        let field = &self.key_field;
        Ok(match keys {
            0 => Found::Malformed(format!("the stanza has no field \"{field}\"")),
            1 => Found::Entry,
            _ => Found::Malformed(format!("the stanza has {keys} fields \"{field}\"")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::all;
    use super::*;

    #[test]
    fn a_stanza_is_kept_byte_for_byte() {
        let text = "\nPackage: a\nDescription: x\n Package: no\n .\n y\n\n\nVersion: 1\npackage:b\n\nVersion: 2\n\nPackage: c";
        let source = io::BufReader::new(Box::new(text.as_bytes()) as Box<dyn io::Read>);
        let records = all(&mut Stanzas::new(source, "Package"));
        assert_eq!(
            records,
            [
                "2 a=Package: a\nDescription: x\n Package: no\n .\n y\n",
                "9 b=Version: 1\npackage:b\n",
                "12!",
                "14 c=Package: c",
            ]
        );
    }
}
