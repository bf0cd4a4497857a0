//! Requested merges: each is fulfilled, and meanwhile smaller merges go on.

use super::*;

#[test]
fn a_request_is_fulfilled_beside_writers() {
    let env = SimEnv::new(1);
    let db = open(&env, 4);
    let partition = db.default_partition();
    let mut key = 0_u32;
    let mut write = || {
        for _ in 0..100 {
            key = key.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            partition.put(format!("{:08}", key % 10_000), [1; 100]).unwrap();
        }
        db.flush().unwrap();
    };
    (0..30).for_each(|_| write());
    db.inner().upkeep.background.lock().to_compact.insert(DEFAULT, false);
    db.inner().ctx.status.wake_jobs();
    let rounds = (0..1000).take_while(|_| {
        write();
        db.inner().upkeep.background.lock().to_compact.contains(DEFAULT)
    });
    let rounds = rounds.count();
    assert!(rounds > 0 && rounds < 1000, "the merge lasts {rounds} flushes");
    db.verify().unwrap();
}

/// Flushed runs are merged while a request waits for a long merge, and behind that merge the request is fulfilled.
#[test]
fn a_request_that_waits_holds_up_no_smaller_merge() {
    for is_of_range in [false, true] {
        let env = SimEnv::new(1);
        let options =
            Options::new().env(Arc::<SimEnv>::clone(&env)).memory(4 << 20).memtable_bytes(128 << 10);
        let db = options.sst_bytes(4 << 10).runs_per_stage(2).compaction_threads(2).open(DIR).unwrap();
        let mut round = 0;
        let mut write = |count: u32| {
            round += 1;
            let key = |i: u32| format!("{:08}", (i + 50 * round) * 7919 % 10_000);
            (0..count).for_each(|i| db.default_partition().put(key(i), [1; 100]).unwrap());
            flush_by_hand(&db);
        };
        (0..3).for_each(|_| write(500));
        let upkeep = &db.inner().upkeep;
        let compactions = Compactions::new(Arc::clone(upkeep));
        upkeep.background.lock().to_compact.insert(DEFAULT, false);
        let mut bottom = compactions.take_job().unwrap().unwrap();
        assert_eq!(bottom.output_stage, STAGE_BOTTOM);
        assert_eq!(bottom.step(upkeep).unwrap(), Progress::More);
        write(100);
        let range =
            KeyRange { lower: b"00001000".as_slice().into(), upper: Some(b"00003000".as_slice().into()) };
        let number = {
            let mut background = upkeep.background.lock();
            if is_of_range {
                background.ranges.insert(DEFAULT, range)
            } else {
                background.to_compact.insert(DEFAULT, false);
                0
            }
        };
        let is_pending = || {
            let background = upkeep.background.lock();
            if is_of_range {
                background.ranges.contains(number)
            } else {
                background.to_compact.contains(DEFAULT)
            }
        };
        let runs = || upkeep.version_set.state.load().version.tree(DEFAULT).unwrap().runs.len();
        let mut merges = 0;
        for _ in 0..40 {
            write(100);
            while let Some(mut job) = compactions.take_job().unwrap() {
                assert!(job.output_stage < STAGE_BOTTOM);
                while job.step(upkeep).unwrap() == Progress::More {}
                compactions.put_back(job, Some(Progress::Done));
                merges += 1;
            }
            assert!(runs() < 24, "{} runs, {merges} merges", runs());
        }
        assert!(merges >= 8 && is_pending(), "{merges} merges");
        while bottom.step(upkeep).unwrap() == Progress::More {}
        compactions.put_back(bottom, Some(Progress::Done));
        let mut steps = 0;
        while let Some(mut job) = compactions.take_job().unwrap() {
            if !is_pending() {
                break;
            }
            let progress = job.step(upkeep).unwrap();
            compactions.put_back(job, Some(progress));
            if steps % 8 == 0 {
                write(100);
            }
            steps += 1;
            assert!(steps < 4000, "it ends");
        }
        assert!(!is_pending());
        db.verify().unwrap();
    }
}

/// Ranges of old keys never come before a whole merge that was requested and waits for a merge of new keys.
#[test]
fn ranges_do_not_come_before_a_whole_merge_that_waits() {
    let env = SimEnv::new(1);
    let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(4 << 20).memtable_bytes(128 << 10);
    let db = options.sst_bytes(4 << 10).runs_per_stage(2).compaction_threads(3).open(DIR).unwrap();
    let write = |keys: Range<u32>| {
        keys.for_each(|i| db.default_partition().put(format!("{i:08}"), [1; 100]).unwrap());
        flush_by_hand(&db);
    };
    (0..3).for_each(|_| write(0..500));
    let upkeep = &db.inner().upkeep;
    let compactions = Compactions::new(Arc::clone(upkeep));
    let end = |mut job: CompactionJob| {
        while job.step(upkeep).unwrap() == Progress::More {}
        compactions.put_back(job, Some(Progress::Done));
    };
    upkeep.background.lock().to_compact.insert(DEFAULT, false);
    let mut bottom = compactions.take_job().unwrap().unwrap();
    assert_eq!(bottom.step(upkeep).unwrap(), Progress::More);
    let range = KeyRange { lower: b"00000100".as_slice().into(), upper: Some(b"00000300".as_slice().into()) };
    upkeep.background.lock().to_compact.insert(DEFAULT, false);
    let number = upkeep.background.lock().ranges.insert(DEFAULT, range);
    (0..4).for_each(|_| write(5000..5100));
    let small = compactions.take_job().unwrap().expect("runs of new keys are merged");
    assert!(small.output_stage < STAGE_BOTTOM);
    write(0..500);
    end(bottom);
    assert!(compactions.take_job().unwrap().is_none(), "the whole merge waits, and the range for it");
    end(small);
    let whole = compactions.take_job().unwrap().expect("nothing is in progress");
    assert_eq!(whole.output_stage, STAGE_BOTTOM);
    end(whole);
    assert!(compactions.take_job().unwrap().is_none());
    let background = upkeep.background.lock();
    assert!(!background.to_compact.contains(DEFAULT) && !background.ranges.contains(number));
}

#[test]
fn a_compact_ends_with_the_merge_that_it_asked_for() {
    let env = SimEnv::new(1);
    let db = open(&env, 64);
    for round in 0..5_u8 {
        (0..500).for_each(|i| db.default_partition().put(format!("{i:08}"), [round; 100]).unwrap());
        db.flush().unwrap();
    }
    db.compact().unwrap();
    let (jobs, runs, files) = sums(&db.inner().upkeep);
    assert_eq!((jobs, runs), (0, 1));
    assert!(files > 4, "it took several steps: {files} files");
}
