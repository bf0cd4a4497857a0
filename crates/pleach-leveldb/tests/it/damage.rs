//! Repair and destroy: what they keep, and whose files they touch.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pleach_leveldb::*;

use crate::compaction::compact;
use crate::reversed::reversed;
use crate::support::{Store, caught, folded_options, options, parts};

type ManageFunction = unsafe extern "C" fn(&OptionsHandle, *const std::ffi::c_char, ErrorSlot<'_>);

pub(crate) fn manage(function: ManageFunction, path: &Path) -> Result<(), String> {
    manage_with(&options(), function, path)
}

fn manage_with(options: &OptionsHandle, function: ManageFunction, path: &Path) -> Result<(), String> {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a C string.
    caught(|error| unsafe { function(options, name.as_ptr(), error) })
}

fn names(path: &Path) -> Vec<String> {
    let names = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// A closed store with a hundred keys in an SST. Returns the SST's path.
fn store_with_an_sst(path: &Path) -> std::path::PathBuf {
    let store = Store::open(path, &options()).unwrap();
    for n in 0..100_u8 {
        store.put(&[n], &[n; 100]).unwrap();
    }
    compact(&store, None, None);
    drop(store);
    let is_sst = |name: &String| Path::new(name).extension().is_some_and(|end| end == "sst");
    path.join(names(path).into_iter().find(is_sst).unwrap())
}

#[test]
fn a_repair_that_cannot_read_everything_keeps_the_old_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    for kept in [".damaged", ".damaged-2"] {
        let sst = store_with_an_sst(&path);
        let mut bytes = std::fs::read(&sst).unwrap();
        let middle = bytes.len() / 3;
        bytes[middle] ^= 1;
        std::fs::write(&sst, &bytes).unwrap();
        manage(leveldb_repair_db, &path).unwrap();
        let old = dir.path().join(format!("db{kept}")).join(sst.file_name().unwrap());
        assert_eq!(std::fs::read(&old).unwrap(), bytes, "{kept}");
        drop(Store::open(&path, &options()).unwrap());
        manage(leveldb_destroy_db, &path).unwrap();
    }
    assert_eq!(names(dir.path()), ["db.damaged", "db.damaged-2"]);
}

#[test]
fn a_repair_of_a_sound_store_leaves_nothing_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    store_with_an_sst(&path);
    manage(leveldb_repair_db, &path).unwrap();
    assert_eq!(Store::open(&path, &options()).unwrap().keys(true).len(), 100);
    assert_eq!(names(dir.path()), ["db"]);
    assert!(!names(&path).contains(&"REPAIRING".to_owned()));
}

#[test]
fn a_repair_leaves_the_directory_and_files_of_others_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (place, link) = (dir.path().join("place"), dir.path().join("link"));
    std::fs::create_dir(&place).unwrap();
    std::os::unix::fs::symlink(&place, &link).unwrap();
    store_with_an_sst(&link);
    std::fs::write(place.join("notes.txt"), "mine").unwrap();
    manage(leveldb_repair_db, &link).unwrap();
    assert!(link.is_symlink() && place.is_dir());
    assert_eq!(std::fs::read(place.join("notes.txt")).unwrap(), b"mine");
    assert_eq!(Store::open(&link, &options()).unwrap().keys(true).len(), 100);
    assert_eq!(names(dir.path()), ["link", "place"]);
}

#[test]
fn a_repair_touches_nothing_that_it_did_not_make() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let [store, empty, file, damaged] =
        ["repaired", "repaired-2", "repaired-3", "damaged"].map(|end| dir.path().join(format!("db.{end}")));
    Store::open(&store, &options()).unwrap().put(b"mine", b"1").unwrap();
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(&file, "mine").unwrap();
    std::fs::create_dir(&damaged).unwrap();
    store_with_an_sst(&path);
    std::fs::remove_file(path.join("CURRENT")).unwrap();
    manage(leveldb_repair_db, &path).unwrap();
    assert_eq!(Store::open(&path, &options()).unwrap().keys(true).len(), 100);
    assert_eq!(Store::open(&store, &options()).unwrap().keys(true), [b"mine"]);
    assert!(names(&empty).is_empty() && names(&damaged).is_empty());
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    manage(leveldb_destroy_db, &path).unwrap();
    let left = ["db.damaged", "db.damaged-2", "db.repaired", "db.repaired-2", "db.repaired-3"];
    assert_eq!(names(dir.path()), left);
}

/// A directory as a repair leaves it that was killed while it created the new store.
fn left_by_a_killed_repair(place: &Path) {
    std::fs::create_dir_all(place.join("store")).unwrap();
    for name in ["MADE-BY-REPAIR", "store/LOCK", "store/MANIFEST-000001"] {
        std::fs::write(place.join(name), "").unwrap();
    }
}

#[test]
fn what_a_killed_repair_left_is_removed_by_the_next_one_and_by_destroy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    for (function, is_kept) in [(leveldb_repair_db as ManageFunction, true), (leveldb_destroy_db, false)] {
        store_with_an_sst(&path);
        for end in [".repaired", ".repaired-7"] {
            left_by_a_killed_repair(&dir.path().join(format!("db{end}")));
        }
        manage(function, &path).unwrap();
        assert_eq!(names(dir.path()), ["db"][..usize::from(is_kept)]);
    }
    // Another repair has its new store open.
    store_with_an_sst(&path);
    let place = dir.path().join("db.repaired");
    left_by_a_killed_repair(&place);
    std::fs::remove_file(place.join("store/MANIFEST-000001")).unwrap();
    let copy = Store::open(&place.join("store"), &options()).unwrap();
    for function in [leveldb_repair_db as ManageFunction, leveldb_destroy_db] {
        let refused = manage(function, &path).unwrap_err();
        assert!(refused.starts_with("IO error: ") && refused.contains("another repair"), "{refused}");
    }
    drop(copy);
    manage(leveldb_repair_db, &path).unwrap();
    assert_eq!(Store::open(&path, &options()).unwrap().keys(true).len(), 100);
    // What is in the directory beside is the user's again.
    left_by_a_killed_repair(&place);
    std::fs::write(place.join("notes.txt"), "mine").unwrap();
    manage(leveldb_repair_db, &path).unwrap();
    assert_eq!(names(&place), ["notes.txt"]);
}

#[test]
fn an_open_store_and_what_is_none_are_not_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let store = Store::open(&path, &options()).unwrap();
    store.put(b"k", b"1").unwrap();
    let open = manage(leveldb_repair_db, &path).unwrap_err();
    assert!(open.starts_with("IO error: "), "{open}");
    drop(store);
    assert_eq!(Store::open(&path, &options()).unwrap().keys(true), [b"k"]);
    assert_eq!(names(dir.path()), ["db"]);
    let (empty, file) = (dir.path().join("empty"), dir.path().join("file"));
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(&file, "text").unwrap();
    for path in [&empty, &file, &dir.path().join("missing"), Path::new(""), Path::new("/")] {
        manage(leveldb_repair_db, path).unwrap_err();
    }
    assert_eq!(names(dir.path()), ["db", "empty", "file"]);
}

#[test]
fn a_log_of_leveldbs_does_not_make_a_store_leveldbs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    store_with_an_sst(&path);
    // LevelDB leaves it when a program opens the store without Pleach.
    std::fs::write(path.join("LOG"), "").unwrap();
    std::fs::remove_file(path.join("CURRENT")).unwrap();
    manage(leveldb_repair_db, &path).unwrap();
    assert_eq!(Store::open(&path, &options()).unwrap().keys(true).len(), 100);
    // Without a file that only Pleach writes, the directory may be LevelDB's.
    for name in ["CURRENT", "RESERVE"] {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    let refused = manage(leveldb_destroy_db, &path).unwrap_err();
    assert!(refused.starts_with("Not implemented: "), "{refused}");
}

#[test]
fn a_repair_without_a_manifest_keeps_the_order_of_the_comparator() {
    for wanted in [folded_options(), reversed()] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let store = Store::open(&path, &wanted).unwrap();
        let value = vec![7; 30_000];
        for n in 0..100_u32 {
            store.put(format!("key{n}").as_bytes(), &value).unwrap();
        }
        compact(&store, None, None);
        store.put(b"last", b"1").unwrap();
        let keys = store.keys(true);
        drop(store);
        let manifest = names(&path).into_iter().find(|name| name.starts_with("MANIFEST-")).unwrap();
        std::fs::remove_file(path.join(manifest)).unwrap();
        let before = names(&path);
        let refused = manage(leveldb_repair_db, &path).unwrap_err();
        assert!(refused.contains("repair with the store's comparator"), "{refused}");
        assert_eq!((names(&path), names(dir.path())), (before, vec!["db".to_owned()]));
        manage_with(&wanted, leveldb_repair_db, &path).unwrap();
        let store = Store::open(&path, &wanted).unwrap();
        assert_eq!(store.keys(true), keys);
        assert_eq!(store.get(b"key42").unwrap(), Some(value));
        assert_eq!(names(dir.path()), ["db", "db.damaged"]);
    }
}

#[test]
fn a_store_in_memory_is_repaired() {
    let env = pleach_leveldb_memory_env_create();
    let mut wanted = options();
    leveldb_options_set_env(&mut wanted, Some(&env));
    Store::open(Path::new("db"), &wanted).unwrap().put(b"k", b"1").unwrap();
    // SAFETY: the name is a C string.
    caught(|error| unsafe { leveldb_repair_db(&wanted, c"db".as_ptr(), error) }).unwrap();
    assert_eq!(Store::open(Path::new("db"), &wanted).unwrap().keys(true), [b"k"]);
    // SAFETY: as above.
    caught(|error| unsafe { leveldb_destroy_db(&wanted, c"db".as_ptr(), error) }).unwrap();
    assert!(Store::open(Path::new("db"), &wanted).unwrap().keys(true).is_empty());
}

/// Files as LevelDB names them. The contents of all but CURRENT do not matter.
fn leveldb_files(path: &Path, current: Option<&str>) {
    std::fs::create_dir(path).unwrap();
    for name in ["000005.ldb", "000006.log", "LOCK", "LOG", "MANIFEST-000004"] {
        std::fs::write(path.join(name), "of LevelDB").unwrap();
    }
    if let Some(current) = current {
        std::fs::write(path.join("CURRENT"), current).unwrap();
    }
}

#[test]
fn files_of_leveldb_are_refused_even_without_a_sound_current() {
    let dir = tempfile::tempdir().unwrap();
    let currents = [Some("MANIFEST-000004\n"), Some(""), Some("nonsense of a crash"), None];
    for (n, current) in currents.into_iter().enumerate() {
        let path = dir.path().join(n.to_string());
        leveldb_files(&path, current);
        let before = names(&path);
        let opened = Store::open(&path, &options()).err().unwrap();
        for refused in [
            opened,
            manage(leveldb_repair_db, &path).unwrap_err(),
            manage(leveldb_destroy_db, &path).unwrap_err(),
        ] {
            assert!(refused.starts_with("Not implemented: ") && refused.contains("convert"), "{refused}");
        }
        assert_eq!(names(&path), before);
    }
    assert_eq!(names(dir.path()).len(), currents.len());
}

#[test]
fn destroy_is_content_where_no_store_is() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    manage(leveldb_destroy_db, &empty).unwrap();
    assert!(!empty.exists());
    manage(leveldb_destroy_db, &empty).unwrap();
    let others = dir.path().join("others");
    std::fs::create_dir(&others).unwrap();
    std::fs::write(others.join("notes.txt"), "mine").unwrap();
    manage(leveldb_destroy_db, &others).unwrap();
    assert_eq!(names(&others), ["notes.txt"]);
    // The empty name is not the working directory.
    manage(leveldb_destroy_db, Path::new("")).unwrap();
    assert!(Store::open(Path::new(""), &options()).err().unwrap().starts_with("IO error: "));
}

#[test]
fn names_of_any_bytes_are_directories() {
    let dir = tempfile::tempdir().unwrap();
    for name in [&b"with space"[..], b"\xff\xfe", b"new\nline", b"..", &[b'n'; 255]] {
        if name == b".." {
            continue;
        }
        let path = dir.path().join(std::ffi::OsStr::from_bytes(name));
        Store::open(&path, &options()).unwrap().put(b"k", b"1").unwrap();
        assert_eq!(Store::open(&path, &options()).unwrap().keys(true), [b"k"]);
        if name.len() < 240 {
            manage(leveldb_repair_db, &path).unwrap();
        } else {
            manage(leveldb_repair_db, &path).unwrap_err();
        }
        assert_eq!(Store::open(&path, &options()).unwrap().keys(true), [b"k"]);
        manage(leveldb_destroy_db, &path).unwrap();
    }
    assert!(names(dir.path()).is_empty());
    let long = dir.path().join("n".repeat(256));
    assert!(Store::open(&long, &options()).err().unwrap().starts_with("IO error: "));
    let below_a_file = dir.path().join("file");
    std::fs::write(&below_a_file, "").unwrap();
    for path in [below_a_file.join("db"), below_a_file] {
        let refused = Store::open(&path, &options()).err().unwrap();
        assert!(refused.starts_with("IO error: "), "{refused}");
    }
}

#[test]
fn hostile_batches_are_corrupt_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options()).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let count: u32 = if random.u8(..) < 8 { u32::MAX } else { random.u32(1..3) };
        let mut records = vec![0; 8];
        records.extend(count.to_le_bytes());
        // Kinds and lengths are small, or the ends of varints.
        let bytes = [0, 0, 1, 1, 1, 2, 3, 0x7f, 0x80, 0x8f, 0xff, b'k'];
        records.extend((0..random.usize(..12)).map(|_| bytes[random.usize(..bytes.len())]));
        let (start, len) = parts(&records);
        // SAFETY: the records are there.
        let write = |error: ErrorSlot<'_>| unsafe {
            pleach_leveldb_write_records(store.db(), &store.writes, start, len, error);
        };
        match caught(write) {
            Ok(()) => accepted += 1,
            Err(refused) => assert!(refused.starts_with("Corruption: "), "{refused}"),
        }
    }
    assert!(accepted > 10, "{accepted}");
}
