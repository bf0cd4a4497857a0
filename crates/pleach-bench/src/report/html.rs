//! The report as a page: one file, nothing loaded from elsewhere, no script.

use std::fmt::Write as _;

use serde_json::Value;

use super::chart::{Axis, Bar, COLOURS, Line, bars, escape, lines};
use super::style::STYLE;
use super::units::{bytes, count, nanos, ratio};
use crate::bench::{Record, Settings};
use crate::engine::{Capabilities, Removal};
use crate::measure::Machine;
use crate::workload;

/// Most points of a line over time; more buckets are averaged.
const TIME_POINTS_MAX: usize = 160;

/// Records that were measured alike and are compared.
struct Group<'a> {
    title: &'a str,
    subtitle: String,
    records: Vec<&'a Record>,
}

/// The page for `records`.
pub(crate) fn html(records: &[Record]) -> String {
    let engines = engines(records);
    let groups = groups(records);
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">";
    page += "<title>Pleach benchmark</title>";
    let _infallible = write!(page, "<style>{STYLE}{}</style></head><body><main>", colour_rules());
    page += &head(records);
    page += &overview(&groups);
    for group in &groups {
        page += &section(group, &engines);
    }
    page += &configurations(records, &engines);
    page + "</main></body></html>\n"
}

/// Names of engines in order of appearance: their places are their colours.
fn engines(records: &[Record]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for record in records {
        if !names.contains(&&record.engine[..]) {
            names.push(&record.engine);
        }
    }
    names
}

fn groups(records: &[Record]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for record in records {
        let subtitle = conditions(record);
        match groups.iter_mut().find(|group| group.title == record.workload && group.subtitle == subtitle) {
            Some(group) => group.records.push(record),
            None => {
                groups.push(Group { title: &record.workload, subtitle, records: vec![record] });
            }
        }
    }
    groups
}

/// What figures depend on, in a line.
fn conditions(record: &Record) -> String {
    let config = &record.config;
    let threads = if record.threads == 1 { "1 thread".into() } else { format!("{} threads", record.threads) };
    let mut line = format!(
        "{threads}, {} {} keys, values {} B, {} memory",
        count(record.keys as f64),
        word(config, "key_set"),
        config.value_size,
        bytes(config.memory as f64),
    );
    if config.direct {
        line += ", direct reads";
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
    line
}

/// A setting as its JSON has it.
fn word(config: &Settings, name: &str) -> String {
    let value = serde_json::to_value(config).unwrap_or_default();
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn colour_rules() -> String {
    (0..COLOURS).fold(String::new(), |mut rules, at| {
        let _infallible =
            write!(rules, ".c{at}{{fill:var(--c{at});background:var(--c{at})}}.l{at}{{stroke:var(--c{at})}}");
        rules
    })
}

fn head(records: &[Record]) -> String {
    let mut head = String::from("<h1>Pleach benchmark</h1>");
    let mut machines: Vec<&Machine> = Vec::new();
    for record in records {
        if !machines.contains(&&record.machine) {
            machines.push(&record.machine);
        }
    }
    for machine in machines {
        let _infallible = write!(
            head,
            "<p class=\"soft\">{}, {} cores, {} memory, {}, {}</p>",
            escape(&machine.processor),
            machine.cores,
            bytes(machine.memory_bytes as f64),
            escape(&machine.kernel),
            escape(&machine.file_system),
        );
    }
    head += "<p class=\"soft\">Longer bars are better for operations a second, worse for everything else. WA, RA, SA: \
             bytes written, read and stored per byte of the user's.</p>";
    head
}

fn overview(groups: &[Group<'_>]) -> String {
    let mut table = String::from("<section><h2>Overview</h2><div class=\"wide\"><table><tr><th>engine</th>");
    for (name, _) in COLUMNS {
        let _infallible = write!(table, "<th>{name}</th>");
    }
    table += "</tr>";
    for group in groups {
        let (title, subtitle, width) = (escape(group.title), escape(&group.subtitle), COLUMNS.len());
        let _infallible = write!(
            table,
            "<tr class=\"first\" title=\"{subtitle}\"><td>{title}</td><td colspan=\"{width}\"></td></tr>"
        );
        for record in &group.records {
            let _infallible = write!(table, "<tr><td>{}</td>", escape(&record.engine));
            for (_, cell) in COLUMNS {
                let _infallible = write!(table, "<td>{}</td>", cell(record));
            }
            table += "</tr>";
        }
    }
    table + "</table></div></section>"
}

type Column = (&'static str, fn(&Record) -> String);

/// The overview's columns after the engine's name.
const COLUMNS: &[Column] = &[
    ("threads", |record| record.threads.to_string()),
    ("ops/s", |record| count(record.ops_per_s)),
    ("p50", |record| nanos(record.p50_ns as f64)),
    ("p99", |record| nanos(record.p99_ns as f64)),
    ("p99.9", |record| nanos(record.p999_ns as f64)),
    ("max", |record| nanos(record.max_ns as f64)),
    ("WA", |record| ratio(record.write_amp)),
    ("RA", |record| ratio(record.read_amp)),
    ("SA", |record| ratio(record.space_amp)),
    ("peak disk", |record| bytes(record.peak_disk_bytes as f64)),
    ("peak RSS", |record| bytes(record.peak_rss_bytes as f64)),
    ("CPU", |record| format!("{:.1} s", record.cpu_s)),
];

fn section(group: &Group<'_>, engines: &[&str]) -> String {
    let about = workload::find(group.title).map_or("", |workload| workload.about);
    let mut text = format!(
        "<section><h2>{}</h2><p class=\"soft\">{}<br>{}</p>",
        escape(group.title),
        escape(about),
        escape(&group.subtitle)
    );
    let colour = |record: &Record| engines.iter().position(|name| **name == record.engine).unwrap_or(0);
    text += "<ul class=\"key\">";
    for record in &group.records {
        let (colour, name) = (colour(record) % COLOURS, escape(&record.engine));
        let _infallible = write!(text, "<li><i class=\"c{colour}\"></i>{name}</li>");
    }
    text += "</ul><div class=\"grid\">";
    for (title, value, as_text) in MEASURES {
        let shown: Vec<Bar> = group
            .records
            .iter()
            .filter_map(|record| {
                let number = value(record)?;
                Some(Bar {
                    name: record.engine.clone(),
                    value: number,
                    text: as_text(number),
                    colour: colour(record),
                })
            })
            .collect();
        if !shown.is_empty() {
            let _infallible = write!(text, "<div><h3>{title}</h3>{}</div>", bars(title, &shown));
        }
    }
    text += "</div><div class=\"grid curves\">";
    text += &latency_chart(group, &colour);
    text += &time_chart(group, &colour);
    text + "</div></section>"
}

type Measure = (&'static str, fn(&Record) -> Option<f64>, fn(f64) -> String);

/// What bars are drawn of.
const MEASURES: &[Measure] = &[
    ("Operations a second", |record| Some(record.ops_per_s), count),
    ("99th percentile latency", |record| (record.p99_ns > 0).then_some(record.p99_ns as f64), nanos),
    ("Write amplification", |record| record.write_amp, |number| ratio(Some(number))),
    (
        "Space amplification",
        |record| record.space_amp.filter(|_| record.user_written_bytes > 0),
        |number| ratio(Some(number)),
    ),
    ("Peak memory (RSS)", |record| Some(record.peak_rss_bytes as f64), bytes),
];

fn latency_chart(group: &Group<'_>, colour: &dyn Fn(&Record) -> usize) -> String {
    let curves: Vec<Line> = group
        .records
        .iter()
        .filter(|record| record.latency_curve.len() > 1)
        .map(|record| Line {
            name: record.engine.clone(),
            points: record.latency_curve.iter().map(|&(percentile, ns)| (percentile, ns as f64)).collect(),
            colour: colour(record),
        })
        .collect();
    if curves.is_empty() {
        return String::new();
    }
    let points = || curves.iter().flat_map(|line| &line.points);
    let x_axis = Axis::Percentile { max: points().map(|point| point.0).fold(90.0, f64::max) };
    let low = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let y_axis = Axis::LogNanos { low, high: points().map(|point| point.1).fold(10.0, f64::max) };
    let title = "Latency by percentile";
    format!(
        "<div><h3>{title}</h3>{}</div>",
        lines(title, &x_axis, &y_axis, "share of operations at most as slow", &curves)
    )
}

fn time_chart(group: &Group<'_>, colour: &dyn Fn(&Record) -> usize) -> String {
    let over_time: Vec<Line> = group
        .records
        .iter()
        .map(|record| Line { name: record.engine.clone(), points: rates(record), colour: colour(record) })
        .filter(|line| line.points.len() > 1)
        .collect();
    if over_time.is_empty() {
        return String::new();
    }
    let points = || over_time.iter().flat_map(|line| &line.points);
    let x_axis = Axis::Linear { max: points().map(|point| point.0).fold(0.1, f64::max), unit: " s" };
    let y_axis = Axis::Linear { max: points().map(|point| point.1).fold(1.0, f64::max), unit: "" };
    let title = "Operations a second over time";
    format!(
        "<div><h3>{title}</h3>{}</div>",
        lines(title, &x_axis, &y_axis, "time since the start", &over_time)
    )
}

/// Seconds and operations a second. The last bucket is not a whole one and is left out.
fn rates(record: &Record) -> Vec<(f64, f64)> {
    let bucket_s = record.series.bucket_ms as f64 / 1000.0;
    let whole = &record.series.ops[..record.series.ops.len().saturating_sub(1)];
    let together = whole.len().div_ceil(TIME_POINTS_MAX).max(1);
    let rate = |(at, ops): (usize, &[u64])| {
        let width_s = bucket_s * ops.len() as f64;
        let middle_s = bucket_s * (at * together) as f64 + width_s / 2.0;
        (middle_s, ops.iter().sum::<u64>() as f64 / width_s)
    };
    whole.chunks(together).enumerate().map(rate).collect()
}

/// Which engines these were and how to repeat the runs.
fn configurations(records: &[Record], engines: &[&str]) -> String {
    let mut text = String::from("<section><h2>Engines and commands</h2><dl>");
    for name in engines {
        let Some(record) = records.iter().find(|record| record.engine == *name) else { continue };
        let _infallible = write!(
            text,
            "<dt>{}</dt><dd>{} ({})</dd>",
            escape(name),
            escape(&record.about),
            abilities(record.capabilities)
        );
    }
    text += "</dl><details><summary>Commands</summary>";
    let mut commands: Vec<String> = records.iter().map(|record| command(&record.config)).collect();
    commands.dedup();
    for command in commands {
        let _infallible = write!(text, "<p><code>{}</code></p>", escape(&command));
    }
    text + "</details></section>"
}

fn abilities(capabilities: Capabilities) -> String {
    let removal = match capabilities.partition_removal {
        Removal::Native => "drops partitions whole",
        Removal::Range => "drops partitions by range tombstones",
        Removal::KeyByKey => "drops partitions key by key",
    };
    let named = [
        (capabilities.direct_reads, "direct reads"),
        (capabilities.compression, "compression"),
        (capabilities.atomic_batches, "atomic batches"),
        (capabilities.native_get_many, "reads many at once"),
        (capabilities.async_get, "asynchronous reads"),
    ];
    let mut words: Vec<&str> = named.into_iter().filter_map(|(has, word)| has.then_some(word)).collect();
    words.push(removal);
    words.join(", ")
}

/// The command line that says the same as `settings`, as far as it differs from the defaults.
fn command(settings: &Settings) -> String {
    let ours = serde_json::to_value(settings).unwrap_or_default();
    let defaults = serde_json::to_value(Settings::default()).unwrap_or_default();
    let mut command = String::from("pleach-bench");
    for (name, value) in ours.as_object().into_iter().flatten() {
        if name == "dir" || defaults.get(name) == Some(value) {
            continue;
        }
        let text = match value {
            Value::Bool(_) => String::new(),
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let _infallible = write!(command, " --{} {text}", name.replace('_', "-"));
        command.truncate(command.trim_end().len());
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_what_differs() {
        let words = ["--keys", "5", "--engines", "a,b", "--keep", "--value-size", "uniform:1-2"];
        let settings = Settings::from_words(&words).expect("they are well-formed");
        assert_eq!(command(&settings), "pleach-bench --engines a,b --keys 5 --value-size uniform:1-2 --keep");
        assert_eq!(command(&Settings::default()), "pleach-bench");
    }

    #[test]
    fn long_runs_are_averaged() {
        let mut record = Record::default();
        record.series.bucket_ms = 100;
        record.series.ops = vec![10; 1001];
        let rates = rates(&record);
        assert!(rates.len() <= TIME_POINTS_MAX && rates.iter().all(|rate| (rate.1 - 100.0).abs() < 1e-9));
    }
}
