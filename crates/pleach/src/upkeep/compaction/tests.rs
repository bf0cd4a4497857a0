//! Compactions step by step, as a store's own workers do them.

mod requests;
mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pleach_env::{CrashPolicy, Env, Fault, FaultKind, FileId, Job, JobStep, SimEnv};
use pleach_table::ValueKind;

use super::job::{CompactionJob, Progress};
use super::worker::{Compactions, Worker, next_of};
use crate::file_names::parse_values_name;
use crate::keys::{KeyRange, PartitionId};
use crate::picker::{self, Plan, Situation, WholePlan};
use crate::scan::{Direction, Merge, RunReads, SeekTo, SourceCursor};
use crate::shape::STAGE_BOTTOM;
use crate::upkeep::{RoomClaim, Upkeep};
use crate::values::{CHECKSUM_LEN, SegmentUses, ValueRefs};
use crate::{Db, Options, Shape};

const DIR: &str = "/store";
const DEFAULT: PartitionId = PartitionId(0);

/// A store that merges `k` runs of a stage.
fn open(env: &Arc<SimEnv>, k: usize) -> Db {
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(1 << 20).memtable_bytes(32 << 10);
    let options = options.sst_bytes(4 << 10).shape(Shape::Forest).runs_per_stage(k);
    options.compaction_threads(1).open(DIR).unwrap()
}

/// Numbers of jobs, runs and files, summed over all partitions.
fn sums(upkeep: &Upkeep) -> (usize, usize, usize) {
    let version = Arc::clone(&upkeep.version_set.state.load().version);
    version.partitions().fold((0, 0, 0), |(jobs, runs, files), (_, partition)| {
        let tree = &partition.tree;
        let file_count: usize = tree.runs.iter().map(|run| run.files.len()).sum();
        (jobs + tree.jobs.len(), runs + tree.runs.len(), files + file_count)
    })
}

/// Begins to merge all runs of the default partition.
fn merge_of_all(upkeep: &Arc<Upkeep>) -> CompactionJob {
    let (version, output) = upkeep.version_set.plan_basis();
    let situation = Situation { tree: version.tree(DEFAULT).unwrap(), busy: &[], now: 0 };
    let plan = picker::pick_all(&upkeep.ctx.options.policy(true), situation).unwrap();
    CompactionJob::start(upkeep, DEFAULT, plan, output).unwrap().unwrap()
}

/// Steps until each job has had a turn, if all go on.
fn steps_until_all_had_a_turn(stages: &[u8], has_debt: bool) -> usize {
    let mut waiting: Vec<_> = stages.iter().copied().enumerate().collect();
    let mut had_none: BTreeSet<_> = (0..stages.len()).collect();
    let mut steps = 0;
    while !had_none.is_empty() {
        assert!(steps < 1000, "of {stages:?}, {had_none:?} never have a turn");
        let stages: Vec<_> = waiting.iter().map(|(_, stage)| *stage).collect();
        let at = next_of(&stages, steps as u64, has_debt).unwrap();
        let job = waiting.remove(at);
        had_none.remove(&job.0);
        waiting.push(job);
        steps += 1;
    }
    steps
}

#[test]
fn every_job_has_a_turn() {
    assert_eq!(next_of(&[], 1, false), None);
    for has_debt in [false, true] {
        // Three in one stage; one in the middle, and small ones that never end.
        for stages in [&[1, 1, 1][..], &[1, 2, 3], &[1, 1, 1, 1, 2, 9], &[5, 4, 3, 2, 1, 9, 9, 9]] {
            let steps = steps_until_all_had_a_turn(stages, has_debt);
            assert!(steps <= 9 * stages.len(), "{steps} for {stages:?}");
        }
    }
}

#[test]
fn the_uppermost_stage_has_most_turns_and_the_last_one_its_share() {
    for (has_debt, last_share, first_share) in [(false, 20, 60), (true, 35, 45)] {
        let mut waiting = vec![3, 1, 1, 2];
        let mut turns = [0; 4];
        for step in 0..100 {
            let at = next_of(&waiting, step, has_debt).unwrap();
            let stage = waiting.remove(at);
            turns[usize::from(stage)] += 1;
            waiting.push(stage);
        }
        assert!(turns[3] >= last_share && turns[1] >= first_share && turns[2] > 0, "{turns:?}");
    }
}

#[test]
fn jobs_wait_until_there_is_a_worker() {
    const PARTITIONS: usize = 100;
    let env = SimEnv::new(1);
    let db = open(&env, 64);
    for round in 0..4 {
        for i in 0..PARTITIONS {
            db.partition(&format!("p{i}")).unwrap().put("key", [round; 100]).unwrap();
        }
        db.flush().unwrap();
    }
    drop(db);
    let db = open(&env, 2);
    let upkeep = &db.inner().upkeep;
    assert_eq!(sums(upkeep).1, 4 * PARTITIONS);
    let mut worker = Worker(Arc::new(Compactions::new(Arc::clone(upkeep))));
    let (mut jobs_max, mut steps) = (0, 0);
    while matches!(worker.step(), JobStep::Again) {
        jobs_max = jobs_max.max(sums(upkeep).0);
        steps += 1;
        assert!(steps < 10 * PARTITIONS, "it ends");
    }
    assert!(jobs_max <= 2, "{jobs_max} jobs at a time");
    assert_eq!(sums(upkeep), (0, PARTITIONS, PARTITIONS), "every partition had its turn");
}

#[test]
fn a_merge_that_drops_all_goes_on_in_steps() {
    let env = SimEnv::new(1);
    let db = open(&env, 64);
    let partition = db.default_partition();
    let keys = || (0..10_000).map(|i| format!("{i:08}"));
    keys().for_each(|key| partition.put(key, [1; 100]).unwrap());
    db.compact().unwrap();
    keys().for_each(|key| partition.delete(key).unwrap());
    db.flush().unwrap();
    let upkeep = &db.inner().upkeep;
    let mut job = merge_of_all(upkeep);
    let before = sums(upkeep).2;
    let mut files = Vec::new();
    while job.step(upkeep).unwrap() == Progress::More {
        files.push(sums(upkeep).2);
    }
    assert!(files.len() > 50, "{} steps", files.len());
    assert!(files[files.len() / 2] < before * 2 / 3, "inputs go meanwhile: {files:?} of {before}");
    assert_eq!(sums(upkeep), (0, 0, 0));
    assert_eq!(partition.iter().count(), 0);
}

#[test]
fn new_keys_are_no_garbage_whatever_the_filters_say() {
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(16 << 20).memtable_bytes(1 << 20);
    let options = options.shape(Shape::Forest).runs_per_stage(64).filter_bits_per_key(2.0);
    let db = options.open(DIR).unwrap();
    let partition = db.default_partition();
    let write = |numbers: Range<u32>| {
        for i in numbers {
            partition.put(format!("{:08x}", i.wrapping_mul(2_654_435_761)), [1; 10]).unwrap();
        }
        db.flush().unwrap();
    };
    (0..12).for_each(|round| write(round * 10_000..(round + 1) * 10_000));
    let stats = db.stats();
    assert!(stats.sst_garbage < stats.sst_entries / 15, "{stats:#?}");
    let before = stats.sst_garbage;
    write(0..10_000);
    let stats = db.stats();
    assert!(
        (7000..13_000).contains(&(stats.sst_garbage - before)),
        "10000 keys were overwritten: {stats:#?}"
    );
}

#[test]
fn a_moved_file_hides_nothing_when_nothing_older_is_left() {
    let env = SimEnv::new(1);
    let db = open(&env, 64);
    let partition = db.default_partition();
    for _ in 0..2 {
        (0..250).for_each(|i| partition.put(format!("{i:08}"), [1; 100]).unwrap());
        db.flush().unwrap();
    }
    let upkeep = &db.inner().upkeep;
    let (version, output) = upkeep.version_set.plan_basis();
    let newest = &version.tree(DEFAULT).unwrap().runs[0];
    assert!(newest.totals.garbage > 0, "some of it overwrites others");
    let (inputs, output_stage) = (vec![newest.id], newest.stage);
    let plan = WholePlan { inputs, output_stage, drops_tombstones: true, converts: false };
    let mut job = CompactionJob::start(upkeep, DEFAULT, plan, output).unwrap().unwrap();
    while job.step(upkeep).unwrap() == Progress::More {}
    assert!(db.stats().moved_bytes > 0);
    let state = upkeep.version_set.state.load_full();
    let files = &state.version.tree(DEFAULT).unwrap().run(output).unwrap().files;
    assert_eq!(files[0].meta.overwrites, 0);
}

/// The estimated length of an output shrinks when a block is compressed. An output may end just then.
#[test]
fn compressed_outputs_end_anywhere() {
    for entries in 1010..1030 {
        let env = SimEnv::new(1);
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(64 << 20).compression(true);
        let db = options.compaction_bytes_per_second(1 << 30).separate_at(0).open(DIR).unwrap();
        let partition = db.default_partition();
        let mut value = vec![0; 2000];
        let mut rng = 1_u32;
        for i in 0..entries {
            for byte in &mut value[..1000] {
                rng = rng.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (rng >> 24) as u8;
            }
            partition.put(format!("{:04}", i * 7919 % entries), &value).unwrap();
            if i == entries / 2 {
                db.flush().unwrap();
            }
        }
        db.compact().unwrap();
        assert!(db.stats().compaction_written_bytes > 1_000_000);
    }
}

#[test]
fn a_settle_finds_a_merge_that_reads_have_made_due() {
    let env = SimEnv::new(1);
    let db = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(1 << 20).open(DIR).unwrap();
    for key in ["a", "b"] {
        db.default_partition().put(key, "value").unwrap();
        db.settle().unwrap();
    }
    // The workers have seen the quiet store.
    env.sleep(Duration::from_secs(5));
    db.inner().ctx.status.wake_jobs();
    env.run_jobs();
    assert_eq!(db.stats().runs, 2);
    db.inner().version_set.state.load().version.tree(DEFAULT).unwrap().reads.note(2, 1 << 40);
    db.settle().unwrap();
    assert_eq!(db.stats().runs, 1);
}

/// A bottom run that has become a level above its size: each of its files may be merged into the next level.
#[test]
fn no_two_jobs_work_on_a_run() {
    let env = SimEnv::new(1);
    let open = |shape, memtable_bytes| {
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(64 << 20).shape(shape);
        let options = options.runs_per_stage(2).memtable_bytes(memtable_bytes).sst_bytes(16 << 10);
        options.compaction_threads(3).open(DIR).unwrap()
    };
    let write = |db: &Db, values: Range<u8>| {
        for value in values {
            (0..4000).for_each(|i| db.default_partition().put(format!("{i:08}"), [value; 50]).unwrap());
            db.flush().unwrap();
        }
    };
    let db = open(Shape::ForestOverBottom, 2 << 20);
    write(&db, 0..2);
    db.compact().unwrap();
    write(&db, 2..4);
    db.settle().unwrap();
    db.close().unwrap();
    let db = open(Shape::Leveled, 32 << 10);
    let upkeep = &db.inner().upkeep;
    let state = upkeep.version_set.state.load_full();
    let situation = Situation { tree: state.version.tree(DEFAULT).unwrap(), busy: &[], now: 0 };
    let first = picker::pick(&upkeep.ctx.options.policy(true), situation);
    assert!(matches!(first, Some(Plan::Partial(_))), "planned again until a version has it: {first:?}");
    let (compactions, mut jobs) = (Compactions::new(Arc::clone(upkeep)), Vec::new());
    for _ in 0..3 {
        jobs.extend(compactions.take_job().unwrap());
    }
    assert!(jobs.iter().any(|job| job.output().is_none()), "one of them is partial");
    let list = compactions.list.lock();
    let runs: Vec<_> = jobs.iter().chain(&list.waiting).flat_map(|job| job.inputs.clone()).collect();
    assert_eq!(BTreeSet::from_iter(runs.clone()).len(), runs.len(), "{runs:?}");
}

/// Flushes what was written. No other job takes its turn.
fn flush_by_hand(db: &Db) {
    let inner = db.inner();
    inner.writes.switch_memtable(&mut inner.writes.lock()).unwrap();
    while inner.upkeep.flush_oldest().unwrap() {}
}

/// Checks that each file of each run states exactly what its entries above the clip refer to. Returns how many files a clip cuts.
fn check_references(upkeep: &Upkeep) -> usize {
    let version = Arc::clone(&upkeep.version_set.state.load().version);
    let mut cut = 0;
    for (id, partition) in version.partitions() {
        for run in partition.tree.runs.iter().filter(|run| !run.files.is_empty()) {
            let mut found: BTreeMap<FileId, SegmentUses> = BTreeMap::new();
            let source = SourceCursor::over_run(id, Arc::clone(run), RunReads::Stream);
            let mut merge = Merge::new(vec![source], Direction::Up);
            merge.seek(SeekTo::Start).unwrap();
            while let Some(entry) = merge.current() {
                if entry.kind() == ValueKind::ValuePointer {
                    let pointer = entry.value().as_pointer().unwrap();
                    let uses = found.entry(entry.file_meta().unwrap().file).or_default();
                    uses.entry(pointer.segment).or_default().add(pointer.bytes());
                }
                merge.advance().unwrap();
            }
            for file in &run.files {
                let uses = found.get(&file.meta.file).map_or_else(ValueRefs::default, ValueRefs::new);
                assert_eq!(file.meta.values, uses, "file {} of run {}", file.meta.file, run.id.0);
            }
            cut += usize::from(run.clip.as_ref().is_some_and(|clip| run.files[0].meta.smallest < *clip));
        }
    }
    version.check_invariants().unwrap();
    cut
}

/// Hidden pointers, files that a clip cuts, sections and files that are moved are all counted.
#[test]
fn references_are_those_of_the_entries_above_the_clip() {
    let env = SimEnv::new(1);
    let options = |env: &Arc<SimEnv>, k| {
        let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(1 << 20).memtable_bytes(64 << 10);
        options.sst_bytes(4 << 10).runs_per_stage(k).clean_every(1).separate_at(100).compaction_threads(1)
    };
    let db = options(&env, 64).open(DIR).unwrap();
    let (large, small) = (db.default_partition(), db.partition("small").unwrap());
    let mut rng = fastrand::Rng::with_seed(5);
    for round in 0..5 {
        for _ in 0..600 {
            let key = format!("{:04}", rng.u32(..1500));
            match rng.u8(..10) {
                0 => large.delete(&key).unwrap(),
                1 => small.put(key, vec![round; rng.usize(..300)]).unwrap(),
                _ => large.put(key, vec![round; rng.usize(..300)]).unwrap(),
            }
        }
        db.flush().unwrap();
        check_references(&db.inner().upkeep);
    }
    drop((large, small, db));
    let db = options(&env, 2).open(DIR).unwrap();
    let mut worker = Worker(Arc::new(Compactions::new(Arc::clone(&db.inner().upkeep))));
    let mut cut = 0;
    while matches!(worker.step(), JobStep::Again) {
        let now = check_references(&db.inner().upkeep);
        if now > 0 && cut % 8 == 0 {
            let killed = options(&env.crash_image(CrashPolicy::ProcessKill, 1), 2).open(DIR).unwrap();
            assert!(check_references(&killed.inner().upkeep) > 0, "the clip is in the manifest");
        }
        cut += now;
    }
    assert!(cut > 10, "{cut} cut files");
}

/// What a compaction has moved to its output is below the clips of its inputs, and does not count twice.
#[test]
fn live_values_are_estimated_well_in_the_middle_of_a_compaction() {
    const KEYS: u64 = 8000;
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(8 << 20).memtable_bytes(512 << 10);
    let options = options.sst_bytes(16 << 10).shape(Shape::Forest).runs_per_stage(64).separate_at(100);
    let db = options.space_target(4.0).compaction_threads(1).open(DIR).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    for number in (0..KEYS).chain((0..KEYS).map(|_| rng.u64(..KEYS))) {
        // Of any bytes: digits are packed, so that an SST would have too few blocks.
        let key = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        db.default_partition().put(key, [number.to_le_bytes()[0]; 200]).unwrap();
    }
    db.flush().unwrap();
    let upkeep = &db.inner().upkeep;
    let mut job = merge_of_all(upkeep);
    let (mut steps, truth) = (0, KEYS * (200 + CHECKSUM_LEN as u64));
    loop {
        let version = Arc::clone(&upkeep.version_set.state.load().version);
        let live = upkeep.estimated_space(&version).live;
        let off = live.abs_diff(truth) * 100 / truth;
        // These SSTs have a few blocks each. If all entries below clips counted, it would be 25 %.
        assert!(off <= 15, "step {steps}: {live} bytes of {truth}");
        steps += 1;
        if job.step(upkeep).unwrap() == Progress::Done {
            break;
        }
    }
    assert!(steps > 5, "{steps} steps");
}

/// Values of a conversion that takes six groups, and so six steps.
const CONVERTED: u64 = 6 << 12;

/// A store whose values lie in no order in one run, and a worker that does its compactions.
fn unordered(env: &Arc<SimEnv>) -> (Db, Worker) {
    unordered_at(env, 4.0)
}

fn unordered_at(env: &Arc<SimEnv>, space_target: f64) -> (Db, Worker) {
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(16 << 20).memtable_bytes(1 << 20);
    let options =
        options.sst_bytes(4 << 10).compaction_threads(1).separate_at(200).space_target(space_target);
    let db = options.open(DIR).unwrap();
    for number in (0..CONVERTED).map(|number| number * 787 % CONVERTED) {
        db.default_partition().put(format!("{number:05}"), [1; 200]).unwrap();
    }
    db.compact().unwrap();
    let worker = Worker(Arc::new(Compactions::new(Arc::clone(&db.inner().upkeep))));
    (db, worker)
}

/// Steps until the disk has no room for what a step writes.
fn step_on_full_disk(env: &SimEnv, worker: &mut Worker) {
    env.set_fault(Some(Fault { at_op: env.op_count() + 1, kind: FaultKind::NoSpaceFrom }));
    let struck = env.faults_struck();
    while env.faults_struck() == struck {
        worker.step();
    }
    env.clear_faults();
}

/// Converts by `worker`. After some steps its output meets a full disk `failures` times at the same place. Returns the number of
/// values copied.
fn convert_with_failures(env: &SimEnv, db: &Db, worker: &mut Worker, failures: u64) -> u64 {
    for _ in 0..2 {
        assert!(matches!(worker.step(), JobStep::Again));
    }
    let before = db.stats().values_converted;
    assert!((1..CONVERTED / 2).contains(&before), "{before} values were copied before the failure");
    for _ in 0..failures {
        step_on_full_disk(env, worker);
        assert!(db.inner().ctx.status.poison().is_none());
    }
    let mut steps = 0;
    while sums(&db.inner().upkeep).0 > 0 {
        worker.step();
        steps += 1;
        assert!(steps < 1000, "it ends");
    }
    db.verify().unwrap();
    db.stats().values_converted
}

/// Whoever waits for a conversion wants its copies, however often it fails.
#[test]
fn a_requested_conversion_that_fails_goes_on_copying() {
    let env = SimEnv::new(1);
    let (db, mut worker) = unordered(&env);
    db.inner().upkeep.background.lock().to_compact.insert(DEFAULT, true);
    let copied = convert_with_failures(&env, &db, &mut worker, 3);
    assert!(copied >= CONVERTED * 95 / 100, "{copied} values were copied");
}

#[test]
fn a_conversion_for_scans_that_fails_goes_on_copying() {
    for (failures, goes_on) in [(1, true), (3, false)] {
        let env = SimEnv::new(1);
        let (db, mut worker) = unordered(&env);
        db.inner().version_set.state.load().version.tree(DEFAULT).unwrap().reads.note_values(1 << 50);
        // The workers look for what reads have made due when the store is quiet.
        env.sleep(Duration::from_secs(60));
        let copied = convert_with_failures(&env, &db, &mut worker, failures);
        assert_eq!(
            copied >= CONVERTED * 95 / 100,
            goes_on,
            "{failures} failures, {copied} values were copied"
        );
    }
}

/// A disk that is full for a moment must not be fuller afterwards. Two calls fail: a store that cannot append to its manifest
/// releases its reserve and tries again.
#[test]
fn a_conversion_whose_call_fails_leaves_no_value_file() {
    let mut struck = 0;
    for (call, gap) in (4..10).flat_map(|call| (1..5).map(move |gap| (call, gap))) {
        let env = SimEnv::new(1);
        let (db, mut worker) = unordered(&env);
        db.inner().upkeep.background.lock().to_compact.insert(DEFAULT, true);
        assert!(matches!(worker.step(), JobStep::Again));
        let before = env.faults_struck();
        let first = env.op_count() + call;
        for at_op in [first, first + gap] {
            env.add_fault(Fault { at_op, kind: FaultKind::NoSpace });
        }
        worker.step();
        env.clear_faults();
        if env.faults_struck() == before || db.inner().ctx.status.poison().is_some() {
            continue;
        }
        struck += 1;
        db.inner().version_set.remove_obsolete();
        let homes = db.inner().version_set.state.load().version.values.homes();
        let names = env.file_names(Path::new(DIR));
        for id in names.iter().filter_map(|name| parse_values_name(name)) {
            assert!(homes.contains_key(&id), "call {call}, {gap}: no version names {id}");
        }
    }
    assert!(struck >= 10, "{struck} calls failed");
}

/// What was left before a failure is left, too.
#[test]
fn a_conversion_that_is_resumed_tells_all_that_it_has_left() {
    let left = |failures: u64| {
        let env = SimEnv::new(1);
        let (db, mut worker) = unordered_at(&env, 1.3);
        let upkeep = Arc::clone(&db.inner().upkeep);
        upkeep.background.lock().begin_wait(DEFAULT, true);
        for _ in 0..4 {
            assert!(matches!(worker.step(), JobStep::Again));
        }
        for _ in 0..failures {
            step_on_full_disk(&env, &mut worker);
        }
        while sums(&upkeep).0 > 0 {
            worker.step();
        }
        upkeep.background.lock().end_wait(DEFAULT).unwrap()
    };
    let (all, resumed) = (left(0), left(2));
    assert!(all > CONVERTED * 200 / 2, "{all} bytes are left at a target of 1.3");
    assert!(resumed.abs_diff(all) < all / 10, "{resumed} bytes are left after failures, {all} without");
}

/// Copies that no version has yet take room, whichever job makes them.
#[test]
fn copies_in_progress_take_room() {
    let env = SimEnv::new(1);
    let (db, mut worker) = unordered(&env);
    let upkeep = &db.inner().upkeep;
    let room = || upkeep.room_for_values(1 << 30);
    let before = room();
    let mut claim = RoomClaim::default();
    claim.add(upkeep, 1000);
    claim.add(upkeep, 234);
    assert_eq!(room(), before - 1234);
    claim.end();
    assert_eq!(room(), before);
    claim.add(upkeep, 1000);
    drop(claim);
    assert_eq!(room(), before);
    upkeep.background.lock().to_compact.insert(DEFAULT, true);
    let written = || db.stats().value_converted_bytes;
    while written() == 0 {
        worker.step();
    }
    let mut is_committed = false;
    while sums(upkeep).0 > 0 {
        is_committed |= upkeep.copies.load(Ordering::Relaxed) == 0;
        worker.step();
    }
    assert!(is_committed, "a commit ends the claim, and not only the end of the job");
    assert_eq!(upkeep.copies.load(Ordering::Relaxed), 0, "all copies are in a version");
}

/// Files that snapshots hold are on the disk, whatever the version says.
#[test]
fn pinned_files_take_room() {
    let env = SimEnv::new(1);
    let (db, _) = unordered(&env);
    let upkeep = &db.inner().upkeep;
    let before = upkeep.room_for_values(1 << 30);
    upkeep.version_set.trash.pin(1000);
    assert_eq!(upkeep.room_for_values(1 << 30), before - 1000);
}

/// A commit names files of copies that a power cut does not take.
#[test]
fn copies_survive_a_power_cut() {
    let env = SimEnv::new(1);
    let (db, mut worker) = unordered(&env);
    db.inner().upkeep.background.lock().to_compact.insert(DEFAULT, true);
    let homes = || db.inner().version_set.state.load().version.values.homes();
    let before = homes();
    while homes().keys().all(|id| before.contains_key(id)) {
        worker.step();
    }
    let cut = env.crash_image(CrashPolicy::DurableOnly, 1);
    let options = Options::new().env(cut).memory(16 << 20).separate_at(200);
    let db = options.open(DIR).unwrap();
    assert_eq!(db.verify().unwrap().values, CONVERTED);
}

/// A close waits for the copies of the group that is being written, and not for those of a whole SST.
#[test]
fn a_close_ends_the_copying() {
    const VALUES: u64 = 6 << 12;
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(256 << 20).memtable_bytes(32 << 20);
    // A step copies 16 MiB of values, four groups.
    let options = options.sst_bytes(8 << 20).compaction_threads(1).separate_at(200).space_target(4.0);
    let db = options.open(DIR).unwrap();
    for number in (0..VALUES).map(|number| number * 787 % VALUES) {
        db.default_partition().put(format!("{number:05}"), [1; 1000]).unwrap();
    }
    db.compact().unwrap();
    let inner = Arc::clone(db.inner());
    let mut worker = Worker(Arc::new(Compactions::new(Arc::clone(&inner.upkeep))));
    inner.upkeep.background.lock().to_compact.insert(DEFAULT, true);
    let weak = Arc::downgrade(&inner);
    env.on_op(Box::new(move |_, call| {
        if call == "write_at"
            && let Some(inner) = weak.upgrade()
            && inner.upkeep.copies.load(Ordering::Relaxed) > 0
        {
            inner.ctx.status.set_closed();
        }
    }));
    worker.step();
    let copied = inner.ctx.counters.values_converted.load(Ordering::Relaxed);
    assert!((1..=3 << 12).contains(&copied), "{copied} of {VALUES} values were copied");
}

/// A scan whose cost has risen much does not wait for the minute in which the workers look.
#[test]
fn dear_scans_wake_a_worker() {
    let env = SimEnv::new(1);
    let (db, _) = unordered(&env);
    env.run_jobs();
    let tree_reads = |ns: u64| {
        let version = Arc::clone(&db.inner().version_set.state.load().version);
        let reads = &version.tree(DEFAULT).unwrap().reads;
        reads.note_values(ns);
        db.inner().ctx.look_at_reads(reads);
    };
    tree_reads(1 << 28);
    env.run_jobs();
    assert_eq!(db.stats().values_converted, 0, "a quarter of a second is no news");
    tree_reads(1 << 28);
    env.run_jobs();
    assert!(db.stats().values_converted > CONVERTED / 2);
}
