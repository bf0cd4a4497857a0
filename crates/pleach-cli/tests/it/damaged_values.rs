//! Damage of values that are stored apart: what is told, and what goes on all the same.

use std::path::PathBuf;

use pleach::Options;

use crate::command::Store;

const VALUES: usize = 300;
const SMALL: usize = 5_000;
const LEN: usize = 2_000;

fn value(partition: &str, number: usize) -> Vec<u8> {
    format!("{partition}-{number}-").into_bytes().into_iter().cycle().take(LEN).collect()
}

/// Keys that are no text.
fn photo(number: usize) -> Vec<u8> {
    [&b"\0\"\xff"[..], &u16::try_from(number).unwrap().to_le_bytes()].concat()
}

/// A store with values apart in two partitions, and small values behind those of one; and the file that has them.
fn store() -> (Store, PathBuf) {
    let store = Store::new();
    let db = Options::new().memory(64 << 20).separate_at(512).open(store.db()).unwrap();
    let (default, photos) = (db.default_partition(), db.partition("photos").unwrap());
    for number in 0..VALUES {
        default.put(format!("{number:06}"), value("default", number)).unwrap();
        photos.put(photo(number), value("photos", number)).unwrap();
    }
    for number in 0..SMALL {
        default.put(format!("s{number:06}"), format!("a small value {number}")).unwrap();
    }
    db.flush().unwrap();
    assert_eq!((db.stats().value_files, db.stats().values), (1, 2 * VALUES as u64));
    drop((default, photos));
    db.close().unwrap();
    let files = std::fs::read_dir(store.db()).unwrap().map(|entry| entry.unwrap().path());
    let file = files.max_by_key(|path| {
        let is_segment = path.extension().is_some_and(|extension| extension == "log");
        if is_segment { path.metadata().unwrap().len() } else { 0 }
    });
    (store, file.unwrap())
}

/// Damages a value, and returns where the damage is to be reported: at its checksum.
fn strike(file: &PathBuf, value: &[u8]) -> usize {
    let mut bytes = std::fs::read(file).unwrap();
    let at = bytes.windows(value.len()).position(|window| window == value).expect("it is in the file");
    bytes[at + 100] ^= 1;
    std::fs::write(file, bytes).unwrap();
    at - 4
}

#[test]
fn a_damaged_value_costs_its_entry_and_is_told_with_its_key() {
    let (store, file) = store();
    let offset = strike(&file, &value("default", 7));
    let line = format!("offset {offset}); 1 entry lost, partition \"default\", key \"000007\"\n");
    let ran = store.run(["verify"]).failed(2, &[&line, "error: 1 damaged place\n"]);
    assert_eq!(ran.err.matches("000007").count(), 1, "{ran:?}");
    let dump = store.path("dump.jsonl");
    let args = ["dump", "-o", dump.to_str().unwrap()];
    store.run(args).failed(2, &["not the value of this key", "--skip-damaged"]);
    let ran = store.run(args.iter().chain(&["--skip-damaged"]));
    let ran = ran.failed(2, &[&line, "skipped 1 damaged place; its", "from a backup"]);
    assert_eq!(ran.err.matches("000007").count(), 1, "{ran:?}");
    let dumped = std::fs::read_to_string(&dump).unwrap();
    assert_eq!(dumped.lines().count(), VALUES + SMALL - 1);
    assert!(!dumped.contains("\"000007\"") && dumped.contains("\"000006\"") && dumped.contains("\"000008\""));
    let new = store.path("new");
    let args = ["repair", "--into", new.to_str().unwrap()];
    let ran = store.run(args).failed(2, &[&line, "salvaged 5,599 entries", "damaged places: 1"]);
    assert_eq!(ran.err.matches("000007").count(), 1, "{ran:?}");
    assert_eq!(store.ok(["scan", "--count", "--db", new.to_str().unwrap()]), "5299\n");
    std::fs::remove_dir_all(&new).unwrap();
    let ran = store.run(args.iter().chain(&["--json"]));
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let bytes = usize::try_from(report["bytes"].as_u64().unwrap()).unwrap();
    assert_eq!(report["entries"], 5_599);
    assert!((599 * LEN..900 * LEN).contains(&bytes), "the values count, once: {report}");
}

#[test]
fn keys_that_are_no_text_are_escaped() {
    let (store, file) = store();
    strike(&file, &value("photos", 10));
    let key = r#", partition "photos", key "\x00"\xff\n\x00""#;
    for args in [&["verify"][..], &["dump", "--partition", "photos", "--skip-damaged", "-o", "/dev/null"]] {
        let ran = store.run(args).failed(2, &["; 1 entry lost", key]);
        assert!(!ran.err.contains('\0'), "{ran:?}");
    }
}

#[test]
fn a_dump_skips_damaged_values_and_damaged_blocks() {
    let (store, file) = store();
    strike(&file, &value("default", 0));
    strike(&file, &value("default", VALUES - 1));
    let ssts = std::fs::read_dir(store.db()).unwrap().map(|entry| entry.unwrap().path());
    let ssts = ssts.filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
    let sst = ssts.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&sst).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&sst, bytes).unwrap();
    let dump = store.path("dump.jsonl");
    let args = ["dump", "--skip-damaged", "-o", dump.to_str().unwrap()];
    let words =
        ["key \"000000\"", "key \"000299\"", "keys \"s0", "skipped 3 damaged places", "pleach repair"];
    store.run(args).failed(2, &words);
    let lines = std::fs::read_to_string(&dump).unwrap().lines().count();
    assert!((4_000..VALUES + SMALL - 2).contains(&lines), "{lines}");
}

#[test]
fn commands_that_need_no_values_do_not_meet_their_damage() {
    let (store, file) = store();
    strike(&file, &value("default", 7));
    let ran = store.run(["scan"]);
    assert!(ran.code == 2 && ran.err.contains("not the value of this key"), "{ran:?}");
    assert_eq!(store.ok(["scan", "--count"]), "5300\n");
    assert_eq!(store.ok(["scan", "--count", "--reverse", "--limit", "5299"]), "5299\n");
    let keys = store.ok(["scan", "--keys-only"]);
    assert!(keys.lines().count() == 5_300 && keys.contains("\n000007\n"));
    assert!(store.ok(["scan", "--keys-only", "--reverse"]).lines().rev().eq(keys.lines()));
    assert_eq!(store.ok(["dump", "--format", "lines"]), keys);
    let partitions = store.json(["partitions", "--json"]);
    let default = partitions.as_array().unwrap().iter().find(|of| of["partition"] == "default").unwrap();
    assert_eq!((&default["entries"], &default["exact"]), (&5_300.into(), &true.into()), "{default}");
    assert_eq!(default["value_bytes"], VALUES * (LEN + 4));
    assert!(default["data_bytes"].as_u64().unwrap() > (VALUES * LEN) as u64, "{default}");
    assert!(default["file_bytes"].as_u64() > default["value_bytes"].as_u64(), "{default}");
    strike(&file, &value("photos", 7));
    store.ok(["drop-partition", "photos", "--yes"]);
}

#[test]
fn a_missing_file_of_values_is_one_line() {
    let (store, file) = store();
    std::fs::remove_file(file).unwrap();
    let lost =
        "; 600 entries lost in 2 partitions, first in partition \"default\", keys \"000000\" to \"000299\"\n";
    let ran = store.run(["verify"]).failed(2, &[lost]);
    assert_eq!(ran.err.lines().count(), 3, "the file, the store, a hint: {ran:?}");
    let args = ["repair", "--into", store.path("new").to_str().unwrap()].map(str::to_owned);
    let ran = store.run(args).failed(2, &["salvaged 5,000 entries", "damaged places: 1"]);
    assert_eq!(ran.err.lines().count(), 3, "{ran:?}");
}

#[test]
fn values_and_their_files_are_counted() {
    let (store, _) = store();
    let verified = store.ok(["verify"]);
    assert!(verified.contains("1 file of values (1.15 MiB, 600 values)"), "{verified}");
    let report = store.json(["verify", "--json"]);
    let value_bytes = 2 * VALUES * (LEN + 4);
    assert_eq!((&report["value_files"], &report["values"]), (&1.into(), &600.into()), "{report}");
    assert_eq!(report["value_bytes"], value_bytes, "{report}");
    let stats = store.json(["stats", "--json"]);
    let of_partitions: u64 =
        stats["partitions"].as_array().unwrap().iter().map(|of| of["value_bytes"].as_u64().unwrap()).sum();
    assert_eq!((of_partitions, &stats["store"]["value_bytes"]), (value_bytes as u64, &value_bytes.into()));
    assert!(store.ok(["stats"]).contains("VALUE BYTES"));
    let partitions = store.ok(["partitions"]);
    assert!(partitions.contains("VALUES") && partitions.contains("587.11 KiB"), "{partitions}");
}
