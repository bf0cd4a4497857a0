//! The format `jsonl`: one JSON object a line, as `pleach dump` writes it or any other.

use std::{fmt, io};

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Map;
use serde_json::value::RawValue;

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
        Self { lines: LineReader::new(source, false), key_field, value_field, line: Vec::new() }
    }

    fn fill(&self, record: &mut Record) -> Result<(), String> {
        let Members(members) =
            serde_json::from_slice(&self.line).map_err(|e| format!("no JSON object: {e}"))?;
        let Some(key_field) = &self.key_field else { return fill_dumped(&members, record) };
        record.key = field(&members, key_field)?;
        record.value = match &self.value_field {
            Some(value_field) => field(&members, value_field)?,
            None => self.line.clone(),
        };
        Ok(())
    }
}

/// An object of `pleach dump`: a key and a value, and nothing that would be lost.
fn fill_dumped(members: &[(String, Box<RawValue>)], record: &mut Record) -> Result<(), String> {
    let mut object = Map::new();
    for (name, raw) in members {
        let value = serde_json::from_str(raw.get()).map_err(|e| e.to_string())?;
        object.insert(name.clone(), value);
    }
    record.key = take_json(&object, "key")?;
    record.value = take_json(&object, "value")?;
    if members.len() > 2 {
        let more = members.iter().find(|(name, _)| !name.starts_with("key") && !name.starts_with("value"));
        let name = more.map_or("a second key or value", |(name, _)| name);
        return Err(format!("{name:?} would be lost; use --key-field to keep whole objects"));
    }
    Ok(())
}

/// A field's text: the characters of a string, the JSON of any other value.
fn field(members: &[(String, Box<RawValue>)], name: &str) -> Result<Vec<u8>, String> {
    let (_, raw) = members
        .iter()
        .find(|(member, _)| member == name)
        .ok_or_else(|| format!("there is no field {name:?}"))?;
    if raw.get().starts_with('"') {
        let text: String = serde_json::from_str(raw.get()).map_err(|e| format!("field {name:?}: {e}"))?;
        return Ok(text.into_bytes());
    }
    Ok(raw.get().as_bytes().to_vec())
}

/// The members of an object in their order, with their values as raw JSON, so that no digit of a number is lost.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            if members.iter().any(|(member, _)| *member == name) {
                return Err(A::Error::custom(format!("the field {name:?} stands there twice")));
            }
            members.push((name, value));
        }
        Ok(Members(members))
    }
}

impl Records for Jsonl {
    /// Skips empty lines.
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
    fn nothing_of_an_object_is_lost_silently() {
        let text =
            "{\"key\":\"a\",\"value\":\"1\",\"more\":1}\n{\"key\":\"a\",\"key\":\"b\",\"value\":\"1\"}\n";
        assert_eq!(records(text, None, None), ["1!", "2!"]);
        let text = "{\"id\":12345678901234567890123}\n{\"id\":1.0e2}\n{\"id\":1,\"id\":2}\n";
        let found = records(text, Some("id"), Some("id"));
        assert_eq!(found, ["1 12345678901234567890123=12345678901234567890123", "2 1.0e2=1.0e2", "3!"]);
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
