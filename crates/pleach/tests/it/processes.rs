//! Resources that processes share: descriptors that children must not inherit, the lock of the directory, and the limits on
//! descriptors and threads. Each test runs another test of this binary in a process of its own.

use std::cell::RefCell;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::spawn;
use std::time::Duration;

use pleach::{Db, Error, ErrorKind, Options, Partition, ReadDriver, ReadOptions, Shape, Value};

use crate::rig::read_drivers::{DRIVERS, ReadBy};
use crate::rig::tasks::block_on;

/// The directory of the store, for the process that a test starts.
const STORE: &str = "PLEACH_TEST_STORE";

/// Runs a test of this binary that is otherwise ignored, after the shell's `setting`, with the store in `dir`.
fn run(setting: &str, test: &str, dir: &Path) -> Output {
    Command::new("sh")
        .args(["-c", &format!("{setting} && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("processes::{test}"), "--ignored", "--nocapture", "--test-threads=1"])
        .env(STORE, dir)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn assert_passed(output: &Output) {
    let text = text(output);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn store() -> std::path::PathBuf {
    std::env::var_os(STORE).expect("run by another test").into()
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn options() -> Options {
    let options = Options::new().memory(8 << 20).memtable_bytes(64 << 10).sst_bytes(4 << 10);
    options.shape(Shape::Leveled).compaction_threads(2)
}

fn name(key: u32) -> String {
    format!("{key:08}")
}

fn value(key: u32) -> Vec<u8> {
    key.to_le_bytes().repeat(250)
}

fn fill(db: &Db, keys: u32) {
    let partition = db.default_partition();
    (0..keys).for_each(|key| partition.put(name(key), value(key)).unwrap());
    db.flush().unwrap();
}

#[test]
fn sixteen_readers_share_few_descriptors() {
    let dir = temporary();
    assert_passed(&run("ulimit -n 40", "child_with_sixteen_readers", dir.path()));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_with_sixteen_readers() {
    const KEYS: u32 = 2000;
    let db = options().open(store()).unwrap();
    fill(&db, KEYS);
    db.settle().unwrap();
    let readers: Vec<_> = (0..16_u32)
        .map(|reader| {
            let partition = db.default_partition();
            spawn(move || {
                for step in 0..3000_u32 {
                    let key = step.wrapping_mul(7919).wrapping_add(reader * 131) % KEYS;
                    assert_eq!(partition.get(name(key)).unwrap().as_deref(), Some(&*value(key)));
                    if step % 500 == reader {
                        assert_eq!(partition.iter().map(Result::unwrap).count(), KEYS as usize);
                    }
                }
            })
        })
        .collect();
    for reader in readers {
        reader.join().unwrap();
    }
    assert!(db.poisoned().is_none());
    db.verify().unwrap();
}

#[test]
fn a_seek_searches_more_runs_than_there_are_descriptors() {
    let dir = temporary();
    assert_passed(&run("ulimit -n 40", "child_with_sixty_runs", dir.path()));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_with_sixty_runs() {
    const KEYS: u32 = 1200;
    const RUNS: u32 = 60;
    let open = || options().shape(Shape::Forest).runs_per_stage(64).open(store()).unwrap();
    let db = open();
    let partition = db.default_partition();
    for run in 0..RUNS {
        let keys = (run..KEYS).step_by(RUNS as usize);
        keys.for_each(|key| partition.put(name(key), value(key)).unwrap());
        db.flush().unwrap();
    }
    assert_eq!(partition.stats().unwrap().runs, u64::from(RUNS));
    db.close().unwrap();
    // No block is cached: the seek reads one of each run.
    let partition = open().default_partition();
    let found = partition.range(name(KEYS / 2)..).map(|entry| entry.unwrap().0.to_vec());
    assert!(found.eq((KEYS / 2..KEYS).map(|key| name(key).into_bytes())));
}

/// A value of a thread, such as a buffer of statistics that it writes at its end.
struct AtTheEnd(Partition);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        self.0.put("last", "words").unwrap();
        assert!(self.0.get_many((0..500).step_by(7).map(name)).unwrap().iter().all(Option::is_some));
        assert_eq!(self.0.iter().count(), 501);
    }
}

/// A panic there would end the process.
#[test]
fn a_thread_uses_the_store_when_its_values_are_dropped() {
    let dir = temporary();
    assert_passed(&run("true", "child_with_a_value_of_a_thread", dir.path()));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_with_a_value_of_a_thread() {
    thread_local! {
        static AT_THE_END: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
    }
    fill(&options().open(store()).unwrap(), 500);
    let db = options().open(store()).unwrap();
    let partition = db.default_partition();
    let thread = spawn(move || {
        // Dropped last, because it is the first value that the thread uses.
        AT_THE_END.set(Some(AtTheEnd(partition.clone())));
        partition.put("first", "words").unwrap();
        partition.delete("first").unwrap();
        assert!(partition.get_many((0..500).step_by(5).map(name)).unwrap().iter().all(Option::is_some));
    });
    thread.join().unwrap();
    assert_eq!(db.default_partition().get("last").unwrap().as_deref(), Some(&b"words"[..]));
}

/// Of any number of descriptors: a store that works, or an error that says what to do.
#[test]
fn any_number_of_descriptors_is_enough_or_said_to_be_too_few() {
    let dir = temporary();
    let mut lives = 0;
    for limit in [6, 7, 8, 9, 10, 11, 12, 14, 16, 24] {
        let path = dir.path().join(limit.to_string());
        let output = run(&format!("ulimit -n {limit}"), "child_with_a_handful_of_descriptors", &path);
        assert_passed(&output);
        let told = text(&output);
        let told =
            told.lines().find_map(|line| line.strip_suffix(" keys acknowledged")).expect("the child says so");
        let acknowledged: u32 = told.parse().unwrap();
        if acknowledged > 0 {
            lives += 1;
            let db = options().open(&path).unwrap();
            let keys = db.default_partition();
            assert!(
                (0..acknowledged).all(|key| keys.get(name(key)).unwrap().as_deref() == Some(&*value(key)))
            );
            db.verify().unwrap();
        }
    }
    assert!(lives >= 3, "at {lives} limits");
}

/// An error that is not what a shortage of descriptors has to give.
fn assert_advice(error: &Error) {
    let text = error.to_string();
    assert!(error.kind() == ErrorKind::Io && text.contains("ulimit -n"), "{text}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_with_a_handful_of_descriptors() {
    let mut acknowledged = 0;
    for _ in 0..3 {
        let db = match options().open(store()) {
            Ok(db) => db,
            Err(error) => {
                assert_advice(&error);
                continue;
            }
        };
        let partition = db.default_partition();
        let fresh = (acknowledged..acknowledged + 100).take_while(|&key| {
            let put = partition.put(name(key), value(key));
            put.map_err(|error| assert_advice(&error)).is_ok()
        });
        acknowledged += u32::try_from(fresh.count()).unwrap();
        for step in [Db::flush, Db::settle, Db::sync] {
            let _told = step(&db).map_err(|error| assert_advice(&error));
        }
        for key in 0..acknowledged {
            match partition.get(name(key)) {
                Ok(found) => assert_eq!(found.as_deref(), Some(&*value(key))),
                Err(error) => assert_advice(&error),
            }
        }
        assert_eq!(db.poisoned().map(|error| error.to_string()), None);
        db.close().unwrap();
    }
    println!("\n{acknowledged} keys acknowledged");
}

#[test]
fn a_child_inherits_no_descriptor_of_the_store() {
    let dir = temporary();
    let path = dir.path().join("store");
    let db = options().open(&path).unwrap();
    fill(&db, 300);
    let found = db.default_partition().get(name(7)).unwrap().unwrap();
    let reader = options().read_only(true);
    // The listing itself runs in the child.
    let listed = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let listed = text(&listed);
    assert!(listed.contains(" -> "), "{listed}");
    assert!(!listed.contains(&*path.to_string_lossy()), "{listed}");
    drop(found);
    // A child that goes on does not hold the lock.
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    db.close().unwrap();
    let read = reader.open(&path);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(read.unwrap().default_partition().iter().count(), 300);
}

#[test]
fn another_process_is_refused_while_the_store_is_open() {
    let dir = temporary();
    let db = options().open(dir.path()).unwrap();
    assert_passed(&run("true", "child_that_is_refused", dir.path()));
    db.default_partition().put("key", "value").unwrap();
    db.close().unwrap();
    let readers = [(); 2].map(|()| options().read_only(true).open(dir.path()).unwrap());
    assert_passed(&run("true", "child_that_is_refused_to_write", dir.path()));
    drop(readers);
    let db = options().open(dir.path()).unwrap();
    assert!(db.default_partition().get("key").unwrap().is_some());
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_that_is_refused() {
    for read_only in [false, true] {
        let error = options().read_only(read_only).open(store()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("close it there first"), "{error}");
    }
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_that_is_refused_to_write() {
    assert_eq!(options().open(store()).unwrap_err().kind(), ErrorKind::Conflict);
    let db = options().read_only(true).open(store()).unwrap();
    assert!(db.default_partition().get("key").unwrap().is_some());
}

/// Settings of a shell that hold for root too: root runs the test under a command that takes rights from it.
fn limited(as_root: &str, otherwise: &str) -> String {
    format!("if [ $(id -u) = 0 ]; then exec setpriv {as_root} \"$0\" \"$@\"; fi; {otherwise}")
}

/// So many threads and processes of the user at most. Root is not limited, so it becomes another user who owns the files.
fn limit_of_threads(count: u32) -> String {
    let as_root = format!("--ruid=65534 --bounding-set=-sys_resource,-sys_admin prlimit --nproc={count}");
    limited(&as_root, &format!("ulimit -u {count}"))
}

/// A settled store in `dir`, with more SSTs than a read has in flight.
fn make_store(dir: &Path) {
    let db = options().open(dir).unwrap();
    fill(&db, KEYS_READ);
    db.settle().unwrap();
    db.close().unwrap();
}

/// Without a thread for background work the store is opened for reading only.
#[test]
fn reads_are_right_whatever_number_of_threads_there_may_be() {
    let dir = temporary();
    make_store(dir.path());
    for limit in [1, 5, 7, 20] {
        assert_passed(&run(&limit_of_threads(limit), "child_that_reads", dir.path()));
    }
}

#[test]
fn reads_are_right_with_few_descriptors_little_locked_memory_or_a_read_only_directory() {
    let dir = temporary();
    make_store(dir.path());
    let set_mode = |mode| std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
    let no_rights = limited("--bounding-set=-dac_override,-dac_read_search", "true");
    let little_memory = limited("--bounding-set=-ipc_lock prlimit --memlock=65536", "ulimit -l 64");
    for (setting, mode) in [("ulimit -n 40", 0o755), (&*little_memory, 0o755), (&*no_rights, 0o555)] {
        set_mode(mode);
        let output = run(setting, "child_that_reads", dir.path());
        set_mode(0o755);
        assert_passed(&output);
    }
}

const KEYS_READ: u32 = 1000;

/// The store; only for reading, where the system refuses threads or the right to write; and by the threads that wait, where
/// there are no others.
fn opened(driver: ReadDriver) -> Db {
    let wanted = options().direct_reads(true).read_by(driver);
    for options in [wanted.clone(), wanted.read_only(true), options().read_only(true)] {
        match options.open(store()) {
            Ok(db) => return db,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
        }
    }
    panic!("the store can be read");
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_that_reads() {
    let limit = ReadOptions::new().timeout(Duration::from_secs(60));
    // Neighbours are in different SSTs.
    let keys = || (0..KEYS_READ).map(|n| n * 389 % KEYS_READ);
    let (names, values): (Vec<_>, Vec<_>) = keys().map(|key| (name(key), Some(value(key)))).unzip();
    for driver in DRIVERS {
        let db = opened(driver);
        let partition = db.default_partition();
        let many = partition.get_many(&names).unwrap();
        db.close().unwrap();
        let db = opened(driver);
        let partition = db.default_partition();
        // Not cached either.
        assert_eq!(many, block_on(partition.get_many_async(&names)).unwrap());
        for key in (0..KEYS_READ as usize).step_by(7) {
            let found = block_on(partition.get_async_with(&names[key], &limit)).unwrap();
            assert_eq!(found.map(Value::into_vec), values[key], "{driver:?}");
            let found = partition.get_with(&names[key], &limit).unwrap();
            assert_eq!(found.map(Value::into_vec), values[key], "{driver:?}");
        }
        assert!(many.into_iter().map(|found| found.map(Value::into_vec)).eq(values.iter().cloned()));
        let mut chunks = partition.iter().into_chunks(100);
        let mut entries = 0;
        while let Some(chunk) = block_on(chunks.next_chunk()).unwrap() {
            entries += chunk.len();
        }
        assert_eq!(entries, names.len());
        // A future holds the store until it is closed.
        let kept = partition.get_async(&names[0]);
        if db.read_only().is_none() {
            assert_eq!(options().open(store()).unwrap_err().kind(), ErrorKind::Conflict);
        }
        db.close().unwrap();
        opened(driver).close().unwrap();
        assert_eq!(block_on(kept).unwrap_err().kind(), ErrorKind::Closed);
    }
}
