//! The overview of the page: for each figure a table of workloads by engines, the best in bold, each beside the
//! baseline.

use std::fmt::Write as _;

use super::arrangement::{Arrangement, Group, Setup};
use super::chart::escape;
use super::measures::{self, Measure};
use super::units::times;
use crate::bench::Record;

/// Everything of one setup: throughput in full view, the other figures folded.
pub(super) fn overview(arrangement: &Arrangement<'_>, setup: &Setup<'_>, number: usize) -> String {
    let mut text = format!(
        "<section><h2>Overview</h2><p class=\"soft\">{}</p><h3>{}</h3>{}",
        escape(&setup.conditions),
        measures::THROUGHPUT.title,
        matrix(arrangement, setup, &measures::THROUGHPUT, Some(number))
    );
    text += &notes(setup);
    for measure in &measures::ALL[1..] {
        let any = setup.groups.iter().flat_map(Group::measured).any(|record| measure.of(record).is_some());
        if any {
            let table = matrix(arrangement, setup, measure, None);
            let _infallible = write!(
                text,
                "<details><summary>{} ({})</summary>{table}</details>",
                measure.title, measure.short
            );
        }
    }
    text + "</section>"
}

/// Workloads by engines. With `links` the workloads lead to their sections.
fn matrix(
    arrangement: &Arrangement<'_>,
    setup: &Setup<'_>,
    measure: &Measure,
    links: Option<usize>,
) -> String {
    let mut table = String::from("<div class=\"wide\"><table class=\"matrix\"><tr><th></th>");
    for engine in &arrangement.engines {
        let _infallible = write!(table, "<th>{}</th>", escape(engine));
    }
    table += "</tr>";
    for (at, group) in setup.groups.iter().enumerate() {
        let label = escape(&group.label);
        let _infallible = match links {
            Some(number) => write!(table, "<tr><td><a href=\"#{}\">{label}</a></td>", anchor(number, at)),
            None => write!(table, "<tr><td>{label}</td>"),
        };
        let best = measure.best(group.complete());
        let base = group.of(arrangement.baseline).and_then(|record| measure.of(record));
        for engine in &arrangement.engines {
            table += &cell(group.of(engine), measure, best, base, *engine == arrangement.baseline);
        }
        table += "</tr>";
    }
    table + "</table></div>"
}

/// The name of a workload's section.
pub(super) fn anchor(setup: usize, group: usize) -> String {
    format!("w{setup}-{group}")
}

fn cell(
    record: Option<&Record>,
    measure: &Measure,
    best: Option<f64>,
    base: Option<f64>,
    is_base: bool,
) -> String {
    let Some(record) = record else { return "<td></td>".into() };
    if let Some(error) = &record.error {
        return format!("<td class=\"soft\" title=\"{}\">failed</td>", escape(error));
    }
    let Some(figure) = measure.of(record) else { return "<td class=\"soft\">-</td>".into() };
    let mark = if record.stopped_after_s.is_some() { "*" } else { "" };
    let class = if best == Some(figure) { " class=\"best\"" } else { "" };
    let beside = match base {
        Some(base) if !is_base && base > 0.0 => format!("<i>{}</i>", times(figure / base)),
        _ => "<i></i>".into(),
    };
    format!("<td{class}>{}{mark}{beside}</td>", (measure.text)(figure))
}

/// What the marks mean.
fn notes(setup: &Setup<'_>) -> String {
    let records = || setup.groups.iter().flat_map(|group| &group.records);
    let mut limits: Vec<f64> = records().filter_map(|record| record.stopped_after_s).collect();
    limits.sort_by(f64::total_cmp);
    limits.dedup();
    let limits: Vec<String> = limits.iter().map(f64::to_string).collect();
    let mut text = String::new();
    if !limits.is_empty() {
        let _infallible = write!(
            text,
            "<p class=\"soft\">* stopped after {} s, before every key was put; workloads after it found all keys loaded in \
             key order.</p>",
            limits.join(" or ")
        );
    }
    let mut failures: Vec<String> = Vec::new();
    for group in &setup.groups {
        for record in &group.records {
            if let Some(error) = &record.error {
                failures.push(escape(&format!("{} failed in {}: {error}.", record.engine, group.label)));
            }
        }
    }
    if !failures.is_empty() {
        let _infallible = write!(text, "<p class=\"soft\">{}</p>", failures.join("<br>"));
    }
    text
}
