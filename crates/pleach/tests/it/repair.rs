//! Repair: all entries outside of the damage are recovered, and none without a warning if it may be stale.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach::env::{CrashPolicy, Env, SimEnv};
use pleach::{DamagedPlace, Db, Durability, ErrorKind, Options, RepairReport, Shape, repair, survey};

use crate::rig::setup::DIR;

pub(crate) type Content = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// A store with several partitions, sections, runs, overwritten and deleted keys, a dropped partition and a log.
struct Sample {
    folder: tempfile::TempDir,
    content: Content,
}

fn options() -> Options {
    Options::new().memory(4 << 20).memtable_bytes(256 << 10).compaction_threads(1)
}

impl Sample {
    fn new(compact: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = options().open(folder.path().join("old")).unwrap();
        let mut content = Content::new();
        let gone = db.partition("gone").unwrap();
        for round in 0..4u32 {
            for name in ["default", "small", "large"] {
                let partition = db.partition(name).unwrap();
                let keys = if name == "large" { 3000 } else { 20 };
                let mut batch = db.batch();
                for i in (0..keys).filter(|i| (i + round) % 3 != 0) {
                    let key = format!("{name}-{i:06}").into_bytes();
                    let value = format!("{round} {i} {}", "x".repeat(40)).into_bytes();
                    batch.put(&partition, &key, &value);
                    content.insert((name.to_owned(), key), value);
                }
                for i in (0..keys).filter(|i| (i + round) % 7 == 0) {
                    let key = format!("{name}-{i:06}").into_bytes();
                    batch.delete(&partition, &key);
                    content.remove(&(name.to_owned(), key));
                }
                batch.put(&gone, format!("gone-{round}"), b"old");
                batch.commit(Durability::Buffered).unwrap();
            }
            db.flush().unwrap();
        }
        if compact {
            db.compact().unwrap();
        }
        db.drop_partition(gone).unwrap();
        let default = db.default_partition();
        for i in 0..50 {
            let (key, value) = (format!("late-{i:02}").into_bytes(), vec![7; 300]);
            default.put_with(&key, &value, Durability::Sync).unwrap();
            content.insert(("default".to_owned(), key), value);
        }
        db.close().unwrap();
        Self { folder, content }
    }

    fn old(&self) -> PathBuf {
        self.folder.path().join("old")
    }

    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let files = fs::read_dir(self.old()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|path| path.to_str().unwrap().contains(extension)).collect();
        files.sort();
        files
    }

    /// Changes the byte at 10,000 of the largest SST, which is in a data block.
    fn damage_largest_sst(&self) -> PathBuf {
        let ssts = self.files(".sst").into_iter();
        let largest = ssts.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
        flip(&largest, 10_000, 1);
        largest
    }

    /// Repairs into a new store, and shows that the old one is as it was.
    fn repair(&self) -> (RepairReport, Content) {
        let new = tempfile::tempdir().unwrap();
        let before = bytes_of(&self.old());
        let surveyed = survey(self.old(), &options(), &mut |_, _| true).unwrap();
        let report = repair(self.old(), new.path(), options(), &mut |_, _| true).unwrap();
        assert!(before == bytes_of(&self.old()), "the old store was changed");
        assert_eq!((surveyed.damaged_places, surveyed.entries), (report.damaged_places, report.entries));
        let db = options().create_if_missing(false).open(new.path()).unwrap();
        (report, content_of(&db))
    }
}

fn bytes_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

pub(crate) fn content_of(db: &Db) -> Content {
    let mut content = Content::new();
    for name in db.partitions() {
        for entry in &db.find_partition(&name).unwrap() {
            let (key, value) = entry.unwrap();
            content.insert((name.clone(), key.to_vec()), value.to_vec());
        }
    }
    content
}

fn flip(path: &Path, at: usize, len: usize) {
    let mut bytes = fs::read(path).unwrap();
    let end = (at + len).min(bytes.len());
    bytes[at..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
    fs::write(path, bytes).unwrap();
}

fn lost<'a>(expected: &'a Content, found: &Content) -> Vec<&'a (String, Vec<u8>)> {
    expected.keys().filter(|key| !found.contains_key(*key)).collect()
}

#[test]
fn a_whole_store_comes_out_whole() {
    for compact in [false, true] {
        let sample = Sample::new(compact);
        let (report, found) = sample.repair();
        assert!(report.is_clean(), "{report:#?}");
        assert!(found == sample.content, "compact {compact}");
        assert_eq!(report.partitions, ["default", "small", "large"]);
    }
}

#[test]
fn without_current_the_manifest_is_still_found() {
    for damage in [|path: &Path| fs::remove_file(path).unwrap(), |path: &Path| fs::write(path, "?").unwrap()]
    {
        let sample = Sample::new(false);
        damage(&sample.old().join("CURRENT"));
        let (report, found) = sample.repair();
        assert!(report.guessed.is_none() && report.damaged_places == 1, "{report:#?}");
        assert!(found == sample.content);
    }
}

/// The files themselves say whose they are and how old; only drops and names may be lost, and the report says so.
#[test]
fn without_a_manifest_the_files_say_whose_they_are_and_how_old() {
    for compact in [false, true] {
        let sample = Sample::new(compact);
        for manifest in sample.files("MANIFEST") {
            fs::remove_file(manifest).unwrap();
        }
        let (report, found) = sample.repair();
        assert!(report.guessed.is_some() && report.complete, "{report:#?}");
        assert!(report.recovered_names.iter().all(|name| name.starts_with("recovered-")), "{report:#?}");
        let renamed: Content = found
            .into_iter()
            .filter(|((_, key), _)| !key.starts_with(b"gone"))
            .map(|((_, key), value)| {
                let name =
                    String::from_utf8_lossy(&key).split('-').next().unwrap().replace("late", "default");
                ((name, key), value)
            })
            .collect();
        let differing = |key: &&(String, Vec<u8>)| sample.content.get(*key) != renamed.get(*key);
        let wrong: Vec<_> = sample.content.keys().chain(renamed.keys()).filter(differing).collect();
        assert!(wrong.is_empty(), "compact {compact}: {} wrong, as {:?}", wrong.len(), wrong.first());
    }
}

#[test]
fn a_damaged_manifest_keeps_names_and_drops_that_can_be_read() {
    let sample = Sample::new(false);
    let manifest = sample.files("MANIFEST").pop().unwrap();
    // Zeros follow the last edit: space that is reserved.
    let end = fs::read(&manifest).unwrap().iter().rposition(|&byte| byte != 0).unwrap();
    flip(&manifest, end / 2, 1);
    let (report, found) = sample.repair();
    assert!(report.guessed.is_some(), "{report:#?}");
    assert!(found.keys().all(|(name, _)| name != "gone"), "a dropped partition came back: {report:#?}");
    assert!(lost(&sample.content, &found).is_empty(), "{report:#?}");
}

#[test]
fn a_damaged_block_costs_its_own_entries_and_is_reported() {
    let sample = Sample::new(true);
    let largest = sample.damage_largest_sst();
    let (report, found) = sample.repair();
    let [place] = &report.damage[..] else { panic!("{report:#?}") };
    let missing = lost(&sample.content, &found);
    let at = place.offset.unwrap();
    assert!(place.path == largest && (at..at + place.len.unwrap()).contains(&10_000), "{place:?}");
    assert_eq!((place.partition.as_deref(), place.entries), (Some("large"), Some(missing.len() as u64)));
    assert!(!missing.is_empty() && missing.len() < 400);
    let (lower, upper) = (place.lower.as_ref().unwrap(), place.upper.as_ref().unwrap());
    assert!(missing.iter().all(|(_, key)| lower < key && key < upper), "{place:?}");
    assert!(found.iter().all(|(key, value)| sample.content.get(key) == Some(value)), "something was made up");
}

/// Who waits for a merge gets the error of the store that it has poisoned. The first failure says where the damage is.
#[test]
fn a_merge_of_damaged_data_tells_where_the_damage_is() {
    let sample = Sample::new(true);
    let largest = sample.damage_largest_sst();
    let db = options().open(sample.old()).unwrap();
    let partition = db.find_partition("large").unwrap();
    partition.put("key", "value").unwrap();
    let poisoned = db.compact().unwrap_err();
    let puts = partition.put("key", "value").unwrap_err();
    let closes = db.close().unwrap_err();
    for error in [poisoned, puts, closes] {
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        assert!(!error.is_shortage());
        let cause = error.cause().unwrap();
        assert_eq!((cause.kind(), cause.path()), (ErrorKind::Corruption, Some(&*largest)), "{error}");
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("corruption"));
    }
}

#[test]
fn damaged_tails_cost_nothing() {
    let sample = Sample::new(false);
    let ssts = sample.files(".sst");
    for sst in &ssts {
        let len = usize::try_from(fs::metadata(sst).unwrap().len()).unwrap();
        flip(sst, len - 60, 30);
    }
    let (report, found) = sample.repair();
    assert_eq!(report.damaged_places, ssts.len() as u64, "{report:#?}");
    assert!(found == sample.content);
}

#[test]
fn a_missing_sst_is_reported_with_its_keys() {
    let sample = Sample::new(true);
    let largest =
        sample.files(".sst").into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    fs::remove_file(&largest).unwrap();
    let (report, found) = sample.repair();
    let [place] = &report.damage[..] else { panic!("{report:#?}") };
    let missing = lost(&sample.content, &found);
    assert_eq!((&place.path, place.entries), (&largest, Some(missing.len() as u64)), "{place:?}");
    assert!(missing.iter().all(|(name, _)| Some(name) == place.partition.as_ref()));
}

#[test]
fn records_behind_a_damaged_one_are_found() {
    let sample = Sample::new(false);
    let log = sample.files(".log").pop().unwrap();
    let bytes = fs::read(&log).unwrap();
    let at = bytes.windows(7).position(|window| window == b"late-20").unwrap();
    flip(&log, at, 1);
    let (report, found) = sample.repair();
    assert!(report.damaged_places >= 1, "{report:#?}");
    let missing = lost(&sample.content, &found);
    // Records up to the next one that says its number are lost with it.
    assert!(missing.iter().any(|(_, key)| key == b"late-20") && missing.len() < 25, "{missing:?}");
    assert!(found.contains_key(&("default".to_owned(), b"late-49".to_vec())));
    assert!(report.damage.iter().any(|place| place.error.to_string().contains("are missing")), "{report:#?}");
}

#[test]
fn a_repair_is_refused_where_it_would_do_harm() {
    let sample = Sample::new(false);
    let kind = |from: &Path, into: &Path| repair(from, into, options(), &mut |_, _| true).unwrap_err().kind();
    let taken = tempfile::tempdir().unwrap();
    fs::write(taken.path().join("thesis.txt"), "mine").unwrap();
    assert_eq!(kind(&sample.old(), taken.path()), ErrorKind::InvalidArgument);
    assert_eq!(kind(&sample.old(), &sample.old().join("new")), ErrorKind::InvalidArgument);
    assert_eq!(kind(&sample.old(), &sample.old()), ErrorKind::InvalidArgument);
    let empty = tempfile::tempdir().unwrap();
    let new = empty.path().join("new");
    assert_eq!(kind(empty.path(), &taken.path().join("x")), ErrorKind::NotFound);
    assert_eq!(kind(&empty.path().join("nowhere"), &new), ErrorKind::NotFound);
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0, "nothing was created");
    let open = options().open(sample.old()).unwrap();
    assert_eq!(kind(&sample.old(), &new), ErrorKind::Conflict);
    drop(open);
}

#[test]
fn a_repair_ends_when_it_is_asked_to() {
    let sample = Sample::new(false);
    let new = tempfile::tempdir().unwrap();
    let mut calls = 0;
    let report = repair(sample.old(), new.path(), options(), &mut |_, _| {
        calls += 1;
        calls < 4
    })
    .unwrap();
    assert!(!report.complete && calls == 4, "{calls}");
}

/// Any bytes in any file: no panic, and nothing but what was once written.
#[test]
fn hostile_bytes_are_survived() {
    let sample = Sample::new(false);
    let seed: u64 = std::env::var("PLEACH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7);
    println!("PLEACH_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let original = bytes_of(&sample.old());
    for round in 0..60 {
        for (path, bytes) in &original {
            fs::write(path, bytes).unwrap();
        }
        for (path, bytes) in &original {
            if bytes.is_empty() || random.bool() {
                continue;
            }
            let mut bytes = bytes.clone();
            match random.u8(0..4) {
                0 => bytes.truncate(random.usize(..bytes.len())),
                1 => {
                    let at = random.usize(..bytes.len());
                    let end = (at + random.usize(1..5000)).min(bytes.len());
                    bytes[at..end].fill_with(|| random.u8(..));
                }
                2 => {
                    for _ in 0..random.usize(1..10) {
                        let at = random.usize(..bytes.len());
                        bytes[at] = random.u8(..);
                    }
                }
                _ => bytes.rotate_left(random.usize(1..200).min(original[path].len() - 1)),
            }
            fs::write(path, bytes).unwrap();
        }
        let report = survey(sample.old(), &options(), &mut |_, _| true).unwrap();
        assert!(report.complete, "round {round}");
    }
}

/// A store in the folder `old` of a directory, whose log has that many puts with a marker behind each; the path of the log.
fn store_of_synced_puts(puts: usize) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old");
    let db = options().open(&old).unwrap();
    for i in 0..puts {
        db.default_partition().put_with(format!("{i:03}"), [7; 300], Durability::Sync).unwrap();
    }
    db.close().unwrap();
    let logs = fs::read_dir(&old).unwrap().map(|entry| entry.unwrap().path());
    let log = logs.filter(|path| path.extension().is_some_and(|name| name == "log")).max().unwrap();
    (folder, log)
}

/// Each damaged place ends a chain of records, and the next one begins behind it.
#[test]
fn a_log_that_is_damaged_in_many_places_is_read() {
    const PUTS: usize = 400;
    let (folder, log) = store_of_synced_puts(PUTS);
    let old = folder.path().join("old");
    let mut bytes = fs::read(&log).unwrap();
    let places: Vec<_> = (0..bytes.len() - 300).filter(|&at| bytes[at..at + 300] == [7; 300]).collect();
    assert_eq!(places.len(), PUTS);
    places.iter().step_by(2).for_each(|at| bytes[at + 100] = 8);
    fs::write(&log, bytes).unwrap();
    let new = folder.path().join("new");
    let report = repair(&old, &new, options(), &mut |_, _| true).unwrap();
    assert_eq!(report.entries, PUTS as u64 / 2);
    assert!(report.damaged_places >= PUTS as u64 / 2 && report.complete);
    let db = options().open(&new).unwrap();
    let keys: Vec<_> = content_of(&db).into_keys().map(|(_, key)| key).collect();
    assert!(keys.into_iter().eq((1..PUTS).step_by(2).map(|i| format!("{i:03}").into_bytes())));
}

/// Moments of a life of many small runs, sections, moved SSTs and merges in progress. Each key begins with its partition.
fn moments(seed: u64, shape: Shape, with_deletes: bool) -> Vec<Arc<SimEnv>> {
    let env = SimEnv::new(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    let ops: Vec<_> = (0..12).map(|_| random.u64(100..1200)).collect();
    env.capture_at(&ops);
    let db = simulated(&env, shape).open(DIR).unwrap();
    for step in 0..1500_u32 {
        // Slices of all sizes: a partition has a section in one flush, and a run of its own in the next.
        let is_burst = step / 40 % 2 == 0 && random.u8(..16) > 0;
        let name = if is_burst { "large" } else { ["default", "small", "large"][random.usize(..3)] };
        let partition = db.partition(name).unwrap();
        let mut batch = db.batch();
        for _ in 0..random.u32(1..12) {
            // Ascending keys are moved, others are merged.
            let number = if random.u8(..4) == 0 { step } else { random.u32(..400) };
            let key = format!("{name}-{number:06}");
            if with_deletes && random.u8(..5) == 0 {
                batch.delete(&partition, key);
            } else {
                batch.put(&partition, key, format!("{step} {}", "x".repeat(random.usize(..100))));
            }
        }
        batch.commit(Durability::Buffered).unwrap();
        if random.u8(..20) == 0 {
            env.run_jobs();
        }
        if random.u16(..300) == 0 {
            db.compact().unwrap();
        }
    }
    let captured = env.captured();
    assert!(captured.len() >= 6, "the life was too short");
    captured.iter().map(|(_, capture)| capture.crash_image(CrashPolicy::ProcessKill, seed)).collect()
}

/// Two of three shapes separate most of the values.
fn simulated(env: &Arc<SimEnv>, shape: Shape) -> Options {
    let separate_at = if shape == Shape::Forest { 0 } else { 30 };
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(8 << 20).shape(shape);
    options
        .runs_per_stage(2)
        .memtable_bytes(16 << 10)
        .sst_bytes(4 << 10)
        .compaction_threads(2)
        .separate_at(separate_at)
}

/// Repairs the store of a machine, and returns what is in the new one, whatever the partitions are called.
fn repaired(env: &Arc<SimEnv>, shape: Shape) -> (RepairReport, BTreeMap<Vec<u8>, Vec<u8>>) {
    let options = || simulated(env, shape);
    let report = repair(DIR, "/new", options(), &mut |_, _| true).unwrap();
    (report, entries_of(&options().open("/new").unwrap()))
}

fn entries_of(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    content_of(db).into_iter().map(|((_, key), value)| (key, value)).collect()
}

/// With its manifest a store is repaired to what an open finds, in the middle of merges too.
#[test]
fn a_store_is_repaired_to_what_an_open_finds_at_any_moment() {
    for (seed, shape) in (1..).zip([Shape::Forest, Shape::ForestOverBottom, Shape::Leveled].repeat(3)) {
        for image in moments(seed, shape, true) {
            let (report, found) = repaired(&image, shape);
            // The end may have come while a log segment was made.
            let is_torn =
                |place: &DamagedPlace| place.error.to_string().contains("zeros in place of its header");
            assert!(
                report.damage.iter().all(is_torn) && report.guessed.is_none(),
                "seed {seed}: {report:#?}"
            );
            let opened = simulated(&image, shape).open(DIR).unwrap();
            assert!(found == entries_of(&opened), "seed {seed}, {shape:?}");
        }
    }
}

/// Without a manifest the newest version of each key still wins, over those in other files and in the log.
#[test]
fn without_a_manifest_the_newest_version_wins_at_any_moment() {
    for (seed, shape) in (1..).zip([Shape::Forest, Shape::ForestOverBottom, Shape::Leveled].repeat(3)) {
        for image in moments(seed, shape, false) {
            let whole = image.crash_image(CrashPolicy::ProcessKill, seed);
            let names = image.file_names(Path::new(DIR)).into_iter();
            for name in names.filter(|name| name.starts_with("MANIFEST-")) {
                image.remove_file(&Path::new(DIR).join(name)).unwrap();
            }
            let (report, found) = repaired(&image, shape);
            assert!(report.guessed.is_some(), "seed {seed}: {report:#?}");
            let expected = entries_of(&simulated(&whole, shape).open(DIR).unwrap());
            // The SST of a flush that was cut off may be there without the values that the flush would have copied.
            let is_reported = |key: &Vec<u8>| {
                let names = |place: &DamagedPlace| match (&place.lower, &place.upper, place.entries) {
                    (Some(lower), Some(upper), Some(_)) => (lower..=upper).contains(&key),
                    _ => false,
                };
                report.damage.iter().any(names)
            };
            let is_right = |key: &&Vec<u8>| {
                expected.get(*key) == found.get(*key) || !found.contains_key(*key) && is_reported(key)
            };
            let wrong = expected.keys().chain(found.keys()).find(|key| !is_right(key));
            assert!(wrong.is_none(), "seed {seed}, {shape:?}: {wrong:?}");
            let gap = report.damage.iter().find(|place| place.error.to_string().contains("are missing"));
            assert!(gap.is_none(), "seed {seed}, {shape:?}: {gap:?}");
        }
    }
}

/// A marker takes no number, so the numbers before and behind a damaged one have no gap.
#[test]
fn records_behind_a_damaged_marker_are_found() {
    const PUTS: usize = 100;
    let (folder, log) = store_of_synced_puts(PUTS);
    let old = folder.path().join("old");
    let mut bytes = fs::read(&log).unwrap();
    let markers = (0..bytes.len() - 300).filter(|&at| bytes[at..at + 300] == [7; 300]).map(|at| at + 300);
    for (i, marker) in markers.collect::<Vec<_>>().into_iter().enumerate().skip(1) {
        // All its bytes are zero, as after the loss of a sector, or one bit is another.
        if i % 2 == 0 { bytes[marker..marker + 32].fill(0) } else { bytes[marker + 30] ^= 1 }
    }
    fs::write(&log, bytes).unwrap();
    let report = repair(&old, folder.path().join("new"), options(), &mut |_, _| true).unwrap();
    assert_eq!((report.entries, report.complete), (PUTS as u64, true), "{report:#?}");
}

/// Seconds and memory of a repair whose log has 0.9 GB and 100 damaged places, with and without its manifest.
#[test]
#[ignore = "takes a minute and 3 GB of disk; prints figures"]
fn the_cost_of_a_long_damaged_log() {
    let folder = tempfile::tempdir().unwrap();
    let (live, old) = (folder.path().join("live"), folder.path().join("old"));
    let options = || Options::new().memory(8 << 30).memtable_bytes(1 << 30);
    let db = options().open(&live).unwrap();
    for i in 0..900_000u32 {
        db.default_partition().put(i.to_le_bytes(), vec![i.to_le_bytes()[0]; 1000]).unwrap();
    }
    db.sync().unwrap();
    fs::create_dir(&old).unwrap();
    for (path, mut bytes) in bytes_of(&live) {
        if path.extension().is_some_and(|name| name == "log") {
            let len = bytes.len();
            (1..=100).for_each(|i| bytes[i * (len / 102)..][..64].fill(0xaa));
        }
        fs::write(old.join(path.file_name().unwrap()), bytes).unwrap();
    }
    drop(db);
    fs::remove_dir_all(&live).unwrap();
    for guessed in [false, true] {
        let new = folder.path().join("new");
        if guessed {
            fs::remove_file(old.join("CURRENT")).unwrap();
            let manifests =
                bytes_of(&old).into_keys().filter(|path| path.to_str().unwrap().contains("MANIFEST"));
            manifests.for_each(|path| fs::remove_file(path).unwrap());
        }
        // The high-water mark of resident memory starts again.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let start = std::time::Instant::now();
        let report = repair(&old, &new, Options::new().memory(64 << 20), &mut |_, _| true).unwrap();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        let (entries, places) = (report.entries, report.damaged_places);
        println!("guessed {guessed}: {entries} entries, {places} places, {:.1?}, {peak}", start.elapsed());
        assert!(entries > 880_000 && places >= 100);
        fs::remove_dir_all(&new).unwrap();
    }
}

/// In the place of an SST lies one with the same number that another store has written. An open would not look there for keys
/// that the manifest does not name.
#[test]
fn entries_outside_of_the_keys_that_the_manifest_names_are_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, first: usize| {
        let path = folder.path().join(name);
        let db = options().open(&path).unwrap();
        for n in first..first + 100 {
            db.default_partition().put(format!("{n:03}"), name).unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        let files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        let ssts: Vec<_> = files.filter(|path| path.extension().is_some_and(|name| name == "sst")).collect();
        let [sst] = ssts.try_into().unwrap();
        (path, sst)
    };
    let (old, sst) = write("old", 200);
    // A flush and the next segment of the log take their numbers in either order.
    let mut foreign = (0..100).map(|attempt| write(&format!("foreign {attempt}"), 250).1);
    let foreign = foreign.find(|foreign| foreign.file_name() == sst.file_name()).unwrap();
    fs::copy(foreign, sst).unwrap();
    let new = folder.path().join("new");
    let report = repair(&old, &new, options(), &mut |_, _| true).unwrap();
    assert!(report.damaged_places > 0);
    let db = options().open(&new).unwrap();
    let entries: Vec<_> = db.default_partition().iter().map(Result::unwrap).collect();
    let (keys, values): (Vec<_>, Vec<_>) = entries.iter().map(|(key, value)| (&**key, &**value)).unzip();
    let expected: Vec<_> = (250..300).map(|n| format!("{n:03}").into_bytes()).collect();
    assert_eq!(keys, expected);
    assert!(
        values.iter().all(|value| value.starts_with(b"foreign")),
        "what lies where it should is read all the same"
    );
}

/// A file of LevelDB's in a store of ours is left alone.
#[test]
fn a_strange_file_hinders_no_repair() {
    let sample = Sample::new(true);
    fs::write(sample.folder.path().join("old/000005.ldb"), "strange").unwrap();
    assert_eq!(sample.repair().1, sample.content);
}

#[test]
fn a_store_of_leveldb_is_not_salvaged_as_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["CURRENT", "MANIFEST-000002", "000003.log", "000005.ldb"] {
        fs::write(folder.path().join(name), "MANIFEST-000002\n").unwrap();
    }
    let error =
        repair(folder.path(), folder.path().with_extension("new"), options(), &mut |_, _| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("LevelDB"), "{error}");
    assert!(!folder.path().with_extension("new").exists());
}
