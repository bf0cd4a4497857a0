//! Reports of damage: one line for each place, or a JSON document.

use std::collections::HashMap;

use pleach::{DamagedPlace, Error, RepairReport};
use serde_json::{Map, Value, json};

use crate::bytes::{put_json, shown};
use crate::output::{complain, count, counted, entries, note};

/// Most places that are listed as text; JSON lists all.
const PLACES_TOLD_MAX: usize = 50;

/// A line for each place, or for all places with the same error: those of a file in several partitions. `places` is how many
/// there are, if not all are listed. Returns how many damaged places a person is told of.
pub(crate) fn tell_places(damage: &[DamagedPlace], places: u64) -> u64 {
    let lines = lines_of(damage);
    for line in lines.iter().take(PLACES_TOLD_MAX) {
        complain(line.text());
    }
    let all = places - damage.len() as u64 + lines.len() as u64;
    let told = lines.len().min(PLACES_TOLD_MAX) as u64;
    if all > told {
        let more = counted(all - told, "more damaged place", "more damaged places");
        note(format!("and {more}; --json lists all of them"));
    }
    all
}

/// Places with the same error.
struct Line<'d> {
    first: &'d DamagedPlace,
    entries: Option<u64>,
    places: u64,
}

fn lines_of(damage: &[DamagedPlace]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut by_error: HashMap<String, usize> = HashMap::new();
    for first in damage {
        let at = *by_error.entry(first.error.to_string()).or_insert(lines.len());
        match (lines.get_mut(at), first.entries) {
            (Some(Line { entries: Some(sum), places, .. }), Some(lost)) => {
                *sum += lost;
                *places += 1;
            }
            _ => lines.push(Line { first, entries: first.entries, places: 1 }),
        }
    }
    lines
}

impl Line<'_> {
    /// The message, and the keys lost.
    fn text(&self) -> String {
        let place = self.first;
        let mut parts = vec![place.error.to_string()];
        if place.error.path() != Some(&place.path) {
            parts.push(format!(" (file {})", place.path.display()));
        }
        if let Some(lost) = self.entries {
            parts.push(lost_text(lost));
        } else if let Some(len) = place.len {
            parts.push(format!("; {}", counted(len, "byte", "bytes")));
        }
        if self.places > 1 {
            parts.push(format!(" in {} partitions, first in", count(self.places)));
        }
        if let Some(partition) = &place.partition {
            let comma = if self.places > 1 { " " } else { ", " };
            parts.push(format!("{comma}{}", partition_text(partition)));
        }
        parts.extend(keys_text(place.lower.as_deref(), place.upper.as_deref()));
        parts.concat()
    }
}

fn lost_text(lost: u64) -> String {
    format!("; {} lost", entries(lost))
}

fn partition_text(name: &str) -> String {
    format!("partition \"{}\"", name.escape_debug())
}

/// The range of keys, or the key if it is one.
fn keys_text(lower: Option<&[u8]>, upper: Option<&[u8]>) -> Option<String> {
    let key = |key: Option<&[u8]>, open: &str| key.map_or_else(|| open.to_owned(), |key| shown(key, false));
    match (lower, upper) {
        (None, None) => None,
        (Some(lower), Some(upper)) if lower == upper => Some(format!(", key {}", shown(lower, false))),
        _ => Some(format!(", keys {} to {}", key(lower, "the first"), key(upper, "the last"))),
    }
}

/// A line for `count` separated values of a partition that cannot be read, all for the same reason.
pub(crate) fn tell_lost_values(error: &Error, count: u64, partition: &str, first: &[u8], last: &[u8]) {
    let keys = keys_text(Some(first), Some(last)).unwrap_or_default();
    complain(format!("{error}{}, {}{keys}", lost_text(count), partition_text(partition)));
}

/// The places as JSON.
pub(crate) fn places_json(damage: &[DamagedPlace]) -> Value {
    let place = |place: &DamagedPlace| {
        let mut object = Map::new();
        object.insert("file".to_owned(), place.path.display().to_string().into());
        object.insert("offset".to_owned(), place.offset.into());
        object.insert("len".to_owned(), place.len.into());
        object.insert("partition".to_owned(), place.partition.clone().into());
        object.insert("entries".to_owned(), place.entries.into());
        for (name, key) in [("lower", &place.lower), ("upper", &place.upper)] {
            if let Some(key) = key {
                put_json(&mut object, name, key, false);
            }
        }
        object.insert("message".to_owned(), place.error.to_string().into());
        Value::Object(object)
    };
    damage.iter().map(place).collect()
}

/// A repair's or survey's report as JSON.
pub(crate) fn report_json(report: &RepairReport) -> Value {
    json!({
        "complete": report.complete,
        "guessed": report.guessed.as_ref().map(ToString::to_string),
        "entries": report.entries,
        "ssts": report.ssts,
        "log_records": report.log_records,
        "bytes": report.bytes,
        "partitions": report.partitions,
        "recovered_names": report.recovered_names,
        "dropped_entries": report.dropped_entries,
        "ignored_files": report.ignored.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "damaged_places": report.damaged_places,
        "damage": places_json(&report.damage),
    })
}
