//! Reports as Markdown tables, to be pasted into documents: workloads by engines.

use std::fmt::Write as _;

use super::arrangement::{Arrangement, Setup};
use super::measures::{self, Measure};
use super::units::times;
use crate::bench::Record;
use crate::engine::Result;

/// What stands together in one table.
const TABLES: &[(&str, &[Measure])] = &[
    ("Operations a second", &[measures::THROUGHPUT]),
    ("Latency: p50 / p99 / p99.9", &[measures::P50, measures::P99, measures::P999]),
    ("Longest latency / longest time without an operation's end", &[measures::MAX, measures::LONGEST_GAP]),
    ("Write / read / space amplification", &[measures::WRITE_AMP, measures::READ_AMP, measures::SPACE_AMP]),
    ("Peak disk use / peak memory (RSS)", &[measures::PEAK_DISK, measures::PEAK_RSS]),
];

/// The tables for `records`, which are compared with the engine `baseline`, or else with the first.
pub(crate) fn markdown(records: &[Record], baseline: Option<&str>) -> Result<String> {
    let arrangement = Arrangement::new(records, baseline)?;
    let mut text = String::new();
    for setup in &arrangement.setups {
        let _infallible = writeln!(text, "{}\n", setup.conditions);
        for (title, measures) in TABLES {
            table(&mut text, &arrangement, setup, title, measures);
        }
        notes(&mut text, setup);
    }
    Ok(text.trim_end().to_owned() + "\n")
}

fn table(
    text: &mut String,
    arrangement: &Arrangement<'_>,
    setup: &Setup<'_>,
    title: &str,
    measures: &[Measure],
) {
    let with_times = measures.len() == 1;
    let beside = format!(", and as a multiple of {}'s", arrangement.baseline);
    let _infallible = writeln!(text, "{title}{}:\n", if with_times { &beside } else { "" });
    let head: Vec<String> = arrangement.engines.iter().map(|engine| cell(engine)).collect();
    let _infallible = writeln!(text, "| workload | {} |", head.join(" | "));
    let _infallible = writeln!(text, "|---{}|", "|---:".repeat(head.len()));
    for group in &setup.groups {
        let best = measures[0].best(group.complete());
        let base = group.of(arrangement.baseline).and_then(|record| measures[0].of(record));
        let cells = arrangement.engines.iter().map(|engine| {
            let Some(record) = group.of(engine) else { return String::new() };
            let figures = figures(record, measures);
            let figures = if with_times && best.is_some() && measures[0].of(record) == best {
                bold(&figures)
            } else {
                figures
            };
            match (measures[0].of(record), base) {
                (Some(figure), Some(base)) if with_times && *engine != arrangement.baseline => {
                    format!("{figures} ({})", times(figure / base))
                }
                _ => figures,
            }
        });
        let _infallible =
            writeln!(text, "| {} | {} |", cell(&group.label), cells.collect::<Vec<_>>().join(" | "));
    }
    text.push('\n');
}

fn figures(record: &Record, measures: &[Measure]) -> String {
    if record.error.is_some() {
        return "failed".to_owned();
    }
    let mark = if record.stopped_after_s.is_some() { "\\*" } else { "" };
    let texts: Vec<String> = measures.iter().map(|measure| measure.text_of(record)).collect();
    texts.join(" / ") + mark
}

fn bold(text: &str) -> String {
    format!("**{text}**")
}

/// Text that does not end a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn notes(text: &mut String, setup: &Setup<'_>) {
    let records = || setup.groups.iter().flat_map(|group| &group.records);
    if let Some(limit) = records().find_map(|record| record.stopped_after_s) {
        let _infallible = writeln!(text, "\\* stopped after {limit} s, before every key was put.\n");
    }
    for record in records() {
        if let Some(error) = &record.error {
            let _infallible = writeln!(text, "{} failed in {}: {error}.\n", record.engine, record.workload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_column_for_each_engine() {
        let record = |engine: &str, ops_per_s| Record {
            engine: engine.into(),
            workload: "fillseq".into(),
            threads: 1,
            ops_per_s,
            p50_ns: 500,
            ..Record::default()
        };
        let slow = Record { stopped_after_s: Some(120.0), ..record("b", 2e6) };
        let failed = Record { error: Some("disk full".into()), ..record("c", 0.0) };
        let text = markdown(&[record("a", 1e6), slow, failed], None).expect("there is a baseline");
        for line in [
            "| workload | a | b | c |",
            "|---|---:|---:|---:|",
            "| fillseq | **1.00 M** | 2.00 M\\* (2.00x) | failed |",
            "| fillseq | 500 ns / - / - | 500 ns / - / -\\* | failed |",
            "\\* stopped after 120 s, before every key was put.",
            "c failed in fillseq: disk full.",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
