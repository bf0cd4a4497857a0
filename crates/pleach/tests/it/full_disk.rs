//! Full disks: reads, deletes and drops work, and no file is left behind or lost.

use std::path::Path;
use std::sync::{Arc, mpsc};

use pleach::env::{CrashPolicy, Env, Fault, FaultKind, SimEnv};
use pleach::{Db, ErrorKind, Options};

use crate::rig::setup::DIR;
use crate::rig::tuning;

const KEYS: u32 = 300;

fn options(env: &Arc<SimEnv>) -> Options {
    Options::new().env(Arc::<SimEnv>::clone(env)).memory(64 << 20).memtable_bytes(512 << 10)
}

fn open(env: &Arc<SimEnv>) -> Db {
    options(env).open(DIR).unwrap()
}

fn put_all(db: &Db, partition: &str, len: usize) {
    let partition = db.partition(partition).unwrap();
    (0..KEYS).for_each(|key| partition.put(key.to_le_bytes(), vec![7; len]).unwrap());
}

/// A machine whose disk is full to the last byte, with a store that was closed.
fn full_machine() -> Arc<SimEnv> {
    let env = SimEnv::new(1);
    let db = open(&env);
    put_all(&db, "bulk", 10_000);
    db.flush().unwrap();
    put_all(&db, "default", 1000);
    db.close().unwrap();
    env.set_capacity(env.used_space());
    env
}

fn names(env: &SimEnv) -> Vec<String> {
    env.file_names(Path::new(DIR))
}

/// Names of files other than SSTs, and the number of manifests. SSTs do not count: those of a flush stay, because a manifest
/// names them. So do log segments with separated values.
fn besides_ssts(env: &SimEnv) -> (Vec<String>, usize) {
    let (manifests, others): (Vec<_>, Vec<_>) =
        names(env).into_iter().partition(|name| name.starts_with("MANIFEST-"));
    let others = others.into_iter().filter(|name| name.strip_suffix(".sst").is_none() && name != "RESERVE");
    (others.collect(), manifests.len())
}

fn check_reads(db: &Db) {
    for (partition, len) in [("default", 1000), ("bulk", 10_000)] {
        let partition = db.find_partition(partition).unwrap();
        assert_eq!(partition.get(5u32.to_le_bytes()).unwrap().unwrap().len(), len);
        assert_eq!(partition.iter().map(Result::unwrap).count(), KEYS as usize);
    }
    db.verify().unwrap();
}

/// Every command once failed on a full disk with "cannot create the log segment", deletes and drops too.
#[test]
fn a_store_on_a_full_disk_is_read_and_emptied() {
    let env = full_machine();
    let db = open(&env);
    assert!(db.read_only().is_none(), "the reserve is enough to open it for writing");
    check_reads(&db);
    let keys = db.default_partition();
    let error = keys.put(b"more", b"").unwrap_err();
    assert!(error.is_out_of_space() && error.to_string().contains("drop partitions"), "{error}");
    keys.delete(5u32.to_le_bytes()).unwrap();
    db.drop_partition(db.find_partition("bulk").unwrap()).unwrap();
    env.run_jobs();
    keys.put(b"more", b"").unwrap();
    db.close().unwrap();
    let db = open(&env);
    assert!(names(&env).contains(&"RESERVE".to_owned()), "the reserve is there again");
    assert_eq!(db.partitions(), ["default"]);
    assert_eq!(db.default_partition().iter().count(), KEYS as usize);
}

/// Each open that failed once left another manifest behind.
#[test]
fn without_the_reserve_a_full_disk_is_read_and_nothing_is_left_behind() {
    let env = full_machine();
    env.remove_file(&Path::new(DIR).join("RESERVE")).unwrap();
    env.set_capacity(env.used_space());
    let before = names(&env);
    for _ in 0..3 {
        let db = open(&env);
        assert!(db.read_only().is_some_and(|why| why.is_out_of_space()), "{:?}", db.read_only());
        check_reads(&db);
        let keys = db.default_partition();
        assert!(keys.put(b"more", b"").unwrap_err().is_out_of_space());
        assert!(keys.delete(b"more").unwrap_err().is_out_of_space());
        assert!(db.compact().unwrap_err().is_out_of_space());
        assert!(db.partition("new").unwrap_err().is_out_of_space());
        assert!(db.drop_partition(db.find_partition("bulk").unwrap()).unwrap_err().is_out_of_space());
        db.close().unwrap();
        assert_eq!(names(&env), before);
    }
    env.set_capacity(1 << 30);
    let db = open(&env);
    check_reads(&db);
    db.default_partition().put(b"more", b"").unwrap();
}

/// A long tail of the log, and any amount of room.
#[test]
fn an_open_with_any_room_loses_nothing_and_leaves_no_more_files() {
    opens_with_any_room(0);
}

#[test]
fn an_open_with_any_room_loses_no_separated_value() {
    opens_with_any_room(1024);
}

fn opens_with_any_room(separate_at: usize) {
    let open = |env: &Arc<SimEnv>| options(env).separate_at(separate_at).open(DIR).unwrap();
    let killed = SimEnv::new(1);
    let db = open(&killed);
    put_all(&db, "bulk", 4000);
    put_all(&db, "default", 1000);
    db.sync().unwrap();
    let capture = killed.capture();
    let (mut writable, mut readable) = (0, 0);
    for room in (0..80).map(|step| step << 16) {
        let env = capture.crash_image(CrashPolicy::ProcessKill, 1);
        let used = env.used_space();
        env.set_capacity(used + room);
        let before = besides_ssts(&env);
        let db = open(&env);
        let story = format!("{room} bytes of room: {:?}", names(&env));
        for (partition, len) in [("default", 1000), ("bulk", 4000)] {
            let partition = db.find_partition(partition).unwrap();
            let lens: Vec<_> = partition.iter().map(|entry| entry.unwrap().1.len()).collect();
            assert_eq!(lens, [len; KEYS as usize], "{story}");
        }
        match db.read_only() {
            Some(why) => {
                assert!(why.is_out_of_space(), "{story}");
                if separate_at == 0 {
                    assert_eq!(besides_ssts(&env), before, "{story}");
                }
                readable += 1;
            }
            None => writable += 1,
        }
        db.close().unwrap();
        env.set_capacity(1 << 30);
        let db = open(&env);
        assert_eq!(db.find_partition("bulk").unwrap().iter().count(), KEYS as usize, "{story}");
        db.default_partition().put(b"more", b"").unwrap();
    }
    assert!(writable > 0 && readable > 0, "{writable} and {readable}");
}

/// A new manifest that found no room once poisoned the store.
#[test]
fn a_manifest_that_cannot_be_replaced_goes_on() {
    let env = full_machine();
    let db = options(&env).thresholds(tuning::of("tune.short_manifests")).open(DIR).unwrap();
    for number in 0..20 {
        let created = db.partition(&format!("{number}"));
        assert!(created.is_ok_and(|partition| db.drop_partition(partition).is_ok()), "{number}");
    }
    assert!(db.poisoned().is_none());
    check_reads(&db);
}

/// A memtable that was filled on a nearly full disk once found no room for its flush.
#[test]
fn the_first_memtable_leaves_room_for_its_flush() {
    for megabytes in 9..20 {
        let env = SimEnv::new(1);
        env.set_capacity(megabytes << 20);
        let db = options(&env).memtable_bytes(8 << 20).open(DIR).unwrap();
        let partition = db.default_partition();
        let full = (0..100_000u32).find_map(|key| partition.put(key.to_le_bytes(), [7; 1000]).err());
        let error = full.expect("the disk is small");
        assert!(error.is_out_of_space(), "{error}");
        let entries = partition.iter().count();
        db.flush().unwrap_or_else(|e| panic!("{megabytes} MiB, {entries} entries: {e}"));
        assert!(db.poisoned().is_none());
    }
}

/// A store that is not there cannot be read.
#[test]
fn a_store_is_not_created_on_a_full_disk() {
    let env = SimEnv::new(1);
    env.set_capacity(8 << 10);
    let error = options(&env).open(DIR).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.is_out_of_space(), "{error}");
    assert_eq!(names(&env), ["LOCK"]);
}

fn name(key: usize) -> Vec<u8> {
    format!("{key:03}").into_bytes()
}

/// An open store with so many puts that are synced, and so many more.
fn written(synced: usize, more: usize) -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(1);
    let db = open(&env);
    let put = |key| db.default_partition().put(name(key), [7; 700]).unwrap();
    (0..synced).for_each(put);
    db.sync().unwrap();
    (synced..synced + more).for_each(put);
    (env, db)
}

/// An open that finds the disk full starts over with less. Power may fail at any call of it.
#[test]
fn a_power_cut_in_an_open_on_a_full_disk_loses_nothing() {
    const SYNCED: usize = 60;
    /// One call in so many is looked at, another one each time.
    const EVERY: usize = 5;
    let small = |env: &Arc<SimEnv>| options(env).memtable_bytes(16 << 10);
    let (killed, _db) = written(SYNCED, 10);
    let capture = killed.capture();
    let mut images = 0;
    for kind in [FaultKind::NoSpace, FaultKind::NoSpaceFrom] {
        for at in 0.. {
            let env = capture.crash_image(CrashPolicy::ProcessKill, at);
            let first = env.op_count();
            env.add_fault(Fault { at_op: first + at, kind });
            env.capture_at(&(first + at..first + 500).collect::<Vec<_>>());
            if let Err(error) = small(&env).open(DIR) {
                assert!(error.is_out_of_space() || kind == FaultKind::NoSpace, "{kind:?} at {at}: {error}");
            }
            for (op, image) in env.captured().into_iter().skip(images % EVERY).step_by(EVERY) {
                let policy = CrashPolicy::ALL[images % CrashPolicy::ALL.len()];
                let story = format!("{kind:?} at {at}, {policy:?} at {}", op - first);
                let image = image.crash_image(policy, op);
                let db = small(&image).open(DIR).unwrap_or_else(|error| panic!("{story}: {error}"));
                let keys: Vec<_> = db.default_partition().iter().map(|e| e.unwrap().0.to_vec()).collect();
                assert!(keys.len() >= SYNCED, "{story}: {}", keys.len());
                assert_eq!(keys, (0..keys.len()).map(name).collect::<Vec<_>>(), "{story}");
                images += 1;
            }
            if env.faults_struck() == 0 {
                break;
            }
        }
    }
    assert!(images > 100, "{images}");
}

/// An open writes the log again, into several short segments, and cannot move the floor to them. So it removes them. The names
/// go early, and of the old segments what was pending is lost: the last new segment must not outlive the first one.
#[test]
fn a_power_cut_while_new_segments_are_discarded_loses_nothing() {
    const SYNCED: usize = 60;
    let (killed, _db) = written(SYNCED, 200);
    let capture = killed.capture();
    let segments =
        |env: &SimEnv| names(env).iter().filter(|name| name.strip_suffix(".log").is_some()).count();
    // The first try fails at call `early`, so that the second one makes short segments.
    let machine = |early: u64| {
        let env = capture.crash_image(CrashPolicy::ProcessKill, 1);
        env.add_fault(Fault { at_op: env.op_count() + early, kind: FaultKind::NoSpace });
        env
    };
    let is_short = |early: &u64| {
        let env = machine(*early);
        let _db = options(&env).open(DIR).unwrap();
        segments(&env) >= 3
    };
    let early = (1..30).find(is_short).expect("the second try makes short segments");
    let calls = {
        let env = machine(early);
        let first = env.op_count();
        drop(options(&env).open(DIR).unwrap());
        env.op_count() - first
    };
    let mut images = 0;
    for at in early + 1..calls {
        let env = machine(early);
        let first = env.op_count();
        // A store that cannot append to its manifest releases its reserve and tries again.
        for call in at..at + 6 {
            env.add_fault(Fault { at_op: first + call, kind: FaultKind::NoSpace });
        }
        env.capture_at(&(first + at..first + at + 60).collect::<Vec<_>>());
        let (sender, removals) = mpsc::channel();
        env.on_op(Box::new(move |op, call| {
            if call == "remove_file" {
                sender.send(op).unwrap_or(());
            }
        }));
        drop(options(&env).open(DIR));
        let removals: Vec<_> = removals.try_iter().filter(|op| *op > first + at).collect();
        for (op, image) in env.captured() {
            if !removals.iter().any(|removal| (*removal..removal + 2).contains(&op)) {
                continue;
            }
            let image = image.crash_image(CrashPolicy::Adversarial, op);
            let story = format!("full at {at} of {calls}, cut at {}", op - first);
            let db = options(&image).open(DIR).unwrap_or_else(|error| panic!("{story}: {error}"));
            let found = db.default_partition().iter().count();
            assert!((SYNCED..=SYNCED + 200).contains(&found), "{story}: {found}");
            images += 1;
        }
    }
    assert!(images > 20, "{images}");
}

/// The reserve is for a full disk; it does not fill one.
#[test]
fn the_reserve_is_made_only_where_there_is_plenty_of_room() {
    let env = SimEnv::new(1);
    let path = Path::new(DIR).join("RESERVE");
    open(&env).close().unwrap();
    let len = env.metadata(&path).unwrap().unwrap().len;
    env.remove_file(&path).unwrap();
    for (free, is_made) in [(3 * len, false), (16 * len, true)] {
        env.set_capacity(env.used_space() + free);
        open(&env).close().unwrap();
        assert_eq!(env.metadata(&path).unwrap().is_some(), is_made, "{free} bytes were free");
    }
}

/// If less is free than flushes need, deletes are limited: their log uses up the room that remains.
#[test]
fn deletes_on_a_disk_without_room_for_flushes_are_limited() {
    /// The limit in `write_path/room`.
    const SCANT_BYTES_MAX: usize = 64 << 10;
    let env = SimEnv::new(1);
    let db = open(&env);
    put_all(&db, "bulk", 1000);
    db.flush().unwrap();
    // Enough for the log, so that it is not the log that refuses.
    env.set_capacity(env.used_space() + (128 << 10));
    let keys = db.default_partition();
    let mut deletes = (0..400u32).map(|key| keys.delete([&key.to_le_bytes()[..], &[7; 500]].concat()));
    let refused = deletes.position(|deleted| deleted.is_err_and(|error| error.is_out_of_space()));
    let bytes = 500 * refused.expect("not all are accepted");
    assert!((SCANT_BYTES_MAX / 2..SCANT_BYTES_MAX).contains(&bytes), "{bytes} bytes of keys");
    env.set_capacity(1 << 30);
    keys.delete("more").unwrap();
}
