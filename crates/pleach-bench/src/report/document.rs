//! Tables in documents: those between marks are written from the files of results that the marks name.
//!
//! ```text
//! <!-- table: benchmarks/a.json -->                                    workloads by engines, operations a second
//! <!-- table: benchmarks/a.json p50, p99 -->                           the same with other figures
//! <!-- table: benchmarks/a.json fillseq: ops/s, WA; ycsb-a: ops/s -->  engines by figures
//! <!-- table: benchmarks/a.json ycsb-c@1: ops/s; ycsb-c@8: ops/s -->   the same by numbers of threads
//! <!-- table by hand -->                                               left as it is: its records were not kept
//! ...
//! <!-- end -->
//! ```
//!
//! Paths are relative to the document's folder. Figures have the short names of [`super::measures`].
//!
//! In a chapter whose title begins with "Results" every table stands between marks, and the command that made it in a block
//! of `sh` above it, below the table before.

use std::fmt::Write as _;
use std::path::Path;

use super::markdown::{Column, engines_by_figures, workloads_by_engines};
use super::{brief, measures};
use crate::engine::Result;

const BEGIN: &str = "<!-- table: ";
const BY_HAND: &str = "<!-- table by hand -->";
const END: &str = "<!-- end -->";

/// The document `text` with its tables written again from the files in `folder`.
///
/// # Errors
/// A mark without an end, a file that cannot be read, a figure or workload that is not in it; a table of results without
/// marks or without a command.
pub(crate) fn with_tables(text: &str, folder: &Path) -> Result<String> {
    let mut written = String::new();
    let mut lines = text.lines();
    let (mut is_of_results, mut has_command) = (false, false);
    while let Some(line) = lines.next() {
        written += line;
        written.push('\n');
        if let Some(title) = line.strip_prefix("## ") {
            (is_of_results, has_command) = (title.starts_with("Results"), false);
        }
        has_command |= line == "```sh";
        if is_of_results && line.starts_with('|') {
            return Err(format!("{line}: a table of results stands between marks").into());
        }
        if line != BY_HAND && !line.starts_with(BEGIN) {
            continue;
        }
        if is_of_results && !std::mem::take(&mut has_command) {
            return Err(format!("{line}: the command that made the table does not stand above it").into());
        }
        let Some(len) = lines.clone().position(|line| line == END) else {
            return Err(format!("{line}: no {END} follows").into());
        };
        let old: Vec<_> = lines.by_ref().take(len + 1).collect();
        if line == BY_HAND {
            let _infallible = writeln!(written, "{}", old.join("\n"));
        } else {
            let table = marked_table(line, folder).map_err(|error| format!("{line}: {error}"))?;
            let _infallible = write!(written, "\n{table}\n{END}\n");
        }
    }
    Ok(written)
}

/// The table that a mark asks for.
fn marked_table(mark: &str, folder: &Path) -> Result<String> {
    let mark = mark.trim_start_matches(BEGIN).strip_suffix(" -->").ok_or("does not end with \" -->\"")?;
    let (file, figures) = mark.split_once(' ').unwrap_or((mark, ""));
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let records = brief::read(&text)?;
    if !figures.contains(':') {
        let named = if figures.is_empty() { vec![measures::THROUGHPUT] } else { measures::parse(figures)? };
        return workloads_by_engines(&records, &named);
    }
    let mut columns = Vec::new();
    for part in figures.split(';') {
        let (workload, figures) =
            part.split_once(':').ok_or_else(|| format!("{part:?} names no workload"))?;
        let (workload, threads) = match workload.trim().split_once('@') {
            None => (workload.trim(), None),
            Some((name, threads)) => (name, Some(threads.parse().map_err(|_| format!("{workload:?}"))?)),
        };
        let measures = measures::parse(figures)?;
        columns.extend(measures.into_iter().map(|measure| Column { workload, threads, measure }));
    }
    engines_by_figures(&records, &columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Record;

    fn folder() -> tempfile::TempDir {
        let record = |engine: &str, ops_per_s| Record {
            engine: engine.into(),
            workload: "overwrite".into(),
            threads: 1,
            ops_per_s,
            p50_ns: 500,
            ..Record::default()
        };
        let records = [record("a", 3e6), record("a", 2e6), record("b", 1e6), record("b", 1.5e6)];
        let get = |threads, ops_per_s| Record { workload: "get".into(), threads, ..record("a", ops_per_s) };
        let of_threads = [get(1, 4e6), get(2, 6e6), get(1, 5e6)];
        let text = brief(&of_threads).expect("JSON");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("threads.json"), text).expect("written");
        std::fs::write(folder.path().join("a.json"), brief(&records).expect("JSON")).expect("written");
        folder
    }

    #[test]
    fn tables_between_marks_are_written() {
        let folder = folder();
        let text = "x\n<!-- table: a.json -->\nold\n<!-- end -->\ny\n\
            <!-- table: a.json overwrite: ops/s, p50 -->\n<!-- end -->\n";
        let written = with_tables(text, folder.path()).expect("it is well-formed");
        assert_eq!(
            written,
            "x\n<!-- table: a.json -->\n\n\
            | workload | a | b |\n|---|---:|---:|\n\
            | overwrite | **3.00 M** | 1.00 M (0.33x) |\n\
            | overwrite (again) | **2.00 M** | 1.50 M (0.75x) |\n\
            \n<!-- end -->\ny\n<!-- table: a.json overwrite: ops/s, p50 -->\n\n\
            | engine | operations a second | median latency |\n|---|---:|---:|\n\
            | a | **2.00 M to 3.00 M** | 500 ns |\n\
            | b | 1.00 M to 1.50 M | 500 ns |\n\
            \n<!-- end -->\n"
        );
        assert_eq!(with_tables(&written, folder.path()).expect("it is well-formed"), written);
    }

    #[test]
    fn figures_are_apart_by_threads() {
        let folder = folder();
        let text = "<!-- table: threads.json get@1: ops/s; get@2: ops/s -->\n<!-- end -->\n";
        assert_eq!(
            with_tables(text, folder.path()).expect("it is well-formed"),
            "<!-- table: threads.json get@1: ops/s; get@2: ops/s -->\n\n\
            | engine | get, 1 thread: operations a second | get, 2 threads: operations a second |\n\
            |---|---:|---:|\n\
            | a | 4.00 M to 5.00 M | 6.00 M |\n\
            \n<!-- end -->\n"
        );
    }

    #[test]
    fn tables_by_hand_are_left_as_they_are() {
        let text = "x\n<!-- table by hand -->\n\n| a |\n|---|\n\n<!-- end -->\ny\n";
        assert_eq!(with_tables(text, Path::new("")).expect("it is well-formed"), text);
    }

    #[test]
    fn tables_of_results_have_marks_and_commands() {
        let by_hand = "<!-- table by hand -->\n| a |\n<!-- end -->\n";
        let command = "```sh\nmake a\n```\n";
        for (text, reason) in [
            ("## Results: a\n| a |\n".to_owned(), "between marks"),
            (format!("## Results: a\n{by_hand}"), "the command"),
            (format!("{command}## Results: a\n{by_hand}"), "the command"),
            (format!("## Results: a\n{command}{by_hand}{by_hand}"), "the command"),
        ] {
            let error = with_tables(&text, Path::new("")).expect_err(reason).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for text in [format!("## Results: a\n{command}{by_hand}"), "## Method\n| a |\n".to_owned()] {
            assert_eq!(with_tables(&text, Path::new("")).expect("it is well-formed"), text);
        }
    }

    #[test]
    fn bad_marks_are_named() {
        let folder = folder();
        for (mark, reason) in [
            ("<!-- table: a.json -->\n", "no <!-- end -->"),
            ("<!-- table: a.json\n<!-- end -->\n", "does not end"),
            ("<!-- table: b.json -->\n<!-- end -->\n", "b.json"),
            ("<!-- table: a.json p12 -->\n<!-- end -->\n", "p12"),
            ("<!-- table: a.json fillseq: p50 -->\n<!-- end -->\n", "fillseq"),
            ("<!-- table: threads.json get: p50 -->\n<!-- end -->\n", "get@1"),
            ("<!-- table: threads.json get@3: p50 -->\n<!-- end -->\n", "get, 3 threads"),
            ("<!-- table: threads.json get@x: p50 -->\n<!-- end -->\n", "get@x"),
        ] {
            let error = with_tables(mark, folder.path()).expect_err(mark).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
