//! Folders that hold something else, cannot be written to, or hold what a crash left of a store that was being made.

use std::fs;
use std::path::Path;

use pleach_reshape::store::lmdb::{LmdbOptions, LmdbStore};
use pleach_reshape::store::redb::{RedbOptions, RedbStore};
use pleach_reshape::store::{Durability, Result, RowStore, Table};

type Opened = Result<Box<dyn RowStore>>;

fn redb(folder: &Path) -> Opened {
    Ok(Box::new(RedbStore::open(folder, &RedbOptions::default())?))
}

fn lmdb(folder: &Path) -> Opened {
    Ok(Box::new(LmdbStore::open(folder, &LmdbOptions::default())?))
}

/// How a store is opened, and the name of its file.
type Kind = (fn(&Path) -> Opened, &'static str);

const STORES: [Kind; 2] = [(redb, "rows.redb"), (lmdb, "rows.lmdb")];

fn assert_error_says(opened: Opened, words: &str) {
    let error = opened.expect_err("it does not open").to_string();
    assert!(error.contains(words), "the error says why: {error}");
}

#[test]
fn folders_of_other_things_are_refused_and_unchanged() {
    for (open, _) in STORES {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("letter"), "dear").unwrap();
        assert_error_says(open(folder.path()), "holds other files");
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["letter"]);
        assert_error_says(open(&folder.path().join("letter")), "letter");
    }
}

#[test]
fn stores_of_the_other_kind_are_refused() {
    for [(open, _), (other, _)] in [STORES, [STORES[1], STORES[0]]] {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path()).unwrap());
        assert_error_says(other(folder.path()), "holds other files");
        open(folder.path()).unwrap();
    }
}

#[test]
fn other_files_by_the_stores_name_are_refused() {
    for (open, file) in STORES {
        for content in [&b"dear"[..], &[0; 10_000]] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(file);
            fs::write(&file, content).unwrap();
            assert_error_says(open(folder.path()), &file.display().to_string());
            assert_eq!(fs::read(&file).unwrap(), content);
        }
    }
}

#[test]
fn files_of_the_same_library_with_other_tables_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(redb::Database::create(folder.path().join("rows.redb")).unwrap());
    assert_error_says(redb(folder.path()), "not of rows");
}

#[test]
fn what_is_left_of_a_store_in_the_making_does_no_harm() {
    for (open, file) in STORES {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("LOCK"), "").unwrap();
        fs::write(folder.path().join(format!("{file}.new")), "half").unwrap();
        fs::write(folder.path().join(format!("{file}.new-lock")), "half").unwrap();
        let store = open(folder.path()).unwrap();
        store.create_table(Table(0)).unwrap();
        store.commit(&[], Durability::Sync).unwrap();
        drop(store);
        open(folder.path()).unwrap();
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.iter().all(|name| !name.to_string_lossy().contains("new")), "{names:?}");
    }
}

#[test]
fn folders_without_the_right_to_write_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    for (open, _) in STORES {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path()).unwrap());
        let set = |mode| {
            for entry in fs::read_dir(folder.path()).unwrap() {
                fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(mode & 0o666)).unwrap();
            }
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        };
        set(0o555);
        // Root may write anywhere.
        if fs::write(folder.path().join("probe"), "").is_err() {
            assert_error_says(open(folder.path()), "cannot write");
        }
        set(0o755);
        drop(fs::remove_file(folder.path().join("probe")));
        open(folder.path()).unwrap();
    }
}
