//! Read-only opens: many at a time, without permission to write, and without changing a byte.

use std::io;
use std::path::Path;
use std::sync::Arc;

use pleach::env::{CrashPolicy, SimEnv};
use pleach::{Db, ErrorKind, Options};

use crate::rig::setup::DIR;

fn options(env: &Arc<SimEnv>) -> Options {
    Options::new().env(Arc::<SimEnv>::clone(env)).memory(64 << 20).memtable_bytes(256 << 10)
}

fn open(env: &Arc<SimEnv>) -> Db {
    options(env).open(DIR).unwrap()
}

fn read(env: &Arc<SimEnv>) -> Db {
    options(env).read_only(true).open(DIR).unwrap()
}

/// A machine whose process was killed while a store had files and a long tail of the log. Its disk is read-only.
fn killed_machine() -> Arc<SimEnv> {
    let env = SimEnv::new(1);
    let db = open(&env);
    let (keys, other) = (db.default_partition(), db.partition("other").unwrap());
    for key in 0..400u32 {
        keys.put(key.to_le_bytes(), [1; 1000]).unwrap();
        other.put(key.to_le_bytes(), b"other").unwrap();
    }
    db.flush().unwrap();
    keys.delete(7u32.to_le_bytes()).unwrap();
    for key in 400..900u32 {
        keys.put(key.to_le_bytes(), [2; 1000]).unwrap();
    }
    let killed = env.crash_image(CrashPolicy::ProcessKill, 1);
    killed.set_read_only(true);
    killed
}

fn files(env: &SimEnv) -> Vec<(String, Option<Vec<u8>>)> {
    let dir = Path::new(DIR);
    env.file_names(dir).into_iter().map(|name| (name.clone(), env.read_file(&dir.join(name)))).collect()
}

#[test]
fn a_store_is_read_by_many_and_nothing_changes() {
    let env = killed_machine();
    let (before, ops) = (files(&env), env.op_count());
    // The memtables of one reader take less than the log's tail.
    let readers = [read(&env), options(&env).memtable_bytes(16 << 10).read_only(true).open(DIR).unwrap()];
    for db in &readers {
        let keys = db.default_partition();
        assert_eq!(keys.get(7u32.to_le_bytes()).unwrap(), None);
        assert_eq!(keys.get(8u32.to_le_bytes()).unwrap().unwrap()[..], [1; 1000]);
        assert_eq!(keys.get(899u32.to_le_bytes()).unwrap().unwrap()[..], [2; 1000]);
        assert_eq!(keys.iter().map(Result::unwrap).count(), 899);
        assert_eq!(db.find_partition("other").unwrap().iter().rev().map(Result::unwrap).count(), 400);
        assert_eq!(db.snapshot().range(&keys, 1u32.to_le_bytes()..).map(Result::unwrap).count(), 895);
        assert_eq!(db.last_sequence_number(), 400 * 2 + 1 + 500);
        assert!(db.verify().unwrap().entries >= 800 && db.stats().memtables > 1);
        assert!(db.partition("other").is_ok(), "it is there");
    }
    for db in readers {
        db.close().unwrap();
    }
    assert_eq!(env.op_count(), ops, "no call was made that changes the disk");
    assert!(files(&env) == before);
    env.set_read_only(false);
    assert_eq!(open(&env).default_partition().iter().count(), 899);
}

#[test]
fn writes_are_refused_in_words() {
    let env = killed_machine();
    let db = read(&env);
    let refused = |error: pleach::Error| {
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.io_error().unwrap().kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert!(error.to_string().contains("open for reading only"), "{error}");
    };
    let keys = db.default_partition();
    refused(keys.put(b"a", b"").unwrap_err());
    refused(keys.delete(b"a").unwrap_err());
    refused(db.sync().unwrap_err());
    refused(db.flush().unwrap_err());
    refused(db.compact().unwrap_err());
    refused(db.convert().unwrap_err());
    refused(db.settle().unwrap_err());
    refused(keys.compact().unwrap_err());
    refused(keys.convert().unwrap_err());
    refused(db.partition("new").unwrap_err());
    refused(db.drop_partition(db.find_partition("other").unwrap()).unwrap_err());
    refused(db.read_only().unwrap());
}

#[test]
fn readers_and_a_writer_exclude_each_other() {
    let env = SimEnv::new(1);
    let writer = open(&env);
    let error = options(&env).read_only(true).open(DIR).unwrap_err();
    assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("for writing"), "{error}");
    writer.close().unwrap();
    let (first, second) = (read(&env), read(&env));
    assert_eq!(options(&env).open(DIR).unwrap_err().kind(), ErrorKind::Conflict);
    first.close().unwrap();
    assert_eq!(options(&env).open(DIR).unwrap_err().kind(), ErrorKind::Conflict);
    drop(second);
    open(&env);
}

#[test]
fn a_missing_store_is_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let kind = |path: &Path| Options::new().read_only(true).open(path).unwrap_err().kind();
    assert_eq!(kind(&dir.path().join("missing")), ErrorKind::NotFound);
    assert_eq!(kind(dir.path()), ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// On the real machine, without permission to write. (The superuser is not asked for it.)
#[test]
fn a_store_without_permission_to_write_is_read() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    db.default_partition().put(b"a", b"1").unwrap();
    db.close().unwrap();
    let set_mode =
        |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o555);
    let db = Options::new().read_only(true).open(dir.path()).unwrap();
    assert_eq!(db.default_partition().get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    drop(db);
    set_mode(0o755);
}
