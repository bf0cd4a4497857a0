//! Killed processes: a child writes to a reshaped store, and makes checkpoints, moves rows, exhausts its ids and cleans,
//! until it is killed. The store then holds what a prefix of the child's changes left, with all that were promised.
//!
//! The changes follow from a seed and their numbers, so the parent knows what each prefix holds. Key `at` says how many there
//! are. The child reports each change that is acknowledged and each that is durable.
#![expect(clippy::disallowed_methods, reason = "plays the operating system: time and processes are real")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the rig is a test, though most of it is no #[test]"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use pleach_reshape::store::RowStore;
use pleach_reshape::store::lmdb::{LmdbOptions, LmdbStore};
use pleach_reshape::store::redb::{RedbOptions, RedbStore};
use pleach_reshape::testing::variable;
use pleach_reshape::{Durability, MapPlace, Options, Reshaped, Update};

/// The variable with the child's orders.
const ORDERS: &str = "PLEACH_RESHAPE_KILL";
const KEYS: u64 = 400;
/// The key with the number of changes.
const AT: &str = "at";

type Contents = BTreeMap<String, String>;

fn rows(kind: &str, folder: &Path) -> Box<dyn RowStore> {
    let folder = folder.join("rows");
    match kind {
        "redb" => Box::new(RedbStore::open(&folder, &RedbOptions::default()).unwrap()),
        _ => Box::new(LmdbStore::open(&folder, &LmdbOptions::default()).unwrap()),
    }
}

fn open(kind: &str, update: u64, folder: &Path) -> Reshaped {
    let update = [Update::InPlace, Update::Replace, Update::Defer][usize::try_from(update % 3).unwrap()];
    let map = pleach::Options::new().memory(4 << 20).memtable_bytes(64 << 10);
    // 2 x 4095 ids are exhausted again and again.
    let options = Options::new().update(update).map_options(map).sequence_bits(12).delta_bytes(80 << 10);
    let options = options.moves(10_000, 16).map(MapPlace::Disk);
    options.open(rows(kind, folder), folder.join("map")).unwrap()
}

/// The operations of a change, without that of `AT`.
fn change(seed: u64, number: u64) -> Vec<(String, Option<String>)> {
    let mut rng = fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let operations = if rng.u8(..4) == 0 { rng.usize(..30) } else { 1 };
    let operation = |_| {
        let key = format!("{:05}", rng.u64(..KEYS) * 7919 % 100_003);
        (key, (rng.u8(..4) > 0).then(|| format!("{number} {}", "v".repeat(rng.usize(..200)))))
    };
    (0..operations).map(operation).collect()
}

fn apply(store: &Reshaped, seed: u64, number: u64, durability: Durability) {
    let mut batch = store.batch();
    for (key, value) in change(seed, number) {
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
    }
    batch.put(AT, (number + 1).to_string());
    batch.commit_with(durability).unwrap();
}

/// The child's life, until it is killed.
#[test]
fn child() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let words: Vec<&str> = orders.splitn(5, ':').collect();
    let [kind, seed, update, synced, folder] = words[..] else { panic!("{orders}") };
    let (seed, is_synced): (u64, bool) = (seed.parse().unwrap(), synced == "true");
    let store = open(kind, update.parse().unwrap(), Path::new(folder));
    let mut number = count(&store);
    let report = |word: &str, number: u64| {
        std::io::stderr().write_all(format!("{word} {number}\n").as_bytes()).unwrap();
    };
    report("open", number);
    // Beside the changes, so that kills meet changes of keys whose rows are moving.
    let (begin, begun) = channel();
    let store = Arc::new(store);
    let own = Arc::clone(&store);
    std::thread::spawn(move || {
        while begun.recv().is_ok() {
            own.recluster::<&[u8]>(..).unwrap();
        }
    });
    loop {
        let sync = is_synced || number % 23 == 22;
        apply(&store, seed, number, if sync { Durability::Sync } else { Durability::Buffered });
        number += 1;
        report(if sync { "durable" } else { "done" }, number);
        match number % 97 {
            10 => store.checkpoint().unwrap(),
            30 | 55 | 80 => begin.send(()).unwrap(),
            50 => drop(store.clean().unwrap()),
            70 => store.drain().unwrap(),
            90 => store.sync().unwrap(),
            _ => {}
        }
    }
}

fn count(store: &Reshaped) -> u64 {
    store.get(AT).unwrap().map_or(0, |bytes| String::from_utf8(bytes).unwrap().parse().unwrap())
}

/// What was promised, and what the changes up to a number hold.
#[derive(Default)]
struct Model {
    contents: Contents,
    number: u64,
    promised: u64,
}

impl Model {
    /// Reads a report; whether there was one.
    fn take_report(&mut self, reports: &mut impl BufRead, survives_kill: bool) -> bool {
        let mut line = String::new();
        reports.read_line(&mut line).unwrap();
        let Some((word, number)) = line.trim().split_once(' ') else { return !line.is_empty() };
        match number.parse::<u64>() {
            Ok(number) if word == "durable" || (word == "done" && survives_kill) => {
                self.promised = self.promised.max(number);
            }
            Ok(_) => {}
            Err(_) => println!("{line}"),
        }
        true
    }

    fn check(&mut self, store: &Reshaped, seed: u64) {
        let count = count(store);
        assert!(count >= self.promised, "{count} changes are there, and {} were promised", self.promised);
        if count < self.number {
            // Changes that nobody promised are gone; the child made others in their place, with the same numbers.
            self.contents.clear();
            self.number = 0;
        }
        while self.number < count {
            for (key, value) in change(seed, self.number) {
                match value {
                    Some(value) => self.contents.insert(key, value),
                    None => self.contents.remove(&key),
                };
            }
            self.number += 1;
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let mut found: Contents =
            store.all().unwrap().map(|pair| pair.unwrap()).map(|(k, v)| (text(k), text(v))).collect();
        found.remove(AT);
        assert_eq!(found, self.contents);
        store.verify().unwrap();
    }
}

fn survives_kills(kind: &str, update: u64, is_synced: bool, kills: u64) {
    let folder = tempfile::tempdir().unwrap();
    let seed = variable("PLEACH_SEED", 1);
    let (mut rng, mut model) = (fastrand::Rng::with_seed(seed), Model::default());
    let (mut rebuilt, mut generation) = (0, 0);
    for _ in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(ORDERS, format!("{kind}:{seed}:{update}:{is_synced}:{}", folder.path().display()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let wanted = if rng.u8(..8) == 0 { 0 } else { rng.u64(1..300) };
        let mut reports = BufReader::new(child.stderr.take().unwrap());
        let survives_kill = kind != "redb";
        let mut seen = 0;
        while seen < wanted && model.take_report(&mut reports, survives_kill) {
            seen += 1;
        }
        std::thread::sleep(Duration::from_micros(rng.u64(..8000)));
        child.kill().unwrap();
        while model.take_report(&mut reports, survives_kill) {}
        let status = child.wait().unwrap();
        assert!(status.code().is_none(), "the child ended by itself: {status}");
        let store = open(kind, update, folder.path());
        rebuilt += u64::from(store.open_report().rebuilt.is_some());
        generation = generation.max(store.stats().generation);
        model.check(&store, seed);
    }
    println!(
        "{kind}, update {update}, synced {is_synced}: {kills} kills, {} changes, {rebuilt} maps rebuilt, generation {generation}",
        model.number
    );
}

/// Kills of each test.
fn kills() -> u64 {
    variable("PLEACH_KILLS", 18)
}

#[test]
fn redb_survives_kills() {
    for update in 0..3 {
        survives_kills("redb", update, false, kills().div_ceil(3));
    }
}

#[test]
fn redb_synced_survives_kills() {
    survives_kills("redb", 1, true, kills());
}

#[test]
fn lmdb_survives_kills() {
    for update in 0..3 {
        survives_kills("lmdb", update, false, kills().div_ceil(3));
    }
}

#[test]
fn lmdb_synced_survives_kills() {
    survives_kills("lmdb", 1, true, kills());
}
