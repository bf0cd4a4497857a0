//! The comparison of two runs of the same command: the ratio of each figure of each workload and engine. The differences of
//! two runs of one build are noise, which other differences must exceed.

use std::collections::BTreeMap;

use super::arrangement::labels;
use super::measures::{self, Measure};
use super::terminal::print;
use super::units::times;
use crate::bench::Record;
use crate::workload;

/// The figures that are compared.
const MEASURES: [Measure; 3] = [measures::THROUGHPUT, measures::P50, measures::P99];

/// Two runs, line by line.
pub(crate) struct Comparison {
    lines: Vec<Line>,
    /// Engine and workload of records that the other run does not have, or that failed in one of them.
    alone: Vec<String>,
}

struct Line {
    engine: String,
    label: String,
    class: &'static str,
    /// The second run's figures over the first one's.
    ratios: [Option<f64>; MEASURES.len()],
}

/// How far apart two runs may lie, as shares: 0.15 is 15 %.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tolerance {
    pub(crate) throughput: Option<f64>,
    pub(crate) latency: Option<f64>,
}

impl Comparison {
    pub(crate) fn new(first: &[Record], second: &[Record]) -> Self {
        let (ours, mut theirs) = (by_name(first), by_name(second));
        let mut comparison = Self { lines: Vec::new(), alone: Vec::new() };
        for (name, record) in ours {
            let other = theirs.iter().position(|(other, _)| *other == name).map(|at| theirs.remove(at).1);
            match other {
                Some(other) if record.error.is_none() && other.error.is_none() => {
                    comparison.lines.push(Line::new(name, record, other));
                }
                // It failed in both runs: no difference.
                Some(other) if record.error.is_some() && other.error.is_some() => {}
                _ => comparison.alone.push(format!("{} {}", name.0, name.1)),
            }
        }
        comparison.alone.extend(theirs.into_iter().map(|(name, _)| format!("{} {}", name.0, name.1)));
        comparison
    }

    /// Prints the ratios, and their median and extremes for each class of workloads.
    pub(crate) fn print(&self) {
        let cells = |line: &Line| line.ratios.map(|ratio| ratio.map_or_else(|| "-".into(), two_digits));
        print(&row(["engine", "workload"], &MEASURES.map(|measure| measure.short.to_owned())));
        for line in &self.lines {
            print(&row([&line.engine, &line.label], &cells(line)));
        }
        print("\nDistance of the runs: median and largest, in percent of the lower figure.");
        print(&row(["class", "figures"], &MEASURES.map(|measure| measure.short.to_owned())));
        for (class, lines) in self.by_class() {
            let summary: [String; MEASURES.len()] = std::array::from_fn(|at| {
                let mut apart: Vec<f64> = lines.iter().filter_map(|line| line.apart(at)).collect();
                apart.sort_by(f64::total_cmp);
                match apart.last() {
                    None => "-".into(),
                    Some(most) => format!("{:.1} / {:.1}", 100.0 * median(&apart), 100.0 * most),
                }
            });
            print(&row([class, &lines.len().to_string()], &summary));
        }
        for name in &self.alone {
            print(&format!("{name}: only one of the runs has figures"));
        }
    }

    /// The figures that differ more than allowed, as text.
    pub(crate) fn beyond(&self, tolerance: Tolerance) -> Vec<String> {
        let limits = [tolerance.throughput, tolerance.latency, tolerance.latency];
        let mut beyond = Vec::new();
        for line in &self.lines {
            for (at, limit) in limits.into_iter().enumerate() {
                let (Some(apart), Some(limit)) = (line.apart(at), limit) else { continue };
                if apart > limit {
                    let ratio = line.ratios[at].map(times).unwrap_or_default();
                    beyond.push(format!("{} {}: {} {ratio}", line.engine, line.label, MEASURES[at].short));
                }
            }
        }
        beyond.extend(self.alone.iter().map(|name| format!("{name}: only one of the runs has figures")));
        beyond
    }

    fn by_class(&self) -> BTreeMap<&'static str, Vec<&Line>> {
        let mut classes: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
        for line in &self.lines {
            classes.entry(line.class).or_default().push(line);
            classes.entry("all").or_default().push(line);
        }
        classes
    }
}

impl Line {
    fn new(name: (String, String), first: &Record, second: &Record) -> Self {
        let class = workload::find(&first.workload).map_or("other", |workload| workload.shape.class());
        let ratios = MEASURES.map(|measure| {
            let (first, second) = (measure.of(first)?, measure.of(second)?);
            (first > 0.0 && second > 0.0).then_some(second / first)
        });
        Self { engine: name.0, label: name.1, class, ratios }
    }

    /// By how much the higher figure exceeds the lower one.
    fn apart(&self, at: usize) -> Option<f64> {
        self.ratios[at].map(|ratio| ratio.max(1.0 / ratio) - 1.0)
    }
}

/// Records by engine and label.
fn by_name(records: &[Record]) -> Vec<((String, String), &Record)> {
    let name = |(record, label)| {
        let record: &Record = record;
        ((record.engine.clone(), label), record)
    };
    records.iter().zip(labels(records)).map(name).collect()
}

/// The middle one of sorted numbers, or the mean of the two.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    f64::midpoint(low, high)
}

fn two_digits(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// Names to the left, numbers to the right.
fn row(names: [&str; 2], cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>15}")).collect();
    format!("{:<19} {:<25} {}", names[0], names[1], cells.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(engine: &str, workload: &str, ops_per_s: f64, p99_ns: u64) -> Record {
        Record {
            engine: engine.into(),
            workload: workload.into(),
            ops_per_s,
            p50_ns: 100,
            p99_ns,
            ..Record::default()
        }
    }

    fn two_runs() -> Comparison {
        let first = [record("a", "readrandom", 100.0, 500), record("a", "fillseq", 90.0, 100)];
        let second = [record("a", "readrandom", 80.0, 600), record("a", "fillseq", 99.0, 100)];
        Comparison::new(&first, &second)
    }

    #[test]
    fn distance_is_the_same_both_ways() {
        let comparison = two_runs();
        let apart: Vec<_> = comparison.lines.iter().filter_map(|line| line.apart(0)).collect();
        assert!((apart[0] - 0.25).abs() < 1e-9 && (apart[1] - 0.1).abs() < 1e-9, "{apart:?}");
        assert_eq!(comparison.lines[0].apart(1), Some(0.0));
    }

    #[test]
    fn what_is_beyond_the_tolerance_is_named() {
        let comparison = two_runs();
        let beyond = |throughput, latency| comparison.beyond(Tolerance { throughput, latency });
        assert_eq!(beyond(Some(0.26), Some(0.21)), Vec::<String>::new());
        assert_eq!(beyond(Some(0.24), None), ["a readrandom: ops/s 0.80x"]);
        assert_eq!(beyond(Some(0.05), None).len(), 2);
        assert_eq!(beyond(None, Some(0.19)), ["a readrandom: p99 1.20x"]);
        assert!(beyond(None, None).is_empty());
    }

    #[test]
    fn what_only_one_run_has_is_a_difference() {
        let both = record("a", "readrandom", 1.0, 1);
        let failed = Record { error: Some("no".into()), ..record("b", "fillseq", 0.0, 0) };
        let only = record("b", "fillseq", 1.0, 1);
        let comparison = Comparison::new(&[both.clone(), failed.clone()], &[both.clone(), only]);
        assert_eq!(comparison.beyond(Tolerance::default()).len(), 1);
        let comparison = Comparison::new(&[both.clone(), failed.clone()], &[failed]);
        assert_eq!(comparison.alone, ["a readrandom"]);
    }

    #[test]
    fn classes_are_summed_up() {
        let comparison = two_runs();
        let classes: Vec<_> =
            comparison.by_class().into_iter().map(|(class, lines)| (class, lines.len())).collect();
        assert_eq!(classes, [("all", 2), ("gets", 1), ("loads", 1)]);
        assert!((median(&[1.0, 2.0, 4.0]) - 2.0).abs() < 1e-9 && (median(&[1.0, 2.0]) - 1.5).abs() < 1e-9);
    }
}
