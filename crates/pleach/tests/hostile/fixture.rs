//! Fixture: a small closed store with every kind of content, to be damaged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use pleach::env::{Capture, CrashPolicy, SimEnv};
use pleach::{Db, Durability, Options, Partition};

/// The directory of every store.
pub(crate) const DIR: &str = "/store";

/// The right content of one partition.
pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// A file of a store.
#[derive(Clone, Debug)]
pub(crate) struct StoreFile {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// Its earlier content, if it differed.
    pub(crate) older: Vec<Vec<u8>>,
}

impl StoreFile {
    pub(crate) fn path(&self) -> PathBuf {
        Path::new(DIR).join(&self.name)
    }

    /// The kind of a file, by its name.
    pub(crate) fn kind(&self) -> FileKind {
        match self.name.split_once(['.', '-']) {
            Some(("MANIFEST", _)) => FileKind::Manifest,
            Some((_, "log")) => FileKind::Log,
            Some((_, "sst")) => FileKind::Sst,
            Some((_, "val")) => FileKind::Values,
            _ => FileKind::Current,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Current,
    Manifest,
    /// A log segment, which may be a value segment.
    Log,
    Sst,
    /// Copied or moved values.
    Values,
}

/// A closed store.
pub(crate) struct Fixture {
    disk: Capture,
    pub(crate) compressed: bool,
    pub(crate) truth: BTreeMap<String, Entries>,
    pub(crate) files: Vec<StoreFile>,
}

impl Fixture {
    /// The machine with this store on its disk.
    pub(crate) fn machine(&self) -> Arc<SimEnv> {
        self.disk.crash_image(CrashPolicy::Everything, 1)
    }

    pub(crate) fn options(&self, env: &Arc<SimEnv>) -> Options {
        options(env, self.compressed)
    }

    /// Builds the store of `seed`. It is opened three times and has large and small partitions, a dropped one, deletes, several
    /// stages, a compaction in progress, separated values in log segments and in files of copied and of moved values, and batches
    /// in several log segments that are not flushed.
    pub(crate) fn build(seed: u64, compressed: bool) -> Self {
        let env = SimEnv::new(seed);
        let mut builder = Builder {
            env: Arc::clone(&env),
            rng: Rng::with_seed(seed),
            compressed,
            truth: BTreeMap::from([("default".to_owned(), Entries::new())]),
            history: BTreeMap::new(),
        };
        builder.first_life();
        builder.second_life();
        builder.last_life();
        builder.finish()
    }
}

fn options(env: &Arc<SimEnv>, compressed: bool) -> Options {
    Options::new()
        .env(Arc::clone(env) as _)
        .memory(1 << 20)
        .memtable_bytes(16 << 10)
        .sst_bytes(8 << 10)
        .clean_every(1)
        .runs_per_stage(2)
        .compression(compressed)
        .separate_at(SEPARATED)
        .space_target(1.1)
}

/// Values of this length are separated: some segments are mostly such values, and others are not.
const SEPARATED: usize = 100;

/// A value of so many numbers. It is one number again and again or, in a compressed store, some numbers that come twice.
fn value(rng: &mut Rng, compressed: bool, numbers: usize) -> Vec<u8> {
    let first = rng.u64(..);
    if !compressed {
        return format!("{first:x} ").repeat(numbers).into_bytes();
    }
    let mut more = Rng::with_seed(first);
    let some: Vec<_> =
        (0..numbers.div_ceil(2)).flat_map(|_| format!("{:016x} ", more.u64(..)).into_bytes()).collect();
    some.into_iter().cycle().take(17 * numbers).collect()
}

struct Builder {
    env: Arc<SimEnv>,
    rng: Rng,
    compressed: bool,
    truth: BTreeMap<String, Entries>,
    /// The contents of each file at several times.
    history: BTreeMap<String, Vec<Vec<u8>>>,
}

impl Builder {
    fn open(&mut self) -> Db {
        let db = options(&self.env, self.compressed).open(DIR).expect("an intact store opens");
        self.note_history();
        db
    }

    fn partition(&mut self, db: &Db, name: &str) -> Partition {
        self.truth.entry(name.to_owned()).or_default();
        db.partition(name).expect("an intact store takes partitions")
    }

    /// One batch of random operations over partitions `names`, most of them in the first.
    fn batch(&mut self, db: &Db, names: &[&str]) {
        let mut batch = db.batch();
        for i in 0..self.rng.usize(1..8) {
            let name = if i < 5 { names[0] } else { names[self.rng.usize(..names.len())] };
            let partition = self.partition(db, name);
            let entries = self.truth.get_mut(name).expect("made by partition()");
            let key = format!("{name}-{:04}", self.rng.u32(..400)).into_bytes();
            if self.rng.u8(..6) == 0 {
                batch.delete(&partition, &key);
                entries.remove(&key);
            } else {
                // All values of one partition are separated, so that its blocks are columnar.
                let repeats = if name == "orders" { self.rng.usize(16..20) } else { self.rng.usize(..12) };
                let value = value(&mut self.rng, self.compressed, repeats);
                batch.put(&partition, &key, &value);
                entries.insert(key, value);
            }
        }
        let durability = if self.rng.u8(..8) == 0 { Durability::Sync } else { Durability::Buffered };
        batch.commit(durability).expect("an intact store takes batches");
        if self.rng.u8(..4) == 0 {
            self.note_history();
        }
    }

    fn first_life(&mut self) {
        let db = self.open();
        for _ in 0..120 {
            self.batch(&db, &["users", "default", "orders", "tags", "gone", "sessions"]);
            self.env.step_job();
        }
        db.settle().expect("an intact store settles");
        let gone = self.partition(&db, "gone");
        db.drop_partition(gone).expect("an intact store drops partitions");
        self.truth.remove("gone");
    }

    fn second_life(&mut self) {
        let db = self.open();
        for _ in 0..60 {
            self.batch(&db, &["users", "orders", "tags", "sessions"]);
            self.env.step_job();
        }
    }

    /// Writes until a compaction is half done, and then until the memtables are full.
    fn last_life(&mut self) {
        let db = self.open();
        let mut written_before = None;
        for _ in 0..2000 {
            self.batch(&db, &["users", "orders", "tags", "default"]);
            self.env.step_job();
            let stats = db.stats();
            if stats.compactions_running == 0 {
                written_before = None;
            } else if *written_before.get_or_insert(stats.compaction_written_bytes)
                < stats.compaction_written_bytes
                && self.has_sections_and_stages(&db)
                && self.has_homes_of_all_kinds(&db)
            {
                break;
            }
        }
        let running = db.stats().compactions_running;
        assert!(
            running > 0 && self.has_sections_and_stages(&db),
            "a compaction is half done, among other things"
        );
        let flushes = db.stats().flushes;
        for name in ["users", "orders", "tags", "sessions", "default"].repeat(40) {
            if db.stats().memtables == 3 {
                break;
            }
            self.batch(&db, &[name]);
        }
        self.batch(&db, &["tags", "users"]);
        self.partition(&db, "gone");
        let gone = self.partition(&db, "gone");
        self.truth.remove("gone");
        db.drop_partition(gone).expect("an intact store drops partitions");
        self.partition(&db, "empty");
        assert_eq!((db.stats().compactions_running, db.stats().flushes), (running, flushes));
        assert!(self.has_version(6), "blocks of value pointers and of short values are columnar");
        db.close().expect("an intact store closes");
        self.note_history();
    }

    fn has_sections_and_stages(&self, db: &Db) -> bool {
        let partitions = self.truth.keys().filter_map(|name| db.find_partition(name));
        let stats: Vec<_> = partitions.map(|partition| partition.stats().expect("it is live")).collect();
        stats.iter().any(|s| s.sections > 0) && stats.iter().any(|s| s.stages > 1)
    }

    /// Whether values lie in segments, in a file of copies, and in one of moved values.
    fn has_homes_of_all_kinds(&self, db: &Db) -> bool {
        let dir = Path::new(DIR);
        let names = self
            .env
            .file_names(dir)
            .into_iter()
            .filter(|name| Path::new(name).extension().is_some_and(|end| end == "val"));
        let files: Vec<_> =
            names.map(|name| self.env.read_file(&dir.join(name)).expect("it is listed")).collect();
        let has = |kind| files.iter().any(|bytes| bytes.get(12) == Some(&kind));
        db.stats().value_files > files.len() as u64 && has(1) && has(2)
    }

    /// Whether an SST has this format version: 6 with columnar blocks of all kinds.
    fn has_version(&self, version: u8) -> bool {
        let dir = Path::new(DIR);
        let is_sst = |name: &String| Path::new(name).extension().is_some_and(|end| end == "sst");
        let ssts = self.env.file_names(dir).into_iter().filter(is_sst);
        let mut bytes = ssts.map(|name| self.env.read_file(&dir.join(name)).expect("it is listed"));
        bytes.any(|bytes| bytes[bytes.len() - 60] == version)
    }

    fn note_history(&mut self) {
        let dir = Path::new(DIR);
        for name in self.env.file_names(dir) {
            let bytes = self.env.read_file(&dir.join(&name)).expect("it is listed");
            let known = self.history.entry(name).or_default();
            if known.last() != Some(&bytes) {
                known.push(bytes);
            }
        }
    }

    fn finish(self) -> Fixture {
        let dir = Path::new(DIR);
        let names = self.env.file_names(dir).into_iter().filter(|name| name != "LOCK" && name != "RESERVE");
        let files = names.map(|name| {
            let bytes = self.env.read_file(&dir.join(&name)).expect("it is listed");
            let mut older = self.history.get(&name).cloned().unwrap_or_default();
            older.retain(|version| *version != bytes);
            StoreFile { name, bytes, older }
        });
        Fixture {
            disk: self.env.capture(),
            compressed: self.compressed,
            files: files.collect(),
            truth: self.truth.clone(),
        }
    }
}
