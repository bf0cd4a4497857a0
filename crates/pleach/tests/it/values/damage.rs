//! Damage of the files of separated values: the value that it strikes is an error with file and offset, all others are read.

use std::path::Path;
use std::sync::Arc;

use pleach::env::{Capture, CrashPolicy, Fault, FaultKind, SimEnv};
use pleach::{DamagedPlace, ErrorKind, repair};

use super::{SEPARATED, files, fill, key, open, options, value};
use crate::rig::setup::DIR;

const KEYS: u64 = 5;

/// A closed store with a value segment and a file of copies, and the partition for each.
fn store() -> Capture {
    let env = SimEnv::new(1);
    let db = open(&env);
    let (kept, copied) = (db.default_partition(), db.partition("copied").unwrap());
    for number in 0..KEYS {
        kept.put(key(number), value(number, 0, SEPARATED)).unwrap();
    }
    db.flush().unwrap();
    for number in 0..KEYS {
        copied.put(key(number), value(number, 1, SEPARATED)).unwrap();
        copied.put(format!("small{number}"), value(number, 0, SEPARATED - 1)).unwrap();
        copied.put(format!("other{number}"), value(number, 0, SEPARATED - 1)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!((db.stats().values, db.stats().value_files), (2 * KEYS, 2));
    db.close().unwrap();
    env.capture()
}

fn is_copies(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "val")
}

/// The number of the key whose value, or the value's checksum, is at `at`.
fn owner(bytes: &[u8], round: u64, at: usize) -> Option<u64> {
    (0..KEYS).find(|number| {
        let value = value(*number, round, SEPARATED);
        let start = bytes.windows(value.len()).position(|window| window == value).expect("it is in the file");
        (start - 4..start + value.len()).contains(&at)
    })
}

/// Changes each byte of `name`, which has the values of the partition, and returns how many gets failed.
fn damage_each_byte(disk: &Capture, name: &str, partition: &str, round: u64) -> usize {
    let path = Path::new(DIR).join(name);
    let machine = || disk.crash_image(CrashPolicy::Everything, 1);
    let bytes = machine().read_file(&path).unwrap();
    // Behind the records a segment has space that nothing reads.
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut failed = 0;
    for at in 0..end {
        let env: Arc<SimEnv> = machine();
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        env.write_file(&path, &damaged);
        let db = options(&env).read_only(true).open(DIR).unwrap();
        let owner = owner(&bytes, round, at);
        let is_header = is_copies(name) && at < 64;
        for (name, round) in [("default", 0), ("copied", 1)] {
            let handle = db.find_partition(name).unwrap();
            for number in 0..KEYS {
                let is_struck = name == partition && (is_header || owner == Some(number));
                match handle.get(key(number)) {
                    Ok(found) => {
                        assert!(!is_struck, "byte {at}: {number} of {name}");
                        assert_eq!(found.as_deref(), Some(&*value(number, round, SEPARATED)), "byte {at}");
                    }
                    Err(error) => {
                        assert!(is_struck, "byte {at}: {number} of {name}: {error}");
                        let is_damage =
                            [ErrorKind::Corruption, ErrorKind::Unsupported].contains(&error.kind());
                        assert!(is_damage && error.path() == Some(&path), "{error}");
                        let offset = usize::try_from(error.offset().unwrap()).unwrap();
                        assert!(
                            offset == if is_header { 0 } else { offset.clamp(at.saturating_sub(203), at) },
                            "{error}"
                        );
                        failed += 1;
                    }
                }
            }
        }
        if at.is_multiple_of(16) && owner.is_some() {
            let (report, places) = db.verify_all(&mut |_, _| true).unwrap();
            assert_eq!((report.values, places.len()), (2 * KEYS, 1), "the others are checked all the same");
            assert_eq!((report.value_files, report.value_bytes), (2, 2 * KEYS * (SEPARATED as u64 + 4)));
            let key = owner.map(|number| key(number).into_bytes());
            assert_eq!((places[0].entries, places[0].partition.as_deref()), (Some(1), Some(partition)));
            assert_eq!((&places[0].lower, &places[0].upper), (&key, &key));
        }
    }
    failed
}

#[test]
fn a_changed_byte_of_a_value_segment_is_an_error_of_its_value() {
    let disk = store();
    let env = disk.crash_image(CrashPolicy::Everything, 1);
    let segment = files(&env, ".log").remove(0);
    assert_eq!(damage_each_byte(&disk, &segment, "default", 0), 5 * (SEPARATED + 4));
}

#[test]
fn a_changed_byte_of_a_file_of_copies_is_an_error_of_its_value() {
    let disk = store();
    let env = disk.crash_image(CrashPolicy::Everything, 1);
    let copies = files(&env, ".val").remove(0);
    assert_eq!(damage_each_byte(&disk, &copies, "copied", 1), 5 * (SEPARATED + 4) + 5 * 64);
}

#[test]
fn a_missing_or_shorter_file_of_values_is_damage() {
    let disk = store();
    let env = disk.crash_image(CrashPolicy::Everything, 1);
    for name in [files(&env, ".log").remove(0), files(&env, ".val").remove(0)] {
        let path = Path::new(DIR).join(&name);
        let env = disk.crash_image(CrashPolicy::Everything, 1);
        let bytes = env.read_file(&path).unwrap();
        env.write_file(&path, &bytes[..100]);
        let db = open(&env);
        let partition = db.find_partition(if is_copies(&name) { "copied" } else { "default" }).unwrap();
        let error = partition.get(key(KEYS - 1)).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*path)));
        let env = disk.crash_image(CrashPolicy::Everything, 1);
        pleach::env::Env::remove_file(&*env, &path).unwrap();
        let error = options(&env).open(DIR).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*path)));
    }
}

/// All values of a missing file are one damaged place, and their keys are read all the same.
#[test]
fn values_of_a_missing_file_are_told_together() {
    let disk = store();
    let env = disk.crash_image(CrashPolicy::Everything, 1);
    let db = options(&env).read_only(true).open(DIR).unwrap();
    let path = Path::new(DIR).join(files(&env, ".log").remove(0));
    pleach::env::Env::remove_file(&*env, &path).unwrap();
    let (first, last) = (key(0).into_bytes(), key(KEYS - 1).into_bytes());
    let check = |damage: &[DamagedPlace]| {
        assert_eq!(damage.len(), 1, "{damage:#?}");
        let place = &damage[0];
        assert_eq!(
            (&place.path, place.entries, place.partition.as_deref()),
            (&path, Some(KEYS), Some("default"))
        );
        assert_eq!((place.lower.as_ref(), place.upper.as_ref()), (Some(&first), Some(&last)));
    };
    let (report, damage) = db.verify_all(&mut |_, _| true).unwrap();
    assert_eq!(report.values, 2 * KEYS);
    check(&damage);
    let partition = db.default_partition();
    assert_eq!(partition.iter().next().unwrap().unwrap_err().path(), Some(&*path));
    let (mut up, mut down) = (partition.iter(), partition.iter());
    for number in 0..KEYS {
        assert_eq!(up.next_key().unwrap(), Some((key(number).as_bytes(), SEPARATED)));
        let number = KEYS - 1 - number;
        assert_eq!(down.next_back_key().unwrap(), Some((key(number).as_bytes(), SEPARATED)));
    }
    assert!(up.next_key().unwrap().is_none() && down.next_back_key().unwrap().is_none());
    drop((partition, up, down, db));
    let report = repair(DIR, "/new", options(&env), &mut |_, _| true).unwrap();
    check(&report.damage);
    assert_eq!((report.damaged_places, report.entries), (1, 3 * KEYS));
    assert!(report.bytes > 3 * KEYS * SEPARATED as u64 - 10, "{report:#?}");
}

/// A repair takes every other value, and reports the one that is lost with its key.
#[test]
fn a_repair_loses_the_damaged_value_only() {
    let disk = store();
    for (suffix, partition, round) in [(".log", "default", 0), (".val", "copied", 1)] {
        let env = disk.crash_image(CrashPolicy::Everything, 1);
        let path = Path::new(DIR).join(files(&env, suffix).remove(0));
        let mut bytes = env.read_file(&path).unwrap();
        let struck = value(2, round, SEPARATED);
        let at = bytes.windows(struck.len()).position(|window| window == struck).unwrap();
        bytes[at + 50] ^= 1;
        let whole = repair(DIR, "/whole", options(&env), &mut |_, _| true).unwrap();
        assert_eq!((whole.entries, whole.damaged_places), (4 * KEYS, 0));
        assert!(whole.bytes > 4 * KEYS * (SEPARATED as u64 - 1), "{whole:#?}");
        env.write_file(&path, &bytes);
        let report = repair(DIR, "/new", options(&env), &mut |_, _| true).unwrap();
        assert_eq!((report.damaged_places, report.complete), (1, true), "{report:#?}");
        let lost = (whole.entries - report.entries, whole.bytes - report.bytes);
        assert_eq!(lost, (1, SEPARATED as u64 + 4), "{report:#?}");
        let place = &report.damage[0];
        assert_eq!((&place.path, place.partition.as_deref()), (&path, Some(partition)));
        let keys = (place.lower.as_deref(), place.upper.as_deref());
        assert_eq!(keys, (Some(key(2).as_bytes()), Some(key(2).as_bytes())));
        let db = options(&env).open("/new").unwrap();
        for (name, round) in [("default", 0), ("copied", 1)] {
            let handle = db.find_partition(name).unwrap();
            for number in 0..KEYS {
                let expected =
                    Some(value(number, round, SEPARATED)).filter(|_| name != partition || number != 2);
                assert_eq!(handle.get(key(number)).unwrap().as_deref(), expected.as_deref());
            }
        }
    }
}

/// A process without descriptors is no damage.
#[test]
fn a_verification_without_a_descriptor_reports_no_damage() {
    let env = SimEnv::new(1);
    let db = open(&env);
    fill(&db.default_partition(), 50, 0, SEPARATED);
    db.flush().unwrap();
    drop(db);
    let mut struck = 0;
    for call in 0..20 {
        let db = open(&env);
        env.clear_faults();
        let before = env.faults_struck();
        for at_op in (0..8).map(|more| env.open_count() + call + more) {
            env.add_fault(Fault { at_op, kind: FaultKind::OpenTooManyFiles });
        }
        let verified = db.verify_all(&mut |_, _| true);
        struck += u32::from(env.faults_struck() > before);
        if let Ok((_, damage)) = verified {
            assert!(damage.is_empty(), "open {call}: {damage:?}");
        }
        env.clear_faults();
    }
    assert!(struck > 0);
}

/// A changed byte of a file of moved values costs its value, and not the store.
#[test]
fn a_damaged_moved_value_does_not_poison_the_store() {
    let env = SimEnv::new(1);
    let db = options(&env).open(DIR).unwrap();
    let partition = db.default_partition();
    fill(&partition, 400, 0, 1000);
    for round in 1..4 {
        for number in (0..400).filter(|number| number % 3 != 0) {
            partition.put(key(number), value(number, round, 1000)).unwrap();
        }
        db.settle().unwrap();
    }
    drop((partition, db));
    // The head of a value of a moved file.
    let mut struck = Vec::new();
    for name in files(&env, ".val") {
        let path = Path::new(DIR).join(&name);
        let mut bytes = env.read_file(&path).unwrap();
        if bytes[12] != 2 {
            continue;
        }
        for number in (0..400).filter(|number| number % 3 == 0) {
            let wanted = value(number, 0, 1000);
            if let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted) {
                bytes[at - 5] ^= 1;
                struck.push((path.clone(), number, at as u64));
                break;
            }
        }
        env.write_file(&path, &bytes);
    }
    assert!(!struck.is_empty(), "values were moved");
    let db = options(&env).open(DIR).unwrap();
    let partition = db.default_partition();
    for (path, number, at) in struck {
        let error = partition.get(key(number)).unwrap_err();
        let offset = error.offset().unwrap();
        // The group begins there.
        assert!(
            error.path() == Some(&*path) && (at.saturating_sub(6_000)..at).contains(&offset),
            "{at}: {error}"
        );
    }
    for round in 4..10 {
        for number in 0..400 {
            if number % 3 == 0 && number % 9 != 0 || number % 3 == 1 {
                partition.put(key(number), value(number, round, 1000)).unwrap();
            }
        }
        db.settle().unwrap();
        assert!(db.poisoned().is_none(), "{:?}", db.poisoned());
    }
}

/// How a file of values becomes unreadable.
#[derive(Clone, Copy, Debug)]
enum Broken {
    /// Its sectors cannot be read.
    Sectors,
    /// It has become shorter while it was open.
    Shorter,
    /// It has become shorter, or another one, before it was opened.
    ShorterAtOpen,
    OtherAtOpen,
}

/// Conversions and relocation leave what they cannot read where it is, and go on with the others. Writers never learn of it.
#[test]
fn an_unreadable_file_of_values_does_not_poison_the_store() {
    const KEYS: u64 = 1000;
    let mut order: Vec<_> = (0..KEYS).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    for broken in [Broken::Sectors, Broken::Shorter, Broken::ShorterAtOpen, Broken::OtherAtOpen] {
        for converts in [true, false] {
            if matches!(broken, Broken::OtherAtOpen) && !converts {
                continue; // Relocation proves no value, so what is damaged is moved.
            }
            let env = SimEnv::new(1);
            let target = if converts { 4.0 } else { 1.1 };
            let open = || options(&env).space_target(target).open(DIR).unwrap();
            let db = options(&env).space_target(4.0).open(DIR).unwrap();
            for round in 0..2 {
                for number in order.iter().filter(|number| round == 0 || **number % 3 > 0) {
                    db.default_partition().put(key(*number), value(*number, round, 1000)).unwrap();
                }
                db.flush().unwrap();
            }
            db.settle().unwrap();
            let is_read_before = matches!(broken, Broken::Sectors | Broken::Shorter);
            drop(db);
            let struck = Path::new(DIR).join(&files(&env, ".log")[1]);
            let bytes = env.read_file(&struck).unwrap();
            let db = if is_read_before {
                // No job has a turn before the file breaks.
                let db = open();
                // All files are open, and the system has little of them in memory.
                for number in (0..KEYS).step_by(20) {
                    db.default_partition().get(key(number)).unwrap();
                }
                db
            } else {
                env.write_file(&struck, &[]);
                open()
            };
            match broken {
                Broken::Sectors => env.add_unreadable(&struck, 0..bytes.len() as u64),
                Broken::Shorter => env.write_file(&struck, &bytes[..5000]),
                Broken::ShorterAtOpen => {}
                Broken::OtherAtOpen => env.write_file(&struck, &vec![0; bytes.len()]),
            }
            let told = format!("{broken:?}, converts: {converts}");
            if converts {
                db.convert().unwrap_or_else(|error| panic!("{told}: {error}"));
                assert!(db.stats().values_converted > KEYS / 2, "{told}: {:?}", db.stats());
            } else {
                db.settle().unwrap_or_else(|error| panic!("{told}: {error}"));
                assert!(db.stats().value_moves > 0, "{told}: {:?}", db.stats());
            }
            assert!(db.poisoned().is_none(), "{told}: {:?}", db.poisoned());
            db.default_partition().put("new", "value").unwrap();
            let is_noticed = !matches!(broken, Broken::OtherAtOpen);
            assert_eq!(db.stats().value_files_damaged, u64::from(is_noticed), "{told}");
            // What was left is there once the file is.
            env.clear_faults();
            env.write_file(&struck, &bytes);
            for number in 0..KEYS {
                let found = db.default_partition().get(key(number)).unwrap();
                let round = u64::from(number % 3 > 0);
                assert_eq!(found.as_deref(), Some(&*value(number, round, 1000)), "{told}: {number}");
            }
        }
    }
}
