//! Reports of damage: one line for each place, or a JSON document.

use pleach::{DamagedPlace, RepairReport};
use serde_json::{Map, Value, json};

use crate::bytes::{put_json, shown};
use crate::output::{complain, counted, entries, note};

/// Most places that are listed as text; JSON lists all.
const PLACES_TOLD_MAX: usize = 50;

/// A line for each place.
pub(crate) fn tell_places(damage: &[DamagedPlace], places: u64) {
    for place in damage.iter().take(PLACES_TOLD_MAX) {
        complain(text(place));
    }
    let told = damage.len().min(PLACES_TOLD_MAX) as u64;
    if places > told {
        let more = counted(places - told, "more damaged place", "more damaged places");
        note(format!("and {more}; --json lists all of them"));
    }
}

/// The message, and the keys lost.
fn text(place: &DamagedPlace) -> String {
    let mut parts = vec![place.error.to_string()];
    if place.error.path() != Some(&place.path) {
        parts.push(format!(" (file {})", place.path.display()));
    }
    if let Some(lost) = place.entries {
        parts.push(format!("; {} lost", entries(lost)));
    } else if let Some(len) = place.len {
        parts.push(format!("; {}", counted(len, "byte", "bytes")));
    }
    if let Some(partition) = &place.partition {
        parts.push(format!(", partition \"{}\"", partition.escape_debug()));
    }
    if place.lower.is_some() || place.upper.is_some() {
        let key = |key: &Option<Vec<u8>>, open: &str| {
            key.as_ref().map_or_else(|| open.to_owned(), |key| shown(key, false))
        };
        parts.push(format!(", keys {} to {}", key(&place.lower, "the first"), key(&place.upper, "the last")));
    }
    parts.concat()
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
