//! Errors are reported, with the exit code that the help promises.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::command::{Ran, Store, pleach};

#[test]
fn commands_that_read_never_create_a_store() {
    let store = Store::new();
    let reading: [&[&str]; 11] = [
        &["get", "k"],
        &["delete", "k"],
        &["scan"],
        &["dump"],
        &["partitions"],
        &["drop-partition", "p", "--yes"],
        &["compact"],
        &["convert"],
        &["stats"],
        &["verify"],
        &["put", "k", "v", "--no-create"],
    ];
    for args in reading {
        store.run(args).failed(1, &["there is no store at", "pleach put"]);
        assert!(!store.db().exists(), "{args:?}");
    }
    store.run_with_input(["load", "--format", "lines", "--no-create"], "").failed(1, &["no store"]);
    store.run(["load", "/nowhere/at/all.csv"]).failed(4, &["cannot open /nowhere/at/all.csv"]);
    assert!(!store.db().exists());
    std::fs::create_dir(store.db()).unwrap();
    store.run(["get", "k"]).failed(1, &["there is no store at"]);
    assert_eq!(std::fs::read_dir(store.db()).unwrap().count(), 0);
}

#[test]
fn partitions_are_created_only_by_writes_that_may() {
    let store = Store::with_entries(1);
    store.run(["get", "k1", "--partition", "p"]).failed(1, &["no partition \"p\"", "default"]);
    store.run(["put", "k", "v", "--partition", "p", "--no-create"]).failed(1, &["no partition \"p\""]);
    store.ok(["put", "k", "v", "--partition", "p"]);
    assert_eq!(store.ok(["get", "k", "--partition", "p"]), "v");
    store.run(["put", "k", "v", "--partition", ""]).failed(3, &["1 to 255 bytes"]);
}

#[test]
fn usage_errors_have_a_code_of_their_own() {
    Ran::of(pleach().output().unwrap()).failed(3, &["Usage"]);
    Ran::of(pleach().args(["get", "k"]).output().unwrap()).failed(3, &["no store was given", "PLEACH_DB"]);
    let store = Store::new();
    store.run(["nonsense"]).failed(3, &["nonsense"]);
    store.run(["put", "k"]).failed(3, &["VALUE"]);
    store.run(["scan", "--memory", "12Q"]).failed(3, &["unknown unit \"Q\""]);
    store.run(["put", "k", "v", "--memory", "1K"]).failed(3, &["memory"]);
    let help = Ran::of(pleach().arg("help").output().unwrap());
    assert!(help.code == 0 && help.out.contains("Exit codes") && help.out.contains("130"), "{help:?}");
}

#[test]
fn files_and_foreign_directories_have_errors_of_their_own() {
    let store = Store::new();
    let file = store.file("file", "x");
    let at = |path: &std::path::Path| {
        Ran::of(pleach().args(["put", "k", "v", "--db"]).arg(path).output().unwrap())
    };
    at(&file).failed(3, &["is a file; a store is a directory"]);
    at(&file.join("below")).failed(4, &["error:"]);
    store.file("other", "x");
    at(&store.path("")).failed(3, &["is no store: it holds other files"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"x");
}

#[test]
fn a_store_that_is_open_elsewhere_says_so() {
    let store = Store::with_entries(1);
    let mut writer = store.command(["demo-writer"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut acknowledgements = BufReader::new(writer.stdout.take().unwrap());
    acknowledgements.read_line(&mut line).unwrap();
    store.run(["get", "k1"]).failed(5, &["is open elsewhere", "close it there and try again"]);
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(store.ok(["get", "k1"]), "v1");
}

#[test]
fn commands_that_write_refuse_read_only_before_they_look_for_the_store() {
    let store = Store::with_entries(1);
    let writing: [&[&str]; 7] = [
        &["put", "k1", "new"],
        &["delete", "k1"],
        &["load", "--format", "lines"],
        &["partitions", "--create", "p"],
        &["drop-partition", "p", "--yes"],
        &["compact"],
        &["convert"],
    ];
    for args in writing {
        let args = args.iter().chain(&["--read-only"]);
        store.run(args).failed(3, &["writes to the store", "leave out --read-only"]);
    }
    assert_eq!(store.ok(["get", "k1", "--read-only"]), "v1");
    assert!(store.ok(["partitions", "--read-only"]).contains("default"));
}

#[test]
fn a_partition_that_a_command_would_ignore_is_refused() {
    let store = Store::new();
    store.run(["partitions", "--create", ""]).failed(3, &["1 to 255 bytes"]);
    store.run(["partitions", "--create", "a", "--partition", "b"]).failed(3, &["leave out --partition"]);
    assert!(!store.db().exists(), "no store is created");
    store.ok(["partitions", "--create", "a", "--partition", "a"]);
    store.run(["verify", "--partition", "a"]).failed(3, &["reads the whole store", "leave out --partition"]);
    let new = store.path("new");
    let repair = ["repair", "--partition", "a", "--into", new.to_str().unwrap()];
    store.run(repair).failed(3, &["reads the whole store", "leave out --partition"]);
    assert!(!new.exists());
}

#[test]
fn a_full_disk_is_told_as_that() {
    let store = Store::with_entries(100);
    let ran = store.run(["dump", "--output", "/dev/full"]);
    ran.failed(4, &["No space left on device", "full", "/dev/full does not hold all entries"]);
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let store = Store::with_entries(1);
    let set = |mode| std::fs::set_permissions(store.db(), std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o555);
    // Whom permissions do not stop, the system administrator, cannot see this.
    let stops = std::fs::write(store.db().join("probe"), "").is_err();
    let ran = store.run(["get", "k1"]);
    set(0o755);
    if stops {
        ran.failed(4, &["Permission denied", "opening a store writes to its directory"]);
    }
}
