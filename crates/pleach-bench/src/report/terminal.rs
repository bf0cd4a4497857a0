//! Reports on the terminal.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is where the command talks to its user")]

use std::io::IsTerminal;

use super::measures::{
    MAX, Measure, P50, P99, P999, PEAK_RSS, PEAK_SPACE_AMP, READ_AMP, SPACE_AMP, THROUGHPUT, WRITE_AMP,
    WRITE_AMP_SST,
};
use super::units::count;
use crate::bench::Record;

/// Columns after names, threads and operations, with their widths.
const COLUMNS: [(Measure, usize); 12] = [
    (THROUGHPUT, 8),
    (P50, 8),
    (P99, 8),
    (P999, 8),
    (MAX, 8),
    (WRITE_AMP, 5),
    (WRITE_AMP_SST, 6),
    (READ_AMP, 5),
    (SPACE_AMP, 5),
    (PEAK_SPACE_AMP, 7),
    (PEAK_RSS, 9),
    (super::measures::CPU, 8),
];

/// Prints a line for each record, with a head line before the first. Clears a progress bar first.
pub(crate) fn print_table(records: &[Record], head: bool) {
    if std::io::stdout().is_terminal() {
        print!("\r\x1b[2K");
    }
    if head && !records.is_empty() {
        let titles = COLUMNS.map(|(measure, width)| format!("{:>width$}", measure.short));
        println!("{}  {}", names("engine", "workload", "thr", "ops"), titles.join("  "));
    }
    for record in records {
        println!("{}", line(record));
    }
}

/// Prints a line.
pub(crate) fn print(line: &str) {
    println!("{line}");
}

/// Prints text that ends with a newline.
pub(crate) fn print_text(text: &str) {
    print!("{text}");
}

/// Prints names with their descriptions.
pub(crate) fn print_list(rows: &[(String, String)]) {
    for (name, about) in rows {
        println!("{}", format!("{name:20} {about}").trim_end());
    }
}

/// Prints an error.
pub(crate) fn complain(message: &str) {
    eprintln!("{message}");
}

fn line(record: &Record) -> String {
    let threads = record.threads.to_string();
    if let Some(error) = &record.error {
        return format!("{}  {error}", names(&record.engine, &record.workload, &threads, "failed"));
    }
    let mark = if record.stopped_after_s.is_some() { "*" } else { "" };
    let ops = count(record.ops as f64) + mark;
    let cells = COLUMNS.map(|(measure, width)| format!("{:>width$}", measure.text_of(record)));
    let note = record.stopped_after_s.map_or_else(String::new, |limit| {
        let late = record
            .late_ops_per_s
            .map_or_else(String::new, |rate| format!(", {}/s in the second half", count(rate)));
        format!("  * stopped after {limit} s of {} keys{late}", count(record.keys as f64))
    });
    let open = record.extra.get("open_s").map_or_else(String::new, |s| format!("  opened in {s:.3} s"));
    let names = names(&record.engine, &record.workload, &threads, &ops);
    format!("{names}  {}{note}{open}", cells.join("  "))
}

fn names(engine: &str, workload: &str, threads: &str, ops: &str) -> String {
    format!("{engine:17}  {workload:17}  {threads:>3}  {ops:>8}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_stopped_loads_say_so() {
        let record =
            Record { engine: "a".into(), workload: "fillseq".into(), keys: 2000, ..Record::default() };
        let stopped = Record { ops: 999, stopped_after_s: Some(1.5), ..record.clone() };
        let text = line(&stopped);
        assert!(text.contains(" 999* ") && text.ends_with("* stopped after 1.5 s of 2.00 k keys"), "{text}");
        let text = line(&Record { late_ops_per_s: Some(400.0), ..stopped });
        assert!(text.ends_with("of 2.00 k keys, 400/s in the second half"), "{text}");
        let failed = Record { error: Some("disk full".into()), ..record };
        assert!(line(&failed).ends_with("failed  disk full"), "{}", line(&failed));
    }
}
