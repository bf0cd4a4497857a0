//! The report as a page: one file, nothing loaded from elsewhere, no script.

use std::fmt::Write as _;

use super::arrangement::{Arrangement, Group, options, threads};
use super::chart::{Axis, Bar, COLOURS, Line, bars, escape, lines};
use super::measures::{self, Measure};
use super::overview::{anchor, overview};
use super::style::STYLE;
use super::units::bytes;
use crate::bench::{Record, Settings};
use crate::engine::{Capabilities, Removal, Result};
use crate::measure::Machine;
use crate::workload;

/// Most points of a line over time; more buckets are averaged.
const TIME_POINTS_MAX: usize = 100;

/// What bars are drawn of.
const BARS: [Measure; 6] = [
    measures::THROUGHPUT,
    measures::P99,
    measures::WRITE_AMP,
    measures::READ_AMP,
    measures::SPACE_AMP,
    measures::PEAK_RSS,
];

/// The page for `records`, which are compared with the engine `baseline`, or else with the first.
pub(crate) fn html(records: &[Record], baseline: Option<&str>) -> Result<String> {
    let arrangement = Arrangement::new(records, baseline)?;
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">";
    page += "<title>Pleach benchmark</title>";
    let _infallible = write!(page, "<style>{STYLE}{}</style></head><body><main>", colour_rules());
    page += &head(records, &arrangement);
    for (number, setup) in arrangement.setups.iter().enumerate() {
        page += &overview(&arrangement, setup, number);
    }
    for (number, setup) in arrangement.setups.iter().enumerate() {
        for (at, group) in setup.groups.iter().enumerate() {
            page += &section(group, &arrangement, &setup.conditions, &anchor(number, at));
        }
    }
    page += &configurations(records, &arrangement.engines);
    Ok(page + "</main></body></html>\n")
}

fn colour_rules() -> String {
    (0..COLOURS).fold(String::new(), |mut rules, at| {
        let _infallible =
            write!(rules, ".c{at}{{fill:var(--c{at});background:var(--c{at})}}.l{at}{{stroke:var(--c{at})}}");
        rules
    })
}

fn head(records: &[Record], arrangement: &Arrangement<'_>) -> String {
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
    let fewest = records.iter().map(|record| record.threads).min().unwrap_or(1);
    let _infallible = write!(
        head,
        "<p class=\"soft\">{} unless a workload says otherwise. The best of a row is bold; small figures are multiples of \
         {}'s. Longer bars are better for operations a second, worse for everything else. WA, RA, SA: bytes written, \
         read and stored per byte of the user's.</p>",
        threads(fewest),
        escape(arrangement.baseline),
    );
    head
}

fn section(group: &Group<'_>, arrangement: &Arrangement<'_>, conditions: &str, anchor: &str) -> String {
    let about = workload::find(group.workload).map_or("", |workload| workload.about);
    let of_threads = group.records.first().map_or(1, |record| record.threads);
    let mut text = format!(
        "<section id=\"{anchor}\"><h2>{}</h2><p class=\"soft\">{}<br>{}, {}</p>",
        escape(&group.label),
        escape(about),
        threads(of_threads),
        escape(conditions)
    );
    text += "<ul class=\"key\">";
    for record in group.measured() {
        let (colour, name) = (arrangement.colour(record) % COLOURS, escape(&record.engine));
        let _infallible = write!(text, "<li><i class=\"c{colour}\"></i>{name}</li>");
    }
    text += "</ul><div class=\"grid\">";
    for measure in BARS {
        text += &bar_chart(group, arrangement, &measure);
    }
    text += "</div><div class=\"grid curves\">";
    text += &latency_chart(group, arrangement);
    text += &time_chart(group, arrangement);
    text += "</div>";
    text += &figures(group);
    text + "</section>"
}

fn bar_chart(group: &Group<'_>, arrangement: &Arrangement<'_>, measure: &Measure) -> String {
    let bar = |record: &Record| {
        let value = measure.of(record)?;
        let mark = if record.stopped_after_s.is_some() { "*" } else { "" };
        Some(Bar {
            name: record.engine.clone(),
            value,
            text: format!("{}{mark}", (measure.text)(value)),
            colour: arrangement.colour(record),
        })
    };
    let shown: Vec<Bar> = group.measured().filter_map(bar).collect();
    if shown.iter().all(|bar| bar.value == 0.0) {
        return String::new();
    }
    let title = measure.title;
    format!("<div><h3>{title}</h3>{}</div>", bars(title, &shown))
}

/// Every figure of every engine, folded.
fn figures(group: &Group<'_>) -> String {
    let mut table =
        String::from("<details><summary>All figures</summary><div class=\"wide\"><table><tr><th></th>");
    for measure in measures::ALL {
        let _infallible = write!(table, "<th title=\"{}\">{}</th>", measure.title, measure.short);
    }
    table += "<th>store before</th></tr>";
    for record in &group.records {
        let _infallible = write!(table, "<tr><td>{}</td>", escape(&record.engine));
        for measure in measures::ALL {
            let _infallible = write!(table, "<td>{}</td>", measure.text_of(record));
        }
        let _infallible = write!(table, "<td>{}</td></tr>", escape(&record.prepared_by.join(", ")));
    }
    table + "</table></div></details>"
}

fn latency_chart(group: &Group<'_>, arrangement: &Arrangement<'_>) -> String {
    let curves: Vec<Line> = group
        .measured()
        .filter(|record| record.latency_curve.len() > 1)
        .map(|record| Line {
            name: record.engine.clone(),
            points: record.latency_curve.iter().map(|&(percentile, ns)| (percentile, ns as f64)).collect(),
            colour: arrangement.colour(record),
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

fn time_chart(group: &Group<'_>, arrangement: &Arrangement<'_>) -> String {
    let line = |record: &Record| Line {
        name: record.engine.clone(),
        points: rates(record),
        colour: arrangement.colour(record),
    };
    let over_time: Vec<Line> = group.measured().map(line).filter(|line| line.points.len() > 1).collect();
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
        // An engine that was killed early has left no description.
        let told = |record: &&Record| record.engine == *name && !record.about.is_empty();
        let Some(record) = records.iter().find(told) else { continue };
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
        (capabilities.compaction, "compacts everything on request"),
    ];
    let mut words: Vec<&str> = named.into_iter().filter_map(|(has, word)| has.then_some(word)).collect();
    words.push(removal);
    words.join(", ")
}

/// The command line for `settings`, without the defaults.
fn command(settings: &Settings) -> String {
    let options = options(settings, &["dir"]).into_iter().map(|option| format!(" {option}"));
    std::iter::once("pleach-bench".to_owned()).chain(options).collect()
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
