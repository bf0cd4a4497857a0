//! Killed processes: the transactions that are there are a prefix, with all that were promised.
//!
//! A test binary runs itself as the child that is killed: one of its tests calls [`child`], which returns at once in the parent,
//! and another one calls [`survives_kills`], which prints the seed; `PLEACH_SEED` and `PLEACH_KILLS` choose seed and number. The
//! child's writers commit transactions that follow from the seed, the writer and the number, and report each commit and each
//! sync. After a kill the parent opens the store and compares.

#![expect(
    clippy::disallowed_methods,
    reason = "plays the operating system: time, processes and threads are real"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::{all_rows, at, pattern, put, variable};
use crate::store::{Change, Durability, Place, Result, RowStore, Table};

/// The variable with the child's orders.
const ORDERS: &str = "PLEACH_ROWS_KILL";
const WRITERS: usize = 3;
/// Ids of a writer below which rows are replaced and removed.
const IDS: u64 = 500;

/// Opens the store in a folder.
pub type OpenAt = fn(&Path) -> Result<Box<dyn RowStore>>;

/// What to run.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// The full name of the test that calls [`child`].
    child: &'static str,
    /// How the store is opened, by parent and child.
    open: OpenAt,
    /// Whether every commit is synced, or only now and then one.
    durability: Durability,
    /// Number of kills.
    kills: u64,
    /// Seed of everything.
    seed: u64,
}

/// The child's life, until it is killed. Returns at once if this process is no such child.
pub fn child(open: OpenAt) {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let words: Vec<&str> = orders.splitn(3, ':').collect();
    let (seed, synced, folder) = (words[0].parse().expect("a seed"), words[1] == "true", words[2]);
    let store = open(Path::new(folder)).expect("a store whose process was killed opens");
    // How far each writer is, as acknowledged.
    let counts: [AtomicU64; WRITERS] = std::array::from_fn(|_| AtomicU64::new(0));
    for (writer, count) in counts.iter().enumerate() {
        count.store(recovered(&*store, writer).0, Ordering::Relaxed);
    }
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, counts) = (&*store, &counts);
            scope.spawn(move || write(store, seed, synced, writer, counts));
        }
    });
}

/// Commits transactions until it is killed.
fn write(store: &dyn RowStore, seed: u64, synced: bool, writer: usize, counts: &[AtomicU64; WRITERS]) {
    store.create_table(table(writer)).expect("a table");
    loop {
        let number = counts[writer].load(Ordering::Relaxed);
        // All that is acknowledged now is before this transaction.
        let seen: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Acquire)).collect();
        let transaction = Transaction::new(seed, writer, number);
        let sync = synced || number % 20 == 19;
        transaction.commit(store, &seen, if sync { Durability::Sync } else { Durability::Buffered });
        counts[writer].store(number + 1, Ordering::Release);
        let word = if sync { "synced" } else { "done" };
        // One call, so that lines do not mix.
        std::io::stderr().write_all(format!("{word} {writer} {}\n", number + 1).as_bytes()).expect("a pipe");
        if !synced && writer == 0 && number % 50 == 25 {
            store.sync().expect("a sync");
            std::io::stderr()
                .write_all(format!("synced {writer} {}\n", number + 1).as_bytes())
                .expect("a pipe");
        }
    }
}

/// Kills children at each durability, and compares what they leave. `child` is the full name of the test that calls [`child`];
/// `kills` is the number at each durability, unless `PLEACH_KILLS` says another one.
///
/// # Panics
/// If something is lost, half there, or damaged.
pub fn survives_kills(open: OpenAt, child: &'static str, kills: u64) {
    let (kills, seed) = (variable("PLEACH_KILLS", kills), variable("PLEACH_SEED", 1));
    eprintln!("PLEACH_SEED={seed} PLEACH_KILLS={kills}");
    for durability in [Durability::Buffered, Durability::Sync] {
        survives(&Plan { child, open, durability, kills, seed });
    }
}

fn survives(plan: &Plan) {
    let folder = tempfile();
    let mut rng = Rng::with_seed(plan.seed);
    let mut model = Model::default();
    let mut before_first = 0;
    for _ in 0..plan.kills {
        let lines = kill_one(plan, &folder.0, &mut rng, &mut model);
        before_first += u64::from(lines == 0);
        let store = (plan.open)(&folder.0).expect("a store whose process was killed opens");
        model.check(plan.seed, &*store);
    }
    let counts = model.counts.map(|count| count.there);
    eprintln!(
        "{} kills, {before_first} before the first commit, {counts:?} transactions, none lost",
        plan.kills
    );
}

/// Runs a child and kills it; returns how often it reported.
fn kill_one(plan: &Plan, folder: &Path, rng: &mut Rng, model: &mut Model) -> u64 {
    let mut child = start(plan, folder);
    let wanted = if rng.u8(..6) == 0 { 0 } else { rng.u64(1..150) };
    let delay = Duration::from_micros(rng.u64(..20_000));
    let mut reports = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut seen = 0;
    while seen < wanted && model.take_report(&mut reports) {
        seen += 1;
    }
    thread::sleep(delay);
    child.kill().expect("it can be killed");
    while model.take_report(&mut reports) {
        seen += 1;
    }
    let status = child.wait().expect("it can be waited for");
    assert!(status.code().is_none(), "the child ended by itself: {status}");
    seen
}

fn start(plan: &Plan, folder: &Path) -> Child {
    let synced = plan.durability == Durability::Sync;
    Command::new(std::env::current_exe().expect("this test is a file"))
        .args(["--exact", plan.child, "--nocapture", "--test-threads=1"])
        .env(ORDERS, format!("{}:{synced}:{}", plan.seed, folder.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test can be run")
}

fn table(writer: usize) -> Table {
    Table(u16::try_from(writer).expect("few writers"))
}

fn place(writer: usize, id: u64) -> Place {
    at(table(writer).0, id)
}

fn name(writer: usize) -> String {
    format!("writer {writer}")
}

/// A transaction of a writer: puts at the end, and puts and removals among the rows that are there.
struct Transaction {
    writer: usize,
    number: u64,
    changes: Vec<(u64, Option<Vec<u8>>)>,
}

impl Transaction {
    fn new(seed: u64, writer: usize, number: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ number << 8 ^ writer as u64);
        let len = |rng: &mut Rng| if rng.u8(..50) == 0 { rng.usize(..60_000) } else { rng.usize(..300) };
        let mut changes: Vec<_> = (0..rng.u64(1..8))
            .map(|_| {
                let row = rng.bool().then(|| pattern(rng.u64(..), len(&mut rng)));
                (rng.u64(..IDS), row)
            })
            .collect();
        changes.push((IDS + number, Some(pattern(number, len(&mut rng)))));
        Self { writer, number, changes }
    }

    /// Commits it, with the numbers of all writers' transactions that were acknowledged before.
    fn commit(&self, store: &dyn RowStore, seen: &[u64], durability: Durability) {
        let mut words = vec![(self.number + 1).to_string()];
        words.extend(seen.iter().map(u64::to_string));
        let (name, words) = (name(self.writer), words.join(" "));
        let mut changes = vec![Change::SetMeta { name: &name, value: words.as_bytes() }];
        changes.extend(self.changes.iter().map(|(id, row)| {
            let place = place(self.writer, *id);
            row.as_ref().map_or(Change::Remove { place }, |row| put(place, row))
        }));
        store.commit(&changes, durability).expect("a commit");
    }
}

/// How many transactions of a writer are there, and how many of each writer it had seen before its last one.
fn recovered(store: &dyn RowStore, writer: usize) -> (u64, Vec<u64>) {
    let Some(words) = store.meta(&name(writer)).expect("a read") else { return (0, Vec::new()) };
    let words = String::from_utf8(words).expect("text");
    let mut numbers = words.split(' ').map(|word| word.parse().expect("a number"));
    (numbers.next().expect("a count"), numbers.collect())
}

/// What is known of a writer.
#[derive(Clone, Copy, Default)]
struct Count {
    there: u64,
    acknowledged: u64,
    synced: u64,
}

/// What the store should hold.
#[derive(Default)]
struct Model {
    counts: [Count; WRITERS],
    rows: [BTreeMap<u64, Vec<u8>>; WRITERS],
}

impl Model {
    /// Takes note of one report; false at the end.
    fn take_report(&mut self, reports: &mut impl BufRead) -> bool {
        let mut line = String::new();
        if reports.read_line(&mut line).expect("a pipe") == 0 {
            return false;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [word @ ("done" | "synced"), writer, count] = words[..] else {
            std::io::copy(reports, &mut std::io::stderr()).expect("a pipe");
            panic!("the child says: {line}");
        };
        let (writer, number): (usize, u64) =
            (writer.parse().expect("a writer"), count.parse().expect("a number"));
        let count = &mut self.counts[writer];
        count.acknowledged = count.acknowledged.max(number);
        if word == "synced" {
            count.synced = count.synced.max(number);
        }
        true
    }

    /// Compares a store after a kill with what it should hold, and goes on from what it holds.
    fn check(&mut self, seed: u64, store: &dyn RowStore) {
        let survives = store.abilities().buffered_survives_kill;
        let found: Vec<_> = (0..WRITERS).map(|writer| recovered(store, writer)).collect();
        for writer in 0..WRITERS {
            let (count, seen) = &found[writer];
            let known = self.counts[writer];
            let promised = if survives { known.acknowledged } else { known.synced };
            assert!(
                *count >= promised,
                "writer {writer}: {count} transactions are there, {promised} were promised"
            );
            for (other, seen) in seen.iter().enumerate() {
                let there = found[other].0;
                assert!(
                    there >= *seen,
                    "writer {writer} had seen {seen} transactions of {other}, of which {there} are there"
                );
            }
            self.advance(seed, writer, *count);
            let rows = all_rows(store, table(writer).0);
            if let Some(id) = differing(&rows, &self.rows[writer]) {
                panic!(
                    "writer {writer} with {count} transactions: row {id} differs, a transaction is not whole"
                );
            }
        }
    }

    /// Makes a writer's rows those after so many transactions.
    fn advance(&mut self, seed: u64, writer: usize, count: u64) {
        let known = &mut self.counts[writer];
        if count < known.there {
            // Some that were never promised were there after the last kill and are lost now.
            known.there = 0;
            self.rows[writer].clear();
        }
        for number in known.there..count {
            for (id, row) in Transaction::new(seed, writer, number).changes {
                match row {
                    Some(row) => drop(self.rows[writer].insert(id, row)),
                    None => drop(self.rows[writer].remove(&id)),
                }
            }
        }
        *known = Count { there: count, acknowledged: count, synced: known.synced };
    }
}

fn differing(found: &BTreeMap<u64, Vec<u8>>, expected: &BTreeMap<u64, Vec<u8>>) -> Option<u64> {
    found.keys().chain(expected.keys()).copied().find(|id| found.get(id) != expected.get(id))
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

fn tempfile() -> Folder {
    let name = format!("pleach-rows-kill-{}-{:?}", std::process::id(), thread::current().id());
    Folder(std::env::temp_dir().join(name.replace(['(', ')'], "")))
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.0);
    }
}
