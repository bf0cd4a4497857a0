//! First steps of a user, on the real machine.

use std::collections::BTreeMap;

use pleach::{Db, Durability, ErrorKind, Options};

#[test]
fn what_is_put_is_found_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Db::open(dir.path()).unwrap();
        let users = db.partition("users").unwrap();
        users.put(b"alice", b"1").unwrap();
        users.put_with(b"bob", b"2", Durability::Sync).unwrap();
        users.delete(b"alice").unwrap();
    }
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.partitions(), ["default", "users"]);
    let users = db.partition("users").unwrap();
    assert_eq!(users.get(b"alice").unwrap(), None);
    assert_eq!(users.get(b"bob").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_store_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(Db::open(dir.path()).unwrap_err().kind(), ErrorKind::Conflict);
    drop(db);
    Db::open(dir.path()).unwrap();
}

#[test]
fn a_directory_of_others_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.txt"), b"do not touch").unwrap();
    assert_eq!(Db::open(dir.path()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(std::fs::read(dir.path().join("thesis.txt")).unwrap(), b"do not touch");
}

/// It once left `LOCK` behind, and was an invalid argument like any other.
#[test]
fn a_refused_open_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let names = |path: &std::path::Path| {
        let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<Vec<_>>()
    };
    let kind = |path: &std::path::Path, create| {
        Options::new().create_if_missing(create).open(path).unwrap_err().kind()
    };
    assert_eq!(kind(&dir.path().join("missing"), false), ErrorKind::NotFound);
    assert_eq!(kind(dir.path(), false), ErrorKind::NotFound);
    assert!(names(dir.path()).is_empty());
    std::fs::write(dir.path().join("thesis.txt"), b"do not touch").unwrap();
    assert_eq!(kind(dir.path(), false), ErrorKind::NotFound);
    assert_eq!(kind(dir.path(), true), ErrorKind::InvalidArgument);
    assert_eq!(kind(&dir.path().join("thesis.txt"), true), ErrorKind::InvalidArgument);
    assert_eq!(names(dir.path()), ["thesis.txt"]);
}

#[test]
fn many_keys_survive_flush_compaction_and_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new().memory(1 << 20).sst_bytes(64 << 10);
    let mut model = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..3u32 {
        let db = options().open(dir.path()).unwrap();
        let keys = db.partition("keys").unwrap();
        for i in 0..20_000u32 {
            let key = format!("{:08}", rng.u32(..30_000)).into_bytes();
            if rng.u8(..10) == 0 {
                keys.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = format!("{round}-{i}").repeat(3).into_bytes();
                keys.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        if round == 1 {
            db.compact().unwrap();
            assert_eq!(keys.stats().unwrap().runs, 1);
        }
        for i in 0..30_000u32 {
            let key = format!("{i:08}").into_bytes();
            assert_eq!(keys.get(&key).unwrap().as_deref(), model.get(&key).map(|v| &v[..]), "key {i}");
        }
        let scanned: Vec<_> =
            keys.iter().map(|e| e.map(|(k, v)| (k.into_vec(), v.into_vec())).unwrap()).collect();
        assert!(scanned.iter().map(|(k, v)| (k, v)).eq(model.iter()));
        let reversed: Vec<_> =
            keys.iter().rev().map(|e| e.map(|(k, v)| (k.into_vec(), v.into_vec())).unwrap()).collect();
        assert!(reversed.iter().map(|(k, v)| (k, v)).eq(model.iter().rev()));
        db.settle().unwrap();
        db.verify().unwrap();
        println!("{:#?}", db.stats());
    }
}

/// A store that wrote nothing but `Buffered` once kept every removed log segment open until its next sync.
#[test]
fn flushed_log_segments_are_closed_without_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().memory(1 << 20).memtable_bytes(64 << 10).open(dir.path()).unwrap();
    let keys = db.default_partition();
    for i in 0..20_000u32 {
        keys.put(i.to_le_bytes(), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    let open_segments = || {
        let handles =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fd.ok()?.path().read_link().ok());
        handles.filter(|path| path.starts_with(dir.path()) && path.to_string_lossy().contains(".log")).count()
    };
    assert!(db.stats().flushes > 20);
    for _ in 0..100 {
        if open_segments() <= 4 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{} log segments are open", open_segments());
}

#[test]
fn any_list_of_names_is_created_as_one_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert!(db.create_partitions(<[&str; 0]>::default()).unwrap().is_empty());
    let long = "x".repeat(256);
    for bad in ["", &long] {
        let error = db.create_partitions(["fine", bad, "fine too"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(db.partitions(), ["default"]);
    }
    let names: Vec<_> = (0..100_000).map(|i| format!("{i}{}", "-".repeat(i % 200))).collect();
    let twice = names.iter().chain(&names);
    let created = db.create_partitions(twice).unwrap();
    assert_eq!(db.partitions().len(), 100_001);
    assert!(created.iter().zip(names.iter().chain(&names)).all(|(made, name)| made.name() == name));
    created[7].put("key", "value").unwrap();
    assert!(created[100_007].get("key").unwrap().is_some());
    assert!(created[8].get("key").unwrap().is_none());
    db.close().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.partitions().len(), 100_001);
    assert!(db.find_partition(&names[7]).unwrap().get("key").unwrap().is_some());
}
