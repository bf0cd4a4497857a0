//! partitions, drop-partition, compact, stats and verify.

use crate::command::Store;

#[test]
fn partitions_are_listed_with_what_they_hold() {
    let store = Store::with_entries(3);
    let ran = store.run(["partitions", "--create", "empty"]);
    assert!(ran.code == 0 && ran.err.contains("\"empty\" created"), "{ran:?}");
    assert!(store.run(["partitions", "--create", "empty"]).err.contains("there already"));
    store.ok(["put", "--partition", "users", "alice", "12345"]);
    let list = store.ok(["partitions"]);
    let rows: Vec<Vec<_>> = list.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(rows[0], ["PARTITION", "ENTRIES", "DATA"]);
    assert_eq!(rows[1..], [["default", "3", "12"], ["empty", "0", "0"], ["users", "1", "10"]]);
    let list = store.json(["partitions", "--json"]);
    assert_eq!(list[2]["partition"], "users");
    assert_eq!((&list[2]["entries"], &list[2]["exact"]), (&1.into(), &true.into()));
    assert_eq!(store.json(["partitions", "--json", "--partition", "users"]).as_array().unwrap().len(), 1);
}

#[test]
fn a_partition_is_dropped_only_when_that_is_meant() {
    let store = Store::with_entries(1);
    store.ok_with_input(["load", "--format", "lines", "--partition", "old"], "a\nb\n");
    store.run(["drop-partition", "old"]).failed(3, &["\"old\" with 2 entries", "no terminal", "--yes"]);
    assert_eq!(store.ok(["scan", "--count", "--partition", "old"]), "2\n");
    let ran = store.run(["drop-partition", "old", "--yes"]);
    assert!(ran.code == 0 && ran.err.contains("dropped \"old\" with 2 entries (2 B)"), "{ran:?}");
    store.run(["scan", "--partition", "old"]).failed(1, &["no partition \"old\"", "there are: default"]);
    store.run(["drop-partition", "old", "--yes"]).failed(1, &["no partition \"old\""]);
    store.run(["drop-partition", "default", "--yes"]).failed(3, &["default partition cannot be dropped"]);
    store.ok(["partitions", "--create", "x"]);
    assert_eq!(store.json(["drop-partition", "x", "--yes", "--json"])["dropped"], true);
}

#[test]
fn compaction_tells_before_and_after() {
    let store = Store::new();
    for round in 0..3 {
        let text: String =
            (0..40_000).map(|i| format!("{i:08}\t{round} some more text to fill files\n")).collect();
        store.ok_with_input(["load", "--format", "tsv"], text);
    }
    let report = store.json(["compact", "--json"]);
    assert_eq!(report["before"]["runs"], 3, "{report}");
    assert_eq!(report["after"]["runs"], 1, "{report}");
    assert_eq!(report["after"]["sst_entries"], 40_000, "{report}");
    let text = store.ok(["compact", "--partition", "default"]);
    assert!(text.contains("BEFORE") && text.contains("AFTER"), "{text}");
    assert_eq!(store.ok(["scan", "--count"]), "40000\n");
    let list = store.ok(["partitions", "--exact"]);
    assert!(list.contains("40,000"), "{list}");
}

#[test]
fn a_range_is_compacted_alone() {
    let store = Store::new();
    for round in 0..2 {
        let text: String = (0..40_000).map(|i| format!("{i:08}\t{round} some more text\n")).collect();
        store.ok_with_input(["load", "--format", "tsv"], text);
    }
    let range = ["compact", "--from", "00001000", "--to", "00002000", "--json"];
    let report = store.json(range);
    // Both files keep what is outside of the range, and stay as they are. The range is a run of its own.
    assert_eq!((&report["before"]["runs"], &report["after"]["runs"]), (&2.into(), &3.into()), "{report}");
    assert_eq!(report["after"]["sst_entries"], 81_000, "{report}");
    let again = store.json(range);
    assert_eq!(again["before"], again["after"]);
    assert_eq!(store.ok(["scan", "--count"]), "40000\n");
    store.ok(["verify"]);
    let all = store.json(["compact", "--json"]);
    assert_eq!((&all["after"]["runs"], &all["after"]["sst_entries"]), (&1.into(), &40_000.into()), "{all}");
}

#[test]
fn stats_are_complete_as_json_and_readable_as_text() {
    let store = Store::with_entries(10);
    let stats = store.json(["stats", "--json"]);
    // Every field that the store tells is in the document.
    let told = format!("{:?}", pleach::Stats::default());
    let fields = told.split([' ', '{']).filter_map(|word| word.strip_suffix(':'));
    for field in fields {
        let name = match field {
            "stalled" => "stalled_seconds",
            "training_time" => "training_seconds",
            field => field,
        };
        assert!(stats["store"].get(name).is_some(), "no {name} in {stats}");
    }
    assert_eq!(stats["store"]["last_sequence_number"], 10);
    assert_eq!(stats["partitions"][0]["partition"], "default");
    let text = store.ok(["stats"]);
    assert!(text.contains("memtable bytes") && text.contains("PARTITION"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn verify_names_file_and_offset_of_damage() {
    let store = Store::new();
    let text: String = (0..50_000).map(|i| format!("{i:08}\tsome text that fills blocks {i}\n")).collect();
    store.ok_with_input(["load", "--format", "tsv"], text);
    let text = store.ok(["verify"]);
    assert!(text.contains("no damage found") && text.contains("50,000 entries"), "{text}");
    let report = store.json(["verify", "--json"]);
    assert_eq!((&report["ok"], &report["entries"]), (&true.into(), &50_000.into()));
    let sst = largest_sst(&store);
    let mut bytes = std::fs::read(&sst).unwrap();
    bytes[100_000] ^= 1;
    std::fs::write(&sst, bytes).unwrap();
    let name = sst.file_name().unwrap().to_str().unwrap();
    store.run(["verify"]).failed(2, &["corruption", name, "offset"]);
    let ran = store.run(["verify", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &report["ok"]), (2, &false.into()), "{report}");
    assert!(report["file"].as_str().unwrap().ends_with(name) && report["offset"].is_u64(), "{report}");
}

#[test]
fn a_store_too_damaged_to_open_is_damage_as_well() {
    let store = Store::with_entries(10);
    std::fs::write(store.db().join("CURRENT"), "nonsense").unwrap();
    store.run(["verify"]).failed(2, &["CURRENT"]);
    let ran = store.run(["verify", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &report["ok"]), (2, &false.into()));
    store.run(["get", "k1"]).failed(2, &["CURRENT"]);
}

fn largest_sst(store: &Store) -> std::path::PathBuf {
    let files = std::fs::read_dir(store.db()).unwrap().map(|entry| entry.unwrap().path());
    let ssts = files.filter(|path| path.extension().is_some_and(|e| e == "sst"));
    ssts.max_by_key(|path| path.metadata().unwrap().len()).expect("the load wrote files")
}
