//! Messages of the command about a store whose log a crash has torn.

use std::path::Path;

use crate::command::Store;

/// A store that was never closed, with 100 writes of two entries each, and a byte changed in the log's unsynced end.
fn torn() -> Store {
    let store = Store::new();
    let living = tempfile::tempdir().unwrap();
    let db = pleach::Db::open(living.path()).unwrap();
    for number in 0..100 {
        let mut batch = db.batch();
        for half in ["a", "b"] {
            batch.put(&db.default_partition(), format!("{number:03}{half}"), [b'v'; 100]);
        }
        batch.commit(pleach::Durability::Buffered).unwrap();
    }
    copy(living.path(), &store.db());
    store
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let mut bytes = std::fs::read(entry.path()).unwrap();
        if Path::new(&entry.file_name()).extension().is_some_and(|e| e == "log") {
            let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
            bytes[end / 2] ^= 1;
        }
        std::fs::write(to.join(entry.file_name()), bytes).unwrap();
    }
}

#[test]
fn the_first_command_after_a_crash_tells_what_was_dropped() {
    let ran = torn().run(["get", "000a"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("warning: the log had a gap, and what followed was dropped"), "{ran:?}");
    assert!(ran.err.contains("whole writes that were never synced"), "{ran:?}");

    let store = torn();
    let stats = store.json(["stats", "--json"]);
    let (records, bytes) = (&stats["store"]["log_dropped_records"], &stats["store"]["log_dropped_bytes"]);
    assert_eq!(stats["store"]["log_was_torn"], true);
    assert!((40..60).contains(&records.as_u64().unwrap()), "{records}");
    assert!((10_000..14_000).contains(&bytes.as_u64().unwrap()), "{bytes}");
    // The store has been opened and closed since.
    let ran = store.run(["stats"]);
    assert!(ran.code == 0 && ran.err.is_empty(), "{ran:?}");
}

#[test]
fn verify_tells_what_was_dropped() {
    let ran = torn().run(["verify"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("warning: the log had a gap"), "{ran:?}");
    assert!(ran.out.contains("no damage found in what is left of the log and "), "{ran:?}");
    let report = torn().json(["verify", "--json"]);
    assert_eq!((&report["ok"], &report["log_was_torn"]), (&true.into(), &true.into()));
    assert!(report["log_dropped_records"].as_u64().unwrap() > 40, "{report}");
}
