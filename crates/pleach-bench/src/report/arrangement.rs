//! The arrangement of records: those that were measured under the same conditions, by workload, engines side by side.
//! Every report is drawn from it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::units::{bytes, count};
use crate::bench::{Record, Settings};
use crate::engine::Result;

/// All records of a report.
pub(super) struct Arrangement<'a> {
    /// Names in order of appearance: their places are their colours.
    pub(super) engines: Vec<&'a str>,
    /// The engine that the others are compared with.
    pub(super) baseline: &'a str,
    pub(super) setups: Vec<Setup<'a>>,
}

/// Workloads that were run under the same conditions.
pub(super) struct Setup<'a> {
    /// The settings that figures depend on, in a line. Threads are part of the workload.
    pub(super) conditions: String,
    pub(super) groups: Vec<Group<'a>>,
}

/// One workload on several engines.
pub(super) struct Group<'a> {
    /// What the workload is called here: `readrandom, 2 threads` where the report has more than one number of threads,
    /// `overwrite (again)` where an engine ran it twice.
    pub(super) label: String,
    pub(super) workload: &'a str,
    pub(super) records: Vec<&'a Record>,
}

impl<'a> Arrangement<'a> {
    /// Arranges `records`; the baseline is the first engine unless it is named.
    ///
    /// # Errors
    /// There is no such baseline.
    pub(super) fn new(records: &'a [Record], baseline: Option<&str>) -> Result<Self> {
        let mut engines: Vec<&str> = Vec::new();
        for record in records {
            if !engines.contains(&&record.engine[..]) {
                engines.push(&record.engine);
            }
        }
        let baseline = match baseline {
            None => engines.first().copied().unwrap_or_default(),
            Some(name) => engines
                .iter()
                .find(|engine| **engine == name)
                .ok_or_else(|| format!("--baseline: there is no record of an engine {name:?}"))?,
        };
        Ok(Self { engines, baseline, setups: setups(records) })
    }

    /// The place of an engine's name.
    pub(super) fn colour(&self, record: &Record) -> usize {
        self.engines.iter().position(|name| **name == record.engine).unwrap_or(0)
    }
}

impl<'a> Group<'a> {
    pub(super) fn of(&self, engine: &str) -> Option<&'a Record> {
        self.records.iter().find(|record| record.engine == engine).copied()
    }

    /// Those that ran the whole workload: only these can be the best.
    pub(super) fn complete(&self) -> impl Iterator<Item = &'a Record> {
        self.measured().filter(|record| record.stopped_after_s.is_none())
    }

    /// Those that have figures.
    pub(super) fn measured(&self) -> impl Iterator<Item = &'a Record> {
        self.records.iter().copied().filter(|record| record.error.is_none())
    }
}

fn setups(records: &[Record]) -> Vec<Setup<'_>> {
    let mut setups: Vec<Setup<'_>> = Vec::new();
    let labels = labels(records);
    for (record, label) in records.iter().zip(labels) {
        let conditions = conditions(record);
        let at = setups.iter().position(|setup| setup.conditions == conditions).unwrap_or(setups.len());
        if at == setups.len() {
            setups.push(Setup { conditions, groups: Vec::new() });
        }
        let groups = &mut setups[at].groups;
        match groups.iter_mut().find(|group| group.label == label) {
            Some(group) => group.records.push(record),
            None => groups.push(Group { label, workload: &record.workload, records: vec![record] }),
        }
    }
    setups
}

/// The label of each record's workload. No engine has two of the same label under the same conditions.
pub(super) fn labels(records: &[Record]) -> Vec<String> {
    let fewest = records.iter().map(|record| record.threads).min().unwrap_or(1);
    let mut times: BTreeMap<(&str, String, String), u32> = BTreeMap::new();
    let label = |record| {
        let record: &Record = record;
        let mut label = record.workload.clone();
        if record.threads > fewest {
            let _infallible = write!(label, ", {} threads", record.threads);
        }
        let times = times.entry((&record.engine, conditions(record), label.clone())).or_default();
        *times += 1;
        match *times {
            1 => {}
            2 => label += " (again)",
            n => {
                let _infallible = write!(label, " ({n})");
            }
        }
        label
    };
    records.iter().map(label).collect()
}

/// Threads in words.
pub(super) fn threads(number: usize) -> String {
    if number == 1 { "1 thread".into() } else { format!("{number} threads") }
}

/// The settings that figures depend on, apart from the workload and its threads, in a line.
fn conditions(record: &Record) -> String {
    let config = &record.config;
    let mut line = format!(
        "{} {} keys, values {} B, {} memory",
        count(record.keys as f64),
        word(config, "key_set"),
        config.value_size,
        bytes(config.memory as f64),
    );
    if config.direct {
        line += ", direct reads";
    }
    if config.compression {
        line += ", compressed";
    }
    if let Some(limit) = config.memory_limit {
        let _infallible = write!(line, ", process limited to {}", bytes(limit as f64));
    }
    if word(config, "durability") == "sync" {
        line += ", every write synced";
    }
    if let Some(rate) = config.rate {
        let _infallible = write!(line, ", {} operations a second scheduled", count(rate));
    }
    for option in options(config, &TOLD_OTHERWISE) {
        let _infallible = write!(line, ", {option}");
    }
    line
}

/// Settings that [`conditions`] tells in words, that records have themselves, or that no figure depends on.
const TOLD_OTHERWISE: [&str; 18] = [
    "engines",
    "workloads",
    "keys",
    "key_set",
    "value_size",
    "threads",
    "seed",
    "rate",
    "memory",
    "memory_limit",
    "durability",
    "direct",
    "compression",
    "machine_lock",
    "dir",
    "keep",
    "reuse",
    "rounds",
];

/// The settings that are not their defaults as options of the command line, but `without`.
pub(super) fn options(settings: &Settings, without: &[&str]) -> Vec<String> {
    let ours = serde_json::to_value(settings).unwrap_or_default();
    let defaults = serde_json::to_value(Settings::default()).unwrap_or_default();
    let told = |(name, value): (&String, &Value)| {
        if without.contains(&&name[..]) || defaults.get(name) == Some(value) {
            return None;
        }
        let text = match value {
            Value::Bool(_) => String::new(),
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some(format!("--{} {text}", name.replace('_', "-")).trim_end().to_owned())
    };
    ours.as_object().into_iter().flatten().filter_map(told).collect()
}

/// A setting as its JSON has it.
fn word(config: &Settings, name: &str) -> String {
    let value = serde_json::to_value(config).unwrap_or_default();
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(engine: &str, workload: &str, threads: usize) -> Record {
        Record { engine: engine.into(), workload: workload.into(), threads, ..Record::default() }
    }

    #[test]
    fn threads_are_named_where_they_differ() {
        let records = [record("a", "get", 1), record("a", "get", 2), record("b", "get", 1)];
        assert_eq!(labels(&records), ["get", "get, 2 threads", "get"]);
        assert_eq!(labels(&records[1..2]), ["get"]);
    }

    #[test]
    fn the_same_again_is_a_row_of_its_own() {
        let twice = || record("a", "get", 1);
        let records = [twice(), twice(), record("b", "get", 1), twice()];
        let arrangement = Arrangement::new(&records, None).expect("there is a baseline");
        let [setup] = &arrangement.setups[..] else { panic!("one setup") };
        let rows: Vec<_> = setup.groups.iter().map(|group| (&group.label[..], group.records.len())).collect();
        assert_eq!(rows, [("get", 2), ("get (again)", 1), ("get (3)", 1)]);
        assert!(setup.groups[0].of("b").is_some() && setup.groups[1].of("b").is_none());
    }

    #[test]
    fn other_conditions_are_apart() {
        let mut records = [record("a", "get", 1), record("b", "get", 1), record("b", "get", 1)];
        records[2].config.memory_limit = Some(1 << 30);
        let arrangement = Arrangement::new(&records, Some("b")).expect("there is a baseline");
        assert_eq!(arrangement.setups.len(), 2);
        assert!(arrangement.setups[1].conditions.contains("limited to 1.00 GiB"));
        assert_eq!((arrangement.engines.clone(), arrangement.baseline), (vec!["a", "b"], "b"));
        assert!(Arrangement::new(&records, Some("c")).is_err());
    }

    #[test]
    fn every_setting_of_a_figure_is_a_condition() {
        let words = "--batch 5 --no-settle --duration 2 --tune pleach.x=1,pleach.y=2 --threads 3 --seed 4 --keep --direct";
        let config =
            Settings::from_words(&words.split(' ').collect::<Vec<_>>()).expect("they are well-formed");
        let told = conditions(&Record { config, ..record("a", "get", 3) });
        for option in
            ["direct reads", "--batch 5", "--no-settle", "--duration 2", "--tune pleach.x=1,pleach.y=2"]
        {
            assert!(told.contains(option), "{told}");
        }
        assert!(
            !["--threads", "--seed", "--keep", "--direct"].iter().any(|option| told.contains(option)),
            "{told}"
        );
    }
}
