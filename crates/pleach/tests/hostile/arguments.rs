//! Bad arguments and foreign directories: each is refused with the right kind of error, and nothing is changed.

use std::path::Path;
use std::sync::Arc;

use pleach::env::{Env, Fault, FaultKind, SimEnv};
use pleach::limits::{KEY_LEN_MAX, PARTITION_NAME_LEN_MAX, VALUE_LEN_MAX};
use pleach::{Db, Durability, ErrorKind, Options};

use crate::alloc::measure;
use crate::fixture::DIR;

fn options(env: &Arc<SimEnv>) -> Options {
    Options::new().env(Arc::clone(env) as _).memory(1 << 20)
}

fn refusal(options: Options) -> ErrorKind {
    options.open(DIR).expect_err("it is to be refused").kind()
}

/// An open store on a machine of its own.
fn store() -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(1);
    let db = options(&env).open(DIR).expect("a new store opens");
    (env, db)
}

#[test]
fn keys_out_of_range_are_refused_everywhere() {
    let (_env, db) = store();
    let keys = db.default_partition();
    for key in [vec![7; KEY_LEN_MAX + 1], vec![0; 2 * KEY_LEN_MAX]] {
        let refused = [
            keys.put(&key, b"v").unwrap_err(),
            keys.try_put(&key, b"v").unwrap_err(),
            keys.delete(&key).unwrap_err(),
            keys.get(&key).unwrap_err(),
            keys.contains(&key).unwrap_err(),
            keys.get_many([b"fine".to_vec(), key.clone()]).unwrap_err(),
            db.snapshot().get(&keys, &key).unwrap_err(),
        ];
        assert!(refused.iter().all(|error| error.kind() == ErrorKind::InvalidArgument), "{refused:?}");
        // As bounds of a range they are allowed.
        assert_eq!(keys.range(key.clone()..).count() + keys.range(..key).count(), 0);
    }
    let longest = vec![7; KEY_LEN_MAX];
    keys.put(&longest, b"v").unwrap();
    db.flush().unwrap();
    assert_eq!(keys.get(&longest).unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(keys.iter().count(), 1);
}

#[test]
fn a_value_above_the_limit_is_refused_before_it_is_copied() {
    let (_env, db) = store();
    let keys = db.default_partition();
    let huge = vec![0; VALUE_LEN_MAX + 1]; // Zeroed lazily: no page of it is ever touched.
    let (result, _, memory) = measure(|| keys.put(b"k", &huge));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(memory < 1 << 20, "{memory} bytes");
    assert_eq!(keys.get(b"k").unwrap(), None);
}

#[test]
fn a_refused_operation_refuses_its_whole_batch() {
    let (env, db) = store();
    let keys = db.default_partition();
    let mut batch = db.batch();
    batch.put(&keys, b"fine", b"v");
    batch.put(&keys, vec![7; KEY_LEN_MAX + 1], b"v");
    batch.put(&keys, b"fine too", b"v");
    assert_eq!(batch.commit(Durability::Sync).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(keys.iter().count(), 0);

    let other = options(&env).open("/other").unwrap();
    let mut batch = db.batch();
    batch.put(&other.default_partition(), b"k", b"v");
    assert_eq!(batch.commit(Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(db.last_sequence_number(), 0);
}

#[test]
fn partition_names_out_of_range_are_refused() {
    let (_env, db) = store();
    for name in [String::new(), "n".repeat(PARTITION_NAME_LEN_MAX + 1)] {
        assert_eq!(db.partition(&name).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let default = db.default_partition();
    assert_eq!(db.drop_partition(default).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let names =
        ["n".repeat(PARTITION_NAME_LEN_MAX), "../../up".into(), "\0".into(), "a\nb".into(), "CURRENT".into()];
    for name in &names {
        db.partition(name).unwrap().put(b"k", name).unwrap();
    }
    assert_eq!(db.partitions().len(), names.len() + 1);
    for name in &names {
        assert_eq!(db.partition(name).unwrap().get(b"k").unwrap().as_deref(), Some(name.as_bytes()));
    }
}

#[test]
fn a_dropped_partition_is_closed_to_old_handles() {
    let (_env, db) = store();
    let gone = db.partition("gone").unwrap();
    db.drop_partition(gone.clone()).unwrap();
    let refused = [
        gone.put(b"k", b"v").unwrap_err(),
        gone.get(b"k").unwrap_err(),
        gone.iter().next().expect("an error").unwrap_err(),
        db.drop_partition(gone).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::Closed), "{refused:?}");
}

#[test]
fn options_out_of_range_are_refused_before_anything_is_created() {
    let env = SimEnv::new(1);
    let base = || Options::new().env(Arc::clone(&env) as _);
    for options in [
        base().memory(0),
        base().memory((1 << 20) - 1),
        base().memory(usize::MAX),
        base().memtable_bytes(0),
        base().memtable_bytes(usize::MAX),
        base().runs_per_stage(1),
        base().runs_per_stage(65),
        base().sst_bytes(4095),
        base().sst_bytes(u64::MAX),
        base().clean_every(0),
        base().clean_every(1001),
        base().filter_bits_per_key(-1.0),
        base().filter_bits_per_key(33.0),
        base().filter_bits_per_key(f32::NAN),
        base().filter_bits_per_key(f32::INFINITY),
    ] {
        assert_eq!(refusal(options), ErrorKind::InvalidArgument);
    }
    assert_eq!(env.op_count(), 0);
    assert_eq!(env.metadata(Path::new(DIR)).unwrap(), None);
}

#[test]
fn what_is_no_store_is_refused_and_left_as_it_is() {
    // A file.
    let env = SimEnv::new(1);
    env.write_file(Path::new(DIR), b"a letter");
    assert_eq!(refusal(options(&env)), ErrorKind::InvalidArgument);
    assert_eq!(env.read_file(Path::new(DIR)).unwrap(), b"a letter");

    // A directory with other files.
    let env = SimEnv::new(1);
    env.write_file(&Path::new(DIR).join("thesis.txt"), b"do not touch");
    let ops = env.op_count();
    assert_eq!(refusal(options(&env)), ErrorKind::InvalidArgument);
    assert_eq!(refusal(options(&env).create_if_missing(false)), ErrorKind::NotFound);
    assert_eq!((env.op_count(), env.read_file(&Path::new(DIR).join("thesis.txt")).unwrap().len()), (ops, 12));

    // A missing path, and an empty directory; neither open may create a store.
    let env = SimEnv::new(1);
    assert_eq!(refusal(options(&env).create_if_missing(false)), ErrorKind::NotFound);
    env.create_dir_all(Path::new(DIR)).unwrap();
    assert_eq!(refusal(options(&env).create_if_missing(false)), ErrorKind::NotFound);
    assert!(env.file_names(Path::new(DIR)).is_empty());
}

#[test]
fn a_store_that_is_open_is_in_conflict() {
    let (env, db) = store();
    let error = options(&env).open(DIR).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Conflict, Some(Path::new(DIR))));
    db.close().unwrap();
    options(&env).open(DIR).unwrap();
}

#[test]
fn files_of_others_in_a_store_are_left_alone() {
    let (env, db) = store();
    db.default_partition().put(b"k", b"v").unwrap();
    db.close().unwrap();
    let others = [
        "notes.txt",
        ".DS_Store",
        "._000004.sst",
        "7.log",
        "000007.sst.bak",
        "MANIFEST-7",
        "CURRENT~",
        "+00007.log",
        "99999999999999999999.log",
        "000007.LOG",
    ];
    for name in others {
        env.write_file(&Path::new(DIR).join(name), name.as_bytes());
    }
    for _ in 0..2 {
        let db = options(&env).open(DIR).unwrap();
        assert_eq!(db.default_partition().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        db.compact().unwrap();
    }
    for name in others {
        assert_eq!(env.read_file(&Path::new(DIR).join(name)).as_deref(), Some(name.as_bytes()), "{name}");
    }
}

#[test]
fn a_file_number_at_the_end_of_counting_is_an_error() {
    for name in ["18446744073709551615.log", "18446744073709551615.sst", "MANIFEST-18446744073709551615"] {
        let (env, db) = store();
        db.close().unwrap();
        env.write_file(&Path::new(DIR).join(name), b"");
        let error = options(&env).open(DIR).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*Path::new(DIR).join(name))));
    }
}

#[test]
fn a_directory_under_the_name_of_a_file_is_an_error() {
    for name in ["000900.log", "000900.sst", "MANIFEST-000900"] {
        let (env, db) = store();
        db.close().unwrap();
        env.create_dir_all(&Path::new(DIR).join(name)).unwrap();
        let error = options(&env).open(DIR).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*Path::new(DIR).join(name))));
    }
}

#[test]
fn a_missing_current_does_not_lead_to_a_new_store() {
    let (env, db) = store();
    db.default_partition().put(b"k", b"v").unwrap();
    db.close().unwrap();
    let current = Path::new(DIR).join("CURRENT");
    let text = env.read_file(&current).unwrap();
    env.remove_file(&current).unwrap();
    let names = env.file_names(Path::new(DIR));
    let error = options(&env).open(DIR).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*current)));
    assert_eq!(env.file_names(Path::new(DIR)), names);
    env.write_file(&current, &text);
    let db = options(&env).open(DIR).unwrap();
    assert_eq!(db.default_partition().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// Each of the first calls of an open fails in turn, as on a read-only or full file system. The store must not change.
#[test]
fn an_open_that_may_not_write_fails_and_changes_nothing() {
    let (env, db) = store();
    db.default_partition().put(b"k", b"v").unwrap();
    db.close().unwrap();
    let closed = env.capture();
    for at_op in 0..12 {
        let env = closed.crash_image(pleach::env::CrashPolicy::Everything, 1);
        env.set_fault(Some(Fault { at_op, kind: FaultKind::Eio }));
        if let Err(error) = options(&env).open(DIR) {
            assert!([ErrorKind::Io, ErrorKind::Poisoned].contains(&error.kind()), "{error}");
            assert!(error.path().is_some(), "{error}");
        }
        env.clear_faults();
        let db = options(&env).open(DIR).unwrap();
        assert_eq!(db.default_partition().get(b"k").unwrap().as_deref(), Some(&b"v"[..]), "call {at_op}");
    }
}

#[test]
#[cfg(unix)]
fn a_directory_without_permissions_is_an_input_output_error() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    drop(Db::open(&path).unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o500)).unwrap();
    if std::fs::write(path.join("probe"), b"").is_ok() {
        println!("skipped: this user may write anywhere");
    } else {
        assert_eq!(Db::open(&path).unwrap_err().kind(), ErrorKind::Io);
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
}
