//! Reports on the terminal.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is where the command talks to its user")]

use std::io::IsTerminal;

use super::units::{bytes, count, nanos, ratio};
use crate::bench::Record;

const HEAD: [&str; 13] =
    ["engine", "workload", "thr", "ops", "ops/s", "p50", "p99", "p99.9", "max", "WA", "RA", "SA", "peak RSS"];
const WIDTHS: [usize; 13] = [12, 17, 3, 8, 8, 8, 8, 8, 8, 6, 6, 6, 9];

/// Prints a line for each record, with a head line before the first. A progress bar that is in the way goes.
pub(crate) fn print_table(records: &[Record], head: bool) {
    if std::io::stdout().is_terminal() {
        print!("\r\x1b[2K");
    }
    if head && !records.is_empty() {
        println!("{}", row(&HEAD.map(str::to_owned)));
    }
    for record in records {
        println!("{}", row(&cells(record)));
    }
}

/// Prints a line.
pub(crate) fn print(line: &str) {
    println!("{line}");
}

/// Prints names with what they mean.
pub(crate) fn print_list(rows: &[(String, String)]) {
    for (name, about) in rows {
        println!("{}", format!("{name:20} {about}").trim_end());
    }
}

/// Tells of an error.
pub(crate) fn complain(message: &str) {
    eprintln!("{message}");
}

fn cells(record: &Record) -> [String; 13] {
    [
        record.engine.clone(),
        record.workload.clone(),
        record.threads.to_string(),
        count(record.ops as f64),
        count(record.ops_per_s),
        nanos(record.p50_ns as f64),
        nanos(record.p99_ns as f64),
        nanos(record.p999_ns as f64),
        nanos(record.max_ns as f64),
        ratio(record.write_amp),
        ratio(record.read_amp),
        ratio(record.space_amp),
        bytes(record.peak_rss_bytes as f64),
    ]
}

/// Names to the left, numbers to the right.
fn row(cells: &[String; 13]) -> String {
    let aligned = cells.iter().zip(WIDTHS).enumerate().map(|(at, (cell, width))| match at {
        0 | 1 => format!("{cell:width$}"),
        _ => format!("{cell:>width$}"),
    });
    aligned.collect::<Vec<_>>().join("  ")
}
