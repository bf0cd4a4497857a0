//! The format `jsonl`: one JSON object a line, as `pleach dump` writes it or any other.

use std::io;

use serde_json::{Map, Value};

use super::record::{Found, LineReader, Record, Records};
use super::source::Source;
use crate::bytes::take_json;

pub(super) struct Jsonl {
    lines: LineReader,
    /// Without it, the objects are those of `pleach dump`.
    key_field: Option<String>,
    /// Without it, the line is the value.
    value_field: Option<String>,
    line: Vec<u8>,
}

impl Jsonl {
    pub(super) fn new(source: Source, key_field: Option<String>, value_field: Option<String>) -> Self {
        Self { lines: LineReader::new(source), key_field, value_field, line: Vec::new() }
    }

    fn fill(&self, record: &mut Record) -> Result<(), String> {
        let object: Map<String, Value> =
            serde_json::from_slice(&self.line).map_err(|e| format!("no JSON object: {e}"))?;
        let Some(key_field) = &self.key_field else {
            record.key = take_json(&object, "key")?;
            record.value = take_json(&object, "value")?;
            return Ok(());
        };
        record.key = field(&object, key_field)?;
        record.value = match &self.value_field {
            Some(value_field) => field(&object, value_field)?,
            None => self.line.clone(),
        };
        Ok(())
    }
}

/// A field's text: of a string its characters, of anything else its JSON.
fn field(object: &Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    match object.get(name) {
        None => Err(format!("there is no field {name:?}")),
        Some(Value::String(text)) => Ok(text.clone().into_bytes()),
        Some(value) => Ok(value.to_string().into_bytes()),
    }
}

impl Records for Jsonl {
    /// Empty lines are passed over.
    fn next(&mut self, record: &mut Record) -> io::Result<Found> {
        while self.lines.read(&mut self.line)? {
            if self.line.trim_ascii().is_empty() {
                continue;
            }
            record.line = self.lines.number;
            return Ok(self.fill(record).map_or_else(Found::Malformed, |()| Found::Entry));
        }
        Ok(Found::End)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::all;
    use super::*;

    fn records(text: &'static str, key: Option<&str>, value: Option<&str>) -> Vec<String> {
        let source = io::BufReader::new(Box::new(text.as_bytes()) as Box<dyn io::Read>);
        all(&mut Jsonl::new(source, key.map(str::to_owned), value.map(str::to_owned)))
    }

    #[test]
    fn objects_of_a_dump_are_read_back() {
        let text = "{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key_base64\":\"Yg==\",\"value_hex\":\"32\"}\n{\"key\":\"c\"}\n[]\n";
        assert_eq!(records(text, None, None), ["1 a=1", "3 b=2", "4!", "5!"]);
    }

    #[test]
    fn fields_give_keys_and_values() {
        let text = "{\"id\":7,\"v\":{\"x\":1}}\n{\"id\":\"e\",\"v\":\"t\"}\n{}";
        assert_eq!(
            records(text, Some("id"), None),
            ["1 7={\"id\":7,\"v\":{\"x\":1}}", "2 e={\"id\":\"e\",\"v\":\"t\"}", "3!"]
        );
        assert_eq!(records(text, Some("id"), Some("v")), ["1 7={\"x\":1}", "2 e=t", "3!"]);
    }
}
