//! The parent process, which kills, reopens and compares.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fastrand::Rng;
use pleach::Db;

use crate::child::{FAILED, ORDERS, POWER, micros};
use crate::history::{Batch, Model, PerWriter, SEEN, WRITERS, counter_key, options, partition_name};

const SIGKILL: i32 = 9;

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn killed_processes_lose_nothing_acknowledged() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    run("kills", number_from("PLEACH_KILLS", 100), dir.path(), End::Kill);
}

/// The file system of `PLEACH_POWER_DIR` loses its power: what is not on its device is gone. `.ci/power-cuts` makes it.
#[test]
#[ignore = "needs a file system of its own: .ci/power-cuts"]
fn power_cuts_lose_nothing_synced() {
    let (store, switch) = on_a_device(".ci/power-cuts");
    run("power cuts", number_from("PLEACH_POWER_CUTS", 50), &store, End::PowerCut(switch));
}

/// The device below `PLEACH_POWER_DIR` refuses writes. A thread of the child stops at its first error, the others go on until
/// the kill. `.ci/failing-device` makes it.
#[test]
#[ignore = "needs a file system of its own: .ci/failing-device"]
fn failing_devices_lose_nothing_synced() {
    let (store, switch) = on_a_device(".ci/failing-device");
    let ends = number_from("PLEACH_DEVICE_FAILURES", 50);
    run("device failures", ends, &store, End::DeviceFailure(switch));
}

/// The directory of the store, and the program that fails its device and restores it.
fn on_a_device(maker: &str) -> (PathBuf, PathBuf) {
    let variable =
        |name| PathBuf::from(std::env::var(name).unwrap_or_else(|_| panic!("{maker} sets {name}")));
    (variable("PLEACH_POWER_DIR").join("store"), variable("PLEACH_POWER_SWITCH"))
}

/// How a child ends.
enum End {
    Kill,
    /// With the program that cuts the power before the kill, and restores it.
    PowerCut(PathBuf),
    /// With the program that makes the device fail some time before the kill, and mends it.
    DeviceFailure(PathBuf),
}

impl End {
    fn switch(&self) -> Option<&Path> {
        match self {
            End::Kill => None,
            End::PowerCut(switch) | End::DeviceFailure(switch) => Some(switch),
        }
    }
}

#[expect(clippy::print_stdout, reason = "what the rig met")]
fn run(what: &str, ends: u64, dir: &Path, end: End) {
    let seed = number_from("PLEACH_SEED", 1);
    println!("PLEACH_SEED={seed}, {ends} {what}");
    let [acked, reported] = [PerWriter::default(); 2];
    let (rng, model) = (Rng::with_seed(seed), Model::new(seed));
    let mut rig = Rig {
        dir,
        seed,
        rng,
        acked,
        reported,
        unsynced_lost: 0,
        failures: 0,
        log_failures: 0,
        end,
        cut_at: 0,
        model,
    };
    let (started, mut checks, mut in_recovery) = (Instant::now(), 0, 0);
    for number in 1..=ends {
        in_recovery += u64::from(rig.kill_one() == 0);
        if number == ends || rig.rng.u8(..3) > 0 {
            rig.check();
            checks += 1;
        }
    }
    let elapsed = started.elapsed();
    println!(
        "{ends} {what} in {elapsed:.1?} ({:.1?} each), {in_recovery} before the first batch, {checks} comparisons, \
         {} batches, all there that must be, {} unsynced ones lost, {} calls failed, {} by a sync of the log",
        elapsed / u32::try_from(ends).unwrap_or(u32::MAX),
        rig.model.counts.iter().sum::<u64>(),
        rig.unsynced_lost,
        rig.failures,
        rig.log_failures,
    );
    assert!(rig.end.switch().is_none() || ends < 20 || rig.unsynced_lost > 0, "no unsynced batch was lost");
    let fails = matches!(rig.end, End::DeviceFailure(_));
    assert!(!fails || ends < 20 || rig.log_failures > 0, "the device never failed under the log");
}

struct Rig<'d> {
    dir: &'d Path,
    seed: u64,
    rng: Rng,
    /// Batches of each writer that must be there.
    acked: PerWriter,
    /// Batches that a power cut may take, too, and how many it has taken.
    reported: PerWriter,
    unsynced_lost: u64,
    /// Calls that failed before the kill.
    failures: u64,
    /// Those that name a sync of a log segment.
    log_failures: u64,
    end: End,
    /// When the last power cut or failure began, in microseconds since 1970.
    cut_at: u64,
    model: Model,
}

impl Rig<'_> {
    /// Runs a child and kills it; returns how many batches it had acknowledged.
    fn kill_one(&mut self) -> u64 {
        let wanted = if self.rng.u8(..6) == 0 { 0 } else { self.rng.u64(1..150) };
        let delay = Duration::from_micros(self.rng.u64(..60_000));
        let writers = self.rng.u64(1..=WRITERS);
        let mut child = self.start(writers);
        let mut reports = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut seen = 0;
        while seen < wanted && self.read_report(&mut reports, &mut child, false) {
            seen += 1;
        }
        std::thread::sleep(delay);
        self.cut_at = micros();
        self.switch("cut");
        if let End::DeviceFailure(_) = self.end {
            std::thread::sleep(Duration::from_micros(self.rng.u64(..300_000)));
        }
        child.kill().expect("it can be killed");
        // What was reported before the kill counts.
        while self.read_report(&mut reports, &mut child, self.end.switch().is_some()) {
            seen += 1;
        }
        let status = child.wait().expect("it can be waited for");
        assert_eq!(status.signal(), Some(SIGKILL), "the child ended by itself: {status}");
        self.switch("restore");
        seen
    }

    fn switch(&self, word: &str) {
        let Some(switch) = self.end.switch() else { return };
        let status = Command::new(switch).arg(word).status().expect("the switch can be run");
        assert!(status.success(), "{} {word}: {status}", switch.display());
    }

    fn start(&self, writers: u64) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("this test is a file"));
        if self.end.switch().is_some() {
            command.env(POWER, "1");
        }
        command
            .args(["--exact", "child::child", "--nocapture", "--test-threads=1"])
            .env(ORDERS, format!("{}:{}:{writers}", self.dir.display(), self.seed))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this test can be run")
    }

    /// Takes note of one report; `false` at the end. Calls may fail once the power `is_cut`.
    fn read_report(&mut self, reports: &mut impl BufRead, child: &mut Child, is_cut: bool) -> bool {
        let mut line = String::new();
        if reports.read_line(&mut line).expect("a pipe") == 0 {
            return false;
        }
        if is_cut && line.starts_with(FAILED) {
            let is_of_the_device = ["input/output error", "poisoned"].iter().any(|kind| line.contains(kind));
            assert!(is_of_the_device, "no failure of a device: {line}");
            self.failures += 1;
            self.log_failures += u64::from(line.contains("cannot sync the log segment"));
            return true;
        }
        let mut words = line.split_whitespace();
        let report =
            (words.next(), words.next().map(str::parse::<usize>), words.next().map(str::parse::<u64>));
        let time = words.next().and_then(|time| time.parse().ok()).unwrap_or(0);
        let (Some(what @ ("open" | "ack" | "sync")), Some(Ok(writer)), Some(Ok(count))) = report else {
            child.kill().expect("it can be killed");
            std::io::copy(reports, &mut std::io::stderr()).expect("a pipe");
            panic!("the child says: {line}{:?}", child.wait());
        };
        let acked = self.acked[writer];
        if what == "open" {
            // Otherwise a child that writes lost batches again would hide the loss.
            assert!(count >= acked, "writer {writer}: {count} batches are there at open, {acked} must be");
            self.unsynced_lost += self.reported[writer].saturating_sub(count);
            self.reported[writer] = count;
            return self.read_report(reports, child, is_cut);
        }
        // A machine without power acknowledges nothing. Here it does: now and then `fdatasync` succeeds on ext4 while it is shut
        // down, though the file system has given up the transaction.
        let is_late = matches!(self.end, End::PowerCut(_)) && is_cut && time >= self.cut_at;
        if (what == "sync" && !is_late) || self.end.switch().is_none() {
            assert!(count >= acked, "writer {writer} repeats {count} of {acked} batches");
            self.acked[writer] = count;
        }
        self.reported[writer] = count;
        true
    }

    /// Opens the store and compares everything.
    fn check(&mut self) {
        let db = options().open(self.dir).expect("a store whose process was killed opens");
        let default = db.default_partition();
        for writer in 0..WRITERS {
            let count = default.get(counter_key(writer)).expect("a read");
            let count =
                count.map_or(0, |count| u64::from_le_bytes(count[..].try_into().expect("eight bytes")));
            let at = usize::try_from(writer).expect("few writers");
            let acked = self.acked[at];
            assert!(count >= acked, "writer {writer}: {count} batches are there, {acked} must be");
            self.unsynced_lost += self.reported[at].saturating_sub(count);
            self.reported[at] = count;
            self.model.advance(writer, count);
        }
        self.check_order(&db);
        self.compare(&db);
        db.verify().expect("the files are whole");
        db.close().expect("it closes");
    }

    /// If a batch is present, every batch acknowledged before it is present.
    fn check_order(&self, db: &Db) {
        let Some(partition) = db.find_partition(SEEN) else { return };
        for writer in 0..WRITERS {
            let Some(seen) = partition.get(counter_key(writer)).expect("a read") else { continue };
            let seen = seen.chunks(8).map(|count| u64::from_le_bytes(count.try_into().expect("eight bytes")));
            for ((other, seen), count) in (0..WRITERS).zip(seen).zip(self.model.counts) {
                assert!(seen <= count, "writer {writer} saw {seen} batches of {other}, {count} are there");
            }
        }
    }

    fn compare(&self, db: &Db) {
        let names = db.partitions().into_iter().chain(self.model.contents.keys().cloned());
        let names: BTreeSet<_> = names.filter(|name| name != SEEN).collect();
        for name in names {
            let expected = self.model.contents.get(&name).cloned().unwrap_or_default();
            let entries = |partition: pleach::Partition| {
                let entries =
                    partition.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.into_vec())));
                entries.collect::<pleach::Result<_>>().expect("a scan")
            };
            let found: BTreeMap<_, _> = db.find_partition(&name).map(entries).unwrap_or_default();
            if found.is_empty() && self.may_be_dropped(&name) {
                continue;
            }
            if found != expected {
                let differs = |key: &&Vec<u8>| found.get(*key) != expected.get(*key);
                let key = found.keys().chain(expected.keys()).find(differs).expect("they differ");
                panic!("partition {name:?} differs from the model at key {}", key.escape_ascii());
            }
        }
    }

    /// Whether the drop of a writer's next batch may have been done while the batch was not.
    fn may_be_dropped(&self, name: &str) -> bool {
        (0..WRITERS).zip(self.model.counts).any(|(writer, count)| {
            name == partition_name(writer, "scratch") && Batch::new(self.seed, writer, count).drops_scratch
        })
    }
}
