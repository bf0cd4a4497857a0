//! Conversions: what is copied and told, what stops them, and what is left then.

use std::process::{Command, Stdio};
use std::time::Duration;

use pleach::Options;

use crate::command::{Ran, Store};

const LEN: usize = 2000;

/// A store with so many values apart in partition `partition`, written in no order.
fn with_values(store: &Store, partition: &str, count: u64) {
    let db = Options::new().memory(64 << 20).separate_at(512).open(store.db()).unwrap();
    let partition = db.partition(partition).unwrap();
    for number in (0..count).map(|number| number * 7919 % count) {
        partition.put(format!("{number:06}"), [number.to_le_bytes()[0]; LEN]).unwrap();
    }
    drop(partition);
    db.close().unwrap();
}

#[test]
fn values_are_copied_and_counted() {
    let store = Store::new();
    with_values(&store, "default", 2000);
    with_values(&store, "photos", 1000);
    let ran = store.run(["convert", "--partition", "photos", "--space-target", "4"]);
    let words = ["files of values", "BEFORE", "copied", "values (1.9", "1 pass"];
    assert!(ran.code == 0 && words.iter().all(|word| ran.out.contains(word)), "{ran:?}");
    assert!(ran.out.lines().all(|line| line.len() <= 80), "{ran:?}");
    // With this target it takes several passes.
    let report = store.json(["convert", "--json", "--space-target", "1.1"]);
    assert!(report["passes"].as_u64().unwrap() > 2, "{report}");
    let copied = report["values_converted"].as_u64().unwrap();
    assert!((1900..=2000).contains(&copied), "those of the other partition were in order: {report}");
    assert!(report["value_converted_bytes"].as_u64().unwrap() > copied * LEN as u64);
    assert_eq!((&report["left_bytes"], &report["after"]["values"]), (&0.into(), &3000.into()));
    assert_eq!(store.json(["convert", "--json", "--space-target", "2"])["values_converted"], 0);
    assert_eq!(store.ok(["scan", "--count", "--partition", "photos"]), "1000\n");
    store.ok(["verify"]);
}

#[test]
fn a_store_without_values_apart_has_nothing_to_do() {
    let store = Store::with_entries(10);
    let ran = store.run(["convert"]);
    assert!(ran.code == 0 && ran.out.is_empty() && ran.err.contains("nothing to do"), "{ran:?}");
    let report = store.json(["convert", "--json"]);
    assert_eq!((&report["passes"], &report["values_converted"]), (&0.into(), &0.into()));
    store.run(["convert", "--partition", "p"]).failed(1, &["no partition \"p\"", "default"]);
    store.run(["convert", "--space-target", "9"]).failed(3, &["between 1.1 and 4"]);
    let _open = Options::new().open(store.db()).unwrap();
    store.run(["convert"]).failed(5, &["is open elsewhere", "close it there and try again"]);
}

#[test]
fn ctrl_c_keeps_what_was_copied() {
    let store = Store::new();
    with_values(&store, "default", 60_000);
    let value_files = || {
        let names = std::fs::read_dir(store.db()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".val")).count()
    };
    let before = value_files();
    let mut command = store.command(["convert", "--space-target", "4"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..10_000 {
        if value_files() > before {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let ran = Ran::of(child.wait_with_output().unwrap());
    let ran = ran.failed(130, &["interrupted: copied", "stays copied", "run the command again"]);
    assert!(!ran.err.contains("copied 0 values"), "{ran:?}");
    let report = store.json(["convert", "--json", "--space-target", "4"]);
    let copied = report["values_converted"].as_u64().unwrap();
    assert!((1..60_000).contains(&copied), "{report}");
    assert_eq!(store.ok(["scan", "--count"]), "60000\n");
    store.ok(["verify"]);
}
