//! Figures of papers on tiny stores.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{pleach_bench, text};

/// What `paper NAME` prints, and its records.
fn paper(dir: &Path, name: &str, words: &str) -> (String, Vec<Value>) {
    let output = pleach_bench(dir, &format!("paper {name} {words} --json out.json"));
    assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    let json = fs::read_to_string(dir.join("out.json")).expect("it was written");
    let left = fs::read_dir(dir.join("pleach-bench.data")).expect("the folder stays");
    assert_eq!(left.count(), 0, "{name}");
    (text(&output.stdout), serde_json::from_str(&json).expect("it is an array"))
}

/// The cells of the row that begins with `first`.
fn row<'a>(printed: &'a str, first: &str) -> Vec<&'a str> {
    let line = printed.lines().find(|line| line.starts_with(first));
    let line = line.unwrap_or_else(|| panic!("there is no row {first} in\n{printed}"));
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// A setting of the engine in a record.
fn setting<'a>(record: &'a Value, name: &str) -> &'a str {
    record["engine_stats"]["settings"][name].as_str().unwrap_or("-")
}

/// Each step of the load is a run, as in the paper's forest: two in the last of three stages, three in each other one.
fn assert_forest(record: &Value, candidates: u64) {
    assert_eq!(record["engine_stats"]["details"]["runs"], candidates, "{record}");
    assert_eq!((&record["wrong"], &record["missed"]), (&0.into(), &0.into()));
}

#[test]
fn papers_print_theirs_beside_ours() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let ours = "pleach-forest (ours)";
    for (name, words) in [
        ("sifrdb-fig9a", ["SifrDB (theirs)", ours, "pleach (ours)"]),
        ("sifrdb-fig9b", ["figure only", ours, "settling included"]),
        ("sifrdb-fig9c", [ours, "100 %", "settled"]),
        ("sifrdb-fig9d", [ours, "100 %", "in MiB"]),
        ("sifrdb-fig9", ["Fig. 9a", "peak", "Fig. 9d"]),
        ("sifrdb-fig2", ["in theory", "pleach-leveled (ours)  10", "pleach-forest (ours)   16"]),
        ("sifrdb-fig12", ["3.7", "bits per key", "pleach-forest (ours)   20"]),
        ("tridentkv-fig15", ["learned index", "50 %             both", "puts a second"]),
    ] {
        let output = pleach_bench(dir.path(), &format!("paper {name} --keys 4000 --duration 0.2"));
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let printed = text(&output.stdout);
        for word in words {
            assert!(printed.contains(word), "{name}: {word} is not in\n{printed}");
        }
    }
    let output = pleach_bench(dir.path(), "paper sifrdb-fig12 --keys 2000 --engines reference");
    assert!(
        text(&output.stdout).contains("reference (ours)       has no filters"),
        "{}",
        text(&output.stdout)
    );
    let output = pleach_bench(
        dir.path(),
        "paper sifrdb-fig9a --keys 2000 --engines pleach,reference --tune pleach.clean_every=none",
    );
    let printed = text(&output.stdout);
    assert!(!output.status.success() && text(&output.stderr).contains("clean_every=none"));
    assert!(printed.contains("failed") && printed.contains("reference (ours)"), "{printed}");
}

/// Few keys, short measurements.
const TINY: &str = "--keys 5000 --duration 0.05";

#[test]
fn searches_are_measured_by_policy_and_memory() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (printed, records) = paper(dir.path(), "sifrdb-table2", TINY);
    assert!(row(&printed, "400 : 1")[2].ends_with("(52.0 us)"), "{printed}");
    assert!(row(&printed, "cached").len() >= 5, "{printed}");
    let policies: Vec<_> = records.iter().map(|record| setting(record, "read_policy")).collect();
    assert_eq!(policies, ["serial", "fc16"].repeat(5));
    for record in &records {
        assert_forest(record, 8);
    }
    let (printed, records) = paper(dir.path(), "sifrdb-fig6", TINY);
    assert_eq!((row(&printed, "data : memory").len(), row(&printed, "25 : 1").len()), (7, 7));
    assert_eq!(setting(&records[5], "read_policy"), "fc32");
    let (printed, _) = paper(dir.path(), "sifrdb-fig7", TINY);
    assert_eq!(row(&printed, "cached")[4], "1.7x", "{printed}");
}

#[test]
fn stages_policies_and_filters_are_measured() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (printed, records) = paper(dir.path(), "sifrdb-fig13", TINY);
    assert_eq!(row(&printed, "pa").len(), 4, "{printed}");
    let parts: Vec<_> = records[..3]
        .iter()
        .map(|record| (&record["config"]["loaded_after"], &record["config"]["loaded_before"]))
        .collect();
    let expected = [(4400, 4700), (3200, 4400), (0, 3200)].map(|(from, to)| (from.into(), to.into()));
    assert_eq!(parts, expected.iter().map(|(from, to): &(Value, Value)| (from, to)).collect::<Vec<_>>());
    for record in &records {
        assert_forest(record, 8);
    }
    let (printed, records) = paper(dir.path(), "sifrdb-fig14", TINY);
    assert_eq!(row(&printed, "on").len(), 7, "{printed}");
    let filters = |record: &Value| record["engine_stats"]["details"]["filter_bytes"].as_u64() > Some(0);
    assert!(!records[..8].iter().any(filters) && records[8..].iter().all(filters));
}

#[test]
fn stores_mixes_and_ranges_are_measured() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (printed, records) =
        paper(dir.path(), "sifrdb-fig11", &format!("{TINY} --engines pleach,pleach-forest"));
    assert_eq!(row(&printed, "pleach-forest (ours)")[5], "8", "{printed}");
    assert_eq!(records.len(), 2 * 2 * 4);
    let (printed, records) =
        paper(dir.path(), "sifrdb-fig15", "--keys 1200 --duration 0.05 --engines pleach-forest");
    assert_eq!(row(&printed, "pleach-forest, 0 bits, pa").len(), 7, "{printed}");
    assert_eq!(records.len(), 7 * 6);
    let (printed, records) = paper(dir.path(), "sifrdb-range", TINY);
    assert_eq!(row(&printed, "pleach-leveled (ours)").len(), 8, "{printed}");
    assert_eq!(setting(&records[0], "read_driver"), "blocking");
    assert_forest(&records[1], 8);
}

#[test]
fn values_apart_are_measured_by_phase_mix_and_state() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words = "--keys 2000 --engines pleach-separated,reference";
    let (printed, records) = paper(dir.path(), "learnedkv-fig8", words);
    assert_eq!(
        (row(&printed, "pleach-separated   random").len(), records.len()),
        (18, 2 * 2 * 4),
        "{printed}"
    );
    for record in &records {
        assert_eq!(
            (&record["wrong"], &record["missed"], &record["ops"]),
            (&0.into(), &0.into(), &2000.into())
        );
    }
    assert!(records[3]["engine_stats"]["details"]["value_file_bytes"].as_u64() > Some(0), "{}", records[3]);
    let kinds =
        |record: &Value| ["get", "put"].map(|kind| record["by_kind"][kind]["count"].as_u64().unwrap_or(0));
    assert!(kinds(&records[1]).iter().all(|&count| count > 900), "{}", records[1]);
    assert_ne!(kinds(&records[1]), kinds(&records[2]), "another turn draws other numbers");
    let (printed, records) = paper(dir.path(), "learnedkv-fig9", words);
    assert_eq!(row(&printed, "pleach-separated   dense").len(), 13, "{printed}");
    assert_eq!(records[31]["workload"], "overwrite");
    assert_eq!(records.len(), 2 * 4 * 2 * 4);
    let (printed, records) = paper(dir.path(), "learnedkv-fig10", &format!("{words} --uncached"));
    assert_eq!(row(&printed, "pleach-separated   dense").len(), 8, "{printed}");
    let scans = |engine: &str| {
        let is_it = |record: &&Value| record["engine"] == engine && record["workload"] == "seekrandom";
        records.iter().filter(is_it).count()
    };
    assert_eq!((scans("pleach-separated"), scans("reference")), (2 * 4, 2 * 3));
    assert!(records.iter().all(|record| record["wrong"] == 0));
}

#[test]
fn stages_filters_and_sizes_of_values_apart_are_measured() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words = "--keys 1000 --engines pleach-separated,reference";
    let (printed, records) = paper(dir.path(), "learnedkv-fig3", words);
    assert_eq!((row(&printed, "reference").len(), records.len()), (15, 4), "{printed}");
    assert_eq!((&records[0]["ops"], &records[0]["missed"]), (&2000.into(), &0.into()));
    let (printed, _) = paper(dir.path(), "learnedkv-fig12", words);
    assert!(printed.contains("lmdb,redb,wiredtiger") && printed.contains("more than 5x"), "{printed}");
    let (printed, _) = paper(dir.path(), "learnedkv-fig13", words);
    assert!(printed.contains("has no filters") && printed.contains("1.32x"), "{printed}");
    let (printed, _) = paper(dir.path(), "learnedkv-table1", words);
    assert!(printed.contains("11.9 MB"), "{printed}");
    assert_eq!(row(&printed, "pleach-separated").len(), 9, "{printed}");
    let (printed, records) = paper(dir.path(), "learnedkv-table2", words);
    assert_eq!((row(&printed, "pleach-separated").len(), records.len()), (9, 2 * (5 + 4) * 2), "{printed}");
    let (printed, records) = paper(dir.path(), "learnedkv-values", words);
    assert_eq!((row(&printed, "16.0 KiB").len(), records.len()), (8, 8 * 2 * 4), "{printed}");
    let (printed, _) = paper(dir.path(), "learnedkv-space", words);
    assert!(row(&printed, "1.10").len() >= 3 && printed.contains("has no setting for space"), "{printed}");
    let (printed, records) = paper(dir.path(), "learnedkv-overwrites", words);
    assert_eq!(
        (row(&printed, "pleach-separated   random             zipfian").len(), records.len()),
        (10, 12)
    );
    assert_eq!(records[1]["ops"], 4000);
}

#[test]
fn latency_is_measured_while_values_are_converted_and_moved() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words = "--keys 20000 --duration 1 --engines pleach-separated,reference";
    let (printed, records) = paper(dir.path(), "learnedkv-latency", words);
    assert!(printed.contains("has no conversion") && printed.contains("goals"), "{printed}");
    assert_eq!(records.len(), 2 * (3 + 3 + 4));
    let measured = |workload: &str| {
        let records: Vec<_> = records.iter().filter(|record| record["workload"] == workload).collect();
        assert!(records.iter().all(|record| record["wrong"] == 0 && record["missed"] == 0));
        records
    };
    for converting in measured("readwhileconverting") {
        assert!(converting["extra"]["values_converted_meanwhile"].as_f64() > Some(1000.0), "{converting}");
        assert!(converting["by_kind"]["put_beside"]["count"].as_u64() > Some(0));
    }
    let [quiet, relocating, unpaced, _] = measured("readwhilewriting")[..] else { panic!("{printed}") };
    assert!(quiet["by_kind"]["calls_beside"]["count"].as_u64() > Some(1000), "{quiet}");
    assert!(unpaced["by_kind"]["calls_beside"].is_null(), "its puts have no schedule");
    let moves = |record: &Value| record["extra"]["value_moves_meanwhile"].as_f64();
    assert_eq!(moves(quiet), Some(0.0), "garbage has room");
    assert!(moves(relocating) >= Some(0.0));
}

#[test]
fn reads_are_measured_by_value_device_and_mix() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words = "--keys 500 --duration 0.05";
    let (printed, records) = paper(dir.path(), "tridentkv-fig10", words);
    assert_eq!(row(&printed, "1.00 KiB").len(), 9, "{printed}");
    assert_eq!(records.iter().filter(|record| record["in_flight"] == 32).count(), 6);
    let (printed, records) = paper(dir.path(), "tridentkv-fig11", words);
    assert_eq!((row(&printed, "16.0 KiB").len(), records.len()), (6, 6), "{printed}");
    let (printed, records) = paper(dir.path(), "tridentkv-fig13", "--keys 2000 --duration 0.05");
    assert_eq!(row(&printed, "HDD, simulated").len(), 9, "{printed}");
    let devices: Vec<_> = records.iter().map(|record| setting(record, "simulated_device")).collect();
    assert_eq!(devices, ["-", "-", "-", "sata", "sata", "sata", "hdd", "hdd", "hdd"]);
    // The cache holds a fraction of the data, so most gets read the disk; the slowest one does in any case.
    assert!(records[6]["max_ns"].as_u64() > Some(12_000_000), "{}", records[6]["max_ns"]);
    let (printed, records) = paper(dir.path(), "tridentkv-fig14", words);
    assert_eq!((row(&printed, "pleach ").len(), records.len()), (8, 9), "{printed}");
    assert_eq!(records[7]["prepared_by"], records[8]["prepared_by"], "both gets of C read one store");
    let (printed, records) = paper(dir.path(), "tridentkv-fig15", words);
    assert_eq!(records.len(), 4 * 2 * 2, "{printed}");
    let stores: Vec<_> = records.iter().map(|record| &record["prepared_by"]).collect();
    assert!(stores.chunks(4).all(|technique| technique == &stores[..4]), "{stores:?}");
}

#[test]
fn puts_are_measured_by_threads_and_time_of_training() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (printed, records) = paper(dir.path(), "tridentkv-fig19", "--keys 3000 --rounds 2");
    assert_eq!(row(&printed, "pleach           16               adaptive").len(), 8, "{printed}");
    assert_eq!(printed.matches("the best of the others").count(), 5, "{printed}");
    let runs: Vec<_> = records
        .iter()
        .map(|record| (record["threads"].as_u64(), setting(record, "learned_index").to_owned()))
        .collect();
    let turns = ["never", "always", "reading", "adaptive", "always", "reading", "adaptive", "never"];
    let expected: Vec<_> = [1, 2, 4, 8, 16]
        .into_iter()
        .flat_map(|threads| turns.map(|when| (Some(threads), when.to_owned())))
        .collect();
    assert_eq!(runs, expected, "the second round begins with another time");
    assert!(records.iter().all(|record| record["ops"] == 3000 && record["wrong"] == 0));
}
