//! Crashes at random calls, one after another: a recovery returns a prefix of the written records, which includes every synced
//! one. Each barrier and check is switched off once, and the test must notice.
//!
//! The store under test is the log with the least of an engine around it: a *floor file*, replaced at each change, names the
//! segment and the sequence number from which the log counts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use pleach_env::{CrashPolicy, Env, Error, ErrorKind, Fault, FaultKind, FileId, Result, SimEnv, failpoint};
use pleach_log::{
    Append, FileKind, LogWriter, ManifestHint, RECORD_HEADER_LEN, RecordBuf, RecordFileOptions, RecordWriter,
    SeqNo, parse_segment_name, read_records, segment_path,
};

use crate::support::{Logged, append, logged, recover_logged};

const FLOOR: FileKind = FileKind { magic: *b"PLCHFLOR", version: 1, name: "floor file" };

/// The content that must be found again.
#[derive(Clone, Default)]
struct Oracle {
    /// Every record whose append succeeded, from sequence number 1 on.
    history: Vec<Logged>,
    /// Groups whose append failed since the last one that succeeded: a crash may leave some of their records.
    doubtful: Vec<Vec<Logged>>,
    /// The least that is durable: synced or flushed.
    durable: SeqNo,
}

impl Oracle {
    fn next_seq(&self) -> SeqNo {
        self.history.last().map_or(1, Logged::next_seq)
    }

    /// Checks what recovery returned after sequence number `flushed`.
    fn check(&self, flushed: SeqNo, visited: &[Logged], next_seq: SeqNo) -> std::result::Result<(), String> {
        if next_seq <= self.durable {
            return Err(format!("{} was durable, {next_seq} is due after recovery", self.durable));
        }
        let logged: Vec<_> = self.history.iter().filter(|r| r.first_seq > flushed).collect();
        let known = visited.len().min(logged.len());
        if visited.iter().zip(&logged).any(|(found, &expected)| found != expected) {
            return Err("recovered records differ from those written".into());
        }
        let beyond = &visited[known..];
        if beyond.is_empty() || self.doubtful.iter().any(|group| group.starts_with(beyond)) {
            return Ok(());
        }
        Err(format!("{} recovered records were never written there", beyond.len()))
    }
}

/// A log with its floor.
struct Store {
    sim: Arc<SimEnv>,
    env: Arc<dyn Env>,
    dir: PathBuf,
    log: LogWriter,
    next_file: u64,
    flushed: SeqNo,
    floor: FileId,
    /// Segments from the floor on with their last sequence numbers; the current one's is not kept.
    segments: Vec<(FileId, SeqNo)>,
}

/// The content of a disk before a store is opened.
struct Found {
    floor: FileId,
    flushed: SeqNo,
    segments: Vec<FileId>,
    /// Larger than the number of any file.
    next_file: u64,
}

fn look(env: &Arc<dyn Env>, dir: &Path) -> Result<Found> {
    let mut found = Found { floor: FileId(0), flushed: 0, segments: Vec::new(), next_file: 1 };
    let names = env.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
    for (name, _) in &names {
        if let Some(id) = parse_segment_name(name) {
            found.segments.push(id);
            found.next_file = found.next_file.max(id.0 + 1);
        }
        let Some(id) = name.strip_prefix("floor-").and_then(|id| id.parse().ok()) else { continue };
        found.next_file = found.next_file.max(id + 1);
        read_records(env, &dir.join(name), &FLOOR, FileId(id), 1, &mut |record| {
            let number = |at: usize| u64::from_le_bytes(record.payload[at..at + 8].try_into().unwrap());
            (found.floor, found.flushed) = (FileId(number(0)), number(8));
            Ok(())
        })?;
    }
    let floor = found.floor;
    found.segments.retain(|&id| id >= floor);
    Ok(found)
}

fn write_floor(env: &Arc<dyn Env>, dir: &Path, id: FileId, floor: FileId, flushed: SeqNo) -> Result<()> {
    let hint = ManifestHint::NONE;
    let options = RecordFileOptions { kind: FLOOR, id, hint, preallocate: None, next_seq: 1, durable_seq: 0 };
    let mut file = RecordWriter::create(&**env, &dir.join(format!("floor-{id}")), &options)?;
    let mut record = RecordBuf::new();
    record.bytes_mut().extend_from_slice(&floor.0.to_le_bytes());
    record.bytes_mut().extend_from_slice(&flushed.to_le_bytes());
    file.append([Append { record: &mut record, first_seq: 1, count: 1 }])?;
    file.sync("test.floor")?;
    env.sync_dir(dir, "test.floor").map_err(|e| Error::io("sync", dir, e))
}

impl Store {
    /// Opens the store: recovers, checks with the oracle, and starts a segment of its own. An `Err` inside says that
    /// the machine failed on the way; the outer one that the oracle is violated.
    fn open(
        sim: &Arc<SimEnv>,
        oracle: &mut Oracle,
        segment_len: u64,
    ) -> std::result::Result<Result<Self>, String> {
        let env = Arc::clone(sim) as Arc<dyn Env>;
        let dir = PathBuf::from("/db");
        let found = look(&env, &dir).map_err(|e| e.to_string())?;
        let (result, visited) = recover_logged(&env, &dir, &found.segments, found.flushed + 1);
        let recovery = result.map_err(|e| e.to_string())?;
        oracle.check(found.flushed, &visited, recovery.next_seq)?;
        let store = Self::take_over(sim, &env, dir, &found, &visited, segment_len);
        if store.is_ok() {
            oracle.history.retain(|r| r.first_seq <= found.flushed);
            oracle.history.extend(visited);
            oracle.doubtful.clear();
            oracle.durable = recovery.next_seq - 1;
        }
        Ok(store)
    }

    /// Copies what was recovered into a fresh segment and moves the floor to it.
    fn take_over(
        sim: &Arc<SimEnv>,
        env: &Arc<dyn Env>,
        dir: PathBuf,
        found: &Found,
        visited: &[Logged],
        segment_len: u64,
    ) -> Result<Self> {
        // The floor that was read may only have been in the page cache. It must be durable before the log builds on it.
        write_floor(env, &dir, FileId(found.next_file), found.floor, found.flushed)?;
        let id = FileId(found.next_file + 1);
        let mut log =
            LogWriter::create(Arc::clone(env), &dir, id, ManifestHint::NONE, segment_len, found.flushed)?;
        for group in visited.chunks(3) {
            append(&mut log, group)?;
        }
        log.sync()?;
        write_floor(env, &dir, FileId(found.next_file + 2), id, found.flushed)?;
        let store = Self {
            sim: Arc::clone(sim),
            env: Arc::clone(env),
            dir,
            log,
            next_file: found.next_file + 3,
            flushed: found.flushed,
            floor: id,
            segments: Vec::new(),
        };
        found.segments.iter().try_for_each(|&old| store.remove(old))?;
        Ok(store)
    }

    fn write_floor(&mut self) -> Result<()> {
        let id = FileId(self.next_file);
        self.next_file += 1;
        write_floor(&self.env, &self.dir, id, self.floor, self.flushed)
    }

    fn remove(&self, id: FileId) -> Result<()> {
        let path = segment_path(&self.dir, id);
        self.env.remove_file(&path).map_err(|e| Error::io("remove", &path, e))
    }

    /// One random step of a writer's life.
    fn step(&mut self, oracle: &mut Oracle, rng: &mut Rng) -> Result<()> {
        match rng.u32(..100) {
            0..70 => self.append_some(oracle, rng),
            70..85 => {
                self.log.sync()?;
                oracle.durable = oracle.durable.max(self.log.last_seq());
                assert_eq!(self.log.durable_seq(), self.log.last_seq());
                Ok(())
            }
            85..92 => self.rotate(oracle),
            92..97 => self.flush(oracle, rng),
            _ => self.sync_beside_appends(oracle, rng),
        }
    }

    fn append_some(&mut self, oracle: &mut Oracle, rng: &mut Rng) -> Result<()> {
        let mut group = Vec::new();
        let mut first_seq = oracle.next_seq();
        for _ in 0..=rng.usize(..4).saturating_sub(1) {
            let len = if rng.u32(..20) == 0 { rng.usize(..3000) } else { rng.usize(..300) };
            let mut record = logged(first_seq, rng.u32(1..4), len);
            // So that records that were cut and their successors of the same number differ.
            record.payload.iter_mut().for_each(|b| *b ^= rng.u8(..));
            first_seq = record.next_seq();
            group.push(record);
        }
        if self.log.should_rotate(group.iter().map(|r| r.payload.len() + RECORD_HEADER_LEN).sum()) {
            self.rotate(oracle)?;
        }
        match append(&mut self.log, &group) {
            Ok(()) => {
                oracle.history.extend(group);
                oracle.doubtful.clear();
                Ok(())
            }
            Err(e) => {
                oracle.doubtful.push(group);
                Err(e)
            }
        }
    }

    fn rotate(&mut self, oracle: &mut Oracle) -> Result<()> {
        let id = FileId(self.next_file);
        self.next_file += 1;
        let (full, last_seq) = (self.log.segment_id(), self.log.last_seq());
        self.log.rotate(id, ManifestHint::NONE)?;
        // A failed append is fenced before a segment is left.
        oracle.doubtful.clear();
        self.segments.push((full, last_seq));
        Ok(())
    }

    /// Pretends that SSTs hold everything up to some record.
    fn flush(&mut self, oracle: &mut Oracle, rng: &mut Rng) -> Result<()> {
        let candidates: Vec<_> = oracle.history.iter().filter(|r| r.first_seq > self.flushed).collect();
        if candidates.is_empty() {
            return Ok(());
        }
        self.flushed = candidates[rng.usize(..candidates.len())].next_seq() - 1;
        let keep = self.segments.iter().position(|&(_, last_seq)| last_seq > self.flushed);
        let dead: Vec<_> = self.segments.drain(..keep.unwrap_or(self.segments.len())).collect();
        self.floor = self.segments.first().map_or(self.log.segment_id(), |&(id, _)| id);
        self.write_floor()?;
        oracle.durable = oracle.durable.max(self.flushed);
        self.log.mark_durable(self.flushed);
        drop(self.log.forget_before(self.floor));
        dead.iter().try_for_each(|&(id, _)| self.remove(id))
    }

    fn sync_beside_appends(&mut self, oracle: &mut Oracle, rng: &mut Rng) -> Result<()> {
        let Some(pending) = self.log.prepare_sync()? else { return Ok(()) };
        let covered = self.log.last_seq();
        let appended = self.append_some(oracle, rng);
        let result = pending.run();
        self.log.finish_sync(pending, result)?;
        oracle.durable = oracle.durable.max(covered);
        appended
    }
}

/// Counts of a run, to show that it reaches what it should.
#[derive(Debug, Default)]
struct Seen {
    crashes: usize,
    records: usize,
    faults: u64,
    failed_appends: usize,
    fences: usize,
    fills: usize,
}

/// Several lives of one store, each ended by a crash. The error is the violation.
fn run(seed: u64, with_faults: bool, seen: &mut Seen) -> std::result::Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let mut oracle = Oracle::default();
    let mut sim = SimEnv::new(seed);
    sim.create_dir_all(Path::new("/db")).unwrap();
    // A long segment that may be mapped gets zeros behind its records.
    let maps = rng.bool();
    let segment_len = if maps && rng.bool() { rng.u64(40_000..100_000) } else { rng.u64(300..4000) };
    for _ in 0..4 {
        sim.set_maps_files(maps);
        if rng.bool() {
            sim.set_fault(Some(Fault { at_op: sim.op_count() + rng.u64(..80), kind: FaultKind::CrashAfter }));
        }
        if let Ok(mut store) = Store::open(&sim, &mut oracle, segment_len)? {
            live(&mut store, &mut oracle, &mut rng, with_faults, seen);
        }
        seen.faults += sim.faults_struck();
        // Crashes that are only looked at, and one that the store lives on with.
        for _ in 0..2 {
            let image = sim.crash_image(policy(&mut rng), rng.u64(..));
            Store::open(&image, &mut oracle.clone(), segment_len)?.map_err(|e| e.to_string())?;
            seen.crashes += 1;
        }
        sim = sim.crash_image(policy(&mut rng), rng.u64(..));
        seen.crashes += 1;
    }
    let store = Store::open(&sim, &mut oracle, segment_len)?;
    seen.records += oracle.history.len();
    store.map(drop).map_err(|e| e.to_string())
}

fn policy(rng: &mut Rng) -> CrashPolicy {
    CrashPolicy::ALL[rng.usize(..CrashPolicy::ALL.len())]
}

/// Steps until the power fails, the log is poisoned, or it has been long enough.
fn live(store: &mut Store, oracle: &mut Oracle, rng: &mut Rng, with_faults: bool, seen: &mut Seen) {
    for _ in 0..rng.usize(1..40) {
        if with_faults && rng.u32(..8) == 0 {
            let kinds = [FaultKind::Eio, FaultKind::NoSpace, FaultKind::ShortWrite, FaultKind::SyncFails];
            let at_op = store.sim.op_count() + rng.u64(..4);
            store.sim.add_fault(Fault { at_op, kind: kinds[rng.usize(..kinds.len())] });
        }
        let failed_before = !oracle.doubtful.is_empty();
        let Err(error) = store.step(oracle, rng) else {
            seen.fences += usize::from(failed_before && oracle.doubtful.is_empty());
            seen.fills += usize::from(failpoint::take_report("log.filled").is_some());
            continue;
        };
        seen.fills += usize::from(failpoint::take_report("log.filled").is_some());
        seen.failed_appends += usize::from(!failed_before && !oracle.doubtful.is_empty());
        if store.sim.is_powered_off() || store.log.is_poisoned() || error.kind() == ErrorKind::Poisoned {
            return;
        }
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    }
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = std::env::var("PLEACH_SEED").map_or(0, |s| s.parse().unwrap());
    let count = std::env::var("PLEACH_SEEDS").map_or(count, |s| s.parse().unwrap());
    println!("PLEACH_SEED={first} PLEACH_SEEDS={count}");
    first..first + count
}

fn run_all(with_faults: bool) {
    let mut seen = Seen::default();
    for seed in seeds(2_000) {
        if let Err(violation) = run(seed, with_faults, &mut seen) {
            panic!("PLEACH_SEED={seed}: {violation}");
        }
    }
    println!("{seen:?}");
    assert!(seen.fills > 0, "no zeros were written ahead of records");
}

#[test]
fn crashes_leave_a_prefix_with_everything_synced() {
    run_all(false);
}

#[test]
fn crashes_and_faults_leave_a_prefix_with_everything_synced() {
    run_all(true);
}

/// The violation that is noticed when `site` is switched off.
fn noticed(site: &'static str, with_faults: bool) -> String {
    let found = failpoint::with_skipped(site, || {
        // As many as the rarest one may need; the first violation ends it.
        seeds(100_000).find_map(|seed| Some((seed, run(seed, with_faults, &mut Seen::default()).err()?)))
    });
    let (seed, violation) = found.expect("without the barrier or check, some crash violates the oracle");
    println!("{site}: noticed with seed {seed}: {violation}");
    violation
}

#[test]
fn a_missing_sync_of_a_segment_is_noticed() {
    noticed("log.sync", false);
}

#[test]
fn a_missing_sync_of_the_directory_is_noticed() {
    noticed("log.dir_sync", false);
}

#[test]
fn a_missing_sync_of_a_fence_is_noticed() {
    noticed("log.fence_sync", true);
}

#[test]
fn a_missing_check_of_record_checksums_is_noticed() {
    noticed("log.record.crc", false);
}
