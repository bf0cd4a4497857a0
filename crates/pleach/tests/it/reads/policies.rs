//! Policies of parallel search: the answers are those of a serial search, and so are the errors; only the reads differ.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pleach::env::{Fault, FaultKind, RealEnv, SimEnv, SlowEnv};
use pleach::{Db, ErrorKind, Options, Partition, ReadDriver, ReadOptions, ReadPolicy, Shape};

use super::block_on;
use crate::rig::read_drivers::{DRIVERS, ReadBy};
use crate::rig::setup::DIR;

const POLICIES: [ReadPolicy; 6] = [
    ReadPolicy::Auto,
    ReadPolicy::Serial,
    ReadPolicy::FixedCount(0),
    ReadPolicy::FixedCount(3),
    ReadPolicy::FixedCount(16),
    ReadPolicy::PriorityAware,
];

/// `SifrDB`'s number of candidates (section 5.1).
pub(super) const CANDIDATES: u32 = 17;

/// The key that is in the runs from the oldest to this one, and is newest there.
pub(super) fn key(run: u32) -> String {
    format!("key{run:02}")
}

/// As many runs as there are candidates; each overwrites the keys of all newer ones. All have all keys in their range, and
/// none has a filter.
fn fill(options: &Options, dir: &std::path::Path) {
    let db = options.clone().open(dir).unwrap();
    let partition = db.default_partition();
    for run in 0..CANDIDATES {
        for newest in run..CANDIDATES {
            partition.put(key(newest), run.to_string()).unwrap();
        }
        partition.put("a", "").unwrap();
        partition.put("z", "").unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
}

fn options(memory: usize) -> Options {
    Options::new().memory(memory).shape(Shape::Forest).runs_per_stage(64)
}

/// A store without filters on a device that does 16 reads at the same time.
fn slow_store(dir: &std::path::Path) -> (Arc<SlowEnv>, Db) {
    fill(&unfiltered(), dir);
    let env = Arc::new(SlowEnv::new(Arc::new(RealEnv::new()), 16));
    let options = unfiltered().env(Arc::<SlowEnv>::clone(&env)).read_driver(ReadDriver::Threads);
    (env, options.open(dir).unwrap())
}

fn unfiltered() -> Options {
    options(8 << 20).filter_bits_per_key(0.0)
}

pub(super) fn machine(seed: u64) -> (Arc<SimEnv>, Db) {
    let env = SimEnv::new(seed);
    let options = unfiltered().env(Arc::<SimEnv>::clone(&env));
    fill(&options, DIR.as_ref());
    (env, options.open(DIR).unwrap())
}

/// No block is cached, so each read is made.
pub(super) fn uncached(policy: ReadPolicy) -> ReadOptions {
    ReadOptions::new().policy(policy).fill_cache(false)
}

/// What all forms of reads answer.
fn answers(partition: &Partition, run: u32, options: &ReadOptions) -> BTreeSet<Option<Vec<u8>>> {
    let many = [key(run), key(run)];
    let answers = [
        partition.get_with(key(run), options).unwrap(),
        partition.get_many_with(&many, options).unwrap().remove(1),
        block_on(partition.get_async_with(key(run), options)).unwrap(),
        block_on(partition.get_many_async_with(&many, options)).unwrap().remove(1),
    ];
    answers.into_iter().map(|answer| answer.map(pleach::Value::into_vec)).collect()
}

#[test]
fn every_policy_answers_as_a_serial_search_on_every_driver() {
    for direct in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        fill(&unfiltered(), dir.path());
        for driver in DRIVERS {
            let db = unfiltered().direct_reads(direct).read_by(driver).open(dir.path()).unwrap();
            let partition = db.default_partition();
            assert_eq!(partition.stats().unwrap().runs, u64::from(CANDIDATES));
            for policy in POLICIES {
                for run in 0..=CANDIDATES {
                    let options = uncached(policy).timeout(Duration::from_secs(600));
                    for options in [&uncached(policy), &options] {
                        let expected = (run < CANDIDATES).then(|| run.to_string().into_bytes());
                        assert_eq!(
                            answers(&partition, run, options),
                            [expected].into(),
                            "{driver:?} {policy:?}"
                        );
                    }
                }
            }
            let serial = db.stats();
            assert!(serial.wasted_reads <= serial.lookup_reads);
            for run in 0..CANDIDATES {
                let filled = ReadOptions::new().policy(ReadPolicy::PriorityAware);
                assert!(partition.get_with(key(run), &filled).unwrap().is_some());
            }
            db.close().unwrap();
        }
    }
}

#[test]
fn each_policy_makes_its_reads() {
    let (env, db) = machine(1);
    let partition = db.default_partition();
    let reads = |run: u32, policy| {
        let before = env.read_count();
        assert!(partition.get_with(key(run), &uncached(policy)).unwrap().is_some());
        env.read_count() - before
    };
    let (newest, oldest) = (CANDIDATES - 1, 0);
    for serial in [ReadPolicy::Serial, ReadPolicy::FixedCount(1), ReadPolicy::Auto] {
        assert_eq!(reads(newest, serial), 1, "{serial:?}");
        assert_eq!(reads(oldest, serial), u64::from(CANDIDATES), "{serial:?}");
    }
    for policy in POLICIES {
        assert_eq!(reads(oldest, policy), u64::from(CANDIDATES), "{policy:?}");
    }
    let mut seen = BTreeSet::new();
    for _ in 0..40 {
        let reads = reads(newest, ReadPolicy::FixedCount(3));
        assert!(
            reads <= 1 + 2 * 3,
            "two are in flight beside the newest, and are followed until one has an answer"
        );
        seen.insert(reads);
    }
    assert!(seen.len() > 1, "the order in which reads end is the seed's");
    assert!(db.stats().wasted_reads > 0);
}

#[test]
fn filters_make_the_default_serial() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(8 << 20).filter_bits_per_key(20.0);
    fill(&options, dir.path());
    for driver in DRIVERS {
        let db = options.clone().read_by(driver).open(dir.path()).unwrap();
        let partition = db.default_partition();
        for _ in 0..20 {
            for run in 0..CANDIDATES {
                assert!(partition.get_with(key(run), &uncached(ReadPolicy::Auto)).unwrap().is_some());
            }
        }
        assert_eq!(db.stats().lookup_reads, u64::from(20 * CANDIDATES) + db.stats().wasted_probes);
        assert_eq!(db.stats().wasted_reads, 0);
    }
}

#[test]
fn a_failed_read_is_an_error_only_if_no_newer_run_holds_the_key() {
    for (seed, policy) in (0..4).flat_map(|seed| POLICIES.map(|policy| (seed, policy))) {
        let (env, db) = machine(seed);
        let partition = db.default_partition();
        for run in [CANDIDATES - 1, CANDIDATES - 3] {
            let needed = u64::from(CANDIDATES - run);
            let mut failed = 0;
            for nth in 0..u64::from(CANDIDATES) {
                env.add_fault(Fault { at_op: env.read_count() + nth, kind: FaultKind::ReadEio });
                match partition.get_with(key(run), &uncached(policy)) {
                    Ok(found) => assert_eq!(found.as_deref(), Some(run.to_string().as_bytes())),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Io);
                        failed += 1;
                    }
                }
                env.clear_faults();
            }
            if policy == ReadPolicy::Serial {
                assert_eq!(failed, needed);
            }
        }
        assert_eq!(
            partition.get_with(key(0), &uncached(policy)).unwrap().as_deref(),
            Some(&b"0"[..]),
            "after the faults"
        );
    }
}

#[test]
fn a_read_without_time_ends_with_an_error_or_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    fill(&unfiltered(), dir.path());
    for driver in DRIVERS {
        let db = unfiltered().read_by(driver).open(dir.path()).unwrap();
        let partition = db.default_partition();
        let options = uncached(ReadPolicy::Serial).timeout(Duration::ZERO);
        let answers = [
            partition.get_with(key(0), &options),
            partition.get_many_with([key(0)], &options).map(|mut many| many.remove(0)),
            block_on(partition.get_async_with(key(0), &options)),
            block_on(partition.get_many_async_with([key(0)], &options)).map(|mut many| many.remove(0)),
        ];
        for answer in answers {
            match answer {
                Ok(found) => assert_eq!(found.as_deref(), Some(&b"0"[..])),
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{driver:?}: {error}"),
            }
        }
        if driver == ReadDriver::Blocking {
            continue;
        }
        partition.put("memtable", "answers at once").unwrap();
        assert!(partition.get_with("memtable", &options).unwrap().is_some());
        assert!(partition.get(key(0)).unwrap().is_some());
    }
}

#[test]
fn a_device_that_does_not_answer_ends_no_read_before_its_deadline_and_each_then() {
    let dir = tempfile::tempdir().unwrap();
    let (env, db) = slow_store(dir.path());
    let partition = db.default_partition();
    let latency = Duration::from_millis(1500);
    env.set_latency(latency);
    let options = uncached(ReadPolicy::Serial).timeout(Duration::from_millis(20));
    let forms: [&dyn Fn(u32) -> pleach::Result<Option<pleach::Value>>; 4] = [
        &|run| partition.get_with(key(run), &options),
        &|run| partition.get_many_with([key(run)], &options).map(|mut many| many.remove(0)),
        &|run| block_on(partition.get_async_with(key(run), &options)),
        &|run| block_on(partition.get_many_async_with([key(run)], &options)).map(|mut many| many.remove(0)),
    ];
    for (run, form) in (0..).zip(forms) {
        let began = Instant::now();
        match form(run) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
            Ok(_) => assert!(began.elapsed() >= latency, "a busy machine"),
        }
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
    env.set_latency(Duration::ZERO);
    assert_eq!(partition.get(key(3)).unwrap().as_deref(), Some(&b"3"[..]));
    db.close().unwrap();
}

#[test]
fn candidates_are_read_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let (env, db) = slow_store(dir.path());
    let partition = db.default_partition();
    for (policy, most) in
        [(ReadPolicy::Serial, 1), (ReadPolicy::FixedCount(4), 4), (ReadPolicy::PriorityAware, 16)]
    {
        env.set_latency(Duration::from_millis(10));
        assert!(partition.get_with(key(0), &uncached(policy)).unwrap().is_some());
        let overlapping = env.running_max();
        assert!(overlapping <= most && (overlapping > 1) == (most > 1), "{policy:?}: {overlapping}");
    }
    db.close().unwrap();
}

#[test]
fn the_default_reads_at_the_same_time_on_a_slow_device() {
    let dir = tempfile::tempdir().unwrap();
    let (env, db) = slow_store(dir.path());
    let partition = db.default_partition();
    let get = || assert!(partition.get_with(key(0), &uncached(ReadPolicy::Auto)).unwrap().is_some());
    env.set_latency(Duration::from_micros(500));
    (0..400).for_each(|_| get());
    env.set_latency(Duration::from_millis(10));
    (0..3).for_each(|_| get());
    assert!(env.running_max() > 1);
    db.close().unwrap();
}
