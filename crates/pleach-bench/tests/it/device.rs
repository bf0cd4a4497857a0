//! Raw reads of the device, alone and around uncached workloads.

use std::fs;

use serde_json::Value;

use crate::{pleach_bench, text};

#[test]
fn the_device_is_measured_by_driver_and_depth() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words = "device --keys 20000 --value-size 100 --depths 1,4 --drivers blocking,threads --in-calls --rounds 2 \
        --duration 0.05 --no-fio --json out.json";
    let output = pleach_bench(dir.path(), words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = fs::read_to_string(dir.path().join("out.json")).expect("it was written");
    let records: Vec<Value> = serde_json::from_str(&json).expect("it is an array");
    let said = |record: &Value| {
        let number = |field: &str| record[field].as_u64().expect("it is a number");
        (record["direct"] == true, record["driver"].to_string(), number("depth"), number("threads"))
    };
    let rows: Vec<_> = records.iter().map(said).collect();
    let of_path = |direct| {
        let ours = [("blocking", 1, 1), ("blocking", 1, 4)];
        let queues = [1, 4].map(|depth| [("threads", depth, 1), ("threads, calls", depth, 1)]);
        let rows = ours.into_iter().chain(queues.into_iter().flatten());
        rows.map(|(driver, depth, threads)| (direct, format!("{driver:?}"), depth, threads))
            .collect::<Vec<_>>()
    };
    assert_eq!(rows, [of_path(true), of_path(false)].concat());
    for record in &records {
        assert!(
            record["reads_per_s"].as_f64() > Some(0.0) && record["p50_ns"].as_u64() > Some(0),
            "{record}"
        );
        assert_eq!(record["rounds"].as_array().map(Vec::len), Some(2));
    }
    assert!(text(&output.stdout).contains("CPU/read"));
    let left = fs::read_dir(dir.path().join("pleach-bench.data")).expect("the folder stays");
    assert_eq!(left.count(), 0);
    let output = pleach_bench(dir.path(), "device pleach-bench.data --no-fio");
    assert!(!output.status.success() && text(&output.stderr).contains("there are no SSTs"));
}

#[test]
fn scans_in_flight_find_what_scans_of_threads_find() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let found: Vec<_> = ["", "--in-flight 8"]
        .map(|futures| {
            let words = format!(
                "--engines pleach --workloads seekrandom --keys 20000 --value-size 1000 --scan-len 50 --ops 500 --memory 4MiB \
                 {futures} --json out.json"
            );
            let output = pleach_bench(dir.path(), &words);
            assert!(output.status.success(), "{}", text(&output.stderr));
            let json = fs::read_to_string(dir.path().join("out.json")).expect("it was written");
            let records: Vec<Value> = serde_json::from_str(&json).expect("it is an array");
            let [record] = &records[..] else { panic!("one record") };
            assert_eq!((&record["missed"], &record["wrong"]), (&0.into(), &0.into()));
            assert_eq!(record["in_flight"], if futures.is_empty() { 1 } else { 8 });
            record["found"].as_u64()
        })
        .into();
    assert!(found[0] == found[1] && found[0] > Some(20_000), "{found:?}");
}

#[test]
fn rounds_alternate_between_engines_on_stores_loaded_once() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words = "--engines pleach,pleach-leveled --workloads readrandom --keys 30000 --value-size 1000 --ops 3000 --in-flight 8 --direct \
        --rounds 2 --json out.json";
    let output = pleach_bench(dir.path(), words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = fs::read_to_string(dir.path().join("out.json")).expect("it was written");
    let records: Vec<Value> = serde_json::from_str(&json).expect("it is an array");
    let engines: Vec<_> = records.iter().map(|record| record["engine"].as_str().expect("a name")).collect();
    assert_eq!(engines, ["pleach", "pleach-leveled", "pleach", "pleach-leveled"]);
    for record in &records {
        assert_eq!(
            (&record["in_flight"], &record["missed"], &record["wrong"]),
            (&8.into(), &0.into(), &0.into())
        );
        assert_eq!(record["prepared_by"], serde_json::json!(["load in random order"]));
        assert!(
            record["device_reads_per_s"].as_f64() > Some(0.0) && record["cpu_us_per_op"].as_f64() > Some(0.0)
        );
        assert!(
            record["extra"]["rounds_discarded"].is_number() && record["extra"]["device_change"].is_number()
        );
    }
    let left = fs::read_dir(dir.path().join("pleach-bench.data")).expect("the folder stays");
    assert_eq!(left.count(), 0);
}

#[test]
fn a_kept_store_is_used_again_if_it_holds_the_same_keys() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let run = |words: &str| {
        let words = format!("--engines pleach,reference --ops 100 --json out.json {words}");
        let output = pleach_bench(dir.path(), &words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json = fs::read_to_string(dir.path().join("out.json")).expect("it was written");
        let records: Vec<Value> = serde_json::from_str(&json).expect("it is an array");
        assert!(records.iter().all(|record| record["missed"] == 0 && record["wrong"] == 0));
        let last = records.iter().rfind(|record| record["engine"] == "pleach").expect("there is one");
        last["prepared_by"].as_array().expect("a list").len()
    };
    assert_eq!(run("--workloads fillrandom,overwrite,readrandom --keys 3000 --keep"), 2);
    assert_eq!(run("--workloads readrandom --keys 3000 --keep --reuse"), 2);
    // Other keys are loaded. A store that may have other entries is loaded again too.
    assert_eq!(run("--workloads readrandom,deleterandom --keys 2000 --keep --reuse"), 1);
    assert_eq!(run("--workloads readrandom --keys 2000 --reuse"), 1);
}
