//! Tables in Markdown, for reports and for documents: workloads by engines, and engines by figures.

use std::fmt::Write as _;

use super::arrangement::{Arrangement, Setup, threads};
use super::measures::{self, Measure};
use super::units::times;
use crate::bench::Record;
use crate::engine::Result;

/// The measures of each table.
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
            let with_times = measures.len() == 1;
            let beside = format!(", and as a multiple of {}'s", arrangement.baseline);
            let _infallible = writeln!(text, "{title}{}:\n", if with_times { &beside } else { "" });
            matrix(&mut text, &arrangement, setup, measures);
            text.push('\n');
        }
        notes(&mut text, setup);
    }
    Ok(text.trim_end().to_owned() + "\n")
}

/// A table of `measures`: a row for each workload, a column for each engine; each single figure also as a multiple of
/// the first engine's.
pub(super) fn workloads_by_engines(records: &[Record], measures: &[Measure]) -> Result<String> {
    let arrangement = Arrangement::new(records, None)?;
    let mut text = String::new();
    for setup in &arrangement.setups {
        matrix(&mut text, &arrangement, setup, measures);
        let mut noted = String::new();
        notes(&mut noted, setup);
        if !noted.is_empty() {
            let _infallible = writeln!(text, "\n{}", noted.trim_end());
        }
    }
    Ok(text)
}

/// A column of a table whose rows are engines.
pub(super) struct Column<'a> {
    pub(super) workload: &'a str,
    /// `None` where all records of the workload have the same number.
    pub(super) threads: Option<usize>,
    pub(super) measure: Measure,
}

impl Column<'_> {
    fn takes(&self, record: &Record) -> bool {
        record.workload == self.workload && self.threads.is_none_or(|threads| record.threads == threads)
    }

    /// The workload and its threads.
    fn name(&self) -> String {
        self.threads.map_or_else(
            || self.workload.to_owned(),
            |number| format!("{}, {}", self.workload, threads(number)),
        )
    }

    /// An error unless the column has figures, all with the same number of threads.
    fn check(&self, records: &[Record]) -> Result<()> {
        let mut found = records.iter().filter(|record| self.takes(record)).map(|record| record.threads);
        let first = found.next().ok_or_else(|| format!("there is no record of {}", self.name()))?;
        if found.any(|threads| threads != first) {
            let workload = self.workload;
            return Err(format!("{workload} ran with several numbers of threads: {workload}@{first}").into());
        }
        Ok(())
    }
}

/// A table with a row for each engine. Where an engine has run a workload several times, a cell holds the lowest and the
/// highest figure. Bold is an engine whose every figure is better than every other engine's.
pub(super) fn engines_by_figures(records: &[Record], columns: &[Column<'_>]) -> Result<String> {
    let engines = Arrangement::new(records, None)?.engines;
    let several = columns.iter().any(|column| column.name() != columns[0].name());
    let mut rows: Vec<String> = engines.iter().map(|engine| format!("| {} |", cell(engine))).collect();
    let mut head = String::from("| engine |");
    for column in columns {
        column.check(records)?;
        let measure = &column.measure;
        let prefix = if several { format!("{}: ", column.name()) } else { String::new() };
        let _infallible = write!(head, " {prefix}{} |", measure.in_sentence());
        let ranges: Vec<Option<Range>> =
            engines.iter().map(|engine| Range::of(records, engine, column)).collect();
        for (at, row) in rows.iter_mut().enumerate() {
            let text = ranges[at].map_or_else(|| "-".into(), |range| range.text(measure));
            let others = ranges.iter().enumerate().filter(|(other, _)| *other != at);
            let mut others = others.filter_map(|(_, range)| *range).peekable();
            let is_best = others.peek().is_some()
                && ranges[at].is_some_and(|range| others.all(|other| range.beats(other, measure)));
            let _infallible = write!(row, " {} |", if is_best { bold(&text) } else { text });
        }
    }
    Ok(format!("{head}\n|---{}|\n{}\n", "|---:".repeat(columns.len()), rows.join("\n")))
}

/// The lowest and the highest figure of an engine that has run a workload once or several times.
#[derive(Clone, Copy)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn of(records: &[Record], engine: &str, column: &Column<'_>) -> Option<Self> {
        let of_both = records.iter().filter(|record| record.engine == engine && column.takes(record));
        let figures = of_both.filter_map(|record| column.measure.of(record));
        figures
            .map(|figure| Self { low: figure, high: figure })
            .reduce(|a, b| Self { low: a.low.min(b.low), high: a.high.max(b.high) })
    }

    /// Whether each figure is better than each of `other`, and not only by digits that are not shown.
    fn beats(self, other: Self, measure: &Measure) -> bool {
        let (ours, theirs) =
            if measure.higher_is_better { (self.low, other.high) } else { (-self.high, -other.low) };
        ours > theirs && (measure.text)(ours.abs()) != (measure.text)(theirs.abs())
    }

    fn text(self, measure: &Measure) -> String {
        let (low, high) = ((measure.text)(self.low), (measure.text)(self.high));
        if low == high { low } else { format!("{low} to {high}") }
    }
}

fn matrix(text: &mut String, arrangement: &Arrangement<'_>, setup: &Setup<'_>, measures: &[Measure]) {
    let with_times = measures.len() == 1;
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

/// Text with escaped cell separators.
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
