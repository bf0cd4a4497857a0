//! Text for bytes and bytes for text: readable escapes, hexadecimal, JSON members, sizes with units.
//!
//! Keys and values are bytes; people and text formats need characters. Every form that this module writes it also reads, and
//! gets the same bytes.
//!
//! # Forms
//! - *escaped*: UTF-8 as it is, but `\\`, `\t`, `\n`, `\r`, and `\xNN` for all other bytes that do not print;
//! - *hex*: two digits a byte;
//! - *JSON*: a member `name` for UTF-8, otherwise `name_base64`; with `--hex` a member `name_hex`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use serde_json::{Map, Value};

use crate::failure::{Failure, Result};

/// The form of bytes as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Escaped,
    Hex,
}

impl Form {
    /// Appends `bytes` to `out`.
    pub(crate) fn write(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Form::Escaped => escape(bytes, out),
            Form::Hex => out.extend_from_slice(HEXLOWER.encode(bytes).as_bytes()),
        }
    }

    /// The same as text.
    pub(crate) fn text(self, bytes: &[u8]) -> String {
        let mut out = Vec::new();
        self.write(bytes, &mut out);
        String::from_utf8(out).expect("both forms write UTF-8")
    }

    /// Appends the bytes of `text` to `out`; the error says what is wrong.
    pub(crate) fn read(self, text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Form::Escaped => unescape(text, out),
            Form::Hex => {
                out.extend_from_slice(&parse_hex(text)?);
                Ok(())
            }
        }
    }
}

/// A key or value given on the command line, verbatim or in hexadecimal.
pub(crate) fn argument(text: &OsStr, hex: bool) -> Result<Vec<u8>> {
    if hex {
        let shown = text.to_string_lossy();
        return parse_hex(text.as_bytes()).map_err(|e| Failure::usage(format!("{shown:?}: {e}")));
    }
    Ok(OsString::from(text).into_vec())
}

/// A key, for messages.
pub(crate) fn shown(key: &[u8], hex: bool) -> String {
    if hex { Form::Hex.text(key) } else { format!("\"{}\"", Form::Escaped.text(key)) }
}

fn parse_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    HEXLOWER_PERMISSIVE
        .decode(text)
        .map_err(|e| format!("not hexadecimal with two digits a byte: {} at position {}", e.kind, e.position))
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.extend_from_slice(b"\\\\"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                // A file that begins with a byte order mark would lose it.
                c if c.is_control() || c == '\u{feff}' => {
                    escape_bytes(c.encode_utf8(&mut [0; 4]).as_bytes(), out);
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        escape_bytes(chunk.invalid(), out);
    }
}

fn escape_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
    }
}

fn unescape(text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&b| b == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let (byte, len) = match rest.get(at + 1) {
            Some(b'\\') => (b'\\', 2),
            Some(b't') => (b'\t', 2),
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(b'x') => (hex_byte(rest.get(at + 2..at + 4))?, 4),
            _ => return Err(bad_escape(&rest[at..])),
        };
        out.push(byte);
        rest = &rest[at + len..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

fn hex_byte(digits: Option<&[u8]>) -> Result<u8, String> {
    let byte = digits.and_then(|digits| HEXLOWER_PERMISSIVE.decode(digits).ok());
    byte.and_then(|byte| byte.first().copied()).ok_or_else(|| "\\x wants two hexadecimal digits".to_owned())
}

fn bad_escape(rest: &[u8]) -> String {
    let start = String::from_utf8_lossy(&rest[..rest.len().min(2)]).into_owned();
    format!("{start:?} is no escape (there are \\\\ \\t \\n \\r \\xNN)")
}

/// Adds `bytes` to a JSON object as `name`, `name_base64` or `name_hex`.
pub(crate) fn put_json(object: &mut Map<String, Value>, name: &str, bytes: &[u8], hex: bool) {
    let (name, text) = match std::str::from_utf8(bytes) {
        _ if hex => (format!("{name}_hex"), HEXLOWER.encode(bytes)),
        Ok(text) => (name.to_owned(), text.to_owned()),
        Err(_) => (format!("{name}_base64"), BASE64.encode(bytes)),
    };
    object.insert(name, Value::String(text));
}

/// The bytes that [`put_json`] added; the error says what is wrong.
pub(crate) fn take_json(object: &Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    let text = |member: &str| object.get(member).and_then(Value::as_str).map(str::as_bytes);
    let (base64, hex) = (format!("{name}_base64"), format!("{name}_hex"));
    if let Some(text) = text(name) {
        Ok(text.to_vec())
    } else if let Some(text) = text(&base64) {
        BASE64.decode(text).map_err(|e| format!("{base64:?} is not base64: {e}"))
    } else if let Some(text) = text(&hex) {
        parse_hex(text).map_err(|e| format!("{hex:?} is {e}"))
    } else {
        Err(format!("no text member {name:?}, {base64:?} or {hex:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: &[u8] = b"a\\b\tc\nd\re\0\x7f\xff\xc3\xa9\xc2\x85z";

    #[test]
    fn escapes_are_readable_and_read_back() {
        assert_eq!(Form::Escaped.text(ODD), "a\\\\b\\tc\\nd\\re\\x00\\x7f\\xff\u{e9}\\xc2\\x85z");
        for form in [Form::Escaped, Form::Hex] {
            let mut back = Vec::new();
            form.read(form.text(ODD).as_bytes(), &mut back).unwrap();
            assert_eq!(back, ODD, "{form:?}");
        }
        for wrong in [&b"a\\"[..], b"\\q", b"\\x", b"\\x1", b"\\xzz"] {
            assert!(unescape(wrong, &mut Vec::new()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn json_members_say_how_bytes_are_written() {
        for (bytes, hex, member) in
            [(&b"text"[..], false, "k"), (ODD, false, "k_base64"), (ODD, true, "k_hex")]
        {
            let mut object = Map::new();
            put_json(&mut object, "k", bytes, hex);
            assert!(object.contains_key(member), "{object:?}");
            assert_eq!(take_json(&object, "k").as_deref(), Ok(bytes));
        }
        assert!(take_json(&Map::new(), "k").is_err());
    }
}
