//! Step 2 of the demo: random reads and prefix scans, with latencies. Every value is compared.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pleach::{Db, Partition};

use super::data::{KINDS, Kind, key, value};
use super::report::Report;
use super::{Demo, check};
use crate::failure::Result;
use crate::output::{count, per_second};
use crate::progress;

/// Random reads.
const READS: u64 = 200_000;

/// Prefix scans.
const SCANS: u64 = 200;

/// Keys that share all digits but the last three.
const KEYS_OF_PREFIX: u64 = 1000;

/// Digits of a prefix.
const PREFIX_LEN: usize = super::data::KEY_LEN - 3;

/// Reads between two checks for Ctrl-C.
const LOOK_EVERY: u64 = 1000;

pub(super) fn run(demo: &Demo<'_>, db: &Db, report: &mut Report) -> Result<()> {
    report.step("Read: random keys one at a time, then prefixes of 1,000 keys; all compared")?;
    let partitions = KINDS.map(|kind| (kind, db.find_partition(kind.name)));
    let mut open = Vec::new();
    for (kind, partition) in partitions {
        check(partition.is_some(), || format!("partition {} is gone", kind.name))?;
        open.extend(partition.map(|partition| (kind, partition)));
    }
    reads(demo, &open, report)?;
    scans(demo, &open, report)
}

fn reads(demo: &Demo<'_>, partitions: &[(Kind, Partition)], report: &mut Report) -> Result<()> {
    let reads = READS.min(demo.keys);
    let mut random = fastrand::Rng::with_seed(1);
    let mut latencies = histogram();
    let bar = progress::over_entries(reads);
    for n in 0..reads {
        let (kind, partition) = &partitions[random.usize(..partitions.len())];
        let number = random.u64(..kind.entries(demo.keys));
        let started = Instant::now();
        let found = partition.get(key(number))?;
        record(&mut latencies, started.elapsed());
        let right = found.is_some_and(|found| found == value(kind.name, number));
        check(right, || format!("{} {number} was read back wrong", kind.name))?;
        if n.is_multiple_of(LOOK_EVERY) {
            demo.interrupt.check()?;
            bar.set_position(n);
        }
    }
    bar.finish_and_clear();
    tell(report, "random reads", "reads", &latencies)
}

fn scans(demo: &Demo<'_>, partitions: &[(Kind, Partition)], report: &mut Report) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(2);
    let mut latencies = histogram();
    let (mut seen, started) = (0u64, Instant::now());
    for _ in 0..SCANS {
        demo.interrupt.check()?;
        let (kind, partition) = &partitions[random.usize(..partitions.len())];
        let entries = kind.entries(demo.keys);
        let first = random.u64(..entries) / KEYS_OF_PREFIX * KEYS_OF_PREFIX;
        let started = Instant::now();
        let mut number = first;
        for entry in partition.prefix(&key(first)[..PREFIX_LEN]) {
            let (found_key, found) = entry?;
            let right = found_key == key(number) && found == value(kind.name, number);
            check(right, || format!("{} {number} was scanned wrong", kind.name))?;
            number += 1;
        }
        record(&mut latencies, started.elapsed());
        let end = entries.min(first + KEYS_OF_PREFIX);
        check(number == end, || format!("a scan of {} ended at {number}, not at {end}", kind.name))?;
        seen += number - first;
    }
    let rate = count(per_second(seen, started.elapsed().as_secs_f64()));
    tell(report, "prefix scans", "scans", &latencies)?;
    report.detail(format!("that is {rate} entries a second"))
}

/// Latencies in nanoseconds up to a minute, with three significant digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are possible")
}

fn record(latencies: &mut Histogram<u64>, elapsed: Duration) {
    let nanoseconds = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    latencies.saturating_record(nanoseconds);
}

fn tell(
    report: &mut Report,
    name: &'static str,
    key: &'static str,
    latencies: &Histogram<u64>,
) -> Result<()> {
    let at = |quantile| latencies.value_at_quantile(quantile);
    let (p50, p99, p999) = (at(0.5), at(0.99), at(0.999));
    let text = |ns| format!("{:.1?}", Duration::from_nanos(ns)).replace('\u{b5}', "u");
    let percentiles = format!("p50 {}, p99 {}, p99.9 {}", text(p50), text(p99), text(p999));
    report
        .result(name, format!("{}: {percentiles}, max {}", count(latencies.len()), text(latencies.max())))?;
    let numbers = [
        ("count", latencies.len()),
        ("p50_ns", p50),
        ("p99_ns", p99),
        ("p999_ns", p999),
        ("max_ns", latencies.max()),
    ];
    report.record(key, &numbers);
    Ok(())
}
