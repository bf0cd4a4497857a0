//! The parent process, which kills, reopens and compares.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fastrand::Rng;
use pleach::Db;

use crate::child::ORDERS;
use crate::history::{Batch, Model, PerWriter, WRITERS, counter_key, options, partition_name};

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn killed_processes_lose_nothing_acknowledged() {
    let (kills, seed) = (number_from("PLEACH_KILLS", 100), number_from("PLEACH_SEED", 1));
    println!("PLEACH_SEED={seed} PLEACH_KILLS={kills}");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut rig = Rig {
        dir: dir.path(),
        seed,
        rng: Rng::with_seed(seed),
        acked: PerWriter::default(),
        model: Model::new(seed),
    };
    let (started, mut checks, mut in_recovery) = (Instant::now(), 0, 0);
    for kill in 1..=kills {
        in_recovery += u64::from(rig.kill_one() == 0);
        if kill == kills || rig.rng.u8(..3) > 0 {
            rig.check();
            checks += 1;
        }
    }
    let elapsed = started.elapsed();
    println!(
        "{kills} kills in {elapsed:.1?} ({:.1?} each), {in_recovery} before the first batch, {checks} comparisons, \
         {} batches acknowledged, 0 lost",
        elapsed / u32::try_from(kills).unwrap_or(u32::MAX),
        rig.acked.iter().sum::<u64>(),
    );
}

struct Rig<'d> {
    dir: &'d Path,
    seed: u64,
    rng: Rng,
    /// Batches of each writer that were acknowledged.
    acked: PerWriter,
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
        while seen < wanted && self.read_report(&mut reports, &mut child) {
            seen += 1;
        }
        std::thread::sleep(delay);
        child.kill().expect("it can be killed");
        // What was reported before the kill counts.
        while self.read_report(&mut reports, &mut child) {
            seen += 1;
        }
        let status = child.wait().expect("it can be waited for");
        assert!(status.code().is_none(), "the child ended by itself: {status}");
        seen
    }

    fn start(&self, writers: u64) -> Child {
        Command::new(std::env::current_exe().expect("this test is a file"))
            .args(["--exact", "child::child", "--nocapture", "--test-threads=1"])
            .env(ORDERS, format!("{}:{}:{writers}", self.dir.display(), self.seed))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this test can be run")
    }

    /// Takes note of one report; `false` at the end.
    fn read_report(&mut self, reports: &mut impl BufRead, child: &mut Child) -> bool {
        let mut line = String::new();
        if reports.read_line(&mut line).expect("a pipe") == 0 {
            return false;
        }
        let mut words = line.split_whitespace();
        let report =
            (words.next(), words.next().map(str::parse::<usize>), words.next().map(str::parse::<u64>));
        let (Some("ack"), Some(Ok(writer)), Some(Ok(count))) = report else {
            std::io::copy(reports, &mut std::io::stderr()).expect("a pipe");
            panic!("the child says: {line}{:?}", child.wait());
        };
        self.acked[writer] = count;
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
            let acked = self.acked[usize::try_from(writer).expect("few writers")];
            assert!(count >= acked, "writer {writer}: {count} batches are there, {acked} were acknowledged");
            self.model.advance(writer, count);
        }
        self.compare(&db);
        db.verify().expect("the files are whole");
        db.close().expect("it closes");
    }

    fn compare(&self, db: &Db) {
        let names: BTreeSet<_> =
            db.partitions().into_iter().chain(self.model.contents.keys().cloned()).collect();
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
