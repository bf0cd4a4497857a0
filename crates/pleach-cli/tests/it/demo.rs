//! The demo, with few keys.

use crate::command::{Ran, Store, pleach};

fn demo(args: &[&str]) -> Ran {
    Ran::of(pleach().args(["demo", "--keys", "5000", "--kill-after", "100"]).args(args).output().unwrap())
}

#[test]
fn the_demo_shows_and_checks_every_step() {
    let store = Store::new();
    let dir = store.db();
    let ran = demo(&["--dir", dir.to_str().unwrap()]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    for words in ["[1/5] Load", "random reads", "0 lost, 0 torn", "dropped", "no damage", "all checks passed"]
    {
        assert!(ran.out.contains(words), "no {words:?} in {ran:?}");
    }
    assert!(!ran.out.contains('\u{1b}'), "{ran:?}");
    assert_eq!(store.ok(["scan", "--count", "--partition", "users"]), "1000\n");
    store.run(["scan", "--partition", "events"]).failed(1, &["no partition"]);
    demo(&["--dir", dir.to_str().unwrap()]).failed(3, &["is not empty"]);
}

#[test]
fn the_demo_cleans_up_and_reports_as_json() {
    let store = Store::new();
    let mut command = pleach();
    command.args(["demo", "--keys", "2000", "--kill-after", "50", "--json"]).env("TMPDIR", store.path(""));
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["ok"], true, "{report}");
    assert!(report["crash"]["found_batches"].as_u64() >= report["crash"]["acknowledged_batches"].as_u64());
    assert!(report["crash"]["acknowledged_batches"].as_u64() > Some(0));
    assert_eq!(std::fs::read_dir(store.path("")).unwrap().count(), 0);
}
