//! repair, verify and dump --skip-damaged on damaged stores.

use std::path::PathBuf;

use crate::command::Store;

/// A store with 50,000 entries in files, and the largest of the files.
fn sample() -> (Store, PathBuf) {
    let store = Store::new();
    let text: String = (0..50_000).map(|i| format!("{i:08}\tsome text that fills blocks {i}\n")).collect();
    store.ok_with_input(["load", "--format", "tsv"], text);
    let files = std::fs::read_dir(store.db()).unwrap().map(|entry| entry.unwrap().path());
    let ssts = files.filter(|path| path.extension().is_some_and(|e| e == "sst"));
    let largest = ssts.max_by_key(|path| path.metadata().unwrap().len()).expect("the load wrote files");
    (store, largest)
}

fn flip(path: &PathBuf, places: &[usize]) {
    let mut bytes = std::fs::read(path).unwrap();
    for &at in places {
        bytes[at] ^= 1;
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn verify_reports_all_damage() {
    let (store, sst) = sample();
    flip(&sst, &[10_000, 100_000, 200_000]);
    let ran = store.run(["verify"]);
    let ran =
        ran.failed(2, &["3 damaged places", "partition \"default\", keys \"000", "pleach repair --into NEW"]);
    assert_eq!(ran.err.matches("corruption").count(), 3, "{ran:?}");
    let ran = store.run(["verify", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["damage"].as_array().unwrap().len(), 3, "{report}");
}

#[test]
fn one_damaged_place_is_told_in_the_singular() {
    let (store, sst) = sample();
    flip(&sst, &[100_000]);
    store.run(["verify"]).failed(2, &["error: 1 damaged place\n"]);
    let args = ["dump", "--skip-damaged", "-o", "/dev/null"];
    store.run(args).failed(2, &["skipped 1 damaged place; its keys are not in the dump"]);
    let ran = store.run(["repair", "--into", store.path("new").to_str().unwrap()]);
    ran.failed(2, &["from 1 SST and ", "damaged places: 1"]);
}

#[test]
fn a_dump_goes_on_behind_damage_and_says_what_it_skipped() {
    let (store, sst) = sample();
    flip(&sst, &[10_000, 100_000]);
    store
        .run(["dump", "-o", "/dev/null"])
        .failed(2, &["corruption", "--skip-damaged", "not hold all entries"]);
    let file = store.path("dump.jsonl");
    let args = ["dump", "--skip-damaged", "-o", file.to_str().unwrap()];
    let ran = store.run(args).failed(2, &["skipped 2 damaged places", "keys \"000"]);
    let lines = std::fs::read_to_string(&file).unwrap().lines().count();
    assert!((49_000..50_000).contains(&lines), "{lines}: {ran:?}");
    flip(&sst, &[10_000, 100_000]);
    let len = std::fs::metadata(&sst).unwrap().len();
    assert!(len > 300_000);
    store.ok(args);
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 50_000);
}

#[test]
fn a_damaged_store_is_salvaged_into_a_new_one() {
    let (store, sst) = sample();
    flip(&sst, &[100_000]);
    std::fs::write(store.db().join("CURRENT"), "nonsense").unwrap();
    store.run(["get", "00000001"]).failed(2, &["CURRENT", "pleach repair"]);
    store.run(["verify"]).failed(2, &["CURRENT", "cannot be opened", "block"]);
    let new = store.path("new");
    let new = new.to_str().unwrap();
    let ran =
        store.run(["repair", "--into", new]).failed(2, &["CURRENT", "salvaged 49,", "damaged places: 2"]);
    assert!(!ran.err.contains("guessed"), "{ran:?}");
    assert_eq!(store.ok(["get", "00000001", "--db", new]), "some text that fills blocks 1");
    store.run(["repair", "--into", new]).failed(3, &["exists already", "another name"]);
    assert!(!store.path("new.incomplete").exists());
    let inside = store.db().join("new");
    store.run(["repair", "--into", inside.to_str().unwrap()]).failed(3, &["inside the damaged one"]);
    assert!(!inside.exists() && !store.db().join("new.incomplete").exists());
}

#[test]
fn a_guessed_repair_says_so_and_a_clean_one_is_a_success() {
    let (store, _) = sample();
    let report = store.json(["repair", "--json", "--into", store.path("a").to_str().unwrap()]);
    assert_eq!((&report["entries"], &report["damaged_places"]), (&50_000.into(), &0.into()), "{report}");
    for entry in std::fs::read_dir(store.db()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().contains("MANIFEST") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let ran = store.run(["repair", "--into", store.path("b").to_str().unwrap()]);
    ran.failed(2, &["guessed", "may have come back", "salvaged 50,000 entries"]);
    assert_eq!(store.ok(["scan", "--count", "--db", store.path("b").to_str().unwrap()]), "50000\n");
    let nowhere = store.path("nowhere");
    let args = ["repair", "--into", store.path("c").to_str().unwrap(), "--db"].map(str::to_owned);
    let args = args.into_iter().chain([nowhere.to_str().unwrap().to_owned()]);
    store.run(args).failed(1, &["no such store", "nothing was created"]);
    assert!(!store.path("c").exists() && !store.path("c.incomplete").exists());
    let (other, c) = (store.path("other"), store.path("c"));
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("letter"), "x").unwrap();
    let args = ["repair", "--into", c.to_str().unwrap(), "--db", other.to_str().unwrap()];
    store.run(args).failed(1, &["there is no store here", "nothing was created"]);
    assert!(!store.path("c").exists() && !store.path("c.incomplete").exists());
}
