//! Every workload on the reference engine and on Pleach with its answers checked, and the streams it is made of.

mod figures;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use pleach_command::Interrupt;

use super::record::Record;
use super::runner::run_workloads;
use super::settings::Settings;
use super::store::Store;
use crate::engine::{EngineFactory, PLEACH, REFERENCE, Result};
use crate::workload::{Op, Shape, WORKLOADS, Workload};

const KEYS: u64 = 2000;

fn run(factory: &EngineFactory, words: &str) -> Vec<Record> {
    let (records, done) = run_until(factory, words, &Interrupt::default());
    done.expect("the workloads run");
    records
}

fn run_until(factory: &EngineFactory, words: &str, interrupt: &Interrupt) -> (Vec<Record>, Result<()>) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut settings = Settings::from_words(&words).expect("the words are well-formed");
    settings.dir = dir.path().to_path_buf();
    let mut records = Vec::new();
    let mut sink = |record| -> Result<()> {
        records.push(record);
        Ok(())
    };
    let done = run_workloads(factory, &settings, interrupt, &mut sink);
    assert!(!settings.dir.join(factory.name).exists(), "the store is removed");
    (records, done)
}

fn all_workloads() -> String {
    WORKLOADS.iter().map(|workload| workload.name).collect::<Vec<_>>().join(",")
}

/// What must be the same for every engine. How long a compaction takes, and how much is read meanwhile, is its own.
fn answers(record: &Record) -> (String, u64, u64, u64, u64, u64) {
    if record.workload == "readwhilecompacting" {
        return (record.workload.clone(), 0, 0, record.missed, 0, record.live_bytes);
    }
    // The reference engine has none.
    if record.workload == "convert" {
        return (record.workload.clone(), 0, 0, 0, 0, 0);
    }
    (
        record.workload.clone(),
        record.ops,
        record.found,
        record.missed,
        record.user_read_bytes,
        record.live_bytes,
    )
}

#[test]
fn every_workload_gives_the_same_answers_on_every_engine() {
    let words = format!("--workloads {} --keys {KEYS} --write-rate 1000", all_workloads());
    let reference = run(&REFERENCE, &words);
    let pleach = run(&PLEACH, &format!("{words} --tune pleach.memtable_bytes=65536"));
    assert_eq!(reference.len(), WORKLOADS.len());
    for (ours, theirs) in pleach.iter().zip(&reference) {
        assert_eq!(answers(ours), answers(theirs));
        assert_eq!((ours.wrong, theirs.wrong), (0, 0), "{}", ours.workload);
        if ours.workload == "readmissing" {
            assert_eq!((ours.found, ours.missed), (0, KEYS));
        } else {
            assert_eq!(ours.missed, 0, "{}", ours.workload);
        }
        assert!(ours.ops > 0 && ours.ops_per_s > 0.0 && ours.max_ns > 0, "{}", ours.workload);
        assert!(ours.p50_ns <= ours.p99_ns && ours.p99_ns <= ours.max_ns, "{}", ours.workload);
        let in_series: u64 = ours.series.ops.iter().sum();
        assert_eq!(in_series, ours.ops, "{}", ours.workload);
    }
}

#[test]
fn key_sets_threads_and_batches_give_the_same_answers() {
    let cases = [
        "--key-set binary --threads 3 --value-size uniform:1-200",
        "--key-set user --batch 7 --distribution zipfian",
        "--key-set uuid --threads 2 --batch 10 --value-size pareto",
        "--key-set composite --value-size 0",
        "--key-set url --distribution latest --compression",
        "--key-set path --distribution mixgraph --durability sync --ops 300",
    ];
    for case in cases {
        let words = format!(
            "--workloads fillseq,fillrandom,overwrite,readrandom,readmissing,readseq,seekrandom,multireadrandom,\
             ycsb-d,ycsb-e --keys 400 {case}"
        );
        let (reference, pleach) = (run(&REFERENCE, &words), run(&PLEACH, &words));
        for (ours, theirs) in pleach.iter().zip(&reference) {
            let (mut ours_said, mut theirs_said) = (answers(ours), answers(theirs));
            if ours.workload == "ycsb-e" && ours.threads > 1 {
                // Scans may or may not see what another thread is inserting.
                (ours_said.2, ours_said.4) = (0, 0);
                (theirs_said.2, theirs_said.4) = (0, 0);
            }
            assert_eq!(ours_said, theirs_said, "{case}");
            assert_eq!((ours.wrong, theirs.wrong), (0, 0), "{case}: {}", ours.workload);
        }
    }
}

#[test]
fn time_and_rate_end_a_workload_as_told() {
    let words = "--workloads readrandom --keys 500 --duration 0.3 --rate 1000 --warmup 0";
    let record = run(&REFERENCE, words).pop().expect("one record");
    assert!((250..=320).contains(&record.ops), "{}", record.ops);
    assert!((0.25..0.6).contains(&record.seconds), "{}", record.seconds);
}

#[test]
fn a_fill_is_paced_if_nothing_else_is_measured() {
    let alone = run(&REFERENCE, "--workloads fillrandom --keys 500 --rate 1000").pop().expect("one record");
    assert!(alone.seconds > 0.45, "{}", alone.seconds);
    let words = "--workloads fillrandom,readrandom --keys 500 --ops 10 --rate 1000 --warmup 0";
    let load = &run(&REFERENCE, words)[0];
    assert!(load.seconds < 0.3, "{}", load.seconds);
}

#[test]
fn a_rate_counts_operations_and_threads_take_turns() {
    for words in ["multireadrandom --multi 10 --ops 500", "overwrite --batch 10 --ops 500"] {
        let words = format!("--workloads {words} --keys 500 --rate 1000 --warmup 0");
        let record = run(&REFERENCE, &words).pop().expect("one record");
        assert!(record.ops == 500 && record.seconds > 0.45, "{words}: {} in {}", record.ops, record.seconds);
    }
    // The first operations are due at 0, 25, 50 and 75 ms, the second ones 100 ms later.
    let words = "--workloads readrandom --threads 4 --ops 8 --keys 500 --rate 40 --warmup 0";
    let record = run(&REFERENCE, words).pop().expect("one record");
    assert!(record.seconds > 0.17, "{}", record.seconds);
}

#[test]
fn a_rate_that_would_be_ignored_is_refused() {
    let refusal = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        let checked = Settings::from_words(&words).and_then(|settings| settings.check());
        checked.err().map(|error| error.to_string())
    };
    let of_in_flight = refusal("--workloads readrandom --rate 10 --in-flight 4").expect("it is refused");
    assert!(of_in_flight.contains("--in-flight") && of_in_flight.contains("--threads"), "{of_in_flight}");
    for name in ["readseq", "readreverse", "fillstages"] {
        let error = refusal(&format!("--workloads readrandom,{name} --rate 10")).expect("it is refused");
        assert!(error.contains(name) && error.contains("without --rate"), "{error}");
        assert_eq!(refusal(&format!("--workloads {name} --in-flight 4")), None);
    }
    assert_eq!(refusal("--workloads fillrandom,readrandom,ycsb-a --rate 10"), None);
}

#[test]
fn a_warm_up_ends_after_its_limit() {
    let words = "--workloads readrandom --keys 500 --ops 500 --warmup 1000000000000 --warmup-limit 0.1";
    let started = std::time::Instant::now();
    let record = run(&REFERENCE, words).pop().expect("one record");
    assert_eq!(record.ops, 500);
    assert!(started.elapsed().as_secs_f64() >= 0.1);
}

#[test]
fn a_workload_may_have_its_own_number_of_threads() {
    let words = "--workloads readrandom,readrandom@2,queue@3,ycsb-d@2,ycsb-d --keys 900 --ops 300";
    for factory in [&REFERENCE, &PLEACH] {
        let records = run(factory, words);
        let said: Vec<_> = records.iter().map(|record| (&record.workload[..], record.threads)).collect();
        let expected = [("readrandom", 1), ("readrandom", 2), ("queue", 3), ("ycsb-d", 2), ("ycsb-d", 1)];
        assert_eq!(said, expected);
        for record in &records {
            assert_eq!((record.ops, record.missed, record.wrong), (300, 0, 0), "{}", record.workload);
        }
    }
}

#[test]
fn a_load_that_takes_too_long_ends_and_others_find_all_keys() {
    let words = "--workloads fillrandom,readrandom,overwrite,readrandom --keys 300000 --load-limit 0.02 --ops 300001 \
        --warmup 0";
    let records = run(&REFERENCE, words);
    let [fill, read, overwrite, again] = &records[..] else { panic!("{}", records.len()) };
    assert!(fill.ops < 300_000 && fill.seconds < 0.2, "{}", fill.ops);
    assert_eq!((fill.stopped_after_s, fill.live_bytes), (Some(0.02), fill.ops * 116));
    assert!(fill.prepared_by.is_empty());
    // The limit of loads does not hold for reads.
    assert_eq!((read.ops, read.missed, read.stopped_after_s), (300_001, 0, None));
    assert_eq!(read.prepared_by, ["load in key order"]);
    assert_eq!(read.live_bytes, 300_000 * 116);
    assert!(overwrite.ops < 300_000 && overwrite.stopped_after_s.is_some());
    assert_eq!(again.prepared_by, ["load in key order", "overwrite"]);
    assert_eq!(again.missed, 0);
}

#[test]
fn an_unmeasured_load_that_takes_too_long_goes_on_in_key_order() {
    let words = "--workloads readrandom,deleterandom,readrandom --keys 300000 --load-limit 0.02 --ops 1000";
    let records = run(&REFERENCE, words);
    for record in &records {
        assert_eq!((record.missed, record.prepared_by.join(",")), (0, "load in key order".to_owned()));
    }
    let unlimited = run(&REFERENCE, "--workloads readrandom --keys 1000").pop().expect("one record");
    assert_eq!(unlimited.prepared_by, ["load in random order"]);
}

#[test]
fn a_load_that_ends_in_time_is_whole() {
    let words = "--workloads fillrandom,overwrite,readrandom --keys 1000 --load-limit 60 --duration 0.2";
    let records = run(&PLEACH, words);
    assert_eq!(records.iter().map(|record| record.stopped_after_s).collect::<Vec<_>>(), [None; 3]);
    // The limit of loads takes the place of the duration.
    assert_eq!((records[0].ops, records[1].ops), (1000, 1000));
    assert!(records[2].ops > 10 && records[2].seconds < 20.0);
    assert_eq!(records[2].prepared_by, ["fillrandom", "overwrite"]);
}

#[test]
fn each_key_of_a_part_is_overwritten_once() {
    let words =
        "--workloads overwriteonce,readrandom --keys 1000 --loaded-before 250 --duration 20 --ops 1000";
    let records = run(&REFERENCE, &words.replace(" --ops 1000", "").replace("20", "0.1"));
    assert_eq!((records[0].ops, records[0].live_bytes), (250, 1000 * 116));
    assert_eq!(records[1].prepared_by, ["load in random order", "overwriteonce"]);
    let settings = Settings::from_words(&words.split(' ').collect::<Vec<_>>()).expect("well-formed");
    let interrupt = Interrupt::default();
    let store = Store::new(&REFERENCE, &settings, 0.0, &interrupt).expect("it is not opened");
    let mut keys = BTreeSet::new();
    for thread in 0..2 {
        let mut stream =
            Shape::FillAgain.stream(&store.context("it", Shape::FillAgain, thread, 2), settings.distribution);
        let mut op = Op::new();
        while stream.next(&mut op) {
            assert!(!op.fresh && keys.insert(op.index));
        }
    }
    let part: BTreeSet<u64> = (0..250).map(|position| store.dataset.shuffled.apply(position)).collect();
    assert_eq!(keys, part);
}

#[test]
fn workloads_start_from_a_settled_store_and_pay_what_they_owe() {
    // Half of a memtable is in memory when the puts have ended.
    let words =
        "--workloads fillrandom,overwrite --keys 6000 --value-size 1000 --tune pleach.memtable_bytes=4194304";
    let records = run(&PLEACH, words);
    for record in &records {
        let written = record.write_amp_sst.unwrap_or(0.0);
        assert!(written >= 1.0, "{}: {written}", record.workload);
        assert!(record.write_amp_engine > record.write_amp_sst, "the log counts");
        assert!(record.peak_space_amp >= record.space_amp);
    }
}

#[test]
fn a_failure_is_a_record_and_an_interrupt_is_none() {
    let interrupt = Interrupt::default();
    let words = "--workloads readrandom,readafterdelete,readrandom --keys 5";
    let (records, done) = run_until(&PLEACH, words, &interrupt);
    assert!(done.is_err());
    let said: Vec<_> = records.iter().map(|record| (&record.workload[..], record.error.is_some())).collect();
    assert_eq!(said, [("readrandom", false), ("readafterdelete", true)]);

    let waiting = interrupt.clone();
    let asker = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        waiting.ask();
    });
    let words = "--workloads readseq,readrandom --keys 1000 --duration 60";
    let (records, done) = run_until(&PLEACH, words, &interrupt);
    asker.join().expect("it does not panic");
    assert!(records.is_empty() && done.is_err_and(|error| error.to_string() == "interrupted"));
}

/// The disk may be full, and then the record needs the room of the store.
#[test]
fn a_failure_is_recorded_behind_the_removal_of_the_store() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words = ["--workloads", "readrandom,readafterdelete", "--keys", "5"];
    let mut settings = Settings::from_words(&words).expect("the words are well-formed");
    settings.dir = dir.path().to_path_buf();
    let mut said = Vec::new();
    let done = run_workloads(&PLEACH, &settings, &Interrupt::default(), &mut |record| {
        said.push((record.error.is_some(), settings.dir.join(PLEACH.name).exists()));
        Ok(())
    });
    assert!(done.is_err());
    assert_eq!(said, [(false, true), (true, false)]);
}

#[test]
fn costs_are_counted() {
    let record =
        run(&PLEACH, "--workloads fillrandom --keys 5000 --value-size 1000").pop().expect("one record");
    assert_eq!(record.user_written_bytes, 5000 * 1016);
    assert_eq!(record.live_bytes, 5000 * 1016);
    // Everything is written at least to the log and to an SST. Where the log is mapped, calls write the SST alone.
    for (amplification, least) in [(record.write_amp_calls, 0.9), (record.write_amp_engine, 1.9)] {
        let is_likely = amplification.is_some_and(|amplification| (least..3.0).contains(&amplification));
        assert!(is_likely, "{amplification:?}");
    }
    assert!(
        record.final_disk_bytes >= record.live_bytes && record.peak_disk_bytes >= record.final_disk_bytes
    );
    assert!(record.peak_rss_bytes > 0 && record.cpu_s > 0.0 && record.overhead_ns > 0.0);
    assert!(record.config.dir.as_os_str().is_empty());
}

#[test]
fn deletes_leave_the_other_half() {
    let words = "--workloads deleterandom,readrandom --keys 1000 --value-size uniform:1-99";
    let records = run(&PLEACH, words);
    assert_eq!(records[0].ops, 500);
    // The reads start from a store that holds everything again.
    assert_eq!((records[1].found, records[1].missed), (1000, 0));
    assert!(records[0].live_bytes < records[1].live_bytes);
}

#[test]
fn an_engine_that_converts_nothing_has_no_rate_of_it() {
    let records = run(&REFERENCE, "--workloads fillrandom,convert,readrandom --keys 100");
    let [_, convert, read] = &records[..] else { panic!("{}", records.len()) };
    assert_eq!(convert.error.as_deref(), Some("the engine has no call that converts"));
    assert_eq!((convert.ops, read.found, read.error.is_none()), (0, 100, true));
}

#[test]
fn wrong_settings_are_refused() {
    let refused = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        Settings::from_words(&words).map_or(true, |settings| {
            let mut settings = settings;
            settings.dir = std::env::temp_dir().join("pleach-bench-never-made");
            run_workloads(&PLEACH, &settings, &Interrupt::default(), &mut |_| Ok(())).is_err()
        })
    };
    for words in [
        "--workloads readrandomly",
        "--keys 0",
        "--keys 5000000000",
        "--threads 0",
        "--rate 0",
        "--duration -1",
        "--load-limit 0",
        "--warmup-limit 0",
        "--workloads readrandom@0",
        "--value-size many",
        "--tune sst_bytes=1",
        "--tune pleach.no_such=1",
        "--tune pleach.sst_bytes=much",
    ] {
        assert!(refused(words), "{words}");
    }
}

/// A fingerprint of a stream's first operations.
fn fingerprint(workload: &Workload, settings: &Settings, thread: usize) -> u64 {
    let interrupt = Interrupt::default();
    let store = Store::new(&REFERENCE, settings, 1.0, &interrupt).expect("the settings are well-formed");
    let mut context = store.context(workload.name, workload.shape, thread, settings.threads);
    context.scan_len = workload.scan_len.unwrap_or(context.scan_len);
    let mut stream = workload.shape.stream(&context, settings.distribution);
    let (mut op, mut hasher) = (Op::new(), DefaultHasher::new());
    for _ in 0..500 {
        if !stream.next(&mut op) {
            break;
        }
        op.entries.truncate(op.count);
        op.hash(&mut hasher);
    }
    hasher.finish()
}

#[test]
fn streams_depend_on_seed_and_thread_alone() {
    let settings = |seed: &str| {
        let words = ["--keys", "1000", "--threads", "2", "--key-set", "uuid", "--seed", seed];
        Settings::from_words(&words).expect("the words are well-formed")
    };
    let (one, other) = (settings("1"), settings("2"));
    for workload in WORKLOADS {
        let first = fingerprint(workload, &one, 0);
        assert_eq!(first, fingerprint(workload, &one, 0), "{}", workload.name);
        assert_ne!(first, fingerprint(workload, &one, 1), "{}", workload.name);
        let unseeded = matches!(workload.shape, Shape::Fill { sorted: true } | Shape::Queue);
        if !unseeded {
            assert_ne!(first, fingerprint(workload, &other, 0), "{}", workload.name);
        }
    }
}
