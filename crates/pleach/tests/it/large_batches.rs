//! Batches far larger than the memtable: every legal batch is accepted under any `memory`, and recovered under any other.

use std::sync::Arc;

use pleach::env::SimEnv;
use pleach::{Db, Durability, ErrorKind, Options};

use crate::rig::child::run_after;

/// The smallest memory: its memtables have 128 KiB.
const SMALL: usize = 1 << 20;

fn open(dir: &std::path::Path, memory: usize) -> Db {
    Options::new().memory(memory).open(dir).unwrap()
}

/// A batch of `entries` values of `value_len` bytes, each different.
fn commit_batch(db: &Db, entries: u32, value_len: usize) {
    let partition = db.default_partition();
    let mut batch = db.batch();
    let mut value = vec![0; value_len];
    for n in 0..entries {
        value[..4].copy_from_slice(&n.to_le_bytes());
        batch.put(&partition, n.to_le_bytes(), &value);
    }
    batch.commit(Durability::Buffered).unwrap();
}

fn check(db: &Db, entries: u32, value_len: usize) {
    let partition = db.default_partition();
    for n in 0..entries {
        let value = partition.get(n.to_le_bytes()).unwrap().expect("the batch put it");
        assert_eq!((value.len(), &value[..4]), (value_len, &n.to_le_bytes()[..]));
    }
    assert_eq!(partition.iter().count(), entries as usize);
}

#[test]
fn a_batch_of_many_memtables_is_taken_with_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), SMALL);
    commit_batch(&db, 19_456, 4 << 10);
    check(&db, 19_456, 4 << 10);
    db.default_partition().put("after", "it").unwrap();
    db.close().unwrap();
    let db = open(dir.path(), SMALL);
    assert!(db.default_partition().contains("after").unwrap());
    db.default_partition().delete("after").unwrap();
    check(&db, 19_456, 4 << 10);
}

#[test]
fn what_large_memory_logged_is_recovered_with_little() {
    for (entries, value_len) in [(19_456, 4 << 10), (1_400, 60_000), (400_000, 4)] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), 1 << 30);
        commit_batch(&db, entries, value_len);
        let copy = tempfile::tempdir().unwrap();
        copy_files(dir.path(), copy.path());
        let db = open(copy.path(), SMALL);
        check(&db, entries, value_len);
    }
}

#[test]
fn a_batch_without_memory_for_its_keys_is_refused() {
    run_after("ulimit -v 655360", "large_batches::child_with_little_memory");
}

/// Batches of more and more keys, each in a store of its own, up to one that is refused. In small steps: in some sizes there
/// is memory for the records and not for the nodes of the tree.
#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_with_little_memory() {
    let mut keys = 2_000_000_u32;
    loop {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let db = open(dir.path(), SMALL);
        let partition = db.default_partition();
        let mut batch = db.batch();
        for key in 0..keys {
            batch.put(&partition, key.wrapping_mul(0x9e37_79b1).to_le_bytes(), []);
        }
        let committed = batch.commit(Durability::Buffered);
        println!("{keys} {committed:?}");
        let Err(error) = committed else {
            keys += keys / 4;
            continue;
        };
        assert!(keys > 2_000_000, "the first batch is small enough");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("smaller batches"), "{error}");
        partition.put("small", "value").unwrap();
        assert_eq!(partition.iter().count(), 1);
        db.close().unwrap();
        assert_eq!(open(dir.path(), SMALL).default_partition().iter().count(), 1);
        return;
    }
}

/// The files as they are while the store is open: what the kill of its process leaves.
fn copy_files(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// By hand: `cargo test --release -p pleach --test it tiny_keys -- --ignored --nocapture` (some 10 GiB of memory).
#[test]
#[ignore = "takes some 10 GiB of memory and a minute"]
fn a_batch_of_as_many_tiny_keys_as_fit_is_taken() {
    let count: u32 = std::env::var("PLEACH_TINY_KEYS").map_or(100_000_000, |n| n.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), SMALL);
    let partition = db.default_partition();
    let mut batch = db.batch();
    // Multiplying by an odd number visits every key once, in no order.
    let key = |n: u32| n.wrapping_mul(0x9e37_79b1).to_le_bytes();
    for n in 0..count {
        batch.put(&partition, key(n), []);
    }
    println!("{} bytes in the batch", batch.bytes());
    let started = std::time::Instant::now();
    batch.commit(Durability::Buffered).unwrap();
    println!("committed after {:?}; memtable {} bytes", started.elapsed(), db.stats().memtable_bytes);
    assert!((0..count).step_by(1_000).all(|n| partition.contains(key(n)).unwrap()));
    let copy = tempfile::tempdir().unwrap();
    copy_files(dir.path(), copy.path());
    drop((partition, db));
    let started = std::time::Instant::now();
    let db = open(copy.path(), SMALL);
    println!("recovered after {:?}", started.elapsed());
    let partition = db.default_partition();
    assert!((0..count).step_by(1_000).all(|n| partition.contains(key(n)).unwrap()));
    assert_eq!(partition.iter().count(), count as usize);
}

#[test]
fn a_put_holds_a_large_value_twice() {
    for separate_at in [0, 1000] {
        let variables = format!("export PLEACH_VALUE_MIB=128 PLEACH_SEPARATE_AT={separate_at}");
        run_after(&variables, "large_batches::the_memory_of_a_large_value");
    }
}

/// By hand: `cargo test -p pleach --test it memory_of_a_large_value -- --ignored --nocapture`. The peak of resident
/// memory in MiB, after each step: so many copies of the value, the caller's included, and little else.
#[test]
#[ignore = "measures the memory of the process, which must do nothing else"]
fn the_memory_of_a_large_value() {
    let mib: usize = std::env::var("PLEACH_VALUE_MIB").map_or(400, |mib| mib.parse().unwrap());
    let assert_copies = |step: &str, copies: usize| {
        let peak = peak_mib();
        println!("{step} {peak}");
        assert!(peak < copies * mib + 50, "{step}: {peak} MiB for {copies} copies");
    };
    let restart_peak = || std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let separate_at = std::env::var("PLEACH_SEPARATE_AT").map_or(0, |bytes| bytes.parse().unwrap());
    let open =
        |dir: &std::path::Path| Options::new().memory(64 << 20).separate_at(separate_at).open(dir).unwrap();
    let db = open(dir.path());
    let partition = db.default_partition();
    let value = vec![7; mib << 20];
    assert_copies("before", 1);
    partition.put("key", &value).unwrap();
    assert_copies("put", 2);
    let copy = tempfile::tempdir().unwrap();
    copy_files(dir.path(), copy.path());
    drop(value);
    restart_peak();
    db.flush().unwrap();
    assert_copies("flush", 1);
    db.default_partition().delete("key").unwrap();
    db.compact().unwrap();
    restart_peak();
    let mut batch = db.batch();
    batch.put(&partition, "key", vec![8; mib << 20]);
    batch.commit(Durability::Buffered).unwrap();
    assert_copies("batch", 2);
    drop((partition, db));
    restart_peak();
    let db = open(copy.path());
    assert_copies("recovery", 2);
    db.flush().unwrap();
    restart_peak();
    assert_eq!(db.default_partition().get("key").unwrap().unwrap().len(), mib << 20);
    assert_copies("get", 1);
}

/// Memory of the stores of the test below: far less than their batch.
const LITTLE: usize = 8 << 20;

/// By hand: `cargo test --release -p pleach --test it gibibyte_survives -- --ignored --nocapture`. A child commits a
/// batch of the largest size and is killed; this process recovers it. Prints times and peaks of resident memory.
#[test]
#[ignore = "takes 2 GiB of memory, 2 GiB of space and a minute"]
fn a_batch_of_a_gibibyte_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "large_batches::child_that_waits_after_a_gibibyte", "--ignored", "--nocapture"])
        .env("PLEACH_STORE", dir.path())
        .spawn()
        .unwrap();
    let is_done = || dir.path().join("committed").exists();
    while !is_done() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(is_done(), "the child ended before its commit");
    child.kill().unwrap();
    child.wait().unwrap();
    let started = std::time::Instant::now();
    let db = open(&dir.path().join("store"), LITTLE);
    println!("recovered after {:?}, peak {} MiB", started.elapsed(), peak_mib());
    let started = std::time::Instant::now();
    check(&db, GIBIBYTE_ENTRIES, GIBIBYTE_VALUE_LEN);
    println!("compared after {:?}, peak {} MiB", started.elapsed(), peak_mib());
    db.verify().unwrap();
}

const GIBIBYTE_VALUE_LEN: usize = 4 << 10;
/// An entry takes some 14 bytes beside its value.
const GIBIBYTE_ENTRIES: u32 = (1 << 30) / (4096 + 14);

#[test]
#[ignore = "run by the test above, in a process of its own, which is killed"]
fn child_that_waits_after_a_gibibyte() {
    let dir = std::path::PathBuf::from(std::env::var_os("PLEACH_STORE").unwrap());
    let db = open(&dir.join("store"), LITTLE);
    let started = std::time::Instant::now();
    commit_batch(&db, GIBIBYTE_ENTRIES, GIBIBYTE_VALUE_LEN);
    println!("built and committed after {:?}, peak {} MiB", started.elapsed(), peak_mib());
    std::fs::write(dir.join("committed"), "").unwrap();
    loop {
        std::thread::park();
    }
}

/// The peak of this process's resident memory in MiB.
fn peak_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
}

/// A separator is about as long as the keys if these differ late. So few blocks fill an index.
#[test]
fn an_sst_ends_when_long_keys_have_filled_its_index() {
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(512 << 20);
    let db = options.memtable_bytes(128 << 20).sst_bytes(1 << 30).open("/store").unwrap();
    let long = "x".repeat(60_000);
    let key = |i: u32| format!("{:04}{long}{}", i / 2, i % 2);
    for i in 0..1100 {
        db.default_partition().put(key(i), "v").unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.stats().ssts, 2, "an index may have 31 MiB");
    assert!((0..1100).step_by(7).all(|i| db.default_partition().get(key(i)).unwrap().is_some()));
    db.verify().unwrap();
}
