//! The command as its users call it: a process for each engine, JSON and HTML at the end.

#![expect(clippy::disallowed_methods, reason = "the command is tried on the real machine, as its users do")]

mod device;
mod papers;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn pleach_bench(dir: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach-bench"));
    command.current_dir(dir).args(words.split_whitespace()).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the command writes text")
}

/// Fields that every record has, and whether they may be null.
const NUMBERS: [(&str, bool); 14] = [
    ("keys", false),
    ("threads", false),
    ("ops", false),
    ("ops_per_s", false),
    ("p50_ns", false),
    ("p99_ns", false),
    ("p999_ns", false),
    ("write_amp", true),
    ("read_amp", true),
    ("space_amp", true),
    ("peak_disk_bytes", false),
    ("peak_rss_bytes", false),
    ("cpu_s", false),
    ("seconds", false),
];

#[test]
fn json_follows_the_schema_and_html_shows_everything() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words = "--engines pleach,reference --workloads fillrandom,readrandom,ycsb-a --keys 3000 --threads 2 \
        --json out.json --html out.html";
    let output = pleach_bench(dir.path(), words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = fs::read_to_string(dir.path().join("out.json")).expect("it was written");
    let records: Vec<Value> = serde_json::from_str(&json).expect("it is an array");
    let name = |record: &Value| format!("{}/{}", record["engine"], record["workload"]).replace('"', "");
    let names: Vec<String> = records.iter().map(name).collect();
    let workloads = ["fillrandom", "readrandom", "ycsb-a"];
    let expected =
        ["pleach", "reference"].map(|engine| workloads.map(|workload| format!("{engine}/{workload}")));
    assert_eq!(names, expected.as_flattened());
    for record in &records {
        for (field, nullable) in NUMBERS {
            let value = &record[field];
            assert!(value.is_number() || (nullable && value.is_null()), "{field}: {value}");
        }
        assert_eq!(record["wrong"], 0);
        assert!(record["by_kind"].is_object() && record["series"]["ops"].is_array());
        assert_eq!(record["config"]["keys"], 3000);
        assert!(record["machine"]["cores"].as_u64() > Some(0));
    }
    let html = fs::read_to_string(dir.path().join("out.html")).expect("it was written");
    for word in ["pleach", "reference", "fillrandom", "readrandom", "ycsb-a", "<svg", "prefers-color-scheme"]
    {
        assert!(html.contains(word), "{word}");
    }
    for outside in ["http://", "src=", "@import", "<script", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    let stores = dir.path().join("pleach-bench.data");
    assert!(stores.is_dir() && !stores.join("pleach").exists() && !stores.join("reference").exists());
    report_is_made_again(dir.path(), &html);
    markdown_and_comparison_are_made(dir.path());
}

fn report_is_made_again(dir: &Path, html: &str) {
    let output = pleach_bench(dir, "report out.json --html again.html");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(dir.join("again.html")).expect("it was written"), html);
}

fn markdown_and_comparison_are_made(dir: &Path) {
    let markdown = text(&pleach_bench(dir, "report out.json --markdown - --baseline reference").stdout);
    for line in
        ["| workload | pleach | reference |", "Peak disk use / peak memory (RSS):", "multiple of reference's"]
    {
        assert!(markdown.contains(line), "{line} is not in\n{markdown}");
    }
    let brief = pleach_bench(dir, "report out.json --brief brief.json");
    assert!(brief.status.success(), "{}", text(&brief.stderr));
    let of_brief = text(&pleach_bench(dir, "report brief.json --markdown - --baseline reference").stdout);
    // Brief files have rounded numbers, which may be shown with another last digit.
    let words = |text: &str| text.replace(|c: char| c.is_ascii_digit() || c == '.', "");
    assert_eq!(words(&of_brief), words(&markdown));
    let same = pleach_bench(dir, "report --compare out.json out.json --within 0% --latency-within 0%");
    assert!(same.status.success(), "{}", text(&same.stderr));
    assert!(text(&same.stdout).contains("Distance of the runs"));
    let half = fs::read_to_string(dir.join("out.json")).expect("it is there");
    let mut records: Vec<Value> = serde_json::from_str(&half).expect("it is an array");
    let ops_per_s = records[1]["ops_per_s"].as_f64().expect("it is a number");
    records[1]["ops_per_s"] = (ops_per_s / 2.0).into();
    fs::write(dir.join("slow.json"), serde_json::to_string(&records).expect("it is JSON")).expect("written");
    for (within, agrees) in [("101%", true), ("99%", false)] {
        let output = pleach_bench(dir, &format!("report --compare out.json slow.json --within {within}"));
        assert_eq!(output.status.success(), agrees, "{within}");
        assert_eq!(text(&output.stderr).contains("pleach readrandom: ops/s 0.50x"), !agrees);
    }
}

#[test]
fn tables_of_the_documents_agree_with_their_files() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let output = pleach_bench(dir.path(), &format!("tables --check {document}"));
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn lists_and_errors_speak_to_people() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let list = text(&pleach_bench(dir.path(), "list").stdout);
    for word in ["pleach", "fillseq", "ycsb-f", "queue", "composite"] {
        assert!(list.contains(word), "{word}");
    }
    let figures = text(&pleach_bench(dir.path(), "paper list").stdout);
    for word in ["sifrdb-fig9a", "sifrdb-fig9b", "sifrdb-fig9c", "sifrdb-fig12"] {
        assert!(figures.contains(word), "{word}");
    }
    for (words, message) in [
        ("--engines oracle", "there is no engine"),
        ("--workloads readrandomly", "there is no workload"),
        ("paper sifrdb-fig99", "there is no figure"),
        ("paper tridentkv-fig17 --keys 100000", "needs 903945 keys"),
        ("paper tridentkv-fig17 --memory 64MiB", "leave --memory out"),
        (
            "paper tridentkv-fig19 --keys 100 --tune pleach.learned_index=never",
            "the figure sets pleach.learned_index",
        ),
        ("--engines pleach --keys 100 --tune pleach.learned=never", "it has: "),
        ("--engines reference --direct", "cannot read past the page cache"),
        ("--engines reference --baseline pleach", "none of the engines"),
        ("report --compare a.json", "takes two files"),
    ] {
        let output = pleach_bench(dir.path(), words);
        assert!(!output.status.success(), "{words}");
        assert!(text(&output.stderr).contains(message), "{words}: {}", text(&output.stderr));
    }
}

#[test]
fn a_file_of_results_that_cannot_be_written_is_refused_at_the_start() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for words in [
        "--keys 10 --engines reference --json no/out.json",
        "--keys 10 --engines reference --json out.json --html no/out.html",
        "paper learnedkv-fig3 --keys 10 --json no/out.json",
        "device --keys 10 --json no/out.json",
    ] {
        let output = pleach_bench(dir.path(), words);
        let told = text(&output.stderr);
        assert!(
            !output.status.success() && told.contains("give the path of a file in a folder"),
            "{words}: {told}"
        );
    }
    assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0, "nothing was measured");
}

#[test]
fn one_failing_engine_does_not_cost_the_others() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words = "--engines pleach,reference --workloads fillrandom,readrandom@2 --keys 500 --json out.json --html \
        out.html --tune pleach.no_such=1";
    let output = pleach_bench(dir.path(), words);
    assert!(!output.status.success());
    let json = fs::read_to_string(dir.path().join("out.json")).expect("it was written");
    let records: Vec<Value> = serde_json::from_str(&json).expect("it is an array");
    let said: Vec<_> =
        records.iter().map(|record| (&record["engine"], record["error"].is_string())).collect();
    assert_eq!(said, [(&"pleach".into(), true), (&"reference".into(), false), (&"reference".into(), false)]);
    assert!(text(&output.stderr).contains("no setting no_such"), "{}", text(&output.stderr));
    let html = fs::read_to_string(dir.path().join("out.html")).expect("it was written");
    assert!(html.contains("readrandom, 2 threads") && html.contains("no setting no_such"));
    assert!(text(&output.stdout).contains("failed"), "{}", text(&output.stdout));
}

#[test]
fn an_interrupt_keeps_what_was_measured_and_removes_stores() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words = "--engines reference,pleach,reference --workloads fillrandom,readrandom --keys 2000 --duration 0.5 \
        --json out.json --html out.html --machine-lock lock";
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach-bench"));
    let command = command.current_dir(dir.path()).args(words.split_whitespace());
    let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("the command starts");
    let store = dir.path().join("pleach-bench.data/pleach");
    while !store.exists() {
        assert_eq!(child.try_wait().expect("it is ours"), None, "it ended before the second engine");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    assert!(!child.wait().expect("it is ours").success());
    let json = fs::read_to_string(dir.path().join("out.json")).expect("it was written");
    let records: Vec<Value> = serde_json::from_str(&json).expect("it is an array");
    let engines: Vec<_> = records.iter().map(|record| &record["engine"]).collect();
    assert_eq!(engines[..2], ["reference", "reference"]);
    assert!(engines.len() <= 3 && records.iter().all(|record| record["error"].is_null()), "{engines:?}");
    assert!(fs::exists(dir.path().join("out.html")).expect("it can be looked for"));
    let left = fs::read_dir(dir.path().join("pleach-bench.data")).expect("the folder stays");
    assert_eq!(left.count(), 0);
    File::open(dir.path().join("lock")).expect("it exists").try_lock().expect("nobody holds it any more");
}
