//! Brief files: the figures of a run that tables and pages show, without the raw data. Documents keep their results in this
//! form.
//!
//! A brief file is an object. `common` holds the fields that are the same in all records, `records` the others of each
//! record. A field that has its default value, which is zero or empty, is left out. The first record of an engine says
//! what the engine is, and those behind it do not. Pages made from brief files have no curve over time.

use serde_json::{Map, Value, json};

use crate::bench::Record;
use crate::engine::Result;

/// The fields of a record that tables and charts show.
const FIELDS: [&str; 32] = [
    "engine",
    "workload",
    "keys",
    "threads",
    "ops",
    "ops_per_s",
    "late_ops_per_s",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "mean_ns",
    "longest_gap_ns",
    "seconds",
    "settle_s",
    "cpu_s",
    "in_flight",
    "cpu_us_per_op",
    "device_reads_per_s",
    "write_amp",
    "write_amp_sst",
    "read_amp",
    "space_amp",
    "peak_space_amp",
    "peak_disk_bytes",
    "peak_rss_bytes",
    "user_written_bytes",
    "error",
    "stopped_after_s",
    "prepared_by",
    "extra",
    "latency_curve",
];
/// Further fields of an engine's first record.
const ENGINE: [&str; 2] = ["about", "capabilities"];
/// Fields that are usually the same in all records, and then stored once.
const CONDITIONS: [&str; 2] = ["config", "machine"];
/// Significant digits kept: more would be noise.
const SIGNIFICANT_DIGITS: usize = 6;

/// The records as a brief file, one record on a line.
pub(crate) fn brief(records: &[Record]) -> Result<String> {
    let defaults = serde_json::to_value(Record::default())?;
    let mut objects: Vec<Map<String, Value>> = Vec::new();
    let mut engines: Vec<(&str, &str)> = Vec::new();
    for record in records {
        let Value::Object(mut object) = serde_json::to_value(record)? else { continue };
        let engine = (&record.engine[..], &record.about[..]);
        let is_known = engines.contains(&engine);
        object.retain(|name, value| {
            let has = |names: &[&str]| names.contains(&&name[..]);
            has(&CONDITIONS)
                || (!is_known && has(&ENGINE))
                || (has(&FIELDS) && defaults.get(name) != Some(value))
        });
        object.values_mut().for_each(round);
        if let Some(config) = object.get_mut("config").and_then(Value::as_object_mut) {
            config.retain(|_, value| !matches!(value, Value::Null | Value::Bool(false)));
        }
        engines.push(engine);
        objects.push(object);
    }
    let mut common = objects.first().cloned().unwrap_or_default();
    common.retain(|name, value| objects.iter().all(|object| object.get(name) == Some(value)));
    for object in &mut objects {
        object.retain(|name, _| !common.contains_key(name));
    }
    let lines = objects.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    let common = serde_json::to_string(&common)?;
    Ok(format!("{{\"common\":{common},\n\"records\":[\n{}\n]}}\n", lines.join(",\n")))
}

/// Reads the records of a brief file, or of a file written with `--json`.
pub(crate) fn read(text: &str) -> Result<Vec<Record>> {
    let mut file: Value = serde_json::from_str(text)?;
    let common = file.get_mut("common").map(Value::take);
    let Some(Value::Object(common)) = common else { return Ok(serde_json::from_value(file)?) };
    let mut records = file.get_mut("records").map(Value::take).unwrap_or_default();
    for record in records.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        record.extend(common.clone());
    }
    Ok(serde_json::from_value(records)?)
}

/// Rounds every fraction in a value.
fn round(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let text = format!("{:.*e}", SIGNIFICANT_DIGITS - 1, number.as_f64().unwrap_or_default());
            *value = json!(text.parse::<f64>().unwrap_or_default());
        }
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(members) => members.values_mut().for_each(round),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{html, markdown};

    #[test]
    fn reports_of_a_brief_file_are_those_of_the_whole() {
        let record = |engine: &str, ops_per_s| Record {
            engine: engine.into(),
            workload: "fillseq".into(),
            threads: 2,
            ops: 10,
            ops_per_s,
            p50_ns: 500,
            write_amp: Some(1.234_567_8),
            user_written_bytes: 7,
            latency_curve: vec![(50.0, 500), (99.0, 700)],
            prepared_by: vec!["fillrandom".into()],
            about: "an engine".into(),
            ..Record::default()
        };
        let mut records = [record("a", 1_234_567.891), record("b", 2e6), record("a", 1e6)];
        records[1].stopped_after_s = Some(1.5);
        let text = brief(&records).expect("it is JSON");
        let again = read(&text).expect("it is whole");
        // Once for each engine.
        assert_eq!(text.matches("about").count(), 2, "{text}");
        assert!(text.contains("1234570.0") && !text.contains("series"), "{text}");
        assert_eq!(html(&again, None).ok(), html(&records, None).ok());
        assert_eq!(markdown(&again, None).ok(), markdown(&records, None).ok());
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(read("[{\"engine\":\"a\"}]").expect("an array")[0].engine, "a");
        assert!(read("[]").expect("an array").is_empty());
        assert!(read("{}").is_err() && read("").is_err());
    }
}
